//! Undoing a landing: the displaced files come back, if nothing of what landed changed since.

use super::carry::{self, Trouble};
use super::journal::{self, Act, Announced, Begun, Ready};
use super::record::{self, Record};
use super::refusal::{self, Refused};
use super::{Operation, PathPlan, ground, steps};
use crate::git::Repo;
use crate::ledger::{Ledger, Tip};
use crate::model::{Body, Failure, Head, Kind, Oid, Phase, RunId, RunName, Undo};
use crate::os::files;
use crate::os::lock::Lock;
use crate::os::place::{self, Known, Move, Slot};
use crate::text::quote_path;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// An undo that can be done.
#[derive(Debug)]
pub struct Plan {
    record: Record,
    moves: Vec<Move>,
    run: RunId,
    /// The run's name.
    pub name: RunName,
    /// What landed and goes.
    pub snapshot: Oid,
    change: crate::model::Digest,
    top: PathBuf,
    head: Oid,
    after: u64,
    lock: Lock,
}

/// What was undone.
#[derive(Debug)]
pub struct Undone {
    /// The run's name.
    pub name: RunName,
    /// What had landed.
    pub snapshot: Oid,
    /// Every path.
    pub paths: Vec<PathPlan>,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
    /// The run's newest event.
    pub tip: Tip,
}

/// Plans to undo the landing of a run, or the newest landing of this work tree. Takes the work tree. Exit status 3
/// when something changed since, 1 when there is nothing to undo.
pub fn plan(repo: &Repo, run: Option<&RunId>) -> Result<Plan, Failure> {
    let top = ground::quiet(repo)?;
    let lock = super::lock(repo)?;
    let record = Record::all(repo)
        .into_iter()
        .find(|r| r.run().is_some_and(|(of, _)| run.is_none_or(|run| run == of)))
        .ok_or_else(|| {
            Failure::new(Kind::No, "nothing that landed in this working tree can be undone").hint(format!(
                "the newest {} landings are remembered; others: git checkout, or git revert if it was committed",
                record::KEPT
            ))
        })?;
    let (run, snapshot) = record.run().map(|(r, s)| (r.clone(), s.clone())).expect("just found");
    let tip = Ledger::new(repo)
        .tip(&run)?
        .ok_or_else(|| Failure::fatal(format!("there is no run '{}' any more", record.begun.name)))?;
    let head = &tip.understood()?.head;
    still(head, &snapshot)?;
    let change = head.result.as_ref().map(|r| r.change).expect("it has a latest result");
    let after = tip.understood()?.seq;
    let name = head.name.clone();
    let moves = record.round();
    let refused = differing(repo, &record, &moves, &top)?;
    if !refused.is_empty() {
        return Err(refusal(&name, refused));
    }
    let head = super::head(repo)?;
    Ok(Plan { record, moves, run, name, snapshot, change, top, head, after, lock })
}

impl Plan {
    /// Every path that comes back.
    pub fn paths(&self) -> Vec<PathPlan> {
        let of = |m: &Move| {
            let operation = match m {
                Move::Exchange { .. } => Operation::Change,
                Move::Put { .. } => Operation::Create,
                Move::Take { .. } => Operation::Delete,
                _ => return None,
            };
            Some(PathPlan { path: m.path().to_vec(), operation, already: false })
        };
        let mut paths: Vec<PathPlan> = self.moves.iter().filter_map(of).collect();
        paths.sort_by(|a, b| a.path.cmp(&b.path));
        paths
    }
}

/// Whether a run is still what an undo needs.
pub(super) fn still(head: &Head, snapshot: &Oid) -> Result<(), Failure> {
    let name = &head.name;
    if head.result.as_ref().is_none_or(|r| r.snapshot != *snapshot) {
        return Err(Failure::new(Kind::No, format!("run '{name}' was continued since it landed"))
            .hint(format!("what happened: git agent log {name}")));
    }
    match head.phase {
        Phase::Applied => Ok(()),
        phase => Err(Failure::new(
            Kind::No,
            format!("run '{name}' is not applied: it is {}", phase.with_liveness(false).as_str()),
        )),
    }
}

/// What is not as the landing left it, by name.
fn differing(repo: &Repo, record: &Record, moves: &[Move], top: &Path) -> Result<Vec<Refused>, Failure> {
    let gone = |e: std::io::Error| {
        Failure::fatal(format!("what run '{}' displaced is not there any more", record.begun.name))
            .because(e)
            .hint(format!("it was in '{}'", record.begun.slot(repo, top).path().display()))
    };
    let slot = Slot::open(&record.begun.slot(repo, top), top).map_err(gone)?;
    let mut refused = Vec::new();
    let mut seen = BTreeSet::new();
    for m in moves {
        // What an earlier move makes room for is not there yet.
        let first = seen.insert(m.path());
        let there = slot.tree().lstat_at(m.path()).ok().flatten();
        let lies =
            |at: &[u8], known: &Known| slot.lies(at).ok().flatten().is_some_and(|l| known.is_untouched(&l));
        let (fits, kept) = match m {
            Move::Exchange { slot, put, was, .. } => {
                (there.is_some_and(|t| was.is_untouched(&t)), lies(slot, put))
            }
            Move::Put { slot, put, .. } => (!first || there.is_none(), lies(slot, put)),
            Move::Take { was, .. } => (there.is_some_and(|t| was.is_untouched(&t)), true),
            Move::PutFolder { .. } => (!first || there.is_none_or(|t| t.is_dir()), true),
            Move::TakeFolder { .. } | Move::MakeFolder { .. } => (true, true),
        };
        if !fits {
            refused.push(Refused::new(m.path(), "changed since it landed".into()));
        } else if !kept {
            refused.push(Refused::new(m.path(), "what stood here before was written to meanwhile".into()));
        }
    }
    let paths: Vec<&[u8]> = carry::files_of(&record.ready.moves).collect();
    let then: BTreeMap<&[u8], &str> =
        record.ready.index.iter().map(|s| (s.path.as_slice(), s.entry.as_str())).collect();
    for now in ground::staged(repo, top, &paths)? {
        if then.get(now.path.as_slice()).is_some_and(|t| *t != now.entry) {
            refused.push(Refused::new(&now.path, "was staged or committed since it landed".into()));
        }
    }
    Ok(refused)
}

