//! The agent clients: there or not, logged in or not, and what holds them.

use super::clients::{HookFile, HookState};
use super::throwaway::Held;
use crate::clients::{self, PRESETS, Preset, Program};
use crate::model::{Ended, Failure};
use crate::ops::engine::{on_path, program_files};
use crate::ops::login;
use crate::os::cage::{Input, Output, Stdio};
use crate::os::files;
use crate::text::Untrusted;
use serde::Serialize;
use std::ffi::OsString;
use std::time::Duration;

/// How long all clients together may take to say their versions.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long one client may take for the task of `--live`.
const LIVE: Duration = Duration::from_secs(180);
/// What `--live` asks for, and the file it must leave.
const TASK: &str =
    "Create a file named hello.txt in this folder that contains the word hello. Do nothing else.";
const LEFT: &str = "hello.txt";

/// One client.
#[derive(Debug, Clone, Serialize)]
pub struct EngineReport {
    /// Name of the preset.
    pub name: &'static str,
    /// Where its program is.
    pub program: Option<String>,
    /// What it says of its version, from inside the cage.
    pub version: Option<String>,
    /// Where a login was found.
    pub login: Option<String>,
    /// In a run: `A` when the kernel holds the whole session; `None` when it does not start there.
    pub in_a_run: Option<char>,
    /// Started by the person without us: `B` when our hook answers, `C` when hooks are there and do not work;
    /// `None` when nothing holds it.
    pub alone: Option<char>,
    /// What came of `--live`.
    pub live: Option<Live>,
}

/// What came of the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Live {
    /// Whether the file was there.
    pub done: bool,
    /// What it came to if not.
    pub why: String,
}

/// The presets to look at.
pub fn chosen(name: Option<&str>) -> Result<Vec<&'static Preset>, Failure> {
    let named = |p: &&Preset| matches!(p.program, Program::Named(_));
    let Some(name) = name else { return Ok(PRESETS.iter().filter(named).collect()) };
    match clients::known(name).filter(named) {
        Some(preset) => Ok(vec![preset]),
        None => {
            let failure = Failure::usage(format!("there is no engine '{}' to look at", Untrusted::new(name)));
            let names: Vec<_> = PRESETS.iter().filter(named).map(|p| p.name).collect();
            Err(failure.hint(format!("known engines: {}", names.join(", "))))
        }
    }
}

