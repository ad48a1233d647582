//! A real pseudo-terminal with a program at its other end: what a person would see and type.

// openpty(3) and the work between fork and exec have no safe form.
#![allow(unsafe_code)]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{Termios, tcgetattr};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A program in a session of its own, with this terminal as the controlling one.
pub struct Pty {
    master: File,
    child: Child,
    seen: Vec<u8>,
    /// How much of `seen` an `expect` has consumed.
    read: usize,
}

/// What is left after the program's end.
pub struct Closed {
    /// Everything that was shown, `\r\n` as `\n`.
    pub text: String,
    pub status: i32,
}

impl Pty {
    pub fn start(command: Command) -> Self {
        Self::sized(command, 24, 100)
    }

    pub fn sized(mut command: Command, rows: u16, columns: u16) -> Self {
        let (master, slave) = open(rows, columns);
        if command.get_envs().all(|(k, _)| k != "TERM") {
            command.env("TERM", "xterm-256color");
        }
        command.stdin(slave.try_clone().unwrap());
        command.stdout(slave.try_clone().unwrap());
        command.stderr(slave);
        // SAFETY: two system calls, no allocation.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        // The slave's ends here go with `command`.
        drop(command);
        Self { master: File::from(master), child, seen: Vec::new(), read: 0 }
    }

    /// Waits until `what` is shown after what was expected before, and returns what came up to there.
    #[track_caller]
    pub fn expect(&mut self, what: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut from = self.read;
        loop {
            if let Some(at) = self.seen[from..].windows(what.len()).position(|w| w == what.as_bytes()) {
                let end = from + at + what.len();
                let text = String::from_utf8_lossy(&self.seen[self.read..end]).into_owned();
                self.read = end;
                return text;
            }
            from = from.max(self.seen.len().saturating_sub(what.len()));
            let closed = !self.more(until);
            assert!(!closed, "'{what}' never came:\n{}", String::from_utf8_lossy(&self.seen));
        }
    }

    pub fn send(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub fn modes(&self) -> Termios {
        tcgetattr(&self.master).unwrap()
    }

    /// Waits for the program's end.
    pub fn end(mut self) -> Closed {
        let until = Instant::now() + PATIENCE;
        while self.more(until) {}
        let status = self.child.wait().unwrap();
        let text = String::from_utf8_lossy(&self.seen).replace("\r\n", "\n");
        Closed { text, status: status.code().unwrap_or_else(|| 128 + status.signal().unwrap()) }
    }

    /// Reads what there is; `false` when the other end is closed.
    fn more(&mut self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "waited in vain after:\n{}", String::from_utf8_lossy(&self.seen));
        let wait = Timespec { tv_sec: left.as_secs() as _, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.master, PollFlags::IN)], Some(&wait)).unwrap();
        let mut buffer = [0; 8192];
        match self.master.read(&mut buffer) {
            // EIO: nobody has the slave open any more.
            Ok(0) | Err(_) => false,
            Ok(n) => {
                self.seen.extend_from_slice(&buffer[..n]);
                true
            }
        }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Closed {
    #[track_caller]
    pub fn with(self, status: i32) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        self.text
    }
}

fn open(rows: u16, columns: u16) -> (OwnedFd, OwnedFd) {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: both descriptors are written by the call and owned by nobody else; name and modes may be null.
    unsafe {
        let made = libc::openpty(
            &raw mut master,
            &raw mut slave,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        );
        assert_eq!(made, 0, "openpty: {}", std::io::Error::last_os_error());
        for fd in [master, slave] {
            assert_eq!(libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC), 0);
        }
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}
