//! One question to a command of the user's, with a bound on the time it may take.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs `command` by `sh -c` in `dir`, with `input` on its standard input and nobody listening to what it says.
/// Its exit status; `None` when a signal ended it or it did not end in time, and then all of it is killed.
pub fn feed(command: &str, input: &[u8], dir: &Path, within: Duration) -> io::Result<Option<i32>> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Less than a pipe holds; whoever does not read it is no obstacle.
        let _ = stdin.write_all(&input[..input.len().min(16 << 10)]);
    }
    let until = Instant::now() + within;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if Instant::now() >= until {
            if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
