//! Reclaim: looking at what lies in the root, and taking one run's folder away. Every act is preceded by a look
//! at the very same folder; what is not exactly what was planned stays. Decides nothing about runs.

use super::making::TRASH;
use super::prune::{Item, Judge, Request, Verdict, changed};
use super::{Layout, Open, setup, spawn};
use crate::git::{RefError, Repo, Transaction};
use crate::ledger::{self, Draft, Folder, Home, Ledger, Tip};
use crate::model::{Body, Failure, Oid, Prune, RunId, RunName};
use crate::os::ancestry::{self, Process, Processes};
use crate::os::files::{self, Dir, FileId};
use crate::os::lock::Lock;
use crate::os::{background, remove};
use crate::text::quote_path;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Held by whoever empties the trash.
const TRASH_LOCK: &str = ".trash.lock";
/// How long a second one waits for the first.
const PATIENCE: Duration = Duration::from_secs(600);
/// Most refs of a run's store that are looked at.
const MOST_REFS: usize = 10_000;

/// Something in the root that could be a run's folder.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Its name in the root.
    pub entry: OsString,
    /// Its path.
    pub path: PathBuf,
    /// Its record, if it has one that we can read.
    pub folder: Option<Folder>,
}

/// A run's folder as it was when the plan was made. It goes only while it is still that.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its path.
    pub path: PathBuf,
    entry: OsString,
    id: FileId,
    folder: Folder,
    /// Whoever worked in the run since has written its name here.
    lock: Option<(i64, u32)>,
    /// When spawn wrote its last file.
    pub(super) made: (i64, u32),
    /// When the last snapshot's scratch was removed.
    pub(super) last_snapshot: (i64, u32),
}

/// What lies in the root under a name that a run could have, whatever it is.
pub(super) fn scan(home: &Home) -> Result<Vec<Found>, Failure> {
    let cannot =
        |e: std::io::Error| Failure::fatal(format!("'{}' cannot be read", home.root.display())).because(e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&home.root).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        if entry.file_name().to_str().is_none_or(|n| n.parse::<RunName>().is_err()) {
            continue;
        }
        let folder = Dir::open(&home.root)
            .and_then(|root| root.dir_at(entry.file_name().as_bytes()))
            .ok()
            .and_then(|dir| record(&dir));
        found.push(Found { path: entry.path(), entry: entry.file_name(), folder });
    }
    found.sort_by(|a, b| a.entry.cmp(&b.entry));
    Ok(found)
}

/// A folder's record, through no link.
fn record(dir: &Dir) -> Option<Folder> {
    let bytes = dir.read_bounded_at(b"host/run.json", 1 << 20).ok()??;
    serde_json::from_slice(&bytes).ok().filter(|f: &Folder| f.v == Folder::FORMAT)
}

/// Where the user's own work trees are.
#[derive(Debug, Default)]
pub(super) struct Places {
    paths: Vec<PathBuf>,
    branches: Vec<String>,
}

impl Places {
    pub fn of(repo: &Repo) -> Result<Self, Failure> {
        let mut places = Self::default();
        let listed = repo.call("worktree").args(["list", "--porcelain", "-z"]).output()?;
        for line in listed.split(|b| *b == 0) {
            if let Some(path) = line.strip_prefix(b"worktree ") {
                places.add(Path::new(OsStr::from_bytes(path)));
            } else if let Some(branch) = line.strip_prefix(b"branch ") {
                places.branches.push(String::from_utf8_lossy(branch).into_owned());
            }
        }
        places.add(repo.common_dir());
        places.add(repo.git_dir());
        Ok(places)
    }

    fn add(&mut self, path: &Path) {
        self.paths.extend(std::fs::canonicalize(path));
        self.paths.push(path.to_owned());
    }

    pub fn has_checked_out(&self, branch: &str) -> bool {
        self.branches.iter().any(|b| b == branch)
    }

    /// A work tree or a git directory of the user's inside a folder.
    fn inside(&self, dir: &Path) -> Option<&Path> {
        self.paths.iter().map(PathBuf::as_path).find(|p| p.starts_with(dir))
    }
}

