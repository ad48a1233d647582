//! Processes and who they run as: the caller, the dedicated user of a run, exact signals, and doing file
//! work as that user in a child.

use super::lock::Lock;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A user and a group by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The person at this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Login name: passwd's, else `$USER`, else the number.
    pub login: String,
    /// Host name as `uname(2)` says.
    pub host: String,
    /// `$HOME` when it is absolute, else passwd's; `None` when neither is known.
    pub home: Option<PathBuf>,
}

/// Who runs this program. Never fails: a fresh container has no passwd entry and no HOME.
pub fn current_user() -> User {
    let uid = geteuid().as_raw();
    let (login, passwd_home) = match passwd(uid) {
        Some((login, home)) => (Some(login), Some(home)),
        None => (None, None),
    };
    let from_env = || std::env::var("USER").ok().filter(|u| !u.is_empty());
    User {
        uid,
        gid: rustix::process::getegid().as_raw(),
        login: login.or_else(from_env).unwrap_or_else(|| uid.to_string()),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        home: std::env::var_os("HOME").map(PathBuf::from).filter(|h| h.is_absolute()).or(passwd_home),
    }
}

/// Whether the effective user is 0.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Our own effective ids.
pub(super) fn current_user_ids() -> Identity {
    Identity { uid: geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

/// The dynamic range of systemd, in which no person and no service has an id.
pub(super) const RUN_UIDS: std::ops::RangeInclusive<u32> = 61184..=65519;

/// Whether this is a user that [`pick_run_uid`] could have picked.
pub(super) fn is_dedicated(identity: Identity) -> bool {
    RUN_UIDS.contains(&identity.uid)
}

/// Where the users of live runs are claimed, one lock a user id, for all repositories of the machine.
const CLAIMS: &str = "/run/git-agent/uid";

/// A user for one run: an id of systemd's dynamic range without a passwd entry, without a process, and not
/// claimed by another live run, looked for from a place that `seed` decides. Group = user. The claim lasts as
/// long as the lock. `PermissionDenied` when we cannot become it ([`can_become`]); `NotFound` when the range
/// is used up.
pub fn pick_run_uid(seed: u64) -> io::Result<(Identity, Option<Lock>)> {
    let span = RUN_UIDS.end() - RUN_UIDS.start() + 1;
    let first = (seed % u64::from(span)) as u32;
    let busy = uids_with_processes();
    for uid in (0..span).map(|i| RUN_UIDS.start() + (first + i) % span) {
        if busy.contains(&uid) || passwd(uid).is_some() {
            continue;
        }
        let identity = Identity { uid, gid: uid };
        if !can_become(identity) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("cannot change to user {uid}: not root, or not mapped in /proc/self/uid_map"),
            ));
        }
        if let Claim::Ours(lock) = claim(identity)? {
            return Ok((identity, lock));
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "no free user id for the run"))
}

/// Whether a run's user is this run's alone now.
#[derive(Debug)]
pub enum Claim {
    /// It is, while the lock is held; without one where `/run` cannot be written, which no root of ours meets
    /// on a machine with more than one run.
    Ours(Option<Lock>),
    /// Another live run has the same one: two of them would end each other's processes.
    Taken,
}

/// Claims a run's user for as long as the lock is held.
pub fn claim(identity: Identity) -> io::Result<Claim> {
    if super::files::create_dirs(std::path::Path::new(CLAIMS), 0o700).is_err() {
        return Ok(Claim::Ours(None));
    }
    let lock = Lock::acquire(&std::path::Path::new(CLAIMS).join(identity.uid.to_string()))?;
    Ok(lock.map_or(Claim::Taken, |lock| Claim::Ours(Some(lock))))
}

/// Whether we may become users that are not us: root, and not only by name.
pub fn can_become_others() -> bool {
    is_root() && can_become(Identity { uid: *RUN_UIDS.start(), gid: *RUN_UIDS.start() })
}

/// Whether a child of ours could change to this identity: the capabilities are there and both ids are mapped
/// in this user namespace.
pub fn can_become(identity: Identity) -> bool {
    let capable = rustix::thread::capabilities(None)
        .is_ok_and(|c| c.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID));
    let mapped = |file: &str, id: u32| {
        std::fs::read_to_string(file).is_ok_and(|map| {
            map.lines().any(|line| {
                let mut numbers = line.split_ascii_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
                let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
                let id = u64::from(id);
                matches!((first, count), (Some(f), Some(c)) if id >= f && id < f + c)
            })
        })
    };
    capable && mapped("/proc/self/uid_map", identity.uid) && mapped("/proc/self/gid_map", identity.gid)
}

