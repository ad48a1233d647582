//! What the gate and `git agent verify` say. A client shows it behind `remote:`, so lines are short.

use crate::ops::gate::Refusal;
use crate::ops::gate::install::Status;
use crate::ops::gate::verify::Found;
use crate::text::Untrusted;
use serde_json::{Value, json};

/// Refusals listed in full.
const LISTED: usize = 20;

/// Every refusal: ref, rule, reason, remedy.
pub fn refused(refusals: &[Refusal]) -> String {
    let mut lines = Vec::new();
    for r in refusals.iter().take(LISTED) {
        lines.push(format!("git-agent gate: refused {} (rule {})", Untrusted::new(&r.name), r.rule));
        lines.extend(wrapped(&Untrusted::new(&r.why).to_string(), "  "));
        if !r.remedy.is_empty() {
            lines.extend(wrapped(&format!("hint: {}", Untrusted::new(&r.remedy)), "  "));
        }
    }
    if refusals.len() > LISTED {
        lines.push(format!("git-agent gate: and {} more refs", refusals.len() - LISTED));
    }
    lines.join("\n")
}

/// Words in lines of at most 72 characters behind an indent; one that is longer stays whole, so that a
/// command in it can be pasted.
fn wrapped(text: &str, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 72 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{indent}{word}")),
        }
    }
    lines
}

/// How a gate is.
pub fn status(status: &Status) -> String {
    let mut lines = Vec::new();
    let protected = status.protected.as_deref().unwrap_or("none");
    lines.push(format!(
        "hooks: {}",
        if status.ours.is_empty() { "none".into() } else { status.ours.join(", ") }
    ));
    if !status.chained.is_empty() {
        lines.push(format!("called after them: {}", status.chained.join(", ")));
    }
    lines.push(format!("protected branch: {}", Untrusted::new(protected)));
    lines.push(match status.signers {
        Some(n) => format!("signers: {n}"),
        None => "signers: none; agents' work is refused".into(),
    });
    lines.push(format!("root signers: {}", if status.root { "set" } else { "none" }));
    lines.extend(status.wrong.iter().map(|w| format!("wrong: {}", Untrusted::new(w))));
    lines.join("\n")
}

/// The same for programs.
pub fn json(status: &Status) -> Value {
    json!({
        "v": 1, "hooks": status.ours, "chained": status.chained, "root": status.root,
        "signers": status.signers, "protected": status.protected, "wrong": status.wrong,
    })
}

/// What verify found to be in order.
pub fn verified(found: &Found) -> String {
    let commits = if found.commits == 1 { "1 commit".into() } else { format!("{} commits", found.commits) };
    format!("{commits} may land on {}: {}", Untrusted::new(&found.target), found.tip)
}

/// The verdict for programs.
pub fn verified_json(found: &Found) -> Value {
    let refusal = |r: &Refusal| json!({ "ref": r.name, "rule": r.rule, "why": r.why, "remedy": r.remedy, "lacks": r.lacks });
    json!({
        "v": 1, "target": found.target, "commit": found.tip.as_str(),
        "policy": found.law.as_ref().map(crate::model::Oid::as_str), "commits": found.commits,
        "ok": found.refusals.is_empty(), "refusals": found.refusals.iter().map(refusal).collect::<Vec<_>>(),
    })
}
