//! Attempts on other processes, on privileges, and to outlive the run.

use super::{TOKEN, World};
use crate::os::process::{exit_now, fork, wait};
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Ends this process after some seconds.
#[allow(unsafe_code)]
pub(super) fn alarm(seconds: u32) {
    // SAFETY: sets a timer of this process.
    unsafe { libc::alarm(seconds) };
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Names that hold what nobody should see, anywhere in the environment.
pub(super) fn environment(_: &World, _: &Path) -> io::Result<()> {
    let telling =
        ["TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL", "SSH_AUTH_SOCK", "GPG_AGENT", "DBUS_"];
    let found = std::env::vars_os().any(|(name, _)| {
        let name = name.to_string_lossy().to_ascii_uppercase();
        telling.iter().any(|t| name.contains(t)) || name.starts_with("LD_")
    });
    if found { Ok(()) } else { Err(io::Error::other("nothing of the kind is there")) }
}

pub(super) fn environ_of(world: &World, _: &Path) -> io::Result<()> {
    let bytes = fs::read(format!("/proc/{}/environ", world.bystander))?;
    let found = bytes.windows(TOKEN.len()).any(|w| w == TOKEN.as_bytes());
    if found { Ok(()) } else { Err(io::Error::other("something else was read")) }
}

#[allow(unsafe_code)]
pub(super) fn trace(world: &World, _: &Path) -> io::Result<()> {
    // SAFETY: attaches to a process of doctor's without stopping it; no memory of ours is involved. It is let
    // go when this process ends.
    check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, world.bystander, 0, 0) }).map(drop)
}

#[allow(unsafe_code)]
pub(super) fn namespaces(_: &World, _: &Path) -> io::Result<()> {
    // SAFETY: changes namespaces of this short-lived process, which has one thread.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) }.into()).map(drop)
}

/// Whether a program could give rights that we do not have (sudo, su, fusermount).
#[allow(unsafe_code)]
pub(super) fn privileges(_: &World, _: &Path) -> io::Result<()> {
    // SAFETY: asks for a flag of this process.
    match check(unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) }.into())? {
        0 => Ok(()),
        _ => Err(io::Error::other("no new privileges")),
    }
}

#[allow(unsafe_code)]
pub(super) fn signal(world: &World, _: &Path) -> io::Result<()> {
    // SAFETY: sends a signal to a process of doctor's.
    check(unsafe { libc::kill(world.bystander, libc::SIGTERM) }.into()).map(drop)
}

/// Leaves a process in a session of its own, twice forked, that holds a lock on a file of the tree for as long as
/// it lives.
pub(super) fn daemon(_: &World, _: &Path) -> io::Result<()> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let Some(child) = fork()? else {
        let _ = rustix::process::setsid();
        if let Ok(None) = fork() {
            alarm(0);
            stay(fs::File::from(write));
        }
        exit_now(0)
    };
    drop(write);
    let _ = wait(child);
    let mut said = [0];
    fs::File::from(read).read_exact(&mut said)
}

fn stay(mut ready: fs::File) -> ! {
    let held = fs::OpenOptions::new().write(true).create(true).truncate(false).open("attempt-alive");
    let locked = held.is_ok_and(|file| {
        // Whoever waits for the streams to end must not wait for this process.
        close_all_but(&[std::os::fd::AsRawFd::as_raw_fd(&file), std::os::fd::AsRawFd::as_raw_fd(&ready)]);
        let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok();
        std::mem::forget(file);
        locked
    });
    if locked && ready.write_all(b"+").is_ok() {
        drop(ready);
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until && fs::symlink_metadata("attempt-stop").is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    exit_now(0)
}

#[allow(unsafe_code)]
fn close_all_but(keep: &[i32]) {
    for fd in 0..1024 {
        if !keep.contains(&fd) {
            // SAFETY: this process uses no other descriptor from here on.
            unsafe { libc::close(fd) };
        }
    }
}
