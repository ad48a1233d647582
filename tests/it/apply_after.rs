//! A21, A22: what follows a landing. Taking it out again, and committing it.

use crate::apply::{EVERY_PATH, EVERYTHING, approve, approved, dirty, landed, nothing_left, others, project};
use crate::support::*;
use std::os::unix::fs::MetadataExt;

#[test]
fn a21_undo_restores_the_exact_state() {
    both(|sandbox| {
        let repo = if sandbox.is_user() {
            let repo = project(sandbox);
            repo.spawn("--role developer --run r1", EVERYTHING).ok();
            approve(&repo, "r1");
            dirty(&repo);
            repo
        } else {
            approved(sandbox, EVERYTHING)
        };
        let before = repo.fingerprint();
        for round in 0..3 {
            repo.agent("apply r1").ok().says(&["git agent apply --undo r1"]);
            landed(&repo, "r1");
            let planned = repo.agent("apply --undo --dry-run --json").ok().json();
            assert_eq!((&planned["name"], &planned["undone"]), (&"r1".into(), &false.into()));
            assert_eq!(repo.state("r1"), "applied");
            let words = if round == 0 { "apply --undo" } else { "apply --undo r1" };
            let said = repo.agent(words).ok();
            assert!(said.out().starts_with("undid r1 ("), "{}", said.out());
            before.unchanged(&repo.fingerprint());
            assert_eq!(repo.state("r1"), "approved");
            assert_eq!(repo.kinds("r1").last().unwrap(), "undo");
            nothing_left(&repo);
        }
        assert!(!repo.dir.join(".git/agent/apply/undo").read_dir().unwrap().any(|_| true));
        repo.agent("apply --undo")
            .with(1)
            .refuses(&["nothing that landed in this working tree can be undone"]);
    });
}

#[test]
fn a21_what_changed_since_is_named_and_nothing_is_undone() {
    type Change = fn(&Repo);
    let changes: &[(Change, &str)] = &[
        (|r| r.write("a", "edited since\n"), "a: changed since it landed"),
        (|r| set_mode(&r.dir.join("plain"), 0o600), "plain: changed since it landed"),
        (|r| std::fs::remove_file(r.dir.join("new-name")).unwrap(), "new-name: changed since it landed"),
        (|r| r.write("gone", "back again\n"), "gone: changed since it landed"),
        (|r| drop(r.git("add a")), "a: was staged or committed since it landed"),
        (|r| drop(r.git_args(["commit", "-qm", "a", "--", "a"])), "a: was staged or committed"),
    ];
    for (change, words) in changes {
        let sandbox = Sandbox::new();
        let repo = approved(&sandbox, EVERYTHING);
        repo.agent("apply r1").ok();
        change(&repo);
        let before = repo.fingerprint();
        let kinds = repo.kinds("r1");
        repo.agent("apply --undo r1").with(3).refuses(&[words, "nothing was changed"]);
        before.unchanged(&repo.fingerprint());
        assert_eq!(repo.kinds("r1"), kinds);
    }
}

#[test]
fn a21_what_else_happened_in_the_tree_stays() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, EVERYTHING);
    let src = std::fs::metadata(repo.dir.join("src")).unwrap();
    repo.agent("apply r1").ok();
    repo.write("new/mine", "mine\n");
    repo.write("user/staged", "edited again\n");
    let before = others(&repo, EVERY_PATH);
    repo.agent("apply --undo r1").ok();
    before.unchanged(&others(&repo, EVERY_PATH));
    assert_eq!(repo.read("new/mine"), "mine\n", "a folder of the run's in which a file of ours is stays");
    assert!(!repo.dir.join("new/deep").exists());
    let now = std::fs::metadata(repo.dir.join("src")).unwrap();
    assert_eq!((now.mtime(), now.mtime_nsec(), now.ino()), (src.mtime(), src.mtime_nsec(), src.ino()));
}

#[test]
fn a21_only_what_is_applied_and_in_order() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    for (run, script) in [("r1", "echo 2 >a"), ("r2", "echo 2 >src/b; echo n >n")] {
        repo.spawn(&format!("--role developer --run {run}"), script).ok();
        approve(&repo, run);
        repo.agent(&format!("apply {run}")).ok();
    }
    repo.agent("apply --undo --dry-run r1").ok();
    repo.agent("apply --undo").ok();
    assert_eq!((repo.state("r1").as_str(), repo.state("r2").as_str()), ("applied", "approved"));
    assert!(!repo.dir.join("n").exists());
    repo.agent("apply --undo r2").with(1).refuses(&["can be undone"]);
    // Continued since: the later result stands on what landed.
    repo.spawn("--role developer --run r1", "echo 3 >a").ok();
    repo.agent("apply --undo r1").with(1).refuses(&["was continued since it landed"]);
    repo.agent("apply --undo --commit r1").with(129);
    repo.agent("apply").with(129);
}

