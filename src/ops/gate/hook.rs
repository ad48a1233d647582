//! pre-receive and post-receive. pre-receive only judges: git takes refs from nobody while objects are in
//! quarantine. What it accepted of agents' work it writes down first, so that post-receive, or whoever comes
//! after a crash, can compare it with what really became of the refs: a push that is not atomic may move a
//! branch and lose its run, and a policy or a revoke may have come in between.
//!
//! Order of writes: journal, then git moves refs, then healing (by compare-and-swap), then the journal goes.

use super::install::Installed;
use super::{Command, Judge, Law, Pusher, Refusal, Runs, Trouble, refs};
use crate::git::{Repo, Transaction};
use crate::ledger::{Ledger, RUNS};
use crate::model::{Failure, Oid, RunId};
use crate::os::{files, hook};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a verdict may take; beyond it the push is refused.
pub const DEADLINE: Duration = Duration::from_secs(4);
/// Said when it took longer.
pub const LATE: &str = "git-agent gate: refused, because judging took longer than 4 s\n\
                        hint: push fewer refs at once, or ask the server's administrator\n";
const JOURNAL: &str = "pending";

/// What pre-receive accepted.
#[derive(Debug, Serialize, Deserialize)]
struct Pending {
    v: u64,
    /// Branches of agents: name, old value, new value.
    branches: Vec<(String, Option<Oid>, Oid)>,
    /// Refs of runs: name, new value.
    runs: Vec<(String, Oid)>,
}

/// `<old> <new> <ref>`, a line a ref.
pub fn commands(input: &[u8]) -> Result<Vec<Command>, Failure> {
    let bad = || Failure::fatal("git did not say which refs are pushed");
    let mut all = Vec::new();
    for line in input.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let line = std::str::from_utf8(line).map_err(|_| {
            Failure::fatal("a ref's name is not UTF-8").hint("rename it; the gate takes no other names")
        })?;
        let mut words = line.splitn(3, ' ');
        let (Some(old), Some(new), Some(name)) = (words.next(), words.next(), words.next()) else {
            return Err(bad());
        };
        let oid = |text: &str| text.parse::<Oid>().map_err(|_| bad());
        all.push(Command { old: oid(old)?, new: oid(new)?, name: name.to_owned() });
    }
    Ok(all)
}

