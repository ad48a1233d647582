//! Attempts on files: contents, metadata, what git believes.

use super::{TOKEN, World};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const EVIL: &[u8] = b"changed by an attempt\n";

fn overwrite(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().write(true).truncate(true).open(path)?.write_all(EVIL)
}

fn create(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?.write_all(EVIL)
}

/// A name in the current folder, which is the tree, that no other attempt uses.
fn here(name: &str) -> PathBuf {
    PathBuf::from(format!("attempt-{name}"))
}

pub(super) fn write(_: &World, own: &Path) -> io::Result<()> {
    create(&own.join("new"))?;
    overwrite(&own.join("file"))
}

pub(super) fn dots(_: &World, own: &Path) -> io::Result<()> {
    let up = std::env::current_dir()?.components().count() - 1;
    let mut path = PathBuf::from("../".repeat(up));
    path.push(own.strip_prefix("/").map_err(io::Error::other)?);
    overwrite(&path.join("file"))
}

/// A folder whose name begins with the name of one that may be written.
pub(super) fn prefix(_: &World, own: &Path) -> io::Result<()> {
    overwrite(&own.join("dir-evil/file"))
}

pub(super) fn link_file(_: &World, own: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(own.join("file"), here("l1"))?;
    overwrite(&here("l1"))
}

pub(super) fn link_folder(_: &World, own: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(own.join("dir"), here("l2"))?;
    create(&here("l2").join("new"))
}

pub(super) fn link_dangling(_: &World, own: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(own.join("born"), here("l3"))?;
    create(&here("l3"))
}

pub(super) fn truncate(_: &World, own: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(own.join("file").as_os_str().as_encoded_bytes())?;
    truncate_path(&path)
}

