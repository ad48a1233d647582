//! Deleting a folder tree that somebody hostile filled: never through a link or a mount point, whatever the
//! depth. (`git worktree remove` deletes through bind mounts.)

use super::files::{Meta, absent};
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Open folders at a time. A tree that is deeper is flattened: what lies at this depth is renamed up to the
/// top, so that neither descriptors nor the stack run out.
const DEPTH: usize = 64;

struct Frame {
    fd: OwnedFd,
    name: Vec<u8>,
    entries: Vec<(Vec<u8>, bool)>,
}

/// Deletes `name` in `parent` with everything below. Fine when it does not exist.
///
/// A mount point at or below it is an error that names it (`CrossesDevices`); nothing behind it is touched, and
/// what stood before it in the walk is gone. Folders without permission bits are opened when they are ours.
pub fn tree(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let top = Path::new(name);
    if top.components().count() != 1 || matches!(name.as_bytes(), b"." | b"..") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a folder's entry"));
    }
    let Some(stat) = absent(fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW))? else { return Ok(()) };
    if !Meta::of(&stat).is_dir() {
        return about(fs::unlinkat(parent, name, AtFlags::empty()), top);
    }
    let mut moved = 0_u32;
    let mut stack = vec![open(parent, name.as_bytes(), top)?];
    while let Some(frame) = stack.last_mut() {
        if let Some((entry, is_dir)) = frame.entries.pop() {
            let path = || path_of(&stack, &entry);
            let frame = stack.last().expect("just seen");
            if !is_dir {
                match fs::unlinkat(&frame.fd, OsStr::from_bytes(&entry), AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(e) => return about(Err(e), &path()),
                }
            } else if stack.len() < DEPTH {
                let below = open(frame.fd.as_fd(), &entry, &path())?;
                stack.push(below);
            } else {
                // Opened once, so that a mount point is found here and by its name.
                drop(open_fd(frame.fd.as_fd(), &entry, &path())?);
                moved += 1;
                let to = format!(".git-agent-deep-{}-{moved}", std::process::id());
                about(
                    fs::renameat_with(
                        &frame.fd,
                        OsStr::from_bytes(&entry),
                        &stack[0].fd,
                        &to,
                        RenameFlags::NOREPLACE,
                    ),
                    &path(),
                )?;
                stack[0].entries.push((to.into_bytes(), true));
            }
            continue;
        }
        let done = stack.pop().expect("just seen");
        let (above, path) = match stack.last() {
            Some(frame) => (frame.fd.as_fd(), path_of(&stack, &done.name)),
            None => (parent, top.to_owned()),
        };
        about(fs::unlinkat(above, OsStr::from_bytes(&done.name), AtFlags::REMOVEDIR), &path)?;
    }
    Ok(())
}

fn open(parent: BorrowedFd<'_>, name: &[u8], path: &Path) -> io::Result<Frame> {
    let fd = open_fd(parent, name, path)?;
    let mut entries = Vec::new();
    for entry in fs::Dir::read_from(&fd).map_err(|e| named(e, path))? {
        let entry = entry.map_err(|e| named(e, path))?;
        let child = entry.file_name().to_bytes();
        if child == b"." || child == b".." {
            continue;
        }
        let is_dir = match entry.file_type() {
            fs::FileType::Directory => true,
            fs::FileType::Unknown => {
                Meta::of(&fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?).is_dir()
            }
            _ => false,
        };
        entries.push((child.to_vec(), is_dir));
    }
    Ok(Frame { fd, name: name.to_vec(), entries })
}

/// Opens a folder that may lack permission bits; gives us all three when it is ours.
fn open_fd(parent: BorrowedFd<'_>, name: &[u8], path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let try_open = |more| fs::openat2(parent, name, flags | more, Mode::empty(), resolve);
    let fd = match try_open(OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            let handle = try_open(OFlags::PATH).map_err(|e| named(e, path))?;
            // An O_PATH descriptor takes no fchmod; its name in /proc does, and names exactly this inode.
            let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
            fs::chmod(link, Mode::RWXU).map_err(|e| named(e, path))?;
            try_open(OFlags::RDONLY)
        }
        other => other,
    }
    .map_err(|e| named(e, path))?;
    let mode = fs::fstat(&fd)?.st_mode;
    if mode & 0o700 != 0o700 {
        // Not ours: root does not need the bits, and others are told by the removal itself.
        let _ = fs::fchmod(&fd, Mode::RWXU);
    }
    Ok(fd)
}

