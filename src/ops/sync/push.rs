//! Pushing runs: the record, and when it is approved the branch with it, in one atomic push. What will leave the
//! machine is known before it does. The agent's own commits never go: they may hold what the run took out again.

use super::{bring, place, remember, take_in};
use crate::git::{Lease, Repo};
use crate::ledger::notes::{self, NOTES};
use crate::ledger::{self, Ledger, REMOTES};
use crate::model::{Digest, Failure, Kind, Oid, RunId, RunName};
use crate::ops::authority::{Authority, Case};
use crate::ops::{person, show};

/// How often a remote that moved meanwhile is asked again.
const TRIES: u32 = 3;

/// What the branch's commit shall be.
#[derive(Debug, Clone, Default)]
pub struct Form {
    /// The person's message; else the snapshot itself is pushed.
    pub message: Option<String>,
    /// Signed as git signs commits.
    pub sign: bool,
}

/// One run of a push.
#[derive(Debug, Clone)]
pub struct Item {
    /// The run.
    pub run: RunId,
    /// Its name.
    pub name: RunName,
    /// Its record, when the remote does not have it: the newest event's commit.
    pub record: Option<Oid>,
    /// How many events it has.
    pub events: usize,
    /// Whether the record holds the task's text.
    pub task: bool,
    /// The branch at the remote and what it will be.
    pub branch: Option<Branch>,
    /// Why the branch stays here.
    pub lacking: Vec<String>,
}

/// A branch that goes with its run.
#[derive(Debug, Clone)]
pub struct Branch {
    /// Full name.
    pub name: String,
    /// The commit; of a person's own message, it is made when it is pushed.
    pub commit: Oid,
    /// What the remote has there now.
    pub there: Option<Oid>,
    /// Commits below it that no branch of the remote has, as far as we know.
    pub below: u64,
    change: Digest,
    base: Oid,
    approval: Option<Digest>,
}

/// What will leave the machine.
#[derive(Debug)]
pub struct Plan {
    /// The remote.
    pub remote: String,
    /// Its runs.
    pub items: Vec<Item>,
}

/// What became of it.
#[derive(Debug)]
pub struct Done {
    /// What was to be pushed.
    pub plan: Plan,
    /// What went less well, a sentence each.
    pub notes: Vec<String>,
}

/// Looks at the remote, brings our runs up to it, and decides. Only our own runs' refs may move.
pub fn plan(repo: &Repo, remote: &str, words: &[String], now: i64) -> Result<Plan, Failure> {
    person::require_person("push a run")?;
    let ledger = Ledger::new(repo);
    let mut runs = Vec::new();
    for word in words {
        let tip = ledger.resolve(word)?;
        if !runs.iter().any(|(run, _)| *run == tip.run) {
            runs.push((tip.run.clone(), tip.understood()?.head.branch.clone()));
        }
    }
    let names: Vec<String> =
        runs.iter().flat_map(|(run, branch)| [Ledger::ref_name(run), branch.clone()]).collect();
    let there = repo
        .remote_refs(remote, &names.iter().map(String::as_str).collect::<Vec<_>>())
        .map_err(|e| Failure::from(e).hint(format!("git ls-remote {remote} says what is wrong")))?;
    let at = |name: &str| there.iter().find(|(n, _)| n == name).map(|(_, oid)| oid.clone());
    let specs: Vec<String> = runs
        .iter()
        .filter(|(run, _)| at(&Ledger::ref_name(run)).is_some())
        .map(|(run, _)| format!("+{}:{}{run}", Ledger::ref_name(run), place(remote)))
        .collect();
    if !specs.is_empty() {
        bring(repo, remote, &specs)?;
    }
    let authority = Authority::here(repo)?;
    let mut items = Vec::new();
    for (run, branch) in runs {
        let theirs = repo
            .ref_tip(&format!("{}{run}", place(remote)))?
            .filter(|_| at(&Ledger::ref_name(&run)).is_some());
        if let Some(theirs) = &theirs {
            take_in(repo, &run, theirs)?;
        }
        items.push(item(repo, &authority, remote, &run, &branch, theirs.as_ref(), at(&branch), now)?);
    }
    Ok(Plan { remote: remote.to_owned(), items })
}

#[allow(clippy::too_many_arguments)]
fn item(
    repo: &Repo,
    authority: &Authority,
    remote: &str,
    run: &RunId,
    branch: &str,
    theirs: Option<&Oid>,
    there: Option<Oid>,
    now: i64,
) -> Result<Item, Failure> {
    let shown = show::read(&Ledger::new(repo), run.as_str())?;
    let name = shown.head.name.clone();
    let mut item = Item {
        run: run.clone(),
        name: name.clone(),
        record: Some(shown.tip.commit.clone()).filter(|c| Some(c) != theirs),
        events: shown.chain.events.len(),
        task: shown.task.is_some(),
        branch: None,
        lacking: Vec::new(),
    };
    let Some(case) = Case::of(&shown.chain) else {
        item.lacking.push("it has no result".into());
        return Ok(item);
    };
    if case.spawn.local_base {
        return Err(Failure::new(
            Kind::No,
            format!("run '{name}' was cut from uncommitted work of yours, which would leave with it"),
        )
        .hint(format!("land it here instead: git agent apply {name}")));
    }
    match authority.judge(repo, &case, None, now)? {
        Err(lacking) => item.lacking = lacking.iter().map(ToString::to_string).collect(),
        Ok(approved) => {
            let known = format!("--remotes={remote}");
            let below =
                repo.call("rev-list").args(["--count", case.result.base.as_str(), "--not", &known]).text()?;
            item.branch = Some(Branch {
                name: branch.to_owned(),
                commit: case.result.snapshot.clone(),
                there,
                below: below.parse().unwrap_or(0),
                change: case.result.change,
                base: case.result.base.clone(),
                approval: approved.events.last().and_then(|oid| shown.chain.digest_of(oid)),
            });
        }
    }
    Ok(item)
}

