//! System calls of the cage that no crate has in a safe form.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[allow(unsafe_code)]
pub(super) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: takes flags; memory and descriptors stay as they are.
    done(unsafe { libc::unshare(flags) }.into())
}

/// What `mount_setattr(2)` changes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Attributes {
    pub(super) set: u64,
    pub(super) private: bool,
}

/// Changes the mount at `path` below `at` (`at` itself when empty), with all below it if `recursive`.
#[allow(unsafe_code)]
pub(super) fn mount_setattr(
    at: Option<BorrowedFd<'_>>,
    path: &str,
    recursive: bool,
    change: Attributes,
) -> io::Result<()> {
    let path = CString::new(path)?;
    let attributes = libc::mount_attr {
        attr_set: change.set,
        attr_clr: 0,
        propagation: if change.private { libc::MS_PRIVATE } else { 0 },
        userns_fd: 0,
    };
    let mut flags = libc::AT_SYMLINK_NOFOLLOW;
    if path.is_empty() {
        flags |= libc::AT_EMPTY_PATH;
    }
    if recursive {
        flags |= libc::AT_RECURSIVE;
    }
    let at = at.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd());
    // SAFETY: path and attributes live through the call, and the size of the latter is told.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
}

/// Brings the loopback device of this network namespace up.
#[allow(unsafe_code)]
pub(super) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero request is a valid one; the name is terminated; the kernel reads and fills it.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        done(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request).into())?;
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        done(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request).into())
    }
}

/// Nothing can be read from this process, and nobody of its user can trace it.
pub(super) fn hide_memory() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// For a process that only waits.
#[allow(unsafe_code)]
pub(super) fn block_all_signals() {
    // SAFETY: the set is initialised before use.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// Closes every descriptor that is not in `keep`, the standard streams too.
#[allow(unsafe_code)]
pub(super) fn close_all_but(keep: &mut [i32]) {
    keep.sort_unstable();
    let mut from = 0_u32;
    for fd in keep.iter().map(|fd| *fd as u32).chain([u32::MAX]) {
        if fd > from {
            // SAFETY: closes descriptors that nothing in this process uses any more.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0_u32) };
        }
        from = fd.saturating_add(1);
    }
}

/// Kills every process that we may signal: as first process of a pid namespace, all others of it.
#[allow(unsafe_code)]
pub(super) fn kill_everything_we_may() {
    // SAFETY: sends a signal; callers are a child that has just become a run's own user, or such a process.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
    }
}
