//! What push, fetch and sync say.

use crate::ledger::Joined;
use crate::ops::sync::Fetched;
use crate::ops::sync::push::{Item, Plan};
use crate::text::Untrusted;
use serde_json::{Value, json};

/// What is about to leave the machine.
pub fn leaves(plan: &Plan) -> String {
    let mut lines = Vec::new();
    for item in &plan.items {
        let record = if item.record.is_some() {
            format!(
                "its record ({} events{})",
                item.events,
                if item.task { ", the task's text among them" } else { "" }
            )
        } else {
            "nothing of its record, which is there".into()
        };
        lines.push(format!("{} -> {}: {record}", item.name, Untrusted::new(&plan.remote)));
        match &item.branch {
            Some(branch) => {
                let below = match branch.below {
                    0 => String::new(),
                    n => format!(", with {n} commits of yours below it"),
                };
                let short = Untrusted::new(branch.name.trim_start_matches("refs/heads/")).to_string();
                lines.push(format!("  and branch {short} as one commit{below}"));
            }
            None => lines.extend(item.lacking.iter().map(|l| format!("  and no branch: {l}"))),
        }
    }
    lines.join("\n")
}

/// The same for programs.
pub fn push_json(plan: &Plan, notes: &[String], dry_run: bool) -> Value {
    let item = |i: &Item| {
        json!({
            "run": i.run.as_str(), "name": i.name.as_str(), "events": i.events, "task": i.task,
            "record": i.record.as_ref().map(crate::model::Oid::as_str),
            "branch": i.branch.as_ref().map(|b| json!({
                "ref": b.name, "commit": b.commit.as_str(), "below": b.below,
            })),
            "lacking": i.lacking,
        })
    };
    json!({
        "v": 1, "remote": plan.remote, "dry_run": dry_run, "notes": notes,
        "runs": plan.items.iter().map(item).collect::<Vec<_>>(),
    })
}

fn how(joined: &Joined) -> &'static str {
    match joined {
        Joined::Ahead => "unchanged",
        Joined::Forward => "forward",
        Joined::Both => "joined",
    }
}

/// What came.
pub fn fetched(f: &Fetched) -> String {
    let mut lines = vec![format!("{} has {} runs", Untrusted::new(&f.remote), f.runs)];
    for (name, joined) in &f.moved {
        lines.push(match joined {
            Joined::Both => format!("{name}: both sides had news; they are one history now"),
            _ => format!("{name}: has news"),
        });
    }
    for l in &f.landed {
        let target = Untrusted::new(l.target.trim_start_matches("refs/heads/")).to_string();
        lines.push(format!("{}: landed on {target} as {}", l.name, l.commit.short()));
    }
    lines.join("\n")
}

/// The same for programs.
pub fn fetched_json(f: &Fetched) -> Value {
    let moved: Vec<Value> =
        f.moved.iter().map(|(n, j)| json!({ "name": n.as_str(), "how": how(j) })).collect();
    let land = |l: &crate::ops::sync::Land| json!({ "name": l.name.as_str(), "target": l.target, "commit": l.commit.as_str() });
    json!({
        "v": 1, "remote": f.remote, "runs": f.runs, "moved": moved,
        "landed": f.landed.iter().map(land).collect::<Vec<_>>(), "notes": f.notes,
    })
}
