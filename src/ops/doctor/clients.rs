//! Hooks of agent clients: which files configure them, whether those can be read, and whether what they name
//! answers. A hook that does not run is worse than none, because somebody counts on it.

use super::containment::Finding;
use crate::git::Repo;
use crate::os::feed::feed;
use crate::os::{files, process};
use crate::text::strip_json_comments;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a hook may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the hooks of a file are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "why")]
pub enum HookState {
    /// Ours is there and answers.
    Answers,
    /// There are hooks, none of them ours, and nothing is known against them.
    Others,
    /// The file cannot be read as the client reads it: none of its hooks runs.
    Malformed(String),
    /// A setting switches all hooks off.
    Off,
    /// The client has not been told to trust it.
    Untrusted(String),
    /// It names what is not there, or gives no answer.
    Silent(String),
}

impl HookState {
    /// Whether somebody may count on hooks that do not work.
    pub fn is_bad(&self) -> bool {
        !matches!(self, Self::Answers | Self::Others)
    }
}

/// One file with hooks in it.
#[derive(Debug, Clone, Serialize)]
pub struct HookFile {
    /// The client that reads it.
    pub client: &'static str,
    /// The file.
    #[serde(serialize_with = "super::lossy")]
    pub path: PathBuf,
    /// How its hooks are.
    #[serde(flatten)]
    pub state: HookState,
}

/// A place where a client looks.
struct Source {
    client: &'static str,
    /// Below HOME, or below the folder that the variable names.
    user: &'static str,
    variable: Option<&'static str>,
    /// Below the top of the repository.
    project: &'static [&'static str],
    /// Whether the client takes comments in its JSON.
    comments: bool,
    /// Whether the file is about hooks alone: then one without them is malformed.
    hooks_only: bool,
}

const SOURCES: &[Source] = &[
    Source {
        client: "claude-code",
        user: ".claude/settings.json",
        variable: Some("CLAUDE_CONFIG_DIR"),
        project: &[".claude/settings.json", ".claude/settings.local.json"],
        comments: false,
        hooks_only: false,
    },
    Source {
        client: "codex",
        user: ".codex/hooks.json",
        variable: Some("CODEX_HOME"),
        project: &[".codex/hooks.json"],
        comments: false,
        hooks_only: true,
    },
    Source {
        client: "gemini-cli",
        user: ".gemini/settings.json",
        variable: None,
        project: &[".gemini/settings.json"],
        comments: true,
        hooks_only: false,
    },
    Source {
        client: "qwen-code",
        user: ".qwen/settings.json",
        variable: None,
        project: &[".qwen/settings.json"],
        comments: true,
        hooks_only: false,
    },
    Source {
        client: "cursor",
        user: ".cursor/hooks.json",
        variable: None,
        project: &[".cursor/hooks.json"],
        comments: false,
        hooks_only: true,
    },
];

/// One command that a file registers, and where: event, group, number in the group.
struct Handler {
    event: String,
    place: (usize, usize),
    command: String,
}

/// Reads every file that exists. `dir` is a folder of ours for hooks to be asked in.
pub fn look(repo: Option<&Repo>, dir: &Path) -> Vec<HookFile> {
    let top = repo.and_then(Repo::work_tree);
    let mut found = Vec::new();
    for source in SOURCES {
        let read: Vec<(PathBuf, Result<Value, String>)> = paths(source, top)
            .into_iter()
            .filter_map(|p| Some((p.clone(), parse(&p, source.comments)?)))
            .collect();
        // A switch in one file is for the hooks of all.
        let off = read.iter().any(|(_, v)| v.as_ref().is_ok_and(is_off));
        for (path, value) in read {
            let state = match value {
                Err(why) => Some(HookState::Malformed(why)),
                Ok(value) => judge(source, &path, &value, off, top, dir),
            };
            found.extend(state.map(|state| HookFile { client: source.client, path, state }));
        }
    }
    found
}

fn paths(source: &Source, top: Option<&Path>) -> Vec<PathBuf> {
    let moved = source.variable.and_then(std::env::var_os).map(PathBuf::from);
    let name = Path::new(source.user).file_name().unwrap_or_default();
    let user = match moved {
        Some(folder) => Some(folder.join(name)),
        None => process::current_user().home.map(|h| h.join(source.user)),
    };
    let project = top.into_iter().flat_map(|t| source.project.iter().map(|p| t.join(p)));
    let mut all: Vec<PathBuf> = user.into_iter().chain(project).collect();
    // HOME can be the repository.
    all.dedup();
    all
}

