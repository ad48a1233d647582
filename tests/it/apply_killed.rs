//! A11: killed at any system call, at any failure of one: all old or all new after the next command. `strace` is the
//! fault injector, so the executable is the one that ships.

use crate::apply::{EVERY_PATH, EVERYTHING, approve, dirty, landed, nothing_left, others, project};
use crate::support::*;
use std::path::Path;
use std::process::Command;

/// Calls that change something, or start something that does.
const CALLS: &[&str] = &[
    "renameat2",
    "renameat",
    "rename",
    "linkat",
    "link",
    "unlinkat",
    "unlink",
    "rmdir",
    "mkdir",
    "mkdirat",
    "fsync",
    "fdatasync",
    "syncfs",
    "utimensat",
    "fchmod",
    "chmod",
    "fchown",
    "fsetxattr",
    "symlink",
    "clone3",
    "clone",
    "vfork",
    "ftruncate",
];

/// A run that is approved, in a dirty tree, and what it was like.
struct Ground<'s> {
    repo: Repo<'s>,
    before: Fingerprint,
    others: Fingerprint,
    points: usize,
    new: usize,
}

/// `git agent WORDS` under strace. Returns its status and what strace saw.
fn traced(repo: &Repo, options: &[String], words: &str) -> (i32, String) {
    let log = repo.sandbox.dir().join("strace.log");
    let mut command = Command::new("strace");
    command.arg("-o").arg(&log).args(options).arg("--");
    let ours = repo.agent_command(words.split(' '));
    command.arg(ours.get_program()).args(ours.get_args()).current_dir(&repo.dir).env_clear();
    for (key, value) in ours.get_envs() {
        command.env(key, value.unwrap());
    }
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let status = run(command, b"").status();
    (status, String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned())
}

/// Whether `git agent WORDS` was ended by SIGKILL as it entered its `n`-th such call.
pub fn killed_at(repo: &Repo, call: &str, n: usize, words: &str) -> bool {
    let options = [format!("--trace={call}"), format!("--inject={call}:signal=KILL:when={n}")];
    traced(repo, &options, words).0 == 137
}

impl<'s> Ground<'s> {
    fn new(sandbox: &'s Sandbox, script: &str) -> Self {
        let repo = project(sandbox);
        repo.spawn("--role developer --run r1", script).ok();
        approve(&repo, "r1");
        dirty(&repo);
        Self::of(repo)
    }

    fn of(repo: Repo<'s>) -> Self {
        let (before, others) = (repo.fingerprint(), others(&repo, EVERY_PATH));
        Self { repo, before, others, points: 0, new: 0 }
    }

    fn traced(&self, options: &[String], words: &str) -> (i32, String) {
        traced(&self.repo, options, words)
    }

    /// The calls of `git agent WORDS`, by name and number, in their order. It must change nothing by itself.
    fn calls(&self, words: &str) -> Vec<(String, usize)> {
        let (_, log) = self.traced(&[format!("--trace={}", CALLS.join(","))], words);
        let mut counts = std::collections::BTreeMap::new();
        let name = |line: &str| line.split_once('(').map(|(name, _)| name.trim().to_owned());
        log.lines()
            .filter_map(name)
            .filter(|n| CALLS.contains(&n.as_str()))
            .map(|n| {
                let count = counts.entry(n.clone()).or_insert(0);
                *count += 1;
                (n, *count)
            })
            .collect()
    }

    /// The calls around the event: the last program that is started before the journal goes, and the journal's going.
    fn around_the_event(&self) -> Vec<(String, usize)> {
        let (_, log) = self.traced(&[format!("--trace={}", CALLS.join(","))], "apply r1");
        let mut counts = std::collections::BTreeMap::new();
        let mut started = None;
        for line in log.lines() {
            let Some((name, _)) = line.split_once('(') else { continue };
            let count = counts.entry(name.to_owned()).or_insert(0_usize);
            *count += 1;
            if ["clone3", "clone", "vfork"].contains(&name) {
                started = Some((name.to_owned(), *count));
            }
            if name.starts_with("unlink") && line.contains("agent/apply/journal\"") {
                return started.into_iter().chain([(name.to_owned(), *count)]).collect();
            }
        }
        panic!("no journal was closed:\n{log}");
    }

