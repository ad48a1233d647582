//! The intent of a spawn: what is about to exist, written and locked before anything does. It is the proof
//! by which a later command may undo a half-made run, and the only one it takes.

use super::spawn::Cut;
use crate::git::{RefError, Repo, Transaction};
use crate::ledger::{Folder, Home, Ledger};
use crate::model::{Failure, Oid, RunId, RunName};
use crate::os::lock::Lock;
use crate::os::{ancestry, files, remove};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Below the root of a repository's runs; no run can be called so.
const MAKING: &str = ".making";
/// What was renamed away and is being deleted.
pub const TRASH: &str = ".trash";

/// What the intent says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Intent {
    v: u64,
    run: RunId,
    repo: String,
    name: RunName,
    branch: String,
    base: Oid,
}

/// An announced run.
#[derive(Debug)]
pub struct Making {
    intent: Intent,
    root: PathBuf,
    path: PathBuf,
    /// Held until the run is complete or withdrawn; a crash releases it.
    _lock: Lock,
}

impl Making {
    /// Writes the intent, locked, before the first effect.
    pub fn announce(plan: &Cut) -> Result<Self, Failure> {
        let fail = |e: std::io::Error| {
            Failure::fatal(format!("nothing can be made in '{}'", plan.home.root.display())).because(e)
        };
        let folder = plan.home.root.join(MAKING);
        files::create_dirs(&folder, 0o700).map_err(fail)?;
        let path = folder.join(plan.run.as_str());
        // Locked under a name that nobody looks at, then renamed: the lock stays with the file.
        let hidden = folder.join(format!(".{}", plan.run));
        let lock = Lock::acquire(&hidden)
            .map_err(|e| {
                // On a full disk the file is there and the holder's name is not in it.
                let _ = files::remove_file(&hidden);
                fail(e)
            })?
            .ok_or_else(|| Failure::fatal("another spawn has the same run id; try again"))?;
        let intent = Intent {
            v: 1,
            run: plan.run.clone(),
            repo: plan.home.id.clone(),
            name: plan.name.clone(),
            branch: plan.branch.clone(),
            base: plan.base.clone(),
        };
        let text = serde_json::to_vec(&intent).map_err(|e| Failure::fatal(e.to_string()))?;
        let announced = files::write_atomic(&path.with_extension("json"), &text, 0o600)
            .and_then(|()| files::rename_noreplace(&hidden, &path));
        if let Err(e) = announced {
            // A full disk: what little was written goes again. The first error is the one to tell.
            let _ = files::remove_file(&path.with_extension("json"));
            let _ = files::remove_file(&hidden);
            return Err(fail(e));
        }
        Ok(Self { intent, root: plan.home.root.clone(), path, _lock: lock })
    }

    /// The temporary folder in which a run folder is begun.
    pub fn staging(&self) -> PathBuf {
        staging(&self.root, &self.intent.run)
    }

    /// The run is complete: the intent goes.
    pub fn done(self) -> Result<(), Failure> {
        forget(&self.path)
    }

    /// Undoes everything that was announced.
    pub fn withdraw(self, repo: &Repo) -> Result<(), Failure> {
        undo(repo, &self.root, &self.intent)?;
        forget(&self.path)
    }
}

fn staging(root: &Path, run: &RunId) -> PathBuf {
    root.join(format!(".new-{run}"))
}

/// The text first: an intent without text announces nothing.
fn forget(path: &Path) -> Result<(), Failure> {
    let fail =
        |e: std::io::Error| Failure::fatal(format!("'{}' cannot be removed", path.display())).because(e);
    files::remove_file(&path.with_extension("json")).map_err(fail)?;
    files::remove_file(path).map_err(fail)?;
    Ok(())
}

/// Half-made runs whose maker is gone: what [`reclaim`] would undo. Changes nothing.
pub fn abandoned(home: &Home) -> Result<Vec<RunName>, Failure> {
    let folder = home.root.join(MAKING);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Failure::fatal(format!("'{}' cannot be read", folder.display())).because(e)),
    };
    let mut names = Vec::new();
    for entry in entries.flatten() {
        let Some(Ok(run)) = entry.file_name().to_str().map(str::parse::<RunId>) else { continue };
        if Lock::is_held(&entry.path()).unwrap_or(true) {
            continue;
        }
        let text = files::read_bounded(&entry.path().with_extension("json"), 64 << 10).ok().flatten();
        let intent = text.and_then(|t| serde_json::from_slice::<Intent>(&t).ok());
        names.extend(intent.filter(|i| i.run == run && i.repo == home.id).map(|i| i.name));
    }
    Ok(names)
}

