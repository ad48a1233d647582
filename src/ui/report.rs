//! What people read: one function for each thing a command has to say. Everything that an agent or a
//! repository wrote goes through [`Untrusted`].

use super::{Out, time};
use crate::ledger::{Listing, RunLine};
use crate::model::{Body, CageReport, Decoded, Ended, Event, Listed, Report, RunResult, RunState};
use crate::ops::Open;
use crate::ops::discard::Discarded;
use crate::ops::engine::EnginePlan;
use crate::ops::finish::Finished;
use crate::ops::prune::Done;
use crate::ops::review::Review;
use crate::ops::show::Shown;
use crate::ops::spawn::Ready;
use crate::ops::supervise::Prepared;
use crate::text::Untrusted;
use std::fmt::Write as _;

/// After a spawn has cut or found its run.
pub fn cut(ready: &Ready<'_>) -> String {
    let folder = &ready.run.folder;
    let verb = if ready.again { "using" } else { "cut" };
    format!(
        "{verb} run {} at {} on {}\n  tree: {}",
        folder.name,
        folder.base.short(),
        Untrusted::new(folder.branch.trim_start_matches("refs/heads/")),
        Untrusted::new(ready.run.layout.tree().as_os_str().as_encoded_bytes())
    )
}

/// Just before the engine starts. Below the full tier this one line says what does not hold.
pub fn launch(engine: &EnginePlan, prepared: &Prepared) -> String {
    let cage = &prepared.report;
    format!(
        "starting {} in the cage: tier {}, network {}{}",
        Untrusted::new(&engine.name),
        cage.tier,
        cage.network,
        if cage.tier == "landlock" {
            " (metadata and sockets are held less; see git-agent(1), TIERS)"
        } else {
            ""
        }
    )
}

/// After a snapshot was taken.
pub fn finished(run: &Open<'_>, finished: &Finished) -> String {
    let (r, name) = (&finished.result, &run.folder.name);
    let mut text = if finished.unchanged {
        format!("{name}: nothing new since the last snapshot, {}", files(r.files))
    } else {
        format!("{name}: {}, proposed as {}", files(r.files), r.snapshot.short())
    };
    for line in peculiar(&r.report) {
        let _ = write!(text, "\n  {line}");
    }
    text
}

/// What prune did, or would do; empty when nothing.
pub fn pruned(done: &Done, dry_run: bool) -> String {
    let would = if dry_run { "would " } else { "" };
    let verb = |word: &str| format!("{would}{word}{}", if dry_run { "" } else { "d" });
    let mut lines = Vec::new();
    for item in &done.items {
        let what = if item.seen.is_some() { verb("prune") } else { verb("close") };
        let mut line = format!("{what} {}: {}", item.name, item.why.sentence());
        if let Some((branch, _)) = &item.branch {
            let _ = write!(line, "; branch {}", Untrusted::new(branch.trim_start_matches("refs/heads/")));
        }
        if !item.processes.is_empty() {
            let _ = write!(line, "; {} of its processes ended", item.processes.len());
        }
        lines.push(line);
    }
    for name in &done.half_made {
        lines.push(format!("{} half-made run {name}", if dry_run { "would undo" } else { "undid" }));
    }
    if !done.trash.is_empty() {
        lines.push(format!("{} what an earlier prune left: {}", verb("delete"), done.trash.len()));
    }
    lines.join("\n")
}

/// After a discard.
pub fn discarded(discarded: &Discarded) -> String {
    let name = &discarded.name;
    match &discarded.snapshot {
        Some(snapshot) => format!("discarded run {name}; what it left is still {}", snapshot.short()),
        None => format!("discarded run {name}; it left nothing"),
    }
}

/// A number of changed files.
pub fn files(n: u64) -> String {
    match n {
        0 => "no changes".into(),
        n => format!("{} changed", files_word(n)),
    }
}

/// A number of files.
pub fn files_word(n: u64) -> String {
    if n == 1 { "1 file".into() } else { format!("{n} files") }
}

/// What a tree cannot hold, one line a kind.
pub fn peculiar(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |what: &str, list: &Listed| {
        if !list.is_empty() {
            let first: Vec<_> = list.first.iter().take(3).map(|p| Untrusted::new(p).to_string()).collect();
            let more = list.count as usize > first.len();
            lines.push(format!(
                "{what}: {}{}",
                first.join(", "),
                if more { format!(", ... ({})", list.count) } else { String::new() }
            ));
        }
    };
    add("stripped paths written again", &report.stripped);
    add("not readable, not included", &report.unreadable);
    add("special files, not included", &report.special);
    add("folders with a repository of their own, included as plain files", &report.nested);
    add("links that lead out of the tree", &report.links);
    add("submodules", &report.submodules);
    add("empty folders, not included", &report.empty);
    add("ignored files, not included", &report.ignored);
    add("the agent's own commits", &report.commits);
    lines.extend(report.repaired.iter().chain(&report.notes).map(|n| Untrusted::new(n).to_string()));
    lines
}

