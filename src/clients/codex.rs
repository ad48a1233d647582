//! Codex.

use super::account::{Access, Account, Facts, Place, Seed, Source, Unusable, object, pick, text, written};
use super::{Preset, Program, Words};
use chrono::{DateTime, SecondsFormat};
use serde_json::{Value, json};

const HOME: Place = Place { var: "CODEX_HOME", home: ".codex", below: "" };

pub(super) const PRESET: Preset = Preset {
    name: "codex",
    program: Program::Named("codex"),
    unattended: Words {
        caged: &["exec", "--sandbox", "danger-full-access", "--skip-git-repo-check", "--", "{task}"],
        uncaged: &["exec", "--sandbox", "workspace-write", "--skip-git-repo-check", "--", "{task}"],
    },
    interactive: Words {
        caged: &["--sandbox", "danger-full-access", "--ask-for-approval", "never", "--", "{task}"],
        uncaged: &["--sandbox", "workspace-write", "--ask-for-approval", "on-request", "--", "{task}"],
    },
    caged_env: &[],
    state: &[("CODEX_HOME", "codex")],
    login_env: &["CODEX_API_KEY", "OPENAI_API_KEY"],
    more_env: &["OPENAI_BASE_URL"],
    account: Some(&Account {
        settings: HOME,
        settings_to: "codex",
        copied: &["config.toml", "AGENTS.md", "AGENTS.override.md", "prompts", "skills", "rules", "agents"],
        login: HOME,
        login_to: "codex",
        file: "auth.json",
        access,
        state: None,
        seed,
        sign_in: &["login"],
    }),
};

fn access(bytes: &[u8], now: i64) -> Result<Access, Unusable> {
    let all = object(bytes)?;
    let mut map = pick(&all, &["auth_mode", "OPENAI_API_KEY"]);
    let mut expires = None;
    match all.get("tokens") {
        Some(Value::Object(tokens)) if text(tokens, "access_token").is_some() => {
            let mut kept = pick(tokens, &["id_token", "access_token", "account_id"]);
            // The member has to be there.
            kept.insert("refresh_token".into(), json!(""));
            expires = text(tokens, "access_token").and_then(expiry);
            map.insert("tokens".into(), Value::Object(kept));
            // It would try to refresh what is older than some days, and has nothing to do that with.
            let time = DateTime::from_timestamp(now, 0).unwrap_or_default();
            map.insert("last_refresh".into(), json!(time.to_rfc3339_opts(SecondsFormat::Secs, true)));
        }
        _ => {
            text(&all, "OPENAI_API_KEY").ok_or(Unusable::Empty)?;
        }
    }
    Ok(Access { bytes: written(map), expires })
}

/// When a JSON web token ends. Nobody relies on it but the sentence that warns.
fn expiry(token: &str) -> Option<i64> {
    let payload = token.split('.').nth(1)?;
    let mut bits = 0_u32;
    let mut count = 0;
    let mut bytes = Vec::new();
    for c in payload.bytes().filter(|c| *c != b'=') {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    serde_json::from_slice::<Value>(&bytes).ok()?.get("exp")?.as_i64()
}

fn seed(facts: &Facts<'_>) -> Seed {
    let text = |s: &str| Value::from(s).to_string();
    // What JSON quotes is quoted for TOML too.
    let mut config = (facts.copied)("config.toml").unwrap_or_default();
    if !config.is_empty() && !config.ends_with(b"\n") {
        config.push(b'\n');
    }
    config.extend(format!("\n[projects.{}]\ntrust_level = \"trusted\"\n", text(facts.tree)).into_bytes());
    let mut seed = Seed { files: vec![("codex/config.toml".into(), config)], ..Seed::default() };
    for setting in ["check_for_update_on_startup=false", "analytics.enabled=false"] {
        seed.words.extend(["-c".to_owned(), setting.to_owned()]);
    }
    if facts.login == Source::Variables {
        // It no longer reads the one variable, and the other only where nobody is at the terminal.
        if let Some(url) = (facts.env)("OPENAI_BASE_URL") {
            seed.words.extend(["-c".to_owned(), format!("openai_base_url={}", text(&url))]);
        }
        if let Some(key) = (facts.env)("CODEX_API_KEY").or_else(|| (facts.env)("OPENAI_API_KEY")) {
            seed = seed.json("codex/auth.json", &json!({"auth_mode": "apikey", "OPENAI_API_KEY": key}));
        }
    }
    seed
}