fn path_of(stack: &[Frame], entry: &[u8]) -> PathBuf {
    let mut path: PathBuf = stack.iter().map(|f| OsStr::from_bytes(&f.name)).collect();
    path.push(OsStr::from_bytes(entry));
    path
}

fn about(result: Result<(), Errno>, path: &Path) -> io::Result<()> {
    result.map_err(|e| named(e, path))
}

fn named(e: Errno, path: &Path) -> io::Error {
    let shown = crate::text::quote_path(path.as_os_str().as_bytes());
    let what = match e {
        Errno::XDEV | Errno::BUSY => format!("a mount point, left alone: {shown}"),
        e => format!("cannot remove {shown}: {}", io::Error::from(e)),
    };
    io::Error::new(io::Error::from(e).kind(), what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::files::{self, Dir};
    use std::os::unix::fs::PermissionsExt;

    fn remove(t: &Path, name: &str) -> io::Result<()> {
        tree(Dir::open(t).unwrap().as_fd(), OsStr::new(name))
    }

    #[test]
    fn removes_what_is_there_and_nothing_behind_links() {
        let t = tempfile::tempdir().unwrap();
        let p = t.path();
        files::create_dirs(&p.join("x/a/b"), 0o755).unwrap();
        files::create_dir(&p.join("keep"), 0o755).unwrap();
        files::write_new(&p.join("keep/f"), b"1", 0o644).unwrap();
        files::write_new(&p.join("x/a/f"), b"1", 0o000).unwrap();
        files::symlink(&p.join("keep"), &p.join("x/a/link")).unwrap();
        files::symlink(&p.join("keep"), &p.join("l")).unwrap();
        std::fs::set_permissions(p.join("x/a/b"), std::fs::Permissions::from_mode(0o000)).unwrap();
        remove(p, "x").unwrap();
        remove(p, "l").unwrap();
        remove(p, "never-there").unwrap();
        assert!(remove(p, "../x").is_err());
        assert!(!p.join("x").exists());
        assert!(p.join("keep/f").exists());
    }

    #[test]
    fn depth_costs_neither_descriptors_nor_stack() {
        let t = tempfile::tempdir().unwrap();
        let mut at = Dir::open(t.path()).unwrap();
        for _ in 0..1100 {
            at.create_dir_at(b"d", 0o755).unwrap();
            at.write_new_at(b"f", b"", 0o644).unwrap();
            at = at.dir_at(b"d").unwrap();
        }
        remove(t.path(), "d").unwrap();
        assert!(!t.path().join("d").exists());
    }

    /// Needs root, as making a mount does; the suite runs as root and as a user.
    #[test]
    fn a_mount_point_is_named_and_left_alone() {
        if !crate::os::process::is_root() {
            return;
        }
        let t = tempfile::tempdir().unwrap();
        let p = t.path();
        files::create_dirs(&p.join("x/deep/mnt"), 0o755).unwrap();
        files::create_dir(&p.join("keep"), 0o755).unwrap();
        files::write_new(&p.join("keep/f"), b"1", 0o644).unwrap();
        let run = |program: &str, args: &[&std::ffi::OsStr]| {
            std::process::Command::new(program).args(args).status().unwrap().success()
        };
        let mnt = p.join("x/deep/mnt");
        assert!(run("mount", &["--bind".as_ref(), p.join("keep").as_ref(), mnt.as_ref()]));
        let refused = remove(p, "x");
        let still = p.join("keep/f").exists();
        assert!(run("umount", &[mnt.as_ref()]));
        assert!(refused.unwrap_err().to_string().contains("x/deep/mnt"));
        assert!(still);
        remove(p, "x").unwrap();
    }
}
