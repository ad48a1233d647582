//! A commit of exactly what landed: the run's paths and no other, with the person's hooks, identity and signing, as
//! `git commit` does it. What else is staged stays staged.
//!
//! The order of writes: the run's paths in the index, the commit from an index of its own, the note. Killed between
//! the first two, the paths are staged and nothing else happened.

use super::ground;
use super::record::Staged;
use super::refusal::{self, Refused};
use super::{Landed, Plan};
use crate::git::{Answer, Call, ObjectKind, Place, Repo, commit_bytes};
use crate::ledger::change::{self, Change};
use crate::ledger::{self, notes};
use crate::model::{Body, Digest, Failure, Kind, Oid, RunName};
use crate::ops::show::Shown;
use crate::os::files;
use crate::text::quote_path;
use std::collections::{BTreeMap, BTreeSet};

/// Longest subject that is made of a task.
const SUBJECT: usize = 72;

/// A commit that will follow the landing.
#[derive(Debug)]
pub struct Wanted {
    name: RunName,
    head: Oid,
    changes: Vec<Change>,
    message: String,
    trailers: Vec<(&'static str, String)>,
    approval: Digest,
}

/// A commit of what landed.
#[derive(Debug)]
pub struct Committed {
    /// The commit; `None` when HEAD had all of it already.
    pub commit: Option<Oid>,
    /// Paths in which it is not what was approved, because a hook changed them.
    pub changed: Vec<Vec<u8>>,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
}

/// Checks before anything lands that the commit will hold what was approved and nothing of the person's.
pub fn plan(repo: &Repo, shown: &Shown, plan: &Plan, message: Option<&str>) -> Result<Wanted, Failure> {
    let proposal = plan.warrant().proposal();
    let landing = &plan.landing;
    if landing.merged.is_some() {
        return Err(Failure::usage("--commit goes with a change that lands as it was approved, not merged")
            .hint("land it, look at it, then: git commit -p"));
    }
    let changes: Vec<Change> = landing.touched.iter().map(|t| t.change.clone()).collect();
    let of: BTreeMap<&[u8], &Change> = changes.iter().map(|c| (c.path.as_slice(), c)).collect();
    let mut refused = Vec::new();
    if landing.head != proposal.base {
        for there in change::entries(repo, &proposal.base, &landing.head)? {
            if let Some(c) = of.get(there.path.as_slice())
                && (there.new_mode, &there.new) != (c.new_mode, &c.new)
            {
                refused.push(Refused::new(&there.path, "is not in HEAD as it was in the run's base".into()));
            }
        }
    }
    let answer = repo
        .call("diff-index")
        .args(["--cached", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none"])
        .args(["--end-of-options", landing.head.as_str(), "--"])
        .output()?;
    let staged = change::parse(&answer).ok_or_else(|| Failure::fatal("git diff-index answered nonsense"))?;
    for there in staged {
        if let Some(c) = of.get(there.path.as_slice())
            && (there.new_mode, &there.new) != (c.new_mode, &c.new)
        {
            refused.push(Refused::new(&there.path, "is staged with other content".into()));
        }
    }
    if !refused.is_empty() {
        refused.sort();
        refused.dedup_by(|a, b| a.path == b.path);
        let mut text = format!(
            "what run '{}' changed cannot be committed by itself; nothing was changed",
            proposal.name
        );
        refusal::list(&mut text, &refused);
        return Err(Failure::new(Kind::Conflict, text).hint(format!(
            "commit or unstage that first, or land without --commit: git agent apply {}",
            proposal.name
        )));
    }
    let mut trailers = vec![
        ("Agent-Run", proposal.run.to_string()),
        ("Agent-Approval", plan.warrant().approval_digest().to_string()),
    ];
    let mut engines = BTreeSet::new();
    for (_, event) in shown.chain.known() {
        if let Body::Engine(e) = &event.body {
            let program = e.command.first().map(|c| c.rsplit('/').next().unwrap_or(c));
            let name = if e.engine == "command" { program.unwrap_or("command") } else { &e.engine };
            if engines.insert(name.to_owned()) {
                trailers.push(("Assisted-by", one_line(name)));
            }
        }
    }
    let message = match message {
        Some(message) => message.trim_end().to_owned(),
        None => subject(shown, &proposal.name),
    };
    if message.trim().is_empty() {
        return Err(Failure::usage("the message is empty").hint("say what the commit is: -m TEXT"));
    }
    Ok(Wanted {
        name: proposal.name.clone(),
        head: landing.head.clone(),
        changes,
        message,
        trailers,
        approval: *plan.warrant().approval_digest(),
    })
}

/// The first line of the task, or the run's name.
fn subject(shown: &Shown, name: &RunName) -> String {
    let task = shown.task.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    let line = one_line(task.lines().find(|l| !l.trim().is_empty()).unwrap_or_default());
    match line.chars().count() {
        0 => format!("Apply run {name}"),
        n if n <= SUBJECT => line,
        _ => format!("{}...", line.chars().take(SUBJECT - 3).collect::<String>().trim_end()),
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

/// The message with trailers, joined to those that end it already.
fn with_trailers(message: &str, trailers: &[(&str, String)]) -> String {
    let last = message.rsplit("\n\n").next().unwrap_or_default();
    let is_trailer = |line: &str| {
        line.split_once(": ").is_some_and(|(key, _)| {
            !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        })
    };
    let joined = message.contains("\n\n") && last.lines().all(is_trailer);
    let lines: Vec<String> = trailers.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{message}{}{}\n", if joined { "\n" } else { "\n\n" }, lines.join("\n"))
}

/// Commits what landed.
pub fn execute(repo: &Repo, wanted: &Wanted, landed: &Landed) -> Result<Committed, Failure> {
    let not = |what: &str| {
        Failure::new(Kind::No, format!("run '{}' has landed and was not committed: {what}", wanted.name))
            .hint(format!("try again: git agent apply --commit {}", wanted.name))
            .hint(format!("or take it out again: git agent apply --undo {}", wanted.name))
    };
    let top = repo.work_tree().ok_or_else(|| not("there is no working tree"))?;
    if super::head(repo)? != wanted.head {
        return Err(not("HEAD moved meanwhile"));
    }
    let scratch = tempfile::Builder::new()
        .prefix("git-agent-commit-")
        .tempdir()
        .map_err(|e| not("no temporary folder could be made").because(e))?;
    let own = Place { index: Some(scratch.path().join("index")), ..repo.place().clone() };
    let git = |verb: &str, own_index: bool| {
        Call::new(verb, if own_index { &own } else { repo.place() }).current_dir(top)
    };
    // The person's own index, so that flags and stat data stay, as HEAD has the paths, with the run's.
    let real = repo.git_dir().join("index");
    if files::lstat(&real).is_ok_and(|m| m.is_some()) {
        files::copy_keep_mtime(&real, &scratch.path().join("index"))
            .map_err(|e| not("the index could not be copied").because(e))?;
    }
    let args = ["--cached", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none"];
    let staged =
        git("diff-index", true).args(args).args(["--end-of-options", wanted.head.as_str(), "--"]).output()?;
    let staged = change::parse(&staged).ok_or_else(|| not("git diff-index answered nonsense"))?;
    let null = repo.hash().null();
    let as_in_head = staged.iter().map(|c| (c.old_mode, &c.old, c.path.as_slice()));
    let of_run = wanted.changes.iter().map(|c| (c.new_mode, &c.new, c.path.as_slice()));
    let info = |entries: &mut dyn Iterator<Item = (u32, &Oid, &[u8])>| -> Vec<u8> {
        let line = |(mode, oid, path): (u32, &Oid, &[u8])| {
            let oid = if mode == 0 { &null } else { oid };
            [format!("{mode:06o} {oid} 0\t").as_bytes(), path, b"\0"].concat()
        };
        entries.flat_map(line).collect()
    };
    let update = |own_index: bool, input: Vec<u8>| {
        git("update-index", own_index)
            .args(["--add", "--replace", "-z", "--index-info"])
            .input(input)
            .output()
    };
    update(true, info(&mut as_in_head.chain(of_run.clone())))?;
    let tree: Oid = git("write-tree", true).text()?.parse().map_err(Failure::fatal)?;
    if tree == repo.objects()?.commit(&wanted.head)?.tree {
        let note = format!("HEAD holds all of run '{}' already; nothing was committed", wanted.name);
        return Ok(Committed { commit: None, changed: Vec::new(), notes: vec![note] });
    }

    let paths: Vec<&[u8]> = wanted.changes.iter().map(|c| c.path.as_slice()).collect();
    let before = ground::staged(repo, top, &paths)?;
    let restore = || {
        let _ = update(false, entries_of(&before, &null));
        let _ = git("update-index", false).args(["-q", "--refresh"]).run();
    };
    update(false, info(&mut of_run.clone())).map_err(|e| not("its paths could not be staged").because(e))?;
    let message = scratch.path().join("message");
    files::write_new(&message, with_trailers(&wanted.message, &wanted.trailers).as_bytes(), 0o600)
        .map_err(|e| not("the message could not be written").because(e))?;
    let call = Call::as_person("commit", &own).current_dir(top).args(["-q", "--cleanup=whitespace", "-F"]);
    let status = call.arg(&message).visibly();
    let now = super::head(repo)?;
    if now == wanted.head {
        restore();
        return Err(match status {
            Ok(status) => not(&format!(
                "git commit refused it{}",
                status.map_or(String::new(), |s| format!(" (exit {s})"))
            )),
            Err(e) => not("git commit could not be started").because(e),
        });
    }
    let mut done = Committed { commit: Some(now.clone()), changed: Vec::new(), notes: Vec::new() };
    let made = repo.objects()?.commit(&now)?;
    if made.tree != tree || made.parents != [wanted.head.clone()] {
        let theirs = change::entries(repo, &tree_commit(repo, &tree, &wanted.head)?, &now)?;
        done.changed = theirs.iter().map(|c| c.path.clone()).collect();
        // What the hooks made of the paths is what the index has of them, as after git commit.
        let _ = update(false, info(&mut theirs.iter().map(|c| (c.new_mode, &c.new, c.path.as_slice()))));
        if let Some(amended) = without_approval(repo, &own, top, &made.message, &now)? {
            done.commit = Some(amended);
        }
    }
    let _: Result<Answer, _> = git("update-index", false).args(["-q", "--refresh"]).run();
    if let Some(commit) = &done.commit {
        let proposal = &landed.proposal;
        let text = if done.changed.is_empty() {
            notes::text(&proposal.run, &proposal.name, Some(wanted.approval), &proposal.change)
        } else {
            format!("Agent-Run: {} {}\n", proposal.run, proposal.name)
        };
        let who = ledger::actor(repo.config()?);
        if let Err(e) = notes::add(repo, &[(commit.clone(), text)], &who, crate::ops::now()) {
            done.notes.push(format!("no note could be added to the commit: {e}"));
        }
    }
    Ok(done)
}

/// What hooks changed, for a person; exit status 1.
pub fn altered(name: &RunName, done: &Committed) -> Option<Failure> {
    if done.changed.is_empty() {
        return None;
    }
    let commit = done.commit.as_ref().map_or_else(String::new, |c| c.short().to_string());
    let paths: Vec<_> = done.changed.iter().map(|p| quote_path(p).into_owned()).collect();
    Some(
        Failure::new(
            Kind::No,
            format!(
                "commit {commit} is not what was approved of run '{name}': hooks changed {}",
                paths.join(", ")
            ),
        )
        .hint("the commit stays, without the trailer Agent-Approval")
        .hint(format!("see what they did: git diff HEAD^ HEAD; leave it behind: git reset --soft {commit}^")),
    )
}

/// A commit that only stands for its tree, in the object store for git to compare with.
fn tree_commit(repo: &Repo, tree: &Oid, parent: &Oid) -> Result<Oid, Failure> {
    let bytes = commit_bytes(
        tree,
        std::slice::from_ref(parent),
        "git-agent <apply@git-agent.invalid>",
        0,
        "approved",
    );
    Ok(repo.objects()?.write(ObjectKind::Commit, &bytes)?)
}

/// The same commit without the word that it is what was approved. By git itself, so that it is signed again.
fn without_approval(
    repo: &Repo,
    own: &Place,
    top: &std::path::Path,
    message: &[u8],
    commit: &Oid,
) -> Result<Option<Oid>, Failure> {
    let text = String::from_utf8_lossy(message);
    let kept: String = text.split_inclusive('\n').filter(|l| !l.starts_with("Agent-Approval: ")).collect();
    Call::new("read-tree", own).current_dir(top).arg(commit.as_str()).output()?;
    let call = Call::as_person("commit", own).current_dir(top).without_hooks();
    let args = ["--amend", "-q", "--no-verify", "--allow-empty", "--cleanup=verbatim", "-F", "-"];
    let answer = call.args(args).input(kept.into_bytes()).run()?;
    if answer.status != 0 {
        return Ok(None);
    }
    Ok(Some(super::head(repo)?))
}

/// Index entries as `--index-info` wants them, gone where there was none.
fn entries_of(staged: &[Staged], null: &Oid) -> Vec<u8> {
    let mut input = Vec::new();
    for one in staged {
        // `<mode> <object> <stage>`
        let entry = if one.entry.is_empty() { format!("000000 {null} 0") } else { one.entry.clone() };
        input.extend([entry.as_bytes(), b"\t", &one.path, b"\0"].concat());
    }
    input
}

#[cfg(test)]
mod tests {
    use super::with_trailers;

    #[test]
    fn trailers_join_those_that_are_there() {
        let add = [("Agent-Run", "1".to_owned())];
        assert_eq!(with_trailers("subject", &add), "subject\n\nAgent-Run: 1\n");
        assert_eq!(with_trailers("fix: it", &add), "fix: it\n\nAgent-Run: 1\n");
        assert_eq!(with_trailers("s\n\nSigned-off-by: me", &add), "s\n\nSigned-off-by: me\nAgent-Run: 1\n");
        assert_eq!(with_trailers("s\n\nbody: here\nmore", &add), "s\n\nbody: here\nmore\n\nAgent-Run: 1\n");
    }
}
