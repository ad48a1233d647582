//! An engine's end and a person's means: exit statuses, time limits, stop, detach, finish, exec.

use crate::runs_spawn::nothing_left;
use crate::support::{Sandbox, both, eventually, processes_of};
use rustix::process::Signal;
use serde_json::json;

#[test]
fn the_engines_status_is_passed_on() {
    both(|s| {
        let repo = s.repo();
        for status in [0, 42, 75, 127, 255] {
            let run = format!("e{status}");
            repo.spawn(&format!("--role developer --run {run}"), &format!("exit {status}")).with(status);
            let log = repo.agent_args(["log", &run, "--json"]).ok().json();
            assert_eq!(log["events"][2]["body"]["ended"], json!({ "exit": status }));
            assert_eq!(repo.state(&run), "proposed");
        }
        for (signal, number) in [("TERM", 15), ("KILL", 9)] {
            let run = format!("s{number}");
            repo.spawn(&format!("--role developer --run {run}"), &format!("echo x >x; kill -{signal} $$"))
                .with(128 + number);
            let log = repo.agent_args(["log", &run, "--json"]).ok().json();
            assert_eq!(log["events"][2]["body"]["ended"], json!({ "signal": number }));
            assert_eq!(repo.changed(&run), ["A x"]);
        }
    });
}

#[test]
fn a_program_that_is_not_there_is_refused_before_anything_is_made() {
    let s = Sandbox::new();
    let repo = s.repo();
    let spawn = |words: &[&str]| repo.agent_args([&["spawn", "--role", "developer"][..], words].concat());
    spawn(&["--", "no-such-engine", "x"]).with(127).refuses(&["'no-such-engine'", "hint: "]);
    spawn(&["--", "/nowhere/engine"]).with(127).refuses(&["'/nowhere/engine'"]);
    spawn(&["--", repo.dir.join("README").to_str().unwrap()]).with(126).refuses(&["not an executable file"]);
    spawn(&["--", "/"]).with(126).refuses(&[]);
    // Presets whose client is not installed here.
    spawn(&["--engine", "qwen-code", "-m", "x"]).with(127).refuses(&["'qwen'", "qwen-code"]);
    spawn(&["--engine", "nonsense"]).with(128).refuses(&["no engine 'nonsense'"]);
    spawn(&["--engine", "claude"]).with(128).refuses(&["did you mean claude-code"]);
    spawn(&["--engine", "claude-code"]).with(129).refuses(&["needs a task"]);
    spawn(&["--engine", "command"]).with(129).refuses(&["needs a command"]);
    spawn(&["--task", "no-such-file", "--", "true"]).with(128).refuses(&["no-such-file"]);
    spawn(&["--task", "/dev/zero", "--", "true"]).with(128).refuses(&["16384"]);
    spawn(&["--task", "README", "-m", "x", "--", "true"]).with(129).refuses(&["--task"]);
    spawn(&["--timeout", "soon", "--", "true"]).with(129).refuses(&["soon"]);
    spawn(&["--run", "x", "--cr", "y", "--", "true"]).with(129).refuses(&["--cr"]);
    nothing_left(&repo);
    // A path is relative to the tree.
    repo.write("tools/engine", "#!/bin/sh\necho hello >hello\n");
    crate::support::set_mode(&repo.dir.join("tools/engine"), 0o755);
    repo.commit("engine");
    spawn(&["--run", "x", "--", "./tools/engine"]).ok();
    assert_eq!(repo.changed("x"), ["A hello"]);
    // What cannot be known before the tree is there leaves a run, and env(1)'s status.
    spawn(&["--run", "y", "--", "./tools/none"]).with(127);
    spawn(&["--run", "z", "--", "./README"]).with(126);
}

#[test]
fn the_task_by_each_way() {
    let s = Sandbox::new();
    let repo = s.repo();
    let engine = ["--", "cat", "TASK.md"];
    let task = |words: &[&str]| {
        let words = [&["spawn", "--role", "developer"][..], words, &engine].concat();
        repo.agent_args(words).ok().out().to_owned()
    };
    assert_eq!(task(&["-m", "one", "-m", "two\nthree"]), "one\n\ntwo\nthree");
    repo.write("task.txt", "from a file\n");
    assert_eq!(task(&["--task", "task.txt"]), "from a file");
    assert_eq!(task(&[]), "No task was given.");
    let command = repo.agent_command([
        "spawn",
        "--role",
        "developer",
        "--run",
        "in",
        "--task",
        "-",
        "--",
        "cat",
        "TASK.md",
    ]);
    assert_eq!(crate::support::run(command, b"from stdin").ok().out(), "from stdin");
    assert_eq!(repo.show("in")["task"], json!("from stdin"));
    // Bytes that are no text, and those that would speak to a terminal, stay where they belong.
    let command = repo.agent_command([
        "spawn",
        "--role",
        "developer",
        "--run",
        "raw",
        "--task",
        "-",
        "--",
        "cat",
        "TASK.md",
    ]);
    let said = crate::support::run(command, b"\x1b]0;title\x07 \xff\n").ok();
    assert_eq!(said.stdout, b"\x1b]0;title\x07 \xff\n");
    let shown = repo.agent("show raw").ok();
    assert!(!shown.stdout.contains(&0x1b) && !shown.stdout.contains(&0x07), "{:?}", shown.out());
}

