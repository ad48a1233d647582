//! The only writer of files. No function here follows a link in the last component of a path; those of
//! [`Dir`] follow none at all. Modes are exact: the caller's umask does not change them.

use super::process::Identity;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What makes a file itself, whatever its name: device and inode number as `stat(2)` gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// `st_dev`.
    pub dev: u64,
    /// `st_ino`.
    pub ino: u64,
}

/// Bytes that an ordinary user may still write to the file system of a folder.
pub fn free_space(dir: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Whether this user could make an entry in a folder: permission bits, ACLs and read-only mounts asked of the
/// kernel. `false` where it cannot be asked.
pub fn is_writable(dir: &Path) -> bool {
    let wanted = fs::Access::WRITE_OK | fs::Access::EXEC_OK;
    fs::accessat(fs::CWD, dir, wanted, AtFlags::EACCESS).is_ok()
}

/// What `lstat(2)` says about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Device and inode.
    pub id: FileId,
    /// File type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Modification time: seconds since the epoch and nanoseconds.
    pub mtime: (i64, u32),
    /// Owner.
    pub uid: u32,
    /// Number of hard links.
    pub links: u64,
}

impl Meta {
    #[allow(clippy::unnecessary_cast)] // the field types differ between architectures
    pub(super) fn of(s: &fs::Stat) -> Self {
        Self {
            id: FileId { dev: s.st_dev as u64, ino: s.st_ino as u64 },
            mode: s.st_mode as u32,
            size: s.st_size as u64,
            mtime: (s.st_mtime as i64, s.st_mtime_nsec as u32),
            uid: s.st_uid,
            links: s.st_nlink as u64,
        }
    }

    /// A regular file.
    pub fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::RegularFile
    }

    /// A directory.
    pub fn is_dir(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::Directory
    }

    /// A symbolic link.
    pub fn is_symlink(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::Symlink
    }
}

/// Gives one name to a run's user; a link itself, never what it points to. With `None` nothing happens.
/// Only for what we made a moment ago inside a folder that nobody else can reach.
pub fn give(path: &Path, owner: Option<Identity>) -> io::Result<()> {
    let Some(owner) = owner else { return Ok(()) };
    let (uid, gid) = (fs::Uid::from_raw(owner.uid), fs::Gid::from_raw(owner.gid));
    Ok(fs::chownat(fs::CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// `lstat(2)`; `None` when the name, or a folder on the way, does not exist.
pub fn lstat(path: &Path) -> io::Result<Option<Meta>> {
    absent(fs::lstat(path)).map(|s| s.map(|s| Meta::of(&s)))
}

/// When the status of a path below `root` last changed (`ctime`, which nobody can set back): seconds since the
/// epoch and nanoseconds. `None` when it does not exist.
pub fn status_time(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<Option<(i64, u32)>> {
    let Some((folder, name)) = absent_io(parent_beneath(root, path))? else { return Ok(None) };
    let stat = absent(fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW))?;
    #[allow(clippy::unnecessary_cast)] // the field types differ between architectures
    Ok(stat.map(|s| (s.st_ctime as i64, s.st_ctime_nsec as u32)))
}

/// Reads a regular file of at most `max` bytes. `None` when it does not exist. A link, a directory or a
/// special file is an error (a fifo does not block), and so is a file that is larger.
pub fn read_bounded(path: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(fd) = absent(fs::open(path, READ, Mode::empty()))? else { return Ok(None) };
    read_fd(fd, max).map(Some)
}

/// Creates a file that must not exist yet and writes `bytes` to it. `AlreadyExists` when it does.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    write_new_in(fs::CWD, path, bytes, mode).map(drop)
}

/// Creates a file that must not exist yet, mode 0600, for somebody else to write to.
pub fn create_to_write(path: &Path) -> io::Result<OwnedFd> {
    write_new_in(fs::CWD, path, b"", 0o600).map(OwnedFd::from)
}

/// Replaces a file so that a reader, and a machine that loses power, see the old content or the new and
/// nothing between: a temporary file in the same folder, fsync, rename, fsync of the folder.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let folder = parent(path);
    let temporary = temporary_name(path)?;
    let written = write_new_in(fs::CWD, &temporary, bytes, mode)
        .and_then(|file| file.sync_all())
        .and_then(|()| Ok(fs::rename(&temporary, path)?));
    if written.is_err() {
        let _ = fs::unlink(&temporary);
    }
    written.and_then(|()| sync_dir(folder))
}

/// Adds to the end of a file that exists and makes it durable before it returns.
pub fn append_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fd = regular(fs::open(path, OFlags::WRONLY | OFlags::APPEND | NOFOLLOW, Mode::empty())?)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes a file in place, creating or truncating it, without fsync: for what can be made again.
pub fn write_plain(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | NOFOLLOW;
    let fd = regular(fs::open(path, flags, Mode::from_raw_mode(mode))?)?;
    fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
    File::from(fd).write_all(bytes)
}

/// Copies a regular file with its permission bits and its modification time to the nanosecond; `to` is
/// created or truncated. git's index needs the time: entries as young as the index are looked at again.
pub fn copy_keep_mtime(from: &Path, to: &Path) -> io::Result<()> {
    let from = regular(fs::open(from, READ, Mode::empty())?)?;
    let stat = fs::fstat(&from)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | NOFOLLOW;
    let to = regular(fs::open(to, flags, mode)?)?;
    fs::fchmod(&to, mode)?;
    let mut to = File::from(to);
    io::copy(&mut File::from(from), &mut to)?;
    let stat = Meta::of(&stat);
    let time = fs::Timespec { tv_sec: stat.mtime.0, tv_nsec: stat.mtime.1.into() };
    fs::futimens(&to, &fs::Timestamps { last_access: time, last_modification: time })?;
    Ok(())
}

/// Creates one folder. `AlreadyExists` when anything has that name.
pub fn create_dir(path: &Path, mode: u32) -> io::Result<()> {
    create_dir_for(path, mode, None)
}

/// Creates one folder that belongs to `owner`, or to us. Only an empty folder is ever given away; what is in
/// it is made by its owner ([`super::process::as_identity`]).
pub fn create_dir_for(path: &Path, mode: u32, owner: Option<Identity>) -> io::Result<()> {
    fs::mkdir(path, Mode::from_raw_mode(mode))?;
    let fd = open_dir_nofollow(path)?;
    if let Some(owner) = owner {
        fs::fchown(&fd, Some(fs::Uid::from_raw(owner.uid)), Some(fs::Gid::from_raw(owner.gid)))?;
    }
    fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
    Ok(())
}

/// Creates a folder and those above it that are missing. Existing folders keep their mode.
pub fn create_dirs(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// Creates a symbolic link at `link` that says `target`.
pub fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    Ok(fs::symlink(target, link)?)
}

/// Sets the permission bits of a file or folder; a link is an error.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let fd = fs::open(path, READ, Mode::empty())?;
    Ok(fs::fchmod(fd, Mode::from_raw_mode(mode))?)
}

