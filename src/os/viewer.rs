//! Programs that show text to a person: the pager and man(1).

use super::files;
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Shows `text` through a pager command line (as `core.pager` has it, run by the shell) and waits for it.
/// `false` when the pager could not be started or failed at once, so that the caller prints the text itself.
pub fn page(command: &str, text: &[u8]) -> io::Result<bool> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::piped());
    // git's own defaults: quit if it fits, keep colours, leave the screen as it is.
    for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
        if std::env::var_os(name).is_none() {
            shell.env(name, value);
        }
    }
    // Ctrl-C is the pager's business while it is there; without us it would be left behind on the terminal.
    // Held off before it starts, or one in between would end us; std starts children with an empty mask.
    let _held = Held::begin();
    let mut child = shell.spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        match pipe.write_all(text) {
            // The person has seen enough.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
    }
    let status = child.wait()?;
    // 126 and 127: the shell did not find or start it.
    Ok(!matches!(status.code(), Some(126 | 127)))
}

/// Holds SIGINT off while it lives and forgets those that came.
struct Held {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Held {
    #[allow(unsafe_code)]
    fn begin() -> Self {
        // SAFETY: both sets are valid, initialised by the calls themselves, and outlive them.
        unsafe {
            let mut held = std::mem::zeroed::<Self>();
            libc::sigemptyset(&raw mut held.set);
            libc::sigaddset(&raw mut held.set, libc::SIGINT);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const held.set, &raw mut held.before);
            held
        }
    }
}

impl Drop for Held {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the sets were filled above; sigtimedwait writes no siginfo where it is given none.
        unsafe {
            while libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const now) > 0 {}
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// Pages a manual page (roff source) through man(1). `false` when there is no man(1) here.
pub fn man(page: &[u8]) -> io::Result<bool> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("git-agent.man");
    files::write_new(&path, page, 0o600)?;
    match Command::new("man").arg("-l").arg(&path).stdin(Stdio::inherit()).status() {
        Ok(status) => Ok(status.success()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}
