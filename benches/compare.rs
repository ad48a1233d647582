//! Ratios against what a user would use instead, in one run on one machine: `cargo bench`.
//!
//! Pairs run alternately after a warm-up; medians and their ratio are printed as a table and, with
//! `-- --json`, as JSON. All rows are printed. The file system is named, because one without a journal or
//! in memory makes other numbers.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 9;

struct Row {
    work: String,
    ours: f64,
    theirs: f64,
    against: &'static str,
    note: String,
}

fn main() {
    let json = std::env::args().any(|a| a == "--json");
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let bench = Bench { dir: scratch.path().to_owned() };
    let mut rows = vec![bench.start()];
    for files in [1_000, 10_000] {
        let repo = bench.repository(files);
        rows.push(bench.spawn(&repo, files));
        rows.push(bench.snapshot(&repo, files));
        rows.push(bench.list(&repo, files));
    }
    for operations in [10, 1_600, 20_000] {
        rows.push(bench.apply(operations));
    }
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|r| {
                serde_json::json!({
                    "work": r.work, "ms": r.ours, "against": r.against, "against_ms": r.theirs,
                    "ratio": r.ours / r.theirs, "note": r.note,
                })
            })
            .collect();
        println!("{}", serde_json::json!({ "v": 1, "file_system": file_system(&bench.dir), "rows": rows }));
        return;
    }
    println!("file system: {}, median of {ROUNDS} alternating rounds, ms", file_system(&bench.dir));
    println!("{:44} {:>9} {:>9} {:>7}  against", "work", "git-agent", "rival", "ratio");
    for r in rows {
        println!(
            "{:44} {:9.1} {:9.1} {:6.2}x  {}{}",
            r.work,
            r.ours,
            r.theirs,
            r.ours / r.theirs,
            r.against,
            if r.note.is_empty() { String::new() } else { format!("; {}", r.note) }
        );
    }
}

struct Bench {
    dir: PathBuf,
}

