//! Setup and teardown: what a policy runs in a run's tree before its first engine, and before the tree goes.
//! Both in the cage. A setup that fails fails the spawn; a teardown that fails is a note.

use super::commands::{self, Hear, Stage};
use super::confine::{self, Room};
use super::{Layout, Open, spawn};
use crate::git::{Call, Place};
use crate::model::{Ended, Failure, Head};
use crate::policy::{RoleRule, Setup, Variable};
use crate::text::{Untrusted, quote_path};
use std::time::{Duration, Instant};

/// How long all commands of a teardown may take together.
const TEARDOWN: Duration = Duration::from_secs(60);
/// How long git may look for what a setup changed.
const LOOK: Duration = Duration::from_secs(600);
/// Paths that are told by name.
const TOLD: usize = 3;

/// How a setup went.
#[derive(Debug)]
pub struct Went {
    /// The command that failed, and how; `None` when all passed.
    pub failed: Option<(Vec<String>, String)>,
    /// How the last command that ran ended.
    pub ended: Option<Ended>,
    /// From start to end.
    pub took: Duration,
    /// The end of the last command's output, where it was kept.
    pub tail: Vec<u8>,
}

/// Runs the commands of a setup in a room of the run, in order, until one fails.
pub fn run(run: &Open<'_>, room: Room, setup: &Setup, env: &[Variable], hear: Hear) -> Result<Went, Failure> {
    let started = Instant::now();
    let variables = commands::variables(run, env.iter().chain(&setup.env));
    let room = Room { network: setup.network.clone(), ..room };
    let stage = Stage::set(run, room, variables, &setup.run.iter().collect::<Vec<_>>())?;
    let mut went = Went { failed: None, ended: None, took: Duration::ZERO, tail: Vec::new() };
    for words in &setup.run {
        let left = setup.wall.saturating_sub(started.elapsed());
        let ran = stage.run(words, left, hear)?;
        went.ended = ran.ended;
        went.tail = ran.tail;
        let how = match ran.ended {
            Some(Ended::Exit(0)) => continue,
            Some(Ended::Timeout(_)) => format!("took longer than the {} s of 'wall'", setup.wall.as_secs()),
            ended => commands::how(ended),
        };
        went.failed = Some((words.clone(), how));
        break;
    }
    went.took = started.elapsed();
    Ok(went)
}

/// The setup of a run that is being cut. What it prints is heard.
pub fn of_spawn(open: &Open<'_>, rule: &RoleRule) -> Result<(), Failure> {
    let Some(setup) = &rule.setup else { return Ok(()) };
    let went = run(open, Room::of(open), setup, &rule.variables(), Hear::Aloud)?;
    match went.failed {
        None => Ok(()),
        Some((words, how)) => Err(Failure::fatal(format!("setup: {} {how}", commands::shown(&words)))
            .hint("nothing of the run is left, and its name is free")),
    }
}

/// What a setup left that will be part of the difference, as one sentence for the person: a setup is meant to
/// make what git ignores. Asked in the cage, since the tree's attributes are not ours.
pub fn touched(run: &Open<'_>) -> Result<Option<String>, Failure> {
    let (git_dir, tree) = (run.layout.git_dir(), run.layout.tree());
    let place = Place { git_dir: Some(git_dir), work_tree: Some(tree.clone()), ..Place::default() };
    let cage = confine::plumbing(run, &[])?;
    let call = Call::new("status", &place).current_dir(&tree).env("GIT_OPTIONAL_LOCKS", "0").within(LOOK);
    let args = ["--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all"];
    let answer = confine::caged(&cage, call.args(args))?.output()?;
    let paths: Vec<_> =
        answer.split(|b| *b == 0).filter_map(|e| e.get(3..)).map(|p| quote_path(p).into_owned()).collect();
    if paths.is_empty() {
        return Ok(None);
    }
    let more = if paths.len() > TOLD { ", ..." } else { "" };
    let first: Vec<_> = paths.iter().take(TOLD).map(|p| Untrusted::new(p).to_string()).collect();
    Ok(Some(format!(
        "the setup left what git does not ignore, and it will be part of the change: {}{more}",
        first.join(", ")
    )))
}

/// Whether the policy of a run wants anything done before its tree goes.
pub fn wants_teardown(layout: &Layout, head: &Head) -> bool {
    let rule = |policy: crate::policy::Policy| policy.role(&head.role).ok();
    spawn::policy_at(layout).ok().and_then(rule).is_some_and(|rule| !rule.teardown.is_empty())
}

/// What the policy wants done before a run's tree goes. Whatever fails becomes a note and stops nothing.
pub fn teardown(run: &Open<'_>) -> Vec<String> {
    // Without a copy there is no tree that goes.
    if !run.isolation().has_copy() {
        return Vec::new();
    }
    let Ok(rule) = spawn::rule(run) else { return Vec::new() };
    if rule.teardown.is_empty() {
        return Vec::new();
    }
    let started = Instant::now();
    let all: Vec<_> = rule.teardown.iter().map(|c| &c.value).collect();
    let variables = commands::variables(run, &rule.variables());
    let stage = super::freeze(run).and_then(|_| Stage::set(run, Room::of(run), variables, &all));
    let stage = match stage {
        Ok(stage) => stage,
        Err(e) => return vec![format!("teardown could not be run: {e}")],
    };
    let mut notes = Vec::new();
    for command in &rule.teardown {
        let shown = commands::shown(&command.value);
        let left = TEARDOWN.saturating_sub(started.elapsed());
        match stage.run(&command.value, left, Hear::Quietly) {
            Ok(ran) if ran.ended == Some(Ended::Exit(0)) => {}
            Ok(ran) => {
                let last = String::from_utf8_lossy(&ran.tail).trim_end().lines().last().map(str::to_owned);
                let last = last.map_or_else(String::new, |l| format!(": {}", Untrusted::new(&l)));
                notes.push(format!("teardown: {shown} {}{last}", commands::how(ran.ended)));
            }
            Err(e) => notes.push(format!("teardown: {shown} could not be run: {e}")),
        }
    }
    notes
}
