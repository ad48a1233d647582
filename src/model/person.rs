//! Whether an agent is at the keyboard: a pure look at the environment and at the processes above us. It stops
//! mistakes and eager agents; a hostile process of the same user can shed both.

use std::fmt;

/// A process above ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start: u64,
    /// `comm`: what the process calls itself, else the first 15 bytes of its program's name.
    pub comm: String,
    /// File name of the program; `None` where the kernel does not show it (another user's process).
    pub exe: Option<String>,
    /// The first words of its command line.
    pub args: Vec<String>,
}

/// What gave an agent away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentSign {
    /// A variable that clients set for what they start.
    Variable(String),
    /// A client above us.
    Process {
        /// Its process id.
        pid: i32,
        /// The client it was recognised as.
        client: &'static str,
    },
}

impl fmt::Display for AgentSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentSign::Variable(name) => {
                write!(f, "the variable {} is set", crate::text::Untrusted::new(name))
            }
            AgentSign::Process { pid, client } => write!(f, "it was started below {client} (process {pid})"),
        }
    }
}

/// Programs of agent clients.
const CLIENTS: &[&str] = &[
    "claude",
    "claude-code",
    "codex",
    "gemini",
    "gemini-cli",
    "qwen",
    "qwen-code",
    "opencode",
    "cursor-agent",
    "copilot",
    "aider",
    "goose",
    "amp",
    "crush",
    "droid",
];

/// Packages whose scripts are called `cli.js` or the like.
const PACKAGES: &[(&str, &str)] = &[
    ("@anthropic-ai/claude-code/", "claude"),
    ("@openai/codex/", "codex"),
    ("@google/gemini-cli/", "gemini"),
    ("@qwen-code/qwen-code/", "qwen"),
    ("opencode-ai/", "opencode"),
    ("@github/copilot/", "copilot"),
];

/// Programs that run another file as their program.
const INTERPRETERS: &[&str] =
    &["node", "nodejs", "bun", "deno", "python", "python3", "sh", "bash", "dash", "zsh"];

/// The first sign that an agent is at work: in the names of the environment's variables, else in the
/// processes above, nearest first.
pub fn agent<'a>(variables: impl IntoIterator<Item = &'a str>, ancestors: &[Ancestor]) -> Option<AgentSign> {
    let mut marked: Vec<&str> = variables.into_iter().filter(|v| is_marker(v)).collect();
    marked.sort_unstable();
    if let Some(name) = marked.first() {
        return Some(AgentSign::Variable((*name).to_owned()));
    }
    let found = |a: &Ancestor| Some(AgentSign::Process { pid: a.pid, client: client(a)? });
    ancestors.iter().find_map(found)
}

/// Set by a client for what it starts, or by our cage for what runs in it. An empty value counts: a person
/// has no reason to set one.
fn is_marker(name: &str) -> bool {
    matches!(
        name,
        "CLAUDECODE" | "AI_AGENT" | "GEMINI_CLI" | "GIT_AGENT_RUN" | "GIT_AGENT_NAME" | "GIT_AGENT_TASK"
    ) || name.starts_with("CODEX_") && name != "CODEX_HOME"
        || name.starts_with("QWEN_CODE")
        || name.starts_with("OPENCODE")
        || name.starts_with("CLAUDE_CODE_")
        || matches!(name, "CURSOR_AGENT" | "COPILOT_CLI")
}

/// The client that a process is, by what it calls itself, by its program, or by the script it interprets.
fn client(process: &Ancestor) -> Option<&'static str> {
    let program = process.args.first().map(|a| base(a));
    let own = [Some(process.comm.as_str()), process.exe.as_deref().map(base), program];
    if let Some(name) = own.into_iter().flatten().find_map(named) {
        return Some(name);
    }
    let interprets = own.into_iter().flatten().any(|n| {
        // python3.12, node-22
        let n =
            n.trim_start_matches('-').trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        INTERPRETERS.contains(&n) || n == "python"
    });
    if !interprets {
        return None;
    }
    let mut words = process.args.iter().skip(1);
    let script = loop {
        match words.next()?.as_str() {
            // What follows is a program text, not a file.
            "-c" | "-e" | "--eval" | "-p" | "--print" => return None,
            "-m" => break words.next()?.as_str(),
            option if option.starts_with('-') => {}
            file => break file,
        }
    };
    let packaged = PACKAGES.iter().find(|(package, _)| script.contains(package)).map(|(_, name)| *name);
    packaged.or_else(|| named(base(script)))
}

/// A client's name, also with a script's ending or with the platform behind it (`codex-x86_64-unknown-linux-musl`).
fn named(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let name = [".js", ".mjs", ".cjs", ".ts", ".py", ".sh"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(name);
    let is = |known: &&&'static str| {
        name == **known
            || name.strip_prefix(**known).and_then(|rest| rest.strip_prefix('-')).is_some_and(|rest| {
                ["x86_64", "aarch64", "x64", "arm64", "linux"].iter().any(|p| rest.starts_with(p))
            })
    };
    CLIENTS.iter().find(is).copied()
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(comm: &str, exe: &str, args: &[&str]) -> Ancestor {
        Ancestor {
            pid: 7,
            start: 1,
            comm: comm.into(),
            exe: Some(exe.into()),
            args: args.iter().map(|a| (*a).to_owned()).collect(),
        }
    }

    #[test]
    fn variables_give_an_agent_away() {
        for name in [
            "CLAUDECODE",
            "AI_AGENT",
            "CODEX_SANDBOX",
            "GEMINI_CLI",
            "QWEN_CODE_X",
            "OPENCODE",
            "GIT_AGENT_RUN",
        ] {
            assert_eq!(agent([name, "PATH"], &[]), Some(AgentSign::Variable(name.into())), "{name}");
        }
        let own =
            ["CODEX_HOME", "CLAUDE_CONFIG_DIR", "GIT_AGENT_CAGE", "GIT_AGENT_ISOLATION", "PATH", "XCODEX_A"];
        assert_eq!(agent(own, &[]), None);
    }

    #[test]
    fn clients_are_known_as_program_as_script_and_by_package() {
        for client in [
            process("claude", "/home/u/.local/share/claude/versions/2.1.197", &["claude", "-p"]),
            process("x", "/usr/bin/codex (deleted)", &["x"]),
            process("codex-x86_64-un", "/opt/codex-x86_64-unknown-linux-musl", &["codex"]),
            process("node", "/usr/bin/node", &["node", "--no-warnings", "/usr/bin/gemini"]),
            process(
                "node-22",
                "/usr/bin/node",
                &["node", "/l/node_modules/@anthropic-ai/claude-code/cli.js"],
            ),
            process("python3", "/usr/bin/python3.12", &["python3", "-m", "aider"]),
            process("bash", "/usr/bin/bash", &["/bin/bash", "/home/u/bin/qwen"]),
        ] {
            assert!(agent([], std::slice::from_ref(&client)).is_some(), "{client:?}");
        }
        for person in [
            process("bash", "/usr/bin/bash", &["-bash"]),
            process("bash", "/usr/bin/bash", &["bash", "-c", "ls /home/u/claude"]),
            process("vim", "/usr/bin/vim", &["vim", "claude"]),
            process("node", "/usr/bin/node", &["node", "server.js"]),
            process("codex-notes", "/usr/bin/codex-notes", &["codex-notes"]),
        ] {
            assert_eq!(agent([], std::slice::from_ref(&person)), None, "{person:?}");
        }
    }
}
