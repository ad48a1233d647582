//! Looking at a tree without touching it: what git's own listing does not report. Follows no link, crosses
//! no mount, and costs one descriptor whatever the depth.

use super::files::{self, Meta, beneath, parent_beneath};
use rustix::fs::{self, AtFlags, FileType, OFlags};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// What [`survey`] found: paths relative to the root, raw bytes, `/` between components, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Files and links that the caller wanted.
    pub files: Vec<Vec<u8>>,
    /// Fifos, sockets and devices.
    pub special: Vec<Vec<u8>>,
    /// Folders that cannot be listed (permission, path too long, a mount point): nothing below is known.
    pub unreadable: Vec<Vec<u8>>,
    /// Folders with no entry at all.
    pub empty: Vec<Vec<u8>>,
    /// Folders, other than the root, that have a `.git` entry. Their `.git` is not walked.
    pub nested: Vec<Vec<u8>>,
    /// Folders that look like a bare repository: `HEAD`, `objects/` and `refs/`.
    pub bare: Vec<Vec<u8>>,
}

/// Folders, as paths relative to the root.
pub type Names = Vec<Vec<u8>>;

/// Walks everything below `root` but `.git` entries, level by level. `enter` gets what was found so far and
/// the folders of the last level, and returns those to go into; `wanted` says which files and links are
/// listed. Errors only when the root cannot be listed, or with what `enter` says.
pub fn survey<E: From<io::Error>>(
    root: BorrowedFd<'_>,
    wanted: &dyn Fn(&[u8]) -> bool,
    enter: &mut dyn FnMut(&Survey, Names) -> Result<Names, E>,
) -> Result<Survey, E> {
    let mut found = Survey::default();
    let mut level = vec![Vec::new()];
    while !level.is_empty() {
        let mut below = Vec::new();
        for folder in level {
            let entries = match list(root, &folder) {
                Ok(entries) => entries,
                Err(e) if folder.is_empty() => return Err(e.into()),
                // Gone since its parent was listed.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => continue,
                Err(_) => {
                    found.unreadable.push(folder);
                    continue;
                }
            };
            found.take(&folder, entries, wanted, &mut below);
        }
        level = enter(&found, below)?;
    }
    for list in [
        &mut found.files,
        &mut found.special,
        &mut found.unreadable,
        &mut found.empty,
        &mut found.nested,
        &mut found.bare,
    ] {
        list.sort_unstable();
    }
    Ok(found)
}

impl Survey {
    fn take(
        &mut self,
        folder: &[u8],
        entries: Vec<(Vec<u8>, FileType)>,
        wanted: &dyn Fn(&[u8]) -> bool,
        below: &mut Vec<Vec<u8>>,
    ) {
        let has = |name: &[u8], dir: bool| {
            entries.iter().any(|(n, t)| n == name && (!dir || *t == FileType::Directory))
        };
        if !folder.is_empty() {
            if has(b".git", false) {
                self.nested.push(folder.to_vec());
            }
            if has(b"HEAD", false) && has(b"objects", true) && has(b"refs", true) {
                self.bare.push(folder.to_vec());
            }
            if entries.is_empty() {
                self.empty.push(folder.to_vec());
            }
        }
        for (name, kind) in entries {
            if name == b".git" {
                continue;
            }
            let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
            path.extend_from_slice(folder);
            if !folder.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            match kind {
                FileType::Directory => below.push(path),
                FileType::RegularFile | FileType::Symlink if wanted(&path) => self.files.push(path),
                FileType::RegularFile | FileType::Symlink => {}
                _ => self.special.push(path),
            }
        }
    }
}

/// Something at or below `root` whose status changed after `than` (`ctime`, which nobody can set back), or that
/// cannot be looked at: a file if there is one, else a folder. The root itself counts (as `.`); nothing behind a
/// link or a mount point does.
pub fn changed_since(root: BorrowedFd<'_>, than: (i64, u32)) -> io::Result<Option<Vec<u8>>> {
    #[allow(clippy::unnecessary_cast)] // the field types differ between architectures
    let newer = |s: &fs::Stat| (s.st_ctime as i64, s.st_ctime_nsec as u32) > than;
    let mut changed = newer(&fs::fstat(root)?).then(|| b".".to_vec());
    let mut pending = vec![Vec::new()];
    while let Some(folder) = pending.pop() {
        let Ok((fd, entries)) = open_list(root, &folder) else { return Ok(Some(folder)) };
        for (name, kind) in entries {
            let path =
                if folder.is_empty() { name.clone() } else { [folder.as_slice(), b"/", &name].concat() };
            match fs::statat(&fd, std::ffi::OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if !newer(&stat) => {}
                Ok(_) if kind == FileType::Directory => {
                    if changed.as_deref().is_none_or(|c| c == b".") {
                        changed = Some(path.clone());
                    }
                }
                _ => return Ok(Some(path)),
            }
            if kind == FileType::Directory {
                pending.push(path);
            }
        }
    }
    Ok(changed)
}

/// `lstat` of a relative path below `root`, through no link on the way. `None` when it, or a folder on the
/// way, does not exist.
pub fn lstat(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<Option<Meta>> {
    let Some((folder, name)) = files::absent_io(parent_beneath(root, path))? else { return Ok(None) };
    let stat = files::absent(fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW))?;
    Ok(stat.map(|s| Meta::of(&s)))
}

