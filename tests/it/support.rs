//! A person's machine in a folder: home, configuration, state, real git, the built executable. Nothing of the
//! caller's environment but `PATH` gets in.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The user that `Sandbox::as_user` works as. No account on any machine that we know of.
pub const USER: u32 = 4242;
/// How long anything that a test waits for may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Sandbox {
    dir: tempfile::TempDir,
    user: Option<u32>,
    path: OsString,
    pub vars: BTreeMap<OsString, OsString>,
}

/// Runs a session twice: as whoever runs the tests, which must be root, and as an ordinary user.
pub fn both(session: impl Fn(&Sandbox)) {
    session(&Sandbox::new());
    session(&Sandbox::as_user());
}

impl Sandbox {
    /// As whoever runs the tests.
    pub fn new() -> Self {
        Self::make(None)
    }

    /// As an unprivileged user. Needs root, to become somebody else.
    pub fn as_user() -> Self {
        assert!(is_root(), "this test becomes another user: run it as root");
        Self::make(Some(USER))
    }

    fn make(user: Option<u32>) -> Self {
        let dir = tempfile::Builder::new().prefix("git-agent-it-").tempdir().unwrap();
        set_mode(dir.path(), 0o755);
        let at = dir.path().to_owned();
        for name in ["bin", "home", "config", "state", "cache", "data", "runtime"] {
            std::fs::create_dir(at.join(name)).unwrap();
        }
        set_mode(&at.join("runtime"), 0o700);
        for program in [env!("CARGO_BIN_EXE_git-agent"), env!("CARGO_BIN_EXE_git-agent-spawn")] {
            let to = at.join("bin").join(Path::new(program).file_name().unwrap());
            // Where the target folder is private, an ordinary user could not reach it there.
            if std::fs::hard_link(program, &to).is_err() {
                std::fs::copy(program, &to).unwrap();
            }
        }
        let config = "[user]\n\tname = Tess Tester\n\temail = tess@example.org\n[init]\n\tdefaultBranch = main\n\
                      [protocol \"file\"]\n\tallow = always\n[advice]\n\tdetachedHead = false\n";
        std::fs::write(at.join("home/.gitconfig"), config).unwrap();
        let mut path = at.join("bin").into_os_string();
        path.push(":");
        // What lies in the home of whoever runs the tests is theirs: another user and the cage see none of it.
        let theirs = std::env::var_os("HOME").map(PathBuf::from).filter(|h| h.components().count() > 1);
        let all = std::env::var_os("PATH").expect("PATH");
        let all = std::env::split_paths(&all).filter(|p| theirs.as_ref().is_none_or(|h| !p.starts_with(h)));
        path.push(std::env::join_paths(all).unwrap());
        let vars = [
            ("HOME", "home"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_RUNTIME_DIR", "runtime"),
            ("GIT_CONFIG_GLOBAL", "home/.gitconfig"),
        ];
        let mut vars: BTreeMap<OsString, OsString> =
            vars.into_iter().map(|(k, v)| (k.into(), at.join(v).into_os_string())).collect();
        vars.insert("GIT_CONFIG_NOSYSTEM".into(), "1".into());
        vars.insert("LANG".into(), "C.UTF-8".into());
        let sandbox = Self { dir, user, path, vars };
        sandbox.give(sandbox.dir());
        sandbox
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn state(&self) -> PathBuf {
        self.dir().join("state")
    }

    /// The folders of runs in the state folder, one a repository.
    pub fn roots(&self) -> Vec<PathBuf> {
        let listed = std::fs::read_dir(self.state().join("git-agent")).into_iter().flatten();
        listed.map(|e| e.unwrap().path()).filter(|p| p.is_dir()).collect()
    }

    pub fn is_user(&self) -> bool {
        self.user.is_some()
    }

    /// Hands everything below `path` to the sandbox's user (the linked executables stay whose they are).
    pub fn give(&self, path: &Path) {
        let Some(uid) = self.user else { return };
        if path.starts_with(self.dir().join("bin")) {
            return;
        }
        std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
        if std::fs::symlink_metadata(path).unwrap().is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                self.give(&entry.unwrap().path());
            }
        }
    }

