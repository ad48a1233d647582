//! The supervised engine: supervisor (us) -> cage-init -> engine.
//!
//! cage-init is not confined. It shares the lock, is the subreaper of everything the engine starts, and
//! listens on a pipe whose other end only the supervisor has: when that closes, the supervisor is dead and
//! everything is killed. When cage-init dies, the engine gets SIGKILL and the supervisor, a subreaper too,
//! kills the rest.

use super::confine::Confinement;
use super::{CageError, CageSpec};
use crate::model::{Canary, Ended};
use crate::os::lock::Lock;
use crate::os::process::{self, Identity, exit_now, fork, terminal, wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal};
use rustix::termios::{OptionalActions, QueueSelector, Termios};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between SIGTERM and SIGKILL when an engine is asked to stop.
const GRACE: Duration = Duration::from_secs(2);

/// How the engine ended. When [`super::Cage::run`] returns this, nothing it started is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// How; `Unseen` when cage-init was killed by somebody.
    pub ended: Ended,
    /// From launch until everything was dead.
    pub wall: Duration,
}

/// Standard input of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Input {
    /// Ours; if it is our terminal and we are in its foreground, the engine is put there.
    #[default]
    Inherit,
    /// `/dev/null`.
    Null,
}

/// Standard output or standard error of the engine.
#[derive(Debug, Default)]
pub enum Output {
    /// Ours.
    #[default]
    Inherit,
    /// Our standard error (`spawn --json`).
    Stderr,
    /// `/dev/null`.
    Null,
    /// An open file or pipe.
    To(OwnedFd),
}

/// The engine's standard streams.
#[derive(Debug, Default)]
pub struct Stdio {
    /// Standard input.
    pub input: Input,
    /// Standard output.
    pub output: Output,
    /// Standard error.
    pub error: Output,
}

/// One message from cage-init.
#[derive(Debug, Clone, Copy)]
struct Message {
    kind: u8,
    value: i32,
}

impl Message {
    const SIZE: usize = 5;

    fn send(self, to: &mut File) {
        let mut bytes = [self.kind; Self::SIZE];
        bytes[1..].copy_from_slice(&self.value.to_ne_bytes());
        let _ = to.write_all(&bytes);
    }

    /// `None` at the end of the pipe.
    fn receive(from: &mut File) -> Option<Self> {
        let mut bytes = [0; Self::SIZE];
        from.read_exact(&mut bytes).ok()?;
        Some(Self { kind: bytes[0], value: i32::from_ne_bytes(bytes[1..].try_into().ok()?) })
    }
}

pub(super) fn canaries(cage: &Confinement, targets: &[(&str, PathBuf)]) -> Result<Vec<Canary>, CageError> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| CageError::launch("pipe")(e.into()))?;
    let parent = std::process::id() as i32;
    let Some(child) = fork().map_err(CageError::launch("fork"))? else {
        let mut write = File::from(write);
        let answers: Vec<u8> = match cage.enter(parent) {
            Err(_) => Vec::new(),
            Ok(()) => targets.iter().map(|(_, path)| if is_denied(path) { b'h' } else { b'o' }).collect(),
        };
        let _ = write.write_all(&answers);
        exit_now(0)
    };
    drop(write);
    let mut answers = Vec::new();
    let heard = File::from(read).read_to_end(&mut answers);
    let _ = wait(child);
    if heard.is_err() || answers.len() != targets.len() {
        return Err(CageError::NotInForce { lacks: "the confinement could not be entered".into() });
    }
    let canaries: Vec<_> = targets
        .iter()
        .zip(answers)
        .map(|((name, _), answer)| Canary { name: (*name).to_owned(), held: answer == b'h' })
        .collect();
    match canaries.iter().find(|c| !c.held) {
        Some(open) => {
            Err(CageError::NotInForce { lacks: format!("the canary {} was not denied", open.name) })
        }
        None => Ok(canaries),
    }
}

/// Tries to open for writing; a file that the attempt made is removed again.
fn is_denied(path: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::Errno;
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let refused = |e| matches!(e, Errno::ACCESS | Errno::PERM | Errno::ROFS);
    match open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => match open(path, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR) {
            Ok(_) => {
                let _ = rustix::fs::unlink(path);
                false
            }
            Err(e) => refused(e),
        },
        Ok(_) => false,
        Err(e) => refused(e),
    }
}

