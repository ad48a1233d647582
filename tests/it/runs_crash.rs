//! R07, R48: whatever is killed and whenever, the next command finds its way.

use crate::runs_control::written;
use crate::runs_spawn::no_debris;
use crate::support::{Repo, Sandbox, both, eventually, processes_of};
use rustix::process::Signal;
use serde_json::json;
use std::fmt::Write as _;
use std::time::Instant;

/// A repository of so many files, made in one go.
fn large(s: &Sandbox, files: usize) -> Repo<'_> {
    let repo = s.empty_repo("project", &[]);
    let mut stream = String::from("commit refs/heads/main\ncommitter T <t@example.org> 1 +0000\ndata 1\nx\n");
    for n in 0..files {
        let text = format!("file {n}\n");
        let _ = write!(stream, "M 100644 inline d{}/f{n}\ndata {}\n{text}\n", n % 100, text.len());
    }
    let mut command = s.command(&repo.dir, "git");
    command.args(["fast-import", "--quiet"]);
    crate::support::run(command, stream.as_bytes()).ok();
    repo.git("reset -q --hard");
    repo
}

/// What a name must not be after any crash: unusable.
#[track_caller]
fn name_is_free(repo: &Repo, run: &str) -> String {
    let said =
        repo.spawn(&format!("--role developer --run {run}"), "test -f d7/f7 && echo again >again").ok();
    assert_eq!(repo.state(run), "proposed");
    assert!(repo.changed(run).contains(&"A again".to_owned()));
    said.err().to_owned()
}

#[test]
fn r07_sigkill_of_spawn_at_any_point() {
    let s = Sandbox::new();
    let repo = large(&s, 10_000);
    repo.agent("spawn --role developer --run cold").ok();
    let start = Instant::now();
    repo.agent("spawn --role developer --run whole").ok();
    let whole = start.elapsed();
    let long = std::env::var_os("GIT_AGENT_LONG").is_some();
    let points: u32 = if long { 300 } else { 12 };
    let mut reclaimed = 0;
    let before = repo.fingerprint();
    for n in 0..points {
        let run = format!("k{n}");
        let running = repo.start(&format!("--role developer --run {run}"), "true");
        // Spread over the whole length and shaken by a prime, so that no run hits the same points.
        let shake = u64::from(std::process::id().wrapping_mul(7919).wrapping_add(n * 104_729) % 1000);
        let at = whole.mul_f64((f64::from(n) + shake as f64 / 1000.0) / f64::from(points));
        std::thread::sleep(at);
        running.signal(Signal::KILL);
        let status = running.end().status();
        assert!([0, 137].contains(&status), "{status}");

        // The next command, at once, while a child may still be dying.
        let said = repo.agent("list").ok();
        let reported = said.err().contains(&format!("reclaimed half-made run {run}"));
        let known = repo.names().contains(&run);
        assert!(!(reported && known), "{run} was reclaimed and is still there");
        if reported {
            reclaimed += 1;
            assert!(!repo.branches().contains(&format!("wt/{run}")), "its branch is gone");
        }
        if known {
            let state = repo.state(&run);
            assert!(["ready", "interrupted", "proposed"].contains(&state.as_str()), "{run} is {state}");
        }
        eventually("no child keeps writing", || {
            s.roots().first().is_none_or(|root| processes_of(root).is_empty())
        });
        if n % 4 == 0 || long {
            name_is_free(&repo, &run);
        }
        assert_eq!(repo.locks(), Vec::<std::path::PathBuf>::new(), "{run}");
        no_debris(&s.roots()[0]);
    }
    before.unchanged(&repo.fingerprint());
    assert!(reclaimed > 0, "void: no run was half-made");
    repo.git("fsck --no-progress --no-dangling");
}

#[test]
fn r07_every_command_that_comes_next_reports_it() {
    let s = Sandbox::new();
    let repo = large(&s, 1000);
    repo.agent("spawn --role developer --run whole").ok();
    for next in
        ["list", "show whole", "log whole", "path whole", "finish whole", "exec whole -- true", "stop whole"]
    {
        // Killed as soon as its branch is there: the tree is being filled.
        let running = repo.start("--role developer --run half", "true");
        eventually("its branch is made", || repo.dir.join(".git/refs/heads/wt/half").exists());
        running.signal(Signal::KILL);
        running.end().with(137);
        let said = repo.agent(next);
        let said = if next.starts_with("stop") { said.with(1) } else { said.ok() };
        said.says(&["reclaimed half-made run half"]);
        assert_eq!(repo.names(), ["whole"], "after {next}");
        assert_eq!(repo.branches(), ["main", "wt/whole"]);
    }
}