/// After an approval.
pub fn approved(review: &Review, how: crate::model::How) -> String {
    let name = &review.shown.head.name;
    format!(
        "approved run {name}: {} ({})\nhint: land it with: git agent apply {name}",
        review.result.change,
        self::how(how)
    )
}

/// After a person left a run for later.
pub fn kept(review: &Review) -> String {
    let name = &review.shown.head.name;
    format!("left run {name} as it is\nhint: a worktree of its result: git agent checkout {name}")
}

/// The table of `git agent list`; empty without runs.
pub fn listing(out: &Out, listing: &Listing, all: bool, now: i64) -> String {
    let runs: Vec<&RunLine> = listing.runs.iter().filter(|r| all || r.state != RunState::Pruned).collect();
    let width =
        |f: &dyn Fn(&RunLine) -> usize, least: usize| runs.iter().map(|r| f(r)).max().unwrap_or(0).max(least);
    let engine =
        |r: &RunLine| r.engine.as_ref().map_or_else(|| "-".to_owned(), |e| Untrusted::new(e).to_string());
    let id = width(&|r| r.short.len(), 2);
    let name = width(&|r| r.name.as_str().len(), 4);
    let role = width(&|r| r.role.as_str().len(), 4);
    let eng = width(&|r| engine(r).chars().count(), 6);
    let mut lines = Vec::new();
    if !runs.is_empty() {
        let head = format!(
            "{:id$}  {:name$}  {:11}  {:role$}  {:eng$}  {:>5}  AGE",
            "ID", "NAME", "STATE", "ROLE", "ENGINE", "FILES"
        );
        lines.push(out.strong(&head));
    }
    for run in runs {
        lines.push(format!(
            "{:id$}  {:name$}  {}  {:role$}  {:eng$}  {:>5}  {}{}",
            run.short,
            run.name.as_str(),
            out.state(run.state, 11),
            run.role.as_str(),
            engine(run),
            run.files.map_or_else(|| "-".into(), |f| f.to_string()),
            time::ago(run.time, now),
            if run.unattended { "  approved unattended" } else { "" }
        ));
    }
    for tip in &listing.unknown {
        lines.push(format!("{}  unknown: {}", tip.run, Untrusted::new(&tip.label())));
    }
    lines.join("\n")
}

/// One line a run for scripts.
pub fn porcelain(listing: &Listing, all: bool, end: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    for run in listing.runs.iter().filter(|r| all || r.state != RunState::Pruned) {
        let change = run.change.map_or_else(|| "-".into(), |c| c.to_string());
        let engine = run.engine.as_ref().map_or_else(|| "-".into(), |e| Untrusted::new(e).to_string());
        let fields = [
            run.id.as_str(),
            run.name.as_str(),
            run.state.as_str(),
            run.role.as_str(),
            &engine,
            &run.branch,
            &change,
        ];
        bytes.extend_from_slice(fields.join("\t").as_bytes());
        bytes.push(end);
    }
    bytes
}

/// `git agent show`.
pub fn shown(out: &Out, shown: &Shown) -> String {
    let head = &shown.head;
    let mut text = format!("{} {}\n", out.strong("run"), out.strong(shown.tip.run.as_str()));
    let mut field = |key: &str, value: &str| {
        let _ = writeln!(text, "{:9} {value}", format!("{key}:"));
    };
    field("Name", head.name.as_str());
    field("Role", head.role.as_str());
    field("State", shown.state.as_str());
    field("Branch", &Untrusted::new(head.branch.trim_start_matches("refs/heads/")).to_string());
    field("Base", head.base.as_str());
    for (_, event) in shown.chain.known() {
        if let Body::Spawn(s) = &event.body {
            if let Some(target) = &s.target {
                field("Target", &Untrusted::new(target.trim_start_matches("refs/heads/")).to_string());
            }
            if s.local_base {
                field("Note", "the base is a commit of uncommitted changes, known to this machine only");
            }
            let source = if s.policy.source.len() >= 40 { &s.policy.source[..10] } else { &s.policy.source };
            field("Policy", &format!("{} ({})", Untrusted::new(source), s.policy.sha256));
        }
    }
    if let Some(layout) = &shown.layout {
        field("Tree", &Untrusted::new(&layout.tree().to_string_lossy().into_owned()).to_string());
        if layout.log().exists() {
            field("Output", &Untrusted::new(&layout.log().to_string_lossy().into_owned()).to_string());
        }
    }
    for (_, event) in shown.chain.known() {
        if let Body::Engine(e) = &event.body {
            field("Engine", &format!("{} ({})", Untrusted::new(&e.engine), cage(&e.cage)));
        }
    }
    let mut last = shown.chain.known().filter_map(|(_, e)| match &e.body {
        Body::Result(r) => Some(r),
        _ => None,
    });
    if let Some(result) = last.next_back() {
        text.push_str(&result_text(result));
    }
    if let Some(given) = crate::ops::review::approval(shown) {
        let by = Untrusted::new(&given.by).to_string();
        let _ = writeln!(text, "{:9} {}, by {by}, {}", "Approved:", how(given.how), time::local(given.time));
    }
    if let Some((v, kind)) = shown.chain.unknown() {
        let _ = writeln!(
            text,
            "\nA newer version wrote an event of kind '{}' (format {v}).",
            Untrusted::new(kind)
        );
    }
    if let Some(task) = &shown.task {
        text.push('\n');
        for line in Untrusted::new(task).multiline().lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    text.trim_end().to_owned()
}

fn result_text(r: &RunResult) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:9} {}, {}", "Result:", files(r.files), ended(r.ended));
    let _ = writeln!(text, "{:9} {}", "Snapshot:", r.snapshot);
    let _ = writeln!(text, "{:9} {}", "Change:", r.change);
    for line in peculiar(&r.report) {
        let _ = writeln!(text, "{:9} {line}", "");
    }
    text
}