pub(super) fn run(
    spec: &CageSpec,
    cage: &Confinement,
    argv: &[OsString],
    stdio: Stdio,
    lock: &Lock,
    wall: Option<Duration>,
) -> Result<Outcome, CageError> {
    let started = Instant::now();
    let launch = Launch::new(spec, cage, argv, stdio)?;
    let io_error = |what| move |e: rustix::io::Errno| CageError::launch(what)(e.into());
    let (control_read, control_write) = pipe_with(PipeFlags::CLOEXEC).map_err(io_error("pipe"))?;
    let (report_read, report_write) = pipe_with(PipeFlags::CLOEXEC).map_err(io_error("pipe"))?;
    // Blocked before the fork, so that no signal is lost between.
    let stops = Signals::block(&[libc::SIGTERM, libc::SIGHUP, libc::SIGINT])
        .map_err(CageError::launch("block signals"))?;
    rustix::process::set_child_subreaper(Some(own_pid())).map_err(io_error("become subreaper"))?;
    let terminal = Terminal::take(launch.foreground);
    let Some(init) = fork().map_err(CageError::launch("fork"))? else {
        let keep = [control_read.as_raw_fd(), report_write.as_raw_fd(), lock.as_fd().as_raw_fd()];
        cage_init(&launch, &keep, control_read, File::from(report_write), wall, started)
    };
    drop((control_read, report_write));
    let mut control = Some(File::from(control_write));
    let mut report = File::from(report_read);
    let mut last = None;
    loop {
        let mut fds = [PollFd::new(&report, PollFlags::IN), PollFd::new(&stops.fd, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        let (reported, signalled) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        if signalled {
            stops.consume();
            if let Some(pipe) = &mut control {
                let _ = pipe.write_all(b"S");
            }
        }
        if reported {
            match Message::receive(&mut report) {
                Some(Message { kind: b'Z', .. }) => {
                    terminal.suspend();
                    if let Some(pipe) = &mut control {
                        let _ = pipe.write_all(b"C");
                    }
                }
                Some(message) => last = Some(message),
                None => break,
            }
        }
    }
    control.take();
    let status = wait(init);
    if last.is_none() {
        // cage-init was killed: what it would have killed is ours now.
        kill_descendants(spec.identity);
    }
    let _ = rustix::process::set_child_subreaper(None);
    terminal.give_back();
    drop(stops);
    let error = |value| io::Error::from_raw_os_error(value);
    let ended = match last {
        Some(Message { kind: b'E', value }) => Ended::Exit(value),
        Some(Message { kind: b'G', value }) => Ended::Signal(value),
        Some(Message { kind: b'T', .. }) => Ended::Timeout(wall.unwrap_or_default().as_secs()),
        Some(Message { kind: b'S', .. }) => Ended::Stopped,
        Some(Message { kind: b'N', .. }) => return Err(CageError::NotFound),
        Some(Message { kind: b'X', value }) => return Err(CageError::NotExecutable(error(value))),
        Some(Message { kind: b'C', value }) => {
            let lacks = format!("the confinement could not be entered: {}", error(value));
            return Err(CageError::NotInForce { lacks });
        }
        Some(Message { value, .. }) => return Err(CageError::launch("start the engine")(error(value))),
        None => {
            status.map_err(CageError::launch("wait for cage-init"))?;
            Ended::Unseen
        }
    };
    Ok(Outcome { ended, wall: started.elapsed() })
}

/// Everything exec needs, made before the fork.
struct Launch<'a> {
    cage: &'a Confinement,
    identity: Option<Identity>,
    programs: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    streams: [OwnedFd; 3],
    foreground: bool,
}

impl<'a> Launch<'a> {
    fn new(
        spec: &CageSpec,
        cage: &'a Confinement,
        argv: &[OsString],
        stdio: Stdio,
    ) -> Result<Self, CageError> {
        let text = |s: &OsStr| {
            CString::new(s.as_bytes())
                .map_err(|_| CageError::launch("NUL in an argument")(io::ErrorKind::InvalidInput.into()))
        };
        let program = argv.first().ok_or(CageError::NotFound)?;
        let programs = if program.as_bytes().contains(&b'/') {
            vec![text(program)?]
        } else {
            let path = spec.env.iter().find(|(k, _)| k == "PATH").map(|(_, v)| v.as_os_str());
            std::env::split_paths(path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")))
                .map(|folder| text(folder.join(program).as_os_str()))
                .collect::<Result<_, _>>()?
        };
        let env = spec.env.iter().map(|(k, v)| {
            let mut pair = k.clone();
            pair.push("=");
            pair.push(v);
            text(&pair)
        });
        let open = |from: Output, own: i32| -> io::Result<OwnedFd> {
            match from {
                Output::Inherit if own == 1 => io::stdout().as_fd().try_clone_to_owned(),
                Output::Inherit | Output::Stderr => io::stderr().as_fd().try_clone_to_owned(),
                Output::Null => null(),
                Output::To(fd) => Ok(fd),
            }
        };
        let input = match stdio.input {
            Input::Inherit => io::stdin().as_fd().try_clone_to_owned(),
            Input::Null => null(),
        };
        let streams = input
            .and_then(|i| Ok([i, open(stdio.output, 1)?, open(stdio.error, 2)?]))
            .map_err(CageError::launch("open the standard streams"))?;
        let foreground = stdio.input == Input::Inherit
            && terminal::foreground_of(io::stdin().as_fd()).is_ok_and(|owner| owner == terminal::group());
        if foreground && terminal::group() == 0 {
            // The terminal cannot be given back to a group outside of this pid namespace; its shell takes it.
            rustix::process::setpgid(None, None)
                .map_err(|e| CageError::launch("become a process group")(e.into()))?;
        }
        Ok(Self {
            cage,
            identity: spec.identity,
            programs,
            argv: argv.iter().map(|a| text(a)).collect::<Result<_, _>>()?,
            env: env.collect::<Result<_, _>>()?,
            cwd: text(spec.cwd.as_os_str())?,
            streams,
            foreground,
        })
    }

    /// In the engine's process: everything up to exec. Returns only what failed: kind and error number.
    fn exec(&self, parent: i32) -> Message {
        let fail = |kind, e: io::Error| Message { kind, value: e.raw_os_error().unwrap_or(libc::EIO) };
        let prepared = || -> io::Result<()> {
            rustix::process::setpgid(None, None)?;
            for (fd, number) in self.streams.iter().zip(0..) {
                duplicate_to(fd.as_fd(), number)?;
            }
            if self.foreground {
                rustix::termios::tcsetpgrp(io::stdin(), own_pid())?;
            }
            Ok(())
        };
        if let Err(e) = prepared() {
            return fail(b'L', e);
        }
        if let Err(e) = self.cage.enter(parent) {
            return fail(b'C', e);
        }
        // Inside, so that a folder the engine's user cannot enter is found out.
        if let Err(e) = rustix::process::chdir(self.cwd.as_c_str()) {
            return fail(b'L', e.into());
        }
        reset_signals();
        let mut worst = Message { kind: b'N', value: libc::ENOENT };
        for program in &self.programs {
            let e = execve(program, &self.argv, &self.env);
            match e.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                Some(libc::EACCES) => worst = fail(b'X', e),
                _ => return fail(b'X', e),
            }
        }
        worst
    }
}

fn null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}

