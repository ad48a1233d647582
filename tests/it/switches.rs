//! The two switches that a person has: work in the real tree (`GIT_AGENT_ISOLATION=off`), and no cage at all
//! (`GIT_AGENT_CAGE=off`).

use crate::support::{Ended, Repo, Running, Sandbox, both, eventually, gits, is_root, run};
use serde_json::json;

/// `VARIABLE=VALUE git agent spawn OPTIONS -- sh -c SCRIPT`.
fn spawn_with(repo: &Repo<'_>, vars: &[(&str, &str)], options: &str, script: &str) -> Ended {
    let mut words: Vec<&str> = vec!["spawn"];
    words.extend(options.split_ascii_whitespace());
    words.extend(["--", "sh", "-c", script]);
    let mut command = repo.agent_command(words);
    command.envs(vars.iter().copied());
    run(command, b"")
}

fn off(repo: &Repo<'_>, options: &str, script: &str) -> Ended {
    spawn_with(repo, &[("GIT_AGENT_ISOLATION", "off")], options, script)
}

/// A tree with staged, unstaged, untracked and ignored files of the person's.
fn messy<'s>(s: &'s Sandbox, name: &str) -> Repo<'s> {
    let repo = s.repo_with(name, &[]);
    repo.write(".gitignore", "*.log\n");
    repo.commit("second");
    repo.write("src/a", "edited, not staged\n");
    repo.write("README", "staged\n");
    repo.git("add README");
    repo.write("src/fixture", "nobody but the person has this\n");
    repo.write("src/x.log", "ignored\n");
    repo
}

#[test]
fn r14_a_writer_with_isolation_off_works_in_the_real_tree() {
    both(|s| {
        let repo = messy(s, "project");
        let status = repo.git("status --porcelain");
        let git_dir = || {
            crate::support::fingerprint(&repo.dir.join(".git"), |p| {
                !p.to_str().unwrap().contains("/.git/agent")
                    && !p.ends_with(".git")
                    && !p.to_str().unwrap().contains("/objects")
                    && !p.to_str().unwrap().contains("/refs")
            })
        };
        let (before, control) =
            (git_dir(), s.sh(&repo.dir, "cat src/a README src/fixture").ok().out().to_owned());
        let script = "cat src/a README src/fixture; git status --porcelain; echo more >>src/a; echo new >src/new; rm src/b; echo y >>src/fixture\n\
            echo evil >>.git/config; echo evil >.git/hooks/pre-commit; mv .git .git-old; git add src/new; rm -rf .git/objects; true";
        let said = off(&repo, "--role developer --run one", script).ok();
        said.says(&["isolation is off", "in your own tree", "4 files changed", "git agent discard one"]);
        assert!(said.out().starts_with(&control), "{}", said.out());
        assert!(said.out().contains(&status), "{}", said.out());
        assert_eq!(repo.read("src/a"), "edited, not staged\nmore\n");
        assert!(!repo.dir.join("src/b").exists());
        before.unchanged(&git_dir());

        // Exactly what it did, and nothing of the person's.
        assert_eq!(repo.changed("one"), ["M src/a", "D src/b", "M src/fixture", "A src/new"]);
        let shown = repo.show("one");
        assert_eq!(
            (&shown["isolation"], &shown["branch"], &shown["state"]),
            (&json!("off"), &json!(null), &json!("proposed"))
        );
        assert_eq!(shown["events"][0]["body"]["local_base"], true);
        assert!(repo.agent("show one").ok().out().contains("Isolation: off"));
        assert!(repo.agent("list").ok().out().contains("isolation off"));
        let review = repo.agent("review one --json").ok().json();
        assert_eq!((&review["isolation"], &review["files"]), (&json!("off"), &json!(4)));
        assert!(repo.agent("review one --html").ok().out().contains("it worked in your own tree"));
        let diff = repo.agent("review one --diff").ok().out().to_owned();
        assert!(diff.contains("+more") && !diff.contains("+edited"), "{diff}");
        assert!(!repo.branches().iter().any(|b| b.starts_with("wt/")));

        // And taken back: every touched path as it was, everything else untouched, the index too.
        let index = repo.git("ls-files -s");
        repo.agent("discard one").ok().says(&["4 files taken back"]);
        assert_eq!(s.sh(&repo.dir, "cat src/a README src/fixture").ok().out(), control);
        assert_eq!(repo.read("src/b"), "b\n");
        assert!(!repo.dir.join("src/new").exists());
        assert_eq!(repo.read("src/x.log"), "ignored\n");
        assert_eq!(repo.git("ls-files -s"), index);
        assert_eq!(repo.git("status --porcelain"), status);
        assert_eq!(repo.state("one"), "rejected");
        assert_eq!(repo.locks(), [] as [std::path::PathBuf; 0]);
    });
}

