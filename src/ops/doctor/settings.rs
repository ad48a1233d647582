//! Sandboxes of the clients' own, which do not nest in a cage.

use super::clients::parse;
use super::containment::Finding;
use crate::git::Repo;
use crate::os::process;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A setting that switches a client's own sandbox on: client, file below HOME and the repository, comments, how
/// to see it.
type Setting = (&'static str, &'static str, bool, fn(&Value) -> bool);

const SETTINGS: &[Setting] = &[
    ("claude-code", ".claude/settings.json", false, |v| v["sandbox"]["enabled"] == true),
    ("claude-code", ".claude/settings.local.json", false, |v| v["sandbox"]["enabled"] == true),
    ("gemini-cli", ".gemini/settings.json", true, in_tools),
    ("qwen-code", ".qwen/settings.json", true, in_tools),
];

fn in_tools(settings: &Value) -> bool {
    let on = |v: &Value| v.as_bool().unwrap_or(v.as_str().is_some_and(|s| !s.is_empty() && s != "false"));
    on(&settings["tools"]["sandbox"]) || on(&settings["sandbox"])
}

/// Variables that do the same.
const VARIABLES: &[(&str, &str)] = &[("gemini-cli", "GEMINI_SANDBOX"), ("qwen-code", "QWEN_SANDBOX")];

/// Where the person's or the project's settings ask a client for a sandbox of its own.
pub fn nested_sandboxes(repo: Option<&Repo>) -> Vec<Finding> {
    let home = process::current_user().home;
    let places: Vec<&Path> =
        home.iter().map(PathBuf::as_path).chain(repo.and_then(Repo::work_tree)).collect();
    let mut all = Vec::new();
    for (client, file, comments, is_on) in SETTINGS {
        for path in places.iter().map(|p| p.join(file)) {
            if let Some(Ok(settings)) = parse(&path, *comments)
                && is_on(&settings)
            {
                all.push(finding(client, &format!("'{}'", path.display())));
            }
        }
    }
    for (client, variable) in VARIABLES {
        let on = |v: std::ffi::OsString| !v.is_empty() && v != "false" && v != "0";
        if std::env::var_os(variable).is_some_and(on) {
            all.push(finding(client, &format!("${variable}")));
        }
    }
    all
}

fn finding(client: &str, place: &str) -> Finding {
    Finding {
        kind: "nested-sandbox",
        what: format!(
            "{place} switches on a sandbox of {client}'s own; a sandbox cannot be built inside the cage"
        ),
        hint: Some("switch it off for runs: there the cage holds the whole client".to_owned()),
        names: vec![client.to_owned()],
    }
}
