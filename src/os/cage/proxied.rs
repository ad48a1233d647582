//! The proxy of a cage: its socket is made in the cage's network and handed out of it; the process that serves
//! it stays outside, as the run's user where there is one.

use super::spec::Wish;
use super::sys;
use super::terminal::reset_signals;
use crate::os::process::{self, exit_now, fork};
use crate::os::proxy;
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Where the socket comes out, and where it goes in.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Hands a socket over.
pub(super) fn send(listener: &TcpListener, to: &OwnedFd) -> io::Result<()> {
    let fds = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(to, &[IoSlice::new(b"L")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes it. `None` when the other side ended without.
pub(super) fn receive(from: &OwnedFd) -> io::Result<Option<TcpListener>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            return Ok(fds.next().map(TcpListener::from));
        }
    }
    Ok(None)
}

/// The process that serves; it dies with this value, and with us.
#[derive(Debug)]
pub(super) struct Proxy(i32);

impl Proxy {
    pub(super) fn start(listener: TcpListener, wish: &Wish) -> io::Result<Self> {
        let path = wish.refusals.as_deref().unwrap_or(std::path::Path::new("/dev/null"));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let log = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
        if let Some(child) = fork()? {
            return Ok(Self(child));
        }
        let prepared = || -> io::Result<()> {
            let _ = rustix::thread::set_name(c"cage-proxy");
            rustix::process::setpgid(None, None)?;
            sys::close_all_but(&mut [listener.as_raw_fd(), log.as_raw_fd()]);
            // The lowest numbers are free now; what a library says to them goes nowhere.
            for _ in 0..3 {
                std::mem::forget(rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?);
            }
            if let Some(identity) = wish.identity {
                process::set_ids(identity)?;
            }
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            sys::hide_memory()?;
            rustix::thread::set_no_new_privs(true)?;
            reset_signals();
            Ok(())
        };
        if prepared().is_ok() {
            let _ = proxy::serve(listener, &wish.hosts, log);
        }
        exit_now(1)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = process::wait(self.0);
        }
    }
}
