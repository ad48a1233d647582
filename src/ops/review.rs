//! Review: everything a person needs to judge one result, read from objects only. Nothing in a run's tree or
//! store is looked at, so nothing that an agent wrote there can run or mislead.

use super::{judge, risk, show::Shown};
use crate::git::{Call, Place, Repo};
use crate::ledger::{
    Ledger,
    change::{self, Change},
};
use crate::model::{
    Body, CageReport, Check, Digest, Event, Failure, How, Kind, Oid, Phase, PolicyInForce, RunResult,
    RunState,
};
use crate::policy::{Decision, RoleRule};
use crate::text::quote_path;
use std::collections::BTreeSet;

/// A result with its context.
#[derive(Debug)]
pub struct Review {
    /// The run.
    pub shown: Shown,
    /// What is judged.
    pub result: RunResult,
    /// What differs, path by path.
    pub changes: Vec<Change>,
    /// Lines added and removed, where files are text.
    pub lines: (u64, u64),
    /// Paths that deserve a second look, quoted, and why.
    pub risks: Vec<(String, String)>,
    /// Paths that the role may not change, one sentence each.
    pub breaches: Vec<String>,
    /// What the policy says about it; `None` when the policy of the run is not in this repository.
    pub decision: Option<Decision>,
    /// What the policy allowed the role.
    pub rule: Option<RoleRule>,
    /// The policy that was in force.
    pub policy: PolicyInForce,
    /// Paths outside the tree that the run could write, quoted.
    pub write: Vec<String>,
    /// Engines in order, with what held them.
    pub engines: Vec<(String, CageReport)>,
    /// Where the run was meant to land, full name.
    pub target: Option<String>,
    /// How far the target moved since the run was cut.
    pub drift: Drift,
    /// What the policy's checks said of this very result, and the end of what they printed; untrusted bytes.
    pub checks: Vec<(Check, Vec<u8>)>,
    /// The approval of this very result, if somebody gave one.
    pub approval: Option<Given>,
}

/// An approval as the ledger has it.
#[derive(Debug, Clone)]
pub struct Given {
    /// Who says so: name and address. Untrusted.
    pub by: String,
    /// In which way.
    pub how: How,
    /// When, in seconds since the epoch.
    pub time: i64,
}

/// The approval of the latest result of a run, if there is one.
pub fn approval(shown: &Shown) -> Option<Given> {
    let latest = shown.head.result.as_ref()?;
    shown.chain.known().rev().find_map(|(_, e)| match &e.body {
        Body::Approve(a) if a.snapshot == latest.snapshot && e.seq > latest.seq => {
            Some(Given { by: format!("{} <{}>", e.actor.name, e.actor.email), how: a.how, time: e.time })
        }
        _ => None,
    })
}

/// Refuses (exit status 1) when nobody is to decide on a run now.
pub fn waits(review: &Review) -> Result<(), Failure> {
    let (name, state) = (&review.shown.head.name, review.shown.state);
    match state {
        RunState::Proposed | RunState::Approved | RunState::Kept => Ok(()),
        _ => Err(Failure::new(
            Kind::No,
            format!("run '{name}' does not wait for a decision: it is {}", state.as_str()),
        )
        .hint(format!("only look: git agent review {name} --diff"))),
    }
}

/// What happened to the target since the base.
#[derive(Debug, Default)]
pub struct Drift {
    /// Commits on the target that the base lacks.
    pub commits: u64,
    /// Touched paths that these commits touch, too; quoted.
    pub same_paths: Vec<String>,
}

/// Chooses the run to review: the one named, else the only one that waits for a person.
pub fn choose(ledger: &Ledger<'_>, word: Option<&str>) -> Result<String, Failure> {
    if let Some(word) = word {
        return Ok(word.to_owned());
    }
    let waits = |p: Phase| matches!(p, Phase::Proposed | Phase::Approved | Phase::Kept);
    let tips = ledger.tips()?.tips;
    let names: Vec<_> =
        tips.iter().filter_map(|t| t.head()).filter(|h| waits(h.phase)).map(|h| h.name.to_string()).collect();
    match &names[..] {
        [one] => Ok(one.clone()),
        [] => {
            Err(Failure::new(Kind::No, "no run waits for a review")
                .hint("see all of them: git agent list --all"))
        }
        many => Err(Failure::usage(format!("{} runs wait for a review: {}", many.len(), many.join(", ")))
            .hint(format!("name one: git agent review {}", many[many.len() - 1]))),
    }
}

