//! The facts of one result, gathered for `policy::decide`, and what follows from its answer.

use super::show::Shown;
use crate::git::Repo;
use crate::ledger::change::Change;
use crate::model::{Body, Failure, Kind, Oid, RunResult, Spawn};
use crate::policy::{Decision, Facts, Policy, Word, decide};

/// Where a project says who may sign.
const SIGNERS: &str = ".git-agent/allowed_signers";

/// What the policy that a run was cut under says about its latest result.
pub fn decision(
    repo: &Repo,
    policy: &Policy,
    shown: &Shown,
    spawn: &Spawn,
    result: &RunResult,
    changes: &[Change],
    now: i64,
) -> Result<Decision, Failure> {
    let latest = shown.head.result.as_ref().map_or(0, |r| r.seq);
    let words: Vec<Word<'_>> = shown
        .chain
        .known()
        .filter_map(|(_, e)| match &e.body {
            Body::Approve(a) if e.seq > latest && a.snapshot == result.snapshot => {
                // Nothing in this version signs an approval.
                Some(Word { by: &e.actor.email, signed: false, time: e.time, expires: a.expires })
            }
            _ => None,
        })
        .collect();
    let started_by = shown.chain.known().find_map(|(_, e)| match &e.body {
        Body::Spawn(_) => Some(e.actor.email.as_str()),
        _ => None,
    });
    let paths: Vec<&[u8]> = changes.iter().map(|c| c.path.as_slice()).collect();
    let facts = Facts {
        role: &spawn.role,
        paths: &paths,
        started_by: started_by.unwrap_or_default(),
        words: &words,
        signers: signers(repo, &spawn.policy.source)?,
        now,
    };
    Ok(decide(policy, &facts))
}

fn signers(repo: &Repo, source: &str) -> Result<bool, Failure> {
    let Ok(commit) = source.parse::<Oid>() else { return Ok(false) };
    let objects = repo.objects()?;
    Ok(objects.entry_at(&objects.commit(&commit)?.tree, SIGNERS)?.is_some())
}

/// Refuses (exit status 1) to approve what the policy forbids: nobody's word makes up for it.
pub fn allowed(name: &str, decision: Option<&Decision>) -> Result<(), Failure> {
    let Some(Decision::Refuse(refusals)) = decision else { return Ok(()) };
    let more = match refusals.len() {
        1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    let message = format!("the policy does not let run '{name}' land: {}{more}", refusals[0]);
    Err(Failure::new(Kind::No, message)
        .hint(format!("reject it: git agent discard {name}"))
        .hint(format!("or take parts of it by hand: git agent checkout {name}")))
}