/// Undoes what half-made runs left. Returns their names.
pub fn reclaim(repo: &Repo, home: &Home) -> Result<Vec<RunName>, Failure> {
    let folder = home.root.join(MAKING);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Failure::fatal(format!("'{}' cannot be read", folder.display())).because(e)),
    };
    let mut names = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let Some(Ok(run)) = entry.file_name().to_str().map(str::parse::<RunId>) else { continue };
        // Taking the lock is the proof that the one who announced it is gone, and keeps a second reclaimer away.
        let Ok(Some(_lock)) = Lock::acquire(&path) else { continue };
        let text = files::read_bounded(&path.with_extension("json"), 64 << 10).ok().flatten();
        let intent = text.and_then(|t| serde_json::from_slice::<Intent>(&t).ok());
        if let Some(intent) = intent.filter(|i| i.run == run && i.repo == home.id) {
            undo(repo, &home.root, &intent)?;
            names.push(intent.name);
        }
        forget(&path)?;
    }
    Ok(names)
}

/// Refs first, by compare-and-swap against exactly what spawn wrote, then folders, by rename. A run that
/// got any further event keeps its entry; a folder whose record is complete is no half-made one.
fn undo(repo: &Repo, root: &Path, intent: &Intent) -> Result<(), Failure> {
    let home = root.join(intent.name.as_str());
    let folder = Folder::read(&home).ok().flatten().filter(|f| f.run == intent.run);
    if folder.as_ref().is_some_and(|f| f.tree.is_some()) {
        // Complete: only the intent was left behind.
        return Ok(());
    }
    let ledger = Ledger::new(repo);
    // A run that has more than its first event went on; its entry and its branch are not ours to undo.
    if let Some(tip) = ledger.tip(&intent.run)?
        && tip.understood()?.seq == 0
    {
        let mut transaction = Transaction::new().delete(&Ledger::ref_name(&intent.run), &tip.commit);
        if !intent.branch.is_empty() && repo.ref_tip(&intent.branch)?.as_ref() == Some(&intent.base) {
            transaction = transaction.delete(&intent.branch, &intent.base);
        }
        match transaction.commit(repo, "agent: withdraw") {
            Ok(()) | Err(RefError::Moved { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    // A setup may have been at work when its spawn was killed: nothing of it writes on.
    if let Some(folder) = &folder {
        let ended = ancestry::end_leftovers(intent.run.as_str(), &home, folder.uid).map_err(|e| {
            Failure::fatal(format!("what is left of run '{}' cannot be ended", intent.name)).because(e)
        })?;
        if !ended {
            return Err(Failure::fatal(format!("a process of run '{}' does not end", intent.name)));
        }
    }
    // The staging folder's name holds the run id: it is ours even before its record is written.
    trash(root, &staging(root, &intent.run), &intent.run)?;
    if folder.is_some() {
        trash(root, &home, &intent.run)?;
    }
    Ok(())
}

/// Renames a run folder into the trash and deletes it there.
pub fn trash(root: &Path, dir: &Path, run: &RunId) -> Result<(), Failure> {
    let fail =
        |e: std::io::Error| Failure::fatal(format!("'{}' cannot be removed", dir.display())).because(e);
    if files::lstat(dir).map_err(fail)?.is_none() {
        return Ok(());
    }
    let trash = root.join(TRASH);
    match files::create_dirs(&trash, 0o700) {
        // A full disk has no room for a trash either: aside, under the name that is ours whatever it holds.
        Err(e) if matches!(e.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => {
            let aside = staging(root, run);
            if dir != aside {
                files::rename_noreplace(dir, &aside).map_err(fail)?;
            }
            let parent = files::open_dir_nofollow(root).map_err(fail)?;
            return remove::tree(parent.as_fd(), aside.file_name().unwrap_or_default()).map_err(fail);
        }
        made => made.map_err(fail)?,
    }
    let mut name = OsString::from(run.as_str());
    for n in 0.. {
        match files::rename_noreplace(dir, &trash.join(&name)) {
            Ok(()) => break,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => name = format!("{run}.{n}").into(),
            Err(e) => return Err(fail(e)),
        }
    }
    let parent = files::open_dir_nofollow(&trash).map_err(fail)?;
    remove::tree(parent.as_fd(), &name).map_err(fail)
}
