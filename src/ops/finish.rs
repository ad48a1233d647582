//! Finish: freeze, snapshot, import, and one transaction that moves the run's branch and appends `result`.

use super::{Open, checks, freeze, include, review, snapshot, spawn};
use crate::git::{ObjectKind, RefError, Transaction, commit_bytes};
use crate::ledger::{Draft, change};
use crate::model::{Abort, Body, Check, Ended, Failure, Oid, RunResult};

/// What is known of the work whose result is taken.
#[derive(Debug, Clone, Copy)]
pub struct Taking {
    /// How the engine ended.
    pub ended: Ended,
    /// Its wall clock in seconds.
    pub seconds: u64,
    /// Whether it declined.
    pub declined: bool,
    /// Whether the policy's checks are run.
    pub checks: bool,
}

impl Taking {
    /// What is on disk, whoever put it there.
    pub const UNSEEN: Taking = Taking { ended: Ended::Unseen, seconds: 0, declined: false, checks: false };
}

/// What finishing a run came to.
#[derive(Debug)]
pub struct Finished {
    /// The result, as in the ledger.
    pub result: RunResult,
    /// Whether it is the one the ledger had already: nothing new on disk, no event appended.
    pub unchanged: bool,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
}

/// Takes the snapshot of what is on disk and records it. On a failure beyond this run's own (a limit, an
/// import that was refused) the run is recorded as failed; its tree is kept.
pub fn finish(run: &mut Open<'_>, taking: Taking, now: i64) -> Result<Finished, Failure> {
    match take(run, taking, now) {
        Ok(finished) => Ok(finished),
        Err(failure) => {
            let body = Body::Abort(Abort { reason: bounded(&failure.to_string()) });
            let draft =
                Draft { body, att: Vec::new(), evidence: Vec::new(), time: now, actor: run.actor.clone() };
            // The first failure is the one to tell; the ledger may be what failed.
            if let Ok(tip) = run.ledger.append(&run.folder.run, &draft, |_| Ok(())) {
                run.tip = tip;
            }
            Err(failure
                .hint(format!("the tree is kept: {}", run.layout.tree().display()))
                .hint(format!("once it is mended: git agent finish {}", run.folder.name)))
        }
    }
}

fn take(run: &mut Open<'_>, taking: Taking, now: i64) -> Result<Finished, Failure> {
    let rule = spawn::rule(run)?;
    let frozen = freeze(run)?;
    let mut disk = snapshot::take(run, &frozen, &rule)?;
    disk.report.notes.extend(changed_copies(run));
    let base = run.folder.base.clone();
    let snapshot = commit(run, &disk.tree)?;
    let changes = match disk.tree == run.repo.objects()?.commit(&base)?.tree {
        true => Vec::new(),
        false => change::entries(run.repo, &base, &snapshot)?,
    };
    let mut result = RunResult {
        base,
        snapshot: snapshot.clone(),
        tree: disk.tree,
        change: change::digest(run.repo, &changes)?,
        files: changes.len() as u64,
        ended: taking.ended,
        seconds: taking.seconds,
        report: disk.report,
        declined: taking.declined,
        checks: Vec::new(),
    };
    if let Some(limit) = rule.limits.lines {
        let (added, removed) = review::lines(run.repo, &result)?;
        if added + removed > limit {
            let what = format!("the run changed {} lines, more than the limit of {limit}", added + removed);
            return Err(Failure::fatal(format!("{what} ({})", rule.limit("lines"))));
        }
    }
    let head = &run.tip.understood()?.head;
    let known = head.result.as_ref().is_some_and(|r| r.snapshot == snapshot);
    if known && head.phase == crate::model::Phase::Proposed && taking.ended == Ended::Unseen {
        return Ok(Finished { result, unchanged: true, notes: Vec::new() });
    }
    let mut notes = Vec::new();
    if let (Ended::Timeout(seconds), Some(wall)) = (taking.ended, rule.limits.wall)
        && seconds == wall.as_secs()
    {
        notes.push(format!("the engine was ended at the limit of {seconds} s ({})", rule.limit("wall")));
    }
    let mut att = Vec::new();
    if taking.checks && run.isolation().has_copy() && !changes.is_empty() {
        for (check, tail) in checks::run(run, &rule, &snapshot) {
            if !tail.is_empty() {
                att.push((Check::attachment(&check.name), tail));
            }
            result.checks.push(check);
        }
    }
    record(run, &result, att, disk.agent_head.as_ref(), &disk.kept, now, &mut notes)?;
    Ok(Finished { result, unchanged: false, notes })
}