/// Proves that a folder is the one that spawn made for `run`. Else says what it is.
pub(super) fn look(home: &Home, found: &Found, run: &RunId, places: &Places) -> Result<Seen, String> {
    let shown = found.path.display();
    let io = |e: std::io::Error| format!("'{shown}' cannot be looked at: {e}");
    let root = Dir::open(&home.root).map_err(io)?;
    let meta = root.lstat_at(found.entry.as_bytes()).map_err(io)?;
    match meta {
        Some(m) if m.is_symlink() => return Err(format!("'{shown}' is a symbolic link")),
        Some(m) if !m.is_dir() => return Err(format!("'{shown}' is not a folder")),
        Some(_) => {}
        None => return Err(format!("'{shown}' is gone")),
    }
    let dir = root.dir_at(found.entry.as_bytes()).map_err(io)?;
    let id = dir.id().map_err(io)?;
    let folder = record(&dir)
        .filter(|f| f.run == *run && f.repo == home.id)
        .ok_or_else(|| format!("'{shown}' is not the folder of this run"))?;
    if OsStr::new(folder.name.as_str()) != found.entry {
        return Err(format!("'{shown}' is the folder of run '{}' under another name", folder.name));
    }
    let real = std::fs::canonicalize(&home.root).map_err(io)?.join(&found.entry);
    if let Some(mount) = ancestry::mounts_below(&real).map_err(io)?.first() {
        return Err(format!("a file system is mounted at '{}'", mount.display()));
    }
    if id.dev != root.id().map_err(io)?.dev {
        return Err(format!("'{shown}' is on another file system"));
    }
    match dir.lstat_at(b"tree").map_err(io)? {
        Some(m) if Some((m.id.dev, m.id.ino)) != folder.tree || !m.is_dir() => {
            return Err(format!("'{shown}/tree' is not the folder that spawn made"));
        }
        _ => {}
    }
    if let Some(inside) = places.inside(&real).or_else(|| places.inside(&found.path)) {
        return Err(format!("a work tree or repository of yours is inside: '{}'", inside.display()));
    }
    let lock = dir.lstat_at(b"host/lock").map_err(io)?.map(|m| m.mtime);
    let made = files::status_time(dir.as_fd(), b"host/run.json").map_err(io)?.unwrap_or_default();
    let last_snapshot =
        root.lstat_at(found.entry.as_bytes()).map_err(io)?.map(|m| m.mtime).unwrap_or_default();
    Ok(Seen { path: found.path.clone(), entry: found.entry.clone(), id, folder, lock, made, last_snapshot })
}

/// The moment at which everything in a run's tree was known: its last snapshot, else when spawn was done.
/// Snapshots are taken in a scratch folder beside the tree, so the folder's own time is that of the last.
pub(super) fn recorded(dir: &Path, has_result: bool) -> Option<(i64, u32)> {
    if has_result {
        return files::lstat(dir).ok().flatten().map(|m| m.mtime);
    }
    files::status_time(Dir::open(dir).ok()?.as_fd(), b"host/run.json").ok().flatten()
}

impl Seen {
    /// What is left of the run's processes.
    pub(super) fn processes(&self, all: &Processes) -> Vec<Process> {
        let real = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        all.of(self.folder.run.as_str(), &real, self.folder.uid)
    }

    /// The first path of the tree, or of the subagents' trees, that changed after `than`.
    pub(super) fn changed_since(&self, than: (i64, u32)) -> Option<String> {
        ["tree", "sub"].iter().find_map(|name| match Dir::open(&self.path.join(name)) {
            Ok(dir) => changed(&dir, than),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(_) => Some("its tree".into()),
        })
    }

    /// What the refs of the run's store and its HEAD name: plain reading, git never starts there.
    pub(super) fn commits(&self) -> Vec<(String, Oid)> {
        let mut found = Vec::new();
        let Ok(store) = Dir::open(&self.path.join("store")) else { return found };
        let read = |path: &[u8]| store.read_bounded_at(path, 1 << 20).ok().flatten().unwrap_or_default();
        let mut add = |name: &[u8], text: &[u8]| {
            if let Ok(oid) = String::from_utf8_lossy(text).trim().parse::<Oid>() {
                found.push((quote_path(name).into_owned(), oid));
            }
        };
        add(b"HEAD", &read(b"worktrees/tree/HEAD"));
        for line in read(b"packed/packed-refs").split(|b| *b == b'\n') {
            if let Some(at) = line.iter().position(|b| *b == b' ')
                && !line.starts_with(b"#")
            {
                add(&line[at + 1..], &line[..at]);
            }
        }
        let mut pending = vec![b"refs".to_vec(), b"worktrees/tree/refs".to_vec()];
        let mut seen = 0;
        while let Some(folder) = pending.pop() {
            let path = self.path.join("store").join(OsStr::from_bytes(&folder));
            if !store.lstat_at(&folder).is_ok_and(|m| m.is_some_and(|m| m.is_dir())) {
                continue;
            }
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                seen += 1;
                if seen > MOST_REFS {
                    return found;
                }
                let name = [folder.as_slice(), b"/", entry.file_name().as_bytes()].concat();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => pending.push(name),
                    Ok(kind) if kind.is_file() => {
                        let text = read(&name);
                        if let Ok(oid) = String::from_utf8_lossy(&text).trim().parse::<Oid>() {
                            found.push((quote_path(&name).into_owned(), oid));
                        }
                    }
                    _ => {}
                }
            }
        }
        found
    }
}

