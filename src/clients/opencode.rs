//! opencode.

use super::account::{Access, Account, Facts, Place, Seed, Unusable, millis, object, text, written};
use super::{Preset, Program, Words};
use serde_json::{Map, Value, json};

pub(super) const PRESET: Preset = Preset {
    name: "opencode",
    program: Program::Named("opencode"),
    unattended: Words { caged: &["run", "--auto", "--", "{task}"], uncaged: &["run", "--", "{task}"] },
    interactive: Words { caged: &["--auto", "--prompt={task}"], uncaged: &["--prompt={task}"] },
    caged_env: &[
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_SHARE", "1"),
        // What a run left is one snapshot of ours; its own ones, one a step, take longer than the steps.
        ("OPENCODE_CONFIG_CONTENT", r#"{"snapshot":false}"#),
    ],
    // The cage's own HOME and XDG folders are below engine/home already.
    state: &[],
    login_env: &[
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_GENERATIVE_AI_API_KEY",
        "OPENROUTER_API_KEY",
        "OPENCODE_API_KEY",
    ],
    more_env: &["ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"],
    account: Some(&Account {
        settings: Place { var: "XDG_CONFIG_HOME", home: ".config", below: "opencode" },
        settings_to: "home/.config/opencode",
        copied: &[
            "opencode.json",
            "opencode.jsonc",
            "config.json",
            "AGENTS.md",
            "agent",
            "agents",
            "command",
            "commands",
            "mode",
            "modes",
            "skill",
            "skills",
            "plugin",
            "plugins",
            "themes",
        ],
        login: Place { var: "XDG_DATA_HOME", home: ".local/share", below: "opencode" },
        login_to: "home/.local/share/opencode",
        file: "auth.json",
        access,
        state: None,
        seed: |_: &Facts<'_>| Seed::default(),
        sign_in: &["auth", "login"],
    }),
};

/// One entry a provider. The one that ends first decides when the person is warned.
fn access(bytes: &[u8], _: i64) -> Result<Access, Unusable> {
    let all = object(bytes)?;
    let mut map = Map::new();
    let mut expires = None;
    for (provider, entry) in &all {
        let Value::Object(entry) = entry else { return Err(Unusable::Malformed) };
        let mut kept = entry.clone();
        match text(entry, "type") {
            Some("api" | "wellknown") => kept.retain(|name, _| !name.contains("refresh")),
            Some("oauth") => {
                // The member has to be there.
                kept.retain(|n, _| matches!(n.as_str(), "type" | "access" | "expires" | "accountId"));
                kept.insert("refresh".into(), json!(""));
                expires = match (expires, millis(entry, "expires").filter(|e| *e > 0)) {
                    (Some(a), Some(b)) => Some(i64::min(a, b)),
                    (a, b) => a.or(b),
                };
            }
            _ => continue,
        }
        map.insert(provider.clone(), Value::Object(kept));
    }
    if map.is_empty() {
        return Err(Unusable::Empty);
    }
    Ok(Access { bytes: written(map), expires })
}
