//! R03, R12, R13 and what else a policy makes of a run: setup, copies, variables, chains, limits, refs, the task
//! in the ledger, teardown.

use crate::runs_spawn::{no_debris, nothing_left};
use crate::support::{Sandbox, both, eventually, processes_of, walk};
use serde_json::json;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// A policy with the role `developer` and more.
fn policy(role: &str, rest: &str) -> String {
    format!("version: 1\nroles:\n  developer:\n    kind: writer\n{role}{rest}")
}

fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref()).unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()))
}

#[test]
fn r12_setup_runs_in_the_tree_and_in_the_cage() {
    both(|s| {
        let repo = s.repo();
        repo.write(".gitignore", "deps/\n");
        let script = "mkdir deps && pwd >deps/where && printf '%s' \"$XDG_CACHE_HOME\" >deps/cache && \
                      echo x >\"$XDG_CACHE_HOME/mine\" && env >deps/env && echo setting up";
        let outside = repo.dir.join("outside");
        let forbidden = format!("echo x >{} || echo denied >deps/denied", outside.display());
        repo.trusted_policy(&policy(
            &format!(
                "    setup:\n      run: [[sh, -c, {}], [sh, -c, {}]]\n      env: [SETUP_TOKEN, \"MODE=ci\"]\n",
                json!(script),
                json!(forbidden)
            ),
            "",
        ));
        let mut vars = repo.sandbox.vars.clone();
        vars.insert("SETUP_TOKEN".into(), "t0ken".into());
        vars.insert("OTHER_TOKEN".into(), "other".into());
        let mut command = repo.agent_command([
            "spawn",
            "--role",
            "developer",
            "--run",
            "x",
            "--",
            "sh",
            "-c",
            "test -f deps/where && test -z \"$SETUP_TOKEN\" && cat deps/where && echo y >made",
        ]);
        command.envs(&vars);
        let said = crate::support::run(command, b"").ok();
        said.says(&["setting up x: sh -c", "setting up\n"]);
        let tree = repo.tree("x");
        assert_eq!(said.out(), tree.to_str().unwrap(), "it stood in the tree");
        let run = tree.parent().unwrap();
        assert_eq!(text(tree.join("deps/cache")), run.join("cache").to_str().unwrap(), "the run's own cache");
        assert_eq!(text(run.join("cache/mine")), "x\n");
        let env = text(tree.join("deps/env"));
        assert!(env.contains("SETUP_TOKEN=t0ken\n") && env.contains("MODE=ci\n"), "{env}");
        assert!(!env.contains("OTHER_TOKEN"), "only what is named: {env}");
        assert_eq!(text(tree.join("deps/denied")), "denied\n", "in the cage");
        assert!(!outside.exists());
        // Positive control: without the cage the same attempt succeeds.
        s.sh(&repo.dir, &format!("echo x >{0} && rm {0}", outside.display())).ok();
        assert_eq!(repo.changed("x"), ["A made"], "what git ignores is no change");
        for path in walk(&tree).iter().filter(|p| p.is_symlink()) {
            let target = std::fs::canonicalize(path).unwrap();
            assert!(!target.starts_with(&repo.dir), "{} leads to the main checkout", path.display());
        }
        // The same run again: no second setup.
        let said = repo.spawn("--role developer --run x", "true").ok();
        assert!(!said.err().contains("setting up"), "{}", said.err());
    });
}

#[test]
fn r12_a_setup_that_fails_leaves_nothing() {
    both(|s| {
        let repo = s.repo();
        for (run, words) in [
            ("[[sh, -c, 'echo trying; exit 3']]", &["trying", "failed with status 3"][..]),
            ("[[\"true\"], [no-such-program]]", &["could not be started"]),
            ("[[sh, -c, 'kill -9 $$']]", &["signal 9"]),
            ("[[sleep, '600']]\n      wall: 1s", &["longer than the 1 s of 'wall'"]),
        ] {
            repo.trusted_policy(&policy(&format!("    setup:\n      run: {run}\n"), ""));
            let before = repo.fingerprint();
            let said = repo.spawn("--role developer --run x", "true").with(128);
            said.refuses(words);
            said.says(&["setup: ", "its name is free"]);
            nothing_left(&repo);
            before.unchanged(&repo.fingerprint());
        }
        repo.trusted_policy(&policy("    setup:\n      run: [[\"true\"]]\n", ""));
        repo.spawn("--role developer --run x", "echo 1 >a").ok();
        assert_eq!(repo.kinds("x"), ["spawn", "engine", "result"]);
    });
}