/// Reads the latest result of a run and its context.
pub fn read(repo: &Repo, shown: Shown) -> Result<Review, Failure> {
    let name = shown.head.name.clone();
    super::standing::nothing_to_land(&shown.head)?;
    if shown.state == RunState::Running {
        return Err(Failure::fatal(format!("run '{name}' is at work; what it has so far cannot be judged"))
            .hint(format!("wait for it, or end it: git agent stop {name}")));
    }
    let mut result = None;
    let mut spawn = None;
    let mut engines = Vec::new();
    let mut checks = Vec::new();
    for (commit, event) in shown.chain.known() {
        match &event.body {
            Body::Spawn(s) => spawn = Some(s.clone()),
            Body::Engine(e) => engines.push((e.engine.clone(), e.cage.clone())),
            Body::Result(r) => {
                result = Some(r.clone());
                checks = checked(repo, commit, event, r)?;
            }
            _ => {}
        }
    }
    let spawn = spawn.ok_or_else(|| Failure::fatal(format!("run '{name}' has no spawn event")))?;
    let result: RunResult = result.ok_or_else(|| {
        Failure::fatal(format!("run '{name}' has no result yet ({})", shown.state.as_str()))
            .hint(format!("take its snapshot: git agent finish {name}"))
    })?;
    let changes = change::entries(repo, &result.base, &result.snapshot)?;
    let found = change::digest(repo, &changes)?;
    if found != result.change {
        return Err(Failure::fatal(format!(
            "run '{name}': the snapshot is not what the ledger recorded ({found})"
        )));
    }
    let policy = policy_of(repo, &spawn.policy)?;
    let rule = policy.as_ref().and_then(|p| p.role(&spawn.role).ok());
    let decision = match &policy {
        Some(p) => Some(judge::decision(repo, p, &shown, &spawn, &result, &changes, super::now())?),
        None => None,
    };
    let named = policy.as_ref().map(crate::policy::Policy::risk).unwrap_or_default();
    let breaches = match &decision {
        Some(Decision::Refuse(refusals)) => refusals.iter().map(ToString::to_string).collect(),
        Some(_) => Vec::new(),
        None => {
            vec!["the policy of this run is not in this repository; its role's paths are not checked".into()]
        }
    };
    Ok(Review {
        lines: lines(repo, &result)?,
        risks: changes
            .iter()
            .filter_map(|c| {
                let by_policy =
                    || named.matched(&c.path).map(|p| format!("risk on line {} of the policy", p.line));
                let why = by_policy().or_else(|| risk::of(c).map(str::to_owned))?;
                Some((quote_path(&c.path).into_owned(), why))
            })
            .collect(),
        drift: drift(repo, spawn.target.as_deref(), &result, &changes)?,
        target: spawn.target,
        approval: approval(&shown),
        checks,
        policy: spawn.policy,
        write: spawn.write,
        breaches,
        decision,
        rule,
        engines,
        changes,
        result,
        shown,
    })
}

fn checked(
    repo: &Repo,
    commit: &Oid,
    event: &Event,
    result: &RunResult,
) -> Result<Vec<(Check, Vec<u8>)>, Failure> {
    let ledger = Ledger::new(repo);
    let tail = |check: &Check| ledger.attachment(commit, event, &Check::attachment(&check.name));
    result.checks.iter().map(|c| Ok((c.clone(), tail(c)?.unwrap_or_default()))).collect()
}