#[test]
fn a21_more_landings_than_are_remembered() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    for n in 0..10 {
        repo.spawn(&format!("--role developer --run r{n}"), &format!("echo {n} >a{n}; echo {n} >>a{n}")).ok();
        approve(&repo, &format!("r{n}"));
        repo.agent(&format!("apply r{n}")).ok();
    }
    eventually("slots that nobody needs are gone", || {
        let entries = std::fs::read_dir(repo.dir.join(".git/agent/apply")).unwrap();
        entries.filter(|e| e.as_ref().unwrap().file_type().unwrap().is_dir()).count() == 9
    });
    nothing_left(&repo);
    repo.agent("apply --undo r0").with(1).refuses(&["8 landings are remembered"]);
    for n in (2..10).rev() {
        repo.agent("apply --undo").ok();
        assert!(!repo.dir.join(format!("a{n}")).exists());
    }
}

/// `--commit`: the run's paths and no other; what else is staged stays staged.
#[test]
fn a22_only_the_paths_of_the_run_are_committed() {
    for (git, _) in gits() {
        let sandbox = Sandbox::new().with_git(&git);
        let repo = approved(&sandbox, EVERYTHING);
        let head = repo.git("rev-parse HEAD");
        let staged = repo.git("diff --cached --raw");
        let before = others(&repo, EVERY_PATH);
        let said = repo.agent_args(["apply", "--commit", "-m", "Land it", "r1"]).ok();
        said.says(&["committed as"]);
        landed(&repo, "r1");
        before_but_index(&before, &others(&repo, EVERY_PATH), &repo);
        assert_eq!(repo.git("rev-parse HEAD^"), head);
        let shown = repo.show("r1");
        let [base, snapshot] = [&shown["base"], &shown["result"]["snapshot"]].map(|v| v.as_str().unwrap());
        let raw = |a: &str, b: &str| repo.git_args(["diff-tree", "-r", "--no-renames", a, b]);
        assert_eq!(raw("HEAD^", "HEAD"), raw(base, snapshot), "exactly what was approved");
        assert_eq!(repo.git("diff --cached --raw"), staged);
        let touched = repo.git_args(["status", "--porcelain", "--", "a", "new", "odd", "gone", "to-file"]);
        assert_eq!(touched, "");
        let message = repo.git("log -1 --format=%B");
        assert!(message.starts_with("Land it\n\nAgent-Run: "), "{message}");
        for line in ["Agent-Approval: sha256:", "Assisted-by: sh"] {
            assert!(message.lines().any(|l| l.starts_with(line)), "{line}: {message}");
        }
        let note = repo.git("notes --ref=agent-runs show HEAD");
        assert!(note.contains("Agent-Run: ") && note.contains("Agent-Change: sha256:"), "{note}");
        let fsck = sandbox.run(&repo.dir, "git", ["fsck", "--strict"]).ok();
        assert!(!fsck.err().contains("error"), "{}", fsck.err());
        // Once more: nothing to do, and said so. Committed, it cannot be undone in the tree.
        repo.agent("apply --commit r1").ok().says(&["nothing was committed"]);
        repo.agent("apply --undo r1").with(3).refuses(&["was staged or committed since"]);
    }
}

/// The index is written by a commit, and nothing else is.
#[track_caller]
fn before_but_index(before: &Fingerprint, after: &Fingerprint, repo: &Repo) {
    let not = ["index", "COMMIT_EDITMSG", "HEAD", "ORIG_HEAD"].map(|n| repo.dir.join(".git").join(n));
    before.without(&not).unchanged(&after.without(&not));
}

#[test]
fn a22_what_would_mix_in_the_persons_work_is_refused_first() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; echo 2 >src/b");
    repo.write("a", "staged by the user\n");
    repo.git("add a");
    repo.write("a", "one\ntwo\nthree\n");
    let before = repo.fingerprint();
    for words in ["apply --commit r1", "apply --commit --dry-run r1"] {
        repo.agent(words).with(3).refuses(&["a: is staged with other content", "nothing was changed"]);
    }
    before.unchanged(&repo.fingerprint());
    repo.git("reset -q a");
    repo.write("src/b", "moved on\n");
    repo.git_args(["commit", "-qm", "moved on", "--", "src/b"]);
    repo.write("src/b", "b\n");
    // Here as in the base, and HEAD has something else: the commit would not be what was approved.
    repo.agent("apply --commit r1").with(3).refuses(&["src/b"]);
    assert_eq!(repo.state("r1"), "approved");
}

