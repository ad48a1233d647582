//! What a landing has to say, before and after, for people and for programs.

use crate::ops::land::{Landed, Operation, PathPlan, Proposal};
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
    if count(&landed.paths) == 0 {
        return Vec::new();
    }
    let created = landed.paths.iter().any(|p| p.operation == Operation::Create && !p.already);
    let see = if created { "git diff; new files are untracked: git status" } else { "git diff" };
    vec![format!("nothing is staged or committed; see it: {see}"), "other runs: git agent list".into()]
}

/// `--json`: `{"v":1,"run","name","snapshot","change","dry_run","already","paths":[...],"notes":[...]}`.
pub fn json(proposal: &Proposal, paths: &[PathPlan], notes: &[String], dry_run: bool) -> Value {
    let list: Vec<Value> = paths
        .iter()
        .map(|p| {
            json!({ "path": quote_path(&p.path), "operation": p.operation.as_str(), "already": p.already })
        })
        .collect();
    json!({
        "v": 1,
        "run": proposal.run.as_str(),
        "name": proposal.name.as_str(),
        "snapshot": proposal.snapshot.as_str(),
        "change": proposal.change.to_string(),
        "dry_run": dry_run,
        "already": count(paths) == 0,
        "paths": list,
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