/// What held an engine, in short.
pub fn cage(cage: &CageReport) -> String {
    let held = cage.canaries.iter().filter(|c| c.held).count();
    format!("tier {}, network {}, canaries {held}/{}", cage.tier, cage.network, cage.canaries.len())
}

/// How an engine ended.
pub fn ended(ended: Ended) -> String {
    match ended {
        Ended::Exit(status) => format!("engine exited with {status}"),
        Ended::Signal(signal) => format!("engine was killed by signal {signal}"),
        Ended::Timeout(seconds) => format!("engine was ended after {seconds} s"),
        Ended::Stopped => "engine was stopped".into(),
        Ended::Unseen => "nobody saw the engine end".into(),
    }
}

/// `git agent log`.
pub fn log(out: &Out, shown: &Shown) -> String {
    let mut text = String::new();
    for (oid, decoded) in &shown.chain.events {
        match decoded {
            Decoded::Known(event) => {
                let title = format!("event {} {}", event.seq, event.body.kind());
                let _ = writeln!(text, "{} {}", out.strong(&title), oid.short());
                let who = format!("{} <{}>", event.actor.name, event.actor.email);
                let _ = writeln!(text, "Author: {}", Untrusted::new(&who));
                let _ = writeln!(text, "Date:   {}", time::local(event.time));
                for line in body(event) {
                    let _ = writeln!(text, "    {line}");
                }
            }
            Decoded::Unknown { v, kind, .. } => {
                let _ = writeln!(
                    text,
                    "{} (format {v}) {}",
                    out.strong(&format!("unknown {}", Untrusted::new(kind))),
                    oid.short()
                );
            }
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}

fn body(event: &Event) -> Vec<String> {
    match &event.body {
        Body::Spawn(s) => vec![format!(
            "{} cut at {} on {}",
            s.name,
            s.base.short(),
            Untrusted::new(s.branch.trim_start_matches("refs/heads/"))
        )],
        Body::Engine(e) => {
            let words: Vec<_> = e.command.iter().map(|w| crate::text::shell_quote(w)).collect();
            vec![
                format!("{}: {}", Untrusted::new(&e.engine), Untrusted::new(&words.join(" "))),
                cage(&e.cage),
            ]
        }
        Body::Result(r) => result_text(r).lines().map(str::to_owned).collect(),
        Body::Approve(a) => {
            vec![format!("{} ({})", a.snapshot.short(), how(a.how)), format!("change {}", a.change)]
        }
        Body::Reject(r) => r.reason.iter().map(|r| Untrusted::new(r).to_string()).collect(),
        Body::Keep(k) => vec![format!("{} left for later", k.snapshot.short())],
        Body::Apply(a) => {
            vec![format!("{} landed on {}, {}", a.snapshot.short(), a.head.short(), files(a.files))]
        }
        Body::Abort(a) => vec![Untrusted::new(&a.reason).to_string()],
        Body::Prune(p) => vec![Untrusted::new(&p.reason).to_string()],
    }
}

/// In which way an approval was given.
pub fn how(how: crate::model::How) -> &'static str {
    match how {
        crate::model::How::Terminal => "at the terminal",
        crate::model::How::Signed => "signed",
        crate::model::How::Unattended => "unattended: no person at a terminal",
    }
}
