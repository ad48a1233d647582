//! Which engine a run gets, as what command line and with which variables.

use super::{Open, commands};
use crate::clients::account::Account;
use crate::clients::{self, Preset, Program};
use crate::model::{Failure, Kind};
use crate::policy::{DECLINE_EXIT, Isolation, Policy, RoleKind, RoleRule, Variable};
use crate::text::Untrusted;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An engine to start, before the run's folder is known.
#[derive(Debug, Clone)]
pub struct EnginePlan {
    /// Its name: a preset's, the policy's, or `command`.
    pub name: String,
    words: Words,
    /// What the policy says of its variables.
    env: Vec<Variable>,
    /// Wall clock limit.
    pub wall: Option<Duration>,
    /// The exit status by which it hands the tree to another engine.
    pub decline_exit: u8,
    /// Where it works.
    pub seat: Seat,
}

/// Where an engine works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// In the run's own tree.
    Tree,
    /// As a reader of the real working tree.
    Reader,
}

#[derive(Debug, Clone)]
enum Words {
    /// The caller's own, taken as they are.
    Given(Vec<OsString>),
    /// The policy's: `{task}` and `{task_file}` are filled in.
    Template(Vec<String>),
    /// A preset's, likewise, with a wall around it and without; the client's adapter may add to it.
    Preset { caged: Vec<String>, uncaged: Vec<String> },
    /// The built-in demo engine.
    Demo,
}

/// Chooses, in the order in which they are tried: the command after `--`, else `--engine`, else the role's chain,
/// else none. A program that is not there is refused before anything is made; in a chain it is passed over with a
/// word, as long as another one is there.
pub fn choose(
    policy: &Policy,
    rule: &RoleRule,
    engine: Option<&str>,
    command: &[OsString],
    has_task: bool,
    wall: Option<Duration>,
    notes: &mut Vec<String>,
) -> Result<Vec<EnginePlan>, Failure> {
    let wall = match (wall, rule.limits.wall) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let plan = |name: &str, words| {
        let entry = policy.engine(name);
        let none = entry.is_some_and(|e| e.isolation == Isolation::None);
        EnginePlan {
            name: name.to_owned(),
            words,
            env: entry.map(|e| e.env.iter().map(|v| v.value.clone()).collect()).unwrap_or_default(),
            wall,
            decline_exit: entry.and_then(|e| e.decline_exit).unwrap_or(DECLINE_EXIT),
            seat: if none { Seat::Reader } else { Seat::Tree },
        }
    };
    if !command.is_empty() {
        let built_in = |n: &str| clients::known(n).is_some_and(|p| p.program == Program::Ourselves);
        if let Some(name) = engine.filter(|n| built_in(n)) {
            return Err(Failure::usage(format!("engine '{name}' is built in and takes no command"))
                .hint("leave out --engine, or what follows '--'"));
        }
        let plan = plan(engine.unwrap_or("command"), Words::Given(command.to_vec()));
        plan.check(has_task)?;
        return Ok(vec![plan]);
    }
    if let Some(name) = engine {
        let plan = plan(name, template(policy, name, has_task)?);
        plan.check(has_task)?;
        return Ok(vec![plan]);
    }
    let mut chain = Vec::new();
    let mut missing = None;
    for entry in &rule.engines {
        let name = entry.value.as_str();
        let plan = plan(name, template(policy, name, has_task)?);
        match plan.check(has_task) {
            Ok(()) => chain.push(plan),
            Err(e) if matches!(e.kind, Kind::Exec(_)) => {
                notes.push(format!("engine '{}' is passed over: {}", Untrusted::new(name), e.message));
                missing.get_or_insert(e);
            }
            Err(e) => return Err(e),
        }
    }
    let reads = |e: &EnginePlan| e.seat == Seat::Reader;
    // A reader role wins over what its engines would be elsewhere.
    if rule.kind != RoleKind::Reader
        && chain.iter().any(|e| !reads(e))
        && let Some(engine) = chain.iter().find(|e| reads(e))
    {
        return Err(Failure::fatal(format!(
            "engine '{}' edits nothing ('isolation: none') and cannot take over the tree of another engine",
            Untrusted::new(&engine.name)
        ))
        .hint("take it out of the role's 'engines', or name one engine with --engine"));
    }
    match missing {
        Some(e) if chain.is_empty() => Err(e),
        _ => Ok(chain),
    }
}

