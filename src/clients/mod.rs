//! Engine presets: the agent clients that are known by name, as data. Starts nothing and reads nothing; the
//! policy may add to a preset or replace its command.

pub mod demo;

use crate::text::nearest as nearest_words;

/// Stands for the task's text inside a word of a command.
pub const TASK: &str = "{task}";
/// Stands for the path of the task file inside a word of a command.
pub const TASK_FILE: &str = "{task_file}";

/// What a preset starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// A program found on PATH.
    Named(&'static str),
    /// Our own executable, wherever it is.
    Ourselves,
    /// The words that the caller gives after `--`.
    Given,
}

/// The words after the program. `{task}` and `{task_file}` inside a word are filled in by [`fill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// In a cage: the kernel is the boundary, so the client neither asks nor builds a sandbox of its own (it
    /// could not nest).
    pub caged: &'static [&'static str],
    /// Without a cage (`GIT_AGENT_CAGE=off`): the client's own guard stays as far as it works unattended.
    pub uncaged: &'static [&'static str],
}

/// An engine that is known by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name on the command line, in the policy and in the ledger.
    pub name: &'static str,
    /// What it starts.
    pub program: Program,
    /// Without a person: does the task and ends.
    pub unattended: Words,
    /// With a person at the terminal: starts with the task and stays.
    pub interactive: Words,
    /// Variables set in a cage, and only there.
    pub caged_env: &'static [(&'static str, &'static str)],
    /// The variable that moves the client's own state and login, to be pointed into the run's `engine/`.
    pub home: Option<&'static str>,
    /// The client's own variables that hold or select a login; only these pass with the login `env`.
    pub login_env: &'static [&'static str],
}

impl Preset {
    /// The words after the program, with places still to be filled by [`fill`].
    pub fn words(&self, interactive: bool, caged: bool) -> &'static [&'static str] {
        let words = if interactive { &self.interactive } else { &self.unattended };
        if caged { words.caged } else { words.uncaged }
    }
}

/// The presets, by name. The flags are those of Claude Code 2.1.332, Codex 0.171.0, Gemini CLI 0.61.0, Qwen
/// Code 0.24.4 and opencode 1.18.33, read from each program's own `--help`.
///
/// A task may start with `-`: it is either behind `--` or in one word with its option.
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "claude-code",
        program: Program::Named("claude"),
        unattended: Words {
            // `acceptEdits` would refuse every shell command that nobody is there to allow.
            caged: &["-p", "--permission-mode", "bypassPermissions", "--", "{task}"],
            uncaged: &["-p", "--permission-mode", "acceptEdits", "--", "{task}"],
        },
        interactive: Words {
            caged: &["--permission-mode", "acceptEdits", "--", "{task}"],
            uncaged: &["--", "{task}"],
        },
        // It refuses `bypassPermissions` as root unless told that it is in a sandbox, which it is.
        caged_env: &[("IS_SANDBOX", "1")],
        home: Some("CLAUDE_CONFIG_DIR"),
        login_env: &[
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "CLAUDE_CODE_OAUTH_TOKEN",
        ],
    },
    Preset {
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
        home: Some("CODEX_HOME"),
        login_env: &["OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY"],
    },
    Preset {
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
        caged_env: &[],
        home: Some("GEMINI_CLI_HOME"),
        login_env: &[
            "GEMINI_API_KEY",
            "GOOGLE_API_KEY",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_GENAI_USE_VERTEXAI",
        ],
    },
    Preset {
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
        caged_env: &[],
        home: Some("QWEN_HOME"),
        login_env: &["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY"],
    },
    Preset {
        name: "opencode",
        program: Program::Named("opencode"),
        unattended: Words { caged: &["run", "--auto", "--", "{task}"], uncaged: &["run", "--", "{task}"] },
        interactive: Words { caged: &["--auto", "--prompt={task}"], uncaged: &["--prompt={task}"] },
        // It follows XDG_DATA_HOME and XDG_CONFIG_HOME; there is no one variable for all its state.
        caged_env: &[],
        home: None,
        login_env: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"],
    },
    Preset {
        name: "command",
        program: Program::Given,
        unattended: Words { caged: &[], uncaged: &[] },
        interactive: Words { caged: &[], uncaged: &[] },
        caged_env: &[],
        home: None,
        login_env: &[],
    },
    Preset {
        name: "demo",
        program: Program::Ourselves,
        unattended: Words { caged: &["demo-engine"], uncaged: &["demo-engine"] },
        interactive: Words { caged: &["demo-engine"], uncaged: &["demo-engine"] },
        caged_env: &[],
        home: None,
        login_env: &[],
    },
];

/// The preset of that name.
pub fn known(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|p| p.name == name)
}

/// The presets nearest to a mistyped name, best first. A program's own name finds its preset too.
pub fn nearest(name: &str) -> Vec<&'static str> {
    if let Some(p) = PRESETS.iter().find(|p| matches!(p.program, Program::Named(n) if n == name)) {
        return vec![p.name];
    }
    nearest_words(name, PRESETS.iter().map(|p| p.name))
}

/// Fills `{task}` and `{task_file}` into the words of a command, each word staying one word. What was filled in
/// is not looked at again: a task that speaks of `{task_file}` keeps it.
pub fn fill<S: AsRef<str>>(words: &[S], task: &str, task_file: &str) -> Vec<String> {
    words.iter().map(|w| fill_word(w.as_ref(), task, task_file)).collect()
}

fn fill_word(word: &str, task: &str, task_file: &str) -> String {
    let mut out = String::with_capacity(word.len() + task.len());
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix(TASK) {
            out.push_str(task);
            rest = after;
        } else if let Some(after) = rest.strip_prefix(TASK_FILE) {
            out.push_str(task_file);
            rest = after;
        } else {
            out.push('{');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_mistyped_ones_are_near() {
        for p in &PRESETS {
            assert_eq!(known(p.name), Some(p));
        }
        assert_eq!(known("claude"), None);
        assert_eq!(nearest("claude"), ["claude-code"]);
        assert_eq!(nearest("qwen"), ["qwen-code"]);
        assert_eq!(nearest("codx"), ["codex"]);
        assert_eq!(nearest("zzzzzz"), Vec::<&str>::new());
    }

    #[test]
    fn every_client_gets_its_task_as_one_word_that_is_no_option() {
        for p in PRESETS.iter().filter(|p| matches!(p.program, Program::Named(_))) {
            for (interactive, caged) in [(false, false), (false, true), (true, false), (true, true)] {
                let words = p.words(interactive, caged);
                let at = words.iter().position(|w| w.contains(TASK)).unwrap();
                assert_eq!(at, words.len() - 1, "{}", p.name);
                assert!(words[at].starts_with("--") || words[at - 1] == "--", "{}", p.name);
                let filled = fill(words, "--do $(this) {task_file}", "/t/TASK.md");
                assert_eq!(filled.len(), words.len());
                assert!(filled[at].ends_with("--do $(this) {task_file}"), "{}", p.name);
            }
        }
    }

    #[test]
    fn filling_is_done_once() {
        let fill = |w: &str| fill(&[w], "{task_file}{task}", "/f").remove(0);
        assert_eq!(fill("{task}"), "{task_file}{task}");
        assert_eq!(fill("@{task_file}!"), "@/f!");
        assert_eq!(fill("{\"a\": {}}"), "{\"a\": {}}");
        assert_eq!(fill("{{task}}"), "{{task_file}{task}}");
        assert_eq!(fill("é{"), "é{");
    }
}
