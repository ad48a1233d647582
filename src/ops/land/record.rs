//! The undo record of a landing: its moves, what the tree was like just after, and the slot with the displaced
//! files. One file a landing below `$GIT_DIR/agent/apply/undo/`; the newest few are kept.

use super::journal::{self, Begun, Ready};
use super::steps::Times;
use crate::git::Repo;
use crate::model::{Failure, Oid, RunId};
use crate::os::place::{Known, Move, Slot, Where, as_text};
use crate::os::{background, files, place};
use crate::text::quote_path;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How many landings of one work tree can be undone.
pub const KEPT: usize = 8;
/// Largest record that is read.
const MOST: u64 = 1 << 30;

/// What the index has of one path: mode, object and flags as `ls-files -s` has them, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staged {
    /// Where.
    #[serde(with = "as_text")]
    pub path: Vec<u8>,
    /// The entry; empty when there is none.
    pub entry: String,
}

/// A landing that can be undone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What landed and where its slot is.
    pub begun: Begun,
    /// How.
    pub ready: Ready,
    /// Folders whose entries were changed, as they were just after.
    pub after: Vec<Times>,
    /// Folders that were made, with their inode numbers.
    pub made: Vec<Times>,
}

/// A folder as it is now, if it is there.
fn look(slot: &Slot, path: &[u8]) -> Result<Option<Times>, Failure> {
    match place::look_at_folder(slot.tree(), path) {
        Ok(meta) => Ok(Some(Times { path: path.to_vec(), was: Known::from(&meta) })),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => Ok(None),
        Err(e) => Err(Failure::fatal(format!("{} cannot be looked at", quote_path(path))).because(e)),
    }
}

fn undo_folder(repo: &Repo) -> PathBuf {
    journal::folder(repo).join("undo")
}

fn path(repo: &Repo, label: &str) -> PathBuf {
    undo_folder(repo).join(label)
}

impl Record {
    /// Writes the record of a landing that is complete. Written again, it says the same.
    pub fn write(repo: &Repo, slot: &Slot, begun: &Begun, ready: &Ready) -> Result<(), Failure> {
        let mut record =
            Self { begun: begun.clone(), ready: ready.clone(), after: Vec::new(), made: Vec::new() };
        for folder in &ready.folders {
            record.after.extend(look(slot, &folder.path)?);
        }
        for m in &ready.moves {
            if let Move::MakeFolder { path } = m {
                record.made.extend(look(slot, path)?);
            }
        }
        let fail = |e: std::io::Error| {
            Failure::fatal(format!("the undo record in '{}' cannot be written", undo_folder(repo).display()))
                .because(e)
        };
        let bytes = serde_json::to_vec(&record).map_err(|e| Failure::fatal(e.to_string()))?;
        files::create_dirs(&undo_folder(repo), 0o755).map_err(fail)?;
        files::write_atomic(&path(repo, &begun.label), &bytes, 0o600).map_err(fail)
    }

    /// All records that can be read, newest first.
    pub fn all(repo: &Repo) -> Vec<Self> {
        let mut all: Vec<Self> = labels(repo)
            .iter()
            .rev()
            .filter_map(|label| files::read_bounded(&path(repo, label), MOST).ok()?)
            .filter_map(|bytes| serde_json::from_slice(&bytes).ok())
            .collect();
        all.sort_by(|a, b| b.begun.label.cmp(&a.begun.label));
        all
    }

    /// The run that landed.
    pub fn run(&self) -> Option<(&RunId, &Oid)> {
        self.ready.event.as_ref().map(|e| (&e.run, &e.snapshot))
    }

    /// The moves that undo it.
    pub fn round(&self) -> Vec<Move> {
        let made: BTreeMap<&[u8], u64> = self.made.iter().map(|t| (t.path.as_slice(), t.was.ino)).collect();
        let moves = self.ready.moves.iter().enumerate().rev();
        moves
            .filter_map(|(n, m)| m.clone().inverse(made.get(m.path()).copied(), &format!("old/made-{n}")))
            .collect()
    }
}

/// Takes away the record called `label`, if it is there.
pub fn remove(repo: &Repo, label: &str) -> Result<(), Failure> {
    files::remove_file(&path(repo, label)).map(drop).map_err(|e| {
        Failure::fatal(format!("the undo record '{}' cannot be removed", path(repo, label).display()))
            .because(e)
    })
}

fn labels(repo: &Repo) -> Vec<String> {
    let names = std::fs::read_dir(undo_folder(repo)).into_iter().flatten().flatten();
    let mut labels: Vec<String> = names
        .filter_map(|e| e.file_name().into_string().ok())
        // A temporary file of a writer that died begins with a dot.
        .filter(|n| n.bytes().all(|b| b.is_ascii_alphanumeric()))
        .collect();
    labels.sort();
    labels
}

/// Forgets the records beyond the newest, and returns the slots that belong to no record. Only under the lock and
/// without a journal.
pub fn surplus(repo: &Repo, top: &Path) -> Vec<Where> {
    let mut labels = labels(repo);
    for label in labels.drain(..labels.len().saturating_sub(KEPT)) {
        let _ = files::remove_file(&path(repo, &label));
    }
    // What a writer that died was about to give its name.
    for folder in [journal::folder(repo), undo_folder(repo)] {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|n| n.starts_with('.') && n.ends_with(".tmp")) {
                let _ = files::remove_file(&folder.join(name));
            }
        }
    }
    let known: BTreeSet<&str> = labels.iter().map(String::as_str).collect();
    let mut slots = Vec::new();
    for inside in [false, true] {
        let holder = Where::known(&journal::folder(repo), top, "x", inside).path();
        let Some(holder) = holder.parent() else { continue };
        for entry in std::fs::read_dir(holder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let label = name.strip_prefix("gone-").unwrap_or(name);
            let is_slot = label.len() == 26 && label.bytes().all(|b| b.is_ascii_alphanumeric());
            if is_slot && (name != label || !known.contains(label)) {
                slots.push(Where::known(&journal::folder(repo), top, label, inside));
            }
        }
    }
    slots
}

/// Deletes slots while nobody waits for it. Without the lock: the child would hold it for a moment.
pub fn discard(slots: &[Where]) {
    if !slots.is_empty() {
        let _ = background::aside(|| slots.iter().for_each(|slot| drop(slot.clear())));
    }
}
