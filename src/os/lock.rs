//! Locks that belong to an open file description (`F_OFD_SETLK`): children that keep the descriptor keep
//! the lock, and the kernel lets go when the last of them is dead. Nothing is ever unlocked by hand.

use super::files;
use super::process;
use rustix::fs::{self, Mode, OFlags};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

/// Who wrote its name into a lock file: enough to signal exactly that process ([`process::signal_exact`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Process id, as the holder saw itself.
    pub pid: i32,
    /// Start time in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub start: u64,
}

/// A held exclusive lock. Dropping it closes our descriptor; children that share it hold on.
#[derive(Debug)]
pub struct Lock(std::fs::File);

impl Lock {
    /// Takes the lock without waiting, creating the file with mode 0600, and writes our pid and start time
    /// into it. `None` when somebody else holds it. A link at `path` is an error.
    pub fn acquire(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let file = std::fs::File::from(fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
            if let Some(code) = set_write_lock(file.as_fd()) {
                return match code.raw_os_error() {
                    Some(libc::EAGAIN | libc::EACCES) => Ok(None),
                    _ => Err(code),
                };
            }
            // Somebody may have removed the name between open and lock; then we hold a nameless file.
            let ours = files::Meta::of(&fs::fstat(&file)?).id;
            if files::lstat(path)?.map(|m| m.id) != Some(ours) {
                continue;
            }
            file.set_len(0)?;
            (&file)
                .write_all(format!("{} {}\n", std::process::id(), process::own_start_time()?).as_bytes())?;
            return Ok(Some(Self(file)));
        }
    }

    /// Whether anybody holds the lock, asked without taking it. A missing file is held by nobody.
    pub fn is_held(path: &Path) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match files::absent(fs::open(path, flags, Mode::empty()))? {
            None => Ok(false),
            Some(fd) => is_locked(fd.as_fd()),
        }
    }

    /// Who holds the lock. `None` when nobody does. Between taking the lock and writing the name there is a
    /// moment in which a holder cannot be told: `WouldBlock`.
    pub fn holder(path: &Path) -> io::Result<Option<Holder>> {
        if !Self::is_held(path)? {
            return Ok(None);
        }
        let text = files::read_bounded(path, 64)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut words = text.split_ascii_whitespace();
        let pid = words.next().and_then(|w| w.parse().ok());
        let start = words.next().and_then(|w| w.parse().ok());
        match (pid, start) {
            (Some(pid), Some(start)) => Ok(Some(Holder { pid, start })),
            _ => Err(io::Error::new(io::ErrorKind::WouldBlock, "the lock does not name its holder")),
        }
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock { l_type: kind as _, l_whence: libc::SEEK_SET as _, l_start: 0, l_len: 0, l_pid: 0 }
}

#[allow(unsafe_code)]
fn set_write_lock(fd: BorrowedFd<'_>) -> Option<io::Error> {
    let range = whole_file(libc::F_WRLCK);
    // SAFETY: the descriptor is open and `range` is a valid flock that outlives the call.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    (result != 0).then(io::Error::last_os_error)
}

#[allow(unsafe_code)]
fn is_locked(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut range = whole_file(libc::F_WRLCK);
    // SAFETY: the descriptor is open and `range` is a valid flock that outlives the call.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::from(range.l_type) != libc::F_UNLCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_and_anyone_may_ask() {
        let t = tempfile::tempdir().unwrap();
        let path = t.path().join("lock");
        assert!(!Lock::is_held(&path).unwrap());
        let lock = Lock::acquire(&path).unwrap().unwrap();
        assert!(Lock::acquire(&path).unwrap().is_none());
        assert!(Lock::is_held(&path).unwrap());
        assert!(Lock::is_held(&path).unwrap(), "asking does not take it");
        let holder = Lock::holder(&path).unwrap().unwrap();
        assert_eq!(holder.pid, std::process::id() as i32);
        assert_eq!(holder.start, process::start_time(holder.pid).unwrap().unwrap());
        drop(lock);
        assert!(!Lock::is_held(&path).unwrap());
        assert_eq!(Lock::holder(&path).unwrap(), None);
        assert!(Lock::acquire(&path).unwrap().is_some());
        files::symlink(&path, &t.path().join("link")).unwrap();
        assert!(Lock::acquire(&t.path().join("link")).is_err());
    }

    #[test]
    fn a_copy_of_the_descriptor_keeps_it() {
        let t = tempfile::tempdir().unwrap();
        let path = t.path().join("lock");
        let lock = Lock::acquire(&path).unwrap().unwrap();
        let copy = lock.as_fd().try_clone_to_owned().unwrap();
        drop(lock);
        assert!(Lock::is_held(&path).unwrap());
        drop(copy);
        assert!(!Lock::is_held(&path).unwrap());
    }
}
