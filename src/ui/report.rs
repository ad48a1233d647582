//! What people read: one function for each thing a command has to say. Everything that an agent or a
//! repository wrote goes through [`Untrusted`].

use super::{Out, time};
use crate::ledger::{Listing, RunLine};
use crate::model::{
    Body, CageReport, Check, Decoded, Ended, Event, Isolation, Listed, Report, RunResult, RunState,
};
use crate::ops::discard::Discarded;
use crate::ops::engine::EnginePlan;
use crate::ops::finish::Finished;
use crate::ops::prune::Done;
use crate::ops::review::Review;
use crate::ops::show::Shown;
use crate::ops::spawn::{Plan, Ready};
use crate::ops::supervise::Prepared;
use crate::ops::{Open, commands};
use crate::text::Untrusted;
use std::fmt::Write as _;

/// Before a run is cut, when that will take a while and be heard.
pub fn before(plan: &Plan) -> Option<String> {
    let Plan::Cut(cut) = plan else { return None };
    let setup = cut.rule.setup.as_ref()?;
    let all: Vec<_> = setup.run.iter().map(|w| commands::shown(w)).collect();
    Some(format!("setting up {}: {}", cut.name, all.join("; ")))
}

/// After a spawn has cut or found its run.
pub fn cut(ready: &Ready<'_>) -> String {
    let folder = &ready.run.folder;
    let verb = if ready.again { "using" } else { "cut" };
    let tree = ready.run.layout.tree();
    let tree = Untrusted::new(tree.as_os_str().as_encoded_bytes());
    match folder.isolation {
        Isolation::Worktree => {}
        Isolation::Reader => {
            return format!("{verb} run {}: a reader of your tree as it is\n  tree: {tree}", folder.name);
        }
        Isolation::Off => {
            return format!(
                "{verb} run {}: a writer in your own tree, recorded as it was in {}\n  tree: {tree}",
                folder.name,
                folder.base.short()
            );
        }
    }
    format!(
        "{verb} run {} at {} on {}\n  tree: {}",
        folder.name,
        folder.base.short(),
        Untrusted::new(folder.branch.trim_start_matches("refs/heads/")),
        tree
    )
}

/// Just before the engine starts. Below the full tier this one line says what does not hold.
pub fn launch(engine: &EnginePlan, prepared: &Prepared) -> String {
    let cage = &prepared.report;
    if uncaged(cage).is_some() {
        return format!("starting {}", Untrusted::new(&engine.name));
    }
    let mut text = format!(
        "starting {} in the cage: tier {}, network {}",
        Untrusted::new(&engine.name),
        cage.tier,
        cage.network,
    );
    if let Some(below) = &prepared.below {
        let _ = write!(text, "\n{below} (git-agent(1), TIERS)");
    }
    text
}

/// What is said where the person switched the cage off.
pub fn uncaged(cage: &CageReport) -> Option<&'static str> {
    without_cage(&cage.tier)
}

/// The same for a tier alone.
pub fn without_cage(tier: &str) -> Option<&'static str> {
    match tier {
        "none" => {
            Some("there is NO CAGE (GIT_AGENT_CAGE=off): the engine can read and write whatever you can")
        }
        "outer" => Some(
            "there is no cage but the container around this (GIT_AGENT_CAGE=outer): inside it the engine can read \
             and write whatever you can",
        ),
        _ => None,
    }
}

/// What an engine in the person's own tree cannot do there.
pub fn confined(isolation: Isolation, cage: &CageReport) -> Option<&'static str> {
    (isolation == Isolation::Off && cage.tier == "landlock").then_some(
        "in the tier landlock an engine can neither add nor replace names at the top level of your tree, nor in a \
         folder above a nested repository; it can write the files that are there and everything below other folders",
    )
}

/// Before a snapshot of the person's own tree that nobody took when the engine ended.
pub fn of_your_own(isolation: Isolation) -> Option<&'static str> {
    (isolation == Isolation::Off).then_some(
        "everything that changed in your tree since the run began is taken for the run's, your own edits too; look \
         at it before you decide: git agent review",
    )
}

/// After a reader's engine ended.
pub fn read(run: &Open<'_>, ended: Ended) -> String {
    format!("{}: {}; a reader leaves nothing to land", run.folder.name, self::ended(ended))
}

/// Where a run works, when it is not a copy.
pub fn isolation(isolation: Isolation) -> Option<&'static str> {
    match isolation {
        Isolation::Worktree => None,
        Isolation::Reader => Some("reader: in your tree, where it may write nothing"),
        Isolation::Off => Some("off: it worked in your own tree"),
    }
}

/// Between two engines of a chain.
pub fn declined(engine: &EnginePlan, next: &EnginePlan) -> String {
    format!("{} declined; {} goes on", Untrusted::new(&engine.name), Untrusted::new(&next.name))
}

/// After a snapshot was taken.
pub fn finished(run: &Open<'_>, finished: &Finished) -> String {
    let (r, name) = (&finished.result, &run.folder.name);
    let mut text = if finished.unchanged {
        format!("{name}: nothing new since the last snapshot, {}", files(r.files))
    } else {
        format!("{name}: {}, proposed as {}", files(r.files), r.snapshot.short())
    };
    for line in r.checks.iter().map(check).chain(peculiar(&r.report)) {
        let _ = write!(text, "\n  {line}");
    }
    text
}

