//! One git process: scrubbed environment, fixed settings, bounded answers.

use super::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Most bytes of an answer that we hold in memory. 100,000 paths of 100 bytes are 10 MB.
const ANSWER_LIMIT: usize = 256 << 20;
/// Most bytes of git's talk that we keep for an error message.
const TALK_LIMIT: usize = 4096;

/// Settings that hold for every call, whatever any configuration file says.
const FIXED: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "gc.auto=0",
    "maintenance.auto=false",
    "core.filesRefLockTimeout=10000",
    "core.packedRefsTimeout=10000",
    "reftable.lockTimeout=10000",
    "submodule.recurse=false",
    "protocol.allow=never",
    "advice.detachedHead=false",
];

/// `GIT_*` variables that pass: they say how git works on this machine, not on what.
const KEEP: &[&str] =
    &["GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_TEMPLATE_DIR"];

/// And those that say how a person reaches a remote.
const REMOTE: &[&str] = &[
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_ASKPASS",
    "GIT_TERMINAL_PROMPT",
    "GIT_PROXY_COMMAND",
    "GIT_SSL_CAINFO",
    "GIT_ALLOW_PROTOCOL",
];

/// Where a call works. Everything explicit, so that nothing is discovered in a folder somebody else fills.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// `GIT_DIR`.
    pub git_dir: Option<PathBuf>,
    /// `GIT_WORK_TREE`.
    pub work_tree: Option<PathBuf>,
    /// `GIT_INDEX_FILE`.
    pub index: Option<PathBuf>,
    /// `GIT_OBJECT_DIRECTORY`.
    pub objects: Option<PathBuf>,
    /// The one folder in `GIT_ALTERNATE_OBJECT_DIRECTORIES`.
    pub alternates: Option<PathBuf>,
}

/// A path as that variable wants it: in double quotes, so that a colon in it separates nothing (git(1)).
fn alternate(path: &Path) -> OsString {
    let mut quoted = vec![b'"'];
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}

/// A git command line being built. Data arguments follow `--` or `--end-of-options`.
#[derive(Debug)]
pub struct Call {
    verb: String,
    command: Command,
    /// Applied last, so that a cage that clears the environment keeps what the call says.
    env: Vec<(OsString, OsString)>,
    input: Option<Vec<u8>>,
    limit: usize,
    time: Option<Duration>,
}

/// What git answered with a status below 128.
#[derive(Debug)]
pub struct Answer {
    verb: String,
    /// Exit status, 0 to 127.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error, bounded; untrusted text, for showing only.
    pub stderr: String,
}

impl Call {
    /// `git <verb>` at a place.
    pub fn new(verb: &str, place: &Place) -> Self {
        Self::with_settings(verb, place, &[])
    }

    /// A call that talks to a remote as the person's own `git push` does: their protocols, credentials, prompts
    /// and hooks.
    pub(super) fn to_remote(verb: &str, place: &Place) -> Self {
        let ours = |s: &&&str| !s.starts_with("protocol.") && !s.starts_with("core.hooksPath");
        let fixed: Vec<&str> = FIXED.iter().filter(ours).copied().collect();
        let mut call = Self::build(verb, place, &fixed, REMOTE);
        call.env.retain(|(k, _)| k != "GIT_TERMINAL_PROMPT");
        call
    }

    /// The same with more `-c` settings.
    pub fn with_settings(verb: &str, place: &Place, settings: &[&str]) -> Self {
        let all: Vec<&str> = FIXED.iter().chain(settings).copied().collect();
        Self::build(verb, place, &all, &[])
    }

