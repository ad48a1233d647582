//! The list of runs: what the events say, whether somebody is at work, and what lies on this machine.

use super::repository::Home;
use super::{Broken, Ledger, Tip};
use crate::model::{Digest, Failure, Isolation, Oid, Role, RunId, RunName, RunState};
use crate::os::files;
use crate::os::lock::Lock;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Largest `host/run.json` in bytes.
const MAX_FOLDER: u64 = 1 << 20;
/// Shortest id prefix that is shown; [`Ledger::resolve`] takes no shorter one.
const SHORTEST: usize = 4;

/// `<root>/<name>/host/run.json`: the host's own word on a run's folder. Written once, by spawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// Format version, [`Folder::FORMAT`].
    pub v: u64,
    /// The run.
    pub run: RunId,
    /// Repository id.
    pub repo: String,
    /// The run's name.
    pub name: RunName,
    /// Seconds since the epoch.
    pub created: i64,
    /// The user the engine runs as, where it is not the person's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Device and inode of `tree/`, once it exists; of the person's work tree for a run without a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<(u64, u64)>,
    /// The commit the run was cut from.
    pub base: Oid,
    /// Where the run works.
    #[serde(default, skip_serializing_if = "Isolation::has_copy")]
    pub isolation: Isolation,
    /// Full name of the run's branch; empty for a run without a copy.
    #[serde(default)]
    pub branch: String,
    /// Where the task is, relative to the tree.
    pub task_path: String,
    /// Where `.agent-identity` is, relative to the tree.
    pub identity_path: String,
    /// Stripped paths.
    #[serde(default)]
    pub strip: Vec<String>,
    /// The run's own port, where the policy asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl Folder {
    /// The version this program writes.
    pub const FORMAT: u64 = 1;

    /// Path of the record below a run's folder.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("host/run.json")
    }

    /// Path of the supervisor's lock below a run's folder.
    pub fn lock_path(dir: &Path) -> PathBuf {
        dir.join("host/lock")
    }

    /// Reads the record of the run folder `dir`; `None` when there is none.
    pub fn read(dir: &Path) -> Result<Option<Self>, Failure> {
        let path = Self::path(dir);
        let cannot = || Failure::fatal(format!("cannot read '{}'", path.display()));
        let Some(bytes) = files::read_bounded(&path, MAX_FOLDER).map_err(|e| cannot().because(e))? else {
            return Ok(None);
        };
        #[derive(Deserialize)]
        struct Version {
            v: u64,
        }
        let version: Version = serde_json::from_slice(&bytes).map_err(|e| cannot().because(e))?;
        if version.v != Self::FORMAT {
            return Err(cannot().because(format!("it has format version {}", version.v)));
        }
        serde_json::from_slice(&bytes).map(Some).map_err(|e| cannot().because(e))
    }

    /// Writes the record of the run folder `dir`, replacing an older one whole.
    pub fn write(&self, dir: &Path) -> Result<(), Failure> {
        let path = Self::path(dir);
        let bytes = serde_json::to_vec(self).map_err(|e| Failure::fatal(e.to_string()))?;
        files::write_atomic(&path, &bytes, 0o600)
            .map_err(|e| Failure::fatal(format!("cannot write '{}'", path.display())).because(e))
    }
}

/// One run as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLine {
    /// Its id.
    pub id: RunId,
    /// Shortest prefix of the id that no other run of this repository shares.
    pub short: String,
    /// Its name.
    pub name: RunName,
    /// Its role.
    pub role: Role,
    /// The latest engine.
    pub engine: Option<String>,
    /// The tier of the latest engine.
    pub tier: Option<String>,
    /// Fold plus liveness.
    pub state: RunState,
    /// The commit it was cut from.
    pub base: Oid,
    /// Where it works.
    pub isolation: Isolation,
    /// Full name of its branch; empty for a run without a copy.
    pub branch: String,
    /// Paths that the latest result changed.
    pub files: Option<u64>,
    /// Change digest of the latest result.
    pub change: Option<Digest>,
    /// Time of the newest event, seconds since the epoch, as its writer's clock said.
    pub time: i64,
    /// Its folder on this machine.
    pub path: Option<PathBuf>,
    /// Whether the approval of its latest result was given without a person at a terminal.
    pub unattended: bool,
    /// Whether somebody is at work on it. True also where the lock cannot be asked.
    pub live: bool,
}

/// A folder that our repository made and that no ref knows any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The folder.
    pub path: PathBuf,
    /// Its record.
    pub folder: Folder,
    /// Whether somebody holds its lock.
    pub live: bool,
}