fn template(policy: &Policy, name: &str, has_task: bool) -> Result<Words, Failure> {
    if let Some(command) = policy.engine(name).and_then(|e| e.command.as_ref()) {
        return Ok(Words::Template(command.value.clone()));
    }
    let Some(preset) = clients::known(name) else { return Err(unknown(policy, name)) };
    match preset.program {
        Program::Ourselves => Ok(Words::Demo),
        Program::Given => Err(Failure::usage(format!("engine '{name}' needs a command"))
            .hint("write it after '--': git agent spawn --role developer -- make test")),
        Program::Named(program) => {
            let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && has_task;
            let words = |caged| {
                let rest = preset.words(interactive, caged).iter().copied();
                std::iter::once(program).chain(rest).map(str::to_owned).collect()
            };
            Ok(Words::Preset { caged: words(true), uncaged: words(false) })
        }
    }
}

fn unknown(policy: &Policy, name: &str) -> Failure {
    let failure = Failure::fatal(format!("there is no engine '{}'", Untrusted::new(name)));
    let mut near = clients::nearest(name);
    near.extend(crate::text::nearest(name, policy.engines().map(|(n, _)| n)));
    if near.is_empty() {
        let names: Vec<_> = clients::PRESETS.iter().map(|p| p.name).collect();
        failure.hint(format!("known engines: {}", names.join(", ")))
    } else {
        failure.hint(format!("did you mean {}?", near.join(" or ")))
    }
}

impl EnginePlan {
    fn program(&self) -> Option<OsString> {
        match &self.words {
            Words::Given(words) => words.first().cloned(),
            Words::Template(words) | Words::Preset { caged: words, .. } => words.first().map(OsString::from),
            Words::Demo => Some("sh".into()),
        }
    }

    /// Refuses an engine that takes a task where there is none.
    pub fn check_task(&self, has_task: bool) -> Result<(), Failure> {
        if let Words::Template(words) | Words::Preset { caged: words, .. } = &self.words
            && !has_task
            && words.iter().any(|w| w.contains(clients::TASK))
        {
            return Err(Failure::usage(format!("engine '{}' needs a task", self.name))
                .hint("say it with -m TEXT or --task FILE"));
        }
        Ok(())
    }

    /// Refuses what would fail only after the run was cut: no task for an engine that takes one, and a
    /// program that is not there (127) or cannot be executed (126), as env(1) has it.
    fn check(&self, has_task: bool) -> Result<(), Failure> {
        self.check_task(has_task)?;
        match self.program() {
            Some(program) => present(&program).map_err(|e| {
                e.hint(format!("install it, or choose another engine than '{}'", Untrusted::new(&self.name)))
            }),
            None => Ok(()),
        }
    }

    /// The preset and account of the client that this engine is, where it is a known one.
    pub fn client(&self) -> Option<(&'static Preset, &'static Account)> {
        let preset = clients::known(&self.name)?;
        Some((preset, preset.account?))
    }

    /// Whether the caller wrote the command line.
    pub fn is_given(&self) -> bool {
        matches!(self.words, Words::Given(_))
    }

    /// Variables that the policy lets through, by name.
    pub fn passes(&self) -> impl Iterator<Item = &str> {
        self.env.iter().filter(|v| v.value.is_none()).map(|v| v.name.as_str())
    }

    /// What has to be shown of the machine for the program to start.
    pub fn program_files(&self) -> Vec<PathBuf> {
        self.program().map(|p| program_files(&p)).unwrap_or_default()
    }