/// Gives the owner of a folder all rights to it where somebody took them away. Whether that was so; anything
/// but a folder is left alone.
pub fn open_up(path: &Path) -> io::Result<bool> {
    match lstat(path)? {
        Some(m) if m.is_dir() && m.mode & 0o700 != 0o700 => {
            fs::chmod(path, Mode::from_raw_mode(m.mode & 0o7777 | 0o700))?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Renames; an existing `to` is replaced if rename(2) would.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    Ok(fs::rename(from, to)?)
}

/// Renames unless `to` exists: then `AlreadyExists`. Where the file system has no `RENAME_NOREPLACE` a second link
/// stands in for it; for what cannot be linked, a folder, one look before.
pub fn rename_noreplace(from: &Path, to: &Path) -> io::Result<()> {
    match fs::renameat_with(fs::CWD, from, fs::CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        other => return Ok(other?),
    }
    match fs::linkat(fs::CWD, from, fs::CWD, to, AtFlags::empty()) {
        Ok(()) => return Ok(fs::unlink(from)?),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK | Errno::INVAL) => {}
        Err(e) => return Err(e.into()),
    }
    if lstat(to)?.is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    rename(from, to)
}

/// Removes a name that is not a folder (a link itself, not what it names). Whether there was one.
pub fn remove_file(path: &Path) -> io::Result<bool> {
    Ok(absent(fs::unlink(path))?.is_some())
}

/// Removes an empty folder. Whether there was one.
pub fn remove_dir(path: &Path) -> io::Result<bool> {
    Ok(absent(fs::rmdir(path))?.is_some())
}

/// Makes creations, renames and removals in a folder durable.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    Ok(fs::fsync(fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)?)
}

/// Opens a folder; a link in the last component is an error.
pub fn open_dir_nofollow(path: &Path) -> io::Result<OwnedFd> {
    Ok(fs::open(path, DIRECTORY, Mode::empty())?)
}