/// `None` when there is no such file.
pub(super) fn parse(path: &Path, comments: bool) -> Option<Result<Value, String>> {
    // Settings are often links into a repository of dot files.
    let path = std::fs::canonicalize(path).ok()?;
    let bytes = match files::read_bounded(&path, 1 << 20) {
        Ok(bytes) => bytes?,
        Err(e) => return Some(Err(e.to_string())),
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => return Some(Err("it is not UTF-8".to_owned())),
    };
    let text = if comments { strip_json_comments(&text) } else { text };
    Some(serde_json::from_str(&text).map_err(|e| e.to_string()))
}

fn is_off(settings: &Value) -> bool {
    settings["disableAllHooks"] == true || settings["hooksConfig"]["enabled"] == false
}

/// `None` for settings without hooks.
fn judge(
    source: &Source,
    path: &Path,
    value: &Value,
    off: bool,
    top: Option<&Path>,
    dir: &Path,
) -> Option<HookState> {
    let handlers = match handlers(source, value) {
        Ok(handlers) => handlers,
        Err(why) => return Some(HookState::Malformed(why)),
    };
    if handlers.is_empty() {
        return is_off(value).then_some(HookState::Off);
    }
    if off {
        return Some(HookState::Off);
    }
    if source.client == "codex"
        && let Some(event) = untrusted(path, &handlers)
    {
        return Some(HookState::Untrusted(event));
    }
    for handler in &handlers {
        if let Some(missing) = missing_program(&handler.command, top) {
            return Some(HookState::Silent(format!("{}: '{missing}' is not there", handler.event)));
        }
    }
    Some(handlers.iter().find(|h| is_ours(&h.command)).map_or(HookState::Others, |ours| ask(ours, dir)))
}

/// The commands of a file, or what is wrong with its shape.
fn handlers(source: &Source, value: &Value) -> Result<Vec<Handler>, String> {
    let Some(root) = value.as_object() else { return Err("it is not an object".to_owned()) };
    if source.client == "cursor" && root.get("version").is_none_or(|v| *v != 1) {
        return Err("'version' must be 1".to_owned());
    }
    let hooks = match root.get("hooks") {
        None if source.hooks_only => return Err("it has no 'hooks'".to_owned()),
        None => return Ok(Vec::new()),
        Some(hooks) => hooks.as_object().ok_or("'hooks' is not an object")?,
    };
    let mut all = Vec::new();
    for (event, groups) in hooks {
        // Qwen Code and Gemini CLI have switches and lists of names beside the events.
        let Some(groups) = groups.as_array() else {
            if source.client == "gemini-cli" || source.client == "qwen-code" {
                continue;
            }
            return Err(format!("'{event}' is not a list"));
        };
        for (g, group) in groups.iter().enumerate() {
            if source.client != "cursor" && group.is_string() {
                continue;
            }
            let list = if source.client == "cursor" {
                std::slice::from_ref(group)
            } else {
                let list = group["hooks"].as_array();
                list.ok_or_else(|| format!("'{event}' has an entry without a list of 'hooks'"))?.as_slice()
            };
            for (h, handler) in list.iter().enumerate() {
                let kind = handler["type"].as_str().unwrap_or("command");
                match handler["command"].as_str() {
                    Some(command) => {
                        all.push(Handler { event: event.clone(), place: (g, h), command: command.to_owned() })
                    }
                    None if kind == "command" => {
                        return Err(format!("'{event}' has an entry without a 'command'"));
                    }
                    None => {}
                }
            }
        }
    }
    Ok(all)
}

/// The event of a hook that Codex was not told to trust. It keeps that for each hook, by the path of its file, in
/// its own config.toml: in another worktree the same hook is a new one.
fn untrusted(path: &Path, handlers: &[Handler]) -> Option<String> {
    let config = match std::env::var_os("CODEX_HOME") {
        Some(home) => PathBuf::from(home).join("config.toml"),
        None => process::current_user().home?.join(".codex/config.toml"),
    };
    let text = files::read_bounded(&config, 1 << 20).ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let untrusted = handlers.iter().find(|h| {
        let key = format!("{}:{}:{}:{}", path.display(), snake(&h.event), h.place.0, h.place.1);
        !is_trusted(&text, &key)
    });
    untrusted.map(|h| h.event.clone())
}

