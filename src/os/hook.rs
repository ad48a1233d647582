//! Being a hook of git's, and having one: who called us, how long we may take, and what else is called.

use super::process;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The process that started us, by pid and start time: of a hook that is exec'ed, `git receive-pack`.
pub fn caller() -> io::Result<(i32, u64)> {
    let pid = rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get());
    Ok((pid, process::start_time(pid)?.unwrap_or(0)))
}

/// Whether that process is still there.
pub fn is_alive(pid: i32, start: u64) -> bool {
    process::start_time(pid).is_ok_and(|found| found == Some(start))
}

/// Ends this process with status 1 after `time`, saying `why`, whatever it is doing then.
pub fn deadline(time: Duration, why: &'static str) {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        let _ = io::stderr().write_all(why.as_bytes());
        process::exit_now(1);
    });
}

/// Runs another hook in our place: same folder, same environment, same input. Its exit status; a signal
/// counts as 1.
pub fn run(hook: &Path, input: &[u8]) -> io::Result<i32> {
    let mut child = Command::new(hook).stdin(Stdio::piped()).spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        match pipe.write_all(input) {
            // A hook need not read what it is told.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
    }
    Ok(child.wait()?.code().unwrap_or(1))
}