/// An open folder and operations on what lies below it. Paths are relative bytes (`a/b/c`); no link is
/// followed in any component and none leads out (`openat2` with `BENEATH` and `NO_SYMLINKS`).
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens a folder; a link in the last component is an error.
    pub fn open(path: &Path) -> io::Result<Self> {
        open_dir_nofollow(path).map(Self)
    }

    /// Takes an open descriptor of a folder.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Device and inode of the folder itself.
    pub fn id(&self) -> io::Result<FileId> {
        Ok(Meta::of(&fs::fstat(&self.0)?).id)
    }

    /// A folder below.
    pub fn dir_at(&self, path: &[u8]) -> io::Result<Self> {
        beneath(self.as_fd(), path, DIRECTORY).map(Self)
    }

    /// `lstat` of a path below. `None` when it, or a folder on the way, does not exist.
    pub fn lstat_at(&self, path: &[u8]) -> io::Result<Option<Meta>> {
        super::walk::lstat(self.as_fd(), path)
    }

    /// Removes one name below, an empty folder included. Whether there was one.
    pub fn unlink_any_at(&self, path: &[u8]) -> io::Result<bool> {
        let Some((folder, name)) = absent_io(self.parent_of(path))? else { return Ok(false) };
        match fs::unlinkat(&folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                Ok(absent(fs::unlinkat(&folder, name, AtFlags::REMOVEDIR))?.is_some())
            }
            other => Ok(absent(other)?.is_some()),
        }
    }

    /// Creates a file below that must not exist yet.
    pub fn write_new_at(&self, path: &[u8], bytes: &[u8], mode: u32) -> io::Result<()> {
        let (folder, name) = self.parent_of(path)?;
        write_new_in(folder.as_fd(), Path::new(name), bytes, mode).map(drop)
    }

    /// Copies a regular file of another folder to a new name below, with its permission bits and its time; on a
    /// file system that can, the two share their blocks until one is written. Returns its size.
    pub fn copy_new_at(&self, path: &[u8], from: &Dir, source: &[u8]) -> io::Result<u64> {
        let from = regular(beneath(from.as_fd(), source, READ)?)?;
        let stat = fs::fstat(&from)?;
        let (folder, name) = self.parent_of(path)?;
        let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
        let to = fs::openat(&folder, name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | NOFOLLOW, mode)?;
        fs::fchmod(&to, mode)?;
        let stat = Meta::of(&stat);
        if fs::ioctl_ficlone(&to, &from).is_err() {
            let mut to = File::from(to.try_clone()?);
            if let Err(e) = io::copy(&mut File::from(from), &mut to) {
                let _ = fs::unlinkat(&folder, name, AtFlags::empty());
                return Err(e);
            }
        }
        let time = fs::Timespec { tv_sec: stat.mtime.0, tv_nsec: stat.mtime.1.into() };
        fs::futimens(&to, &fs::Timestamps { last_access: time, last_modification: time })?;
        Ok(stat.size)
    }

    /// At most the first `max` bytes of a regular file below. `None` when it does not exist.
    pub fn read_start_at(&self, path: &[u8], max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(fd) = absent_io(beneath(self.as_fd(), path, READ))? else { return Ok(None) };
        let mut bytes = Vec::new();
        File::from(regular(fd)?).take(max).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Creates a folder below.
    pub fn create_dir_at(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let (folder, name) = self.parent_of(path)?;
        fs::mkdirat(&folder, name, Mode::from_raw_mode(mode))?;
        Ok(fs::fchmod(beneath(folder.as_fd(), name.as_bytes(), DIRECTORY)?, Mode::from_raw_mode(mode))?)
    }

    /// Renames within this folder's hierarchy; an existing `to` is replaced if rename(2) would.
    pub fn rename_at(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let (from_folder, from) = self.parent_of(from)?;
        let (to_folder, to) = self.parent_of(to)?;
        Ok(fs::renameat(&from_folder, from, &to_folder, to)?)
    }

    /// [`read_bounded`] of a path below.
    pub fn read_bounded_at(&self, path: &[u8], max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(fd) = absent_io(beneath(self.as_fd(), path, READ))? else { return Ok(None) };
        read_fd(fd, max).map(Some)
    }

    /// Copies a regular file below, which must have exactly this size and SHA-256, to the name `to`, which appears
    /// whole or not at all. `false` when there is no such file; another size or digest is an error.
    pub fn copy_exact_at(
        &self,
        path: &[u8],
        to: &Path,
        size: u64,
        digest: &crate::model::Digest,
    ) -> io::Result<bool> {
        use sha2::Digest as _;
        let Some(fd) = absent_io(beneath(self.as_fd(), path, READ))? else { return Ok(false) };
        let mut from = File::from(regular(fd)?);
        let other = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("it has another {what}"));
        if from.metadata()?.len() != size {
            return Err(other("size"));
        }
        let temporary = temporary_name(to)?;
        let mut copy = write_new_in(fs::CWD, &temporary, b"", 0o644)?;
        let copied = (|| {
            let (mut hash, mut left) = (sha2::Sha256::new(), size);
            let mut buffer = vec![0; 1 << 16];
            loop {
                let n = from.read(&mut buffer)?;
                left = left.checked_sub(n as u64).ok_or_else(|| other("size"))?;
                if n == 0 {
                    break;
                }
                hash.update(&buffer[..n]);
                copy.write_all(&buffer[..n])?;
            }
            if left > 0 {
                return Err(other("size"));
            }
            if crate::model::Digest::from_bytes(hash.finalize().into()) != *digest {
                return Err(other("content"));
            }
            copy.sync_all()?;
            Ok(fs::rename(&temporary, to)?)
        })();
        if copied.is_err() {
            let _ = fs::unlink(&temporary);
        }
        copied.map(|()| true)
    }

    /// What a symbolic link below says. `None` when it does not exist.
    pub fn read_link_at(&self, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let Some((folder, name)) = absent_io(self.parent_of(path))? else { return Ok(None) };
        Ok(absent(fs::readlinkat(&folder, name, Vec::new()))?.map(|s| s.into_bytes()))
    }

    fn parent_of<'a>(&self, path: &'a [u8]) -> io::Result<(OwnedFd, &'a OsStr)> {
        parent_beneath(self.as_fd(), path)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const NOFOLLOW: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);