#[test]
fn r12_a_setup_that_is_killed_is_reclaimed() {
    both(|s| {
        let repo = s.repo();
        repo.trusted_policy(&policy(
            "    setup:\n      run: [[sh, -c, 'echo x >started; while :; do echo x >>busy; sleep 0.01; done']]\n",
            "",
        ));
        let running = repo.start("--role developer --run x", "true");
        let state = s.state();
        let find = || walk(&state).into_iter().find(|p| p.ends_with("tree/started"));
        eventually("the setup is at work", || find().is_some());
        let dir = find().unwrap().parent().unwrap().parent().unwrap().to_owned();
        // While it is at work nobody else can have the name.
        repo.spawn("--role developer --run x", "true").with(128).refuses(&["'x' is at work"]);
        running.signal(rustix::process::Signal::KILL);
        running.end().with(137);
        let said = repo.agent("list --json").ok();
        said.says(&["reclaimed half-made run x"]);
        assert_eq!(said.json()["runs"], json!([]));
        nothing_left(&repo);
        assert!(!dir.exists());
        eventually("nothing writes on", || processes_of(&dir).is_empty());
    });
}

#[test]
fn r12_what_a_setup_leaves_for_git_is_said() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.trusted_policy(&policy("    setup:\n      run: [[sh, -c, 'echo 1 >>src/a; echo 2 >new']]\n", ""));
    let said = repo.spawn("--role developer --run x", "true").ok();
    said.says(&["part of the change", "src/a", "new"]);
    assert_eq!(repo.changed("x"), ["A new", "M src/a"], "the difference starts at the base");
}

#[test]
fn r12_a_network_that_cannot_be_held_is_refused_by_name() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.trusted_policy(&policy("    setup:\n      run: [[\"true\"]]\n      network: off\n", ""));
    let ended = repo.spawn("--role developer --run x", "true");
    // A machine that holds it runs it; one that cannot must say so and leave nothing.
    if ended.status() != 0 {
        ended.with(97).refuses(&["network"]);
        nothing_left(&repo);
    } else {
        ended.ok();
    }
}

#[test]
fn r13_include_copies_what_the_policy_names() {
    both(|s| {
        let repo = s.repo();
        repo.write(".gitignore", "*.local\nfixtures/big/\n");
        repo.write("config.local", "mine\n");
        repo.write("fixtures/a.json", "{}\n");
        repo.write("fixtures/big/b.bin", "bbb\n");
        repo.write("fixtures/tool.sh", "#!/bin/sh\n");
        crate::support::set_mode(&repo.dir.join("fixtures/tool.sh"), 0o755);
        repo.write("odd [name]*.txt", "odd\n");
        let include = "include: [config.local, fixtures/, 'odd \\[name\\]\\*.txt', README]\n";
        repo.git("add .gitignore");
        repo.only_policy(&policy("", include));
        let before = repo.fingerprint();
        let script = "cat config.local fixtures/a.json fixtures/big/b.bin && test -x fixtures/tool.sh && \
                      git status --porcelain && echo changed >fixtures/a.json && echo new >new";
        let said = repo.spawn("--role developer --run x", script).ok();
        assert_eq!(said.out(), "mine\n{}\nbbb", "copied, and git sees none of it");
        assert_eq!(repo.changed("x"), ["A new"], "copies are no change");
        said.says(&["copied in were changed", "fixtures/a.json"]);
        before.unchanged(&repo.fingerprint());
        let tree = repo.tree("x");
        let (ours, theirs) = (tree.join("config.local"), repo.dir.join("config.local"));
        assert_ne!(
            std::fs::metadata(&ours).unwrap().ino(),
            std::fs::metadata(&theirs).unwrap().ino(),
            "a copy, no link"
        );
        let spawn = &repo.show("x")["events"][0]["body"]["include"];
        assert_eq!(spawn["count"], 5, "{spawn}");
        assert!(repo.agent("show x").ok().out().contains("5 files from the work tree"));
    });
}