fn own_pid() -> Pid {
    rustix::process::getpid()
}

/// cage-init: starts the engine, reaps, and ends only when nothing is left.
fn cage_init(
    launch: &Launch<'_>,
    keep: &[i32],
    control: OwnedFd,
    mut report: File,
    wall: Option<Duration>,
    started: Instant,
) -> ! {
    let _ = rustix::thread::set_name(c"cage-init");
    let _ = rustix::process::setpgid(None, None);
    let all = [
        libc::SIGCHLD,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTSTP,
        libc::SIGTTOU,
        libc::SIGTTIN,
        libc::SIGPIPE,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
    ];
    let children = match Signals::block(&all) {
        Ok(signals) => signals,
        Err(e) => failed(&mut report, e),
    };
    if let Err(e) = rustix::process::set_child_subreaper(Some(own_pid())) {
        failed(&mut report, e.into());
    }
    let (mut error_read, error_write) = match pipe_with(PipeFlags::CLOEXEC) {
        Ok((read, write)) => (File::from(read), write),
        Err(e) => failed(&mut report, e.into()),
    };
    let me = own_pid().as_raw_nonzero().get();
    let engine = match fork() {
        Err(e) => failed(&mut report, e),
        Ok(Some(pid)) => pid,
        Ok(None) => {
            launch.exec(me).send(&mut File::from(error_write));
            exit_now(125)
        }
    };
    drop(error_write);
    // The same from both sides, so that neither has to be first.
    let group = Pid::from_raw(engine);
    let _ = rustix::process::setpgid(group, group);
    let mut kept = keep.to_vec();
    kept.extend([error_read.as_raw_fd(), children.fd.as_raw_fd()]);
    close_all_but(&mut kept);

    let mut verdict = Message::receive(&mut error_read);
    let mut asked = None::<(u8, Instant)>;
    let mut status = None;
    while verdict.is_none() && status.is_none() {
        let now = Instant::now();
        let deadline = match asked {
            Some((_, at)) => Some(at + GRACE),
            None => wall.map(|w| started + w),
        };
        if deadline.is_some_and(|d| now >= d) {
            if asked.is_some() {
                break;
            }
            asked = Some((b'T', now));
            signal_group(group, Signal::TERM);
            continue;
        }
        let timeout = deadline.map(|d| d - now).and_then(|d| Timespec::try_from(d).ok());
        let mut fds = [PollFd::new(&control, PollFlags::IN), PollFd::new(&children.fd, PollFlags::IN)];
        if poll(&mut fds, timeout.as_ref()).is_err() {
            continue;
        }
        let commanded = !fds[0].revents().is_empty();
        if commanded {
            let mut byte = [0];
            match rustix::io::read(&control, &mut byte) {
                Ok(1) if byte == *b"C" => signal_group(group, Signal::CONT),
                Ok(1) if asked.is_none() => {
                    asked = Some((b'S', now));
                    signal_group(group, Signal::TERM);
                    signal_group(group, Signal::CONT);
                }
                Ok(1) => {}
                // The supervisor is dead.
                _ => break,
            }
        }
        children.consume();
        while let Some((pid, raw)) = reap(launch.foreground) {
            if pid == engine && libc::WIFSTOPPED(raw) {
                Message { kind: b'Z', value: libc::WSTOPSIG(raw) }.send(&mut report);
            } else if pid == engine {
                status = Some(raw);
            }
        }
    }
    kill_descendants(launch.identity);
    let message = verdict.take().unwrap_or_else(|| match (asked, status) {
        (Some((kind, _)), _) => Message { kind, value: 0 },
        (None, Some(raw)) if libc::WIFEXITED(raw) => Message { kind: b'E', value: libc::WEXITSTATUS(raw) },
        (None, Some(raw)) => Message { kind: b'G', value: libc::WTERMSIG(raw) },
        (None, None) => Message { kind: b'S', value: 0 },
    });
    message.send(&mut report);
    exit_now(0)
}

