//! cage-init: the parent of the engine. It reaps, listens to the supervisor, and ends only when nothing is left.

use super::launch::Launch;
use super::run::{GRACE, Message, own_pid};
use super::step::{Failed, Step};
use super::sys::{self, close_all_but, kill_everything_we_may};
use super::terminal::Signals;
use crate::os::process::{self, Identity, exit_now, fork, wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// cage-init: starts the engine, reaps, and ends only when nothing is left.
pub(super) fn cage_init(
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
    let spaces = launch.cage.has_spaces();
    if spaces {
        // As confined as the engine, and nothing that it could look into or stop.
        let entered =
            sys::hide_memory().map_err(Failed::at(Step::User)).and_then(|()| launch.cage.enter(None));
        if let Err(e) = entered {
            Message::not_entered(e).send(&mut report);
            exit_now(0)
        }
    }
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
    if spaces {
        kill_all_others()
    } else {
        kill_descendants(launch.identity)
    }
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
pub(super) fn kill_descendants(identity: Option<Identity>) {
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

/// The same for the first process of a pid namespace.
fn kill_all_others() {
    while has_children() {
        kill_everything_we_may();
        if reap(false).is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
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