#[test]
fn a_wall_clock_ends_the_run_and_all_its_processes() {
    both(|s| {
        let repo = s.repo();
        let engine = "echo x >x; (trap '' TERM; setsid sleep 1000) & sleep 1000";
        repo.spawn("--role developer --run slow --timeout 1s", engine).with(124).says(&["slow"]);
        let log = repo.agent("log slow --json").ok().json();
        assert_eq!(log["events"][2]["body"]["ended"], json!({ "timeout": 1 }));
        assert_eq!(repo.changed("slow"), ["A x"]);
        assert_eq!(processes_of(&repo.tree("slow")), [""; 0]);
    });
    let s = Sandbox::new();
    let repo = s.repo();
    // As the manual page has them.
    for length in ["90s", "1h30m"] {
        repo.spawn(&format!("--role developer --timeout {length}"), "true").ok();
    }
    // The policy's limit holds where the person's is longer.
    repo.policy("version: 1\nroles:\n  developer:\n    kind: writer\n    limits: {wall: 1s}\n");
    repo.spawn("--role developer --timeout 1h", "sleep 1000").with(124);
    repo.spawn("--role developer", "sleep 1000").with(124);
}

#[test]
fn what_the_engine_leaves_behind_ends_with_it() {
    both(|s| {
        let repo = s.repo();
        let engine = "(setsid sh -c 'trap \"\" HUP TERM; sleep 1000' >/dev/null 2>&1 &) ; echo x >x";
        repo.spawn("--role developer --run d", engine).ok();
        assert_eq!(processes_of(&repo.tree("d")), [""; 0]);
        assert_eq!(repo.state("d"), "proposed");
    });
}

#[test]
fn sigterm_to_the_supervisor_records_a_result() {
    for signal in [Signal::TERM, Signal::HUP] {
        let s = Sandbox::new();
        let repo = s.repo();
        let running = repo.start("--role developer --run t", "echo x >x; echo; sleep 1000");
        eventually("the engine is at work", || {
            s.state().join("git-agent").exists() && written(&repo, "t", "x")
        });
        assert_eq!(repo.state("t"), "running");
        running.signal(signal);
        let status = running.end();
        assert!([143, 129].contains(&status.status()), "{}", status.status());
        assert_eq!(repo.state("t"), "proposed");
        assert_eq!(repo.changed("t"), ["A x"]);
        let log = repo.agent("log t --json").ok().json();
        assert_eq!(log["events"][2]["body"]["ended"], json!("stopped"));
        assert_eq!(processes_of(&repo.tree("t")), [""; 0]);
    }
}

/// Whether the engine of a run has written a file.
pub fn written(repo: &crate::support::Repo, run: &str, path: &str) -> bool {
    repo.sandbox
        .roots()
        .iter()
        .any(|root| std::fs::metadata(root.join(run).join("tree").join(path)).is_ok_and(|m| m.len() > 0))
}

#[test]
fn stop_ends_a_run_from_elsewhere() {
    both(|s| {
        let repo = s.repo();
        repo.agent("stop nothing").with(128).refuses(&["nothing"]);
        let running = repo.start("--role developer --run t", "trap '' TERM; echo x >x; sleep 1000");
        eventually("the engine is at work", || written(&repo, "t", "x"));
        // At work: nobody else gets in, and the list says so.
        for words in ["finish t", "spawn --role developer --run t", "exec t -- true"] {
            repo.agent(words).with(128).refuses(&["'t' is at work", "git agent stop t"]);
        }
        assert_eq!(repo.runs()[0]["live"], json!(true));
        repo.at("src").agent("stop t").ok().says(&["stopped run t: proposed"]);
        running.end().with(143);
        assert_eq!(repo.state("t"), "proposed");
        assert_eq!(repo.changed("t"), ["A x"]);
        repo.agent("stop t").with(1).refuses(&["'t' is not at work"]);
        assert_eq!(repo.kinds("t"), ["spawn", "engine", "result"]);
    });
}

#[test]
fn a_detached_run_goes_on_by_itself() {
    both(|s| {
        let repo = s.repo();
        let engine = "echo said; echo x >x; while ! test -e go; do sleep 0.02; done; rm go; echo y >y";
        let said = repo.spawn("--role developer --run bg --detach", engine).ok();
        assert_eq!(said.out(), "bg");
        eventually("the engine is at work", || written(&repo, "bg", "x"));
        assert_eq!(repo.state("bg"), "running");
        std::fs::write(repo.tree("bg").join("go"), "").unwrap();
        eventually("it ends", || repo.state("bg") == "proposed");
        assert_eq!(repo.changed("bg"), ["A x", "A y"]);
        let shown = repo.agent("show bg").ok();
        let log = shown.out().lines().find_map(|l| l.strip_prefix("Output:")).unwrap().trim();
        assert!(std::fs::read_to_string(log).unwrap().contains("said"));

        let said = repo.spawn("--role developer --run st --detach --json", "echo x >x; sleep 1000").ok();
        assert_eq!(said.json()["name"], json!("st"));
        eventually("the engine is at work", || written(&repo, "st", "x"));
        repo.agent("stop st").ok();
        assert_eq!(repo.state("st"), "proposed");
        assert_eq!(processes_of(&repo.tree("st")), [""; 0]);
    });
}

