//! Carries a view out: in a mount namespace of its own, before anything of the engine runs in it. Every path
//! is opened without following a link.

use super::step::{Failed, Step};
use super::sys::{self, Attributes};
use super::view::Mount;
use crate::os::files::Meta;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const WRITABLE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// Makes the view. `devices` are shown below a `/dev` that is otherwise empty, `terminal` as `/dev/console`.
/// Without `processes` (no pid namespace) there is no `/proc`.
pub(super) fn make(
    view: &[Mount],
    devices: &[PathBuf],
    terminal: Option<&Path>,
    processes: bool,
) -> Result<(), Failed> {
    let private = Attributes { private: true, ..Attributes::default() };
    sys::mount_setattr(None, "/", true, private).map_err(Failed::at(Step::ReadOnly))?;

    // First, while everything is as it is outside.
    let mut shown = Vec::new();
    for step in view {
        shown.push(match step {
            Mount::Show { at, write, needed, .. } => {
                taken(at, if *write { WRITABLE } else { READ_ONLY }, *needed)?
            }
            Mount::Instead { from, .. } => taken(from, READ_ONLY, true)?,
            Mount::Hide { at } if is_a_file(at) => taken(Path::new("/dev/null"), READ_ONLY, true)?,
            _ => None,
        });
    }
    let mut nodes = Vec::new();
    for device in devices.iter().map(PathBuf::as_path) {
        nodes.push((device, taken(device, libc::MOUNT_ATTR_NOSUID, false)?));
    }
    if let Some(terminal) = terminal {
        nodes.push((Path::new("/dev/console"), taken(terminal, libc::MOUNT_ATTR_NOSUID, false)?));
    }

    // Now nothing can be written, wherever it is mounted.
    let all = Attributes { set: READ_ONLY, ..Attributes::default() };
    sys::mount_setattr(None, "/", true, all).map_err(Failed::at(Step::ReadOnly))?;
    dev(nodes)?;
    proc(processes)?;

    let mut empty: Vec<&Path> = vec![Path::new("/dev")];
    let mut own: Vec<&Path> = Vec::new();
    for (step, tree) in view.iter().zip(shown) {
        match (step, tree) {
            (Mount::Hide { at }, None) => {
                let below = empty.iter().chain(&own).any(|e| at.starts_with(e));
                if below {
                    make_folder(at).map_err(Failed::at(Step::Hide))?;
                }
                match tmpfs(at, 0o755, "1m") {
                    Ok(()) => empty.push(at),
                    // What is not there, or what we cannot reach, nobody in the cage can.
                    Err(e) if !below && matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EACCES)) => {}
                    Err(e) => return Err(Failed::at(Step::Hide)(e)),
                }
            }
            (Mount::Hide { at }, Some(tree)) => match put(&tree, at) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Failed::at(Step::Hide)(e)),
                _ => {}
            },
            (Mount::Private { at, percent }, _) => {
                own.push(at);
                if empty.iter().any(|e| at.starts_with(e)) {
                    make_folder(at).map_err(Failed::at(Step::Hide))?;
                }
                tmpfs(at, 0o1777, &format!("{percent}%")).map_err(Failed::at(Step::Hide))?;
            }
            (Mount::Show { at, made, .. }, Some(tree)) => {
                if *made {
                    make_place(at, &tree).map_err(Failed::at(Step::Show))?;
                }
                put(&tree, at).map_err(Failed::at(Step::Show))?;
            }
            (Mount::Instead { at, .. }, Some(tree)) => put(&tree, at).map_err(Failed::at(Step::Show))?,
            (Mount::Link { at, to }, _) => link(at, to).map_err(Failed::at(Step::Show))?,
            (Mount::Show { .. } | Mount::Instead { .. }, None) => {}
        }
    }
    // Last: until here places were made in them.
    for at in empty {
        let at = at.to_str().ok_or(Errno::ILSEQ).map_err(Failed::at(Step::Hide))?;
        sys::mount_setattr(None, at, false, all).map_err(Failed::at(Step::ReadOnly))?;
    }
    rustix::process::chdir("/").map_err(Failed::at(Step::Show))
}

fn is_a_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| !m.is_dir())
}

