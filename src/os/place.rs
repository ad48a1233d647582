//! Putting new files in the place of old ones: all of them, or none while the process lives. Every new file is
//! finished in a folder on the same file system first; then names are exchanged, and what was displaced is
//! looked at once more, so that an edit made a moment ago takes everything back. No link is ever followed.
//! Crash safety is not here: a journal is the caller's.

use super::files::{self, Dir, FileId, Meta, beneath, parent_beneath};
use super::remove;
use crate::text::quote_path;
use rustix::fs::{self, Access, AtFlags, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// One step of a placement. Paths are relative to the tree; successors lie at the same path in
/// [`Stage::successors`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Exchanges a file or link with its successor.
    Change {
        /// Where.
        path: Vec<u8>,
        /// What must be there.
        was: Meta,
    },
    /// Moves a successor to a name that is free.
    Create {
        /// Where.
        path: Vec<u8>,
    },
    /// Moves a file or link away.
    Remove {
        /// Where.
        path: Vec<u8>,
        /// What must be there.
        was: Meta,
    },
    /// Moves a folder away that the removals before emptied.
    TakeFolder {
        /// Where.
        path: Vec<u8>,
        /// The folder.
        was: FileId,
    },
    /// Makes a folder.
    MakeFolder {
        /// Where.
        path: Vec<u8>,
    },
}

impl Step {
    fn path(&self) -> &[u8] {
        match self {
            Step::Change { path, .. }
            | Step::Create { path }
            | Step::Remove { path, .. }
            | Step::TakeFolder { path, .. }
            | Step::MakeFolder { path } => path,
        }
    }
}

/// Whether two looks at a name saw the same untouched file. Not the inode's change time: a rename sets it.
pub fn untouched(a: &Meta, b: &Meta) -> bool {
    a.id == b.id && a.size == b.size && a.mtime == b.mtime && a.mode == b.mode
}

/// Why nothing was placed.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// A step failed, and everything before it was taken back.
    #[error("{}: {why}", quote_path(.path))]
    TakenBack {
        /// Where.
        path: Vec<u8>,
        /// Why.
        why: Why,
    },
    /// A step failed, and not everything could be taken back.
    #[error("{}: {why}; not taken back: {}", quote_path(.path), listed(.left))]
    Stuck {
        /// Where.
        path: Vec<u8>,
        /// Why.
        why: Why,
        /// What could not be taken back, and why. Originals are in the stage, which is kept.
        left: Vec<(Vec<u8>, io::Error)>,
    },
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// What stands there is not what was there when the plan was made.
    #[error("changed since it was looked at")]
    Changed,
    /// A folder that should be empty holds something.
    #[error("the folder holds something else")]
    NotEmpty,
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for Why {
    fn from(e: Errno) -> Self {
        match e {
            // Gone, or something there: what was looked at is there no more.
            Errno::EXIST | Errno::NOENT | Errno::LOOP | Errno::NOTDIR => Why::Changed,
            e => Why::Io(e.into()),
        }
    }
}