/// The policy a run was cut under, from the commit that the ledger names.
fn policy_of(repo: &Repo, in_force: &PolicyInForce) -> Result<Option<crate::policy::Policy>, Failure> {
    use crate::policy::{PATH, Policy};
    if in_force.source == "built-in" {
        let own = Policy::built_in();
        return Ok((own.sha256() == in_force.sha256).then(|| own.clone()));
    }
    let Ok(commit) = in_force.source.parse::<Oid>() else { return Ok(None) };
    let objects = repo.objects()?;
    if objects.header(&commit)?.is_none() {
        return Ok(None);
    }
    let Some(entry) = objects.entry_at(&objects.commit(&commit)?.tree, PATH)? else { return Ok(None) };
    let text = objects.expect(&entry.oid, crate::git::ObjectKind::Blob, 1 << 20)?;
    if Digest::of(&text) != in_force.sha256 {
        return Ok(None);
    }
    Ok(Some(Policy::parse(&text, PATH)?))
}

/// A diff call on objects alone: no work tree, no index, an empty folder, so that no attribute of anybody's
/// tree applies and no driver can be named (git-agent(1), REVIEW).
fn diff_tree(repo: &Repo) -> Result<(tempfile::TempDir, Call), Failure> {
    let empty =
        tempfile::tempdir().map_err(|e| Failure::fatal("no temporary folder could be made").because(e))?;
    let place = Place {
        git_dir: Some(repo.git_dir().to_owned()),
        index: Some(empty.path().join("none")),
        ..Place::default()
    };
    let call = Call::with_settings("diff-tree", &place, &["core.bare=false", "diff.noprefix=false"])
        .current_dir(empty.path())
        .args(["-r", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"])
        .args(["--no-color", "--src-prefix=a/", "--dst-prefix=b/"]);
    Ok((empty, call))
}

/// The diff for eyes: renames found, binaries named. Untrusted bytes.
pub fn diff(repo: &Repo, result: &RunResult) -> Result<Vec<u8>, Failure> {
    let (_empty, call) = diff_tree(repo)?;
    Ok(call.args(["-p", "-M", "--no-commit-id", result.base.as_str(), result.snapshot.as_str()]).output()?)
}

/// The diff for machines: `git apply` of it gives the snapshot byte for byte.
pub fn patch(repo: &Repo, result: &RunResult) -> Result<Vec<u8>, Failure> {
    let (_empty, call) = diff_tree(repo)?;
    Ok(call
        .args([
            "-p",
            "--binary",
            "--full-index",
            "--no-renames",
            result.base.as_str(),
            result.snapshot.as_str(),
        ])
        .output()?)
}

/// `--stat` of the diff. Untrusted bytes.
pub fn stat(repo: &Repo, result: &RunResult) -> Result<Vec<u8>, Failure> {
    let (_empty, call) = diff_tree(repo)?;
    Ok(call
        .args(["--stat=100", "--summary", "-M", result.base.as_str(), result.snapshot.as_str()])
        .output()?)
}

pub(super) fn lines(repo: &Repo, result: &RunResult) -> Result<(u64, u64), Failure> {
    let (_empty, call) = diff_tree(repo)?;
    let bytes = call
        .args(["--numstat", "-z", "--no-renames", result.base.as_str(), result.snapshot.as_str()])
        .output()?;
    let mut sum = (0, 0);
    for entry in bytes.split(|b| *b == 0) {
        let mut fields = entry.splitn(3, |b| *b == b'\t');
        let mut number =
            || fields.next().and_then(|f| std::str::from_utf8(f).ok()?.parse::<u64>().ok()).unwrap_or(0);
        sum = (sum.0 + number(), sum.1 + number());
    }
    Ok(sum)
}

fn drift(
    repo: &Repo,
    target: Option<&str>,
    result: &RunResult,
    changes: &[Change],
) -> Result<Drift, Failure> {
    let tip = match target {
        Some(target) => repo.ref_tip(target)?,
        None => None,
    };
    let Some(tip) = tip.filter(|t| *t != result.base) else { return Ok(Drift::default()) };
    let range = [tip.as_str(), "--not", result.base.as_str()];
    let commits = repo.call("rev-list").arg("--count").args(range).text()?.parse().unwrap_or(0);
    if commits == 0 {
        return Ok(Drift::default());
    }
    let moved: BTreeSet<Vec<u8>> =
        change::entries(repo, &result.base, &tip)?.into_iter().map(|c| c.path).collect();
    let same = changes.iter().filter(|c| moved.contains(&c.path)).map(|c| quote_path(&c.path).into_owned());
    Ok(Drift { commits, same_paths: same.collect() })
}