fn refusal(name: &RunName, mut refused: Vec<Refused>) -> Failure {
    refused.sort();
    refused.dedup_by(|a, b| a.path == b.path);
    let n = refused.len();
    let mut text = format!(
        "what run '{name}' changed is not as it landed at {n} path{}; nothing was changed",
        if n == 1 { "" } else { "s" }
    );
    refusal::list(&mut text, &refused);
    Failure::new(Kind::Conflict, text)
        .hint("see what changed: git diff")
        .hint(format!("take out only what the run did: git agent review {name} --diff | git apply -R"))
}

/// Undoes what was planned: everything, or nothing.
pub fn execute(repo: &Repo, plan: Plan) -> Result<Undone, Failure> {
    let paths = plan.paths();
    let Plan { record, moves, run, name, snapshot, change, top, head, after, lock } = plan;
    let fail = |e: std::io::Error| Failure::fatal("what landed cannot be undone").because(e);
    let before =
        files::lstat(&top).map_err(fail)?.ok_or_else(|| fail(std::io::ErrorKind::NotFound.into()))?;
    let time = crate::ops::now();
    let begun =
        Begun::new(Act::Undo, &record.begun.label, record.begun.inside, Known::from(&before), &name, time);
    let slot = Slot::open(&begun.slot(repo, &top), &top).map_err(fail)?;
    let body = Body::Undo(Undo { snapshot: snapshot.clone(), change, head });
    let event = Announced { run, snapshot: snapshot.clone(), after, time, body };
    let ready =
        Ready { folders: steps::times(&slot, &moves)?, moves, event: Some(event.clone()), index: Vec::new() };
    begun.ready(repo, &ready)?;
    let held_off = place::Uninterrupted::begin();
    let announce = |_: &Ready| carry::announce(repo, &event, |head| still(head, &snapshot));
    let tip = carry::carry(repo, &slot, &begun, &ready, &top, announce).map_err(|t| trouble(&name, t))?;
    let done = finish(repo, &begun, &ready, Some(&slot), &top);
    drop(held_off);
    let mut notes = Vec::new();
    if let Err(e) = done {
        notes.push(format!("it is undone; clearing up goes on with the next command: {e}"));
    }
    drop(lock);
    Ok(Undone { name, snapshot, paths, notes, tip })
}

/// After the event: folders get back the times they had before the landing, where nothing else happened in them,
/// and record, slot and journal go, in this order. May be killed and called again.
pub(super) fn finish(
    repo: &Repo,
    begun: &Begun,
    ready: &Ready,
    slot: Option<&Slot>,
    top: &Path,
) -> Result<(), Failure> {
    if let Some(slot) = slot
        && let Some(record) = Record::all(repo).into_iter().find(|r| r.begun.label == begun.label)
    {
        let since: BTreeMap<&[u8], &Known> =
            record.after.iter().map(|t| (t.path.as_slice(), &t.was)).collect();
        let now: BTreeMap<&[u8], &Known> =
            ready.folders.iter().map(|t| (t.path.as_slice(), &t.was)).collect();
        for folder in &record.ready.folders {
            let same = match (since.get(folder.path.as_slice()), now.get(folder.path.as_slice())) {
                (Some(since), Some(now)) => since.mtime == now.mtime && since.ino == now.ino,
                // It was taken away with the landing and is back.
                (None, None) => true,
                _ => false,
            };
            if same {
                let _ = place::set_folder_time(slot.tree(), &folder.path, &folder.was);
            }
        }
    }
    record::remove(repo, &begun.label)?;
    let at = begun.slot(repo, top);
    // The top level's time is what it is by now, whatever goes from it.
    let before = files::lstat(top).ok().flatten();
    at.remove()
        .map_err(|e| Failure::fatal(format!("'{}' could not be removed", at.path().display())).because(e))?;
    if let (true, Some(before), Ok(tree)) = (begun.inside, before, files::Dir::open(top)) {
        let _ = place::set_folder_time(&tree, b"", &Known::from(&before));
    }
    journal::close(repo)
}

fn trouble(name: &RunName, trouble: Trouble) -> Failure {
    let (failure, left) = match trouble {
        Trouble::At { path, why, left } => {
            let kind = if matches!(why, place::Why::Io(_)) { Kind::Fatal } else { Kind::Conflict };
            let why = format!("{}: {why}", quote_path(&path));
            (
                Failure::new(kind, format!("run '{name}' was not undone; nothing was changed")).because(why),
                left,
            )
        }
        Trouble::Failed { failure, left } => (failure.hint("nothing was undone"), left),
    };
    refusal::with_left(failure, left)
}
