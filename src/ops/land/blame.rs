//! Who moved the ground: paths that stand as another run left them are named with that run.

use super::content::Scratch;
use super::ground::Ground;
use super::refusal::Refused;
use crate::git::Repo;
use crate::ledger::{Ledger, change};
use crate::model::{Failure, Phase, RunId};
use crate::text::Untrusted;
use std::collections::BTreeSet;

/// Runs that are asked, newest first.
const MOST_RUNS: usize = 50;

/// Adds to each refusal the run that left the path as it is now, where one that landed did.
pub fn name_runs(
    repo: &Repo,
    ground: &Ground,
    scratch: &Scratch,
    own: &RunId,
    refused: &mut [Refused],
) -> Result<(), Failure> {
    let tips = Ledger::new(repo).tips()?.tips;
    let landed = tips.iter().rev().filter(|t| t.run != *own).filter_map(|t| {
        let head = t.head()?;
        Some((head, head.result.as_ref().filter(|_| head.phase == Phase::Applied)?))
    });
    for (n, (head, result)) in landed.take(MOST_RUNS).enumerate() {
        let wanted: BTreeSet<&[u8]> = refused.iter().map(|r| r.path.as_slice()).collect();
        let Ok(base) = repo.objects()?.commit(&result.snapshot).map(|c| c.parents) else { continue };
        let [base] = &base[..] else { continue };
        let mut theirs = change::entries(repo, base, &result.snapshot)?;
        theirs.retain(|c| wanted.contains(c.path.as_slice()));
        let kept = theirs.iter().filter(|c| !c.is_deleted() && c.new_mode != change::GITLINK);
        let unlike = scratch.differing(&format!("run-{n}"), kept.map(|c| (c.new_mode, &c.new, &c.path)))?;
        let left: BTreeSet<Vec<u8>> = theirs
            .iter()
            .filter(|c| match c.is_deleted() {
                true => ground.tree().lstat_at(&c.path).is_ok_and(|m| m.is_none()),
                false => c.new_mode != change::GITLINK && !unlike.contains(&c.path),
            })
            .map(|c| c.path.clone())
            .collect();
        for r in refused.iter_mut().filter(|r| left.contains(&r.path)) {
            r.why =
                format!("{}; run '{}' left it so when it landed", r.why, Untrusted::new(head.name.as_str()));
        }
    }
    Ok(())
}
