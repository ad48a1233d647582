//! Going into the background.

use super::{lock::Lock, process};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::path::Path;

/// Forks: `true` in the caller's process, `false` in the child, which leads a session of its own, reads
/// nothing, writes to `log` (appended, mode 0600), and has put its name into `lock`. The caller must end
/// without touching what the child now owns.
pub fn detach(log: &Path, lock: &Lock) -> io::Result<bool> {
    let log = rustix::fs::open(
        log,
        OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // The child says when its name is in the lock: from then on `stop` reaches it, not its dead parent.
    let (ready, child_ready) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    if process::fork()?.is_some() {
        drop(child_ready);
        let mut byte = [0];
        return match rustix::io::read(&ready, &mut byte)? {
            1 => Ok(true),
            _ => Err(io::Error::other("the background process died")),
        };
    }
    rustix::process::setsid()?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&log)?;
    rustix::stdio::dup2_stderr(&log)?;
    lock.sign()?;
    rustix::io::write(&child_ready, b"1")?;
    Ok(false)
}

/// Does `work` in a process of its own that nobody waits for: a session leader's child with the lowest
/// priority, without any descriptor of ours. Returns when it has started.
pub fn aside(work: impl FnOnce()) -> io::Result<()> {
    if let Some(child) = process::fork()? {
        process::wait(child)?;
        return Ok(());
    }
    // Forked once more, so that the init process reaps it and not whoever called us.
    let status = i32::from(rustix::process::setsid().is_err());
    if status == 0 && matches!(process::fork(), Ok(None)) {
        let quiet = || -> io::Result<()> {
            let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            rustix::stdio::dup2_stdin(&nothing)?;
            rustix::stdio::dup2_stdout(&nothing)?;
            rustix::stdio::dup2_stderr(&nothing)?;
            drop(nothing);
            close_from(3);
            let _ = rustix::process::nice(19);
            Ok(())
        };
        let _ = quiet().map(|()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)));
        process::exit_now(0);
    }
    process::exit_now(status);
}

/// Closes every descriptor from `first` on. Only in a forked child that uses none of them any more.
#[allow(unsafe_code)]
fn close_from(first: u32) {
    // SAFETY: the values that own these descriptors belong to the parent; the child ends in `exit_now` and
    // runs none of their destructors.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}
