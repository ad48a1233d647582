//! The port of a run: one number that stays the run's, for a server that its engine or its checks start.

use crate::ledger::{Folder, Home};
use crate::model::{Failure, RunId};
use crate::os::port;
use std::collections::BTreeSet;

/// Below what kernels give out by themselves (32768 on Linux), above what services use.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A port that no other run here has and nobody listens on. Where the search starts depends on the run, so that
/// two repositories seldom meet.
pub fn choose(home: &Home, run: &RunId) -> Result<u16, Failure> {
    let taken = taken(home);
    let seed = run.as_str().bytes().fold(0_u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(b)));
    let start = (seed % u64::from(COUNT)) as u16;
    (0..COUNT)
        .map(|n| FIRST + (start + n) % COUNT)
        .find(|p| !taken.contains(p) && port::is_free(*p))
        .ok_or_else(|| Failure::fatal(format!("no port from {FIRST} to {} is free", FIRST + COUNT - 1)))
}

fn taken(home: &Home) -> BTreeSet<u16> {
    let entries = std::fs::read_dir(&home.root).into_iter().flatten().flatten();
    entries.filter_map(|e| Folder::read(&e.path()).ok().flatten()?.port).collect()
}