    /// The same without most of those of which there are many alike.
    fn some_calls(&self, words: &str, stride: usize) -> Vec<(String, usize)> {
        let all = self.calls(words);
        let many = |call: &str| all.iter().filter(|(c, _)| c == call).count() > 12;
        let keep = |(c, n): &&(String, usize)| n % stride == 1 % stride || !many(c);
        all.iter().filter(keep).cloned().collect()
    }

    /// Ended by SIGKILL as it enters that call.
    fn kill(&self, call: &str, n: usize, words: &str) -> bool {
        killed_at(&self.repo, call, n, words)
    }

    /// The next command; then everything is old or everything is new. Whether it is new.
    #[track_caller]
    fn settles(&mut self, point: &str) -> bool {
        self.points += 1;
        self.repo.agent("list").ok();
        let new = self.repo.state("r1") == "applied";
        if new {
            self.new += 1;
            landed(&self.repo, "r1");
            self.others.unchanged(&others(&self.repo, EVERY_PATH));
        } else {
            assert_eq!(self.repo.state("r1"), "approved", "{point}");
            self.before.unchanged(&self.repo.fingerprint());
        }
        assert!(!self.repo.dir.join(".git/agent/apply/journal").exists(), "{point}");
        assert_eq!(self.repo.agent("recover").ok().out(), "nothing was interrupted here", "{point}");
        nothing_left(&self.repo);
        new
    }

    /// Back to how it was, by undoing.
    #[track_caller]
    fn undo(&self) {
        self.repo.agent("apply --undo r1").ok();
        self.before.unchanged(&self.repo.fingerprint());
        assert_eq!(self.repo.state("r1"), "approved");
    }

    #[track_caller]
    fn end(&self, what: &str) {
        // A bad state fails the test where it is found.
        eprintln!("{what}: {} points, {} of them ended as new, 0 bad states", self.points, self.new);
        assert!(self.points > 0);
    }
}

/// At the system calls of an apply of everything: at each of those that are few, at every `stride`-th of the others.
fn apply_is_killed(stride: usize) {
    let sandbox = Sandbox::new();
    let mut ground = Ground::new(&sandbox, EVERYTHING);
    let calls = ground.some_calls("apply r1", stride);
    assert!(ground.settles("not killed"));
    ground.undo();
    for (call, n) in calls {
        let point = format!("{call} {n}");
        let killed = ground.kill(&call, n, "apply r1");
        // What is not reached this time (a git that wrote no object twice) ends by itself.
        if ground.settles(&point) {
            ground.undo();
        } else {
            assert!(killed, "{point}: not killed and not landed");
        }
    }
    ground.end("apply killed");
}

#[test]
fn a11_an_apply_killed() {
    apply_is_killed(6);
}

fn undo_is_killed(stride: usize) {
    let sandbox = Sandbox::new();
    let mut ground = Ground::new(&sandbox, EVERYTHING);
    ground.repo.agent("apply r1").ok();
    let calls = ground.some_calls("apply --undo r1", stride);
    assert!(!ground.settles("not killed"));
    for (call, n) in &calls {
        if ground.repo.state("r1") != "applied" {
            ground.repo.agent("apply r1").ok();
        }
        let killed = ground.kill(call, *n, "apply --undo r1");
        let new = ground.settles(&format!("undo {call} {n}"));
        assert!(killed || !new, "undo {call} {n}: not killed and not undone");
    }
    ground.end("undo killed");
}

#[test]
fn a11_an_undo_killed() {
    undo_is_killed(8);
}

/// Killed in the middle, and again while the next command takes it back or completes it.
fn recovery_is_killed(stride: usize) {
    let sandbox = Sandbox::new();
    let mut ground = Ground::new(&sandbox, EVERYTHING);
    let calls = ground.calls("apply r1");
    ground.undo();
    // Points that leave something: half way, the last name changed, before the event and after it.
    let around = ground.around_the_event();
    ground.undo();
    let renames = calls.iter().filter(|(c, _)| c == "renameat2").count();
    let half = [("renameat2".to_owned(), renames / 3), ("renameat2".to_owned(), renames - 1)];
    for (call, n) in half.iter().chain(&around) {
        let (call, n) = (call.as_str(), *n);
        assert!(ground.kill(call, n, "apply r1"), "{call} {n}: not reached");
        let recovery = ground.calls("recover");
        if ground.settles("recovered") {
            ground.undo();
        }
        for (again, k) in recovery.iter().step_by(stride) {
            if !ground.kill(call, n, "apply r1") {
                assert!(ground.settles("not killed"));
                ground.undo();
                continue;
            }
            ground.kill(again, *k, "recover");
            if ground.settles(&format!("{call} {n}, then {again} {k} of the recovery")) {
                ground.undo();
            }
        }
    }
    ground.end("recovery killed");
}