#[test]
fn a22_hooks_run_as_for_git_commit() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; echo n >n; rm gone");
    let hook = |name: &str, script: &str| {
        let path = repo.dir.join(".git/hooks").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        set_mode(&path, 0o755);
    };
    let seen = sandbox.dir().join("seen");
    hook("pre-commit", &format!("git diff --cached --name-status >{}; exit 1", seen.display()));
    let head = repo.git("rev-parse HEAD");
    let staged = repo.git("diff --cached --raw");
    repo.agent("apply --commit r1")
        .with(1)
        .says(&["has landed and was not committed", "git agent apply --commit r1"]);
    assert_eq!(std::fs::read_to_string(&seen).unwrap(), "M\ta\nD\tgone\nA\tn\n");
    assert_eq!((repo.git("rev-parse HEAD"), repo.git("diff --cached --raw")), (head, staged.clone()));
    landed(&repo, "r1");
    assert_eq!(repo.state("r1"), "applied");

    // A hook that adds to the message is as welcome as for git commit.
    hook("pre-commit", "exit 0");
    hook("commit-msg", "echo 'Change-Id: I1' >>\"$1\"");
    hook("post-commit", &format!("touch {}", sandbox.dir().join("post").display()));
    repo.agent("apply --commit r1").ok();
    let message = repo.git("log -1 --format=%B");
    assert!(message.contains("Change-Id: I1") && message.contains("Agent-Approval: "), "{message}");
    assert!(sandbox.dir().join("post").exists());
    assert_eq!(repo.git("diff --cached --raw"), staged);
}

#[test]
fn a22_a_hook_that_changes_what_was_approved() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; echo n >n");
    let path = repo.dir.join(".git/hooks/pre-commit");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "#!/bin/sh\necho formatted >a; git add a; echo more >by-hook; git add by-hook\n")
        .unwrap();
    set_mode(&path, 0o755);
    let head = repo.git("rev-parse HEAD");
    let said = repo.agent("apply --commit r1").with(1);
    said.says(&["is not what was approved of run 'r1'", "a, by-hook", "without the trailer Agent-Approval"]);
    assert_eq!(repo.git("rev-parse HEAD^"), head, "the commit stays");
    let message = repo.git("log -1 --format=%B");
    assert!(message.contains("Agent-Run: ") && !message.contains("Agent-Approval"), "{message}");
    let note = repo.git("notes --ref=agent-runs show HEAD");
    assert!(!note.contains("Agent-Approval"), "{note}");
    assert_eq!(repo.git("show HEAD:a"), "formatted");
    assert_eq!(repo.git_args(["status", "--porcelain", "--", "a", "n", "by-hook"]), "");
}

#[test]
fn a22_notes_written_at_once_are_not_lost() {
    let sandbox = Sandbox::new();
    let repo = sandbox.repo();
    let found = git_agent::git::Repo::discover(&repo.dir).unwrap();
    let commits: Vec<git_agent::model::Oid> =
        (0..12).map(|n| repo.commit(&format!("c{n}")).parse().unwrap()).collect();
    // Enough notes of git's own for folders of two digits.
    repo.git("notes --ref=agent-runs add -m one HEAD~3");
    std::thread::scope(|s| {
        for commit in &commits {
            let dir = repo.dir.clone();
            s.spawn(move || {
                let repo = git_agent::git::Repo::discover(&dir).unwrap();
                let notes = [(commit.clone(), format!("Agent-Run: {commit}\n"))];
                let who = git_agent::ledger::actor(repo.config().unwrap());
                git_agent::ledger::notes::add(&repo, &notes, &who, 0).unwrap();
            });
        }
    });
    drop(found);
    for (n, commit) in commits.iter().enumerate() {
        let note = repo.git_args(["notes", "--ref=agent-runs", "show", commit.as_str()]);
        // A note that was there is kept above ours.
        let before = if n == commits.len() - 4 { "one\n" } else { "" };
        assert_eq!(note, format!("{before}Agent-Run: {commit}"));
    }
}