/// The snapshot commit. Deterministic: the same tree on the same base is the same commit, whoever takes it.
fn commit(run: &Open<'_>, tree: &Oid) -> Result<Oid, Failure> {
    Ok(run.repo.objects()?.write(ObjectKind::Commit, &snapshot_bytes(run, tree)?)?)
}

/// The bytes of that commit.
pub(super) fn snapshot_bytes(run: &Open<'_>, tree: &Oid) -> Result<Vec<u8>, Failure> {
    let objects = run.repo.objects()?;
    let base = &run.folder.base;
    let time = objects.commit(base)?.time;
    let who = format!("{} <{}@git-agent.invalid>", run.folder.name, run.folder.run);
    let message = format!("Snapshot of run {}\n\nAgent-Run: {}", run.folder.name, run.folder.run);
    Ok(commit_bytes(tree, std::slice::from_ref(base), &who, time, &message))
}

/// One sentence on copies that the run changed: they are no part of any difference.
fn changed_copies(run: &Open<'_>) -> Option<String> {
    const TOLD: usize = 5;
    let changed = include::changed(run);
    let first: Vec<_> =
        changed.iter().take(TOLD).map(|f| crate::text::quote_path(f.as_bytes()).into_owned()).collect();
    let more = if changed.len() > TOLD { ", ..." } else { "" };
    (!changed.is_empty()).then(|| {
        format!(
            "files that the policy copied in were changed, which is not included: {}{more}",
            first.join(", ")
        )
    })
}

fn record(
    run: &mut Open<'_>,
    result: &RunResult,
    att: Vec<(String, Vec<u8>)>,
    agent_head: Option<&Oid>,
    kept: &[(String, Oid)],
    now: i64,
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let draft = Draft {
        body: Body::Result(result.clone()),
        att,
        evidence: Vec::new(),
        time: now,
        actor: run.actor.clone(),
    };
    let prepared = run.ledger.prepare_next(&run.tip, &draft)?;
    let mut transaction = prepared.join(Transaction::new());
    if !run.isolation().has_copy() {
        transaction.commit(run.repo, "agent: result")?;
        run.tip = prepared.into_tip();
        return Ok(());
    }
    // The branch is ours while it is where we left it. A person who moved or deleted it keeps it so.
    let branch = &run.folder.branch;
    let ours = last_known(run)?;
    let tip = run.repo.ref_tip(branch)?;
    if tip.as_ref() == Some(&ours) {
        if ours != result.snapshot {
            transaction = transaction.update(branch, &result.snapshot, &ours);
        }
    } else if tip.as_ref() != Some(&result.snapshot) {
        notes.push(format!(
            "{} was {} by somebody else and is left alone",
            branch.trim_start_matches("refs/heads/"),
            if tip.is_some() { "moved" } else { "deleted" }
        ));
    }
    if let Some(head) = agent_head {
        let name = format!("refs/agent-local/{}/head", run.folder.run);
        transaction = match run.repo.ref_tip(&name)? {
            Some(old) if old == *head => transaction,
            Some(old) => transaction.update(&name, head, &old),
            None => transaction.create(&name, head),
        };
    }
    for (name, commit) in kept {
        if run.repo.ref_tip(name)?.is_none() {
            transaction = transaction.create(name, commit);
        }
    }
    match transaction.commit(run.repo, "agent: result") {
        Ok(()) => {
            run.tip = prepared.into_tip();
            Ok(())
        }
        Err(RefError::Moved { name, .. }) => {
            Err(Failure::fatal(format!("{name} moved while the result was recorded"))
                .hint(format!("try again: git agent finish {}", run.folder.name)))
        }
        Err(e) => Err(e.into()),
    }
}

/// Where we left the run's branch.
fn last_known(run: &Open<'_>) -> Result<Oid, Failure> {
    let head = &run.tip.understood()?.head;
    Ok(head.result.as_ref().map_or_else(|| head.base.clone(), |r| r.snapshot.clone()))
}

/// Fits a reason into an event.
fn bounded(text: &str) -> String {
    text.chars().take(1000).collect()
}