#[test]
fn r14_what_isolation_off_did_is_kept_by_apply() {
    let s = Sandbox::new();
    let repo = messy(&s, "project");
    off(&repo, "--role developer --run one", "echo more >>src/a").ok();
    let digest = repo.show("one")["result"]["change"].as_str().unwrap().to_owned();
    s.run(s.dir(), "git", ["config", "--global", "agent.approve", "unattended"]).ok();
    repo.agent_args(["review", "one", "--approve", "--digest", &digest]).ok();
    repo.agent("apply one").ok();
    assert_eq!(repo.state("one"), "applied");
    assert_eq!(repo.read("src/a"), "edited, not staged\nmore\n");
    repo.agent("discard one").with(1).refuses(&["applied already"]);
    off(&repo, "--role developer --run one", "true").with(128).refuses(&["in your own tree"]);

    // A run that has a copy keeps it, also when it goes on after it was applied.
    repo.spawn("--role developer --run copy", "echo x >mine").ok();
    off(&repo, "--run copy", "echo y >>mine").ok().says(&["keeps its copy"]);
    let digest = repo.show("copy")["result"]["change"].as_str().unwrap().to_owned();
    repo.agent_args(["review", "copy", "--approve", "--digest", &digest]).ok();
    repo.agent("apply copy").ok();
    off(&repo, "--run copy", "echo z >>mine").ok().says(&["keeps its copy"]);
    assert_eq!(repo.read("mine"), "x\ny\n");
    let shown = repo.show("copy");
    assert_eq!((&shown["isolation"], &shown["result"]["files"]), (&json!("worktree"), &json!(1)));
}

#[test]
fn r14_a_discard_refuses_what_the_person_changed_since() {
    let s = Sandbox::new();
    let repo = messy(&s, "project");
    let script =
        "echo more >>src/a; echo new >src/new; echo n >>README; mkdir -p src/deep/er; echo x >src/deep/er/f";
    off(&repo, "--role developer --run one", script).ok();
    repo.write("src/new", "the person goes on\n");
    let before = repo.fingerprint();
    repo.agent("discard one").with(3).refuses(&["cannot be taken back", "src/new", "edited"]);
    before.unchanged(&repo.fingerprint());
    assert_eq!(repo.state("one"), "proposed");
    // Elsewhere the person may have gone on, and committed.
    repo.write("src/new", "new\n");
    repo.write("src/mine", "mine\n");
    repo.git("add src/mine");
    repo.git_args(["commit", "-q", "-m", "mine"]);
    repo.agent("discard one").ok();
    assert_eq!(repo.read("src/a"), "edited, not staged\n");
    assert_eq!(repo.read("src/mine"), "mine\n");
    assert!(!repo.dir.join("src/deep").exists(), "folders that it made go, too");
}