/// What lies around the folders of runs and is looked at once for all of them.
#[derive(Debug)]
pub(super) struct Around {
    pub places: Places,
    pub processes: Processes,
}

impl Around {
    pub fn of(repo: &Repo) -> Result<Self, Failure> {
        Ok(Self { places: Places::of(repo)?, processes: Processes::look() })
    }
}

/// Takes one planned thing away. `lock` is the run's, where the caller holds it already. Returns what a person
/// should know.
pub(super) fn carry_out(
    repo: &Repo,
    home: &Home,
    item: &Item,
    around: &Around,
    lock: Option<&Lock>,
    now: i64,
) -> Result<Vec<String>, Failure> {
    let ledger = Ledger::new(repo);
    let mut notes = Vec::new();
    let meanwhile = |what: &str| Failure::fatal(format!("it {what} since it was looked at"));
    let tip = ledger.tip(&item.run)?;
    if tip.as_ref().map(|t| &t.commit) != item.tip.as_ref() {
        return Err(meanwhile("changed in the ledger"));
    }
    if let Some(seen) = &item.seen {
        let found =
            Found { entry: seen.entry.clone(), path: seen.path.clone(), folder: Some(seen.folder.clone()) };
        let again = look(home, &found, &item.run, &around.places).map_err(Failure::fatal)?;
        if again.id != seen.id || again.folder != seen.folder {
            return Err(meanwhile("became another folder"));
        }
        if lock.is_none() && again.lock != seen.lock {
            return Err(meanwhile("was worked in"));
        }
        let layout = Layout::new(&seen.path);
        let path = layout.lock();
        let cannot = |e: std::io::Error| Failure::fatal("its lock cannot be taken").because(e);
        let mut taken = match lock {
            Some(_) => None,
            None => Some(Lock::acquire(&path).map_err(cannot)?.ok_or_else(|| meanwhile("was taken up"))?),
        };
        if seen.folder.isolation.has_copy()
            && let Some(tip) =
                tip.as_ref().filter(|t| t.head().is_some_and(|h| setup::wants_teardown(&layout, h)))
            && let Some(lock) = taken.take()
        {
            let run = Open::with(repo, layout, seen.folder.clone(), lock, tip.clone())?;
            notes.extend(setup::teardown(&run));
            taken = Some(run.lock);
        }
        let _taken = taken;
        // Only what is there can beget more: one look at all processes does for all runs that have none.
        if !item.processes.is_empty() || !seen.processes(&around.processes).is_empty() {
            end_processes(seen)?;
        }
        into_trash(home, seen)?;
    }
    let event = match tip.filter(|_| item.record) {
        None => None,
        Some(tip) => {
            let draft = Draft {
                body: Body::Prune(Prune { reason: item.why.sentence() }),
                att: Vec::new(),
                evidence: Vec::new(),
                time: now,
                actor: ledger::actor(repo.config()?),
            };
            Some(ledger.prepare_next(&tip, &draft)?)
        }
    };
    let with_event = || event.iter().fold(Transaction::new(), |t, e| e.join(t));
    if let Some((branch, at)) = &item.branch {
        match with_event().delete(branch, at).commit(repo, "agent: prune") {
            Ok(()) => return Ok(notes),
            Err(RefError::Moved { name, .. }) if name == *branch => {
                notes.push(format!("{} moved a moment ago and is left alone", short(branch)));
            }
            Err(e) => return Err(e.into()),
        }
    }
    if event.is_some() {
        with_event().commit(repo, "agent: prune")?;
    }
    Ok(notes)
}

fn short(branch: &str) -> String {
    crate::text::Untrusted::new(branch.trim_start_matches("refs/heads/")).to_string()
}

fn end_processes(seen: &Seen) -> Result<(), Failure> {
    let real = std::fs::canonicalize(&seen.path).unwrap_or_else(|_| seen.path.clone());
    match ancestry::end_leftovers(seen.folder.run.as_str(), &real, seen.folder.uid) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::fatal("processes of it do not end")),
        Err(e) => Err(Failure::fatal("processes of it cannot be ended").because(e)),
    }
}