#[test]
fn r13_what_is_missing_or_no_file_is_refused() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.write("dir/x", "x\n");
    repo.commit("dir");
    repo.git("rm -q --cached dir/x");
    repo.git_args(["commit", "-qm", "untracked"]);
    symlink("/etc/hostname", repo.dir.join("link")).unwrap();
    symlink("dir", repo.dir.join("way")).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(repo.dir.join("sock")).unwrap();
    for (include, words) in [
        ("[nowhere]", &["'nowhere'", "line 5", "does not exist"][..]),
        ("['*.nothing']", &["'*.nothing'", "matches no file"]),
        ("[gone/]", &["'gone/'", "matches no file"]),
        ("[dir]", &["'dir'", "is a folder", "'dir/'"]),
        ("[link]", &["'link'", "symbolic link"]),
        ("[way/x]", &["'way/x'", "symbolic link"]),
        ("[sock]", &["'sock'", "is not a file"]),
    ] {
        repo.only_policy(&policy("", &format!("include: {include}\n")));
        repo.agent("spawn --role developer --run x").with(128).refuses(words);
        nothing_left(&repo);
    }
}

#[test]
fn r13_a_secret_is_refused() {
    let s = Sandbox::new();
    let repo = s.repo();
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n";
    for (path, content) in [
        (".env", "A=1\n"),
        ("web/.env.production", "A=1\n"),
        ("certs/server.pem", "x\n"),
        ("deploy/id_ed25519", "x\n"),
        (".npmrc", "//registry.example/:_authToken=abc\n"),
        (".netrc", "machine x\n"),
        (".git-credentials", "https://u:p@h\n"),
        ("innocent.txt", key),
    ] {
        repo.write(path, content);
        for include in [path.to_owned(), path.split('/').next().map(|p| format!("{p}*/")).unwrap_or_default()]
        {
            if include.ends_with('/') && !path.contains('/') {
                continue;
            }
            repo.only_policy(&policy("", &format!("include: ['{include}']\n")));
            let said = repo.agent("spawn --role developer --run x").with(4);
            said.refuses(&[path, "agent.include"]);
            nothing_left(&repo);
        }
    }
    // What only looks alike passes.
    repo.write(".env.example", "A=\n");
    repo.write("web/.npmrc", "save-exact=true\n");
    repo.only_policy(&policy("", "include: [.env.example, web/.npmrc]\n"));
    repo.spawn("--role developer --run fine", "cat .env.example web/.npmrc").ok();
    // The person's own word, and only in the person's own configuration.
    repo.only_policy(&policy("", "include: [.env]\n"));
    repo.git("config agent.include .env");
    repo.agent("spawn --role developer --run x").with(4).refuses(&["agent.include"]);
    repo.git("config --unset agent.include");
    repo.git("config --global agent.include .env");
    let said = repo.spawn("--role developer --run x", "cat .env").ok();
    assert_eq!(said.out(), "A=1");
    assert_eq!(repo.changed("x"), [""; 0]);
}

#[test]
fn r13_the_list_of_other_tools() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.write(".gitignore", "*.local\n.env\n");
    repo.write(".worktreeinclude", "*.local\n!not.local\n.env\nplain\n");
    repo.commit("list");
    for name in ["a.local", "sub/b.local", "not.local", ".env", "plain"] {
        repo.write(name, "x\n");
    }
    // No policy names it.
    let said = repo.spawn("--role developer --run none", "ls a.local").with(2);
    said.says(&[".worktreeinclude is not followed"]);
    repo.only_policy(&policy("", "include: [.worktreeinclude]\n"));
    let said = repo.spawn("--role developer --run x", "ls -A . sub").ok();
    let listed: Vec<&str> = said.out().lines().collect();
    assert!(listed.contains(&"a.local") && listed.contains(&"b.local"), "{listed:?}");
    for absent in ["not.local", ".env", "plain"] {
        assert!(!listed.contains(&absent), "{absent}: {listed:?}");
    }
    said.says(&[".env was not copied", "git config --global --add agent.include .env"]);
    assert_eq!(repo.changed("x"), [""; 0]);
    // The committed list counts, not the work tree's.
    repo.write(".worktreeinclude", "plain\n");
    repo.write(".gitignore", "plain\n");
    repo.spawn("--role developer --run y", "test ! -e plain && test -e a.local").with(1);
}

