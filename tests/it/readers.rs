//! Readers, which see the person's tree as it is and can write nothing there.

use crate::support::{Repo, Sandbox, both, eventually, gits, is_root, processes_of};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Attempts to write into a work tree or its `.git`, each a shell command that succeeds outside.
const WRITES: &[(&str, &str)] = &[
    ("a tracked file", "echo evil >>README"),
    ("a new file", "echo evil >new"),
    ("a new file below", "echo evil >src/new"),
    ("an untracked file", "echo evil >>untracked"),
    ("a truncation", ": >src/b"),
    ("a removal", "rm -f src/b.gone"),
    ("a folder", "mkdir folder"),
    ("a rename", "mv untracked moved && mv moved untracked"),
    ("a link", "ln -s x link"),
    ("a fifo", "mkfifo fifo"),
    ("the index", "git add untracked"),
    ("a commit", "git commit -q -m evil --allow-empty"),
    ("a ref", "git update-ref refs/heads/evil HEAD"),
    ("a configuration", "git config --file .git/config evil.evil 1"),
    ("a hook", "echo evil >.git/hooks/pre-commit"),
    ("the exclude file", "mkdir -p .git/info && echo evil >>.git/info/exclude"),
    ("a replaced .git", "mv .git .git-old && mv .git-old .git"),
    ("a nested .git", "mkdir -p src/.git"),
    ("an object", "echo evil | git hash-object -w --stdin"),
];

/// A tree with something of every kind in it.
fn mess<'s>(s: &'s Sandbox, name: &str) -> Repo<'s> {
    let repo = s.repo_with(name, &[]);
    repo.write("src/b.gone", "goes\n");
    repo.commit("second");
    repo.write("src/a", "edited, not staged\n");
    repo.write("README", "staged\n");
    repo.git("add README");
    repo.write("untracked", "nobody but the person has this\n");
    repo
}

/// `open: NAME` for every attempt that succeeds.
fn attempts() -> String {
    WRITES
        .iter()
        .map(|(name, script)| format!("if ({script}) >/dev/null 2>&1; then echo 'open: {name}'; fi\n"))
        .collect()
}

#[test]
fn r15_a_reader_sees_the_real_tree_and_can_write_nothing_there() {
    both(|s| {
        let repo = mess(s, "project");
        let before = repo.fingerprint();
        let script = format!(
            "pwd; cat src/a README untracked; git status --porcelain; git diff --stat; git diff --cached --stat\n\
             git log --oneline | wc -l; ls; test \"$(cat $GIT_AGENT_TASK)\" = 'look at it' && echo task\n{}",
            attempts()
        );
        let said = repo.agent_args([
            "spawn",
            "--role",
            "reviewer",
            "--run",
            "look",
            "-m",
            "look at it",
            "--",
            "sh",
            "-c",
            &script,
        ]);
        let said = said.ok();
        said.says(&["reader", "in the cage: tier ", "nothing to land"]);
        let out = said.out();
        for seen in [
            repo.dir.to_str().unwrap(),
            "edited, not staged\nstaged\nnobody but the person has this",
            "M  README\n M src/a\n?? untracked",
            "src/a | 4",
            "README | 2",
            "\n2\n",
            "README\nsrc\nuntracked\n",
            "task",
        ] {
            assert!(out.contains(seen), "{seen:?} is not in\n{out}");
        }
        assert!(!out.contains("open: "), "{out}");
        before.unchanged(&repo.fingerprint());
        assert_eq!(repo.locks(), [] as [PathBuf; 0]);
        assert!(!repo.branches().iter().any(|b| b.starts_with("wt/")), "a reader has no branch");

        // The same outside of the cage.
        let control = mess(s, "control");
        let open = s.sh(&control.dir, &attempts()).ok().out().to_owned();
        for (name, _) in WRITES {
            assert!(
                open.contains(&format!("open: {name}\n")) || open.ends_with(name),
                "{name} proves nothing:\n{open}"
            );
        }
    });
}

#[test]
fn r15_a_reader_starts_where_the_person_stands() {
    let s = Sandbox::new();
    let repo = s.repo();
    let said = repo.at("src").spawn("--role reviewer", "pwd; cat a; git status --porcelain").ok();
    assert_eq!(said.out(), format!("{}\none\ntwo\nthree", repo.dir.join("src").display()));
}