/// Everything that `list` knows.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Runs that we understand, newest id first.
    pub runs: Vec<RunLine>,
    /// Runs whose newest event is of a newer version or kind, newest id first.
    pub unknown: Vec<Tip>,
    /// Refs that hold no event we can read.
    pub broken: Vec<Broken>,
    /// Folders without a ledger entry. Empty while archived runs exist, which may own them.
    pub orphans: Vec<Orphan>,
}

/// Lists the runs of `ledger`. Without a `home` nothing is live and nothing has a path.
pub fn list(ledger: &Ledger<'_>, home: Option<&Home>) -> Result<Listing, Failure> {
    let tips = ledger.all_tips()?;
    let folders = home.map_or_else(|| Ok(BTreeMap::new()), folders)?;
    let prefixes = shortest(tips.tips.iter().map(|t| &t.run));
    let mut listing = Listing { broken: tips.broken, ..Listing::default() };
    let mut spoken_for: BTreeSet<RunId> = listing.broken.iter().filter_map(|b| b.run.clone()).collect();
    let mut names = BTreeSet::new();
    for tip in tips.tips.into_iter().rev() {
        spoken_for.insert(tip.run.clone());
        let Some(event) = tip.event.known() else {
            listing.unknown.push(tip);
            continue;
        };
        let head = &event.head;
        let path = folders.get(&tip.run).map(|(path, _)| path.clone());
        let newest = names.insert(head.name.clone());
        let live = match &path {
            Some(path) => is_live(path),
            None => newest && home.is_some_and(|h| is_in_the_making(&h.root.join(head.name.as_str()))),
        };
        listing.runs.push(RunLine {
            short: tip.run.as_str()[..prefixes[&tip.run]].to_owned(),
            name: head.name.clone(),
            role: head.role.clone(),
            engine: head.engine.clone(),
            tier: head.tier.clone(),
            state: head.phase.with_liveness(live),
            base: head.base.clone(),
            isolation: head.isolation,
            branch: head.branch.clone(),
            files: head.result.as_ref().map(|r| r.files),
            change: head.result.as_ref().map(|r| r.change),
            time: event.time,
            unattended: head.unattended,
            path,
            live,
            id: tip.run,
        });
    }
    if !tips.archived {
        listing.orphans = folders
            .into_iter()
            .filter(|(run, _)| !spoken_for.contains(run))
            .map(|(_, (path, folder))| Orphan { live: is_live(&path), path, folder })
            .collect();
    }
    Ok(listing)
}

/// Whether somebody is at work in a run's folder. Where the lock cannot be asked the answer is yes: the
/// question is mostly whether something may be removed.
pub fn is_live(dir: &Path) -> bool {
    Lock::is_held(&Folder::lock_path(dir)).unwrap_or(true)
}

/// Whether spawn is still at work on a folder, or a newer git-agent made it: locked, and no record that we
/// can read. Such a folder belongs to the newest run of its name.
fn is_in_the_making(dir: &Path) -> bool {
    !matches!(Folder::read(dir), Ok(Some(_))) && Lock::is_held(&Folder::lock_path(dir)).unwrap_or(false)
}

/// The run folders that are provably ours: a readable record with our repository id, in a folder of the
/// run's own name. Half-made and foreign folders are passed over.
fn folders(home: &Home) -> Result<BTreeMap<RunId, (PathBuf, Folder)>, Failure> {
    let cannot = |e: io::Error| Failure::fatal(format!("cannot read '{}'", home.root.display())).because(e);
    let mut found = BTreeMap::new();
    let listing = match std::fs::read_dir(&home.root) {
        Ok(listing) => listing,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(cannot(e)),
    };
    for entry in listing {
        let entry = entry.map_err(cannot)?;
        let Some(name) = entry.file_name().to_str().and_then(|n| n.parse::<RunName>().ok()) else { continue };
        if !entry.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        let path = entry.path();
        if let Ok(Some(folder)) = Folder::read(&path)
            && folder.repo == home.id
            && folder.name == name
        {
            found.insert(folder.run.clone(), (path, folder));
        }
    }
    Ok(found)
}

/// Length of the shortest prefix of each id that no other id shares; at least four characters.
pub fn shortest<'a>(ids: impl IntoIterator<Item = &'a RunId>) -> BTreeMap<RunId, usize> {
    let sorted: BTreeSet<&RunId> = ids.into_iter().collect();
    let sorted: Vec<&RunId> = sorted.into_iter().collect();
    let shared =
        |a: &RunId, b: &RunId| a.as_str().bytes().zip(b.as_str().bytes()).take_while(|(a, b)| a == b).count();
    (0..sorted.len())
        .map(|i| {
            let before = i.checked_sub(1).map_or(0, |j| shared(sorted[i], sorted[j]));
            let after = sorted.get(i + 1).map_or(0, |next| shared(sorted[i], next));
            (sorted[i].clone(), (before.max(after) + 1).clamp(SHORTEST, 26))
        })
        .collect()
}