const ENGINES: &str = "engines:
  first:
    command: [sh, -c, 'echo \"$1\" >>said; cp \"$2\" task.txt; echo one >first; exit 9', sh, '{task}', '{task_file}']
    decline_exit: 9
  second:
    command: [sh, -c, 'test -f first && echo \"$1\" >>said && echo two >second && exit ${STATUS:-0}', sh, '{task}']
    env: [STATUS, \"PORT={port}\", \"WHO={name}-x\"]
";

#[test]
fn r03_a_chain_hands_the_same_tree_on() {
    both(|s| {
        let repo = s.repo();
        repo.trusted_policy(&policy("    engines: [first, second]\n", ENGINES));
        let said = repo.agent("spawn --role developer --run x -m hello").ok();
        said.says(&["first declined; second goes on"]);
        assert_eq!(repo.kinds("x"), ["spawn", "engine", "result", "engine", "result"]);
        assert_eq!(repo.changed("x"), ["A first", "A said", "A second", "A task.txt"], "one tree, one diff");
        let tree = repo.tree("x");
        assert_eq!(text(tree.join("said")), "hello\nhello\n");
        assert_eq!(text(tree.join("task.txt")), "hello\n");
        let events = repo.show("x")["events"].clone();
        assert_eq!(
            (&events[1]["body"]["engine"], &events[3]["body"]["engine"]),
            (&json!("first"), &json!("second"))
        );
        assert_eq!(
            (&events[2]["body"]["declined"], &events[4]["body"]["declined"]),
            (&json!(true), &json!(null))
        );
        assert_eq!(repo.names(), ["x"]);
        let review = repo.agent("review x --json").ok().json();
        let engines: Vec<_> =
            review["engines"].as_array().unwrap().iter().map(|e| e["engine"].clone()).collect();
        assert_eq!(engines, [json!("first"), json!("second")]);
    });
}

#[test]
fn r03_the_last_one_declines_and_what_is_named_is_all() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.trusted_policy(&policy("    engines: [first, second]\n", ENGINES));
    // A status of its own means the same to whoever called.
    let with = |status: &str, options: &str| {
        let words = format!("spawn --role developer {options}");
        let mut command = repo.agent_command(words.split_ascii_whitespace());
        command.env("STATUS", status);
        crate::support::run(command, b"")
    };
    with("75", "--run x -m hello").with(75);
    assert_eq!(repo.kinds("x"), ["spawn", "engine", "result", "engine", "result"]);
    // Asked again, from the beginning; with the task it was cut with.
    with("0", "--run x").ok();
    assert_eq!(repo.kinds("x").len(), 9);
    assert_eq!(text(repo.tree("x").join("said")).lines().count(), 4);

    with("0", "--run only --engine first -m hello").with(75);
    assert_eq!(repo.kinds("only"), ["spawn", "engine", "result"]);
    assert_eq!(repo.state("only"), "proposed");
    // Taken up again, the next one goes on.
    with("0", "--run only").ok();
    let events = repo.show("only")["events"].clone();
    assert_eq!(events[3]["body"]["engine"], "second");
    assert_eq!(events.as_array().unwrap().len(), 5);

    // Two commands of the caller's.
    repo.spawn("--role developer --run two", "echo 1 >one; exit 75").with(75);
    repo.spawn("--role developer --run two", "test -f one && echo 2 >two").ok();
    assert_eq!(repo.changed("two"), ["A one", "A two"]);
}