/// What a configuration file may hold and nobody else may see.
const SECRETS: &[(&str, &str)] = &[
    ("remote.origin.url", "https://user:SECRET1@example.org/x"),
    ("http.https://example.org/.extraHeader", "AUTHORIZATION: basic SECRET2"),
    ("credential.helper", "!echo password=SECRET3"),
    ("url.https://SECRET4:x@example.org/.insteadOf", "ex:"),
    ("alias.leak", "!echo SECRET5"),
    ("core.sshCommand", "ssh -i SECRET6"),
    ("core.fsmonitor", "/bin/false"),
];

fn secret(repo: &Repo<'_>) {
    // Where a credential helper keeps what it knows.
    let git_dir = PathBuf::from(repo.git("rev-parse --path-format=absolute --git-common-dir"));
    std::fs::write(git_dir.join("credentials"), "https://u:SECRET8@example.org\n").unwrap();
    std::fs::write(git_dir.join("more"), "[http]\n\tproxy = http://u:SECRET9@example.org\n").unwrap();
    repo.sandbox.give(&git_dir.join("credentials"));
    repo.sandbox.give(&git_dir.join("more"));
    repo.git_args(["config", "include.path", "more"]);
    for (key, value) in SECRETS {
        repo.git_args(["config", key, value]);
    }
    repo.git_args(["config", "branch.main.remote", "origin"]);
}

/// git in a reader sees the tree as git outside does, and no secret is anywhere in reach.
fn sees_no_secret(repo: &Repo<'_>, main: &Path) {
    let script = format!(
        "echo config $(git config remote.origin.url) $(git config branch.main.remote)\n\
         git status --porcelain; git log --format=%s -1; git diff --name-only; git rev-parse --abbrev-ref HEAD\n\
         git branch --list; git rev-parse --show-toplevel; git ls-files | wc -l; git stash list; git show --stat HEAD | tail -1\n\
         git config --list --show-origin; env\n\
         cat {0}/.git/config {0}/.git/config.worktree {0}/.git/credentials {0}/.git/more; cat /proc/self/root{0}/.git/config\n\
         grep -rs SECRET {0}/.git {1} . ; true",
        main.display(),
        repo.dir.display(),
    );
    let before = repo.fingerprint();
    let said = repo.spawn("--role reviewer", &script).ok();
    before.unchanged(&repo.fingerprint());
    let out = said.out();
    assert!(out.starts_with("config https://example.org/x origin\n"), "{out}");
    let same = repo.sandbox.sh(
        &repo.dir,
        "git -c core.fsmonitor= status --porcelain; git log --format=%s -1; git -c core.fsmonitor= diff --name-only; git rev-parse --abbrev-ref HEAD\n\
         git branch --list; git rev-parse --show-toplevel; git ls-files | wc -l; git stash list; git show --stat HEAD | tail -1",
    );
    let same = same.ok();
    assert!(out.contains(same.out()), "{out}\n-- outside\n{}", same.out());
    assert!(!out.contains("SECRET"), "{out}");
    assert!(!said.err().contains("SECRET"), "{}", said.err());
    // Outside they are all there.
    let outside = repo.sandbox.sh(&repo.dir, "git config --list; grep -rs SECRET . ; true").ok();
    for n in 1..=6 {
        assert!(outside.out().contains(&format!("SECRET{n}")), "SECRET{n}");
    }
}

#[test]
fn r15_secrets_of_the_configuration_are_out_of_reach() {
    for (git, version) in gits() {
        both(|plain| {
            let s = if plain.is_user() { Sandbox::as_user() } else { Sandbox::new() }.with_git(&git);
            let mut shapes: Vec<&[&str]> = vec![&[], &["--object-format=sha256"]];
            if version >= (2, 45) {
                shapes.push(&["--ref-format=reftable"]);
            }
            for (n, shape) in shapes.into_iter().enumerate() {
                let repo = s.repo_with(&format!("project{n}"), shape);
                repo.write("src/a", "edited\n");
                repo.write("untracked", "x\n");
                secret(&repo);
                sees_no_secret(&repo, &repo.dir);
                // The same from a linked work tree, with a configuration of its own.
                repo.git_args(["config", "extensions.worktreeConfig", "true"]);
                repo.git_args(["-c", "core.fsmonitor=", "worktree", "add", "-q", &format!("../linked{n}")]);
                let linked = repo.at(format!("../linked{n}"));
                linked.write("src/b", "edited there\n");
                linked.git_args(["config", "--worktree", "http.extraHeader", "SECRET7"]);
                sees_no_secret(&linked, &repo.dir);
            }
        });
    }
}

