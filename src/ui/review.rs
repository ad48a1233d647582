//! How a review looks on a terminal: the header, then the diff, escaped and coloured by us.

use super::{Out, report, time};
use crate::model::{How, Isolation};
use crate::ops::review::Review;
use crate::text::Untrusted;
use std::fmt::Write as _;

/// Paths that are listed by name before "and N more".
const LISTED: usize = 8;

/// The header: what was asked, by whom it was done, held by what, and what deserves a second look.
pub fn header(out: &Out, review: &Review) -> String {
    let (shown, result) = (&review.shown, &review.result);
    let head = &shown.head;
    let mut text = format!("{} {}\n", out.strong(&format!("run {}", head.name)), out.state(shown.state, 0));
    let mut field = |key: &str, value: String| {
        let _ = writeln!(text, "{key:9} {value}");
    };
    field("id", shown.tip.run.to_string());
    field("role", head.role.to_string());
    if let Some(task) = &shown.task {
        let task = Untrusted::new(task).multiline();
        let mut lines = task.trim_end().lines();
        field("task", lines.next().unwrap_or_default().to_owned());
        for line in lines.take(LISTED) {
            field("", line.to_owned());
        }
    }
    for (engine, cage) in &review.engines {
        let held = report::cage(cage);
        let held = if report::uncaged(cage).is_some() { out.alarm(&held) } else { held };
        field("engine", format!("{} ({held})", Untrusted::new(engine)));
    }
    if let Some(isolation) = report::isolation(head.isolation) {
        field("isolation", out.alarm(isolation));
    }
    list(&mut field, "writes", review.write.iter().map(|p| out.alarm(&Untrusted::new(p).to_string())));
    field("ended", format!("{}, {} s", report::ended(result.ended), result.seconds));
    let base = format!("{}{}", result.base.short(), on(review));
    field("base", base);
    for line in drift(review) {
        field("", line);
    }
    let source = if review.policy.source == "built-in" { "built-in" } else { &review.policy.source[..10] };
    field("policy", format!("{} ({})", Untrusted::new(source), review.policy.sha256));
    if let Some(rule) = &review.rule {
        field("allowed", super::policy::allows(rule));
    }
    let (added, removed) = review.lines;
    field("change", format!("{}, +{added} -{removed}", report::files(result.files)));
    field("digest", result.change.to_string());
    if let Some(given) = &review.approval {
        let how = report::how(given.how);
        let how = if given.how == How::Unattended { out.alarm(how) } else { how.to_owned() };
        field("approved", format!("{how}, by {}, {}", Untrusted::new(&given.by), time::local(given.time)));
    }
    for (check, tail) in &review.checks {
        let line = report::check(check);
        field("check", if check.passed() { line } else { out.alarm(&line) });
        if !check.passed() {
            let tail = Untrusted::new(tail).multiline();
            let lines: Vec<&str> = tail.trim_end().lines().collect();
            for line in &lines[lines.len().saturating_sub(LISTED)..] {
                field("", format!("  {line}"));
            }
        }
    }
    list(&mut field, "risk", review.risks.iter().map(|(p, why)| format!("{}: {p}", out.alarm(why))));
    list(&mut field, "outside", review.breaches.iter().map(|b| out.alarm(b)));
    for line in report::peculiar(&result.report) {
        field("note", line);
    }
    let when = shown.chain.known().next_back().map(|(_, e)| time::local(e.time));
    field("recorded", when.unwrap_or_default());
    text
}

fn on(review: &Review) -> String {
    match &review.target {
        Some(target) => format!(" on {}", Untrusted::new(target.trim_start_matches("refs/heads/"))),
        None => String::new(),
    }
}

fn drift(review: &Review) -> Vec<String> {
    let drift = &review.drift;
    if drift.commits == 0 {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "moved {} commit{} since, {} touched by both",
        drift.commits,
        if drift.commits == 1 { "" } else { "s" },
        report::files_word(drift.same_paths.len() as u64)
    )];
    lines.extend(drift.same_paths.iter().take(LISTED).cloned());
    lines
}

fn list(field: &mut impl FnMut(&str, String), key: &str, items: impl Iterator<Item = String>) {
    let all: Vec<String> = items.collect();
    for (n, item) in all.iter().take(LISTED).enumerate() {
        field(if n == 0 { key } else { "" }, item.clone());
    }
    if all.len() > LISTED {
        field("", format!("and {} more", all.len() - LISTED));
    }
}

/// A diff for eyes: everything that could steer a terminal is visible, colours are ours.
pub fn diff(out: &Out, diff: &[u8]) -> String {
    let safe = Untrusted::new(diff).multiline();
    let mut text = String::with_capacity(safe.len());
    let mut in_header = true;
    for line in safe.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |b| (b, "\n"));
        if body.starts_with("diff --git ") {
            in_header = true;
        } else if body.starts_with("@@") {
            in_header = false;
        }
        text.push_str(&out.diff_line(body, in_header));
        text.push_str(end);
    }
    text
}

/// What the answers to the prompt mean.
pub fn help(review: &Review) -> &'static str {
    match (review.changes.is_empty(), review.shown.head.isolation) {
        (false, Isolation::Off) => return HELP_OFF,
        (false, _) => return HELP,
        (true, _) => {}
    }
    "\
d - discard: reject it; the run's tree goes
l - leave: decide later; nothing changes
? - this help"
}

const HELP_OFF: &str = "\
a - apply: keep it; it is in your work tree already
d - discard: reject it, and take back in your work tree what it did
l - leave: decide later; nothing changes
v - view the change again
? - this help";

const HELP: &str = "\
a - apply: land exactly this change in your work tree, uncommitted
d - discard: reject it; the run's tree goes, the snapshot stays in the ledger
l - leave: decide later; nothing changes
v - view the change again
? - this help";