    fn build(verb: &str, place: &Place, settings: &[&str], keep: &[&str]) -> Self {
        let mut command = Command::new("git");
        for (key, _) in std::env::vars_os() {
            let kept = KEEP.iter().chain(keep).any(|k| OsStr::new(k) == key);
            if key.as_encoded_bytes().starts_with(b"GIT_") && !kept {
                command.env_remove(key);
            }
        }
        let mut env: Vec<(OsString, OsString)> = [
            ("LC_ALL", "C.UTF-8"),
            ("LANGUAGE", "C"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ADVICE", "0"),
        ]
        .map(|(k, v)| (k.into(), v.into()))
        .into();
        for setting in settings {
            command.args(["-c", setting]);
        }
        for (key, value) in [
            ("GIT_DIR", &place.git_dir),
            ("GIT_WORK_TREE", &place.work_tree),
            ("GIT_INDEX_FILE", &place.index),
            ("GIT_OBJECT_DIRECTORY", &place.objects),
        ] {
            if let Some(value) = value {
                env.push((key.into(), value.into()));
            }
        }
        if let Some(value) = &place.alternates {
            env.push(("GIT_ALTERNATE_OBJECT_DIRECTORIES".into(), alternate(value)));
        }
        command.arg(verb);
        Self { verb: verb.to_owned(), command, env, input: None, limit: ANSWER_LIMIT, time: None }
    }

    /// git as the person calls it: their settings, hooks, identity, signing, terminal and language. Only what says
    /// *on what* git works is ours: the environment's own word on that (git-rev-parse(1), `--local-env-vars`) is
    /// taken out, and nothing is said where git finds the same by itself.
    pub fn as_person(verb: &str, place: &Place) -> Self {
        const LOCAL: &[&str] = &[
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            "GIT_CONFIG",
            "GIT_OBJECT_DIRECTORY",
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_IMPLICIT_WORK_TREE",
            "GIT_GRAFT_FILE",
            "GIT_INDEX_FILE",
            "GIT_NO_REPLACE_OBJECTS",
            "GIT_REPLACE_REF_BASE",
            "GIT_PREFIX",
            "GIT_SHALLOW_FILE",
            "GIT_COMMON_DIR",
            "GIT_INTERNAL_SUPER_PREFIX",
        ];
        let mut command = Command::new("git");
        for name in LOCAL {
            command.env_remove(name);
        }
        let mut env: Vec<(OsString, OsString)> = Vec::new();
        if std::env::var_os("GIT_DIR").is_some() {
            env.extend(place.git_dir.iter().map(|v| ("GIT_DIR".into(), v.into())));
            env.extend(place.work_tree.iter().map(|v| ("GIT_WORK_TREE".into(), v.into())));
        }
        env.extend(place.index.iter().map(|v| ("GIT_INDEX_FILE".into(), v.into())));
        command.arg(verb);
        Self { verb: verb.to_owned(), command, env, input: None, limit: ANSWER_LIMIT, time: None }
    }

    /// No hook runs.
    #[must_use]
    pub fn without_hooks(mut self) -> Self {
        self.env.push(("GIT_CONFIG_COUNT".into(), "1".into()));
        self.env.push(("GIT_CONFIG_KEY_0".into(), "core.hooksPath".into()));
        self.env.push(("GIT_CONFIG_VALUE_0".into(), "/dev/null".into()));
        self
    }

    /// Runs git with its talk going where ours goes; returns the exit status, `None` when a signal ended it.
    pub fn visibly(mut self) -> Result<Option<i32>, Error> {
        self.command.envs(self.env).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Ok(self.command.status().map_err(Error::NoGit)?.code())
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable for this call.
    #[must_use]
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.into(), value.as_ref().into()));
        self
    }

    /// Passes a variable of our own environment that the scrubbing took.
    #[must_use]
    pub fn inherit(self, key: &str) -> Self {
        match std::env::var_os(key) {
            Some(value) => self.env(key, value),
            None => self,
        }
    }

    /// Sets the folder git starts in.
    #[must_use]
    pub fn current_dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Bytes for standard input.
    #[must_use]
    pub fn input(mut self, bytes: Vec<u8>) -> Self {
        self.input = Some(bytes);
        self
    }

    /// Most bytes of answer that are taken.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Longest time git may take; then it is killed, with its process group if it has one of its own. For
    /// git on files that somebody hostile wrote: a fifo, a pattern that backtracks for ever.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// The command as it is, for the cage to confine or for a caller that owns the pipes.
    pub fn into_command(mut self) -> Command {
        self.command.envs(self.env);
        self.command
    }

    /// Lets `change` confine or otherwise adapt the process before it starts.
    pub fn adapt<E>(mut self, change: impl FnOnce(&mut Command) -> Result<(), E>) -> Result<Self, E> {
        change(&mut self.command)?;
        Ok(self)
    }

    /// Starts git without waiting, so that two calls can run side by side.
    pub fn start(mut self) -> Result<Started, Error> {
        let stdin = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        self.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.envs(self.env);
        let child = self.command.spawn().map_err(Error::NoGit)?;
        let deadline = self.time.map(|whole| Deadline { at: Instant::now() + whole, whole });
        Ok(Started { verb: self.verb, child, input: self.input, limit: self.limit, deadline })
    }

    /// Runs git; any status of 128 and up, or a signal, is an error.
    pub fn run(self) -> Result<Answer, Error> {
        self.start()?.finish()
    }

    /// Runs git and takes status 0 only; returns standard output.
    pub fn output(self) -> Result<Vec<u8>, Error> {
        self.run()?.success()
    }

    /// Like [`Call::output`], as text without the final line feed.
    pub fn text(self) -> Result<String, Error> {
        let verb = self.verb.clone();
        let bytes = self.output()?;
        let mut text = String::from_utf8(bytes)
            .map_err(|_| Error::Unreadable { verb, what: "text that is not UTF-8".into() })?;
        if text.ends_with('\n') {
            text.pop();
        }
        Ok(text)
    }

    /// A yes-or-no question: 0 is yes, 1 is no, anything else an error.
    pub fn ask(self) -> Result<bool, Error> {
        let answer = self.run()?;
        match answer.status {
            0 => Ok(true),
            1 => Ok(false),
            _ => answer.success().map(|_| true),
        }
    }
}