#[test]
fn r03_an_engine_that_is_not_there_is_passed_over() {
    let s = Sandbox::new();
    let repo = s.repo();
    let engines = format!(
        "{ENGINES}  absent: {{command: [no-such-engine]}}\n  sees: {{isolation: none, command: [\"true\"]}}\n"
    );
    repo.trusted_policy(&policy("    engines: [absent, second]\n", &engines));
    let said = repo.agent("spawn --role developer --run x -m hello").with(1);
    said.says(&["engine 'absent' is passed over", "no-such-engine"]);
    assert_eq!(repo.kinds("x"), ["spawn", "engine", "result"]);
    repo.agent("spawn --role developer --run y -m hello --engine absent")
        .with(127)
        .refuses(&["no-such-engine"]);
    repo.trusted_policy(&policy("    engines: [absent]\n", &engines));
    repo.agent("spawn --role developer --run y -m hello").with(127).refuses(&["no-such-engine"]);
    assert_eq!(repo.names(), ["x"]);
}

#[test]
fn variables_name_and_port() {
    both(|s| {
        let repo = s.repo();
        let role = "    engines: [show]\n    env: [\"ROLE_PORT={port}\"]\n    setup:\n      run: [[sh, -c, 'echo $ROLE_PORT >>ports']]\n";
        let engines = "engines:\n  show:\n    command: [sh, -c, 'echo $PORT $WHO >>ports']\n    env: [\"PORT={port}\", \"WHO={name}\"]\n";
        repo.trusted_policy(&policy(role, engines));
        let mut seen = std::collections::BTreeSet::new();
        for name in ["a", "b", "c"] {
            repo.agent_args(["spawn", "--role", "developer", "--run", name]).ok();
            let port = repo.show(name)["events"][0]["body"]["port"].as_u64().unwrap();
            assert!((20_000..30_000).contains(&port), "{port}");
            assert!(seen.insert(port), "each its own");
            repo.agent_args(["spawn", "--role", "developer", "--run", name]).ok();
            let said = repo.agent_args(["exec", name, "--", "sh", "-c", "echo $ROLE_PORT"]).ok();
            assert_eq!(said.out(), port.to_string());
            let want = format!("{port}\n{port} {name}\n{port} {name}\n");
            assert_eq!(text(repo.tree(name).join("ports")), want, "stable");
        }
    });
}

#[test]
fn limits_name_themselves_and_keep_the_tree() {
    let s = Sandbox::new();
    let repo = s.repo();
    for (limit, script, what) in [
        (
            "files: 2",
            "echo 1 >a; echo 2 >b; echo 3 >c",
            "3 files, more than the limit of 2 (limits.files on line 5",
        ),
        ("lines: 4", "seq 5 >a", "5 lines, more than the limit of 4 (limits.lines on line 5"),
        ("lines: 4", "seq 2 >README; seq 2 >a", "5 lines, more than the limit of 4 (limits.lines on line 5"),
        (
            "bytes: 10",
            "echo 123456 >a; echo 123456 >b",
            "14 bytes, more than the limit of 10 (limits.bytes on line 5",
        ),
        (
            "blob: 10",
            "echo 12345678901 >a",
            "a is 12 bytes, more than the limit of 10 (limits.blob on line 5",
        ),
    ] {
        repo.policy(&policy(&format!("    limits: {{{limit}}}\n"), ""));
        let name = limit.replace(": ", "-") + &script.len().to_string();
        let said = repo.spawn(&format!("--role developer --run {name}"), script).with(128);
        said.refuses(&[what, "the tree is kept", "git agent finish"]);
        assert_eq!(repo.state(&name), "failed");
        let tree = repo.tree(&name);
        assert!(tree.join("a").exists());
        let reason = repo.show(&name)["events"][2]["body"]["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(what), "{reason}");
        // Just at the limit it passes.
        std::fs::remove_file(tree.join("a")).unwrap();
        repo.agent_args(["finish", &name]).ok();
        assert_eq!(repo.state(&name), "proposed");
    }
    repo.policy(&policy("    limits: {wall: 1s}\n", ""));
    let said = repo.spawn("--role developer --run wall", "echo 1 >a; sleep 600").with(124);
    said.says(&["limit of 1 s (limits.wall on line 5"]);
    assert_eq!(repo.changed("wall"), ["A a"], "what there was is taken");
}

#[test]
fn the_ledger_keeps_only_the_digest_of_a_task() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy(&policy("", "ledger: {task: digest}\n"));
    let secret = "the unspeakable plan";
    repo.agent_args(["spawn", "--role", "developer", "--run", "x", "-m", secret, "--", "cat", "TASK.md"])
        .ok();
    assert_eq!(text(repo.tree("x").join("TASK.md")), format!("{secret}\n"));
    let shown = repo.show("x");
    let want = git_agent::model::Digest::of(secret.as_bytes()).to_string();
    assert_eq!(shown["events"][0]["body"]["task"], json!({ "size": secret.len(), "sha256": want }));
    assert_eq!(shown["task"], json!(null));
    assert!(repo.agent("show x").ok().out().contains("not in the ledger"));
    // In no object that leaves the machine.
    let objects = repo.git("rev-list --objects --all");
    for oid in objects.lines().map(|l| l.split(' ').next().unwrap()) {
        let content = repo.sandbox.run(&repo.dir, "git", ["cat-file", "-p", oid]).ok().stdout;
        assert!(!String::from_utf8_lossy(&content).contains("unspeakable"), "{oid}");
    }
}

