//! Carrying moves out, and taking them back. Forwards every step is checked just before and just after.
//! Backwards nothing is remembered: where the inodes are says what was done, so the same function serves a
//! failure, a killed process and a lost machine, and may itself be killed and called again.

use super::super::files::{Meta, parent_beneath};
use super::{Known, Move, Slot, list};
use rustix::fs::{self, AtFlags, Mode, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Why a move was not done.
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
        if is_elsewhere(e) { Why::Changed } else { Why::Io(e.into()) }
    }
}

/// Gone, or something there: what was looked at is there no more.
fn is_elsewhere(e: Errno) -> bool {
    matches!(e, Errno::EXIST | Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NOTEMPTY)
}

fn why(e: io::Error) -> Why {
    e.raw_os_error().map_or(Why::Io(e), |n| Errno::from_raw_os_error(n).into())
}

/// What could not be taken back at one path.
#[derive(Debug)]
pub enum Kept {
    /// Somebody wrote to the path meanwhile: that file stays, and what stood there before lies in the slot
    /// under this name, if there was anything.
    Edited(Vec<u8>, Option<Vec<u8>>),
    /// The system refused. It can be tried again.
    Failed(Vec<u8>, io::Error),
}

/// What became of one path on the way back.
type Back = Result<Option<Kept>, Why>;