/// A git process at work.
#[derive(Debug)]
pub struct Started {
    verb: String,
    child: Child,
    input: Option<Vec<u8>>,
    limit: usize,
    deadline: Option<Deadline>,
}

/// When a process has had its time.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    whole: Duration,
}

/// Why talking ended early.
enum Broken {
    Io(io::Error),
    Late(Duration),
    TooMuch,
}

impl From<rustix::io::Errno> for Broken {
    fn from(e: rustix::io::Errno) -> Self {
        Self::Io(e.into())
    }
}

impl From<io::Error> for Broken {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl Started {
    /// Feeds the input, drains both outputs and waits.
    pub fn finish(mut self) -> Result<Answer, Error> {
        let (mut stdout, mut talk) = (Vec::new(), Vec::new());
        let status = self.talk(&mut stdout, &mut talk).and_then(|()| {
            self.ended()?;
            Ok(self.child.wait()?)
        });
        let (verb, limit) = (self.verb, self.limit);
        let status = match status {
            Ok(status) => status,
            Err(broken) => {
                end(&mut self.child);
                return Err(match broken {
                    Broken::Io(source) => Error::Io { verb, source },
                    Broken::Late(time) => Error::TooSlow { verb, time },
                    Broken::TooMuch => Error::TooMuch { verb, limit },
                });
            }
        };
        let stderr = String::from_utf8_lossy(&talk).into_owned();
        match status.code() {
            Some(status) if status < 128 => Ok(Answer { verb, status, stdout, stderr }),
            status => Err(Error::Failed { verb, status, stderr }),
        }
    }

