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
