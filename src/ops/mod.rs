//! What commands do. `plan` reads and decides, `execute` acts; nothing here prints.

mod base;
pub mod checkout;
mod confine;
mod cut;
pub mod demo;
pub mod discard;
pub mod engine;
pub mod finish;
mod freeze;
pub mod land;
mod landed;
mod layout;
mod making;
mod open;
pub mod person;
pub mod prune;
pub mod reclaim;
pub mod review;
mod risk;
pub mod show;
mod snapshot;
pub mod spawn;
mod store;
pub mod supervise;
pub mod verdict;

pub use finish::finish;
pub use freeze::{Frozen, freeze};
pub use layout::Layout;
pub use open::Open;

use crate::git::Repo;
use crate::ledger::Ledger;
use crate::model::{Failure, RunName};
use spawn::Fate;
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

/// Undoes what spawns that died left half made; returns their names.
pub fn reclaim(repo: &Repo) -> Result<Vec<RunName>, Failure> {
    making::reclaim(repo, &Ledger::new(repo).home()?)
}

/// Whoever stands in a run's tree means the repository that the run belongs to.
pub fn home_of(repo: Repo) -> Result<Repo, Failure> {
    let Some(folder) = repo.common_dir().parent() else { return Ok(repo) };
    let main = folder.join("host/main");
    match crate::os::files::read_bounded(&main, 4096) {
        Ok(Some(path)) => {
            use std::os::unix::ffi::OsStrExt;
            Repo::discover(std::path::Path::new(std::ffi::OsStr::from_bytes(&path)))
        }
        _ => Ok(repo),
    }
}
