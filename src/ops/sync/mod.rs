//! Runs between repositories. What a remote has is kept apart (`refs/agent-remotes/<remote>/runs/*`), never mirrored
//! onto our own refs: pruning and forced updates of a fetch would lose events that nobody else has. Our own move
//! forward, or are joined; nothing is rebased.

mod landing;
pub mod push;

use crate::git::{Repo, Transaction};
use crate::ledger::notes::{self, NOTES};
use crate::ledger::{self, Joined, Ledger, REMOTES, RUNS};
use crate::model::{Failure, Oid, RunId, RunName};
use crate::text::Untrusted;

pub use landing::Land;

/// What came from a remote.
#[derive(Debug)]
pub struct Fetched {
    /// The remote.
    pub remote: String,
    /// How many runs it has.
    pub runs: usize,
    /// Runs of ours that have news now.
    pub moved: Vec<(RunName, Joined)>,
    /// Runs whose change is in the remote's branch now.
    pub landed: Vec<Land>,
    /// What could not be taken in, a sentence each.
    pub notes: Vec<String>,
}

/// The remote that is meant: the one named, the one of the branch that is checked out, the only one, `origin`.
pub fn remote(repo: &Repo, given: Option<&str>) -> Result<String, Failure> {
    let all = repo.remotes()?;
    if let Some(given) = given {
        return match all.iter().any(|r| r == given) {
            true => Ok(given.to_owned()),
            false => Err(Failure::fatal(format!("there is no remote '{}'", Untrusted::new(given)))
                .hint("git remote -v")),
        };
    }
    let config = repo.config()?;
    let of_branch = repo.head_branch()?.and_then(|b| {
        config.get(&format!("branch.{}.remote", b.strip_prefix("refs/heads/")?)).map(str::to_owned)
    });
    let named = of_branch.filter(|r| all.contains(r));
    let origin = || all.iter().find(|r| *r == "origin").cloned();
    let only = || if all.len() == 1 { all.first().cloned() } else { None };
    named.or_else(only).or_else(origin).ok_or_else(|| {
        Failure::usage("no remote is named, and none is the obvious one").hint("git remote -v")
    })
}

fn place(remote: &str) -> String {
    format!("{REMOTES}{remote}/runs/")
}

/// Fetches every run of a remote and brings those up that are ours, too.
pub fn fetch(repo: &Repo, remote: &str, now: i64) -> Result<Fetched, Failure> {
    let specs = [
        format!("+{RUNS}*:{}*", place(remote)),
        format!("^{}*", ledger::ARCHIVE),
        format!("+{NOTES}*:{REMOTES}{remote}/notes*"),
    ];
    bring(repo, remote, &specs)?;
    let mut fetched = Fetched {
        remote: remote.to_owned(),
        runs: 0,
        moved: Vec::new(),
        landed: Vec::new(),
        notes: Vec::new(),
    };
    for found in repo.refs(&[&place(remote)])? {
        let Ok(run) = found.name[place(remote).len()..].parse::<RunId>() else { continue };
        fetched.runs += 1;
        match take_in(repo, &run, &found.oid) {
            Ok(Some((_, Joined::Ahead)) | None) => {}
            Ok(Some(moved)) => fetched.moved.push(moved),
            Err(e) => fetched.notes.push(format!("run {run} of {remote} was not taken in: {e}")),
        }
    }
    let who = ledger::actor(repo.config()?);
    if let Some(theirs) = repo.ref_tip(&format!("{REMOTES}{remote}/notes"))?
        && let Err(e) = notes::take_in(repo, &theirs, &who, now)
    {
        fetched.notes.push(format!("the notes of {remote} were not taken in: {e}"));
    }
    fetched.landed = landing::record(repo, remote, now, &mut fetched.notes)?;
    Ok(fetched)
}

fn bring(repo: &Repo, remote: &str, specs: &[String]) -> Result<(), Failure> {
    match repo.fetch_refs(remote, specs) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::fatal(format!("git could not fetch from {remote}"))),
        Err(e) => Err(Failure::from(e).hint(format!("git fetch {remote} says what is wrong"))),
    }
}

/// Brings our own history of a run up to another; `None` when the run is not ours.
fn take_in(repo: &Repo, run: &RunId, theirs: &Oid) -> Result<Option<(RunName, Joined)>, Failure> {
    let Some(own) = repo.ref_tip(&Ledger::ref_name(run))? else { return Ok(None) };
    let ledger = Ledger::new(repo);
    let joined = if own == *theirs { Joined::Ahead } else { ledger.take_in(run, theirs)? };
    let tip = ledger.tip(run)?.ok_or_else(|| Failure::fatal(format!("run {run} vanished")))?;
    let name = tip.understood()?.head.name.clone();
    Ok(Some((name, joined)))
}

/// Remembers what the remote has now, as a fetch would.
fn remember(repo: &Repo, remote: &str, run: &RunId, commit: &Oid) -> Result<(), Failure> {
    let name = format!("{}{run}", place(remote));
    let transaction = match repo.ref_tip(&name)? {
        Some(old) if old == *commit => return Ok(()),
        Some(old) => Transaction::new().update(&name, commit, &old),
        None => Transaction::new().create(&name, commit),
    };
    Ok(transaction.commit(repo, "agent: push")?)
}

/// Runs of ours that a remote knows and that have news for it.
pub fn shared(repo: &Repo, remote: &str) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    for found in repo.refs(&[&place(remote)])? {
        let Ok(run) = found.name[place(remote).len()..].parse::<RunId>() else { continue };
        if repo.ref_tip(&Ledger::ref_name(&run))?.is_some_and(|own| own != found.oid) {
            words.push(run.to_string());
        }
    }
    Ok(words)
}
