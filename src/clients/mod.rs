//! Engine presets: the agent clients that are known by name, as data. Starts nothing and reads nothing; the
//! policy may add to a preset or replace its command.

pub mod account;
mod claude;
mod codex;
pub mod demo;
mod gemini;
mod opencode;
mod qwen;
#[cfg(test)]
mod tests;

use crate::text::nearest as nearest_words;
use account::Account;

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
#[derive(Debug, Clone, Copy)]
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
    /// Variables that move the client's own state, and the folders of the run's `engine/` they are pointed at.
    pub state: &'static [(&'static str, &'static str)],
    /// The client's own variables that hold a login; they pass with the login `env` only.
    pub login_env: &'static [&'static str],
    /// Variables that belong to such a login (which server, which project); they pass with it.
    pub more_env: &'static [&'static str],
    /// Its login and settings, where it has any.
    pub account: Option<&'static Account>,
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
    claude::PRESET,
    codex::PRESET,
    gemini::PRESET,
    qwen::PRESET,
    opencode::PRESET,
    Preset { name: "command", program: Program::Given, ..NOTHING },
    Preset {
        name: "demo",
        program: Program::Ourselves,
        unattended: Words { caged: &["demo-engine"], uncaged: &["demo-engine"] },
        interactive: Words { caged: &["demo-engine"], uncaged: &["demo-engine"] },
        ..NOTHING
    },
];

const NOTHING: Preset = Preset {
    name: "",
    program: Program::Given,
    unattended: Words { caged: &[], uncaged: &[] },
    interactive: Words { caged: &[], uncaged: &[] },
    caged_env: &[],
    state: &[],
    login_env: &[],
    more_env: &[],
    account: None,
};

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