/// cage-init could not start the engine.
fn failed(report: &mut File, e: io::Error) -> ! {
    Message { kind: b'L', value: e.raw_os_error().unwrap_or(libc::EIO) }.send(report);
    exit_now(0)
}

fn signal_group(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

/// Kills and reaps until this process has no child left; as subreaper, that is until nothing is left.
fn kill_descendants(identity: Option<Identity>) {
    let mut pause = Duration::from_micros(200);
    for round in 0_u32.. {
        while reap(false).is_some() {}
        if !has_children() {
            return;
        }
        for pid in descendants() {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        // Only against what multiplies faster than we look: another run may have drawn the same user id.
        if let Some(identity) = identity
            && round > 10
        {
            kill_all_of(identity);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Everything the run's own user has, at once: a fork bomb cannot outrun this. Only for a dedicated user: were
/// it a person, all of that person's processes would die.
fn kill_all_of(identity: Identity) {
    if !process::is_dedicated(identity) || process::current_user_ids().uid == identity.uid {
        return;
    }
    match fork() {
        Ok(None) => {
            if process::set_ids(identity).is_ok() {
                kill_everything_we_may();
            }
            exit_now(0)
        }
        Ok(Some(child)) => {
            let _ = wait(child);
        }
        // No process left for it: the next pass tries again.
        Err(_) => {}
    }
}

/// Pids of all descendants, by one pass over `/proc`.
fn descendants() -> Vec<i32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { continue };
        let Some(at) = stat.iter().rposition(|b| *b == b')') else { continue };
        let text = String::from_utf8_lossy(&stat[at + 1..]);
        if let Some(parent) = text.split_ascii_whitespace().nth(1).and_then(|n| n.parse::<i32>().ok()) {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![own_pid().as_raw_nonzero().get()];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

/// The terminal while an engine has it.
struct Terminal(Option<Termios>);

impl Terminal {
    fn take(foreground: bool) -> Self {
        Self(if foreground { rustix::termios::tcgetattr(io::stdin()).ok() } else { None })
    }

    /// Foreground is us again, modes as before, and what was typed for the engine is thrown away.
    fn give_back(&self) {
        let Some(modes) = &self.0 else { return };
        let _unstopped = Signals::block(&[libc::SIGTTOU]);
        let _ = rustix::termios::tcsetpgrp(io::stdin(), rustix::process::getpgrp());
        let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Drain, modes);
        let _ = rustix::termios::tcflush(io::stdin(), QueueSelector::IFlush);
    }

    /// Ctrl-Z: stops us as the shell expects, and gives the terminal back to the engine when we go on.
    fn suspend(&self) {
        if self.0.is_none() {
            return;
        }
        let engine = rustix::termios::tcgetpgrp(io::stdin());
        let modes = rustix::termios::tcgetattr(io::stdin());
        self.give_back();
        let _ = rustix::process::kill_process(own_pid(), Signal::STOP);
        let _unstopped = Signals::block(&[libc::SIGTTOU]);
        if let (Ok(engine), Ok(modes)) = (engine, modes) {
            let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Drain, &modes);
            let _ = rustix::termios::tcsetpgrp(io::stdin(), engine);
        }
    }
}

/// Signals that arrive at a descriptor instead of a handler, until this is dropped.
pub(super) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    #[allow(unsafe_code)]
    pub(super) fn block(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: sets are initialised by sigemptyset before use, and live through the calls.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            let mut before = std::mem::zeroed();
            if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) != 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Self { fd: OwnedFd::from_raw_fd(fd), before }),
            }
        }
    }

    /// Takes what has arrived.
    fn consume(&self) {
        let mut buffer = [0; 1024];
        while rustix::io::read(&self.fd, &mut buffer).is_ok_and(|n| n > 0) {}
    }
}

