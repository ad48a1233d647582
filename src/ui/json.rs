//! The machine-readable form of every answer, versioned by a top-level `v`. Built from the same values as
//! the text form; the schema is in `git-agent(1)`, section JSON.

use super::time::rfc3339;
use crate::ledger::{Listing, RunLine};
use crate::model::{Check, Ended, Event, RunState};
use crate::ops::Open;
use crate::ops::discard::Discarded;
use crate::ops::finish::Finished;
use crate::ops::prune::Done;
use crate::ops::review::Review;
use crate::ops::show::Shown;
use crate::ops::spawn::Ready;
use serde_json::{Map, Value, json};

/// Answer of `list --json`.
pub fn listing(listing: &Listing, all: bool) -> Value {
    let runs: Vec<Value> =
        listing.runs.iter().filter(|r| all || r.state != RunState::Pruned).map(line).collect();
    let unknown: Vec<Value> =
        listing.unknown.iter().map(|t| json!({ "run": t.run.as_str(), "state": "unknown" })).collect();
    let broken: Vec<Value> =
        listing.broken.iter().map(|b| json!({ "ref": b.name, "why": b.why.to_string() })).collect();
    let orphans: Vec<Value> =
        listing.orphans.iter().map(|o| json!({ "path": o.path.to_string_lossy(), "live": o.live })).collect();
    json!({ "v": 1, "runs": runs, "unknown": unknown, "broken": broken, "orphans": orphans })
}

/// A run without a copy has no branch.
fn branch(name: &str) -> Option<&str> {
    Some(name).filter(|n| !n.is_empty())
}

fn line(run: &RunLine) -> Value {
    json!({
        "run": run.id.as_str(),
        "name": run.name.as_str(),
        "role": run.role.as_str(),
        "state": run.state.as_str(),
        "unattended": run.unattended,
        "live": run.live,
        "engine": run.engine,
        "tier": run.tier,
        "base": run.base.as_str(),
        "isolation": run.isolation.as_str(),
        "branch": branch(&run.branch),
        "files": run.files,
        "change": run.change.map(|c| c.to_string()),
        "time": rfc3339(run.time),
        "path": run.path.as_ref().map(|p| p.to_string_lossy()),
    })
}

/// Answer of `show --json`.
pub fn shown(shown: &Shown) -> Value {
    let events: Vec<Value> = shown.chain.known().map(|(_, e)| event(e)).collect();
    let mut value = json!({
        "v": 1,
        "run": shown.tip.run.as_str(),
        "name": shown.head.name.as_str(),
        "role": shown.head.role.as_str(),
        "state": shown.state.as_str(),
        "isolation": shown.head.isolation.as_str(),
        "branch": branch(&shown.head.branch),
        "base": shown.head.base.as_str(),
        "engine": shown.head.engine,
        "tier": shown.head.tier,
        "path": shown.layout.as_ref().map(|l| l.tree().to_string_lossy().into_owned()),
        "task": shown.task.as_ref().map(|t| String::from_utf8_lossy(t).into_owned()),
        "events": events,
    });
    if let Some((v, kind)) = shown.chain.unknown() {
        value["unknown"] = json!({ "v": v, "kind": kind });
    }
    if let Some(latest) = &shown.head.result {
        value["result"] = json!({
            "snapshot": latest.snapshot.as_str(),
            "change": latest.change.to_string(),
            "files": latest.files,
        });
    }
    value
}

/// Answer of `review --json`. `digest` is the change's, and no other key has that name.
pub fn review(review: &Review) -> Value {
    let (shown, result) = (&review.shown, &review.result);
    let paths: Vec<Value> = review
        .changes
        .iter()
        .map(|c| {
            json!({
                "path": crate::text::quote_path(&c.path),
                "old_mode": format!("{:06o}", c.old_mode),
                "new_mode": format!("{:06o}", c.new_mode),
            })
        })
        .collect();
    let engines: Vec<Value> =
        review.engines.iter().map(|(name, cage)| json!({ "engine": name, "cage": cage })).collect();
    json!({
        "v": 1,
        "run": shown.tip.run.as_str(),
        "name": shown.head.name.as_str(),
        "role": shown.head.role.as_str(),
        "state": shown.state.as_str(),
        "task": shown.task.as_ref().map(|t| String::from_utf8_lossy(t).into_owned()),
        "digest": result.change.to_string(),
        "base": result.base.as_str(),
        "snapshot": result.snapshot.as_str(),
        "target": review.target,
        "approval": review.approval.as_ref().map(|a| json!({ "how": a.how, "by": a.by, "time": rfc3339(a.time) })),
        "isolation": shown.head.isolation.as_str(),
        "write": review.write,
        "drift": { "commits": review.drift.commits, "same_paths": review.drift.same_paths },
        "engines": engines,
        "ended": ended(result.ended),
        "seconds": result.seconds,
        "policy": { "source": review.policy.source, "sha256": review.policy.sha256.to_string() },
        "files": result.files,
        "added": review.lines.0,
        "removed": review.lines.1,
        "paths": paths,
        "checks": review.checks.iter().map(|(c, tail)| checked(c, tail)).collect::<Vec<_>>(),
        "risks": review.risks.iter().map(|(p, why)| json!({ "path": p, "why": why })).collect::<Vec<_>>(),
        "outside": review.breaches,
        "ruling": super::policy::decision_json(review.decision.as_ref()),
        "allowed": review.rule.as_ref().map(super::policy::allows),
        "report": result.report,
    })
}

