//! Which repository this is, and where its runs live on this machine. A copied repository gets an id of its
//! own, so that it never touches the other's runs. Owns `$GIT_COMMON_DIR/agent/id` and `<root>/.repository`.

use super::Ledger;
use crate::model::Failure;
use crate::os::files::{self, FileId};
use crate::os::lock::Lock;
use crate::text::hex;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long one process waits for another that is just settling the same question.
const PATIENCE: Duration = Duration::from_secs(30);
/// The record in the root.
const RECORD: &str = ".repository";
/// Where a root that already belongs to another repository keeps ours. No run can be called so.
const OTHERS: &str = ".repositories";

/// A repository as this machine knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// 32 lower-case hexadecimal digits.
    pub id: String,
    /// The folder that holds one folder a run. Exists, mode 0700, outside the repository.
    pub root: PathBuf,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
}

/// `<root>/.repository`: whose root it is. Paths as bytes in hexadecimal would be exact but unreadable;
/// a path that is not UTF-8 is kept as its quoted form and never equals another's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    v: u64,
    id: String,
    path: String,
    dev: u64,
    ino: u64,
}

/// What the record says about the repository we stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ours,
    Moved,
    Copy,
}

impl Ledger<'_> {
    /// Finds out which repository this is, gives it an id if it has none or only a copied one, and makes the
    /// root of its runs.
    pub fn home(&self) -> Result<Home, Failure> {
        Here::look(self)?.home()
    }

    /// The same for who only reads: `None` where the repository has no identity yet and cannot be written.
    /// It has no runs of this machine then, but may hold others' events.
    pub fn home_to_read(&self) -> Result<Option<Home>, Failure> {
        let here = Here::look(self)?;
        match here.settled()? {
            None if !files::is_writable(&here.common) => Ok(None),
            None => here.home().map(Some),
            settled => Ok(settled),
        }
    }

    /// The same for who must not write: `None` where the repository has no identity yet.
    pub fn home_known(&self) -> Result<Option<Home>, Failure> {
        Here::look(self)?.settled()
    }
}

/// The repository and its surroundings.
struct Here {
    common: PathBuf,
    at: FileId,
    folder: String,
    forbidden: Vec<PathBuf>,
    place: Place,
}

enum Place {
    /// `agent.root`.
    Given(PathBuf),
    /// The folder that holds the roots of all repositories.
    State(PathBuf),
}

