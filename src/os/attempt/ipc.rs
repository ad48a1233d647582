//! Attempts to reach others: sockets, shared memory, keyrings, terminals, the kernel's own doors.

use super::{TOKEN, World};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn socket(world: &World, _: &Path) -> io::Result<()> {
    UnixStream::connect(&world.socket).map(drop)
}

#[cfg(target_os = "linux")]
pub(super) fn abstract_socket(world: &World, _: &Path) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(&world.abstract_name)?).map(drop)
}

pub(super) fn loopback(world: &World, _: &Path) -> io::Result<()> {
    std::net::TcpStream::connect(("127.0.0.1", world.port)).map(drop)
}

#[allow(unsafe_code)]
pub(super) fn shared_memory(world: &World, _: &Path) -> io::Result<()> {
    // SAFETY: makes a segment under a key of doctor's; nothing is mapped.
    check(unsafe { libc::shmget(world.key, 4096, libc::IPC_CREAT | libc::IPC_EXCL | 0o666) }.into()).map(drop)
}

/// Whether a segment of that key is there; removes it.
#[allow(unsafe_code)]
pub(super) fn take_shared_memory(key: i32) -> bool {
    // SAFETY: looks a segment up and marks it for removal; nothing is mapped.
    unsafe {
        let id = libc::shmget(key, 0, 0);
        id >= 0 && libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) == 0
    }
}

#[allow(unsafe_code)]
pub(super) fn keyring(_: &World, _: &Path) -> io::Result<()> {
    const PROCESS_KEYRING: i32 = -2;
    let (kind, name, value) = (c"user", c"git-agent-doctor", b"x");
    // SAFETY: both strings end with a zero byte, the value has the length given; all live through the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_add_key,
            kind.as_ptr(),
            name.as_ptr(),
            value.as_ptr(),
            value.len(),
            PROCESS_KEYRING,
        )
    })
    .map(drop)
}

#[allow(unsafe_code)]
fn open_socket(family: i32, kind: i32, protocol: i32) -> io::Result<()> {
    // SAFETY: makes a socket, which is owned at once.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) }.into())?;
    // SAFETY: made just above and nobody else's.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    Ok(())
}

pub(super) fn vsock(_: &World, _: &Path) -> io::Result<()> {
    open_socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)
}

pub(super) fn mptcp(_: &World, _: &Path) -> io::Result<()> {
    open_socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)
}

#[allow(unsafe_code)]
pub(super) fn io_uring(_: &World, _: &Path) -> io::Result<()> {
    // `struct io_uring_params`, which is 120 bytes.
    let mut params = [0_u32; 30];
    // SAFETY: the kernel reads and writes the 120 bytes.
    let fd = check(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) })?;
    // SAFETY: made just above and nobody else's.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    Ok(())
}

/// Another terminal of the user.
pub(super) fn terminal(world: &World, _: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
    let mut file = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(&world.terminal)?;
    file.write_all(TOKEN.as_bytes())
}

#[allow(clippy::unnecessary_cast)] // the C libraries differ on its type
const TYPE: u64 = libc::TIOCSTI as u64;

pub(super) fn type_ahead(_: &World, _: &Path) -> io::Result<()> {
    push_back(TYPE)
}

/// The kernel looks at the low half of the request only; a filter must not compare more.
pub(super) fn type_ahead_high(_: &World, _: &Path) -> io::Result<()> {
    push_back(TYPE | 1 << 32)
}

/// Types a letter into a terminal of our own, as if a person had.
#[allow(unsafe_code)]
fn push_back(request: u64) -> io::Result<()> {
    let own = super::stage::Terminal::open()?;
    let slave = rustix::fs::open(&own.path, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::process::setsid()?;
    // Its end would hang up on us before we can say how it went.
    let _own = std::mem::ManuallyDrop::new(own);
    // SAFETY: the requests take a number, and a pointer to one byte that lives through the call.
    unsafe {
        check(libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0).into())?;
        check(libc::syscall(libc::SYS_ioctl, slave.as_raw_fd(), request, b"x".as_ptr())).map(drop)
    }
}