/// Opens a path that no link is part of, as it is mounted now.
fn place(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// A copy of what is mounted at a path, attached nowhere yet. Not there: `None`, unless it is needed.
fn taken(path: &Path, attributes: u64, needed: bool) -> Result<Option<OwnedFd>, Failed> {
    let at = match place(path) {
        Ok(at) => at,
        Err(Errno::NOENT | Errno::ACCESS | Errno::LOOP | Errno::NOTDIR) if !needed => return Ok(None),
        Err(e) => return Err(Failed::at(Step::Show)(e)),
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = rustix::mount::open_tree(&at, "", flags).map_err(Failed::at(Step::Show))?;
    let change = Attributes { set: attributes, private: true };
    sys::mount_setattr(Some(tree.as_fd()), "", true, change).map_err(Failed::at(Step::ReadOnly))?;
    Ok(Some(tree))
}

/// Attaches it.
fn put(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    put_on(tree.as_fd(), place(at)?.as_fd())
}

fn put_on(tree: BorrowedFd<'_>, at: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", at, "", flags)?)
}

fn tmpfs(at: &Path, mode: u32, size: &str) -> io::Result<()> {
    let options = std::ffi::CString::new(format!("mode={mode:o},size={size},nr_inodes=1m"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount("tmpfs", at, "tmpfs", flags, Some(options.as_c_str()))?)
}

/// Makes a folder, and those above it that are missing.
fn make_folder(path: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => {
            make_folder(path.parent().ok_or(Errno::NOENT)?)?;
            Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))?)
        }
        Err(e) => Err(e.into()),
    }
}

/// Makes a place for `tree`: a folder for a folder, a file for anything else.
fn make_place(path: &Path, tree: &OwnedFd) -> io::Result<()> {
    if Meta::of(&rustix::fs::fstat(tree)?).is_dir() {
        return make_folder(path);
    }
    make_folder(path.parent().ok_or(Errno::NOENT)?)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?;
    Ok(())
}

fn link(at: &Path, to: &Path) -> io::Result<()> {
    make_folder(at.parent().ok_or(Errno::NOENT)?)?;
    match rustix::fs::symlink(to, at) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// A `/dev` with a few devices and terminals of its own: the user's other terminals are in another instance.
fn dev(nodes: Vec<(&Path, Option<OwnedFd>)>) -> Result<(), Failed> {
    let fail = Failed::at::<io::Error>;
    tmpfs(Path::new("/dev"), 0o755, "64k").map_err(fail(Step::Devices))?;
    for (at, node) in nodes {
        let Some(node) = node else { continue };
        make_place(at, &node).and_then(|()| put(&node, at)).map_err(fail(Step::Devices))?;
    }
    make_folder(Path::new("/dev/pts")).map_err(fail(Step::Devices))?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    rustix::mount::mount("devpts", "/dev/pts", "devpts", flags, Some(c"newinstance,ptmxmode=0666,mode=0620"))
        .map_err(Failed::at(Step::Terminals))?;
    for (at, to) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        rustix::fs::symlink(to, Path::new("/dev").join(at)).map_err(Failed::at(Step::Devices))?;
    }
    Ok(())
}

/// A `/proc` of this pid namespace, or an empty one.
fn proc(processes: bool) -> Result<(), Failed> {
    let at = Path::new("/proc");
    if !processes {
        tmpfs(at, 0o555, "4k").map_err(Failed::at(Step::Proc))?;
        let all = Attributes { set: READ_ONLY, ..Attributes::default() };
        return sys::mount_setattr(None, "/proc", false, all).map_err(Failed::at(Step::Proc));
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", at, "proc", flags, Some(c"hidepid=2")).map_err(Failed::at(Step::Proc))?;
    for name in ["/proc/sys", "/proc/sysrq-trigger"] {
        let name = Path::new(name);
        if let Some(tree) = taken(name, READ_ONLY, false)? {
            put(&tree, name).map_err(Failed::at(Step::Proc))?;
        }
    }
    Ok(())
}

/// Whether the mounts of a cage can be made here: the same calls, with nothing to show.
pub(super) fn try_out() -> Result<(), Failed> {
    make(&[Mount::Hide { at: "/tmp".into() }], &["/dev/null".into()], None, true)
}