impl Drop for Signals {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: `before` was filled by the kernel.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// For exec: nothing blocked, nothing ignored (Rust ignores SIGPIPE, and a shell may have ignored SIGINT).
#[allow(unsafe_code)]
fn reset_signals() {
    // SAFETY: the set is initialised; default dispositions involve no code of ours.
    unsafe {
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

#[allow(unsafe_code)]
fn execve(program: &CString, argv: &[CString], env: &[CString]) -> io::Error {
    let list = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, env) = (list(argv), list(env));
    // SAFETY: both lists end with a null pointer and their strings are alive.
    unsafe {
        libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr());
    }
    io::Error::last_os_error()
}

#[allow(unsafe_code)]
fn duplicate_to(fd: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // SAFETY: replaces one of the standard streams of a process that is about to exec.
    if unsafe { libc::dup2(fd.as_raw_fd(), number) } == number {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// One child that ended (or, if asked, stopped), without waiting.
#[allow(unsafe_code)]
fn reap(stopped_too: bool) -> Option<(i32, i32)> {
    let mut status = 0;
    let flags = libc::WNOHANG | if stopped_too { libc::WUNTRACED } else { 0 };
    // SAFETY: `status` outlives the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
    (pid > 0).then_some((pid, status))
}

/// Whether any child is left, dead or alive.
#[allow(unsafe_code)]
fn has_children() -> bool {
    let mut status = 0;
    // SAFETY: `status` outlives the call; WNOWAIT is not needed since the caller reaps what is dead.
    let result = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    result >= 0
}

#[allow(unsafe_code)]
fn kill_everything_we_may() {
    // SAFETY: sends a signal; the caller has just become the run's own user in a child.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
    }
}

/// Closes every descriptor that is not in `keep`, the standard streams too.
#[allow(unsafe_code)]
fn close_all_but(keep: &mut [i32]) {
    keep.sort_unstable();
    let mut from = 0_u32;
    for fd in keep.iter().map(|fd| *fd as u32).chain([u32::MAX]) {
        if fd > from {
            // SAFETY: closes descriptors of cage-init that nothing there uses any more.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0_u32) };
        }
        from = fd.saturating_add(1);
    }
}
