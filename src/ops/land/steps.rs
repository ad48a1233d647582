//! The steps of a landing: from what is planned for each path to the moves that a journal keeps.

use super::ground::folders;
use crate::model::Failure;
use crate::os::files::{self, FileId, Meta};
use crate::os::place::{self, Known, Move, Slot, as_text};
use crate::text::quote_path;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One step, before the new files exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Exchanges a file or link with its successor.
    Change {
        /// Where.
        path: Vec<u8>,
        /// What must be there.
        was: Meta,
    },
    /// Brings a successor to a name that is free.
    Create {
        /// Where.
        path: Vec<u8>,
    },
    /// Takes a file or link away.
    Remove {
        /// Where.
        path: Vec<u8>,
        /// What must be there.
        was: Meta,
    },
    /// Takes a folder away that the removals before emptied.
    TakeFolder {
        /// Where.
        path: Vec<u8>,
        /// The folder.
        was: FileId,
        /// Its name is needed.
        must: bool,
    },
    /// Makes a folder.
    MakeFolder {
        /// Where.
        path: Vec<u8>,
    },
}

/// A folder and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Where; empty for the top level.
    #[serde(with = "as_text")]
    pub path: Vec<u8>,
    /// What it was.
    pub was: Known,
}

/// The moves, now that the successors lie in the slot.
pub fn moves(steps: &[Step], slot: &Slot) -> Result<Vec<Move>, Failure> {
    let mut moves = Vec::with_capacity(steps.len());
    for (n, step) in steps.iter().enumerate() {
        let taken = || format!("old/{n}").into_bytes();
        moves.push(match step {
            Step::Change { path, was } => Move::Exchange {
                path: path.clone(),
                slot: Slot::name_of(path),
                put: successor(slot, path)?,
                was: Known::from(was),
            },
            Step::Create { path } => {
                Move::Put { path: path.clone(), slot: Slot::name_of(path), put: successor(slot, path)? }
            }
            Step::Remove { path, was } => {
                Move::Take { path: path.clone(), slot: taken(), was: Known::from(was) }
            }
            Step::TakeFolder { path, was, must } => {
                Move::TakeFolder { path: path.clone(), slot: taken(), ino: was.ino, must: *must }
            }
            Step::MakeFolder { path } => Move::MakeFolder { path: path.clone() },
        });
    }
    Ok(moves)
}

fn successor(slot: &Slot, path: &[u8]) -> Result<Known, Failure> {
    let gone = || Failure::fatal(format!("no new file lies ready for {}", quote_path(path)));
    slot.successor(path).map_err(|e| gone().because(e))?.as_ref().map(Known::from).ok_or_else(gone)
}

/// The folders whose entries these moves change, as they are now. What does not exist yet has no time to keep.
pub fn times(slot: &Slot, moves: &[Move]) -> Result<Vec<Times>, Failure> {
    let mut all: BTreeMap<&[u8], Times> = BTreeMap::new();
    for m in moves {
        let path = m.path();
        let parent = path.iter().rposition(|b| *b == b'/').map_or(&b""[..], |at| &path[..at]);
        if all.contains_key(parent) {
            continue;
        }
        match place::look_at_folder(slot.tree(), parent) {
            Ok(meta) => {
                all.insert(parent, Times { path: parent.to_vec(), was: Known::from(&meta) });
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => {}
            Err(e) => {
                return Err(Failure::fatal(format!("{} cannot be looked at", quote_path(parent))).because(e));
            }
        }
    }
    Ok(all.into_values().collect())
}

/// Folders that the removals leave empty and that git would not keep: deepest first. Not the one the caller
/// stands in, not one into which something comes.
pub fn emptied(
    tree: &files::Dir,
    vacated: &BTreeSet<&[u8]>,
    taken: &BTreeSet<Vec<u8>>,
    created: &BTreeSet<&[u8]>,
) -> Result<Vec<Step>, Failure> {
    let busy: BTreeSet<Vec<u8>> = created.iter().flat_map(|p| folders(p)).collect();
    let mut candidates: BTreeSet<Vec<u8>> = vacated.iter().flat_map(|p| folders(p)).collect();
    candidates.retain(|f| !busy.contains(f) && !taken.contains(f) && !created.contains(f.as_slice()));
    let here = files::lstat(std::path::Path::new(".")).ok().flatten().map(|m| m.id);
    let mut gone: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut steps = Vec::new();
    // A folder sorts before what is below it.
    for path in candidates.into_iter().rev() {
        let fail = |e: std::io::Error| {
            Failure::fatal(format!("{} cannot be looked at", quote_path(&path))).because(e)
        };
        let Some(meta) = tree.lstat_at(&path).map_err(fail)?.filter(Meta::is_dir) else { continue };
        let stays = place::names(tree, &path).map_err(fail)?.into_iter().any(|name| {
            let below = [&path[..], b"/", &name].concat();
            !(vacated.contains(below.as_slice()) || gone.contains(&below) || taken.contains(&below))
        });
        if !stays && Some(meta.id) != here {
            gone.insert(path.clone());
            steps.push(Step::TakeFolder { path, was: meta.id, must: false });
        }
    }
    Ok(steps)
}
