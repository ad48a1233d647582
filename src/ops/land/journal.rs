//! The journal of a landing: what is about to be done, durable before it is done. One at a time a work tree, in
//! `$GIT_DIR/agent/apply/journal`, written only by whoever holds the lock beside it.
//!
//! Lines of JSON. The first is written before anything else exists; the second, when the new files are ready,
//! has the list of moves; the third says that all of them were done and are durable. With two lines what was
//! done is taken back; with three the landing is completed by its event.

use super::steps::Times;
use crate::git::Repo;
use crate::model::{Body, Failure, Oid, RunId, RunName};
use crate::os::files;
use crate::os::place::{Known, Move, Where};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The version that is written.
const FORMAT: u64 = 1;
/// Largest journal that is read: a million paths of a hundred bytes.
const MOST: u64 = 1 << 30;

/// What a journal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// A change is brought into the tree.
    Land,
    /// What landed is taken out again.
    Undo,
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// [`FORMAT`].
    pub v: u64,
    /// What it is.
    pub act: Act,
    /// Name of the slot.
    pub label: String,
    /// The slot lies in the tree.
    pub inside: bool,
    /// The tree's top level before.
    pub top: Known,
    /// The run, for whoever reads of it.
    pub name: RunName,
    /// Seconds since the epoch.
    pub time: i64,
}

/// The second line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// In their order.
    pub moves: Vec<Move>,
    /// Folders whose entries change, as they were before.
    pub folders: Vec<Times>,
    /// What the ledger gets when all is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Announced>,
    /// What the index had of the touched paths, to see a `git add` since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub index: Vec<super::record::Staged>,
}

/// An event that follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Announced {
    /// Of this run.
    pub run: RunId,
    /// The snapshot that it is about.
    pub snapshot: Oid,
    /// It follows the event with this number, by which, with the rest, it is known again.
    pub after: u64,
    /// Seconds since the epoch.
    pub time: i64,
    /// What it says.
    pub body: Body,
}

/// How far a landing came.
#[derive(Debug)]
pub enum Found {
    /// New files were being made.
    Begun(Begun),
    /// Some of the moves may have been done.
    Ready(Begun, Ready),
    /// All of them were.
    Placed(Begun, Ready),
}

/// The folder of this work tree's landings.
pub fn folder(repo: &Repo) -> PathBuf {
    repo.git_dir().join("agent/apply")
}

fn path(repo: &Repo) -> PathBuf {
    folder(repo).join("journal")
}

impl Begun {
    /// The first line of a new journal.
    pub fn new(act: Act, label: &str, inside: bool, top: Known, name: &RunName, time: i64) -> Self {
        Self { v: FORMAT, act, label: label.to_owned(), inside, top, name: name.clone(), time }
    }

    /// The slot.
    pub fn slot(&self, repo: &Repo, top: &Path) -> Where {
        Where::known(&folder(repo), top, &self.label, self.inside)
    }

    /// Writes the first line.
    pub fn write(&self, repo: &Repo) -> Result<(), Failure> {
        files::write_atomic(&path(repo), &line(self)?, 0o600).map_err(|e| cannot(repo, e))
    }

    /// Writes both lines.
    pub fn ready(&self, repo: &Repo, ready: &Ready) -> Result<(), Failure> {
        let bytes = [line(self)?, line(ready)?].concat();
        files::write_atomic(&path(repo), &bytes, 0o600).map_err(|e| cannot(repo, e))
    }
}

/// Writes the third line.
pub fn placed(repo: &Repo) -> Result<(), Failure> {
    files::append_synced(&path(repo), b"\"placed\"\n").map_err(|e| cannot(repo, e))
}

/// All is done, or taken back.
pub fn close(repo: &Repo) -> Result<(), Failure> {
    files::remove_file(&path(repo)).and_then(|_| files::sync_dir(&folder(repo))).map_err(|e| cannot(repo, e))
}

/// The journal that is there, if there is one.
pub fn find(repo: &Repo) -> Result<Option<Found>, Failure> {
    let bytes = match files::read_bounded(&path(repo), MOST) {
        Ok(None) => return Ok(None),
        Ok(Some(bytes)) => bytes,
        Err(e) => return Err(unreadable(repo).because(e)),
    };
    // A line without its end was never finished.
    let mut lines = bytes.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n"));
    let bad = |e: serde_json::Error| unreadable(repo).because(e);
    let Some(first) = lines.next() else { return Err(unreadable(repo)) };
    let begun: Begun = serde_json::from_slice(first).map_err(bad)?;
    if begun.v != FORMAT {
        return Err(unreadable(repo).because(format!("it has format version {}", begun.v)));
    }
    let Some(second) = lines.next() else { return Ok(Some(Found::Begun(begun))) };
    let ready: Ready = serde_json::from_slice(second).map_err(bad)?;
    Ok(Some(match lines.next() {
        Some(b"\"placed\"\n") => Found::Placed(begun, ready),
        _ => Found::Ready(begun, ready),
    }))
}

/// Whether there is one, asked without reading it.
pub fn is_there(repo: &Repo) -> bool {
    files::lstat(&path(repo)).is_ok_and(|m| m.is_some())
}

fn line(of: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut bytes = serde_json::to_vec(of).map_err(|e| Failure::fatal(e.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn cannot(repo: &Repo, e: std::io::Error) -> Failure {
    Failure::fatal(format!("the journal '{}' cannot be written", path(repo).display())).because(e)
}

fn unreadable(repo: &Repo) -> Failure {
    Failure::fatal(format!("the journal '{}' cannot be read", path(repo).display()))
        .hint("an apply was interrupted and its journal is damaged; what was displaced lies in that folder")
}