/// The git dir that git runs the hook for.
fn git_dir() -> PathBuf {
    std::env::var_os("GIT_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// Judges a push; nothing or every refusal. `now`: seconds since the epoch.
pub fn pre_receive(input: &[u8], now: i64) -> Result<Vec<Refusal>, Failure> {
    let commands = commands(input)?;
    let pusher = Pusher {
        names: Pusher::VARIABLES
            .iter()
            .filter_map(|v| std::env::var(v).ok())
            .filter(|v| !v.is_empty())
            .collect(),
    };
    let quarantine = std::env::var_os("GIT_QUARANTINE_PATH").map(PathBuf::from);
    let repo = Repo::receiving(&git_dir(), quarantine.as_deref())?;
    let installed = Installed::read(repo.common_dir())?;
    // What an earlier push left undone, before the refs are read. The objects are in the repository, so this
    // is no write into a quarantine.
    if has_pending(repo.common_dir()) {
        heal(&Repo::at_git_dir(&git_dir())?, &installed, None, now)?;
    }
    let refusals = refs::judge(&repo, &commands, &pusher, installed.root(repo.common_dir())?, now)?;
    if refusals.is_empty() {
        write_journal(&repo, &commands)?;
    }
    Ok(refusals)
}

fn folder(common: &Path) -> PathBuf {
    common.join("agent/gate").join(JOURNAL)
}

fn has_pending(common: &Path) -> bool {
    std::fs::read_dir(folder(common)).is_ok_and(|mut entries| entries.next().is_some())
}

fn write_journal(repo: &Repo, commands: &[Command]) -> Result<(), Failure> {
    let tip = repo.head_branch()?.map(|b| repo.ref_tip(&b)).transpose()?.flatten();
    let law = Law::at(repo, tip.as_ref())?;
    let is_agent = |name: &str| {
        name.strip_prefix("refs/heads/").is_some_and(|s| law.policy().is_agent_branch(s.as_bytes()))
    };
    let some = |oid: &Oid| (!oid.is_null()).then(|| oid.clone());
    let branches: Vec<_> = commands
        .iter()
        .filter(|c| is_agent(&c.name) && !c.new.is_null())
        .map(|c| (c.name.clone(), some(&c.old), c.new.clone()))
        .collect();
    if branches.is_empty() {
        return Ok(());
    }
    let runs = commands.iter().filter(|c| c.name.starts_with(RUNS) && !c.new.is_null());
    let pending = Pending { v: 1, branches, runs: runs.map(|c| (c.name.clone(), c.new.clone())).collect() };
    let cannot = |e: std::io::Error| Failure::fatal("the gate's journal cannot be written").because(e);
    let (pid, start) = hook::caller().map_err(cannot)?;
    let dir = folder(repo.common_dir());
    files::create_dirs(&dir, 0o755).map_err(cannot)?;
    let bytes = serde_json::to_vec(&pending).map_err(|e| Failure::fatal(e.to_string()))?;
    files::write_atomic(&dir.join(format!("{pid}-{start}")), &bytes, 0o644).map_err(cannot)
}

/// Compares what was accepted with what became of it. What was done about it, a sentence each.
pub fn post_receive(now: i64) -> Result<Vec<String>, Failure> {
    let repo = Repo::at_git_dir(&git_dir())?;
    if !has_pending(repo.common_dir()) {
        return Ok(Vec::new());
    }
    let installed = Installed::read(repo.common_dir())?;
    heal(
        &repo,
        &installed,
        Some(hook::caller().map_err(|e| Failure::fatal("who called is not known").because(e))?),
        now,
    )
}

/// Takes up every journal whose push is over, and that of `ours`.
pub(super) fn heal(
    repo: &Repo,
    installed: &Installed,
    ours: Option<(i32, u64)>,
    now: i64,
) -> Result<Vec<String>, Failure> {
    let cannot = |e: std::io::Error| Failure::fatal("the gate's journal cannot be read").because(e);
    let mut done = Vec::new();
    let entries = match std::fs::read_dir(folder(repo.common_dir())) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(done),
        Err(e) => return Err(cannot(e)),
    };
    for entry in entries {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let whose = name.split_once('-').and_then(|(p, s)| Some((p.parse().ok()?, s.parse().ok()?)));
        // A file that is just being written has another name.
        let Some((pid, start)) = whose else { continue };
        if ours != Some((pid, start)) && hook::is_alive(pid, start) {
            continue;
        }
        let Some(bytes) = files::read_bounded(&path, 8 << 20).map_err(cannot)? else { continue };
        let pending: Pending = serde_json::from_slice(&bytes)
            .map_err(|e| Failure::fatal(format!("'{}' cannot be read", path.display())).because(e))?;
        for (name, old, new) in &pending.branches {
            done.extend(settle(repo, installed, &pending, name, old.as_ref(), new, now)?);
        }
        files::remove_file(&path).map_err(cannot)?;
    }
    Ok(done)
}

/// A branch that moved keeps its place only with its run, by the law as it is now.
fn settle(
    repo: &Repo,
    installed: &Installed,
    pending: &Pending,
    name: &str,
    old: Option<&Oid>,
    new: &Oid,
    now: i64,
) -> Result<Option<String>, Failure> {
    if repo.ref_tip(name)?.as_ref() != Some(new) {
        return Ok(None);
    }
    let ledger = Ledger::new(repo);
    let mut done = None;
    for (run_ref, tip) in &pending.runs {
        let Ok(run) = run_ref[RUNS.len()..].parse::<RunId>() else { continue };
        let there = repo.ref_tip(run_ref)?;
        if there.as_ref() == Some(tip) {
            continue;
        }
        // Its objects are here; only the ref lost. It moves forward or not at all.
        let Ok(chain) = ledger.tip_at(&run, tip).and_then(|t| ledger.chain(&t)) else { continue };
        if chain.head.as_ref().is_none_or(|h| h.branch != name) {
            continue;
        }
        let transaction = match &there {
            Some(there) if !chain.events.iter().any(|(oid, _)| oid == there) => continue,
            Some(there) => Transaction::new().update(run_ref, tip, there),
            None => Transaction::new().create(run_ref, tip),
        };
        if transaction.commit(repo, "agent: gate heals").is_ok() {
            done = Some(format!("{run_ref} was left behind by its branch and was brought up"));
        }
    }
    let all = repo.server_refs()?;
    let protected = repo.head_branch()?;
    let tip = all.iter().find(|r| Some(&r.name) == protected.as_ref()).map(|r| r.oid.clone());
    let law = Law::at(repo, tip.as_ref())?;
    let root = installed.root(repo.common_dir())?;
    let judge = Judge { repo, law, root, pusher_is_agent: false, runs: Runs::new(repo), protected, now };
    let is_ordinary = |n: &str| match n.strip_prefix("refs/heads/") {
        Some(short) => !judge.law.policy().is_agent_branch(short.as_bytes()),
        None => n.starts_with("refs/tags/"),
    };
    let known: Vec<&Oid> = all.iter().filter(|r| is_ordinary(&r.name)).map(|r| &r.oid).collect();
    let why = match judge.agent_branch(name, new, &known) {
        Ok(()) => return Ok(done),
        Err(Trouble::Refused(refusal)) => refusal.why,
        Err(Trouble::Failed(e)) => return Err(e),
    };
    let back = match old {
        Some(old) => Transaction::new().update(name, old, new),
        None => Transaction::new().delete(name, new),
    };
    match back.commit(repo, "agent: gate takes back") {
        Ok(()) => Ok(Some(format!("{name} was taken back: {why}"))),
        // Somebody moved it meanwhile, through the gate.
        Err(crate::git::RefError::Moved { .. }) => Ok(done),
        Err(e) => Err(e.into()),
    }
}