const READ: OFlags = OFlags::RDONLY.union(NOFOLLOW);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens `path` below `root` without following any link.
pub(super) fn beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    loop {
        match fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
        {
            // The kernel could not prove that a rename elsewhere did not move us: look again.
            Err(Errno::AGAIN) => continue,
            other => return Ok(other?),
        }
    }
}

/// The folder that holds `path` (never through a link) and the last component.
pub(super) fn parent_beneath<'a>(root: BorrowedFd<'_>, path: &'a [u8]) -> io::Result<(OwnedFd, &'a OsStr)> {
    let (folder, name) = match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    if matches!(name, b"" | b"." | b"..") || folder.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a relative path of a file"));
    }
    let fd = beneath(root, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
    Ok((fd, OsStr::from_bytes(name)))
}

/// `ENOENT` and `ENOTDIR` as `None`.
pub(super) fn absent<T>(result: Result<T, Errno>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

pub(super) fn absent_io<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(None),
        Err(e) => Err(e),
    }
}

fn regular(fd: OwnedFd) -> io::Result<OwnedFd> {
    if FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) == FileType::RegularFile {
        return Ok(fd);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

fn read_fd(fd: OwnedFd, max: u64) -> io::Result<Vec<u8>> {
    let file = File::from(regular(fd)?);
    let mut bytes = Vec::with_capacity(file.metadata()?.len().min(max) as usize);
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {max} bytes")));
    }
    Ok(bytes)
}