fn listed(left: &[(Vec<u8>, io::Error)]) -> String {
    left.iter().map(|(p, e)| format!("{} ({e})", quote_path(p))).collect::<Vec<_>>().join(", ")
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

fn folder(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<std::os::fd::OwnedFd> {
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

/// A folder on the tree's own file system where successors are made and displaced files wait. Dropped, it is
/// removed with all that is in it, unless originals could not be taken back.
#[derive(Debug)]
pub struct Stage {
    tree: Dir,
    slot: Dir,
    path: PathBuf,
    /// The tree's top level as it was, where the stage lies inside the tree.
    inside: Option<(PathBuf, Meta)>,
    keep: bool,
}

impl Stage {
    /// Name of the folder in the tree that is used where `preferred` is on another file system.
    pub const IN_TREE: &str = ".git-agent-apply";

    /// Makes a stage called `label` in `preferred`, or in the tree at `top`.
    pub fn create(preferred: &Path, top: &Path, label: &str) -> io::Result<Self> {
        files::create_dirs(preferred, 0o755)?;
        let tree = Dir::open(top)?;
        let mut inside = None;
        let mut holder = preferred.to_owned();
        if mount(Dir::open(preferred)?.as_fd())? != mount(tree.as_fd())? {
            inside = Some((top.to_owned(), files::lstat(top)?.ok_or(io::ErrorKind::NotFound)?));
            holder = top.join(Self::IN_TREE);
        }
        let path = holder.join(label);
        let make = || -> io::Result<Dir> {
            if inside.is_some() && files::lstat(&holder)?.is_none() {
                files::create_dir(&holder, 0o700)?;
                files::write_new(&holder.join(".gitignore"), b"*\n", 0o644)?;
            }
            files::create_dir(&path, 0o700)?;
            for name in ["new", "old"] {
                files::create_dir(&path.join(name), 0o700)?;
            }
            Dir::open(&path)
        };
        match make() {
            Ok(slot) => Ok(Self { tree, slot, path, inside, keep: false }),
            Err(e) => {
                clear(&tree, &path, inside.as_ref());
                Err(e)
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder in which successors are made, each at its path in the tree.
    pub fn successors(&self) -> PathBuf {
        self.path.join("new")
    }

    /// What lies ready for a path.
    pub fn successor(&self, path: &[u8]) -> io::Result<Option<Meta>> {
        self.slot.lstat_at(&ready(path))
    }

    /// Gives a successor what a person gave the file that it replaces: permission bits, owner, extended
    /// attributes. `executable` sets or clears the executable bits. Returns what could not be given.
    pub fn dress(&self, path: &[u8], was: &Meta, executable: Option<bool>) -> io::Result<Vec<String>> {
        let open = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut lost = Vec::new();
        let new = beneath(self.slot.as_fd(), &ready(path), open)?;
        let mut mode = was.mode & 0o777;
        match executable {
            Some(true) => mode |= (mode & 0o444) >> 2,
            Some(false) => mode &= !0o111,
            None => {}
        }
        // The old file may be unreadable to us; its attributes are then unknown, not absent.
        match beneath(self.tree.as_fd(), path, open) {
            Ok(old) => {
                let stat = fs::fstat(&old)?;
                let own = fs::fstat(&new)?;
                if (stat.st_uid, stat.st_gid) != (own.st_uid, own.st_gid)
                    && fs::fchown(
                        &new,
                        Some(fs::Uid::from_raw(stat.st_uid)),
                        Some(fs::Gid::from_raw(stat.st_gid)),
                    )
                    .is_err()
                {
                    lost.push("its owner".to_owned());
                }
                // After the owner, which clears bits; before the attributes, which may hold an access list.
                fs::fchmod(&new, Mode::from_raw_mode(mode))?;
                lost.extend(copy_attributes(old.as_fd(), new.as_fd())?);
            }
            Err(_) => {
                fs::fchmod(&new, Mode::from_raw_mode(mode))?;
                lost.push("its extended attributes".to_owned());
            }
        }
        // An access list carries bits of its own.
        if fs::fstat(&new)?.st_mode & 0o777 != mode {
            fs::fchmod(&new, Mode::from_raw_mode(mode))?;
        }
        Ok(lost)
    }

    /// Carries the steps out in their order. On trouble everything is taken back in reverse order.
    pub fn place(&mut self, steps: &[Step]) -> Result<Placed<'_>, Trouble> {
        let mut placed = Placed {
            stage: self,
            done: Vec::new(),
            parents: BTreeMap::new(),
            made: BTreeSet::new(),
            settled: false,
        };
        for step in steps {
            if let Err(why) = placed.carry_out(step) {
                let path = step.path().to_vec();
                return Err(match placed.roll_back() {
                    left if left.is_empty() => Trouble::TakenBack { path, why },
                    left => Trouble::Stuck { path, why, left },
                });
            }
        }
        Ok(placed)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.keep {
            clear(&self.tree, &self.path, self.inside.as_ref());
        }
    }
}

/// Removes a stage, and the folder in the tree that holds it if nothing else is in there.
fn clear(tree: &Dir, path: &Path, inside: Option<&(PathBuf, Meta)>) {
    let (Some(holder), Some(name)) = (path.parent(), path.file_name()) else { return };
    if let Ok(folder) = Dir::open(holder) {
        let _ = remove::tree(folder.as_fd(), name);
    }
    let Some((top, before)) = inside else { return };
    let left = names_of(holder);
    if left.is_ok_and(|n| n.is_empty() || n == [b".gitignore"])
        && files::remove_file(&holder.join(".gitignore")).is_ok()
    {
        let _ = files::remove_dir(holder);
    }
    // Whoever placed something has set the time anew.
    if files::lstat(top).is_ok_and(|m| m.is_some_and(|m| m.id == before.id)) {
        let _ = set_mtime(tree.as_fd(), before);
    }
}

fn names_of(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    list(files::open_dir_nofollow(folder)?.as_fd())
}

fn ready(path: &[u8]) -> Vec<u8> {
    [b"new/", path].concat()
}

fn copy_attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let mut names = vec![0_u8; 64 << 10];
    let n = match fs::flistxattr(from, &mut names[..]) {
        Ok(n) => n,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    let mut lost = Vec::new();
    for name in names[..n].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        // Labels of the system's own are made anew with each file.
        if name.starts_with(b"security.") || name.starts_with(b"trusted.") {
            continue;
        }
        let mut value = vec![0_u8; 64 << 10];
        let given = fs::fgetxattr(from, name, &mut value[..])
            .and_then(|n| fs::fsetxattr(to, name, &value[..n], fs::XattrFlags::empty()));
        if given.is_err() {
            lost.push(format!("its attribute {}", quote_path(name)));
        }
    }
    Ok(lost)
}

fn set_mtime(folder: BorrowedFd<'_>, as_in: &Meta) -> io::Result<()> {
    let omit = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT };
    let time = fs::Timespec { tv_sec: as_in.mtime.0, tv_nsec: as_in.mtime.1.into() };
    Ok(fs::futimens(folder, &fs::Timestamps { last_access: omit, last_modification: time })?)
}

/// A step that was carried out.
#[derive(Debug)]
enum Done {
    /// With the identity of what was put there and of what was displaced.
    Exchanged(Vec<u8>, Meta, Meta),
    Created(Vec<u8>, Meta),
    /// With the name in `old/`, and the identity of a file.
    Taken(Vec<u8>, Vec<u8>, Option<Meta>),
    Made(Vec<u8>),
}

/// Everything is in place; the originals wait in the stage until this value is dropped or rolled back.
#[derive(Debug)]
#[must_use = "dropped without a word everything is taken back"]
pub struct Placed<'s> {
    stage: &'s mut Stage,
    done: Vec<Done>,
    /// Folders whose entries change, as they were before.
    parents: BTreeMap<Vec<u8>, Meta>,
    made: BTreeSet<Vec<u8>>,
    /// Decided: dropping does nothing more.
    settled: bool,
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        // Only a panic comes here.
        if !self.settled {
            self.take_back();
        }
    }
}

impl Placed<'_> {
    fn carry_out(&mut self, step: &Step) -> Result<(), Why> {
        self.remember_parent(step.path())?;
        match step {
            Step::Change { path, was } => {
                let new = self.stage.successor(path)?.ok_or(Why::Changed)?;
                // Looked at before as well: a file that is gone or changed need not be touched at all.
                self.expect(path, was)?;
                self.rename(Side::Stage(&ready(path)), Side::Tree(path), RenameFlags::EXCHANGE)?;
                self.done.push(Done::Exchanged(path.clone(), new, *was));
                let displaced = self.stage.successor(path)?.ok_or(Why::Changed)?;
                if untouched(&displaced, was) { Ok(()) } else { Err(Why::Changed) }
            }
            Step::Create { path } => {
                let new = self.stage.successor(path)?.ok_or(Why::Changed)?;
                self.rename(Side::Stage(&ready(path)), Side::Tree(path), RenameFlags::NOREPLACE)?;
                self.done.push(Done::Created(path.clone(), new));
                Ok(())
            }
            Step::Remove { path, was } => {
                self.expect(path, was)?;
                let at = self.take(path, Some(*was))?;
                let displaced = self.stage.slot.lstat_at(&at)?.ok_or(Why::Changed)?;
                if untouched(&displaced, was) { Ok(()) } else { Err(Why::Changed) }
            }
            Step::TakeFolder { path, was } => {
                let at = self.take(path, None)?;
                let displaced = self.stage.slot.lstat_at(&at)?.ok_or(Why::Changed)?;
                if displaced.id != *was || !displaced.is_dir() {
                    return Err(Why::Changed);
                }
                if names(&self.stage.slot, &at)?.is_empty() { Ok(()) } else { Err(Why::NotEmpty) }
            }
            Step::MakeFolder { path } => {
                let (folder, name) = parent_beneath(self.stage.tree.as_fd(), path)?;
                // As git makes folders: the umask decides.
                fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777))?;
                self.done.push(Done::Made(path.clone()));
                self.made.insert(path.clone());
                Ok(())
            }
        }
    }

    fn expect(&self, path: &[u8], was: &Meta) -> Result<(), Why> {
        match self.stage.tree.lstat_at(path) {
            Ok(Some(now)) if untouched(&now, was) => Ok(()),
            Ok(_) => Err(Why::Changed),
            Err(e) => Err(e.raw_os_error().map_or(Why::Io(e), |n| Errno::from_raw_os_error(n).into())),
        }
    }

    fn take(&mut self, path: &[u8], was: Option<Meta>) -> Result<Vec<u8>, Why> {
        let at = format!("old/{}", self.done.len()).into_bytes();
        self.rename(Side::Tree(path), Side::Stage(&at), RenameFlags::NOREPLACE)?;
        self.done.push(Done::Taken(path.to_vec(), at.clone(), was));
        Ok(at)
    }

    fn remember_parent(&mut self, path: &[u8]) -> io::Result<()> {
        let parent = path.iter().rposition(|b| *b == b'/').map_or(&b""[..], |at| &path[..at]);
        if self.parents.contains_key(parent) || self.made.contains(parent) {
            return Ok(());
        }
        let found = folder(self.stage.tree.as_fd(), parent).and_then(|fd| Ok(Meta::of(&fs::fstat(fd)?)));
        if let Ok(meta) = found {
            self.parents.insert(parent.to_vec(), meta);
        }
        Ok(())
    }

    fn rename(&self, from: Side<'_>, to: Side<'_>, flags: RenameFlags) -> Result<(), Why> {
        let open = |side: &Side<'_>| -> Result<_, Why> {
            let (root, path) = match side {
                Side::Tree(path) => (&self.stage.tree, path.to_vec()),
                Side::Stage(path) => (&self.stage.slot, path.to_vec()),
            };
            let (folder, name) = parent_beneath(root.as_fd(), &path)
                .map_err(|e| e.raw_os_error().map_or(Why::Io(e), |n| Errno::from_raw_os_error(n).into()))?;
            Ok((folder, name.to_owned()))
        };
        let ((from_folder, from), (to_folder, to)) = (open(&from)?, open(&to)?);
        Ok(fs::renameat_with(&from_folder, &from, &to_folder, &to, flags)?)
    }

    /// Takes everything back in reverse order and sets the folders' times as they were. Returns what could not
    /// be taken back; then the stage is kept.
    pub fn roll_back(mut self) -> Vec<(Vec<u8>, io::Error)> {
        self.take_back()
    }

    fn take_back(&mut self) -> Vec<(Vec<u8>, io::Error)> {
        self.settled = true;
        let mut left = Vec::new();
        while let Some(done) = self.done.pop() {
            let (path, undone) = match &done {
                Done::Exchanged(path, put, _) => {
                    let undone =
                        self.rename(Side::Stage(&ready(path)), Side::Tree(path), RenameFlags::EXCHANGE);
                    (path, undone.and_then(|()| self.came_back(path, put)))
                }
                Done::Created(path, put) => {
                    let undone =
                        self.rename(Side::Tree(path), Side::Stage(&ready(path)), RenameFlags::NOREPLACE);
                    (path, undone.and_then(|()| self.came_back(path, put)))
                }
                Done::Taken(path, at, _) => {
                    (path, self.rename(Side::Stage(at), Side::Tree(path), RenameFlags::NOREPLACE))
                }
                Done::Made(path) => (path, self.remove_folder(path)),
            };
            if let Err(why) = undone {
                left.push((path.clone(), io::Error::other(why.to_string())));
            }
        }
        for (path, before) in &self.parents {
            if let Ok(fd) = folder(self.stage.tree.as_fd(), path)
                && fs::fstat(&fd).is_ok_and(|s| Meta::of(&s).id == before.id)
            {
                let _ = set_mtime(fd.as_fd(), before);
            }
        }
        self.stage.keep = !left.is_empty();
        left
    }

    /// What we take back must be what we put there: else it holds an edit that only the stage has now.
    fn came_back(&self, path: &[u8], put: &Meta) -> Result<(), Why> {
        match self.stage.successor(path)? {
            Some(now) if untouched(&now, put) => Ok(()),
            _ => Err(Why::Io(io::Error::other("what was edited meanwhile is in the stage"))),
        }
    }

    fn remove_folder(&self, path: &[u8]) -> Result<(), Why> {
        let (folder, name) = parent_beneath(self.stage.tree.as_fd(), path)?;
        Ok(fs::unlinkat(&folder, name, AtFlags::REMOVEDIR)?)
    }

    /// Nothing is taken back any more: folders that the removals emptied go (not the one the caller stands
    /// in), and with the stage what was displaced. Returns the paths whose displaced file somebody with an
    /// open descriptor wrote to meanwhile; then the stage is kept.
    pub fn settle(mut self) -> Vec<Vec<u8>> {
        self.settled = true;
        let mut written = Vec::new();
        for done in &self.done {
            let (path, now, was) = match done {
                Done::Exchanged(path, _, was) => (path, self.stage.successor(path), was),
                Done::Taken(path, at, Some(was)) => (path, self.stage.slot.lstat_at(at), was),
                _ => continue,
            };
            if !now.is_ok_and(|now| now.is_some_and(|now| untouched(&now, was))) {
                written.push(path.clone());
            }
        }
        self.stage.keep = !written.is_empty();
        let here = fs::stat(".").map(|s| Meta::of(&s).id).ok();
        for done in &self.done {
            let Done::Taken(path, ..) = done else { continue };
            let mut at = path.as_slice();
            while let Some(slash) = at.iter().rposition(|b| *b == b'/') {
                at = &at[..slash];
                let id = self.stage.tree.lstat_at(at).ok().flatten().map(|m| m.id);
                if id.is_none() || id == here || self.remove_folder(at).is_err() {
                    break;
                }
            }
        }
        if let Some((_, before)) = &mut self.stage.inside
            && let Ok(now) = fs::fstat(&self.stage.tree)
            && self.parents.contains_key(&b""[..])
        {
            *before = Meta::of(&now);
        }
        written
    }
}