fn is_trusted(config: &str, key: &str) -> bool {
    let quoted = key.replace('\\', "\\\\").replace('"', "\\\"");
    let heads = [format!("[hooks.state.\"{quoted}\"]"), format!("[hooks.state.'{key}']")];
    let mut lines = config.lines().map(str::trim).skip_while(|l| !heads.iter().any(|h| h == l)).skip(1);
    let own: Vec<&str> = lines.by_ref().take_while(|l| !l.starts_with('[')).collect();
    own.iter().any(|l| l.starts_with("trusted_hash"))
        && !own.iter().any(|l| l.replace(' ', "").starts_with("enabled=false"))
}

fn snake(event: &str) -> String {
    let mut name = String::new();
    for c in event.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

fn is_ours(command: &str) -> bool {
    let words: Vec<&str> = command.split(|c: char| c.is_whitespace() || "\"'();&|".contains(c)).collect();
    let program = |w: &&str| w.rsplit('/').next() == Some("git-agent");
    words.iter().any(program) || words.windows(2).any(|w| w[0].ends_with("git") && w[1] == "agent")
}

/// The program of a command, where it is plainly not there. What the shell would have to work out is believed.
fn missing_program(command: &str, top: Option<&Path>) -> Option<String> {
    let project = top.map(|t| t.to_string_lossy().into_owned()).unwrap_or_default();
    let command = ["${CLAUDE_PROJECT_DIR}", "$CLAUDE_PROJECT_DIR"]
        .iter()
        .fold(command.to_owned(), |c, v| c.replace(v, &project));
    let command = command.trim_start();
    let word = match command.strip_prefix(['"', '\'']) {
        Some(rest) => rest.split(['"', '\'']).next()?,
        None => command.split_whitespace().next()?,
    };
    let plain = |c: char| c.is_alphanumeric() || "/._-+ ".contains(c);
    if !word.chars().all(plain) || word.is_empty() {
        return None;
    }
    let there = if word.starts_with('/') {
        Path::new(word).exists()
    } else if word.contains('/') {
        top.is_none_or(|t| t.join(word).exists())
    } else {
        const BUILT_IN: &[&str] =
            &["test", "if", "for", "while", "case", "exec", "cd", "true", "exit", "command", "eval"];
        BUILT_IN.contains(&word) || super::engines::is_on_path(word)
    };
    (!there).then(|| word.to_owned())
}

/// Asks our hook as the client would, about reading a file, which nobody forbids. Allowed or denied are answers;
/// anything else lets every call pass.
fn ask(handler: &Handler, dir: &Path) -> HookState {
    let question = serde_json::json!({
        "session_id": "doctor",
        "transcript_path": "",
        "cwd": dir,
        "hook_event_name": handler.event,
        "turn_id": "doctor",
        "tool_name": "Read",
        "tool_input": { "file_path": dir.join("main/README") },
    });
    match feed(&handler.command, question.to_string().as_bytes(), dir, PATIENCE) {
        Ok(Some(0 | 2)) => HookState::Answers,
        Ok(Some(status)) => HookState::Silent(format!("{} ends with status {status}", handler.event)),
        Ok(None) => {
            HookState::Silent(format!("{} gives no answer in {} s", handler.event, PATIENCE.as_secs()))
        }
        Err(e) => HookState::Silent(format!("{}: {e}", handler.event)),
    }
}

/// The bad ones as findings.
pub fn findings(hooks: &[HookFile]) -> Vec<Finding> {
    let finding = |h: &HookFile| {
        let (path, client) = (h.path.to_string_lossy(), h.client);
        let (what, hint) = match &h.state {
            HookState::Answers | HookState::Others => return None,
            HookState::Malformed(why) => (
                format!("'{path}' cannot be read, so none of its hooks runs in {client}: {why}"),
                format!("mend '{path}'; in a run the cage holds whatever hooks do"),
            ),
            HookState::Off => (
                format!("'{path}' has hooks, and {client} is told to run none"),
                "take out disableAllHooks, or hooksConfig.enabled = false".to_owned(),
            ),
            HookState::Untrusted(event) => (
                format!("{client} was not told to trust the {event} hook of '{path}' and skips it"),
                "start codex there once and accept the hook under /hooks; in a run the cage holds without it"
                    .to_owned(),
            ),
            HookState::Silent(why) => (
                format!(
                    "a hook in '{path}' is configured and does not fire, so {client} lets every call pass: {why}"
                ),
                format!("put it right or take it out of '{path}'"),
            ),
        };
        Some(Finding { kind: "hook", what, hint: Some(hint), names: vec![path.into_owned()] })
    };
    hooks.iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(client: &str) -> &'static Source {
        SOURCES.iter().find(|s| s.client == client).unwrap()
    }

    fn shape(client: &str, text: &str) -> Result<usize, String> {
        let value = serde_json::from_str(text).unwrap();
        handlers(source(client), &value).map(|h| h.len())
    }

    #[test]
    fn shapes() {
        let claude = r#"{"hooks":{"PreToolUse":[{"matcher":"*","hooks":[{"type":"command","command":"a"},{"type":"prompt","prompt":"b"}]}]}}"#;
        assert_eq!(shape("claude-code", claude), Ok(1));
        assert_eq!(shape("claude-code", "{}"), Ok(0));
        assert!(shape("claude-code", r#"{"hooks":[]}"#).is_err());
        assert!(shape("claude-code", r#"{"hooks":{"PreToolUse":{}}}"#).is_err());
        assert!(shape("claude-code", r#"{"hooks":{"PreToolUse":[{"command":"a"}]}}"#).is_err());
        assert!(shape("codex", "{}").is_err());
        assert_eq!(
            shape("gemini-cli", r#"{"hooks":{"disabled":["x"],"BeforeTool":[{"hooks":[{"command":"a"}]}]}}"#),
            Ok(1)
        );
        assert_eq!(
            shape("cursor", r#"{"version":1,"hooks":{"beforeShellExecution":[{"command":"a"}]}}"#),
            Ok(1)
        );
        assert!(shape("cursor", r#"{"hooks":{"beforeShellExecution":[{"command":"a"}]}}"#).is_err());
        assert!(shape("cursor", r#"{"version":1,"hooks":{"beforeShellExecution":[{}]}}"#).is_err());
        assert!(shape("cursor", r#"{"version":1,"hooks":{"beforeShellExecution":"a"}}"#).is_err());
        assert!(shape("cursor", "[]").is_err());
    }

    #[test]
    fn codex_trusts_hook_by_hook() {
        let config = "[projects.\"/r\"]\ntrust_level = \"trusted\"\n\n[hooks.state.\"/r/.codex/hooks.json:pre_tool_use:0:0\"]\ntrusted_hash = \"sha256:x\"\n[hooks.state.\"/r/.codex/hooks.json:stop:0:0\"]\nenabled = false\ntrusted_hash = \"sha256:x\"\n[other]\n";
        assert!(is_trusted(config, "/r/.codex/hooks.json:pre_tool_use:0:0"));
        assert!(!is_trusted(config, "/r/.codex/hooks.json:stop:0:0"));
        assert!(!is_trusted(config, "/r/.codex/hooks.json:pre_tool_use:0:1"));
        assert!(!is_trusted(config, "/worktree/.codex/hooks.json:pre_tool_use:0:0"));
        assert_eq!(snake("PreToolUse"), "pre_tool_use");
    }

    #[test]
    fn ours_is_told_by_its_program() {
        for ours in [
            "git-agent hook",
            "/usr/bin/git-agent hook x",
            "git agent hook",
            "\"/a b/git-agent\" hook",
            "x && git-agent y",
        ] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in ["touch /tmp/git-agent-1/x", "git agents", "my-git-agent", "echo agent git"] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn programs_that_are_plainly_missing() {
        let top = Path::new("/");
        assert_eq!(missing_program("/no/such/hook --x", Some(top)).as_deref(), Some("/no/such/hook"));
        assert_eq!(
            missing_program("\"$CLAUDE_PROJECT_DIR/no such\" x", Some(top)).as_deref(),
            Some("//no such")
        );
        assert_eq!(missing_program("sh -c true", Some(top)), None);
        assert_eq!(missing_program("$(which x) y", Some(top)), None);
        assert_eq!(missing_program("if true; then x; fi", Some(top)), None);
        assert_eq!(
            missing_program("no-such-program-anywhere", None).as_deref(),
            Some("no-such-program-anywhere")
        );
    }
}