#[allow(unsafe_code)]
fn truncate_path(path: &std::ffi::CStr) -> io::Result<()> {
    // SAFETY: a path that ends with a zero byte and lives through the call.
    if unsafe { libc::truncate(path.as_ptr(), 0) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn hard_link(_: &World, own: &Path) -> io::Result<()> {
    fs::hard_link(own.join("file"), here("h1"))?;
    overwrite(&here("h1"))
}

pub(super) fn proc_root(_: &World, own: &Path) -> io::Result<()> {
    let rest = own.strip_prefix("/").map_err(io::Error::other)?;
    overwrite(&Path::new("/proc/self/root").join(rest).join("file"))
}

pub(super) fn reopen(_: &World, own: &Path) -> io::Result<()> {
    let fd = rustix::fs::open(own.join("file"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    overwrite(Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd())))
}

pub(super) fn tmpfile(_: &World, own: &Path) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = rustix::fs::open(own, flags, Mode::from_raw_mode(0o644))?;
    let from = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::linkat(CWD, from, CWD, own.join("linked"), AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

pub(super) fn delete(_: &World, own: &Path) -> io::Result<()> {
    fs::remove_file(own.join("file"))
}

pub(super) fn rename(_: &World, own: &Path) -> io::Result<()> {
    fs::write(here("r1"), EVIL)?;
    fs::rename(here("r1"), own.join("file"))
}

pub(super) fn mode(_: &World, own: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(own.join("file"), fs::Permissions::from_mode(0o777))
}

pub(super) fn times(_: &World, own: &Path) -> io::Result<()> {
    let long_ago = Timespec { tv_sec: 1, tv_nsec: 0 };
    let both = Timestamps { last_access: long_ago, last_modification: long_ago };
    Ok(rustix::fs::utimensat(CWD, own.join("file"), &both, AtFlags::empty())?)
}

pub(super) fn secret(_: &World, own: &Path) -> io::Result<()> {
    let text = fs::read_to_string(own.join("secret"))?;
    if text.contains(TOKEN) { Ok(()) } else { Err(io::Error::other("something else was read")) }
}

pub(super) fn host(world: &World, _: &Path) -> io::Result<()> {
    fs::read(world.run.join("host/policy.yml")).map(drop)
}

pub(super) fn sibling(world: &World, _: &Path) -> io::Result<()> {
    let root = world.run.parent().ok_or(io::ErrorKind::NotFound)?;
    fs::read(root.join("neighbour/tree/file")).map(drop)
}

/// Writes through whatever was left open: only what leads to doctor's own file is touched.
pub(super) fn descriptors(_: &World, own: &Path) -> io::Result<()> {
    let target = own.join("open");
    for fd in 3..1024 {
        let link = format!("/proc/self/fd/{fd}");
        if fs::read_link(&link).is_ok_and(|to| to == target) {
            let fd = borrowed(fd);
            rustix::io::write(fd, EVIL)?;
            return Ok(());
        }
    }
    Err(io::Error::other("nothing was left open"))
}

#[allow(unsafe_code)]
fn borrowed(fd: i32) -> std::os::fd::BorrowedFd<'static> {
    // SAFETY: /proc/self/fd has just shown that it is open, and this process closes none.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }
}

/// What every engine must be able to do.
pub(super) fn edit_inside(_: &World, _: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = here("folder");
    fs::create_dir(&folder)?;
    fs::write(folder.join("file"), EVIL)?;
    fs::set_permissions(folder.join("file"), fs::Permissions::from_mode(0o755))?;
    std::os::unix::fs::symlink("file", folder.join("link"))?;
    fs::rename(folder.join("file"), folder.join("moved"))?;
    fs::remove_dir_all(&folder)?;
    overwrite(Path::new("README"))
}

pub(super) fn commit_inside(_: &World, _: &Path) -> io::Result<()> {
    fs::write("committed", EVIL)?;
    git(&["add", "committed"])?;
    git(&["-c", "user.name=a", "-c", "user.email=a@a", "commit", "-q", "--no-verify", "-m", "inside"])
}

fn git(words: &[&str]) -> io::Result<()> {
    let mut command = std::process::Command::new("git");
    // A hook's GIT_DIR, or hooks of the user's own: doctor's repository is meant and nothing else.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GIT_")) {
        command.env_remove(name);
    }
    let ended = command
        .args(words)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()?;
    if ended.success() { Ok(()) } else { Err(io::Error::other(format!("git {}: {ended}", words[0]))) }
}

pub(super) fn git_reset(world: &World, _: &Path) -> io::Result<()> {
    let main = world.main.to_string_lossy();
    git(&["-C", &main, "-c", "safe.directory=*", "reset", "-q", "--hard", "HEAD"])
}

pub(super) fn git_ref(world: &World, _: &Path) -> io::Result<()> {
    overwrite(&world.main.join(".git/refs/heads/target"))
}

pub(super) fn git_hook(world: &World, _: &Path) -> io::Result<()> {
    fs::create_dir_all(world.main.join(".git/hooks"))?;
    create(&world.main.join(".git/hooks/post-checkout"))
}

pub(super) fn git_config(world: &World, _: &Path) -> io::Result<()> {
    fs::OpenOptions::new().append(true).open(world.main.join(".git/config"))?.write_all(b"[x]\n")
}

pub(super) fn git_objects(world: &World, _: &Path) -> io::Result<()> {
    let objects = world.main.join(".git/objects");
    create(&objects.join("info/alternates"))
}

pub(super) fn git_commondir(world: &World, _: &Path) -> io::Result<()> {
    create(&world.main.join(".git/commondir"))
}

pub(super) fn pin_commondir(world: &World, _: &Path) -> io::Result<()> {
    let pin = world.run.join("store/worktrees/tree/commondir");
    let mut was = String::new();
    fs::File::open(&pin)?.read_to_string(&mut was)?;
    overwrite(&pin).or_else(|_| {
        // What cannot be written may still be replaced.
        fs::remove_file(&pin)?;
        create(&pin)
    })
}

pub(super) fn pin_git(world: &World, _: &Path) -> io::Result<()> {
    let pin = world.run.join("tree/.git");
    fs::rename(&pin, world.run.join("tree/.git-away"))?;
    create(&pin)
}