    /// The command line, and the form that the ledger keeps, where the task's text stays a placeholder. `more`
    /// goes after the program's name, if the command line is the preset's own. Without a wall (no cage, no container) the
    /// client's own guard stays on.
    pub fn command(
        &self,
        task: Option<&[u8]>,
        task_file: &str,
        more: Vec<OsString>,
        walled: bool,
    ) -> (Vec<OsString>, Vec<String>) {
        match &self.words {
            Words::Given(words) => {
                (words.clone(), words.iter().map(|w| w.to_string_lossy().into_owned()).collect())
            }
            Words::Template(words) => {
                let task = String::from_utf8_lossy(task.unwrap_or_default());
                let filled = clients::fill(words, &task, task_file);
                (filled.into_iter().map(OsString::from).collect(), words.clone())
            }
            Words::Preset { caged, uncaged } => {
                let words = if walled { caged } else { uncaged };
                let task = String::from_utf8_lossy(task.unwrap_or_default());
                let filled = clients::fill(words, &task, task_file);
                let mut shown = words.clone();
                shown.splice(1..1, more.iter().map(|w| w.to_string_lossy().into_owned()));
                let mut all: Vec<OsString> = filled.into_iter().map(OsString::from).collect();
                all.splice(1..1, more);
                (all, shown)
            }
            Words::Demo => {
                let words = clients::demo::command();
                (words.iter().map(OsString::from).collect(), vec!["demo-engine".to_owned()])
            }
        }
    }

    /// Variables for this engine beside the cage's own: what its preset sets, and by name what the policy
    /// (`env`) lets through. Those of its login are [`super::login`]'s.
    pub fn variables(&self, run: &Open<'_>, walled: bool) -> Vec<(OsString, OsString)> {
        let mut all: Vec<(OsString, OsString)> = Vec::new();
        if let Some(preset) = clients::known(&self.name) {
            let caged = preset.caged_env.iter().filter(|_| walled);
            all.extend(caged.map(|(k, v)| (k.into(), v.into())));
            let at = |v: &str| run.layout.engine().join(v).into_os_string();
            all.extend(preset.state.iter().map(|(k, v)| (k.into(), at(v))));
        }
        all.extend(commands::variables(run, &self.env));
        all
    }
}

/// A program as it is on disk, behind all links: its file, or for one that a package manager of Node installed
/// the folder that holds it and what it needs. The cage shows a folder of PATH, and not what its links lead to.
pub fn program_files(program: &OsStr) -> Vec<PathBuf> {
    let found = match Path::new(program) {
        p if p.is_absolute() => Some(p.to_owned()),
        p if p.components().count() > 1 => None,
        p => on_path(p),
    };
    let Some(real) = found.and_then(|p| std::fs::canonicalize(p).ok()) else { return Vec::new() };
    let modules = real.ancestors().filter(|a| a.ends_with("node_modules")).last();
    vec![modules.unwrap_or(&real).to_owned()]
}

/// Refuses a program that is not there (127) or cannot be executed (126), as far as that can be known outside
/// of the cage.
pub fn present(program: &OsStr) -> Result<(), Failure> {
    let shown = Untrusted::new(program.as_encoded_bytes()).to_string();
    let found = match Path::new(program) {
        p if p.is_absolute() => Some(p.to_owned()),
        // Relative to the tree, which may not exist yet.
        p if p.components().count() > 1 => return Ok(()),
        p => on_path(p),
    };
    match found {
        None => Err(Failure::new(Kind::Exec(127), format!("'{shown}' is not on PATH"))),
        Some(p) if !p.exists() => Err(Failure::new(Kind::Exec(127), format!("'{shown}' does not exist"))),
        Some(p) if !executable(&p) => {
            Err(Failure::new(Kind::Exec(126), format!("'{shown}' is not an executable file")))
        }
        Some(_) => Ok(()),
    }
}

pub(super) fn on_path(program: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|d| d.is_absolute()).map(|d| d.join(program)).find(|p| executable(p))
}

fn executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
