//! Putting new files in the place of old ones: all of them or none, whenever the process or the machine dies.
//! Every new file is finished in a slot on the same file system first; then names change places, one system
//! call a file, and what was displaced is looked at once more, so that an edit made a moment ago takes
//! everything back. Taking back goes by inode: it needs no memory of what was done, only the list of moves,
//! which the caller keeps in a journal. No link is ever followed.

mod act;
mod moves;
mod slot;
#[cfg(test)]
mod tests;

pub use act::{Kept, Why};
pub use moves::{Known, Move, as_text};
pub use slot::{Slot, Where};

use super::files::{Dir, Meta, beneath};
use rustix::fs::{self, Access, AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Whether two looks at a name saw the same untouched file. Not the inode's change time: a rename sets it.
pub fn untouched(a: &Meta, b: &Meta) -> bool {
    a.id == b.id && a.size == b.size && a.mtime == b.mtime && a.mode == b.mode
}

/// Device and mount of an open folder: names can be exchanged only within both.
pub fn mount(folder: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let found = fs::statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    let known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let dev = (u64::from(found.stx_dev_major) << 32) | u64::from(found.stx_dev_minor);
    Ok((dev, if known { found.stx_mnt_id } else { 0 }))
}

/// Whether we may add and remove names in the folder `path` below `root`.
pub fn is_writable(root: &Dir, path: &[u8]) -> io::Result<bool> {
    let folder = folder(root.as_fd(), path)?;
    match fs::accessat(&folder, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Device and mount of the folder `path` below `root`.
pub fn mount_at(root: &Dir, path: &[u8]) -> io::Result<(u64, u64)> {
    mount(folder(root.as_fd(), path)?.as_fd())
}

/// The names in the folder `path` below `root` (the root itself when empty), sorted.
pub fn names(root: &Dir, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    list(folder(root.as_fd(), path)?.as_fd())
}

/// Bytes that an ordinary user may still write on the file system of `folder`.
pub fn free_space(folder: &Dir) -> io::Result<u64> {
    let found = fs::fstatvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

fn folder(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC)
}

fn list(folder: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in fs::Dir::read_from(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The folder `path` below `root` itself: what it is now.
pub fn look_at_folder(root: &Dir, path: &[u8]) -> io::Result<Meta> {
    Ok(Meta::of(&fs::fstat(folder(root.as_fd(), path)?)?))
}

/// Gives the folder `path` below `root` this modification time, if it is still the folder with this inode.
pub fn set_folder_time(root: &Dir, path: &[u8], as_in: &Known) -> io::Result<()> {
    let fd = folder(root.as_fd(), path)?;
    let stat = fs::fstat(&fd)?;
    let now = Meta::of(&stat);
    if now.id.ino != as_in.ino || now.mtime == as_in.mtime {
        return Ok(());
    }
    // With the time of the last access as it is: some file systems in user space set both times or none.
    #[allow(clippy::unnecessary_cast)] // the field types differ between architectures
    let last_access = fs::Timespec { tv_sec: stat.st_atime as i64, tv_nsec: stat.st_atime_nsec as _ };
    let last_modification = fs::Timespec { tv_sec: as_in.mtime.0, tv_nsec: as_in.mtime.1.into() };
    Ok(fs::futimens(&fd, &fs::Timestamps { last_access, last_modification })?)
}

/// Makes what was done in these folders below `root` durable: one by one while they are few, else everything
/// on the file system at once (`syncfs`, 11 ms where a thousand `fsync` take 400).
pub fn sync_folders<'p>(root: &Dir, paths: impl IntoIterator<Item = &'p [u8]>) -> io::Result<()> {
    let paths: std::collections::BTreeSet<&[u8]> = paths.into_iter().collect();
    if paths.len() > FEW {
        return Ok(fs::syncfs(root.as_fd())?);
    }
    for path in paths {
        match folder(root.as_fd(), path) {
            Ok(fd) => fs::fsync(fd)?,
            // Gone by now; the folder above it says so.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// More than this many files or folders are synced all at once.
const FEW: usize = 8;

/// Holds off SIGINT, SIGTERM, SIGHUP and SIGQUIT of this thread while it lives: half a placement is worse than
/// a late answer to Ctrl-C.
#[derive(Debug)]
pub struct Uninterrupted(libc::sigset_t);

impl Uninterrupted {
    /// Begins now.
    #[allow(unsafe_code)]
    pub fn begin() -> Self {
        // SAFETY: both sets are valid, initialised by the calls themselves, and outlive them.
        unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            let mut before = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Uninterrupted {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the set was filled by pthread_sigmask.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut());
        }
    }
}