#[test]
fn r15_a_plain_configuration_is_shown_as_it_is_and_tests_may_use_git() {
    both(|s| {
        let repo = s.repo();
        repo.git_args(["config", "remote.origin.url", "git@example.org:x"]);
        // A project whose tests make repositories of their own: no variable of ours steers them.
        let script = "git config remote.origin.url; cat .git/config | grep -c origin\n\
                      cd $TMPDIR && git init -q t && cd t && echo x >x && git add x && git commit -q -m one && git log --format='%s %an'";
        let said = repo.spawn("--role reviewer", script).ok();
        assert_eq!(said.out(), "git@example.org:x\n1\none Tess Tester");
    });
}

#[test]
fn r15_a_submodule_with_a_secret() {
    let s = Sandbox::new();
    let other = s.repo_with("other", &[]);
    let repo = s.repo();
    repo.git_args(["submodule", "add", "-q", other.dir.to_str().unwrap(), "sub"]);
    repo.commit("sub");
    let sub = repo.at("sub");
    sub.git_args(["config", "remote.origin.url", "https://u:SECRET1@example.org/sub"]);
    repo.write("sub/new", "x\n");
    let script = "git status --porcelain; cat sub/README; grep -rs SECRET .git; true";
    let said = repo.spawn("--role reviewer", script).ok();
    assert!(!said.out().contains("SECRET"), "{}", said.out());
    assert!(said.out().contains("a project"), "{}", said.out());
    assert!(repo.sandbox.sh(&repo.dir, "grep -rs SECRET .git").ok().out().contains("SECRET1"));
}

#[test]
fn r15_a_python_project_is_tested_read_only() {
    both(|s| {
        let repo = s.repo();
        repo.write("pkg/__init__.py", "def double(n):\n    return 2 * n\n");
        repo.write("test_pkg.py", "import unittest, pkg\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(pkg.double(2), 4)\n");
        let before = repo.fingerprint();
        let said = repo.spawn("--role reviewer", "/usr/bin/python3 -m unittest -v 2>&1").ok();
        assert!(said.out().contains("Ran 1 test") && said.out().contains("OK"), "{}", said.out());
        before.unchanged(&repo.fingerprint());
        // Outside the same leaves its traces in the tree.
        s.sh(&repo.dir, "/usr/bin/python3 -m unittest").ok();
        assert!(repo.dir.join("pkg/__pycache__").exists());
    });
}

#[test]
fn r15_a_cargo_project_is_tested_read_only() {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).unwrap().trim_end());
    let s = Sandbox::new();
    // The toolchain lies in the home of whoever runs the tests.
    s.run(s.dir(), "git", ["config", "--global", "agent.read", sysroot.to_str().unwrap()]).ok();
    let repo = s.repo();
    repo.write("Cargo.toml", "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    repo.write("src/lib.rs", "#[test]\nfn holds() {\n    assert_eq!(1 + 1, 2);\n}\n");
    // cargo has nowhere else to put a lock file that is missing.
    let lock = format!("CARGO_HOME=../cargo {}/bin/cargo generate-lockfile --offline", sysroot.display());
    s.sh(&repo.dir, &lock).ok();
    let before = repo.fingerprint();
    let script =
        format!("PATH={0}/bin:$PATH RUSTC={0}/bin/rustc cargo test --offline 2>&1", sysroot.display());
    let said = repo.spawn("--role reviewer", &script).ok();
    assert!(said.out().contains("test holds ... ok"), "{}", said.out());
    before.unchanged(&repo.fingerprint());
}

