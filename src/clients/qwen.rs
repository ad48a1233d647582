//! Qwen Code.

use super::account::{Access, Account, Facts, Place, Seed, Source, Unusable, merged, oauth_creds};
use super::{Preset, Program, Words};
use serde_json::json;

const HOME: Place = Place { var: "QWEN_HOME", home: ".qwen", below: "" };

pub(super) const PRESET: Preset = Preset {
    name: "qwen-code",
    program: Program::Named("qwen"),
    unattended: Words {
        caged: &["--approval-mode=yolo", "--prompt={task}"],
        uncaged: &["--approval-mode=auto-edit", "--prompt={task}"],
    },
    interactive: Words {
        caged: &["--approval-mode=yolo", "--prompt-interactive={task}"],
        uncaged: &["--prompt-interactive={task}"],
    },
    caged_env: &[("QWEN_SANDBOX", "false"), ("QWEN_CODE_SUPPRESS_YOLO_WARNING", "1")],
    state: &[("QWEN_HOME", "qwen-code")],
    login_env: &["OPENAI_API_KEY", "DASHSCOPE_API_KEY"],
    more_env: &["OPENAI_BASE_URL", "OPENAI_MODEL"],
    account: Some(&Account {
        settings: HOME,
        settings_to: "qwen-code",
        copied: &["settings.json", "QWEN.md", "AGENTS.md", "commands", "skills", "agents"],
        login: HOME,
        login_to: "qwen-code",
        file: "oauth_creds.json",
        access,
        state: None,
        seed,
        sign_in: &[],
    }),
};

fn access(bytes: &[u8], _: i64) -> Result<Access, Unusable> {
    oauth_creds(bytes, &["access_token", "token_type", "expiry_date", "resource_url"])
}

/// Over the person's settings.
fn seed(facts: &Facts<'_>) -> Seed {
    let mut settings = json!({
        "general": {
            "enableAutoUpdate": false,
            // It would keep notes on its commits, which would keep the run from being cleared away. What the run
            // did is in the ledger, and its commits do not land.
            "gitCoAuthor": {"commit": false},
        },
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "tools": {"sandbox": false},
    });
    let kind = match facts.login {
        Source::Settings => None,
        Source::File => Some("qwen-oauth"),
        Source::Variables => Some("openai"),
    };
    if let Some(kind) = kind {
        settings["security"] = json!({"auth": {"selectedType": kind}});
    }
    let settings = merged((facts.copied)("settings.json"), settings);
    Seed::default().json("qwen-code/settings.json", &settings)
}