fn write_new_in(folder: BorrowedFd<'_>, name: &Path, bytes: &[u8], mode: u32) -> io::Result<File> {
    let mode = Mode::from_raw_mode(mode);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | NOFOLLOW;
    let fd = fs::openat(folder, name, flags, mode)?;
    fs::fchmod(&fd, mode)?;
    let mut file = File::from(fd);
    if let Err(e) = file.write_all(bytes) {
        let _ = fs::unlinkat(folder, name, AtFlags::empty());
        return Err(e);
    }
    Ok(file)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary = b".".to_vec();
    temporary.extend_from_slice(&name.as_bytes()[..name.len().min(200)]);
    temporary.extend_from_slice(
        format!(".{}.{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)).as_bytes(),
    );
    Ok(parent(path).join(OsStr::from_bytes(&temporary)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn reads_only_regular_files_within_the_bound() {
        let t = folder();
        let file = t.path().join("f");
        assert_eq!(read_bounded(&file, 10).unwrap(), None);
        write_new(&file, b"12345", 0o600).unwrap();
        assert_eq!(read_bounded(&file, 5).unwrap().unwrap(), b"12345");
        assert!(read_bounded(&file, 4).is_err());
        assert!(read_bounded(t.path(), 10).is_err());
        symlink(&file, &t.path().join("l")).unwrap();
        assert!(read_bounded(&t.path().join("l"), 10).is_err());
        fs::mknodat(fs::CWD, t.path().join("p"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(read_bounded(&t.path().join("p"), 10).is_err(), "and does not hang");
    }

    #[test]
    fn writes_have_exact_modes_and_do_not_follow_links() {
        let t = folder();
        let file = t.path().join("f");
        write_new(&file, b"a", 0o666).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o666);
        assert_eq!(write_new(&file, b"b", 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        write_atomic(&file, b"c", 0o600).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"c");
        assert_eq!(std::fs::read_dir(t.path()).unwrap().count(), 1, "no temporary file is left");
        let link = t.path().join("l");
        symlink(&file, &link).unwrap();
        assert!(write_plain(&link, b"d", 0o600).is_err());
        write_atomic(&link, b"e", 0o600).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"c", "the link was replaced, not followed");
        create_dir(&t.path().join("d"), 0o777).unwrap();
        assert_eq!(std::fs::metadata(t.path().join("d")).unwrap().permissions().mode() & 0o777, 0o777);
        assert!(rename_noreplace(&link, &file).is_err());
    }

    #[test]
    fn the_copy_keeps_nanoseconds() {
        let t = folder();
        let (a, b) = (t.path().join("a"), t.path().join("b"));
        write_new(&a, b"x", 0o640).unwrap();
        copy_keep_mtime(&a, &b).unwrap();
        let (a, b) = (std::fs::metadata(a).unwrap(), std::fs::metadata(b).unwrap());
        assert_eq!((a.mtime(), a.mtime_nsec(), a.mode()), (b.mtime(), b.mtime_nsec(), b.mode()));
    }

    #[test]
    fn a_copy_is_a_file_of_its_own() {
        let t = folder();
        for name in ["from", "to", "from/d"] {
            create_dir(&t.path().join(name), 0o755).unwrap();
        }
        write_new(&t.path().join("from/d/f"), b"12345", 0o750).unwrap();
        symlink(Path::new("d/f"), &t.path().join("from/l")).unwrap();
        let (from, to) =
            (Dir::open(&t.path().join("from")).unwrap(), Dir::open(&t.path().join("to")).unwrap());
        assert_eq!(to.copy_new_at(b"g", &from, b"d/f").unwrap(), 5);
        let (a, b) = (t.path().join("from/d/f"), t.path().join("to/g"));
        let (a, b) = (std::fs::metadata(a).unwrap(), std::fs::metadata(b).unwrap());
        assert_eq!((a.mtime(), a.mtime_nsec(), a.mode()), (b.mtime(), b.mtime_nsec(), b.mode()));
        assert_ne!(a.ino(), b.ino());
        assert_eq!(std::fs::read(t.path().join("to/g")).unwrap(), b"12345");
        assert!(to.copy_new_at(b"g", &from, b"d/f").is_err(), "nothing is replaced");
        assert!(to.copy_new_at(b"h", &from, b"l").is_err(), "no link is followed");
        assert_eq!(from.read_start_at(b"d/f", 3).unwrap().unwrap(), b"123");
    }

    #[test]
    fn nothing_below_a_dir_goes_through_a_link_or_out() {
        let t = folder();
        create_dirs(&t.path().join("root/a"), 0o755).unwrap();
        write_new(&t.path().join("secret"), b"s", 0o644).unwrap();
        symlink(t.path(), &t.path().join("root/out")).unwrap();
        let dir = Dir::open(&t.path().join("root")).unwrap();
        assert!(dir.read_bounded_at(b"out/secret", 9).is_err());
        assert!(dir.read_bounded_at(b"../secret", 9).is_err());
        assert!(dir.unlink_any_at(b"out/secret").is_err());
        assert!(dir.write_new_at(b"out/new", b"", 0o644).is_err());
        assert!(dir.lstat_at(b"out/secret").is_err());
        assert!(dir.lstat_at(b"out").unwrap().unwrap().is_symlink());
        dir.write_new_at(b"a/f", b"1", 0o644).unwrap();
        dir.rename_at(b"a/f", b"a/g").unwrap();
        assert_eq!(dir.read_bounded_at(b"a/g", 9).unwrap().unwrap(), b"1");
        assert_eq!(dir.read_bounded_at(b"b/c/d", 9).unwrap(), None);
        assert!(dir.unlink_any_at(b"a/g").unwrap());
        assert!(dir.unlink_any_at(b"a").unwrap());
        assert!(!dir.unlink_any_at(b"a").unwrap());
        assert!(t.path().join("secret").exists());
    }
}