#[test]
fn a11_a_recovery_killed() {
    recovery_is_killed(7);
}

/// Each call fails once, and from then on for good. Whatever the process says, after the next command all is old or
/// all is new.
fn calls_fail(stride: usize) {
    let sandbox = Sandbox::new();
    let mut ground = Ground::new(&sandbox, EVERYTHING);
    let faults = [
        ("renameat2", &["EIO", "EACCES"][..]),
        ("renameat", &["EIO"]),
        ("fsync", &["ENOSPC", "EIO"]),
        ("syncfs", &["EIO"]),
        ("mkdirat", &["ENOSPC", "EMFILE"]),
        ("mkdir", &["ENOSPC"]),
        ("write", &["ENOSPC"]),
        ("openat", &["EMFILE", "EACCES"]),
        ("openat2", &["EMFILE", "EIO"]),
        ("unlinkat", &["EIO"]),
        ("utimensat", &["EIO"]),
        ("fchmod", &["EACCES"]),
    ];
    for (call, errors) in faults {
        let (_, log) = ground.traced(&[format!("--trace={call}")], "apply --dry-run r1");
        let before = log.lines().filter(|l| l.starts_with(call)).count();
        let (_, log) = ground.traced(&[format!("--trace={call}")], "apply r1");
        let all = log.lines().filter(|l| l.starts_with(call)).count();
        ground.undo();
        // A dry run ends where the landing begins; few of its calls are worth a try.
        let mut numbers: Vec<usize> = (before.saturating_sub(2)..=all).filter(|n| *n > 0).collect();
        if numbers.len() > 12 {
            numbers = numbers.into_iter().step_by(stride).collect();
        }
        for (k, n) in numbers.into_iter().enumerate() {
            let error = errors[k % errors.len()];
            let ever = if k % 2 == 0 { "" } else { "+" };
            let inject = format!("--inject={call}:error={error}:when={n}{ever}");
            let (status, _) = ground.traced(&[format!("--trace={call}"), inject.clone()], "apply r1");
            let new = ground.settles(&inject);
            assert!(new || status != 0, "{inject}: said that it landed");
            if new {
                ground.undo();
            }
        }
    }
    ground.end("calls that fail");
}

#[test]
fn a10_a11_calls_that_fail() {
    calls_fail(16);
}

/// The whole matrix, for `tests/long.sh`.
#[test]
#[ignore = "takes many minutes: tests/long.sh matrix"]
fn full_matrix() {
    apply_is_killed(1);
    undo_is_killed(1);
    recovery_is_killed(1);
    calls_fail(1);
}

#[test]
fn a11_an_apply_at_work_is_left_alone() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    repo.write(".gitattributes", "a filter=slow\n");
    repo.commit("attributes");
    repo.spawn("--role developer --run r1", "echo 2 >a").ok();
    approve(&repo, "r1");
    let (gate, here) = (sandbox.dir().join("gate"), sandbox.dir().join("here"));
    let smudge =
        format!("touch {}; while [ ! -e {} ]; do sleep 0.01; done; cat", here.display(), gate.display());
    repo.git_args(["config", "filter.slow.smudge", &smudge]);
    repo.git_args(["config", "filter.slow.clean", "cat"]);
    let first = Running(Some(repo.agent_command(["apply", "r1"]).spawn().unwrap()));
    eventually("the apply is at work", || here.exists());
    assert!(repo.dir.join(".git/agent/apply/journal").exists());
    repo.agent("list").ok();
    repo.agent("review r1 --stat").ok();
    repo.agent("recover").with(1).refuses(&["is at work"]);
    assert!(Path::new(&repo.dir.join(".git/agent/apply/journal")).exists());
    std::fs::write(&gate, "").unwrap();
    first.end().ok();
    landed(&repo, "r1");
}
