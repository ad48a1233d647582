//! One landing from its journal's first line to its end: everything, or nothing, or by the next command
//! everything or nothing. The order of writes:
//!
//! 1. journal: begun. 2. slot, new files. 3. journal: the moves, after the new files are durable. 4. the moves.
//! 5. journal: placed, after the moves are durable. 6. the undo record. 7. the event. 8. the journal goes.

use super::journal::{self, Act, Announced, Begun, Ready};
use super::record::{self, Record, Staged};
use super::steps::{self, Step};
use crate::git::Repo;
use crate::ledger::Tip;
use crate::model::{Failure, RunName};
use crate::os::files;
use crate::os::place::{self, Kept, Known, Move, Slot, Uninterrupted, Where, Why};
use crate::text::quote_path;
use std::path::{Path, PathBuf};

/// What carrying a landing out needs to know.
pub struct Cargo<'a> {
    pub repo: &'a Repo,
    pub top: &'a Path,
    /// The run, for whoever reads of it.
    pub name: &'a RunName,
    pub steps: &'a [Step],
    pub event: Option<Announced>,
    pub index: Vec<Staged>,
    pub time: i64,
}

/// Why nothing landed.
#[derive(Debug)]
pub enum Trouble {
    /// A move could not be done; all was taken back but what is named.
    At { path: Vec<u8>, why: Why, left: Left },
    /// Something else failed; all was taken back but what is named.
    Failed { failure: Failure, left: Left },
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed { failure, left: Left::default() }
    }
}

/// What could not be taken back.
#[derive(Debug, Default)]
pub struct Left {
    /// One sentence each.
    pub sentences: Vec<String>,
    /// The system refused: the journal stays, and the next command tries again.
    pub again: bool,
}

/// Brings new files into the tree. `make` fills the slot; `announce` appends the event. Returns what that says, and
/// the paths whose displaced file somebody wrote to after it was too late.
pub fn land<T>(
    cargo: Cargo<'_>,
    make: impl FnOnce(&Slot) -> Result<(), Failure>,
    announce: impl FnOnce(&Ready) -> Result<T, Failure>,
) -> Result<(T, Vec<Vec<u8>>, PathBuf), Trouble> {
    let Cargo { repo, top, name, steps, event, index, time } = cargo;
    let fate = crate::ops::fate()?;
    let label = crate::model::RunId::new(fate.millis, fate.chance);
    let no_slot = |e: std::io::Error| Failure::fatal("no folder for the new files could be made").because(e);
    let at = Where::choose(&journal::folder(repo), top, label.as_str()).map_err(no_slot)?;
    let before =
        files::lstat(top).map_err(no_slot)?.ok_or_else(|| no_slot(std::io::ErrorKind::NotFound.into()))?;
    let begun = Begun::new(Act::Land, label.as_str(), at.inside, Known::from(&before), name, time);
    begun.write(repo)?;
    let prepared = (|| {
        let slot = Slot::create(&at, top).map_err(no_slot)?;
        make(&slot)?;
        let moves = steps::moves(steps, &slot)?;
        let mut folders = steps::times(&slot, &moves)?;
        // The slot itself may have changed the top level's time.
        folders.iter_mut().filter(|f| f.path.is_empty()).for_each(|f| f.was = begun.top);
        slot.sync(steps.iter().filter_map(successor).collect::<Vec<_>>().into_iter()).map_err(|e| {
            Failure::fatal("the new files could not be made durable; nothing was changed").because(e)
        })?;
        let ready = Ready { moves, folders, event, index };
        begun.ready(repo, &ready)?;
        Ok((slot, ready))
    })();
    let (slot, ready) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            let left = abandon(repo, top, &begun);
            return Err(Trouble::Failed { failure, left });
        }
    };
    let held_off = Uninterrupted::begin();
    let done = carry(repo, &slot, &begun, &ready, top, announce)?;
    let late = slot.written(&ready.moves);
    journal::close(repo)?;
    drop(held_off);
    Ok((done, late, slot.path().to_owned()))
}

/// The moves, the third line, the event. On trouble everything is taken back.
pub fn carry<T>(
    repo: &Repo,
    slot: &Slot,
    begun: &Begun,
    ready: &Ready,
    top: &Path,
    announce: impl FnOnce(&Ready) -> Result<T, Failure>,
) -> Result<T, Trouble> {
    if let Err((n, why)) = slot.place(&ready.moves) {
        let path = ready.moves[n].path().to_vec();
        return Err(Trouble::At { path, why, left: take_back(repo, slot, begun, ready, top) });
    }
    // The last moment in which a save through an open descriptor can be answered by taking everything back.
    if let Some(path) = slot.written(&ready.moves).into_iter().next() {
        let left = take_back(repo, slot, begun, ready, top);
        return Err(Trouble::At { path, why: Why::Changed, left });
    }
    let parents = ready.folders.iter().map(|f| f.path.as_slice());
    let announced = place::sync_folders(slot.tree(), parents)
        .map_err(|e| Failure::fatal("what had landed could not be made durable").because(e))
        .and_then(|()| journal::placed(repo))
        // Before the event: nothing lands that cannot be undone.
        .and_then(|()| match begun.act {
            Act::Land if ready.event.is_some() => Record::write(repo, slot, begun, ready),
            Act::Land | Act::Undo => Ok(()),
        })
        .and_then(|()| announce(ready));
    announced.map_err(|failure| Trouble::Failed { failure, left: take_back(repo, slot, begun, ready, top) })
}