#[test]
fn a_reader_in_every_command() {
    both(|s| {
        let repo = s.repo();
        repo.spawn("--role reviewer --run one", "echo found nothing; exit 3").with(3);
        // Its folder went at once, its entry stays.
        let line = repo.runs().into_iter().find(|r| r["name"] == "one").unwrap();
        assert_eq!(
            (&line["state"], &line["isolation"], &line["branch"], &line["path"], &line["tier"]),
            (&json!("finished"), &json!("reader"), &json!(null), &json!(null), &json!("full"))
        );
        assert_eq!(repo.kinds("one"), ["spawn", "engine", "end"]);
        let log = repo.agent("log one --json").ok().json();
        assert_eq!(log["events"][0]["body"]["isolation"], "reader");
        assert_eq!(log["events"][0]["body"]["base"], json!(repo.git("rev-parse HEAD")));
        assert_eq!(log["events"][2]["body"]["ended"], json!({ "exit": 3 }));
        let canaries = log["events"][1]["body"]["cage"]["canaries"].as_array().unwrap();
        assert!(canaries.iter().any(|c| c["name"] == "work-tree" && c["held"] == true), "{canaries:?}");
        assert!(repo.agent("show one").ok().out().contains("Isolation: reader"));
        assert!(repo.agent("log one").ok().out().contains("engine exited with 3"));
        assert!(repo.agent("list").ok().out().contains("finished"));
        repo.agent("review one").with(1).refuses(&["a reader's", "nothing to land", "git agent show one"]);
        repo.agent("review one --diff").with(1).refuses(&["nothing to land"]);
        repo.agent("apply one").with(1).refuses(&["nothing to land"]);
        repo.agent("checkout one").with(1).refuses(&["nothing to land"]);
        repo.agent("discard one").with(1).refuses(&["nothing to discard"]);
        repo.agent("finish one").with(128).refuses(&["no folder"]);
        repo.agent("review").with(1).refuses(&["no run waits"]);
        let done = repo.agent("prune --json").ok().json();
        assert_eq!(done["pruned"], json!([]), "{done}");
        // The name is free again.
        let said = repo
            .agent_args(["spawn", "--role", "reviewer", "--run", "one", "--json", "--", "sh", "-c", "echo x"])
            .ok();
        assert_eq!(said.err().lines().filter(|l| *l == "x").count(), 1);
        let said = said.json();
        assert_eq!((&said["state"], &said["ended"]), (&json!("finished"), &json!({ "exit": 0 })));

        // Prepared without an engine, used by hand, and given up.
        let said = repo.agent("spawn --role reviewer --run two").ok();
        assert_eq!(said.out(), repo.dir.to_str().unwrap());
        assert_eq!(repo.state("two"), "ready");
        assert_eq!(repo.tree("two"), repo.dir);
        repo.agent("exec two -- sh -c").fails();
        let tried = repo.agent_args(["exec", "two", "--", "sh", "-c", "cat README; echo evil >>README"]);
        assert_eq!(tried.fails().out(), "a project");
        repo.agent("finish two").with(1).refuses(&["no engine"]);
        repo.agent("discard two").ok();
        assert_eq!(repo.state("two"), "rejected");
        assert!(repo.dir.join("README").exists(), "the person's tree is nobody's to take away");
    });
}

#[test]
fn a_reader_in_the_background_keeps_its_output_until_prune() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.agent_args([
        "spawn",
        "--role",
        "reviewer",
        "--run",
        "one",
        "--detach",
        "--",
        "sh",
        "-c",
        "echo my verdict",
    ])
    .ok();
    eventually("the reader ends", || repo.state("one") == "finished");
    let shown = repo.agent("show one").ok().out().to_owned();
    let log = shown.lines().find_map(|l| l.strip_prefix("Output:")).unwrap().trim().to_owned();
    assert!(std::fs::read_to_string(&log).unwrap().contains("my verdict"));
    eventually("the supervisor is gone", || !repo.runs()[0]["live"].as_bool().unwrap());
    let done = repo.agent("prune --json").ok().json();
    assert_eq!(done["pruned"][0]["why"], "finished", "{done}");
    assert!(!Path::new(&log).exists());
    assert_eq!(repo.state("one"), "pruned");
}

/// Waits until a run's engine is started.
fn at_work(repo: &Repo<'_>, name: &str) {
    eventually("it is at work", || {
        let log = repo.agent_args(["log", name, "--json"]);
        log.status() == 0 && log.ok().json()["events"].as_array().unwrap().len() == 2
    });
    eventually("it runs", || repo.state(name) == "running");
}

#[test]
fn a_reader_is_stopped_and_survives_its_supervisor() {
    let s = Sandbox::new();
    let repo = s.repo();
    let running = repo.start("--role reviewer --run one", "echo up >$TMPDIR/up; sleep 300");
    at_work(&repo, "one");
    repo.agent("review one").with(1).refuses(&["nothing to land"]);
    repo.agent("stop one").ok().says(&["finished"]);
    running.end().with(143);

    let mut running = repo.start("--role reviewer --run two", "sleep 300");
    at_work(&repo, "two");
    running.signal(rustix::process::Signal::KILL);
    running.0.as_mut().unwrap().wait().unwrap();
    eventually("it is interrupted", || repo.state("two") == "interrupted");
    repo.agent("finish two").ok().says(&["nobody saw"]);
    assert_eq!(repo.state("two"), "finished");
    assert_eq!(processes_of(&s.state()), [] as [String; 0]);

    let mut running = repo.start("--role reviewer --run three", "sleep 300");
    at_work(&repo, "three");
    running.signal(rustix::process::Signal::KILL);
    running.0.as_mut().unwrap().wait().unwrap();
    eventually("it is interrupted", || repo.state("three") == "interrupted");
    // An interrupted reader holds nothing that anybody could miss.
    let done = repo.agent("prune --json").ok().json();
    assert!(done["pruned"].as_array().unwrap().iter().any(|i| i["name"] == "three"), "{done}");
}