#[test]
fn r14_isolation_off_keeps_every_git_directory() {
    both(|s| {
        let other = s.repo_with("other", &[]);
        let repo = s.repo();
        repo.git_args(["submodule", "add", "-q", other.dir.to_str().unwrap(), "lib/sub"]);
        repo.commit("sub");
        s.run(&repo.dir, "git", ["clone", "-q", other.dir.to_str().unwrap(), "src/vendor"]).ok();
        repo.write("lib/file", "x\n");
        let attempts = "for f in .git lib/sub/.git src/vendor/.git; do\n\
             rm -rf $f 2>/dev/null; mv $f $f-old 2>/dev/null; echo evil >>$f 2>/dev/null; echo evil >>$f/config 2>/dev/null\n\
             test -e $f || echo gone: $f; grep -qs evil $f $f/config && echo open: $f; done; true";
        let said = off(
            &repo,
            "--role developer --run one",
            &format!("{attempts}\necho no >>lib/sub/README; echo ok >>lib/file; echo ok >>src/a"),
        )
        .ok();
        assert_eq!(said.out(), "");
        assert_eq!(repo.read("lib/file"), "x\nok\n");
        // The record knows it by its commit alone: what happened there could not be taken back.
        assert_eq!(repo.read("lib/sub/README"), "a project\n");
        // The same outside of the cage.
        let open = s.sh(&repo.dir, attempts).ok().out().to_owned();
        for f in [".git", "lib/sub/.git", "src/vendor/.git"] {
            assert!(open.contains(f), "{f} proves nothing:\n{open}");
        }
    });
}

#[test]
fn r14_isolation_off_sees_a_virtualenv_and_writes_what_is_named() {
    both(|s| {
        let repo = s.repo();
        let venv = s.dir().join("home/venv");
        s.run(s.dir(), "/usr/bin/python3", ["-m", "venv", "--without-pip", venv.to_str().unwrap()]).ok();
        let script = format!("{}/bin/python -c 'import sys; print(sys.prefix)'", venv.display());
        off(&repo, "--role developer", &script).fails();
        s.run(s.dir(), "git", ["config", "--global", "agent.read", "~/venv"]).ok();
        assert_eq!(off(&repo, "--role developer", &script).ok().out(), venv.to_str().unwrap());
        off(&repo, "--role developer", &format!("echo evil >{}/evil", venv.display())).fails();

        let out = s.dir().join("out");
        std::fs::create_dir(&out).unwrap();
        s.give(&out);
        let script = format!("echo written >{}/file", out.display());
        off(&repo, "--role developer", &script).fails();
        assert!(!out.join("file").exists());
        off(&repo, &format!("--role developer --run w --write {}", out.display()), &script).ok();
        assert_eq!(std::fs::read_to_string(out.join("file")).unwrap(), "written\n");
        let shown = repo.show("w");
        assert_eq!(shown["events"][0]["body"]["write"], json!([out]));
        assert!(repo.agent("show w").ok().out().contains(out.to_str().unwrap()));
        assert_eq!(repo.agent("review w --json").ok().json()["write"], json!([out]));
        // Not everything, and not by an agent.
        for too_much in [
            "/",
            s.dir().join("home").to_str().unwrap(),
            repo.dir.join(".git").to_str().unwrap(),
            s.state().to_str().unwrap(),
        ] {
            off(&repo, &format!("--role developer --write {too_much}"), "true")
                .with(128)
                .refuses(&["cannot be made writable"]);
        }
        let vars = [("GIT_AGENT_ISOLATION", "off"), ("AI_AGENT", "1")];
        spawn_with(&repo, &vars, &format!("--role developer --write {}", out.display()), "true")
            .with(4)
            .refuses(&["an agent may not"]);
    });
}