enum Side<'a> {
    Tree(&'a [u8]),
    Stage(&'a [u8]),
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(t: &Path) -> Stage {
        files::create_dirs(&t.join("tree/d"), 0o755).unwrap();
        for name in ["a", "b", "d/x"] {
            files::write_new(&t.join("tree").join(name), b"old", 0o640).unwrap();
        }
        let stage = Stage::create(&t.join("stages"), &t.join("tree"), "one").unwrap();
        for name in ["a", "d", "n"] {
            files::write_new(&stage.successors().join(name), b"new", 0o644).unwrap();
        }
        stage
    }

    fn steps(stage: &Stage) -> Vec<Step> {
        let was = |path: &[u8]| stage.tree.lstat_at(path).unwrap().unwrap();
        let path = |path: &[u8]| path.to_vec();
        vec![
            Step::Remove { path: path(b"b"), was: was(b"b") },
            Step::Remove { path: path(b"d/x"), was: was(b"d/x") },
            Step::TakeFolder { path: path(b"d"), was: was(b"d").id },
            Step::MakeFolder { path: path(b"m") },
            Step::Change { path: path(b"a"), was: was(b"a") },
            Step::Create { path: path(b"d") },
            Step::Create { path: path(b"n") },
        ]
    }

    fn look(t: &Path) -> Vec<(PathBuf, Meta, Vec<u8>)> {
        ["", "a", "b", "d", "d/x"]
            .map(|name| {
                let path = t.join("tree").join(name);
                (
                    path.clone(),
                    files::lstat(&path).unwrap().unwrap(),
                    std::fs::read(&path).unwrap_or_default(),
                )
            })
            .to_vec()
    }

    #[test]
    fn all_or_none() {
        let t = tempfile::tempdir().unwrap();
        let mut stage = stage(t.path());
        let (before, steps) = (look(t.path()), steps(&stage));
        assert!(stage.place(&steps).unwrap().roll_back().is_empty());
        assert_eq!(look(t.path()), before);
        for last in 0..steps.len() {
            // A step that cannot be done after each of the others.
            let mut some = steps[..=last].to_vec();
            some.push(Step::Create { path: b"never-made".to_vec() });
            assert!(matches!(stage.place(&some), Err(Trouble::TakenBack { why: Why::Changed, .. })));
            assert_eq!(look(t.path()), before, "after step {last}");
        }
        assert!(stage.place(&steps).unwrap().settle().is_empty());
        assert_eq!(names_of(&t.path().join("tree")).unwrap(), [&b"a"[..], b"d", b"m", b"n"]);
        drop(stage);
        assert!(names_of(&t.path().join("stages")).unwrap().is_empty());
    }

    #[test]
    fn an_edit_of_what_was_placed_is_kept() {
        let t = tempfile::tempdir().unwrap();
        let mut stage = stage(t.path());
        let steps = steps(&stage);
        let placed = stage.place(&steps).unwrap();
        files::write_plain(&t.path().join("tree/n"), b"edited meanwhile", 0o644).unwrap();
        let left = placed.roll_back();
        assert_eq!(left.len(), 1);
        drop(stage);
        assert_eq!(std::fs::read(t.path().join("stages/one/new/n")).unwrap(), b"edited meanwhile");
        assert_eq!(std::fs::read(t.path().join("tree/a")).unwrap(), b"old");
    }

    #[test]
    fn a_late_write_through_an_open_descriptor_is_kept() {
        use std::io::Write;
        let t = tempfile::tempdir().unwrap();
        let mut stage = stage(t.path());
        let steps = steps(&stage);
        let mut editor = std::fs::OpenOptions::new().append(true).open(t.path().join("tree/a")).unwrap();
        let placed = stage.place(&steps).unwrap();
        editor.write_all(b" and more").unwrap();
        assert_eq!(placed.settle(), [b"a".to_vec()]);
        drop(stage);
        assert_eq!(std::fs::read(t.path().join("stages/one/new/a")).unwrap(), b"old and more");
    }

    #[test]
    fn a_folder_that_is_not_empty_is_put_back() {
        let t = tempfile::tempdir().unwrap();
        let mut stage = stage(t.path());
        files::write_new(&t.path().join("tree/d/mine"), b"", 0o644).unwrap();
        let (before, steps) = (look(t.path()), steps(&stage));
        assert!(matches!(stage.place(&steps), Err(Trouble::TakenBack { why: Why::NotEmpty, .. })));
        assert_eq!(look(t.path()), before);
    }
}