#[test]
fn readers_beside_readers_and_writers() {
    let s = Sandbox::new();
    let repo = s.repo();
    let wait = "cat README >/dev/null; while ! test -e go; do sleep 0.01; done; git status --porcelain";
    let all: Vec<_> = ["one", "two", "three"]
        .iter()
        .map(|n| repo.start(&format!("--role reviewer --run {n}"), wait))
        .collect();
    let writer =
        repo.start("--role developer --run w", "echo x >mine; while ! test -e go; do sleep 0.01; done");
    for name in ["one", "two", "three", "w"] {
        at_work(&repo, name);
    }
    repo.spawn("--role developer --run v", "echo y >other").ok();
    // In the tier `landlock` a new name at the top level is in nobody's list; a reader looks it up by name.
    repo.write("go", "");
    std::fs::write(repo.tree("w").join("go"), "").unwrap();
    for running in all {
        assert_eq!(running.end().ok().out(), "?? go");
    }
    writer.end().ok();
    assert_eq!(repo.changed("w"), ["A go", "A mine"]);
}

#[test]
fn r14_a_reader_asked_to_isolate_is_refused() {
    let s = Sandbox::new();
    let repo = s.repo();
    for (options, word) in [("--base HEAD", "--base"), ("--with-changes", "--with-changes")] {
        repo.spawn(&format!("--role reviewer {options}"), "true")
            .with(128)
            .refuses(&["role 'reviewer' is a reader", word]);
    }
    repo.agent("spawn --role reviewer --write /tmp -- true").with(129).refuses(&["--write"]);
    assert_eq!(repo.names(), [] as [String; 0]);
    // A reader stays one whatever the off switch says.
    let mut command = repo.agent_command([
        "spawn",
        "--role",
        "reviewer",
        "--run",
        "r",
        "--",
        "sh",
        "-c",
        "echo evil >>README",
    ]);
    command.env("GIT_AGENT_ISOLATION", "off");
    crate::support::run(command, b"").fails();
    assert_eq!(repo.read("README"), "a project\n");
    assert_eq!(repo.show("r")["isolation"], "reader");
    // And does not go into a writer's run.
    repo.spawn("--role developer --run w", "echo x >x").ok();
    repo.spawn("--role reviewer --run w", "true").with(128).refuses(&["has a tree of its own"]);
    // A bare repository has no tree to read.
    repo.git_args(["clone", "-q", "--bare", ".", "../bare.git"]);
    repo.at("../bare.git").spawn("--role reviewer", "true").with(128).refuses(&["no work tree"]);
}

#[test]
fn r15_as_root_a_reader_is_another_user() {
    if !is_root() {
        return;
    }
    let s = Sandbox::new();
    let repo = s.repo();
    crate::support::set_mode(&repo.dir.join("README"), 0o600);
    let said =
        repo.spawn("--role reviewer", "id -u; cat README; git status --porcelain; chmod 777 README").fails();
    let uid: u32 = said.out().lines().next().unwrap().parse().unwrap();
    assert!(uid > 1000, "{}", said.out());
    assert!(said.out().contains("a project"));
}

#[test]
fn an_engine_that_edits_nothing_runs_as_a_reader_once_the_person_agreed() {
    let s = Sandbox::new();
    let repo = s.repo();
    let text = "version: 1\nroles:\n  developer: {kind: writer}\nengines:\n  codex: {isolation: none}\n";
    repo.policy(text);
    let command = |script: &'static str| {
        repo.agent_args([
            "spawn",
            "--role",
            "developer",
            "--run",
            "r",
            "--engine",
            "codex",
            "--",
            "sh",
            "-c",
            script,
        ])
    };
    // It sees the person's tree: that is looser than a copy.
    command("true").with(4).refuses(&["isolation"]);
    let digest = git_agent::model::Digest::of(text.as_bytes()).to_string();
    s.run(s.dir(), "git", ["config", "--global", "agent.approve", "unattended"]).ok();
    repo.agent_args(["policy", "trust", "--digest", &digest]).ok();
    command("echo evil >>README").fails().says(&["reader"]);
    assert_eq!(repo.read("README"), "a project\n");
    assert_eq!(repo.show("r")["isolation"], "reader");
}