fn list(root: BorrowedFd<'_>, folder: &[u8]) -> io::Result<Vec<(Vec<u8>, FileType)>> {
    open_list(root, folder).map(|(_, entries)| entries)
}

type Entries = Vec<(Vec<u8>, FileType)>;

fn open_list(root: BorrowedFd<'_>, folder: &[u8]) -> io::Result<(OwnedFd, Entries)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = if folder.is_empty() {
        fs::openat(root, ".", flags, fs::Mode::empty())?
    } else {
        let resolve = fs::ResolveFlags::BENEATH | fs::ResolveFlags::NO_SYMLINKS | fs::ResolveFlags::NO_XDEV;
        match fs::openat2(root, folder, flags, fs::Mode::empty(), resolve) {
            Err(rustix::io::Errno::AGAIN) => beneath(root, folder, flags)?,
            other => other?,
        }
    };
    let mut entries = Vec::new();
    for entry in fs::Dir::read_from(&fd)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            kind => kind,
        };
        entries.push((name.to_vec(), kind));
    }
    Ok((fd, entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::files::Dir;
    use std::os::fd::AsFd;

    #[test]
    fn finds_what_a_snapshot_cannot_hold() {
        let t = tempfile::tempdir().unwrap();
        let p = t.path();
        for folder in [
            ".git/objects",
            "full",
            "empty",
            "sub/nested/.git/hooks",
            "evil.git/objects",
            "evil.git/refs",
            "skipped/inner",
            "locked",
        ] {
            files::create_dirs(&p.join(folder), 0o755).unwrap();
        }
        files::write_new(&p.join("full/f"), b"", 0o644).unwrap();
        files::write_new(&p.join("evil.git/HEAD"), b"", 0o644).unwrap();
        files::symlink(std::path::Path::new("/"), &p.join("full/out")).unwrap();
        fs::mknodat(fs::CWD, p.join("full/pipe"), FileType::Fifo, fs::Mode::RUSR, 0).unwrap();
        std::os::unix::net::UnixListener::bind(p.join("sock")).unwrap();
        let dir = Dir::open(p).unwrap();
        let mut enter = |_: &Survey, mut folders: Vec<Vec<u8>>| {
            folders.retain(|f| f != b"skipped");
            Ok::<_, io::Error>(folders)
        };
        let found = survey(dir.as_fd(), &|path| path.starts_with(b"full"), &mut enter).unwrap();
        let names = |l: &[Vec<u8>]| {
            l.iter().map(|p| String::from_utf8_lossy(p).into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&found.files), "full/f full/out");
        assert_eq!(names(&found.special), "full/pipe sock");
        assert_eq!(names(&found.empty), "empty evil.git/objects evil.git/refs locked");
        assert_eq!(names(&found.nested), "sub/nested");
        assert_eq!(names(&found.bare), "evil.git");
        assert_eq!(names(&found.unreadable), "");
        assert!(lstat(dir.as_fd(), b"full/out").unwrap().unwrap().is_symlink());
        assert!(lstat(dir.as_fd(), b"full/out/etc").is_err());
        assert_eq!(lstat(dir.as_fd(), b"full/none/x").unwrap(), None);
    }

    #[test]
    fn a_change_is_seen_and_a_read_is_none() {
        let t = tempfile::tempdir().unwrap();
        let tree = t.path().join("tree");
        files::create_dirs(&tree.join("a/b"), 0o755).unwrap();
        files::write_new(&tree.join("a/b/f"), b"1", 0o644).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        files::create_dir(&t.path().join("mark"), 0o755).unwrap();
        let mark = files::lstat(&t.path().join("mark")).unwrap().unwrap().mtime;
        let root = Dir::open(&tree).unwrap();
        assert_eq!(changed_since(root.as_fd(), mark).unwrap(), None);
        std::fs::read(tree.join("a/b/f")).unwrap();
        assert_eq!(changed_since(root.as_fd(), mark).unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(20));
        files::set_mode(&tree.join("a/b/f"), 0o600).unwrap();
        assert_eq!(changed_since(root.as_fd(), mark).unwrap().unwrap(), b"a/b/f");
        files::create_dir(&tree.join("new"), 0o755).unwrap();
        let latest = files::lstat(&tree.join("a/b/f")).unwrap().unwrap();
        assert!(latest.is_file());
        assert_eq!(
            changed_since(root.as_fd(), (0, 0)).unwrap().unwrap(),
            b"a/b/f",
            "rather a file than a folder"
        );
    }

    #[test]
    fn a_path_that_is_too_long_is_unreadable_not_an_overflow() {
        let t = tempfile::tempdir().unwrap();
        let mut at = Dir::open(t.path()).unwrap();
        let long = [b'd'; 200];
        for _ in 0..30 {
            at.create_dir_at(&long, 0o755).unwrap();
            at = at.dir_at(&long).unwrap();
        }
        let root = Dir::open(t.path()).unwrap();
        assert_eq!(
            survey(root.as_fd(), &|_| true, &mut |_, f| Ok::<_, io::Error>(f)).unwrap().unreadable.len(),
            1
        );
        crate::os::remove::tree(root.as_fd(), "d".repeat(200).as_ref()).unwrap();
    }
}