/// Renames a folder into the trash, and back when it turns out to be another one.
fn into_trash(home: &Home, seen: &Seen) -> Result<(), Failure> {
    let fail = |e: std::io::Error| {
        Failure::fatal(format!("'{}' cannot be moved away", seen.path.display())).because(e)
    };
    let trash = home.root.join(TRASH);
    files::create_dirs(&trash, 0o700).map_err(fail)?;
    let trash_dir = files::open_dir_nofollow(&trash).map_err(fail)?;
    let run = &seen.folder.run;
    let mut to = trash.join(run.as_str());
    for n in 0.. {
        match files::rename_noreplace(&seen.path, &to) {
            Ok(()) => break,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => to = trash.join(format!("{run}.{n}")),
            // A file system without RENAME_NOREPLACE; the name is the run's own.
            Err(e) if e.raw_os_error() == Some(22) && files::lstat(&to).map_err(fail)?.is_none() => {
                files::rename(&seen.path, &to).map_err(fail)?;
                break;
            }
            Err(e) => return Err(fail(e)),
        }
    }
    let moved =
        Dir::from_fd(trash_dir).lstat_at(to.file_name().unwrap_or_default().as_bytes()).map_err(fail)?;
    if moved.is_none_or(|m| m.id != seen.id) {
        files::rename_noreplace(&to, &seen.path).map_err(fail)?;
        return Err(Failure::fatal("it became another folder since it was looked at"));
    }
    Ok(())
}

/// What earlier deletions left in the trash, unless somebody is at it.
pub(super) fn trash(home: &Home) -> Vec<OsString> {
    if Lock::is_held(&home.root.join(TRASH_LOCK)).unwrap_or(true) {
        return Vec::new();
    }
    entries(&home.root.join(TRASH))
}

fn entries(trash: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> =
        std::fs::read_dir(trash).into_iter().flatten().flatten().map(|e| e.file_name()).collect();
    names.sort();
    names
}

/// Deletes what is in the trash, in the background and at the lowest priority.
pub(super) fn empty_trash(home: &Home) -> Result<(), Failure> {
    let (trash, lock) = (home.root.join(TRASH), home.root.join(TRASH_LOCK));
    background::aside(|| empty(&trash, &lock))
        .map_err(|e| Failure::fatal("the trash could not be emptied in the background").because(e))
}

fn empty(trash: &Path, lock: &Path) {
    let started = std::time::Instant::now();
    let held = loop {
        match Lock::acquire(lock) {
            Ok(Some(held)) => break held,
            // Whoever is at it may have looked before our folder came.
            Ok(None) if started.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(50)),
            _ => return,
        }
    };
    if let Ok(parent) = files::open_dir_nofollow(trash) {
        for name in entries(trash) {
            // A mount point stops this one; it stays in the trash and is tried again.
            let _ = remove::tree(parent.as_fd(), &name);
        }
    }
    drop(held);
}

/// What became of the tree of a run that a person has decided on.
#[derive(Debug)]
pub struct Reclaimed {
    /// Whether it is gone.
    pub gone: bool,
    /// Why it stays, or what else a person should know.
    pub notes: Vec<String>,
}

/// What follows an apply: the run's tree goes at once. Returns what a person should know; nothing when the run
/// has no folder on this machine.
pub fn after_apply(repo: &Repo, tip: &Tip, now: i64) -> Result<Vec<String>, Failure> {
    let home = Ledger::new(repo).home()?;
    if super::open::find(&home, tip).is_err() {
        return Ok(Vec::new());
    }
    Ok(reclaim(Open::of(repo, &home, tip.clone())?, false, now)?.notes)
}

/// Takes away the tree and branch of a run that was applied or rejected, unless its policy keeps it. No event:
/// the run's state stays what the person made it. `force` as for prune: a change that no snapshot holds goes too.
pub fn reclaim(run: Open<'_>, force: bool, now: i64) -> Result<Reclaimed, Failure> {
    let keeps = |note: String| Ok(Reclaimed { gone: false, notes: vec![note] });
    let shown = run.layout.tree().display().to_string();
    match spawn::policy_of(&run) {
        Ok(policy) if !policy.later().retention.keep_tree => {}
        Ok(_) => return keeps(format!("the policy keeps the tree until prune: {shown}")),
        Err(e) => return keeps(format!("the tree is kept, its policy cannot be read: {e}")),
    }
    let (repo, ledger) = (run.repo, run.ledger);
    let mut judge = Judge::new(repo, ledger.home()?, Request { force }, now)?;
    judge.locked = true;
    let found = Found {
        entry: run.layout.dir().file_name().unwrap_or_default().to_owned(),
        path: run.layout.dir().to_owned(),
        folder: Some(run.folder.clone()),
    };
    let head = run.tip.understood()?.head.clone();
    let mut item = match judge.run(&run.tip, &head, &found, true)? {
        Verdict::Goes(item) => item,
        Verdict::Stays(kept) => return keeps(format!("the tree is kept: {}", kept.why)),
        Verdict::Nothing => return keeps(format!("the tree is kept: {shown}")),
    };
    item.record = false;
    let mut notes = setup::teardown(&run);
    notes.extend(carry_out(repo, &judge.home, &item, &judge.around, Some(&run.lock), now)?);
    drop(run);
    empty_trash(&judge.home)?;
    Ok(Reclaimed { gone: true, notes })
}