    /// Puts another git before every other.
    pub fn with_git(mut self, git: &Path) -> Self {
        let bin = self.dir().join("git");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(git, bin.join("git")).unwrap();
        let mut path = bin.into_os_string();
        path.push(":");
        path.push(&self.path);
        self.path = path;
        self
    }

    /// Puts a folder of programs before every other.
    pub fn with_programs(mut self, folder: &Path) -> Self {
        let mut path = folder.as_os_str().to_owned();
        path.push(":");
        path.push(&self.path);
        self.path = path;
        self
    }

    /// A shell script that stands for a program.
    pub fn program(&self, name: &str, script: &str) {
        let path = self.dir().join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        set_mode(&path, 0o755);
    }

    pub fn command(&self, dir: &Path, program: impl AsRef<OsStr>) -> Command {
        // Found in the sandbox's PATH, not in ours.
        let program = program.as_ref();
        let found = std::env::split_paths(&self.path).map(|d| d.join(program)).find(|p| p.is_file());
        let mut command = Command::new(found.as_deref().map_or(program, Path::as_os_str));
        command.arg0(program).current_dir(dir).env_clear().env("PATH", &self.path).envs(&self.vars);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(uid) = self.user {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// Runs a program to its end.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        dir: &Path,
        program: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Ended {
        let mut command = self.command(dir, program);
        command.args(args);
        run(command, b"")
    }

    /// `sh -c` outside of any cage: the positive control of an attempt.
    pub fn sh(&self, dir: &Path, script: &str) -> Ended {
        self.run(dir, "sh", ["-c", script])
    }

    /// A repository with one commit: `README`, `src/a`, `src/b`.
    pub fn repo(&self) -> Repo<'_> {
        self.repo_with("project", &[])
    }

    pub fn repo_with(&self, name: &str, init: &[&str]) -> Repo<'_> {
        let repo = self.empty_repo(name, init);
        repo.write("README", "a project\n");
        repo.write("src/a", "one\ntwo\nthree\n");
        repo.write("src/b", "b\n");
        repo.commit("first");
        repo
    }

    pub fn empty_repo(&self, name: &str, init: &[&str]) -> Repo<'_> {
        let dir = self.dir().join(name);
        let mut args = vec!["init", "-q"];
        args.extend(init);
        args.extend(["--", dir.to_str().unwrap()]);
        self.run(self.dir(), "git", args).ok();
        Repo { sandbox: self, dir }
    }
}

/// A repository, and the folder that commands are run in.
#[derive(Clone)]
pub struct Repo<'s> {
    pub sandbox: &'s Sandbox,
    pub dir: PathBuf,
}