/// Looks at each; `held` is the run they may be tried in, and whether its cage held everything.
pub fn look(
    presets: &[&'static Preset],
    held: Option<(&Held<'_>, bool)>,
    hooks: &[HookFile],
    live: bool,
) -> Result<Vec<EngineReport>, Failure> {
    let program = |p: &Preset| match p.program {
        Program::Named(name) => on_path(name.as_ref()),
        _ => None,
    };
    let mut all: Vec<EngineReport> = presets
        .iter()
        .map(|p| EngineReport {
            name: p.name,
            program: program(p).map(|p| p.to_string_lossy().into_owned()),
            version: None,
            login: login(p),
            in_a_run: None,
            alone: alone(p.name, hooks),
            live: None,
        })
        .collect();
    if let Some((held, holds)) = held {
        versions(&mut all, presets, held)?;
        for (engine, preset) in all.iter_mut().zip(presets) {
            engine.in_a_run = (engine.version.is_some() && holds).then_some('A');
            if live && engine.program.is_some() && engine.login.is_some() {
                let tried = try_live(preset, held);
                engine.live = Some(Live { done: tried.is_ok(), why: tried.err().unwrap_or_default() });
            }
        }
    }
    Ok(all)
}

fn alone(name: &str, hooks: &[HookFile]) -> Option<char> {
    let of_it = || hooks.iter().filter(|h| h.client == name);
    if of_it().any(|h| h.state.is_bad()) {
        Some('C')
    } else {
        of_it().any(|h| h.state == HookState::Answers).then_some('B')
    }
}

/// Whether a program of that name would be found.
pub(super) fn is_on_path(program: &str) -> bool {
    on_path(program.as_ref()).is_some()
}

fn login(preset: &Preset) -> Option<String> {
    let set = |name: &&&str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let telling = |name: &&&str| ["KEY", "TOKEN"].iter().any(|t| name.contains(t));
    if let Some(name) = preset.login_env.iter().filter(telling).find(set) {
        return Some(format!("${name}"));
    }
    let path = login::file_of(preset.account?);
    path.is_file().then(|| path.to_string_lossy().into_owned())
}

/// Where each client keeps its state in the run, as `spawn` says it.
fn homes(held: &Held<'_>, presets: &[&Preset]) -> Vec<(OsString, OsString)> {
    let engine = held.run.layout.engine();
    let moved = |(name, folder): &(&str, &str)| (name.into(), engine.join(folder).into_os_string());
    presets.iter().flat_map(|p| p.state.iter().map(moved)).collect()
}

/// Asks all for their versions at the same time, in the cage. Who answers can be started there.
fn versions(all: &mut [EngineReport], presets: &[&Preset], held: &Held<'_>) -> Result<(), Failure> {
    const SCRIPT: &str = "n=0; for p; do n=$((n+1)); \
        { \"$p\" --version >\"$TMPDIR/version-$n\" 2>/dev/null </dev/null && : >\"$TMPDIR/done-$n\"; } & done; wait";
    let there: Vec<&mut EngineReport> = all.iter_mut().filter(|e| e.program.is_some()).collect();
    if there.is_empty() {
        return Ok(());
    }
    let mut argv: Vec<OsString> = ["sh", "-c", SCRIPT, "sh"].map(OsString::from).to_vec();
    argv.extend(there.iter().filter_map(|e| Some(OsString::from(e.program.as_ref()?))));
    let programs = argv[4..].iter().flat_map(|p| program_files(p)).collect();
    let cage = held.cage_with(homes(held, presets), programs)?;
    let quiet = Stdio { input: Input::Null, output: Output::Null, error: Output::Null };
    // Whoever is not ready in time counts as one that does not start.
    let _ = cage.run(&argv, quiet, &held.run.lock, Some(PATIENCE))?;
    let _ = crate::ops::freeze::reach(&held.run.layout);
    let tmp = held.run.layout.tmp();
    for (n, engine) in there.into_iter().enumerate() {
        if tmp.join(format!("done-{}", n + 1)).is_file() {
            let said = files::read_bounded(&tmp.join(format!("version-{}", n + 1)), 1 << 16).ok().flatten();
            engine.version = Some(version(&said.unwrap_or_default()));
        }
    }
    Ok(())
}

/// The word that looks like a version, else the start of the first line.
fn version(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let digits = |w: &&str| {
        let w = w.trim_start_matches('v');
        w.starts_with(|c: char| c.is_ascii_digit()) && w.contains('.')
    };
    let word = text.split_whitespace().find(digits).map(|w| w.trim_start_matches('v').to_owned());
    let first = || text.lines().next().unwrap_or_default().to_owned();
    word.unwrap_or_else(first).chars().take(30).collect()
}

/// A task that costs a few tokens, in the cage. What counts is the file that it leaves.
fn try_live(preset: &'static Preset, held: &Held<'_>) -> Result<(), String> {
    let Program::Named(program) = preset.program else { return Err("it has no program".to_owned()) };
    let tree = held.run.layout.tree();
    let word = |e: Failure| e.to_string();
    let mut words = vec![program.to_owned()];
    words.extend(clients::fill(preset.words(false, true), TASK, &tree.join("TASK.md").to_string_lossy()));
    let mut variables = homes(held, &[preset]);
    variables.extend(preset.caged_env.iter().map(|(k, v)| (k.into(), v.into())));
    variables.extend(preset.login_env.iter().filter_map(|n| Some((n.into(), std::env::var_os(n)?))));
    let cage = held.cage_with(variables, program_files(program.as_ref())).map_err(word)?;
    let argv: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    let _ = files::remove_file(&tree.join(LEFT));
    let quiet = Stdio { input: Input::Null, output: Output::Null, error: Output::Null };
    let outcome = cage.run(&argv, quiet, &held.run.lock, Some(LIVE)).map_err(|e| word(Failure::from(e)))?;
    match (outcome.ended, tree.join(LEFT).is_file()) {
        (_, true) => Ok(()),
        (Ended::Exit(status), false) => Err(format!("it ended with status {status} and left no {LEFT}")),
        (Ended::Timeout(seconds), false) => Err(format!("it was not done in {seconds} s")),
        (_, false) => Err(format!("it left no {LEFT}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_clients_say_them() {
        assert_eq!(version(b"2.1.197 (Claude Code)\n"), "2.1.197");
        assert_eq!(version(b"codex-cli 0.171.0\n"), "0.171.0");
        assert_eq!(version(b"v1.2\n"), "1.2");
        assert_eq!(version(b"\x1b[31mnone\n"), "\u{1b}[31mnone");
        assert_eq!(version(b""), "");
    }

    #[test]
    fn engines_are_chosen_by_name() {
        assert_eq!(chosen(None).unwrap().len(), 5);
        assert_eq!(chosen(Some("codex")).unwrap()[0].name, "codex");
        for none in ["demo", "command", "x"] {
            assert!(chosen(Some(none)).is_err());
        }
    }
}