fn checked(check: &Check, tail: &[u8]) -> Value {
    json!({
        "name": check.name,
        "command": check.command,
        "passed": check.passed(),
        "ended": check.ended.map(ended),
        "ms": check.ms,
        "tail": String::from_utf8_lossy(tail),
    })
}

/// Answer of `log --json`.
pub fn log(shown: &Shown) -> Value {
    let events: Vec<Value> = shown
        .chain
        .events
        .iter()
        .map(|(oid, decoded)| match decoded {
            crate::model::Decoded::Known(e) => {
                let mut value = event(e);
                value["commit"] = json!(oid.as_str());
                value
            }
            crate::model::Decoded::Unknown { v, kind, .. } => {
                json!({ "commit": oid.as_str(), "unknown": true, "version": v, "kind": kind })
            }
        })
        .collect();
    json!({ "v": 1, "run": shown.tip.run.as_str(), "name": shown.head.name.as_str(), "events": events })
}

/// An event without the repeated head.
fn event(event: &Event) -> Value {
    let mut value = serde_json::to_value(event).unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        map.remove("head");
        map.remove("v");
        map.insert("time".into(), json!(rfc3339(event.time)));
    }
    value
}

/// Answer of `spawn --json`.
pub fn spawned(ready: &Ready<'_>, finished: Option<&Finished>) -> Value {
    let run = &ready.run;
    let mut value = json!({
        "v": 1,
        "run": run.folder.run.as_str(),
        "name": run.folder.name.as_str(),
        "isolation": run.isolation().as_str(),
        "branch": branch(&run.folder.branch),
        "base": run.folder.base.as_str(),
        "path": run.layout.tree().to_string_lossy(),
        "again": ready.again,
        "notes": ready.notes,
    });
    if let (Some(finished), Some(map)) = (finished, value.as_object_mut()) {
        map.extend(result(finished));
    }
    value
}

/// Answer of `spawn --json` and `finish --json` for a reader that ended.
pub fn read(run: &Open<'_>, how: Ended) -> Value {
    json!({
        "v": 1,
        "run": run.folder.run.as_str(),
        "name": run.folder.name.as_str(),
        "isolation": run.isolation().as_str(),
        "branch": null,
        "base": run.folder.base.as_str(),
        "path": run.layout.tree().to_string_lossy(),
        "state": "finished",
        "ended": ended(how),
    })
}

/// Answer of `finish --json`.
pub fn finished(run: &Open<'_>, finished: &Finished) -> Value {
    let mut value = json!({ "v": 1, "run": run.folder.run.as_str(), "name": run.folder.name.as_str() });
    if let Some(map) = value.as_object_mut() {
        map.extend(result(finished));
    }
    value
}

fn result(finished: &Finished) -> Map<String, Value> {
    let r = &finished.result;
    let value = json!({
        "state": "proposed",
        "snapshot": r.snapshot.as_str(),
        "change": r.change.to_string(),
        "files": r.files,
        "unchanged": finished.unchanged,
        "ended": ended(r.ended),
        "seconds": r.seconds,
        "report": r.report,
        "declined": r.declined,
        "checks": r.checks.iter().map(|c| checked(c, b"")).collect::<Vec<_>>(),
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Answer of `prune --json`.
pub fn pruned(done: &Done, dry_run: bool) -> Value {
    let path = |p: &std::path::Path| p.to_string_lossy().into_owned();
    let items: Vec<Value> = done
        .items
        .iter()
        .map(|i| {
            json!({
                "run": i.run.as_str(),
                "name": i.name.as_str(),
                "why": i.why.as_str(),
                "reason": i.why.sentence(),
                "path": i.seen.as_ref().map(|s| path(&s.path)),
                "branch": i.branch.as_ref().map(|(name, _)| name),
                "processes": i.processes.iter().map(|p| p.pid).collect::<Vec<_>>(),
            })
        })
        .collect();
    let kept: Vec<Value> = done
        .kept
        .iter()
        .map(|k| json!({ "name": k.name, "path": k.path.as_deref().map(path), "why": k.why, "refused": k.refused }))
        .collect();
    let names: Vec<&str> = done.half_made.iter().map(crate::model::RunName::as_str).collect();
    let trash: Vec<_> = done.trash.iter().map(|n| n.to_string_lossy()).collect();
    json!({ "v": 1, "dry_run": dry_run, "pruned": items, "kept": kept, "half_made": names, "trash": trash })
}

/// Answer of `discard --json`.
pub fn discarded(discarded: &Discarded) -> Value {
    json!({
        "v": 1,
        "name": discarded.name.as_str(),
        "state": "rejected",
        "snapshot": discarded.snapshot.as_ref().map(|s| s.as_str()),
        "restored": discarded.restored.as_ref().map(|paths| {
            paths.iter().filter(|p| !p.already).map(|p| crate::text::quote_path(&p.path)).collect::<Vec<_>>()
        }),
        "tree_gone": discarded.tree.as_ref().is_none_or(|t| t.gone),
    })
}

fn ended(ended: Ended) -> Value {
    match ended {
        Ended::Exit(status) => json!({ "exit": status }),
        Ended::Signal(signal) => json!({ "signal": signal }),
        Ended::Timeout(seconds) => json!({ "timeout": seconds }),
        Ended::Full => json!("full"),
        Ended::Stopped => json!("stopped"),
        Ended::Unseen => json!("unseen"),
    }
}