#[test]
fn r14_isolation_off_where_git_is_busy() {
    let s = Sandbox::new();
    let repo = s.repo();
    for options in ["--base HEAD", "--with-changes"] {
        off(&repo, &format!("--role developer {options}"), "true").with(128).refuses(&["isolation is off"]);
    }
    repo.write(".git/MERGE_HEAD", repo.git("rev-parse HEAD"));
    off(&repo, "--role developer", "true").with(128).refuses(&["a merge is in progress"]);
    std::fs::remove_file(repo.dir.join(".git/MERGE_HEAD")).unwrap();
    spawn_with(&repo, &[("GIT_AGENT_ISOLATION", "sometimes")], "--role developer", "true")
        .with(129)
        .refuses(&["GIT_AGENT_ISOLATION"]);
    assert_eq!(repo.names(), [] as [String; 0]);

    // One at a time in a work tree; another work tree is another place.
    let words = [
        "spawn",
        "--role",
        "developer",
        "--run",
        "one",
        "--",
        "sh",
        "-c",
        "echo up >src/up; while ! test -e src/go; do sleep 0.01; done",
    ];
    let mut command = repo.agent_command(words);
    command.env("GIT_AGENT_ISOLATION", "off");
    let running = Running(Some(command.spawn().unwrap()));
    eventually("it is at work", || repo.dir.join("src/up").exists());
    off(&repo, "--role developer --run two", "true")
        .with(128)
        .refuses(&["run 'one' is at work in this tree"]);
    repo.git("worktree add -q ../linked");
    let linked = repo.at("../linked");
    off(&linked, "--role developer --run three", "echo x >src/three").ok();
    assert_eq!(linked.changed("three"), ["A src/three"]);
    repo.write("src/go", "");
    running.end().ok();
    assert_eq!(repo.changed("one"), ["A src/go", "A src/up"]);
    // Taken back from wherever the person stands.
    repo.agent("discard three").ok();
    assert!(!linked.dir.join("src/three").exists());
}

#[test]
fn r14_isolation_off_under_a_split_index_and_after_promises() {
    for (git, _) in gits() {
        let s = Sandbox::new().with_git(&git);
        let repo = s.repo();
        repo.git("update-index --split-index");
        repo.git("update-index --assume-unchanged src/a");
        repo.write("src/b", "the person's\n");
        let before = repo.git("ls-files -v -s");
        off(&repo, "--role developer --run one", "echo x >>src/a; echo x >>src/b").ok();
        assert_eq!(repo.changed("one"), ["M src/a", "M src/b"]);
        assert_eq!(repo.git("ls-files -v -s"), before);
        repo.agent("discard one").ok();
        assert_eq!(
            (repo.read("src/a"), repo.read("src/b")),
            ("one\ntwo\nthree\n".into(), "the person's\n".into())
        );
    }
}

#[test]
fn r14_an_interrupted_run_with_isolation_off_is_recorded_and_taken_back() {
    let s = Sandbox::new();
    let repo = messy(&s, "project");
    let words = [
        "spawn",
        "--role",
        "developer",
        "--run",
        "one",
        "--",
        "sh",
        "-c",
        "echo x >>src/a; echo x >src/up; sleep 300",
    ];
    let mut command = repo.agent_command(words);
    command.env("GIT_AGENT_ISOLATION", "off");
    let mut running = Running(Some(command.spawn().unwrap()));
    eventually("it is at work", || repo.dir.join("src/up").exists());
    running.signal(rustix::process::Signal::KILL);
    running.0.as_mut().unwrap().wait().unwrap();
    eventually("it is interrupted", || repo.state("one") == "interrupted");
    // Nobody knows what the person has done since: it is looked at before it is taken back.
    repo.agent("discard one").with(1).refuses(&["git agent finish one", "git agent review one"]);
    repo.agent("finish one").ok().says(&["your own edits"]);
    assert_eq!(repo.changed("one"), ["M src/a", "A src/up"]);
    // A second snapshot, or a command, would take what the person did for what the run did.
    repo.agent("finish one").with(1).refuses(&["in your own tree"]);
    repo.agent("exec one -- true").with(1).refuses(&["in your own tree"]);
    repo.agent("discard one").ok().says(&["2 files taken back"]);
    assert_eq!(repo.read("src/a"), "edited, not staged\n");
    assert!(!repo.dir.join("src/up").exists());
}