/// Start time of a process in clock ticks since boot (field 22 of `/proc/<pid>/stat`). `None` when there is no
/// such process.
pub fn start_time(pid: i32) -> io::Result<Option<u64>> {
    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => field_22(&stat).map(Some),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// [`start_time`] of ourselves, also where `/proc` numbers processes differently.
pub(super) fn own_start_time() -> io::Result<u64> {
    field_22(&std::fs::read("/proc/self/stat")?)
}

fn field_22(stat: &[u8]) -> io::Result<u64> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "/proc/<pid>/stat is not as expected");
    // The second field is the program's name in parentheses, and may hold spaces and parentheses.
    let after = stat.iter().rposition(|b| *b == b')').ok_or_else(bad)? + 1;
    let text = std::str::from_utf8(&stat[after..]).map_err(|_| bad())?;
    text.split_ascii_whitespace().nth(19).and_then(|n| n.parse().ok()).ok_or_else(bad)
}

/// Sends `signal` (a number of `signal(7)`) to the process that has this pid *and* started at this time, so
/// that a recycled pid is never hit. `false` when that process is gone.
pub fn signal_exact(pid: i32, start: u64, signal: i32) -> io::Result<bool> {
    let gone = |e: rustix::io::Errno| e == rustix::io::Errno::SRCH;
    let Some(target) = (pid > 0).then(|| Pid::from_raw(pid)).flatten() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a process id"));
    };
    let fd = match rustix::process::pidfd_open(target, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(e) if gone(e) => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    // After opening: from here on the descriptor means whoever had the pid when we looked.
    if start_time(pid)? != Some(start) {
        return Ok(false);
    }
    let signal = Signal::from_named_raw(signal)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a signal"))?;
    match rustix::process::pidfd_send_signal(fd, signal) {
        Ok(()) => Ok(true),
        Err(e) if gone(e) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Does `work` as `identity`, in a forked child with umask 022 whose only capability is to read and search
/// (`CAP_DAC_READ_SEARCH`, so that folders below `/root` can be reached); with `None` right here. What the
/// closure creates belongs to the identity; what it changes in memory is lost with the child.
///
/// An error keeps its OS error number, or else its text. A panic or a signal in the child is an error.
pub fn as_identity(identity: Option<Identity>, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let Some(identity) = identity else { return work() };
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let Some(child) = fork()? else {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            become_identity(identity)?;
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
            work()
        }));
        let message = match outcome {
            Ok(Ok(())) => String::from("ok"),
            Ok(Err(e)) => format!("{} {e}", e.raw_os_error().unwrap_or(0)),
            Err(_) => String::from("0 panicked"),
        };
        let _ = File::from(write).write_all(message.as_bytes());
        exit_now(0)
    };
    drop(write);
    let mut message = Vec::new();
    let heard = File::from(read).read_to_end(&mut message);
    let _ = wait(child)?;
    heard?;
    let message = String::from_utf8_lossy(&message);
    match message.split_once(' ') {
        None if message == "ok" => Ok(()),
        None => Err(io::Error::other("the child that works as the run's user died")),
        Some((code, text)) => match code.parse() {
            Ok(0) | Err(_) => Err(io::Error::other(text.to_owned())),
            Ok(code) => Err(io::Error::from_raw_os_error(code)),
        },
    }
}

/// Changes this process, which must be a single-threaded child, to `identity` for good. What remains of root
/// is `CAP_DAC_READ_SEARCH`, and not across exec.
fn become_identity(identity: Identity) -> io::Result<()> {
    rustix::thread::set_keep_capabilities(true)?;
    set_ids(identity)?;
    let held = rustix::thread::capabilities(None)?.permitted & CapabilitySet::DAC_READ_SEARCH;
    set_only_capabilities(held, CapabilitySet::empty())
}