/// One check, in short.
pub fn check(check: &Check) -> String {
    let took = check.ms / 1000;
    let took = if took > 0 { format!(" after {took} s") } else { String::new() };
    match check.ended {
        // Its place in the list says why.
        None => format!("check {}: could not be run", check.name),
        ended => format!("check {} {}{took}", check.name, commands::how(ended)),
    }
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
    if let Some(paths) = &discarded.restored {
        let n = paths.iter().filter(|p| !p.already).count() as u64;
        let kept = discarded
            .snapshot
            .as_ref()
            .map_or_else(String::new, |s| format!("; what it left is still {}", s.short()));
        return format!("discarded run {name}: {} taken back in your tree{kept}", files_word(n));
    }
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
pub fn approved(review: &Review, how: crate::model::How, enough: bool) -> String {
    let name = &review.shown.head.name;
    let hint = if enough { format!("\nhint: land it with: git agent apply {name}") } else { String::new() };
    format!("approved run {name}: {} ({}){hint}", review.result.change, self::how(how))
}

/// After a person took an approval back.
pub fn revoked(review: &Review) -> String {
    let name = &review.shown.head.name;
    format!("revoked what was approved of run {name}\nhint: decide again: git agent review {name}")
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
            remarks(run)
        ));
    }
    for tip in &listing.unknown {
        lines.push(format!("{}  unknown: {}", tip.run, Untrusted::new(&tip.label())));
    }
    lines.join("\n")
}

/// What stands behind a run in the list because nobody should overlook it.
fn remarks(run: &RunLine) -> String {
    let mut text = String::new();
    if run.unattended {
        text.push_str("  approved unattended");
    }
    if run.isolation == Isolation::Off {
        text.push_str("  isolation off");
    }
    if matches!(run.tier.as_deref(), Some("none" | "outer")) {
        text.push_str("  no cage");
    }
    text
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
            if run.branch.is_empty() { "-" } else { &run.branch },
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
    if let Some(isolation) = isolation(head.isolation) {
        field("Isolation", isolation);
    }
    if !head.branch.is_empty() {
        field("Branch", &Untrusted::new(head.branch.trim_start_matches("refs/heads/")).to_string());
    }
    field("Base", head.base.as_str());
    for (_, event) in shown.chain.known() {
        if let Body::Spawn(s) = &event.body {
            if let Some(target) = &s.target {
                field("Target", &Untrusted::new(target.trim_start_matches("refs/heads/")).to_string());
            }
            if s.local_base {
                field("Note", "the base is a commit of uncommitted changes, known to this machine only");
            }
            for path in &s.write {
                field("Writes", &Untrusted::new(path).to_string());
            }
            if let Some(task) = &s.task {
                field("Task", &format!("{} bytes, not in the ledger ({})", task.size, task.sha256));
            }
            if !s.include.is_empty() {
                field("Copied", &format!("{} from the work tree", files_word(s.include.count)));
            }
            if let Some(port) = s.port {
                field("Port", &port.to_string());
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
    for line in r.checks.iter().map(check).chain(peculiar(&r.report)) {
        let _ = writeln!(text, "{:9} {line}", "");
    }
    text
}

/// What held an engine, in short.
pub fn cage(cage: &CageReport) -> String {
    if uncaged(cage).is_some() {
        return format!("NO CAGE, tier {}", cage.tier);
    }
    let held = cage.canaries.iter().filter(|c| c.held).count();
    format!("tier {}, network {}, canaries {held}/{}", cage.tier, cage.network, cage.canaries.len())
}

/// How an engine ended.
pub fn ended(ended: Ended) -> String {
    match ended {
        Ended::Exit(status) => format!("engine exited with {status}"),
        Ended::Signal(signal) => format!("engine was killed by signal {signal}"),
        Ended::Timeout(seconds) => format!("engine was ended after {seconds} s"),
        Ended::Full => "engine was ended: it had nearly filled the disk".into(),
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
        Body::Spawn(s) if !s.isolation.has_copy() => {
            let what = isolation(s.isolation).unwrap_or_default();
            let mut lines = vec![format!("{} at {}, {what}", s.name, s.base.short())];
            lines.extend(s.write.iter().map(|p| format!("may also write {}", Untrusted::new(p))));
            lines
        }
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
        Body::Undo(u) => vec![format!("{} taken out again, on {}", u.snapshot.short(), u.head.short())],
        Body::Abort(a) => vec![Untrusted::new(&a.reason).to_string()],
        Body::Prune(p) => vec![Untrusted::new(&p.reason).to_string()],
        Body::End(e) => vec![ended(e.ended)],
        Body::Revoke(r) => {
            let reason = r.reason.iter().map(|r| Untrusted::new(r).to_string());
            std::iter::once(format!("{} may not land any more", r.snapshot.short())).chain(reason).collect()
        }
        Body::Land(l) => vec![format!(
            "{} is in {} as {}",
            l.snapshot.short(),
            Untrusted::new(l.target.trim_start_matches("refs/heads/")),
            l.commit.short()
        )],
        Body::Join(_) => vec!["two histories of this run became one".into()],
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