#[test]
fn r14_as_root_the_engine_writes_as_the_owner_of_the_tree() {
    if !is_root() {
        return;
    }
    let s = Sandbox::new();
    // A person's tree, and root at the keyboard.
    let repo = s.repo();
    for path in crate::support::walk(&repo.dir) {
        std::os::unix::fs::lchown(&path, Some(4242), Some(4242)).unwrap();
    }
    s.run(s.dir(), "git", ["config", "--global", "safe.directory", "*"]).ok();
    off(&repo, "--role developer --run one", "id -u; echo x >src/new; echo x >>README").ok();
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(repo.dir.join("src/new")).unwrap().uid(), 4242);
    assert_eq!(repo.changed("one"), ["M README", "A src/new"]);
    // Root's own: root without any power.
    let own = s.repo_with("own", &[]);
    let said = off(
        &own,
        "--role developer",
        "id -u; grep CapEff /proc/self/status; echo x >>README; head -c 1 /etc/shadow",
    )
    .fails();
    assert!(said.out().contains("0\nCapEff:\t0000000000000000"), "{}", said.out());
    assert_eq!(own.read("README"), "a project\nx\n");
}

#[test]
fn r14_the_cage_is_off_on_the_persons_word_alone() {
    both(|s| {
        let repo = s.repo();
        let out = s.dir().join("out");
        std::fs::create_dir(&out).unwrap();
        s.give(&out);
        let escape = format!(
            "echo evil >{}/file; echo mine >mine; (sleep 300 >/dev/null 2>&1 &) ; true",
            out.display()
        );
        // With the cage it fails.
        repo.spawn("--role developer --run in", &format!("set -e; {escape}")).fails();
        assert!(!out.join("file").exists());
        let said =
            spawn_with(&repo, &[("GIT_AGENT_CAGE", "off")], "--role developer --run out", &escape).ok();
        said.says(&["NO CAGE", "GIT_AGENT_CAGE=off"]);
        assert_eq!(std::fs::read_to_string(out.join("file")).unwrap(), "evil\n");
        // Recorded, shown, and supervised all the same: nothing is left, and the result is checked as ever.
        assert_eq!(repo.changed("out"), ["A mine"]);
        assert_eq!(crate::support::processes_of(&s.state()), [] as [String; 0]);
        let shown = repo.show("out");
        assert_eq!(
            (&shown["tier"], &shown["events"][1]["body"]["cage"]["tier"]),
            (&json!("none"), &json!("none"))
        );
        assert!(repo.agent("show out").ok().out().contains("NO CAGE"));
        assert!(repo.agent("list").ok().out().contains("no cage"));
        assert!(repo.agent("review out --html").ok().out().contains("NO CAGE"));
        assert_eq!(repo.agent("review out --json").ok().json()["engines"][0]["cage"]["tier"], "none");
        let said = spawn_with(
            &repo,
            &[("GIT_AGENT_CAGE", "outer")],
            "--role developer --run outer",
            "git status --porcelain",
        )
        .ok();
        said.says(&["container"]);
        assert_eq!(repo.show("outer")["tier"], "outer");

        // Also what a person runs in a run's tree.
        let mut command = repo.agent_command([
            "exec",
            "out",
            "--",
            "sh",
            "-c",
            &format!("echo again >{}/file", out.display()),
        ]);
        run(
            repo.agent_command([
                "exec",
                "out",
                "--",
                "sh",
                "-c",
                &format!("echo again >{}/file", out.display()),
            ]),
            b"",
        )
        .fails();
        command.env("GIT_AGENT_CAGE", "off");
        run(command, b"").ok().says(&["NO CAGE"]);
        assert_eq!(std::fs::read_to_string(out.join("file")).unwrap(), "again\n");

        // Not a repository's, not an agent's, not a guess.
        repo.git("config agent.cage off");
        repo.spawn("--role developer --run r1", &format!("set -e; {escape}")).fails();
        assert_ne!(repo.show("r1")["tier"], "none");
        for sign in ["CLAUDECODE", "AI_AGENT"] {
            spawn_with(&repo, &[("GIT_AGENT_CAGE", "off"), (sign, "1")], "--role developer --run no", "true")
                .with(4)
                .refuses(&["an agent may not switch the cage off"]);
        }
        spawn_with(&repo, &[("GIT_AGENT_CAGE", "of")], "--role developer --run no", "true")
            .with(129)
            .refuses(&["GIT_AGENT_CAGE"]);
        assert!(!repo.names().contains(&"no".to_owned()));
        // The person's own configuration is the person's word.
        s.run(s.dir(), "git", ["config", "--global", "agent.cage", "off"]).ok();
        repo.spawn("--role developer --run mine", "true").ok().says(&["NO CAGE"]);
        spawn_with(
            &repo,
            &[("GIT_AGENT_CAGE", "on")],
            "--role developer --run on",
            &format!("set -e; {escape}"),
        )
        .fails();
        assert_ne!(repo.show("on")["tier"], "none");
    });
}