fn successor(step: &Step) -> Option<&[u8]> {
    match step {
        Step::Change { path, .. } | Step::Create { path } => Some(path),
        _ => None,
    }
}

/// Takes back whatever was done of a landing, and removes what was made for it. Works from the journal alone, and
/// may be killed and called again.
pub fn take_back(repo: &Repo, slot: &Slot, begun: &Begun, ready: &Ready, top: &Path) -> Left {
    let mut left = Left::default();
    let kept = slot.take_back(&ready.moves);
    left.again = kept.iter().any(|k| matches!(k, Kept::Failed(..)));
    let moved = (!kept.is_empty() && !left.again && begun.act == Act::Land)
        .then(|| begun.slot(repo, top).keep())
        .and_then(Result::ok);
    let place = moved.as_deref().unwrap_or(slot.path());
    for one in &kept {
        left.sentences.push(match one {
            Kept::Failed(path, e) => format!("{} could not be taken back: {e}", quote_path(path)),
            Kept::Edited(path, None) => {
                format!("{} was written to meanwhile and stays as it is", quote_path(path))
            }
            Kept::Edited(path, Some(at)) => format!(
                "{} was written to meanwhile and stays as it is; what stood there before is '{}'",
                quote_path(path),
                place.join(std::ffi::OsString::from(String::from_utf8_lossy(at).into_owned())).display()
            ),
        });
    }
    set_times(slot, &ready.folders);
    if !left.again {
        let cleared = match begun.act {
            Act::Land => clear(repo, begun, top),
            // The slot is that of the record, which is as it was.
            Act::Undo => Ok(()),
        };
        if let Err(e) = cleared.and_then(|()| journal::close(repo)) {
            left.sentences.push(e.to_string());
            left.again = true;
        }
    }
    left
}

/// Nothing was moved yet: what was made goes.
pub fn abandon(repo: &Repo, top: &Path, begun: &Begun) -> Left {
    match clear(repo, begun, top).and_then(|()| journal::close(repo)) {
        Ok(()) => Left::default(),
        Err(e) => Left { sentences: vec![e.to_string()], again: true },
    }
}

fn clear(repo: &Repo, begun: &Begun, top: &Path) -> Result<(), Failure> {
    record::remove(repo, &begun.label)?;
    let at = begun.slot(repo, top);
    at.remove()
        .map_err(|e| Failure::fatal(format!("'{}' could not be removed", at.path().display())).because(e))?;
    if begun.inside
        && let Ok(tree) = files::Dir::open(top)
    {
        let _ = place::set_folder_time(&tree, b"", &begun.top);
    }
    Ok(())
}

/// Gives folders the times they had. Whoever made or removed a name there has set them.
pub fn set_times(slot: &Slot, folders: &[steps::Times]) {
    for folder in folders {
        let _ = place::set_folder_time(slot.tree(), &folder.path, &folder.was);
    }
}

/// Appends the event of a landing, unless the ledger has it already: a git that was killed after its work was done
/// reports a failure that is none, and so does a process of ours that dies after it.
pub fn announce(
    repo: &Repo,
    event: &Announced,
    check: impl Fn(&crate::model::Head) -> Result<(), Failure>,
) -> Result<Tip, Failure> {
    let ledger = crate::ledger::Ledger::new(repo);
    let draft = crate::ledger::Draft {
        body: event.body.clone(),
        att: Vec::new(),
        evidence: Vec::new(),
        time: event.time,
        actor: crate::ledger::actor(repo.config()?),
    };
    ledger.append(&event.run, &draft, check).or_else(|failure| match ledger.tip(&event.run) {
        Ok(Some(tip)) if is_said(&ledger, &tip, event) => Ok(tip),
        _ => Err(failure),
    })
}

/// Whether a run's chain holds an announced event.
pub fn is_said(ledger: &crate::ledger::Ledger<'_>, tip: &Tip, event: &Announced) -> bool {
    let is = |e: &crate::model::Event| e.seq > event.after && e.time == event.time && e.body == event.body;
    ledger.chain(tip).is_ok_and(|chain| chain.known().any(|(_, e)| is(e)))
}

/// Forgets what is beyond the newest landings. Call it when the lock is about to go, and pass the answer to
/// [`record::discard`] when it is gone.
pub fn surplus(repo: &Repo, top: &Path) -> Vec<Where> {
    record::surplus(repo, top)
}

/// The paths of these moves that people care about: files, not folders.
pub fn files_of(moves: &[Move]) -> impl Iterator<Item = &[u8]> {
    moves
        .iter()
        .filter(|m| matches!(m, Move::Exchange { .. } | Move::Put { .. } | Move::Take { .. }))
        .map(Move::path)
}