impl Bench {
    fn command(&self, program: &str, dir: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &self.dir);
        command.env("XDG_STATE_HOME", self.dir.join("state")).env("GIT_CONFIG_NOSYSTEM", "1");
        for (key, value) in [("AUTHOR", "Bench"), ("COMMITTER", "Bench")] {
            command
                .env(format!("GIT_{key}_NAME"), value)
                .env(format!("GIT_{key}_EMAIL"), "bench@example.org");
        }
        command
    }

    fn git(&self, dir: &Path, args: &[&str]) {
        let status = self.command("git", dir).args(args).status().expect("git starts");
        assert!(status.success(), "git {args:?}");
    }

    fn agent(&self, dir: &Path, args: &[&str]) {
        let status =
            self.command(env!("CARGO_BIN_EXE_git-agent"), dir).args(args).status().expect("git-agent starts");
        assert!(status.success(), "git-agent {args:?}: {status}");
    }

    /// `files` files of about 2 KB in folders of 50.
    fn repository(&self, files: usize) -> PathBuf {
        let repo = self.dir.join(format!("repo-{files}"));
        std::fs::create_dir(&repo).expect("a new folder");
        self.git(&repo, &["init", "-q", "-b", "main"]);
        for n in 0..files {
            let folder = repo.join(format!("src/{}", n / 50));
            std::fs::create_dir_all(&folder).expect("a new folder");
            let line = format!("line of file {n} with words that differ: {}\n", n * 7919);
            std::fs::write(folder.join(format!("{n}.txt")), line.repeat(40)).expect("a new file");
        }
        self.git(&repo, &["add", "-A"]);
        self.git(&repo, &["commit", "-q", "-m", "first"]);
        repo
    }

    fn start(&self) -> Row {
        let (ours, theirs) =
            pair(|_| self.agent(&self.dir, &["-h"]), |_| self.git(&self.dir, &["--version"]));
        Row { work: "git-agent -h".into(), ours, theirs, against: "git --version", note: String::new() }
    }

    fn spawn(&self, repo: &Path, files: usize) -> Row {
        let before = processes();
        self.agent(repo, &["spawn", "--role", "developer", "--run", "count", "--", "true"]);
        let count = processes() - before;
        let (ours, theirs) = pair(
            |n| self.agent(repo, &["spawn", "--role", "developer", "--run", &format!("b{n}"), "--", "true"]),
            |n| {
                let path = self.dir.join(format!("wt-{files}-{n}"));
                self.git(repo, &["worktree", "add", "-q", "-b", &format!("wt{n}"), &path.to_string_lossy()]);
            },
        );
        Row {
            work: format!("spawn -- true, {files} files"),
            ours,
            theirs,
            against: "git worktree add",
            note: format!("{count} processes"),
        }
    }

    fn snapshot(&self, repo: &Path, files: usize) -> Row {
        let output = self
            .command(env!("CARGO_BIN_EXE_git-agent"), repo)
            .args(["path", "count"])
            .stdout(Stdio::piped())
            .output()
            .expect("git-agent starts");
        let tree = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let plain = self.dir.join(format!("wt-{files}-0"));
        let edit = |tree: &Path, n: usize| {
            for k in 0..10 {
                let path = tree.join(format!("src/{}/{}.txt", k, k * 50));
                std::fs::write(path, format!("round {n}\n")).expect("an edited file");
            }
        };
        let (ours, theirs) = pair(
            |n| {
                edit(&tree, n);
                self.agent(repo, &["finish", "count"]);
            },
            |n| {
                edit(&plain, n);
                self.git(&plain, &["status", "-uall", "--porcelain"]);
            },
        );
        Row {
            work: format!("finish, 10 of {files} files changed"),
            ours,
            theirs,
            against: "git status -uall",
            note: "digest, import and event included".into(),
        }
    }

    /// Half of the operations change a file, a quarter each creates and deletes one. Undone between rounds, on both sides.
    fn apply(&self, operations: usize) -> Row {
        let name = format!("repo-apply-{operations}");
        let repo = self.dir.join(&name);
        std::fs::rename(self.repository(operations * 2), &repo).expect("a name for it");
        let script = format!(
            "for n in $(seq 0 {}); do f=src/$((n / 50))/$n.txt; case $((n % 4)) in 0) rm $f;; 1) echo new >$f.new;; \
             *) echo more >>$f;; esac; done",
            operations - 1
        );
        self.agent(&repo, &["spawn", "--role", "developer", "--run", "change", "--", "bash", "-c", &script]);
        let said = |args: &[&str]| {
            let mut command = self.command(env!("CARGO_BIN_EXE_git-agent"), &repo);
            command.args(args).stdout(Stdio::piped()).output().expect("git-agent starts").stdout
        };
        let review: serde_json::Value =
            serde_json::from_slice(&said(&["review", "change", "--json"])).expect("a review");
        self.git(&repo, &["config", "--global", "agent.approve", "unattended"]);
        let digest = review["digest"].as_str().expect("a digest").to_owned();
        self.agent(&repo, &["review", "change", "--approve", "--digest", &digest]);
        let patch = self.dir.join(format!("{name}.patch"));
        std::fs::write(&patch, said(&["review", "change", "--diff"])).expect("a patch");
        let other = self.dir.join(format!("{name}-other"));
        let (from, to) = (repo.to_string_lossy(), other.to_string_lossy());
        self.git(&self.dir, &["clone", "-q", &from, &to]);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS.min(5) {
            let start = Instant::now();
            self.agent(&repo, &["apply", "change"]);
            let middle = Instant::now();
            self.git(&other, &["apply", "--whitespace=nowarn", &patch.to_string_lossy()]);
            let end = Instant::now();
            if round > 0 {
                ours.push((middle - start).as_secs_f64() * 1e3);
                theirs.push((end - middle).as_secs_f64() * 1e3);
            }
            self.agent(&repo, &["apply", "--undo", "change"]);
            self.git(&other, &["checkout", "-q", "--", "."]);
            self.git(&other, &["clean", "-qfd"]);
        }
        Row {
            work: format!("apply, {operations} operations"),
            ours: median(ours),
            theirs: median(theirs),
            against: "git apply",
            note: "journal, sync and event included".into(),
        }
    }

    fn list(&self, repo: &Path, files: usize) -> Row {
        let (ours, theirs) =
            pair(|_| self.agent(repo, &["list", "--json"]), |_| self.git(repo, &["for-each-ref"]));
        Row {
            work: format!("list, {} runs, {files} files", ROUNDS + 2),
            ours,
            theirs,
            against: "git for-each-ref",
            note: String::new(),
        }
    }
}

/// Medians in milliseconds of two kinds of work done in turn, the first round not counted.
fn pair(mut ours: impl FnMut(usize), mut theirs: impl FnMut(usize)) -> (f64, f64) {
    let mut times = (Vec::new(), Vec::new());
    for n in 0..=ROUNDS {
        let start = Instant::now();
        ours(n);
        let middle = Instant::now();
        theirs(n);
        let end = Instant::now();
        if n > 0 {
            times.0.push((middle - start).as_secs_f64() * 1e3);
            times.1.push((end - middle).as_secs_f64() * 1e3);
        }
    }
    (median(times.0), median(times.1))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Forks since boot, of the whole machine: keep it quiet.
fn processes() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    stat.lines().find_map(|l| l.strip_prefix("processes ")?.trim().parse().ok()).unwrap_or(0)
}

fn file_system(dir: &Path) -> String {
    let output = Command::new("stat").args(["-f", "-c", "%T"]).arg(dir).output();
    output.map_or_else(|_| "unknown".into(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}
