//! Claude Code.

use super::account::{Access, Account, Facts, Place, Seed, Unusable, millis, object, pick, text, written};
use super::{Preset, Program, Words};
use serde_json::{Map, Value, json};

const HOME: Place = Place { var: "CLAUDE_CONFIG_DIR", home: ".claude", below: "" };

/// Its own sandbox cannot nest in ours, whatever the project's settings say.
const SETTINGS: &str = r#"{"sandbox":{"enabled":false}}"#;

pub(super) const PRESET: Preset = Preset {
    name: "claude-code",
    program: Program::Named("claude"),
    unattended: Words {
        // `acceptEdits` would refuse every shell command that nobody is there to allow.
        caged: &["-p", "--permission-mode", "bypassPermissions", "--settings", SETTINGS, "--", "{task}"],
        uncaged: &["-p", "--permission-mode", "acceptEdits", "--", "{task}"],
    },
    interactive: Words {
        caged: &["--permission-mode", "acceptEdits", "--settings", SETTINGS, "--", "{task}"],
        uncaged: &["--", "{task}"],
    },
    caged_env: &[
        // It refuses `bypassPermissions` as root unless told that it is in a sandbox, which it is.
        ("IS_SANDBOX", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_TELEMETRY", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
    ],
    state: &[("CLAUDE_CONFIG_DIR", "claude-code")],
    login_env: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
    more_env: &["ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "ANTHROPIC_CUSTOM_HEADERS"],
    account: Some(&Account {
        settings: HOME,
        settings_to: "claude-code",
        copied: &["settings.json", "CLAUDE.md", "agents", "commands", "skills", "output-styles", "rules"],
        login: HOME,
        login_to: "claude-code",
        file: ".credentials.json",
        access,
        // Beside `~/.claude`, unless a variable moves both.
        state: Some((Place { var: "CLAUDE_CONFIG_DIR", home: "", below: "" }, ".claude.json")),
        seed,
        sign_in: &["auth", "login"],
    }),
};

fn access(bytes: &[u8], _: i64) -> Result<Access, Unusable> {
    let all = object(bytes)?;
    let Some(Value::Object(login)) = all.get("claudeAiOauth") else { return Err(Unusable::Empty) };
    text(login, "accessToken").ok_or(Unusable::Empty)?;
    // Logins of MCP servers (`mcpOauth`) stay outside as well: they have refresh tokens of their own.
    let kept = pick(login, &["accessToken", "expiresAt", "scopes", "subscriptionType", "rateLimitTier"]);
    let mut map = Map::new();
    map.insert("claudeAiOauth".into(), Value::Object(kept));
    Ok(Access { bytes: written(map), expires: millis(login, "expiresAt") })
}

/// Onboarding and trust as answered; the account's name; nothing else of the person's state, which names every
/// project they ever opened.
fn seed(facts: &Facts<'_>) -> Seed {
    let mut state = match &facts.state {
        Some(Value::Object(all)) => pick(all, &["oauthAccount", "theme", "editorMode", "mcpServers"]),
        _ => Map::new(),
    };
    state.insert("hasCompletedOnboarding".into(), json!(true));
    state.insert("bypassPermissionsModeAccepted".into(), json!(true));
    state.insert("autoUpdates".into(), json!(false));
    let project = json!({"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true});
    state.insert("projects".into(), json!({ facts.tree: project }));
    if let Some(key) = (facts.env)("ANTHROPIC_API_KEY") {
        // How it remembers that this key was allowed: by its last 20 characters.
        let tail: String = key.chars().skip(key.chars().count().saturating_sub(20)).collect();
        state.insert("customApiKeyResponses".into(), json!({"approved": [tail], "rejected": []}));
    }
    Seed::default().json("claude-code/.claude.json", &Value::Object(state))
}