#[test]
fn both_switches_together() {
    both(|s| {
        let repo = s.repo();
        let vars = [("GIT_AGENT_CAGE", "off"), ("GIT_AGENT_ISOLATION", "off")];
        let said =
            spawn_with(&repo, &vars, "--role developer --run one", "echo new >new; git status --porcelain")
                .ok();
        assert_eq!(said.out(), "?? new");
        assert_eq!(repo.changed("one"), ["A new"]);
        repo.agent("discard one").ok();
        assert!(!repo.dir.join("new").exists());
        // A reader without a cage is held by nothing, and says so.
        spawn_with(&repo, &[("GIT_AGENT_CAGE", "off")], "--role reviewer --run r", "echo evil >>README")
            .ok()
            .says(&["NO CAGE"]);
        assert_eq!(repo.read("README"), "a project\nevil\n");
        assert_eq!(repo.show("r")["tier"], "none");
    });
}

#[test]
fn r07_sigkill_of_a_run_without_a_copy_at_any_point() {
    let s = Sandbox::new();
    let repo = messy(&s, "project");
    let before =
        s.sh(&repo.dir, "cat README src/a src/b src/fixture; git status --porcelain").ok().out().to_owned();
    for (role, isolation) in [("reviewer", "on"), ("developer", "off")] {
        let start = |name: &str| {
            let script = "cat README; echo x >>src/a 2>/dev/null; true";
            let words = ["spawn", "--role", role, "--run", name, "--", "sh", "-c", script];
            let mut command = repo.agent_command(words);
            command.env("GIT_AGENT_ISOLATION", isolation);
            command
        };
        let clock = std::time::Instant::now();
        run(start(&format!("{role}-whole")), b"").ok();
        let whole = clock.elapsed();
        if isolation == "off" {
            repo.agent(&format!("discard {role}-whole")).ok();
        }
        for n in 0..10 {
            let name = format!("{role}-{n}");
            let running = Running(Some(start(&name).spawn().unwrap()));
            // Spread over the whole length; where it hits does not matter, only that it hits somewhere.
            std::thread::sleep(whole.mul_f64(f64::from(n) / 10.0));
            running.signal(rustix::process::Signal::KILL);
            let status = running.end().status();
            assert!([0, 137].contains(&status), "{status}");
            repo.agent("list").ok();
            eventually("nobody is at work", || {
                let listing = repo.agent("list --all --json").ok().json();
                listing["runs"].as_array().unwrap().iter().all(|r| r["live"] == false)
            });
            let state = repo.runs().iter().find(|r| r["name"] == name.as_str()).map(|r| r["state"].clone());
            match state.as_ref().and_then(|s| s.as_str()) {
                None | Some("finished") => {}
                Some("ready" | "proposed") => {
                    repo.agent(&format!("discard {name}")).ok();
                }
                Some("interrupted") => {
                    repo.agent(&format!("finish {name}")).ok();
                    if isolation == "off" {
                        repo.agent(&format!("discard {name}")).ok();
                    }
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(repo.locks(), [] as [std::path::PathBuf; 0]);
        }
        let now = s
            .sh(&repo.dir, "cat README src/a src/b src/fixture; git status --porcelain")
            .ok()
            .out()
            .to_owned();
        assert_eq!(now, before);
    }
}

#[test]
fn r14_isolation_off_keeps_what_git_reads_in_the_tree() {
    both(|s| {
        let repo = s.repo();
        // Configuration and hooks that a project keeps in its tree, and what is not there yet.
        repo.write("conf/gitconfig", "[alias]\n\tx = status\n");
        repo.write("src/hooks/pre-commit", "#!/bin/sh\n");
        repo.commit("steering");
        repo.git_args(["config", "include.path", "../conf/gitconfig"]);
        repo.git_args(["config", "--add", "include.path", "../src/later"]);
        repo.git_args(["config", "core.hooksPath", "src/hooks"]);
        let attempts = "for f in conf/gitconfig src/hooks/pre-commit src/hooks/post-checkout src/later; do\n\
             if (echo evil >>$f) 2>/dev/null; then echo open: $f; fi; done; true";
        let said =
            off(&repo, "--role developer", &format!("{attempts}; echo x >>src/a; git status --porcelain"))
                .ok();
        assert_eq!(said.out(), " M src/a");
        let control = s.sh(&repo.dir, attempts).ok();
        assert_eq!(control.out().lines().count(), 4, "{}", control.out());

        let other = s.repo_with("other", &[]);
        other.git_args(["config", "filter.x.clean", "./tools/clean"]);
        off(&other, "--role developer", "true")
            .with(128)
            .refuses(&["isolation cannot be off", "./tools/clean"]);
    });
}

#[test]
fn nothing_lands_while_a_run_with_isolation_off_is_at_work() {
    let s = Sandbox::new();
    let repo = s.repo();
    s.run(s.dir(), "git", ["config", "--global", "agent.approve", "unattended"]).ok();
    repo.spawn("--role developer --run w", "echo x >w").ok();
    let digest = repo.show("w")["result"]["change"].as_str().unwrap().to_owned();
    repo.agent_args(["review", "w", "--approve", "--digest", &digest]).ok();
    let words = [
        "spawn",
        "--role",
        "developer",
        "--run",
        "one",
        "--",
        "sh",
        "-c",
        "echo up >src/up; while ! test -e src/go; do sleep 0.01; done",
    ];
    let mut command = repo.agent_command(words);
    command.env("GIT_AGENT_ISOLATION", "off");
    let running = Running(Some(command.spawn().unwrap()));
    eventually("it is at work", || repo.dir.join("src/up").exists());
    repo.agent("apply w").with(128).refuses(&["run 'one' is at work in this tree"]);
    repo.write("src/go", "");
    running.end().ok();
    repo.agent("apply w").ok();
}

#[test]
fn r14_a_result_over_a_limit_is_said_and_can_be_given_up() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy("version: 1\nroles:\n  developer: {kind: writer, limits: {files: 2}}\n");
    let said = off(&repo, "--role developer --run one", "for n in 1 2 3; do echo $n >src/$n; done").with(128);
    said.refuses(&["more than the limit of 2"]);
    assert_eq!(repo.state("one"), "failed");
    repo.agent("discard one").ok().says(&["stays there", "git diff"]);
    assert_eq!(repo.state("one"), "rejected");
    assert!(repo.dir.join("src/3").exists());
}
