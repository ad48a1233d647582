//! The supervised engine: supervisor (us) -> cage-init -> engine.
//!
//! cage-init shares the lock and listens on a pipe whose other end only the supervisor has: when that closes,
//! the supervisor is dead and everything is killed. With namespaces it is the first process of a pid namespace
//! and in the same confinement as the engine: when it dies, the kernel kills the rest. Without, it is not
//! confined and the subreaper of everything the engine starts; when it dies, the engine gets SIGKILL and the
//! supervisor, a subreaper too, kills the rest.

use super::confine::Confinement;
use super::init::{cage_init, kill_descendants};
use super::launch::Launch;
use super::proxied::{self, Proxy};
use super::spec::Network;
use super::step::Failed;
use super::terminal::{Signals, Terminal};
use super::{CageError, CageSpec};
use crate::model::Ended;
use crate::os::files;
use crate::os::lock::Lock;
use crate::os::process::{exit_now, fork, wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between SIGTERM and SIGKILL when an engine is asked to stop.
pub(super) const GRACE: Duration = Duration::from_secs(2);

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
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) value: i32,
}

impl Message {
    const SIZE: usize = 5;

    pub(super) fn send(self, to: &mut File) {
        let mut bytes = [self.kind; Self::SIZE];
        bytes[1..].copy_from_slice(&self.value.to_ne_bytes());
        let _ = to.write_all(&bytes);
    }

    /// The cage could not be entered.
    pub(super) fn not_entered(failed: Failed) -> Self {
        Self { kind: b'C', value: failed.pack() }
    }

    /// `None` at the end of the pipe.
    pub(super) fn receive(from: &mut File) -> Option<Self> {
        let mut bytes = [0; Self::SIZE];
        from.read_exact(&mut bytes).ok()?;
        Some(Self { kind: bytes[0], value: i32::from_ne_bytes(bytes[1..].try_into().ok()?) })
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
    let (handed, handing) = proxied::pair().map_err(CageError::launch("make a pair of sockets"))?;
    // Blocked before the fork, so that no signal is lost between.
    let stops = Signals::block(&[libc::SIGTERM, libc::SIGHUP, libc::SIGINT])
        .map_err(CageError::launch("block signals"))?;
    rustix::process::set_child_subreaper(Some(own_pid())).map_err(io_error("become subreaper"))?;
    let terminal = Terminal::take(launch.foreground);
    let Some(init) = fork().map_err(CageError::launch("fork"))? else {
        let keep = [control_read.as_raw_fd(), report_write.as_raw_fd(), lock.as_fd().as_raw_fd()];
        // The process that waits for the first one holds the lock until everything is dead.
        let hand_over = |socket| proxied::send(&socket, &handing);
        if let Err(e) = cage.surround(true, &keep[2..], hand_over) {
            Message::not_entered(e).send(&mut File::from(report_write));
            exit_now(0)
        }
        cage_init(&launch, &keep, control_read, File::from(report_write), wall, started)
    };
    drop((control_read, report_write, handing));
    let proxy = if spec.wish.network == Network::Proxy {
        let started =
            proxied::receive(&handed).and_then(|s| s.map(|s| Proxy::start(s, &spec.wish)).transpose());
        // Without it the engine has no network, which fails closed.
        started.unwrap_or_default()
    } else {
        None
    };
    let mut control = Some(File::from(control_write));
    let mut report = File::from(report_read);
    let mut last = None;
    let mut disk = Disk::of(&spec.wish.cwd);
    let mut full = false;
    loop {
        let mut fds = [PollFd::new(&report, PollFlags::IN), PollFd::new(&stops.fd, PollFlags::IN)];
        if poll(&mut fds, disk.is_some().then_some(&LOOK)).is_err() {
            continue;
        }
        if let Some(watched) = &disk
            && watched.is_full()
        {
            disk = None;
            full = true;
            if let Some(pipe) = &mut control {
                let _ = pipe.write_all(b"S");
            }
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
    drop(proxy);
    if last.is_none() {
        // cage-init was killed: what it would have killed is ours now.
        kill_descendants(spec.wish.identity);
    }
    let _ = rustix::process::set_child_subreaper(None);
    terminal.give_back();
    drop(stops);
    let error = |value| io::Error::from_raw_os_error(value);
    let ended = match last {
        Some(Message { kind: b'E', value }) => Ended::Exit(value),
        Some(Message { kind: b'G', value }) => Ended::Signal(value),
        Some(Message { kind: b'T', .. }) => Ended::Timeout(wall.unwrap_or_default().as_secs()),
        Some(Message { kind: b'S', .. }) if full => Ended::Full,
        Some(Message { kind: b'S', .. }) => Ended::Stopped,
        Some(Message { kind: b'N', .. }) if launch.is_outside() => {
            return Err(CageError::NotExecutable(io::Error::other("the cage does not show it")));
        }
        Some(Message { kind: b'N', .. }) => return Err(CageError::NotFound),
        Some(Message { kind: b'X', value }) => return Err(CageError::NotExecutable(error(value))),
        Some(Message { kind: b'C', value }) => {
            return Err(CageError::NotInForce { lacks: Failed::unpack(value).to_string() });
        }
        Some(Message { value, .. }) => return Err(CageError::launch("start the engine")(error(value))),
        None => {
            status.map_err(CageError::launch("wait for cage-init"))?;
            Ended::Unseen
        }
    };
    Ok(Outcome { ended, wall: started.elapsed() })
}

/// How often the disk is looked at.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// The file system that a run writes to. An engine must not fill it: everybody else's work would fail too.
struct Disk {
    folder: PathBuf,
    least: u64,
}

impl Disk {
    /// Free space that is kept, at most; on a small disk half of what is free now.
    const KEPT: u64 = 1 << 30;

    fn of(folder: &Path) -> Option<Self> {
        let free = files::free_space(folder).ok()?;
        Some(Self { folder: folder.to_owned(), least: (free / 2).min(Self::KEPT) })
    }

    fn is_full(&self) -> bool {
        files::free_space(&self.folder).is_ok_and(|free| free < self.least)
    }
}

pub(super) fn own_pid() -> Pid {
    rustix::process::getpid()
}