impl Here {
    fn look(ledger: &Ledger<'_>) -> Result<Self, Failure> {
        let repo = ledger.repo();
        let common = real(repo.common_dir())?;
        let at = files::lstat(&common)
            .and_then(|m| m.ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(|e| cannot("look at", &common, e))?
            .id;
        let main = real(repo.main_folder())?;
        let mut forbidden = vec![common.clone(), main.clone(), real(repo.git_dir())?];
        if let Some(tree) = repo.work_tree() {
            forbidden.push(real(tree)?);
        }
        let place = match repo.config()?.get("agent.root") {
            Some(root) => Place::Given(expand(root)?),
            None => Place::State(state_folder()?),
        };
        Ok(Self { folder: folder_name(&main), common, at, forbidden, place })
    }

    fn home(&self) -> Result<Home, Failure> {
        if let Some(home) = self.settled()? {
            return Ok(home);
        }
        // Everything that is not plain reading happens under a lock, and reads again first: sixteen
        // processes that start together must agree on one id.
        let _lock = self.lock()?;
        self.settle()
    }

    fn id_file(&self) -> PathBuf {
        self.common.join("agent/id")
    }

    fn id(&self) -> Result<Option<String>, Failure> {
        let path = self.id_file();
        let Some(bytes) = files::read_bounded(&path, 64).map_err(|e| cannot("read", &path, e))? else {
            return Ok(None);
        };
        let id = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        if id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Some(id))
        } else {
            Err(Failure::fatal(format!("'{}' holds no repository id", path.display())).hint(
                "it must be 32 hexadecimal digits; restore it from a backup, or delete it to start anew",
            ))
        }
    }

    fn lock(&self) -> Result<Lock, Failure> {
        let folder = self.common.join("agent");
        files::create_dirs(&folder, 0o755).map_err(|e| cannot("create", &folder, e))?;
        let path = folder.join("id.lock");
        let start = Instant::now();
        loop {
            if let Some(lock) = Lock::acquire(&path).map_err(|e| cannot("lock", &path, e))? {
                return Ok(lock);
            }
            if start.elapsed() > PATIENCE {
                return Err(Failure::fatal(format!("'{}' is locked by another process", path.display())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The answer when nothing has to be written.
    fn settled(&self) -> Result<Option<Home>, Failure> {
        let Some(id) = self.id()? else { return Ok(None) };
        let root = self.root(&id)?;
        match self.record(&root)? {
            Some(r) if r.id == id && self.is_same(&r) && self.judge(&r) == Verdict::Ours => {
                self.check_root(&root)?;
                Ok(Some(Home { id, root, notes: Vec::new() }))
            }
            _ => Ok(None),
        }
    }

    fn settle(&self) -> Result<Home, Failure> {
        if let Some(home) = self.settled()? {
            return Ok(home);
        }
        let mut notes = Vec::new();
        let mut id = match self.id()? {
            Some(id) => id,
            None => self.new_id()?,
        };
        let mut root = self.root(&id)?;
        if let Some(record) = self.record(&root)?.filter(|r| r.id == id) {
            match self.judge(&record) {
                Verdict::Ours => {}
                Verdict::Moved => {
                    notes.push(format!("this repository was moved here from '{}'", record.path))
                }
                Verdict::Copy => {
                    notes.push(if record.path == self.path_text() {
                        format!(
                            "the runs in '{}' belong to another repository that was at '{}'; this one has got \
                             an id of its own",
                            root.display(),
                            record.path
                        )
                    } else {
                        format!(
                            "this repository is a copy of '{}' and has got an id of its own; the runs in '{}' \
                             stay with the other",
                            record.path,
                            root.display()
                        )
                    });
                    id = self.new_id()?;
                    root = self.root(&id)?;
                }
            }
        }
        self.make_root(&root)?;
        let record =
            Record { v: 1, id: id.clone(), path: self.path_text(), dev: self.at.dev, ino: self.at.ino };
        if !self.write_record(&root, &record)? {
            return Err(Failure::fatal(format!(
                "another repository has just taken the folder of runs '{}'",
                root.display()
            ))
            .hint("try again"));
        }
        Ok(Home { id, root, notes })
    }

    /// Whether it was written: a record of another repository that appeared meanwhile stays.
    fn write_record(&self, root: &Path, record: &Record) -> Result<bool, Failure> {
        let path = root.join(RECORD);
        let bytes = serde_json::to_vec(record).map_err(|e| Failure::fatal(e.to_string()))?;
        let failed = |e| cannot("write", &path, e);
        match self.record(root)? {
            Some(r) if r.id == record.id => {
                return files::write_atomic(&path, &bytes, 0o600).map(|()| true).map_err(failed);
            }
            Some(_) => return Ok(false),
            None => {}
        }
        let fresh = root.join(format!("{RECORD}.{}", record.id));
        files::write_atomic(&fresh, &bytes, 0o600).map_err(failed)?;
        match files::rename_noreplace(&fresh, &path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                files::remove_file(&fresh).map_err(failed)?;
                Ok(false)
            }
            // File systems without RENAME_NOREPLACE.
            Err(_) => files::rename(&fresh, &path).map(|()| true).map_err(failed),
        }
    }

    fn new_id(&self) -> Result<String, Failure> {
        let mut bytes = [0; 16];
        let got = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
        if got != Ok(bytes.len()) {
            return Err(Failure::fatal("the system gives no random numbers"));
        }
        let id = hex(&bytes);
        let path = self.id_file();
        files::write_atomic(&path, format!("{id}\n").as_bytes(), 0o644)
            .map_err(|e| cannot("write", &path, e))?;
        Ok(id)
    }

    /// Where the root of `id` is or would be.
    fn root(&self, id: &str) -> Result<PathBuf, Failure> {
        match &self.place {
            Place::Given(root) => match self.record(root)? {
                Some(r) if r.id != id => self.root_among(&root.join(OTHERS), id),
                _ => Ok(root.clone()),
            },
            Place::State(state) => self.root_among(state, id),
        }
    }

    /// The root of `id` in a folder of roots: by its record, whatever the repository's folder was called
    /// then. Renaming a repository must not lose its runs, and a copy under another name must find the
    /// original's record.
    fn root_among(&self, state: &Path, id: &str) -> Result<PathBuf, Failure> {
        let end = format!("-{}", &id[..12]);
        let usual = state.join(format!("{}{end}", self.folder));
        if self.record(&usual)?.is_some_and(|r| r.id == id) {
            return Ok(usual);
        }
        let Ok(listing) = std::fs::read_dir(state) else { return Ok(usual) };
        let mut named: Vec<PathBuf> = listing
            .flatten()
            .filter(|e| e.file_name().as_bytes().ends_with(end.as_bytes()))
            .map(|e| e.path())
            .collect();
        named.sort();
        for root in named {
            if self.record(&root)?.is_some_and(|r| r.id == id) {
                return Ok(root);
            }
        }
        Ok(usual)
    }

    fn record(&self, root: &Path) -> Result<Option<Record>, Failure> {
        let path = root.join(RECORD);
        let Some(bytes) = files::read_bounded(&path, 64 * 1024).map_err(|e| cannot("read", &path, e))? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| {
            Failure::fatal(format!("'{}' says not whose runs these are", path.display()))
                .because(e)
                .hint("restore it from a backup, or move that folder away")
        })
    }

    /// Our path as the record has it.
    fn path_text(&self) -> String {
        crate::text::quote_path(self.common.as_os_str().as_bytes()).into_owned()
    }

    fn is_same(&self, r: &Record) -> bool {
        (r.dev, r.ino) == (self.at.dev, self.at.ino)
    }

    fn judge(&self, r: &Record) -> Verdict {
        let same_path = r.path == self.path_text();
        if self.is_same(r) {
            // Seen through a bind mount it has two paths at once; then nothing has moved.
            let still_there =
                || files::lstat(Path::new(&r.path)).is_ok_and(|m| m.is_some_and(|m| m.id == self.at));
            return if same_path || still_there() { Verdict::Ours } else { Verdict::Moved };
        }
        if same_path {
            // Device numbers change from boot to boot (NFS, btrfs, containers); inode numbers do not.
            // Another inode at our own path: the recorded one may have been moved aside, so ours is the copy.
            return if r.ino == self.at.ino { Verdict::Ours } else { Verdict::Copy };
        }
        if is_gone(r) { Verdict::Moved } else { Verdict::Copy }
    }

    /// Refuses a root inside the repository; `Ok` also when it does not exist yet.
    fn check_root(&self, root: &Path) -> Result<(), Failure> {
        let existing = root.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
        let mut whole = real(existing)?;
        if let Ok(rest) = root.strip_prefix(existing) {
            whole.push(rest);
        }
        match self.forbidden.iter().find(|f| whole.starts_with(f)) {
            None => Ok(()),
            Some(inside) => Err(Failure::fatal(format!(
                "the folder of runs '{}' would be inside the repository at '{}'",
                root.display(),
                inside.display()
            ))
            .hint("git config --global --unset agent.root, or name a folder elsewhere")),
        }
    }

    fn make_root(&self, root: &Path) -> Result<(), Failure> {
        self.check_root(root)?;
        let bad = |why: &str| {
            Failure::fatal(format!("'{}' cannot hold the runs: {why}", root.display()))
                .hint("name an empty folder: git config agent.root DIR")
        };
        files::create_dirs(root, 0o700).map_err(|e| cannot("create", root, e))?;
        let meta =
            files::lstat(root).map_err(|e| cannot("look at", root, e))?.ok_or_else(|| bad("it vanished"))?;
        if !meta.is_dir() {
            return Err(bad("it is not a folder of its own"));
        }
        if meta.uid != crate::os::process::current_user().uid {
            return Err(bad("it belongs to somebody else"));
        }
        if meta.mode & 0o777 != 0o700 {
            let empty = std::fs::read_dir(root).map_err(|e| cannot("read", root, e))?.next().is_none();
            if !empty && self.record(root)?.is_none() {
                return Err(bad("others may look into it and it holds other things"));
            }
            files::set_mode(root, 0o700).map_err(|e| cannot("close", root, e))?;
        }
        Ok(())
    }
}

/// Whether the recorded repository is certainly no more: nothing at its path, on the file system where it
/// was. An unmounted disk leaves nothing at the path either, but another file system below it.
fn is_gone(r: &Record) -> bool {
    let path = Path::new(&r.path);
    if !path.is_absolute() {
        return false;
    }
    match files::lstat(path) {
        Ok(None) => {}
        // Something else took its place: the original may be anywhere.
        Ok(Some(_)) | Err(_) => return false,
    }
    for folder in path.ancestors().skip(1) {
        match std::fs::metadata(folder) {
            Ok(m) => return std::os::unix::fs::MetadataExt::dev(&m) == r.dev,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return false,
        }
    }
    false
}

/// The folder that holds the roots of all repositories, unless `agent.root` says otherwise:
/// `$XDG_STATE_HOME/git-agent`, else `~/.local/state/git-agent`. A relative value does not count, as the
/// XDG base directory specification wants.
pub fn state_folder() -> Result<PathBuf, Failure> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || crate::os::process::current_user().home.map(|h| h.join(".local/state"));
    state.or_else(home).map(|s| s.join("git-agent")).ok_or_else(|| {
        Failure::fatal("there is no home folder to keep runs in")
            .hint("set HOME, or name a folder: git config --global agent.root DIR")
    })
}

/// `agent.root` as written: absolute, or below the home folder.
fn expand(root: &str) -> Result<PathBuf, Failure> {
    let path = match root.strip_prefix("~/") {
        Some(rest) => crate::os::process::current_user().home.map(|h| h.join(rest)),
        None => Some(PathBuf::from(root)),
    };
    let plain = |p: &PathBuf| {
        p.is_absolute() && !p.components().any(|c| matches!(c, std::path::Component::ParentDir))
    };
    path.filter(plain).ok_or_else(|| {
        Failure::fatal(format!("agent.root is not an absolute path: '{}'", crate::text::Untrusted::new(root)))
            .hint("git config agent.root /where/runs/may/live")
    })
}

/// The repository's folder as part of a folder name: narrow, so that it needs no quoting anywhere.
fn folder_name(main: &Path) -> String {
    let name = main.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.strip_suffix(".git").unwrap_or(&name);
    let kept = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String = name.chars().take(60).map(kept).collect();
    match name.trim_start_matches(['.', '-']) {
        "" => "repository".into(),
        name => name.into(),
    }
}

fn real(path: &Path) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(path).map_err(|e| cannot("find", path, e))
}

