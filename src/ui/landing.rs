//! What a landing has to say, before and after, for people and for programs.

use crate::model::{Oid, RunName};
use crate::ops::land::{Landed, Merged, Operation, PathPlan, Proposal, Recovered, undo};
use crate::text::quote_path;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Paths that are listed after a landing; a dry run lists all.
const LISTED: usize = 50;

/// `git agent apply --dry-run`.
pub fn planned(proposal: &Proposal, paths: &[PathPlan]) -> String {
    let n = count(paths);
    if n == 0 {
        return already(proposal, paths);
    }
    let mut text = format!("would land {} ({}): {}", proposal.name, proposal.snapshot.short(), files(n));
    list(&mut text, paths, usize::MAX);
    text
}

/// After a landing.
pub fn landed(landed: &Landed) -> String {
    let (proposal, paths) = (&landed.proposal, &landed.paths);
    let n = count(paths);
    if n == 0 {
        return already(proposal, paths);
    }
    let mut text = format!("landed {} ({}): {}", proposal.name, proposal.snapshot.short(), files(n));
    list(&mut text, paths, LISTED);
    text
}

/// What a person does next.
pub fn next(landed: &Landed) -> Vec<String> {
    if let Some(commit) = &landed.commit {
        return vec![format!("committed as {0}; see it: git show {0}", commit.short())];
    }
    if count(&landed.paths) == 0 {
        return Vec::new();
    }
    let created = landed.paths.iter().any(|p| p.operation == Operation::Create && !p.already);
    let see = if created { "git diff; new files are untracked: git status" } else { "git diff" };
    vec![
        format!("nothing is staged or committed; see it: {see}"),
        format!("take it out again: git agent apply --undo {}", landed.proposal.name),
        "other runs: git agent list".into(),
    ]
}

/// An undo, planned or done.
pub struct Undone {
    name: RunName,
    snapshot: Oid,
    paths: Vec<PathPlan>,
    dry_run: bool,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
}

impl Undone {
    /// What would happen.
    pub fn planned(plan: &undo::Plan) -> Self {
        let (name, snapshot) = (plan.name.clone(), plan.snapshot.clone());
        Self { name, snapshot, paths: plan.paths(), dry_run: true, notes: Vec::new() }
    }

    /// What happened.
    pub fn done(done: undo::Undone) -> Self {
        let undo::Undone { name, snapshot, paths, notes, .. } = done;
        Self { name, snapshot, paths, dry_run: false, notes }
    }

    /// For people.
    pub fn text(&self) -> String {
        let (name, short) = (&self.name, self.snapshot.short());
        let n = files(self.paths.len());
        let mut text = match self.dry_run {
            true => format!("would undo {name} ({short}): {n}"),
            false => format!("undid {name} ({short}): {n} as before it landed"),
        };
        list(&mut text, &self.paths, if self.dry_run { usize::MAX } else { LISTED });
        text
    }

    /// `{"v":1,"name","snapshot","dry_run","undone","paths":[...],"notes":[...]}`.
    pub fn json(&self) -> Value {
        json!({
            "v": 1,
            "name": self.name.as_str(),
            "snapshot": self.snapshot.as_str(),
            "dry_run": self.dry_run,
            "undone": !self.dry_run,
            "paths": paths_json(&self.paths),
            "notes": self.notes,
        })
    }
}

/// `git agent recover`.
pub fn recovered(recovered: &Recovered) -> String {
    match &recovered.sentences()[..] {
        [] => "nothing was interrupted here".into(),
        said => said.join("\n"),
    }
}

/// `{"v":1,"recovered":null}` or `{"v":1,"recovered":{"name","undo","completed","notes"}}`.
pub fn recovered_json(recovered: &Recovered) -> Value {
    let what = match recovered {
        Recovered::Done { name, undo, completed, notes } => {
            json!({ "name": name.as_str(), "undo": undo, "completed": completed, "notes": notes })
        }
        _ => Value::Null,
    };
    json!({ "v": 1, "recovered": what })
}

fn paths_json(paths: &[PathPlan]) -> Vec<Value> {
    let one = |p: &PathPlan| json!({ "path": quote_path(&p.path), "operation": p.operation.as_str(), "already": p.already });
    paths.iter().map(one).collect()
}

/// `--json`: `{"v":1,"run","name","snapshot","change","dry_run","already","paths":[...],"merged",
/// "notes":[...]}`, after a landing with `"commit"`.
pub fn json(
    proposal: &Proposal,
    paths: &[PathPlan],
    notes: &[String],
    dry_run: bool,
    merged: Option<&Merged>,
) -> Value {
    json!({
        "v": 1,
        "run": proposal.run.as_str(),
        "name": proposal.name.as_str(),
        "snapshot": proposal.snapshot.as_str(),
        "change": proposal.change.to_string(),
        "dry_run": dry_run,
        "already": count(paths) == 0,
        "paths": paths_json(paths),
        "merged": merged.map(|m| json!({
            "change": m.change.to_string(),
            "paths": m.paths.iter().map(|p| quote_path(p)).collect::<Vec<_>>(),
        })),
        "notes": notes,
    })
}

fn already(proposal: &Proposal, paths: &[PathPlan]) -> String {
    match paths.len() {
        0 => format!("{} changes nothing", proposal.name),
        _ => format!("{} is already applied: every path is as approved", proposal.name),
    }
}

fn count(paths: &[PathPlan]) -> usize {
    paths.iter().filter(|p| !p.already).count()
}

fn files(n: usize) -> String {
    format!("{n} file{}", if n == 1 { "" } else { "s" })
}

fn list(text: &mut String, paths: &[PathPlan], most: usize) {
    let landing = || paths.iter().filter(|p| !p.already);
    for p in landing().take(most) {
        let _ = write!(text, "\n  {}  {}", p.operation.as_str(), quote_path(&p.path));
    }
    if landing().count() > most {
        let _ = write!(text, "\n  and {} more", landing().count() - most);
    }
    let already = paths.len() - landing().count();
    if already > 0 {
        let _ = write!(text, "\n  {} here already", files(already));
    }
}