#[test]
fn finish_is_repeatable() {
    both(|s| {
        let repo = s.repo();
        repo.agent("spawn --role developer --run f").ok();
        repo.agent_args(["exec", "f", "--", "sh", "-c", "echo x >x; exit 3"]).with(3);
        assert_eq!(repo.kinds("f"), ["spawn"], "exec appends nothing");
        let first = repo.agent("finish f --json").ok().json();
        assert_eq!(first["unchanged"], json!(false));
        assert_eq!(repo.kinds("f"), ["spawn", "result"]);
        let again = repo.agent("finish f --json").ok();
        again.says(&["nothing new"]);
        let again = again.json();
        assert_eq!(again["unchanged"], json!(true));
        for key in ["snapshot", "change", "files"] {
            assert_eq!(first[key], again[key], "{key}");
        }
        assert_eq!(repo.kinds("f"), ["spawn", "result"], "the second appends nothing");
        // A touched file that holds the same is nothing new either.
        repo.agent("exec f -- touch README x").ok();
        assert_eq!(repo.agent("finish f --json").ok().json()["unchanged"], json!(true));
        repo.agent("exec f -- rm x").ok();
        assert_eq!(repo.agent("finish f --json").ok().json()["files"], json!(0));
        assert_eq!(repo.git("rev-parse wt/f^{tree}"), repo.git("rev-parse main^{tree}"));
        repo.agent("finish nothing").with(128).refuses(&["nothing"]);
    });
}

#[test]
fn a_branch_that_somebody_moved_is_left_alone() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run m", "echo x >x").ok();
    repo.write("README", "2\n");
    let mine = repo.commit("mine");
    repo.git("branch -f wt/m main");
    repo.spawn("--role developer --run m", "echo y >y").ok().says(&["wt/m was moved by somebody else"]);
    assert_eq!(repo.git("rev-parse wt/m"), mine);
    assert_eq!(repo.changed("m"), ["A x", "A y"]);
    repo.git("branch -D wt/m");
    repo.spawn("--role developer --run m", "echo z >z").ok().says(&["wt/m was deleted by somebody else"]);
    assert_eq!(repo.branches(), ["main"]);
    assert_eq!(repo.changed("m"), ["A x", "A y", "A z"]);
}

#[test]
fn exec_and_shell_are_in_the_cage_and_pass_the_status() {
    both(|s| {
        let repo = s.repo();
        repo.agent("spawn --role developer --run e").ok();
        repo.agent("exec e -- false").with(1);
        repo.agent("exec e -- sh -c 'exit").fails();
        repo.agent("exec e -- no-such-program").with(127);
        repo.agent("exec e").with(129).refuses(&["COMMAND"]);
        repo.agent("exec nothing -- true").with(128).refuses(&["nothing"]);
        // Outside is out of reach; the control shows that the attempt itself is sound.
        let target = repo.dir.join("README");
        let attempt = format!("echo evil >>{}", target.display());
        let before = repo.fingerprint();
        repo.agent_args(["exec", "e", "--", "sh", "-c", &attempt]).fails();
        before.unchanged(&repo.fingerprint());
        let mut shell = repo.agent_command(["shell", "e"]);
        shell.env("SHELL", "/bin/sh");
        let script = format!("{attempt}\necho inside >inside\nexit 7\n");
        crate::support::run(shell, script.as_bytes()).with(7).says(&["git agent finish e"]);
        before.unchanged(&repo.fingerprint());
        repo.agent("finish e").ok();
        assert_eq!(repo.changed("e"), ["A inside"]);
        s.sh(&repo.dir, &attempt).ok();
        assert_eq!(repo.read("README"), "a project\nevil\n");
    });
}

#[test]
fn a_run_does_not_spawn_runs() {
    both(|s| {
        let repo = s.repo();
        // Whatever it is that refuses, the engine sees a failure and outside nothing is made.
        let program = s.dir().join("bin/git-agent");
        let engine = format!(
            "{0} spawn --role developer --run inner -- true; echo $? >status; cd {1} && {0} spawn --role developer --run inner2 -- true",
            program.display(),
            repo.dir.display()
        );
        let before = repo.fingerprint();
        let said = repo.spawn("--role developer --run outer", &engine).fails();
        assert!(said.err().contains("a run does not spawn runs"), "{}", said.err());
        assert_eq!(repo.names(), ["outer"]);
        assert_eq!(repo.git("show wt/outer:status"), "128");
        before.unchanged(&repo.fingerprint());
        assert_eq!(repo.branches(), ["main", "wt/outer"]);
    });
}
