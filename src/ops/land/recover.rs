//! What an apply left that was killed, or whose machine was: taken back, or completed where everything had landed
//! already. By the journal alone; never a third state, and if this is killed, the next one goes on.

use super::carry::{self, Left};
use super::journal::{self, Act, Begun, Found, Ready};
use super::record::Record;
use super::{consent, undo};
use crate::git::Repo;
use crate::ledger::Ledger;
use crate::model::{Body, Failure, RunName};
use crate::os::lock::Lock;
use crate::os::place::{Slot, Uninterrupted};
use std::path::Path;

/// What was found and done.
#[derive(Debug)]
pub enum Recovered {
    /// There was nothing to do.
    Nothing,
    /// Somebody is at work; it was left alone.
    AtWork,
    /// An interrupted act on this run was brought to an end.
    Done {
        /// The run.
        name: RunName,
        /// It was an undo.
        undo: bool,
        /// It was completed, and not taken back.
        completed: bool,
        /// What a person should know: one sentence each.
        notes: Vec<String>,
    },
}

impl Recovered {
    /// What there is to say: one sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let Recovered::Done { name, undo, completed, notes } = self else { return Vec::new() };
        let what = if *undo { "undo" } else { "apply" };
        let first = match completed {
            true => format!("an interrupted {what} of run '{name}' was completed"),
            false => format!("an interrupted {what} of run '{name}' was taken back"),
        };
        std::iter::once(first).chain(notes.iter().cloned()).collect()
    }
}

/// Brings an interrupted landing of this work tree to its end, if there is one and nobody is at work on it.
pub fn recover(repo: &Repo) -> Result<Recovered, Failure> {
    if !journal::is_there(repo) || repo.work_tree().is_none() {
        return Ok(Recovered::Nothing);
    }
    match super::try_lock(repo)? {
        Some(lock) => locked(repo, &lock),
        None => Ok(Recovered::AtWork),
    }
}

/// The same, for whoever holds the lock.
pub fn locked(repo: &Repo, _lock: &Lock) -> Result<Recovered, Failure> {
    let Some(top) = repo.work_tree() else { return Ok(Recovered::Nothing) };
    let Some(found) = journal::find(repo)? else { return Ok(Recovered::Nothing) };
    let (begun, ready, placed) = match found {
        Found::Begun(begun) => (begun, None, false),
        Found::Ready(begun, ready) => (begun, Some(ready), false),
        Found::Placed(begun, ready) => (begun, Some(ready), true),
    };
    is_here(repo, &begun, top)?;
    let _held_off = Uninterrupted::begin();
    let done = |completed, left: Left| -> Result<Recovered, Failure> {
        if left.again {
            let mut failure = Failure::fatal(format!(
                "an interrupted apply of run '{}' could not be brought to an end: {}",
                begun.name,
                left.sentences.join("; ")
            ));
            failure = failure.hint("mend that, then: git agent recover");
            return Err(failure);
        }
        let undo = begun.act == Act::Undo;
        Ok(Recovered::Done { name: begun.name.clone(), undo, completed, notes: left.sentences })
    };
    let Some(ready) = ready else { return done(false, carry::abandon(repo, top, &begun)) };
    let slot = match Slot::open(&begun.slot(repo, top), top) {
        Ok(slot) => slot,
        // Killed between removing the slot and the journal: all that had to be done was done before.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            if placed && begun.act == Act::Undo {
                return undo::finish(repo, &begun, &ready, None, top)
                    .and_then(|()| done(true, Left::default()));
            }
            return done(false, carry::abandon(repo, top, &begun));
        }
        Err(e) => {
            return Err(Failure::fatal(format!(
                "the folder of an interrupted apply of run '{}' cannot be opened",
                begun.name
            ))
            .because(e));
        }
    };
    if placed && slot.is_placed(&ready.moves) {
        match complete(repo, &slot, &begun, &ready, top) {
            Ok(()) => return done(true, Left::default()),
            // Approved no more, or nowhere to write the event: then it does not stay either.
            Err(why) => {
                let mut left = carry::take_back(repo, &slot, &begun, &ready, top);
                left.sentences.insert(0, format!("it could not be completed: {why}"));
                return done(false, left);
            }
        }
    }
    done(false, carry::take_back(repo, &slot, &begun, &ready, top))
}

fn complete(repo: &Repo, slot: &Slot, begun: &Begun, ready: &Ready, top: &Path) -> Result<(), Failure> {
    if begun.act == Act::Land && ready.event.is_some() {
        Record::write(repo, slot, begun, ready)?;
    }
    if let Some(event) = &ready.event {
        let ledger = Ledger::new(repo);
        let tip = ledger.tip(&event.run)?;
        if !tip.is_some_and(|tip| carry::is_said(&ledger, &tip, event)) {
            carry::announce(repo, event, |head| match event.body {
                Body::Undo(_) => undo::still(head, &event.snapshot),
                _ => consent::still(head, &event.snapshot),
            })?;
        }
    }
    match begun.act {
        Act::Land => journal::close(repo),
        Act::Undo => undo::finish(repo, begun, ready, Some(slot), top),
    }
}

/// A repository that was copied while a landing was under way has the journal and other inodes.
fn is_here(repo: &Repo, begun: &Begun, top: &Path) -> Result<(), Failure> {
    let now = crate::os::files::lstat(top)
        .map_err(|e| Failure::fatal(format!("'{}' cannot be looked at", top.display())).because(e))?;
    if now.is_some_and(|m| m.id.ino == begun.top.ino) {
        return Ok(());
    }
    let folder = journal::folder(repo);
    Err(Failure::fatal(format!(
        "'{}' is of an apply of run '{}' in another folder than this; this repository is a copy made meanwhile",
        folder.join("journal").display(),
        begun.name
    ))
    .hint(format!("look at what is here (git status), then: rm {}", folder.join("journal").display())))
}