    /// All three pipes at once: git may fill any of them while we wait on another.
    fn talk(&mut self, stdout: &mut Vec<u8>, talk: &mut Vec<u8>) -> Result<(), Broken> {
        let mut out = self.child.stdout.take();
        let mut err = self.child.stderr.take();
        let input = self.input.take().unwrap_or_default();
        let mut feed = self.child.stdin.take().map(|pipe| (pipe, input.as_slice()));
        if let Some((pipe, _)) = &feed {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        let mut buffer = vec![0; 1 << 16];
        while out.is_some() || err.is_some() {
            let (mut ready, mut at) = ([false; 3], Vec::with_capacity(3));
            let mut fds = Vec::with_capacity(3);
            if let Some((pipe, _)) = &feed {
                fds.push(PollFd::new(pipe, PollFlags::OUT));
                at.push(0);
            }
            if let Some(pipe) = &out {
                fds.push(PollFd::new(pipe, PollFlags::IN));
                at.push(1);
            }
            if let Some(pipe) = &err {
                fds.push(PollFd::new(pipe, PollFlags::IN));
                at.push(2);
            }
            wait(&mut fds, self.deadline)?;
            for (fd, at) in fds.iter().zip(at) {
                ready[at] = !fd.revents().is_empty();
            }
            if ready[0] {
                feed = feed.and_then(feed_some);
            }
            if ready[1]
                && let Some(pipe) = &mut out
            {
                match pipe.read(&mut buffer)? {
                    0 => out = None,
                    n if stdout.len() + n > self.limit => return Err(Broken::TooMuch),
                    n => stdout.extend_from_slice(&buffer[..n]),
                }
            }
            if ready[2]
                && let Some(pipe) = &mut err
            {
                match pipe.read(&mut buffer)? {
                    0 => err = None,
                    n => talk.extend_from_slice(&buffer[..n.min(TALK_LIMIT - talk.len())]),
                }
            }
        }
        Ok(())
    }

    /// Waits, where there is a deadline, until the process can be reaped without waiting.
    fn ended(&self) -> Result<(), Broken> {
        if self.deadline.is_none() {
            return Ok(());
        }
        let Some(pid) = pid_of(&self.child) else { return Ok(()) };
        let fd: OwnedFd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        wait(&mut [PollFd::new(&fd, PollFlags::IN)], self.deadline)
    }
}

/// Waits until one of these is ready.
fn wait(fds: &mut [PollFd<'_>], deadline: Option<Deadline>) -> Result<(), Broken> {
    loop {
        let left = match deadline {
            None => None,
            Some(d) => match d.at.checked_duration_since(Instant::now()) {
                None => return Err(Broken::Late(d.whole)),
                Some(left) => Timespec::try_from(left).ok(),
            },
        };
        match poll(fds, left.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Writes what the pipe takes; `None` when all is written, or git reads no more (it says why by its status).
fn feed_some((mut pipe, rest): (ChildStdin, &[u8])) -> Option<(ChildStdin, &[u8])> {
    match pipe.write(rest) {
        Ok(n) if n < rest.len() => Some((pipe, &rest[n..])),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Some((pipe, rest)),
        _ => None,
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Kills a child, with its process group if it leads one, and reaps it.
pub(super) fn end(child: &mut Child) {
    if let Some(pid) = pid_of(child) {
        // A group of this number exists only if the child, which is not reaped yet, made it.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

impl Answer {
    /// Standard output if the status is 0, else an error.
    pub fn success(self) -> Result<Vec<u8>, Error> {
        if self.status == 0 {
            Ok(self.stdout)
        } else {
            Err(Error::Failed { verb: self.verb, status: Some(self.status), stderr: self.stderr })
        }
    }
}

/// An answer whose status may be anything, for the one verb that prints before it fails.
pub(super) struct Whatever {
    pub status: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Started {
    pub(super) fn finish_whatever(self) -> Result<Whatever, Error> {
        let mut child = self.child;
        drop(child.stdin.take());
        let output = child.wait_with_output().map_err(|source| Error::Io { verb: self.verb, source })?;
        let stderr =
            String::from_utf8_lossy(&output.stderr[..output.stderr.len().min(TALK_LIMIT)]).into_owned();
        Ok(Whatever { status: output.status.code(), stdout: output.stdout, stderr })
    }
}
