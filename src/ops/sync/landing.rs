//! Landed: a change that somebody approved is in the history of its target, as a remote has it. Whoever sees it
//! writes it down.

use crate::git::Repo;
use crate::ledger::{self, Draft, Ledger, change, notes};
use crate::model::{self, Body, Failure, Oid, Phase, RunName};
use crate::ops::authority::Case;

/// Commits of a target that are looked at, newest first.
const MOST_COMMITS: usize = 256;

/// A run that landed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Land {
    /// The run.
    pub name: RunName,
    /// The branch, full name.
    pub target: String,
    /// The commit that brought the change.
    pub commit: Oid,
}

/// Finds and records what landed. What could not be recorded is said in `said`.
pub(super) fn record(
    repo: &Repo,
    remote: &str,
    now: i64,
    said: &mut Vec<String>,
) -> Result<Vec<Land>, Failure> {
    let ledger = Ledger::new(repo);
    let mut all = Vec::new();
    for tip in ledger.tips()?.tips {
        let Some(head) = tip.head().filter(|h| matches!(h.phase, Phase::Approved | Phase::Applied)) else {
            continue;
        };
        let name = head.name.clone();
        match one(repo, &ledger, &tip, remote, now) {
            Ok(found) => all.extend(found),
            Err(e) => said.push(format!("whether run '{name}' landed could not be told: {e}")),
        }
    }
    Ok(all)
}

fn one(
    repo: &Repo,
    ledger: &Ledger<'_>,
    tip: &ledger::Tip,
    remote: &str,
    now: i64,
) -> Result<Option<Land>, Failure> {
    let chain = ledger.chain(tip)?;
    let Some(case) = Case::of(&chain) else { return Ok(None) };
    let Some(target) = &case.spawn.target else { return Ok(None) };
    let Some(short) = target.strip_prefix("refs/heads/") else { return Ok(None) };
    let Some(there) = repo.ref_tip(&format!("refs/remotes/{remote}/{short}"))? else { return Ok(None) };
    let result = case.result;
    let Some(commit) = find(repo, &result.base, &there, &result.change)? else { return Ok(None) };
    let who = ledger::actor(repo.config()?);
    let body = Body::Land(model::Land {
        snapshot: result.snapshot.clone(),
        change: result.change,
        target: target.clone(),
        commit: commit.clone(),
    });
    let draft = Draft { body, att: Vec::new(), evidence: Vec::new(), time: now, actor: who.clone() };
    let done = ledger.append(&tip.run, &draft, |head| match head.phase {
        Phase::Approved | Phase::Applied
            if head.result.as_ref().is_some_and(|r| r.snapshot == result.snapshot) =>
        {
            Ok(())
        }
        _ => Err(Failure::fatal(format!("run '{}' has changed meanwhile", head.name))),
    })?;
    let name = done.understood()?.head.name.clone();
    let approved = chain.known().rev().find(|(_, e)| matches!(e.body, Body::Approve(_)));
    let approval = approved.and_then(|(oid, _)| chain.digest_of(oid));
    notes::add(repo, &[(commit.clone(), notes::text(&tip.run, &name, approval, &result.change))], &who, now)?;
    Ok(Some(Land { name, target: target.clone(), commit }))
}

/// The commit between `base` and `tip`, along first parents, whose difference is exactly this change.
fn find(repo: &Repo, base: &Oid, tip: &Oid, wanted: &model::Digest) -> Result<Option<Oid>, Failure> {
    let text = repo
        .call("rev-list")
        .args(["--first-parent", "--parents"])
        .arg(format!("--max-count={MOST_COMMITS}"))
        .args([tip.as_str(), "--not", base.as_str()])
        .text()?;
    for line in text.lines() {
        let mut words = line.split(' ').filter_map(|w| w.parse::<Oid>().ok());
        let (Some(commit), Some(parent)) = (words.next(), words.next()) else { continue };
        if change::digest(repo, &change::entries(repo, &parent, &commit)?)? == *wanted {
            return Ok(Some(commit));
        }
    }
    Ok(None)
}
