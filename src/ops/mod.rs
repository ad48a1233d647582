//! What commands do. `plan` reads and decides, `execute` acts; nothing here prints.

pub mod authority;
mod base;
pub mod cage_show;
pub mod chain;
pub mod checkout;
pub mod checks;
pub mod commands;
mod confine;
mod cut;
pub mod demo;
pub mod discard;
pub mod doctor;
pub mod engine;
pub mod explain;
pub mod finish;
mod freeze;
pub mod gate;
mod include;
pub mod init;
pub mod judge;
pub mod land;
mod landed;
mod layout;
mod lfs;
pub mod login;
mod making;
mod open;
pub mod person;
mod ports;
pub mod prune;
pub mod reader;
pub mod reclaim;
pub mod review;
mod risk;
mod setup;
pub mod show;
pub mod sign;
pub mod signers;
mod snapshot;
pub mod spawn;
pub mod standing;
mod store;
pub mod supervise;
mod switch;
pub mod sync;
mod tier;
pub mod trust;
pub mod verdict;
pub mod vocabulary;

pub use finish::{Taking, finish};
pub use freeze::{Frozen, freeze};
pub use layout::Layout;
pub use open::Open;

use crate::git::Repo;
use crate::ledger::Ledger;
use crate::model::{Failure, RunName};
use crate::os::{files, process};
use spawn::Fate;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the epoch.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs().cast_signed())
}

/// Time and chance for a new run.
pub fn fate() -> Result<Fate, Failure> {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    let mut bytes = [0; 16];
    crate::os::random(&mut bytes)
        .map_err(|e| Failure::fatal("the machine gives no random numbers").because(e))?;
    Ok(Fate { millis, chance: u128::from_le_bytes(bytes) })
}

/// What every command looks after first: the repository has an identity if it can, and nothing of a spawn that
/// died is left half made.
#[derive(Debug, Default)]
pub struct Tidied {
    /// What a person should know about the repository: one sentence each.
    pub notes: Vec<String>,
    /// Runs that were half made and are gone.
    pub reclaimed: Vec<RunName>,
}

/// Settles the repository's identity, brings an apply that died in this work tree to its end, and undoes what
/// spawns that died left half made.
pub fn tidy(repo: &Repo) -> Result<Tidied, Failure> {
    // Nothing was ever begun in a repository that has no identity and takes none.
    let Some(home) = Ledger::new(repo).home_to_read()? else { return Ok(Tidied::default()) };
    let mut notes = home.notes.clone();
    match land::recover(repo) {
        Ok(recovered) => notes.extend(recovered.sentences()),
        // No reason to refuse a list either; an apply meets it again and refuses.
        Err(e) => notes.push(e.to_string()),
    }
    // Half a spawn that cannot be undone just now is no reason to refuse a list.
    let reclaimed = making::reclaim(repo, &home).unwrap_or_else(|e| {
        notes.push(format!("a half-made run could not be cleared up: {e}"));
        Vec::new()
    });
    Ok(Tidied { notes, reclaimed })
}

/// The repository that somebody who stands in `cwd` means: in a run's tree the one that the run belongs to.
pub fn repo_at(cwd: &Path) -> Result<Repo, Failure> {
    // Whoever sets GIT_DIR means that.
    if std::env::var_os("GIT_DIR").is_none() {
        let of_run = |dir: &&Path| dir.ends_with("tree") || dir.ends_with("sub");
        for folder in cwd.ancestors().filter(of_run).filter_map(Path::parent) {
            if let Some(repo) = owner(folder)? {
                return Ok(repo);
            }
        }
    }
    Repo::discover(cwd)
}

/// The repository whose run lies in `folder`. Both must say so: a clone can hold a folder that looks like a
/// run and names any repository it likes.
fn owner(folder: &Path) -> Result<Option<Repo>, Failure> {
    let host = folder.join("host");
    let private = files::lstat(&host)
        .ok()
        .flatten()
        .is_some_and(|m| m.is_dir() && m.mode & 0o077 == 0 && m.uid == process::current_user().uid);
    let main = if private { files::read_bounded(&host.join("main"), 4096).ok().flatten() } else { None };
    let (Some(main), Some(root)) = (main, folder.parent()) else { return Ok(None) };
    let repo = Repo::discover(Path::new(OsStr::from_bytes(&main)))?;
    let home = Ledger::new(&repo).home()?;
    let same = |a: &Path, b: &Path| std::fs::canonicalize(a).ok() == std::fs::canonicalize(b).ok();
    Ok(same(&home.root, root).then_some(repo))
}
