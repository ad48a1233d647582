//! The slot: a folder on the tree's own file system where new files are made and displaced ones wait.

use super::super::files::{self, Dir, Meta, beneath};
use super::super::remove;
use super::{FEW, folder, list, mount};
use crate::text::quote_path;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Where a slot is, before it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Where {
    /// The folder that holds slots.
    holder: PathBuf,
    /// The slot's name in there.
    label: String,
    /// Inside the tree, because the preferred place is on another file system.
    pub inside: bool,
}

impl Where {
    /// Name of the folder in the tree that is used where the preferred one is on another file system.
    pub const IN_TREE: &str = ".git-agent-apply";

    /// The place for a slot called `label`: in `preferred`, or in the tree at `top`.
    pub fn choose(preferred: &Path, top: &Path, label: &str) -> io::Result<Self> {
        let inside = mount(Dir::open(preferred)?.as_fd())? != mount(Dir::open(top)?.as_fd())?;
        Ok(Self::known(preferred, top, label, inside))
    }

    /// The place as it was chosen before.
    pub fn known(preferred: &Path, top: &Path, label: &str, inside: bool) -> Self {
        let holder = if inside { top.join(Self::IN_TREE) } else { preferred.to_owned() };
        Self { holder, label: label.to_owned(), inside }
    }

    /// The slot's path.
    pub fn path(&self) -> PathBuf {
        self.holder.join(&self.label)
    }

    /// Removes the slot with all that is in it. Fine when there is none. It is there whole or under another
    /// name: half a slot would mean something else to whoever finds a journal.
    pub fn clear(&self) -> io::Result<()> {
        if files::lstat(&self.holder)?.is_none() {
            return Ok(());
        }
        let holder = Dir::open(&self.holder)?;
        let gone = format!("gone-{}", self.label);
        if holder.lstat_at(self.label.as_bytes())?.is_some() {
            holder.rename_at(self.label.as_bytes(), gone.as_bytes())?;
        }
        remove::tree(holder.as_fd(), gone.as_ref())
    }

    /// The same, and the folder in the tree goes if nothing else needs it. Only under the lock.
    pub fn remove(&self) -> io::Result<()> {
        self.clear()?;
        if self.inside && files::lstat(&self.holder)?.is_some() {
            let left = list(Dir::open(&self.holder)?.as_fd())?;
            if left.is_empty() || left == [b".gitignore"] {
                files::remove_file(&self.holder.join(".gitignore"))?;
                files::remove_dir(&self.holder)?;
            }
        }
        Ok(())
    }

    /// Keeps the slot under another name, where nothing removes it.
    pub fn keep(&self) -> io::Result<PathBuf> {
        let to = self.holder.join(format!("kept-{}", self.label));
        files::rename(&self.path(), &to)?;
        Ok(to)
    }
}

/// An open slot and the tree it belongs to.
#[derive(Debug)]
pub struct Slot {
    pub(super) tree: Dir,
    pub(super) slot: Dir,
    path: PathBuf,
    /// The file system has `RENAME_EXCHANGE` and `RENAME_NOREPLACE`, as far as we know.
    pub(super) whole: Cell<bool>,
}

impl Slot {
    /// Makes a slot.
    pub fn create(at: &Where, top: &Path) -> io::Result<Self> {
        if at.inside && files::lstat(&at.holder)?.is_none() {
            files::create_dir(&at.holder, 0o700)?;
            files::write_new(&at.holder.join(".gitignore"), b"*\n", 0o644)?;
        }
        let path = at.path();
        files::create_dir(&path, 0o700)?;
        for name in ["new", "old", "side"] {
            files::create_dir(&path.join(name), 0o700)?;
        }
        Self::open(at, top)
    }

    /// Opens a slot that is there.
    pub fn open(at: &Where, top: &Path) -> io::Result<Self> {
        let path = at.path();
        Ok(Self { tree: Dir::open(top)?, slot: Dir::open(&path)?, path, whole: Cell::new(true) })
    }

    /// The tree.
    pub fn tree(&self) -> &Dir {
        &self.tree
    }

    /// Where the slot is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder in which successors are made, each at its path in the tree.
    pub fn successors(&self) -> PathBuf {
        self.path.join("new")
    }

    /// The name in the slot of the successor of a path.
    pub fn name_of(path: &[u8]) -> Vec<u8> {
        [b"new/", path].concat()
    }

    /// What lies in the slot under a name.
    pub fn lies(&self, name: &[u8]) -> io::Result<Option<Meta>> {
        self.slot.lstat_at(name)
    }

    /// What lies ready for a path.
    pub fn successor(&self, path: &[u8]) -> io::Result<Option<Meta>> {
        self.lies(&Self::name_of(path))
    }

    /// Makes the successors of these paths durable.
    pub fn sync<'p>(&self, paths: impl ExactSizeIterator<Item = &'p [u8]>) -> io::Result<()> {
        if paths.len() > FEW {
            return Ok(fs::syncfs(self.slot.as_fd())?);
        }
        let mut folders = std::collections::BTreeSet::from([b"".to_vec(), b"new".to_vec(), b"old".to_vec()]);
        for path in paths {
            let name = Self::name_of(path);
            let mut above = name.as_slice();
            while let Some(end) = above.iter().rposition(|b| *b == b'/') {
                above = &above[..end];
                folders.insert(above.to_vec());
            }
            // A link has no content but its name.
            if self.lies(&name)?.is_some_and(|m| m.is_file()) {
                fs::fsync(beneath(self.slot.as_fd(), &name, READ)?)?;
            }
        }
        for path in folders {
            fs::fsync(folder(self.slot.as_fd(), &path)?)?;
        }
        Ok(())
    }

    /// Gives a successor what a person gave the file that it replaces: permission bits, owner, extended
    /// attributes. `executable` sets or clears the executable bits. Returns what could not be given.
    pub fn dress(&self, path: &[u8], was: &Meta, executable: Option<bool>) -> io::Result<Vec<String>> {
        let mut lost = Vec::new();
        let new = beneath(self.slot.as_fd(), &Self::name_of(path), READ)?;
        let mut mode = was.mode & 0o777;
        match executable {
            Some(true) => mode |= (mode & 0o444) >> 2,
            Some(false) => mode &= !0o111,
            None => {}
        }
        // The old file may be unreadable to us; its attributes are then unknown, not absent.
        match beneath(self.tree.as_fd(), path, READ) {
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
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

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
