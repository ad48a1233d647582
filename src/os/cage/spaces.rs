//! Namespaces of a cage, made by a forked child. What they show is `mounts`'.

use super::spec::Network;
use super::step::{Failed, Step};
use super::sys;
use crate::os::process::{self, exit_now, fork, wait};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use rustix::thread::CapabilitySet;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};

/// Where the proxy of a cage listens, in the cage's own network.
pub const PROXY_PORT: u16 = 3128;

/// By what right namespaces are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// `CAP_SYS_ADMIN`.
    Admin,
    /// In a user namespace of our own.
    User,
}

/// What is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spaces {
    pub(super) right: Right,
    pub(super) network: Network,
}

impl Spaces {
    /// Rights worth trying, best first.
    pub(super) fn rights() -> Vec<Right> {
        let admin =
            rustix::thread::capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::SYS_ADMIN));
        if admin { vec![Right::Admin, Right::User] } else { vec![Right::User] }
    }

    /// Leaves the machine's namespaces, in a forked child with one thread. With `processes` the pid namespace
    /// is that of the next child. Gives the socket that the proxy has to listen on.
    pub(super) fn unshare(self, processes: bool) -> Result<Option<TcpListener>, Failed> {
        let own = libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;
        let mut flags = own;
        if processes {
            flags |= libc::CLONE_NEWPID;
        }
        if self.network != Network::Open {
            flags |= libc::CLONE_NEWNET;
        }
        match self.right {
            Right::Admin => sys::unshare(flags).map_err(Failed::at(Step::Unshare))?,
            Right::User => in_user_namespace(flags)?,
        }
        if self.network == Network::Open {
            return Ok(None);
        }
        sys::loopback_up().map_err(Failed::at(Step::Loopback))?;
        if self.network == Network::Off {
            return Ok(None);
        }
        TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT)).map(Some).map_err(Failed::at(Step::Listen))
    }

    /// Goes on as the first process of a pid namespace. The process that called this only waits for that one:
    /// it holds what `keep` names until everything in the namespace is dead, and then ends. The kernel kills
    /// the namespace with its first process, and that one with the process that waits.
    pub(super) fn first_process(keep: &[i32]) -> Result<(), Failed> {
        match fork().map_err(Failed::at(Step::Fork))? {
            Some(first) => {
                let _ = rustix::thread::set_name(c"cage-outer");
                let _ = rustix::process::setpgid(None, None);
                sys::block_all_signals();
                sys::close_all_but(&mut keep.to_vec());
                let _ = wait(first);
                exit_now(0)
            }
            None => {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
                    .map_err(Failed::at(Step::Parent))?;
                Ok(())
            }
        }
    }
}

/// A person's own user is mapped to itself and nothing else. Root maps all users that it has, so that it can
/// still become the run's; a child outside writes that, since nobody inside may.
fn in_user_namespace(flags: libc::c_int) -> Result<(), Failed> {
    let flags = flags | libc::CLONE_NEWUSER;
    let ids = process::current_user_ids();
    let map = Failed::at::<io::Error>;
    if !process::can_become_others() {
        sys::unshare(flags).map_err(Failed::at(Step::Unshare))?;
        let put = |file: &str, text: String| -> io::Result<()> {
            std::fs::OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
        };
        return put("/proc/self/setgroups", "deny".into())
            .and_then(|()| put("/proc/self/uid_map", format!("{0} {0} 1\n", ids.uid)))
            .and_then(|()| put("/proc/self/gid_map", format!("{0} {0} 1\n", ids.gid)))
            .map_err(map(Step::MapUser));
    }
    let (ready, tell) = pipe_with(PipeFlags::CLOEXEC).map_err(Failed::at(Step::MapUser))?;
    let me = std::process::id();
    let Some(mapper) = fork().map_err(Failed::at(Step::Fork))? else {
        drop(tell);
        let mut byte = [0];
        let told = rustix::io::read(&ready, &mut byte).is_ok_and(|n| n == 1);
        exit_now(i32::from(!told || map_all(me).is_err()))
    };
    drop(ready);
    sys::unshare(flags).map_err(Failed::at(Step::Unshare))?;
    rustix::io::write(&tell, b"1").map_err(Failed::at(Step::MapUser))?;
    match wait(mapper) {
        Ok(0) => Ok(()),
        _ => Err(map(Step::MapUser)(io::Error::from_raw_os_error(libc::EPERM))),
    }
}

/// Every id that we have, as itself.
fn map_all(pid: u32) -> io::Result<()> {
    for file in ["uid_map", "gid_map"] {
        let ours = std::fs::read_to_string(format!("/proc/self/{file}"))?;
        let mut lines = String::new();
        for line in ours.lines() {
            let mut numbers = line.split_ascii_whitespace();
            if let (Some(first), Some(count)) = (numbers.next(), numbers.nth(1)) {
                lines.push_str(&format!("{first} {first} {count}\n"));
            }
        }
        std::fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/{pid}/{file}"))?
            .write_all(lines.as_bytes())?;
    }
    Ok(())
}