/// Supplementary groups, group, user; real, effective and saved.
pub(super) fn set_ids(identity: Identity) -> io::Result<()> {
    let gid = rustix::process::Gid::from_raw(identity.gid);
    let uid = rustix::process::Uid::from_raw(identity.uid);
    // Of this thread only, which is the whole of a forked child; setgroups may be denied in a namespace.
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

pub(super) fn set_only_capabilities(held: CapabilitySet, inheritable: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets { effective: held, permitted: held, inheritable };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// `fork(2)`: the child's pid in the parent, `None` in the child. This program is single-threaded; in tests
/// glibc keeps its allocator usable in the child.
#[allow(unsafe_code)]
pub(super) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: no other thread holds a lock that the child needs (see above), and the child ends in
    // `exit_now` or exec.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Ends a forked child without running the parent's destructors or flushing its buffers.
#[allow(unsafe_code)]
pub(super) fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// This process's session, group, and the group that a terminal is given to, as the kernel numbers them here.
/// A leader outside of this pid namespace is 0, as in a container's first process and what it starts; rustix
/// takes that for impossible.
pub(super) mod terminal {
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};

    #[allow(unsafe_code)]
    pub fn session() -> i32 {
        // SAFETY: takes and gives a number.
        unsafe { libc::getsid(0) }
    }

    #[allow(unsafe_code)]
    pub fn group() -> i32 {
        // SAFETY: gives a number.
        unsafe { libc::getpgrp() }
    }

    /// The session that has `fd` as its controlling terminal; an error if that is not ours.
    #[allow(unsafe_code)]
    pub fn session_of(fd: BorrowedFd<'_>) -> io::Result<i32> {
        // SAFETY: takes a descriptor and gives a number.
        known(unsafe { libc::tcgetsid(fd.as_raw_fd()) })
    }

    /// The group in the foreground of the terminal `fd`.
    #[allow(unsafe_code)]
    pub fn foreground_of(fd: BorrowedFd<'_>) -> io::Result<i32> {
        // SAFETY: takes a descriptor and gives a number.
        known(unsafe { libc::tcgetpgrp(fd.as_raw_fd()) })
    }

    fn known(number: i32) -> io::Result<i32> {
        if number < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
    }
}

/// Waits for one child; its raw wait status.
#[allow(unsafe_code)]
pub(super) fn wait(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid {
            return Ok(status);
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

fn uids_with_processes() -> std::collections::HashSet<u32> {
    use std::os::unix::fs::MetadataExt;
    let numeric = |e: &std::fs::DirEntry| e.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten().filter(numeric);
    entries.filter_map(|e| e.metadata().ok()).map(|m| m.uid()).collect()
}

/// Login name and home folder of a user id, from whatever `nsswitch.conf` says.
#[allow(unsafe_code)]
fn passwd(uid: u32) -> Option<(String, PathBuf)> {
    let mut buffer = vec![0; 16 * 1024];
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::zeroed();
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, and the buffer's length is told.
    let code = unsafe {
        libc::getpwuid_r(uid, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    if code != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call succeeded, so the entry is filled and its strings live in `buffer`.
    let (name, dir) = unsafe {
        let entry = entry.assume_init();
        (CStr::from_ptr(entry.pw_name), CStr::from_ptr(entry.pw_dir))
    };
    let home = PathBuf::from(OsString::from_vec(dir.to_bytes().to_vec()));
    Some((name.to_string_lossy().into_owned(), home))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn an_exact_signal_hits_only_its_process() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = child.id() as i32;
        let start = start_time(pid).unwrap().unwrap();
        assert!(!signal_exact(pid, start + 1, libc::SIGKILL).unwrap());
        assert!(child.try_wait().unwrap().is_none());
        assert!(signal_exact(pid, start, libc::SIGKILL).unwrap());
        child.wait().unwrap();
        assert!(!signal_exact(pid, start, libc::SIGKILL).unwrap());
        assert!(signal_exact(-1, start, libc::SIGKILL).is_err());
    }

    #[test]
    fn work_as_another_user_owns_what_it_makes_and_reports_errors() {
        if !is_root() {
            assert!(pick_run_uid(7).is_err());
            return;
        }
        let t = tempfile::tempdir().unwrap();
        let identity = pick_run_uid(7).unwrap().0;
        assert!(RUN_UIDS.contains(&identity.uid));
        let run = t.path().join("run");
        crate::os::files::create_dir_for(&run, 0o700, Some(identity)).unwrap();
        let make = |p: PathBuf| as_identity(Some(identity), || crate::os::files::write_new(&p, b"", 0o644));
        make(run.join("f")).unwrap();
        assert_eq!(std::fs::metadata(run.join("f")).unwrap().uid(), identity.uid);
        let denied = make(t.path().join("g")).unwrap_err();
        assert_eq!(denied.raw_os_error(), Some(libc::EACCES));
    }

    #[test]
    fn the_caller_is_known() {
        let user = current_user();
        assert_eq!(user.uid, geteuid().as_raw());
        assert!(!user.login.is_empty() && !user.host.is_empty());
    }
}
