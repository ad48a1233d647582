//! Gemini CLI.

use super::account::{Access, Account, Facts, Place, Seed, Source, Unusable, merged, oauth_creds};
use super::{Preset, Program, Words};
use serde_json::json;

const HOME: Place = Place { var: "GEMINI_CLI_HOME", home: "", below: ".gemini" };

pub(super) const PRESET: Preset = Preset {
    name: "gemini-cli",
    program: Program::Named("gemini"),
    unattended: Words {
        // In a folder that nobody trusted, every approval mode silently becomes `default`.
        caged: &["--skip-trust", "--approval-mode=yolo", "--prompt={task}"],
        uncaged: &["--skip-trust", "--approval-mode=auto_edit", "--prompt={task}"],
    },
    interactive: Words {
        caged: &["--skip-trust", "--approval-mode=yolo", "--prompt-interactive={task}"],
        uncaged: &["--prompt-interactive={task}"],
    },
    caged_env: &[("GEMINI_SANDBOX", "false")],
    state: &[("GEMINI_CLI_HOME", "gemini-cli")],
    login_env: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    more_env: &[
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_VERTEX_BASE_URL",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_GENAI_USE_VERTEXAI",
        "GEMINI_MODEL",
    ],
    account: Some(&Account {
        settings: HOME,
        settings_to: "gemini-cli/.gemini",
        copied: &[
            "settings.json",
            "GEMINI.md",
            "commands",
            "skills",
            "agents",
            "policies",
            "google_accounts.json",
        ],
        login: HOME,
        login_to: "gemini-cli/.gemini",
        file: "oauth_creds.json",
        access,
        state: None,
        seed,
        sign_in: &[],
    }),
};

fn access(bytes: &[u8], _: i64) -> Result<Access, Unusable> {
    oauth_creds(bytes, &["access_token", "token_type", "expiry_date", "scope", "id_token"])
}

/// Over the person's settings. A settings file of the system's would beat the project's too, but has to be root's.
fn seed(facts: &Facts<'_>) -> Seed {
    let mut settings = json!({
        "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
        "privacy": {"usageStatisticsEnabled": false},
        "tools": {"sandbox": false},
    });
    // It does not find out by itself where a variable names another server.
    let kind = match facts.login {
        Source::Settings => None,
        Source::File => Some("oauth-personal"),
        Source::Variables if (facts.env)("GOOGLE_GENAI_USE_VERTEXAI").is_some_and(|v| v == "true") => {
            Some("vertex-ai")
        }
        Source::Variables if (facts.env)("GEMINI_API_KEY").is_none() => Some("vertex-ai"),
        Source::Variables => Some("gemini-api-key"),
    };
    if let Some(kind) = kind {
        settings["security"] = json!({"auth": {"selectedType": kind}});
    }
    let settings = merged((facts.copied)("settings.json"), settings);
    Seed::default().json("gemini-cli/.gemini/settings.json", &settings)
}