#[test]
fn r07_a_spawn_at_work_is_not_reclaimed() {
    let s = Sandbox::new();
    let repo = large(&s, 2000);
    let running = repo.start("--role developer --run slow", "true");
    eventually("its branch is made", || repo.dir.join(".git/refs/heads/wt/slow").exists());
    for words in ["list", "spawn --role developer --run other"] {
        let said = repo.agent(words).ok();
        assert!(!said.err().contains("reclaimed"), "{}", said.err());
    }
    running.end().ok();
    assert_eq!(repo.state("slow"), "proposed");
}

#[test]
fn r07_a_failure_half_way_leaves_nothing() {
    let s = Sandbox::new();
    let repo = s.repo();
    // A filter that fails: git stops half way through the tree.
    repo.write(".gitattributes", "*.bin filter=broken\n");
    repo.write("x.bin", "x\n");
    repo.commit("filtered");
    repo.git("config filter.broken.smudge false");
    repo.git("config filter.broken.required true");
    repo.git("read-tree HEAD");
    repo.agent("spawn --role developer --run x").with(128).refuses(&[]);
    crate::runs_spawn::nothing_left(&repo);
    repo.git("config filter.broken.smudge cat");
    repo.agent("spawn --role developer --run x").ok();
}

#[test]
fn r48_a_dead_supervisor_is_interrupted_never_running() {
    both(|s| {
        let repo = s.repo();
        let running = repo.start("--role developer --run EG-9", "echo 1 >log; trap '' TERM; sleep 1000");
        eventually("the engine is at work", || written(&repo, "EG-9", "log"));
        let tree = repo.tree("EG-9");
        running.signal(Signal::KILL);
        running.end().with(137);
        eventually("no process is left", || processes_of(&tree).is_empty());
        eventually("nobody holds the lock", || repo.state("EG-9") != "running");
        assert_eq!(repo.state("EG-9"), "interrupted");
        assert_eq!(repo.runs()[0]["live"], json!(false));
        repo.agent("stop EG-9").with(1).refuses(&["interrupted", "git agent finish EG-9"]);

        // One way on: the next engine, in the same tree.
        repo.spawn("--role developer --run EG-9", "echo 2 >>log").ok();
        assert_eq!(repo.tree("EG-9"), tree);
        assert_eq!(repo.state("EG-9"), "proposed");
        assert_eq!(repo.git("show wt/EG-9:log"), "1\n2");
        assert_eq!(repo.kinds("EG-9"), ["spawn", "engine", "engine", "result"]);

        // The other: take what is there.
        let running = repo.start("--role developer --run EG-10", "echo 1 >log; sleep 1000");
        eventually("the engine is at work", || written(&repo, "EG-10", "log"));
        running.signal(Signal::KILL);
        running.end().with(137);
        eventually("nobody holds the lock", || repo.state("EG-10") == "interrupted");
        repo.agent("finish EG-10").ok();
        assert_eq!(repo.changed("EG-10"), ["A log"]);
        let log = repo.agent("log EG-10 --json").ok().json();
        assert_eq!(log["events"][2]["body"]["ended"], json!("unseen"));
        assert_eq!(repo.names(), ["EG-10", "EG-9"]);
    });
}

#[test]
fn r48_sigkill_while_the_result_is_taken() {
    let s = Sandbox::new();
    let repo = large(&s, 500);
    repo.spawn("--role developer --run f", "echo 1 >log").ok();
    let start = Instant::now();
    repo.agent_args(["exec", "f", "--", "sh", "-c", "echo 2 >>log"]).ok();
    repo.agent("finish f").ok();
    let whole = start.elapsed();
    let points: u32 = if std::env::var_os("GIT_AGENT_LONG").is_some() { 100 } else { 6 };
    for n in 0..points {
        repo.agent_args(["exec", "f", "--", "sh", "-c", &format!("echo {n} >log")]).ok();
        let child = repo.agent_command(["finish", "f"]).spawn().unwrap();
        let running = crate::support::Running(Some(child));
        std::thread::sleep(whole.mul_f64(f64::from(n) / f64::from(points) / 2.0));
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_raw(running.pid()).unwrap(),
            Signal::KILL,
        );
        let status = running.end().status();
        assert!([0, 137].contains(&status), "{status}");
        let free = || repo.agent("finish f").status() == 0;
        eventually("the next one takes it", free);
        assert_eq!(repo.git("show wt/f:log"), n.to_string());
        assert_eq!(repo.state("f"), "proposed");
        assert_eq!(repo.git("rev-parse wt/f"), repo.show("f")["result"]["snapshot"].as_str().unwrap());
        assert_eq!(repo.locks(), Vec::<std::path::PathBuf>::new());
    }
    repo.git("fsck --no-progress --no-dangling");
}