fn cannot(what: &str, path: &Path, e: io::Error) -> Failure {
    Failure::fatal(format!("cannot {what} '{}'", path.display())).because(e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Repo;
    use crate::ledger::tests::{Fixture, git};

    /// As without `agent.root`, but not in the person's own state folder.
    fn home(path: &Path, state: &Path) -> Home {
        let repo = Repo::discover(path).unwrap();
        let mut here = Here::look(&Ledger::new(&repo)).unwrap();
        here.place = Place::State(state.to_owned());
        here.home().unwrap()
    }

    #[test]
    fn a_renamed_repository_finds_its_runs_and_a_copy_finds_the_record() {
        let f = Fixture::new(&[]);
        let state = f.dir.path().join("state/git-agent");
        let first = home(&f.path(), &state);
        assert_eq!(first.root, state.join(format!("project-{}", &first.id[..12])));

        let renamed = f.dir.path().join("other name");
        files::rename(&f.path(), &renamed).unwrap();
        assert_eq!(home(&renamed, &state).root, first.root);

        // `git clone` brings no id; a copied `agent/id` does.
        git(f.dir.path(), &["clone", "-q", "other name", "copy"]);
        let copy = f.dir.path().join("copy");
        files::create_dir(&copy.join(".git/agent"), 0o755).unwrap();
        files::copy_keep_mtime(&renamed.join(".git/agent/id"), &copy.join(".git/agent/id")).unwrap();
        let second = home(&copy, &state);
        assert_ne!(second.id, first.id);
        assert_eq!(second.root, state.join(format!("copy-{}", &second.id[..12])));
        assert_eq!(home(&renamed, &state), Home { notes: Vec::new(), ..first });

        // Another machine or another state folder: nothing to compare with, the id stays.
        assert_eq!(home(&copy, &f.dir.path().join("state2")).id, second.id);
    }

    #[test]
    fn folder_names_need_no_quoting() {
        for (name, folder) in [
            ("/x/my proj", "my-proj"),
            ("/x/a.git", "a"),
            ("/x/.git", "repository"),
            ("/", "repository"),
            ("/x/-é", "repository"),
            ("/x/é.b", "b"),
        ] {
            let found = folder_name(Path::new(name));
            assert_eq!(found, folder, "{name}");
        }
    }
}
