//! The terminal while an engine has it, and signals that arrive at a descriptor.

use super::run::own_pid;
use rustix::process::Signal;
use rustix::termios::{OptionalActions, QueueSelector, Termios};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The terminal while an engine has it.
pub(super) struct Terminal(Option<Termios>);

impl Terminal {
    pub(super) fn take(foreground: bool) -> Self {
        Self(if foreground { rustix::termios::tcgetattr(io::stdin()).ok() } else { None })
    }

    /// Foreground is us again, modes as before, and what was typed for the engine is thrown away.
    pub(super) fn give_back(&self) {
        let Some(modes) = &self.0 else { return };
        let _unstopped = Signals::block(&[libc::SIGTTOU]);
        let _ = rustix::termios::tcsetpgrp(io::stdin(), rustix::process::getpgrp());
        let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Drain, modes);
        let _ = rustix::termios::tcflush(io::stdin(), QueueSelector::IFlush);
    }

    /// Ctrl-Z: stops us as the shell expects, and gives the terminal back to the engine when we go on.
    pub(super) fn suspend(&self) {
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
    pub(super) fd: OwnedFd,
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
    pub(super) fn consume(&self) {
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
pub(super) fn reset_signals() {
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