impl<'s> Repo<'s> {
    /// The same repository seen from another folder.
    pub fn at(&self, dir: impl AsRef<Path>) -> Repo<'s> {
        let dir = self.dir.join(dir);
        Repo { sandbox: self.sandbox, dir: dir.canonicalize().unwrap_or(dir) }
    }

    pub fn git(&self, words: &str) -> String {
        self.git_args(words.split_ascii_whitespace())
    }

    pub fn git_args<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        self.sandbox.run(&self.dir, "git", args).ok().out().to_owned()
    }

    /// `git agent WORDS`, words split at spaces; what follows ` -- ` or ` -m ` is better given to `agent_args`.
    pub fn agent(&self, words: &str) -> Ended {
        self.agent_args(words.split_ascii_whitespace())
    }

    pub fn agent_args<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ended {
        run(self.agent_command(args), b"")
    }

    pub fn agent_command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.sandbox.command(&self.dir, "git-agent");
        command.args(args);
        command
    }

    /// `git agent spawn OPTIONS -- sh -c SCRIPT`: an engine that does what a shell script says.
    pub fn spawn(&self, options: &str, script: &str) -> Ended {
        let mut words: Vec<&str> = vec!["spawn"];
        words.extend(options.split_ascii_whitespace());
        words.extend(["--", "sh", "-c", script]);
        self.agent_args(words)
    }

    /// The same in the background of the test.
    pub fn start(&self, options: &str, script: &str) -> Running {
        let mut words: Vec<&str> = vec!["spawn"];
        words.extend(options.split_ascii_whitespace());
        words.extend(["--", "sh", "-c", script]);
        Running(Some(self.agent_command(words).spawn().unwrap()))
    }

    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.dir.join(path);
        let mut folder = path.parent().unwrap();
        let mut made = Vec::new();
        while !folder.exists() {
            made.push(folder.to_owned());
            folder = folder.parent().unwrap();
        }
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        made.iter().chain([&path]).for_each(|p| self.sandbox.give(p));
    }

    pub fn read(&self, path: &str) -> String {
        let path = self.dir.join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    pub fn commit(&self, message: &str) -> String {
        self.git("add -A");
        self.git_args(["commit", "-q", "--allow-empty", "-m", message]);
        self.git("rev-parse HEAD")
    }

    /// A policy, committed: only the committed one counts.
    pub fn policy(&self, text: &str) {
        self.write(".git-agent/policy.yml", text);
        self.commit("policy");
    }

    /// The same, and the person accepts it.
    pub fn trusted_policy(&self, text: &str) {
        self.policy(text);
        self.trust(text);
    }

    /// A policy and nothing else committed, and accepted.
    pub fn only_policy(&self, text: &str) {
        self.write(".git-agent/policy.yml", text);
        self.git("add .git-agent");
        self.git_args(["commit", "-q", "--allow-empty", "-m", "policy"]);
        self.trust(text);
    }

    fn trust(&self, text: &str) {
        let digest = git_agent::model::Digest::of(text.as_bytes()).to_string();
        self.agent_args(["policy", "trust", "--digest", &digest]).ok();
    }

    /// `list --json`, all runs.
    pub fn runs(&self) -> Vec<serde_json::Value> {
        let listing = self.agent("list --all --json").ok().json();
        assert_eq!(listing["v"], 1);
        for kind in ["unknown", "broken", "orphans"] {
            assert_eq!(listing[kind], serde_json::json!([]), "{kind}");
        }
        listing["runs"].as_array().unwrap().clone()
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.runs().iter().map(|r| r["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    pub fn show(&self, run: &str) -> serde_json::Value {
        self.agent_args(["show", run, "--json"]).ok().json()
    }

    pub fn state(&self, run: &str) -> String {
        self.show(run)["state"].as_str().unwrap().to_owned()
    }

    /// Kinds of a run's events, oldest first.
    pub fn kinds(&self, run: &str) -> Vec<String> {
        let log = self.agent_args(["log", run, "--json"]).ok().json();
        log["events"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap().to_owned()).collect()
    }

    /// A run's tree.
    pub fn tree(&self, run: &str) -> PathBuf {
        PathBuf::from(self.agent_args(["path", run]).ok().out())
    }

    /// What a run changed, as `git diff-tree` has it: `A new`, `M src/a`.
    pub fn changed(&self, run: &str) -> Vec<String> {
        let shown = self.show(run);
        let [base, snapshot] = [&shown["base"], &shown["result"]["snapshot"]].map(|v| v.as_str().unwrap());
        assert_eq!(
            self.git_args(["rev-parse", &format!("{snapshot}^@")]),
            base,
            "the base is its only parent"
        );
        self.git_args(["diff-tree", "-r", "--no-renames", "--name-status", base, snapshot])
            .lines()
            .map(|l| l.replace('\t', " "))
            .collect()
    }

    pub fn branches(&self) -> Vec<String> {
        self.git("for-each-ref --format=%(refname:short) refs/heads/").lines().map(str::to_owned).collect()
    }

    /// Everything of this repository that a run must leave alone: the whole work tree, and of `.git` what a
    /// person would notice. Objects, refs of runs and `agent/` are ours to add to.
    pub fn fingerprint(&self) -> Fingerprint {
        let git_dir = PathBuf::from(self.git("rev-parse --path-format=absolute --git-common-dir"));
        fingerprint(&self.dir, |path| {
            let Ok(inside) = path.strip_prefix(&git_dir) else { return true };
            let first = inside.components().next().map(|c| c.as_os_str().as_bytes());
            // git itself touches the shared part of a split index whenever it reads it.
            if first.is_some_and(|f| f.starts_with(b"sharedindex.")) {
                return false;
            }
            // The folder's own time changes when `agent/` or a lock file comes.
            !matches!(
                first,
                None | Some(b"objects" | b"refs" | b"logs" | b"agent" | b"reftable" | b"packed-refs")
            )
        })
    }

    /// The same without the named file of the git directory, where the test itself writes.
    pub fn fingerprint_but(&self, name: &str) -> Fingerprint {
        let mut all = self.fingerprint();
        all.0.retain(|p, _| !p.ends_with(Path::new(".git").join(name)));
        all
    }

    /// Files named `*.lock` anywhere in `.git` that git would stumble over.
    pub fn locks(&self) -> Vec<PathBuf> {
        let git_dir = PathBuf::from(self.git("rev-parse --path-format=absolute --git-common-dir"));
        let mut found: Vec<PathBuf> =
            walk(&git_dir).into_iter().filter(|p| p.extension().is_some_and(|e| e == "lock")).collect();
        // The name of ours that says so: a lock is held by a descriptor, the file stays.
        found.retain(|p| !p.ends_with("agent/id.lock"));
        found
    }
}

/// A program that ended. What it said is had only through a word on its exit status.
#[must_use = "the exit status must be asserted"]
pub struct Ended {
    shown: String,
    status: i32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Ended {
    /// Exit status 0.
    #[track_caller]
    pub fn ok(self) -> Said {
        self.with(0)
    }

    /// This exit status; 128 + n for signal n, as a shell has it.
    #[track_caller]
    pub fn with(self, status: i32) -> Said {
        assert!(
            self.status == status,
            "{}\nexit status {} instead of {status}\n-- stdout\n{}\n-- stderr\n{}",
            self.shown,
            self.status,
            String::from_utf8_lossy(&self.stdout),
            String::from_utf8_lossy(&self.stderr)
        );
        Said { shown: self.shown, stdout: self.stdout, stderr: self.stderr }
    }

    /// For a test where more than one is right; it asserts afterwards.
    pub fn status(&self) -> i32 {
        self.status
    }

    /// Any exit status but 0.
    #[track_caller]
    pub fn fails(self) -> Said {
        assert!(self.status != 0, "{} did not fail:\n{}", self.shown, String::from_utf8_lossy(&self.stdout));
        let status = self.status;
        self.with(status)
    }
}

/// What a program said.
pub struct Said {
    shown: String,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Said {
    /// Standard output without the final line feed.
    pub fn out(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap().trim_end_matches('\n')
    }

    pub fn err(&self) -> &str {
        std::str::from_utf8(&self.stderr).unwrap().trim_end_matches('\n')
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.out().lines().count(), 1, "{}: one line of JSON: {:?}", self.shown, self.out());
        serde_json::from_slice(&self.stdout).unwrap()
    }

    /// stderr holds each of these.
    #[track_caller]
    pub fn says(&self, words: &[&str]) -> &Self {
        for word in words {
            assert!(self.err().contains(word), "{}\nsays nothing of '{word}':\n{}", self.shown, self.err());
        }
        self
    }

    /// A refusal in git's voice: one sentence and nothing on stdout, no panic.
    #[track_caller]
    pub fn refuses(&self, words: &[&str]) -> &Self {
        assert_eq!(self.out(), "", "{}: a refusal answers nothing", self.shown);
        let first = ["fatal: ", "error: ", "usage: "];
        assert!(self.err().lines().any(|l| first.iter().any(|f| l.starts_with(f))), "{}", self.err());
        assert!(!self.err().contains("panicked"), "{}", self.err());
        self.says(words)
    }
}

pub fn run(mut command: Command, input: &[u8]) -> Ended {
    let mut shown = String::from("$");
    for word in std::iter::once(command.get_program()).chain(command.get_args()) {
        let _ = write!(shown, " {}", word.to_string_lossy());
    }
    if !input.is_empty() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{shown}: {e}"));
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input is fine here.
        let _ = stdin.write_all(input);
    }
    finished(child, shown)
}

fn finished(child: Child, shown: String) -> Ended {
    let output = child.wait_with_output().unwrap();
    let status = output.status;
    let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap());
    Ended { shown, status, stdout: output.stdout, stderr: output.stderr }
}

/// A program at work. It is ended with the test, whatever happens.
pub struct Running(pub Option<Child>);

impl Running {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.as_ref().unwrap().id()).unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn end(mut self) -> Ended {
        finished(self.0.take().unwrap(), "$ (in the background)".into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for a condition, never for a time.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes whose command line or working folder names `path`.
pub fn processes_of(path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if !entry.file_name().as_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let needle = path.as_os_str().as_bytes();
        if line.windows(needle.len()).any(|w| w == needle) || cwd.starts_with(path) {
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            found.push(format!("{} {line}", entry.file_name().to_string_lossy()));
        }
    }
    found
}

/// One entry: kind and mode, owner, size, mtime, inode, and content (bytes, or where a link leads).
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    inode: (u64, u64),
    content: Vec<u8>,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let content = String::from_utf8_lossy(&self.content[..self.content.len().min(60)]);
        write!(f, "{:o} {:?} {:?} {:?} {content:?}", self.mode, self.owner, self.mtime, self.inode)
    }
}