/// Pushes what was planned, all of it or nothing, then the notes. When the remote got news meanwhile, it is
/// planned again: more may be known of the same runs, never other runs.
pub fn execute(repo: &Repo, mut plan: Plan, form: &Form, now: i64) -> Result<Done, Failure> {
    for attempt in 1.. {
        let (mut specs, mut leases) = (Vec::new(), Vec::new());
        for item in &mut plan.items {
            if let Some(record) = &item.record {
                specs.push(format!("{record}:{}", Ledger::ref_name(&item.run)));
            }
            if let Some(branch) = &mut item.branch {
                if form.message.is_some() || form.sign {
                    branch.commit = commit(repo, &item.run, &item.name, branch, form)?;
                }
                if branch.there.as_ref() != Some(&branch.commit) {
                    specs.push(format!("{}:{}", branch.commit, branch.name));
                    leases.push(Lease { name: branch.name.clone(), old: branch.there.clone() });
                }
            }
        }
        if specs.is_empty() {
            break;
        }
        let pushed = repo
            .push_refs(&plan.remote, &specs, &leases)
            .map_err(|e| Failure::from(e).hint(format!("git push {} says what is wrong", plan.remote)))?;
        if pushed.iter().all(|p| p.done) {
            for item in &plan.items {
                if let Some(record) = &item.record {
                    remember(repo, &plan.remote, &item.run, record)?;
                }
            }
            break;
        }
        let words: Vec<String> = plan.items.iter().map(|i| i.run.to_string()).collect();
        let again = self::plan(repo, &plan.remote, &words, now)?;
        let news = again.items.iter().zip(&plan.items).any(|(a, b)| a.record != b.record);
        if !news || attempt >= TRIES {
            let names: Vec<&str> = pushed.iter().filter(|p| !p.done).map(|p| p.name.as_str()).collect();
            return Err(Failure::new(
                Kind::No,
                format!("{} took nothing: {}", plan.remote, names.join(", ")),
            ));
        }
        plan = again;
    }
    let mut notes = Vec::new();
    if let Err(e) = push_notes(repo, &plan.remote, now) {
        notes.push(format!("the notes were not pushed: {e}"));
    }
    Ok(Done { plan, notes })
}

/// A person's commit of exactly what was approved.
fn commit(repo: &Repo, run: &RunId, name: &RunName, branch: &Branch, form: &Form) -> Result<Oid, Failure> {
    let tree = repo.objects()?.commit(&branch.commit)?.tree;
    let message = form.message.clone().unwrap_or_else(|| format!("Land run {name}"));
    let approval = branch.approval.as_ref().map_or_else(String::new, |a| format!("Agent-Approval: {a}\n"));
    let message = format!("{}\n\nAgent-Run: {run}\n{approval}", message.trim_end());
    let mut call = repo.call("commit-tree").args([tree.as_str(), "-p", branch.base.as_str(), "-F", "-"]);
    if form.sign {
        call = call.arg("-S");
    }
    let text = call.input(message.into_bytes()).text()?;
    let commit: Oid = text.parse().map_err(Failure::fatal)?;
    let found = ledger::change::digest(repo, &ledger::change::entries(repo, &branch.base, &commit)?)?;
    if found == branch.change {
        Ok(commit)
    } else {
        Err(Failure::fatal("the commit is not the approved change"))
    }
}

/// Last, and best effort: an index that can be made again.
fn push_notes(repo: &Repo, remote: &str, now: i64) -> Result<(), Failure> {
    let Some(own) = repo.ref_tip(NOTES)? else { return Ok(()) };
    let there = repo.remote_refs(remote, &[NOTES])?.into_iter().next().map(|(_, oid)| oid);
    if there.as_ref() == Some(&own) {
        return Ok(());
    }
    if there.is_some() {
        let local = format!("{REMOTES}{remote}/notes");
        bring(repo, remote, &[format!("+{NOTES}:{local}")])?;
        if let Some(theirs) = repo.ref_tip(&local)? {
            notes::take_in(repo, &theirs, &ledger::actor(repo.config()?), now)?;
        }
    }
    let own = repo.ref_tip(NOTES)?.unwrap_or(own);
    let pushed = repo.push_refs(remote, &[format!("{own}:{NOTES}")], &[])?;
    match pushed.iter().all(|p| p.done) {
        true => Ok(()),
        false => Err(Failure::fatal(format!("{remote} did not take them"))),
    }
}
