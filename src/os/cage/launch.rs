//! The engine's process up to exec: everything is made before the fork.

use super::confine::Confinement;
use super::run::{Input, Message, Output, Stdio, own_pid};
use super::terminal::reset_signals;
use super::{CageError, CageSpec};
use crate::os::process::{Identity, terminal};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Everything exec needs, made before the fork.
pub(super) struct Launch<'a> {
    pub(super) cage: &'a Confinement,
    pub(super) identity: Option<Identity>,
    programs: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    streams: [OwnedFd; 3],
    pub(super) foreground: bool,
}

impl<'a> Launch<'a> {
    pub(super) fn new(
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
            let path = spec.wish.env.iter().find(|(k, _)| k == "PATH").map(|(_, v)| v.as_os_str());
            std::env::split_paths(path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")))
                .map(|folder| text(folder.join(program).as_os_str()))
                .collect::<Result<_, _>>()?
        };
        let env = spec.wish.env.iter().map(|(k, v)| {
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
            identity: spec.wish.identity,
            programs,
            argv: argv.iter().map(|a| text(a)).collect::<Result<_, _>>()?,
            env: env.collect::<Result<_, _>>()?,
            cwd: text(spec.wish.cwd.as_os_str())?,
            streams,
            foreground,
        })
    }

    /// Whether the program exists on this machine, wherever the cage shows it.
    pub(super) fn is_outside(&self) -> bool {
        let paths = self.programs.iter().map(|p| Path::new(OsStr::from_bytes(p.as_bytes())));
        paths.into_iter().any(|p| p.is_absolute() && p.is_file())
    }

    /// In the engine's process: everything up to exec. Returns only what failed: kind and error number.
    pub(super) fn exec(&self, parent: i32) -> Message {
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
        // With namespaces cage-init has entered it already.
        if !self.cage.has_spaces()
            && let Err(e) = self.cage.enter(Some(parent))
        {
            return Message::not_entered(e);
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