#[test]
fn more_refs_are_there_and_pinned() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.git("checkout -q -b release/1 main");
    repo.write("rel", "1\n");
    let release = repo.commit("release");
    repo.git("checkout -q -b side main");
    repo.write("side", "1\n");
    repo.commit("side");
    repo.git_args(["tag", "-a", "far", "-m", "far"]);
    let far = repo.git("rev-parse far^{commit}");
    repo.git("checkout -q main");
    repo.trusted_policy(&policy("", "refs: ['refs/heads/release/*', refs/tags/far]\n"));
    repo.agent("spawn --role developer --run x").ok();
    // Gone everywhere else.
    repo.git("branch -D release/1 side");
    repo.git("tag -d far");
    repo.git("reflog expire --expire=now --all");
    repo.git("gc -q --prune=now");
    let script = "git show release/1:rel far:side && git branch -a && ! git rev-parse -q --verify side";
    let said = repo.spawn("--role developer --run x", script).ok();
    assert!(said.out().contains("release/1"), "{}", said.out());
    let parents = repo.git("log --all --format=%P --grep=agent.*spawn");
    for pinned in [&release, &far] {
        assert!(parents.contains(pinned.as_str()), "{pinned} in {parents}");
    }
}

#[test]
fn risk_paths_of_the_policy_are_pointed_out() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy(&policy("", "risk: ['infra/**']\n"));
    repo.spawn("--role developer --run x", "mkdir infra && echo 1 >infra/net && echo 1 >plain").ok();
    let risks = repo.agent("review x --json").ok().json()["risks"].clone();
    assert_eq!(risks, json!([{ "path": "infra/net", "why": "risk on line 5 of the policy" }]));
}

#[test]
fn teardown_runs_before_the_tree_goes() {
    both(|s| {
        let repo = s.repo();
        let out = s.dir().join("outside");
        let teardown = format!(
            "    teardown: [[sh, -c, 'echo gone >$XDG_CACHE_HOME/x; echo x >{}'], [sh, -c, 'echo last words >&2; exit 7']]\n",
            out.display()
        );
        repo.trusted_policy(&policy(&teardown, ""));
        repo.spawn("--role developer --run x", "echo 1 >a").ok();
        let mut command = repo.agent_command(["discard", "x"]);
        command.env_remove("CI");
        let said = crate::support::run(command, b"").ok();
        said.says(&["teardown: sh -c", "failed with status 7", "last words"]);
        assert!(!out.exists(), "in the cage");
        assert_eq!(repo.state("x"), "rejected");
        // By prune, too.
        repo.trusted_policy(&policy(&teardown, "retention: {keep_tree: true}\n"));
        repo.spawn("--role developer --run y", "echo 1 >a").ok();
        repo.agent("discard y").ok().says(&["the policy keeps the tree"]);
        let tree = repo.tree("y");
        repo.agent("prune").ok().says(&["failed with status 7"]);
        assert!(!tree.exists(), "its failure stops nothing");
        let root = tree.parent().unwrap().parent().unwrap();
        eventually("the trash is empty", || std::fs::read_dir(root.join(".trash")).unwrap().count() == 0);
        no_debris(root);
    });
}