enum Side<'a> {
    Tree(&'a [u8]),
    Slot(&'a [u8]),
}
use Side::{Slot as InSlot, Tree as InTree};

impl Slot {
    /// Carries the moves out in their order, until one cannot be: then its place in the list is returned, it
    /// and what follows may be half done, and [`Slot::take_back`] is to be called.
    pub fn place(&self, moves: &[Move]) -> Result<(), (usize, Why)> {
        moves.iter().enumerate().try_for_each(|(n, m)| self.carry_out(n, m).map_err(|why| (n, why)))
    }

    fn carry_out(&self, n: usize, m: &Move) -> Result<(), Why> {
        match m {
            Move::Exchange { path, slot, put, was } => {
                self.expect(&InSlot(slot), put)?;
                // Looked at before as well: a file that is gone or changed need not be touched at all.
                self.expect(&InTree(path), was)?;
                self.exchange(slot, path, &side(n))?;
                self.expect(&InSlot(slot), was)
            }
            Move::Put { path, slot, put } => {
                self.expect(&InSlot(slot), put)?;
                self.bring(slot, path)
            }
            Move::Take { path, slot, was } => {
                self.expect(&InTree(path), was)?;
                self.fetch(path, slot)?;
                self.expect(&InSlot(slot), was)
            }
            Move::PutFolder { path, slot, ino } => match self.look(&InSlot(slot))? {
                Some(m) if m.id.ino == *ino => self.bring(slot, path),
                // It was not empty and stayed.
                _ => Ok(()),
            },
            Move::TakeFolder { path, slot, ino, must } => {
                let there = self.look(&InTree(path))?.filter(|m| m.is_dir() && m.id.ino == *ino);
                if there.is_none() || !(*must || self.is_empty(&InTree(path))?) {
                    return if *must { Err(Why::Changed) } else { Ok(()) };
                }
                self.fetch(path, slot)?;
                let moved = self.look(&InSlot(slot))?.ok_or(Why::Changed)?;
                if moved.id.ino == *ino && self.is_empty(&InSlot(slot))? {
                    return Ok(());
                }
                self.bring(slot, path)?;
                if *must { Err(Why::NotEmpty) } else { Ok(()) }
            }
            Move::MakeFolder { path } => {
                let (folder, name) = self.parent(&InTree(path))?;
                // As git makes folders: the umask decides.
                Ok(fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777))?)
            }
        }
    }

    /// The paths whose displaced file was written to since, by somebody who had it open.
    pub fn written(&self, moves: &[Move]) -> Vec<Vec<u8>> {
        let changed = |m: &&Move| match m {
            Move::Exchange { slot, was, .. } | Move::Take { slot, was, .. } => {
                !self.look(&InSlot(slot)).is_ok_and(|now| now.is_some_and(|now| was.is_untouched(&now)))
            }
            _ => false,
        };
        moves.iter().filter(changed).map(|m| m.path().to_vec()).collect()
    }

    /// Whether all of these moves were done, as what waits in the slot says: what became of the tree since is
    /// somebody else's business.
    pub fn is_placed(&self, moves: &[Move]) -> bool {
        moves.iter().enumerate().all(|(n, m)| match m {
            Move::Exchange { slot, put, .. } => {
                self.look(&InSlot(slot)).is_ok_and(|l| l.is_some_and(|l| l.id.ino != put.ino))
                    && self.look(&InSlot(&side(n))).is_ok_and(|l| l.is_none())
            }
            Move::Put { slot, .. } => self.look(&InSlot(slot)).is_ok_and(|l| l.is_none()),
            Move::Take { slot, .. } => self.look(&InSlot(slot)).is_ok_and(|l| l.is_some()),
            Move::PutFolder { .. } | Move::TakeFolder { .. } | Move::MakeFolder { .. } => true,
        })
    }

    /// Takes back whatever of these moves was done, in reverse order. Returns what could not be.
    pub fn take_back(&self, moves: &[Move]) -> Vec<Kept> {
        let mut kept = Vec::new();
        for (n, m) in moves.iter().enumerate().rev() {
            match self.back(n, m) {
                Ok(None) => {}
                Ok(Some(edited)) => kept.push(edited),
                Err(Why::Io(e)) => kept.push(Kept::Failed(m.path().to_vec(), e)),
                Err(changed) => {
                    kept.push(Kept::Failed(m.path().to_vec(), io::Error::other(changed.to_string())));
                }
            }
        }
        kept
    }

    fn back(&self, n: usize, m: &Move) -> Back {
        match m {
            Move::Exchange { path, slot, put, .. } => self.exchange_back(path, slot, put, &side(n)),
            Move::Put { path, slot, put } => match self.look(&InTree(path))? {
                Some(there) if there.id.ino == put.ino => {
                    let edited = || Ok(Some(Kept::Edited(path.clone(), None)));
                    if !put.is_untouched(&there) {
                        return edited();
                    }
                    self.drop_second_name(slot, put)?;
                    self.fetch(path, slot)?;
                    match self.look(&InSlot(slot))? {
                        Some(now) if put.is_untouched(&now) => Ok(None),
                        // Saved in this very moment: it goes where it was saved to.
                        _ => self.bring(slot, path).and_then(|()| edited()),
                    }
                }
                _ => Ok(None),
            },
            Move::Take { path, slot, .. } => match (self.look(&InSlot(slot))?, self.look(&InTree(path))?) {
                (None, _) => Ok(None),
                (Some(_), None) => self.return_to(path, slot),
                (Some(taken), Some(there)) if taken.id == there.id => {
                    self.drop_name(slot)?;
                    Ok(None)
                }
                _ => Ok(Some(Kept::Edited(path.clone(), Some(slot.clone())))),
            },
            Move::PutFolder { path, slot, ino } => {
                let there = self.look(&InTree(path))?.filter(|m| m.is_dir() && m.id.ino == *ino);
                if there.is_some() && self.is_empty(&InTree(path))? {
                    self.fetch(path, slot)?;
                }
                Ok(None)
            }
            Move::TakeFolder { path, slot, .. } => {
                if self.look(&InSlot(slot))?.is_some() && self.look(&InTree(path))?.is_none() {
                    return self.return_to(path, slot).map(|_| None);
                }
                Ok(None)
            }
            Move::MakeFolder { path } => {
                let Ok((folder, name)) = self.parent(&InTree(path)) else { return Ok(None) };
                match fs::unlinkat(&folder, name, AtFlags::REMOVEDIR) {
                    Err(e) if !is_elsewhere(e) => Err(Why::Io(e.into())),
                    // Not empty: somebody put something there, and it stays.
                    _ => Ok(None),
                }
            }
        }
    }

    fn exchange_back(&self, path: &[u8], slot: &[u8], put: &Known, side: &[u8]) -> Back {
        let is_put = |m: &Option<Meta>| m.is_some_and(|m| m.id.ino == put.ino);
        let edited = |at: &[u8]| Ok(Some(Kept::Edited(path.to_vec(), Some(at.to_vec()))));
        let mut there = self.look(&InTree(path))?;
        let mut lies = self.look(&InSlot(slot))?;
        // Only where names cannot be exchanged in one call is there something aside.
        let aside = self.look(&InSlot(side))?;
        if is_put(&aside) {
            // Killed on the way back.
            match (lies, there) {
                (Some(_), None) => self.bring(slot, path)?,
                (Some(l), Some(t)) if l.id == t.id => self.drop_name(slot)?,
                (Some(_), Some(_)) => return edited(slot),
                (None, _) => {}
            }
            self.shift(&InSlot(side), &InSlot(slot))?;
            return Ok(None);
        }
        if aside.is_some() && lies.is_none() {
            self.shift(&InSlot(side), &InSlot(slot))?;
            lies = aside;
        } else if aside.is_some() {
            // Killed on the way there; the new file has its name in the slot, and perhaps the one in the tree.
            if is_put(&there) {
                if !there.is_some_and(|t| put.is_untouched(&t)) {
                    return edited(side);
                }
                self.drop_name(slot)?;
                self.fetch(path, slot)?;
                there = None;
            }
            return if there.is_none() { self.return_to(path, side) } else { edited(side) };
        }
        match (there, lies) {
            (Some(t), Some(_)) if t.id.ino == put.ino => {
                if !put.is_untouched(&t) {
                    return edited(slot);
                }
                self.exchange(slot, path, side)?;
                match self.look(&InSlot(slot))? {
                    Some(now) if put.is_untouched(&now) => Ok(None),
                    // Saved in this very moment: it goes where it was saved to.
                    _ => self.exchange(slot, path, side).and_then(|()| edited(slot)),
                }
            }
            (None, Some(l)) if l.id.ino != put.ino => self.return_to(path, slot),
            (Some(t), Some(l)) if l.id.ino != put.ino && t.id != l.id => edited(slot),
            (Some(_), Some(l)) if l.id.ino != put.ino => {
                self.drop_name(slot)?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Brings a file back to the tree. Where its folder is gone, or its name taken, it stays in the slot.
    fn return_to(&self, path: &[u8], slot: &[u8]) -> Back {
        match self.bring(slot, path) {
            Ok(()) => Ok(None),
            Err(Why::Io(e)) => Err(Why::Io(e)),
            Err(_) => Ok(Some(Kept::Edited(path.to_vec(), Some(slot.to_vec())))),
        }
    }

    fn expect(&self, at: &Side<'_>, known: &Known) -> Result<(), Why> {
        match self.look(at)? {
            Some(now) if known.is_untouched(&now) => Ok(()),
            _ => Err(Why::Changed),
        }
    }

    /// What has a name now; nothing where a folder on the way became a link.
    fn look(&self, at: &Side<'_>) -> Result<Option<Meta>, Why> {
        let found = match at {
            InTree(path) => self.tree.lstat_at(path),
            InSlot(path) => self.slot.lstat_at(path),
        };
        match found {
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => Ok(None),
            other => other.map_err(Why::Io),
        }
    }

    fn is_empty(&self, at: &Side<'_>) -> Result<bool, Why> {
        let (root, path) = self.side(at);
        let names = super::folder(root.as_fd(), path).and_then(|fd| list(fd.as_fd())).map_err(why)?;
        Ok(names.is_empty())
    }

    fn side<'a>(&self, at: &Side<'a>) -> (&super::Dir, &'a [u8]) {
        match at {
            InTree(path) => (&self.tree, path),
            InSlot(path) => (&self.slot, path),
        }
    }

    fn parent(&self, at: &Side<'_>) -> Result<(OwnedFd, OsString), Why> {
        let (root, path) = self.side(at);
        let (folder, name) = parent_beneath(root.as_fd(), path).map_err(why)?;
        Ok((folder, name.to_owned()))
    }

    /// Two names change places. Where the file system cannot do that in one call, the tree's file steps aside
    /// first (whatever it is by then; nothing is ever replaced) and its name is free for a moment.
    fn exchange(&self, slot: &[u8], path: &[u8], side: &[u8]) -> Result<(), Why> {
        if self.whole.get() {
            let ((slot_folder, slot), (folder, name)) =
                (self.parent(&InSlot(slot))?, self.parent(&InTree(path))?);
            match fs::renameat_with(&slot_folder, &slot, &folder, &name, RenameFlags::EXCHANGE) {
                Err(e) if is_lacking(e) => self.whole.set(false),
                other => return Ok(other?),
            }
        }
        self.fetch(path, side)?;
        self.bring(slot, path)?;
        self.shift(&InSlot(side), &InSlot(slot))
    }

    /// From the slot to a name in the tree that is free.
    fn bring(&self, slot: &[u8], path: &[u8]) -> Result<(), Why> {
        let ((from_folder, from), (to_folder, to)) =
            (self.parent(&InSlot(slot))?, self.parent(&InTree(path))?);
        if self.whole.get() {
            match fs::renameat_with(&from_folder, &from, &to_folder, &to, RenameFlags::NOREPLACE) {
                Err(e) if is_lacking(e) => self.whole.set(false),
                other => return Ok(other?),
            }
        }
        if self.look(&InSlot(slot))?.is_some_and(|m| !m.is_dir()) {
            match fs::linkat(&from_folder, &from, &to_folder, &to, AtFlags::empty()) {
                Ok(()) => return Ok(fs::unlinkat(&from_folder, &from, AtFlags::empty())?),
                // No hard links here either.
                Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK | Errno::INVAL) => {}
                Err(e) => return Err(e.into()),
            }
        }
        if self.look(&InTree(path))?.is_some() {
            return Err(Why::Changed);
        }
        Ok(fs::renameat(&from_folder, &from, &to_folder, &to)?)
    }

    /// From the tree to a name in the slot, which is ours and free.
    fn fetch(&self, path: &[u8], slot: &[u8]) -> Result<(), Why> {
        self.shift(&InTree(path), &InSlot(slot))
    }

    fn shift(&self, from: &Side<'_>, to: &Side<'_>) -> Result<(), Why> {
        let ((from_folder, from), (to_folder, to)) = (self.parent(from)?, self.parent(to)?);
        Ok(fs::renameat(&from_folder, &from, &to_folder, &to)?)
    }

    fn drop_name(&self, slot: &[u8]) -> Result<(), Why> {
        let (folder, name) = self.parent(&InSlot(slot))?;
        Ok(fs::unlinkat(&folder, &name, AtFlags::empty())?)
    }

    /// Where links stand in for renames, a file has two names for a moment.
    fn drop_second_name(&self, slot: &[u8], put: &Known) -> Result<(), Why> {
        match self.look(&InSlot(slot))? {
            Some(m) if m.id.ino == put.ino => self.drop_name(slot),
            _ => Ok(()),
        }
    }
}

/// What an error of `renameat2` with a flag looks like where the file system or the kernel has none.
fn is_lacking(e: Errno) -> bool {
    matches!(e, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

fn side(n: usize) -> Vec<u8> {
    format!("side/{n}").into_bytes()
}