/// A tree as it is, to be compared with what it is later.
#[derive(Clone)]
pub struct Fingerprint(BTreeMap<PathBuf, Trace>);

impl Fingerprint {
    /// The same without these paths.
    pub fn without(&self, paths: &[PathBuf]) -> Fingerprint {
        Fingerprint(
            self.0.iter().filter(|(p, _)| !paths.contains(p)).map(|(p, t)| (p.clone(), t.clone())).collect(),
        )
    }

    #[track_caller]
    pub fn unchanged(&self, now: &Fingerprint) {
        let mut report = String::new();
        for path in self.0.keys().chain(now.0.keys().filter(|p| !self.0.contains_key(*p))) {
            let (before, after) = (self.0.get(path), now.0.get(path));
            if before != after {
                let _ = writeln!(report, "{}\n  before {before:?}\n  after  {after:?}", path.display());
            }
        }
        assert!(report.is_empty(), "changed outside:\n{report}");
    }
}

pub fn fingerprint(root: &Path, wanted: impl Fn(&Path) -> bool) -> Fingerprint {
    let mut all = BTreeMap::new();
    for path in walk(root) {
        if !wanted(&path) {
            continue;
        }
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_file() {
            std::fs::read(&path).unwrap()
        } else if meta.is_symlink() {
            std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else {
            Vec::new()
        };
        let trace = Trace {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            inode: (meta.dev(), meta.ino()),
            content,
        };
        all.insert(path, trace);
    }
    Fingerprint(all)
}

/// A folder and everything below it, without following links.
pub fn walk(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut next = 0;
    while next < found.len() {
        let path = found[next].clone();
        next += 1;
        if std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir()) {
            // A folder that vanishes meanwhile is somebody else's business.
            let Ok(entries) = std::fs::read_dir(&path) else { continue };
            found.extend(entries.flatten().map(|e| e.path()));
        }
    }
    found
}

pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Every git on this machine, with its version.
pub fn gits() -> Vec<(PathBuf, (u32, u32))> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/bin", "/usr/bin"].map(PathBuf::from);
    let mut found: Vec<(PathBuf, (u32, u32))> = Vec::new();
    for git in std::env::split_paths(&path).chain(more).map(|d| d.join("git")).filter(|p| p.is_file()) {
        let said = Command::new(&git).arg("version").output().unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        let mut numbers = text.trim_start_matches("git version ").split('.').map(|n| n.parse().unwrap_or(0));
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        if found.iter().all(|(_, v)| *v != version) {
            found.push((git, version));
        }
    }
    found
}

/// A small file system of its own, gone with the value. Needs root.
pub struct Mounted(PathBuf);

impl Mounted {
    pub fn tmpfs(at: &Path, options: &str) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let said =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output().unwrap();
        assert!(said.status.success(), "mount: {}", String::from_utf8_lossy(&said.stderr));
        Self(at.to_owned())
    }

    pub fn read_only(&self) {
        // A process that still ends (a background deletion, a reaped engine) keeps it busy for a moment.
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let said = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).output().unwrap();
            if said.status.success() {
                return;
            }
            assert!(Instant::now() < until, "remount: {}", String::from_utf8_lossy(&said.stderr));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
