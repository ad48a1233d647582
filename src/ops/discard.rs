//! Discard: a person's word that a run's work shall not land. What is on disk is recorded first, so that the
//! word can be regretted while the retention lasts.

use super::prune::{Judge, Request};
use super::reclaim::{self, Reclaimed};
use super::{Open, Taking, finish, land, open, person, show};
use crate::git::{Repo, Transaction};
use crate::ledger::{self, Draft, Ledger, Tip};
use crate::model::{Body, Failure, Head, Isolation, Kind, Oid, Phase, Reject, RunName};
use crate::os::files::Dir;

/// Longest reason in characters.
const MAX_REASON: usize = 1000;

/// What a discard came to.
#[derive(Debug)]
pub struct Discarded {
    /// The run's name.
    pub name: RunName,
    /// What the run had left, still reachable from its ref.
    pub snapshot: Option<Oid>,
    /// What became of its tree; `None` when it has none on this machine.
    pub tree: Option<Reclaimed>,
    /// What was taken back in the person's own tree, where the run had worked there.
    pub restored: Option<Vec<land::PathPlan>>,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// Rejects a run and takes its tree away. Refused to agents.
pub fn discard(repo: &Repo, word: &str, reason: Option<&str>, now: i64) -> Result<Discarded, Failure> {
    let ledger = Ledger::new(repo);
    let tip = ledger.resolve(word)?;
    let name = tip.understood()?.head.name.clone();
    person::require_person(&format!("discard run '{name}'"))?;
    check(&tip.understood()?.head)?;
    let home = ledger.home()?;
    if tip.understood()?.head.isolation == Isolation::Off {
        return take_back(repo, &ledger, tip, reason, now);
    }
    if open::find(&home, &tip).is_err() {
        let tip = reject(repo, &tip, reason, now)?;
        let head = tip.understood()?.head.clone();
        let judge = Judge::new(repo, home, Request::default(), now)?;
        // A later run of the same name may own the branch.
        let owned = ledger.tips()?.tips.iter().any(|t| {
            t.run != tip.run && t.head().is_some_and(|h| h.branch == head.branch && h.phase != Phase::Pruned)
        });
        if let Some((branch, at)) = judge.branch(&head)?.filter(|_| !owned) {
            Transaction::new().delete(&branch, &at).commit(repo, "agent: discard")?;
        }
        let snapshot = head.result.map(|r| r.snapshot);
        return Ok(Discarded { name, snapshot, tree: None, restored: None, notes: Vec::new() });
    }
    let mut run = Open::of(repo, &home, tip)?;
    let mut notes = Vec::new();
    if let Err(e) = record(&mut run, now) {
        notes.push(format!("what was on disk could not be recorded: {e}"));
    }
    // The record may have been the last word that fitted; the tip is read again.
    run.tip = reject(repo, &run.tip, reason, now)?;
    let snapshot = run.tip.understood()?.head.result.as_ref().map(|r| r.snapshot.clone());
    let tree = reclaim::reclaim(run, true, now)?;
    Ok(Discarded { name, snapshot, tree: Some(tree), restored: None, notes })
}

/// The same for a run that worked in the person's own tree: what it did there is taken back first, whole or
/// not at all, and the word of the person is the last step of that.
fn take_back(
    repo: &Repo,
    ledger: &Ledger<'_>,
    tip: Tip,
    reason: Option<&str>,
    now: i64,
) -> Result<Discarded, Failure> {
    let home = ledger.home()?;
    let mut run = Open::of(repo, &home, tip)?;
    let head = run.tip.understood()?.head.clone();
    let mut notes = Vec::new();
    if head.phase == Phase::Failed {
        notes.push(format!(
            "what run '{}' did in your tree could not be recorded and stays there; see it with: git diff {}",
            head.name,
            head.base.short()
        ));
    }
    if head.phase == Phase::Engaged {
        // What nobody has recorded cannot be told from what the person did since.
        return Err(Failure::new(
            Kind::No,
            format!("run '{}' worked in your own tree, and nobody has recorded what it did", head.name),
        )
        .hint(format!("record it: git agent finish {}", head.name))
        .hint(format!("then see what would be taken back: git agent review {}", head.name)));
    }
    let mut restored = None;
    let shown = show::read(ledger, run.folder.run.as_str())?;
    if !matches!(head.phase, Phase::Rejected | Phase::Failed) && shown.head.result.is_some() {
        let plan = land::Restore::plan(&standing_repo(&run)?, &shown)?;
        let done = plan.execute(&standing_repo(&run)?, || reject(repo, &run.tip, reason, now))?;
        notes.extend(done.notes);
        run.tip = done.tip;
        restored = Some(done.paths);
    } else {
        run.tip = reject(repo, &run.tip, reason, now)?;
    }
    let snapshot = run.tip.understood()?.head.result.as_ref().map(|r| r.snapshot.clone());
    let name = head.name;
    let tree = reclaim::reclaim(run, true, now)?;
    Ok(Discarded { name, snapshot, tree: Some(tree), restored, notes })
}

/// The repository as seen from the work tree in which the run worked, wherever the person stands now.
fn standing_repo(run: &Open<'_>) -> Result<Repo, Failure> {
    Repo::discover(&run.layout.tree())
}

/// Whether a run can be discarded as the ledger has it.
fn check(head: &Head) -> Result<(), Failure> {
    let name = &head.name;
    match head.phase {
        Phase::Applied => Err(Failure::new(Kind::No, format!("run '{name}' was applied already"))
            .hint(format!("what it changed: git agent show {name}"))),
        Phase::Landed => Err(Failure::new(Kind::No, format!("run '{name}' has landed already"))),
        Phase::Pruned => Err(Failure::new(Kind::No, format!("run '{name}' was pruned already"))),
        Phase::Finished => Err(Failure::new(
            Kind::No,
            format!("run '{name}' was a reader's and has ended: there is nothing to discard"),
        )),
        _ => Ok(()),
    }
}

/// Takes the snapshot of what nobody has recorded yet. A run that nobody worked in has nothing to record.
fn record(run: &mut Open<'_>, now: i64) -> Result<(), Failure> {
    let head = &run.tip.understood()?.head;
    let phase = head.phase;
    if head.isolation == Isolation::Reader {
        return Ok(());
    }
    if phase == Phase::Rejected || run.folder.tree.is_none() {
        return Ok(());
    }
    let recorded = reclaim::recorded(run.layout.dir(), head.result.is_some());
    let tree = Dir::open(&run.layout.tree());
    let unchanged =
        tree.is_ok_and(|tree| recorded.is_some_and(|at| super::prune::changed(&tree, at).is_none()));
    if unchanged && matches!(phase, Phase::Ready | Phase::Proposed | Phase::Approved | Phase::Kept) {
        return Ok(());
    }
    finish(run, Taking::UNSEEN, now).map(|_| ())
}

fn reject(repo: &Repo, tip: &Tip, reason: Option<&str>, now: i64) -> Result<Tip, Failure> {
    let head = &tip.understood()?.head;
    if head.phase == Phase::Rejected {
        return Ok(tip.clone());
    }
    let reason = reason.map(|r| r.chars().take(MAX_REASON).collect());
    let body = Body::Reject(Reject { snapshot: head.result.as_ref().map(|r| r.snapshot.clone()), reason });
    let actor = ledger::actor(repo.config()?);
    let draft = Draft { body, att: Vec::new(), evidence: Vec::new(), time: now, actor };
    Ledger::new(repo).append(&tip.run, &draft, check)
}
