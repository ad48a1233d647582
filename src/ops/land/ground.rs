//! The ground on which a change lands: the state of the repository and of every path that the change
//! touches. Reads only.

use super::Operation;
use super::content::Scratch;
use super::record::Staged;
use super::refusal::Refused;
use super::steps::{self, Step};
use crate::git::{Repo, Version};
use crate::ledger::change::{Change, GITLINK};
use crate::model::{Failure, Oid};
use crate::ops::snapshot::refused_by_git;
use crate::os::files::{self, Dir, Meta};
use crate::os::place;
use crate::text::quote_path;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What git leaves in its directory while something is half done, and the command to leave it.
const HALF_DONE: &[(&str, &str, &str)] = &[
    ("rebase-merge", "a rebase", "git rebase --abort"),
    ("rebase-apply", "a rebase or git am", "git rebase --abort"),
    ("MERGE_HEAD", "a merge", "git merge --abort"),
    ("CHERRY_PICK_HEAD", "a cherry-pick", "git cherry-pick --abort"),
    ("REVERT_HEAD", "a revert", "git revert --abort"),
    ("sequencer", "a cherry-pick or revert", "git cherry-pick --abort"),
    ("BISECT_LOG", "a bisect", "git bisect reset"),
];

/// Refuses a repository without a work tree, in the middle of something, or locked by another git.
pub(in crate::ops) fn quiet(repo: &Repo) -> Result<PathBuf, Failure> {
    let Some(top) = repo.work_tree() else {
        return Err(Failure::fatal("there is no working tree here to land in")
            .hint("run it in a working tree of this repository"));
    };
    let look = |name: &str| {
        files::lstat(&repo.git_dir().join(name)).map_err(|e| {
            Failure::fatal(format!("'{}' cannot be looked at", repo.git_dir().display())).because(e)
        })
    };
    for (name, what, way_out) in HALF_DONE {
        // With reftable some of these are refs and not files.
        if look(name)?.is_some()
            || (name.ends_with("_PICK_HEAD") || *name == "REVERT_HEAD") && in_refs(repo, name)?
        {
            return Err(Failure::fatal(format!("{what} is in progress here"))
                .hint(format!("finish it, or leave it: {way_out}")));
        }
    }
    if look("index.lock")?.is_some() {
        return Err(Failure::fatal("another git process holds the index (index.lock)").hint(format!(
            "wait for it; if none is running: rm {}",
            repo.git_dir().join("index.lock").display()
        )));
    }
    let unmerged = repo.call("ls-files").args(["-u", "-z"]).current_dir(top).output()?;
    if !unmerged.is_empty() {
        return Err(Failure::fatal("the index has unmerged paths").hint("see them: git status"));
    }
    Ok(top.to_owned())
}

/// What the index has of these paths, as `ls-files -s` has it, or nothing.
pub(super) fn staged(repo: &Repo, top: &Path, paths: &[&[u8]]) -> Result<Vec<Staged>, Failure> {
    let mut found: BTreeMap<&[u8], String> = paths.iter().map(|p| (*p, String::new())).collect();
    let listed = repo.call("ls-files").args(["-s", "-z"]).current_dir(top).output()?;
    for line in listed.split(|b| *b == 0) {
        let Some(tab) = line.iter().position(|b| *b == b'\t') else { continue };
        if let Some(entry) = found.get_mut(&line[tab + 1..]) {
            entry.push_str(&String::from_utf8_lossy(&line[..tab]));
        }
    }
    Ok(found.into_iter().map(|(path, entry)| Staged { path: path.to_vec(), entry }).collect())
}

fn in_refs(repo: &Repo, name: &str) -> Result<bool, Failure> {
    Ok(repo.ref_format()? == crate::git::RefFormat::Reftable && repo.commit_of(name)?.is_some())
}

/// A touched path as it stands on disk.
#[derive(Debug, Clone)]
pub(super) struct Touched {
    pub change: Change,
    /// What is there; `None` when nothing is, or only a folder.
    pub was: Option<Meta>,
    /// Already as the result has it.
    pub already: bool,
    /// Set where the change is merged into what the person edited.
    pub merged: Option<Merged>,
}

/// A path that the person edited and into which the change is merged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Merged {
    /// What is there, as git would store it: mode and blob.
    pub real: Option<(u32, Oid)>,
    /// What comes.
    pub result: Option<(u32, Oid)>,
}

impl Touched {
    pub fn operation(&self) -> Operation {
        match (self.change.is_added(), self.change.is_deleted()) {
            (true, _) => Operation::Create,
            (_, true) => Operation::Delete,
            _ => Operation::Change,
        }
    }
}

/// The work tree, open, and what was found about its folders.
#[derive(Debug)]
pub(super) struct Ground {
    tree: Dir,
    mount: (u64, u64),
    top: PathBuf,
}

/// A folder on the way to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    Folder,
    /// Absent, or a file that goes away before.
    ToMake,
    No(String),
}

impl Ground {
    pub fn open(top: &Path) -> Result<Self, Failure> {
        let open = || -> std::io::Result<Self> {
            let tree = Dir::open(top)?;
            let mount = place::mount_at(&tree, b"")?;
            Ok(Self { tree, mount, top: top.to_owned() })
        };
        open().map_err(|e| Failure::fatal(format!("'{}' cannot be opened", top.display())).because(e))
    }

    pub fn tree(&self) -> &Dir {
        &self.tree
    }

    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Compares the real bytes of every touched path, as git would hash them, with base and result. The look
    /// at each file comes before the comparison, so that a later edit is seen by its identity.
    pub fn classify(
        &self,
        scratch: &Scratch,
        changes: Vec<Change>,
        merge: bool,
        refused: &mut Vec<Refused>,
    ) -> Result<Vec<Touched>, Failure> {
        let mut looked = Vec::new();
        for change in changes {
            if let Some(why) = never(&change) {
                refused.push(Refused::new(&change.path, why));
                continue;
            }
            match self.tree.lstat_at(&change.path) {
                Ok(found) => looked.push((change, found)),
                // A link on the way: `way` names it.
                Err(e) if e.raw_os_error() == Some(libc::ELOOP) => looked.push((change, None)),
                Err(e) => refused.push(Refused::new(&change.path, format!("cannot be looked at: {e}"))),
            }
        }
        let unlike_base = scratch.differing(
            "base",
            looked.iter().filter(|(c, _)| !c.is_added()).map(|(c, _)| (c.old_mode, &c.old, &c.path)),
        )?;
        let unlike_result = scratch.differing(
            "result",
            looked.iter().filter(|(c, _)| !c.is_deleted()).map(|(c, _)| (c.new_mode, &c.new, &c.path)),
        )?;
        let below: BTreeSet<Vec<u8>> =
            looked.iter().filter(|(c, _)| c.is_deleted()).flat_map(|(c, _)| folders(&c.path)).collect();
        let mut touched = Vec::new();
        for (change, found) in looked {
            // In the place of a folder that the run emptied, the folder itself is "nothing".
            let folder = found.is_some_and(|m| m.is_dir());
            let absent = found.is_none() || (folder && (change.is_deleted() || below.contains(&change.path)));
            let as_result = if change.is_deleted() { absent } else { !unlike_result.contains(&change.path) };
            let as_base = if change.is_added() { absent } else { !unlike_base.contains(&change.path) };
            if !as_result && !as_base {
                // Only a file that was one and is to be one can be merged.
                let file = |mode: u32| mode & 0o170_000 == 0o100_000;
                let mergeable = file(change.old_mode) && file(change.new_mode);
                if merge && mergeable && found.is_some_and(|m| m.is_file()) {
                    touched.push(Touched {
                        change,
                        was: found,
                        already: false,
                        merged: Some(Merged::default()),
                    });
                } else {
                    refused.push(Refused::new(&change.path, edited(&change, found.as_ref())));
                }
                continue;
            }
            // With core.fileMode=false git sees no difference between the two; the bit lands all the same.
            let executable = |mode: u32| mode & 0o100 != 0;
            let bit_lacks = as_base
                && change.old == change.new
                && found.is_some_and(|m| m.is_file() && executable(m.mode) != executable(change.new_mode));
            let was = found.filter(|m| !m.is_dir());
            touched.push(Touched { change, was, already: as_result && !bit_lacks, merged: None });
        }
        Ok(touched)
    }

    /// Checks that everything can be put in place and says in which steps.
    pub fn steps(
        &self,
        repo: &Repo,
        scratch: &Scratch,
        touched: &[Touched],
        refused: &mut Vec<Refused>,
    ) -> Result<Vec<Step>, Failure> {
        let landing: Vec<&Touched> = touched.iter().filter(|t| !t.already).collect();
        let vacated: BTreeSet<&[u8]> = landing
            .iter()
            .filter(|t| t.operation() == Operation::Delete)
            .map(|t| t.change.path.as_slice())
            .collect();
        self.sparse(repo, scratch, &landing, refused)?;
        let mut ways: BTreeMap<Vec<u8>, Way> = BTreeMap::new();
        let (mut removals, mut takes, mut changes, mut creations) = (vec![], vec![], vec![], vec![]);
        for t in &landing {
            let path = &t.change.path;
            if let Some(why) = self.way(path, &vacated, &mut ways)? {
                refused.push(Refused::new(path, why));
                continue;
            }
            match (t.operation(), t.was) {
                (Operation::Delete, Some(was)) => removals.push(Step::Remove { path: path.clone(), was }),
                (Operation::Change, Some(was)) => changes.push(Step::Change { path: path.clone(), was }),
                (Operation::Create, None) => {
                    if let Some(why) = self.in_the_way(path, &vacated, &mut takes)? {
                        refused.push(Refused::new(path, why));
                    }
                    creations.push(Step::Create { path: path.clone() });
                }
                _ => refused.push(Refused::new(path, "changed while it was looked at".into())),
            }
        }
        if repo.config()?.flag("core.ignorecase", false) {
            self.case(&landing, &vacated, refused)?;
        }
        // Deepest first, so that each is empty when its turn comes.
        takes.sort_by(|a: &Step, b: &Step| step_path(b).cmp(step_path(a)));
        takes.dedup();
        let taken: BTreeSet<Vec<u8>> = takes.iter().map(|t| step_path(t).to_vec()).collect();
        let created: BTreeSet<&[u8]> = landing
            .iter()
            .filter(|t| t.operation() == Operation::Create)
            .map(|t| t.change.path.as_slice())
            .collect();
        takes.extend(steps::emptied(&self.tree, &vacated, &taken, &created)?);
        let made = ways.into_iter().filter(|(_, way)| *way == Way::ToMake);
        let mut steps = removals;
        steps.extend(takes);
        steps.extend(made.map(|(path, _)| Step::MakeFolder { path }));
        steps.extend(changes);
        steps.extend(creations);
        Ok(steps)
    }

    /// Why a path cannot be reached, if so. Every folder on the way is looked at once.
    fn way(
        &self,
        path: &[u8],
        vacated: &BTreeSet<&[u8]>,
        ways: &mut BTreeMap<Vec<u8>, Way>,
    ) -> Result<Option<String>, Failure> {
        let mut last = self.folder(b"", vacated, ways, &Way::Folder)?;
        for folder in folders(path).into_iter().rev() {
            last = self.folder(&folder, vacated, ways, &last)?;
            if let Way::No(why) = &last {
                return Ok(Some(why.clone()));
            }
        }
        Ok(match last {
            Way::No(why) => Some(why),
            _ => None,
        })
    }

    fn folder(
        &self,
        path: &[u8],
        vacated: &BTreeSet<&[u8]>,
        ways: &mut BTreeMap<Vec<u8>, Way>,
        above: &Way,
    ) -> Result<Way, Failure> {
        if let Some(known) = ways.get(path) {
            return Ok(known.clone());
        }
        let shown = || if path.is_empty() { "the top level".into() } else { quote_path(path) };
        let fail = |e: std::io::Error| Failure::fatal(format!("{} cannot be looked at", shown())).because(e);
        let found = if path.is_empty() { None } else { Some(self.tree.lstat_at(path)) };
        let way = match found {
            _ if *above == Way::ToMake => Way::ToMake,
            Some(Err(e)) => return Err(fail(e)),
            Some(Ok(None)) => Way::ToMake,
            Some(Ok(Some(m))) if !m.is_dir() && vacated.contains(path) => Way::ToMake,
            Some(Ok(Some(m))) if m.is_symlink() => Way::No(format!("{} is a symbolic link here", shown())),
            Some(Ok(Some(m))) if !m.is_dir() => Way::No(format!("{} is a file here, not a folder", shown())),
            _ => {
                let git = [path, b"/.git"].concat();
                if !path.is_empty() && self.tree.lstat_at(&git).map_err(fail)?.is_some() {
                    Way::No(format!("{} is a repository of its own", shown()))
                } else if place::mount_at(&self.tree, path).map_err(fail)? != self.mount {
                    Way::No(format!("{} is on another file system than the working tree", shown()))
                } else if !place::is_writable(&self.tree, path).map_err(fail)? {
                    Way::No(format!("{} is not writable", shown()))
                } else {
                    Way::Folder
                }
            }
        };
        ways.insert(path.to_vec(), way.clone());
        Ok(way)
    }

    /// Nothing may stand where something is created, but a folder that the change itself empties: it is
    /// taken away.
    fn in_the_way(
        &self,
        path: &[u8],
        vacated: &BTreeSet<&[u8]>,
        takes: &mut Vec<Step>,
    ) -> Result<Option<String>, Failure> {
        let fail = |e: std::io::Error| {
            Failure::fatal(format!("{} cannot be looked at", quote_path(path))).because(e)
        };
        let is_vacated_above = folders(path).iter().any(|f| vacated.contains(f.as_slice()));
        let Some(found) = (if is_vacated_above { None } else { self.tree.lstat_at(path).map_err(fail)? })
        else {
            return Ok(None);
        };
        let mut pending = vec![(path.to_vec(), found)];
        while let Some((folder, meta)) = pending.pop() {
            for name in place::names(&self.tree, &folder).map_err(fail)? {
                let below = [&folder[..], b"/", &name[..]].concat();
                if vacated.contains(below.as_slice()) {
                    continue;
                }
                match self.tree.lstat_at(&below).map_err(fail)? {
                    Some(m) if m.is_dir() => pending.push((below, m)),
                    Some(_) => {
                        return Ok(Some(format!("{} is in the way: a file of yours", quote_path(&below))));
                    }
                    None => {}
                }
            }
            takes.push(Step::TakeFolder { path: folder, was: meta.id, must: true });
        }
        Ok(None)
    }

    /// On a file system that ignores case, a new name must differ from every other in more than case.
    fn case(
        &self,
        landing: &[&Touched],
        vacated: &BTreeSet<&[u8]>,
        refused: &mut Vec<Refused>,
    ) -> Result<(), Failure> {
        let lower = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_lowercase();
        let mut seen: BTreeMap<String, &[u8]> = BTreeMap::new();
        for t in landing.iter().filter(|t| t.operation() == Operation::Create) {
            let path = t.change.path.as_slice();
            let (parent, name) = match path.iter().rposition(|b| *b == b'/') {
                Some(at) => (&path[..at], &path[at + 1..]),
                None => (&b""[..], path),
            };
            let names = place::names(&self.tree, parent).unwrap_or_default();
            let twin = names
                .into_iter()
                .find(|n| n != name && lower(n) == lower(name))
                .map(|n| if parent.is_empty() { n } else { [parent, b"/", &n[..]].concat() });
            if let Some(twin) = twin.filter(|t| !vacated.contains(t.as_slice())) {
                refused.push(Refused::new(path, format!("differs from {} only in case", quote_path(&twin))));
            }
            if let Some(other) = seen.insert(lower(path), path) {
                refused.push(Refused::new(path, format!("differs from {} only in case", quote_path(other))));
            }
        }
        Ok(())
    }

    /// Paths outside the sparse checkout are refused: git shows nothing there.
    fn sparse(
        &self,
        repo: &Repo,
        scratch: &Scratch,
        landing: &[&Touched],
        refused: &mut Vec<Refused>,
    ) -> Result<(), Failure> {
        if !repo.config()?.flag("core.sparsecheckout", false) {
            return Ok(());
        }
        let tags = repo.call("ls-files").args(["-t", "-z"]).current_dir(&self.top).output()?;
        let skipped: BTreeSet<&[u8]> =
            tags.split(|b| *b == 0).filter_map(|line| line.strip_prefix(b"S ")).collect();
        let inside = scratch.inside_sparse(
            repo.version()? >= Version(2, 41),
            landing.iter().filter(|t| t.was.is_none()).map(|t| t.change.path.as_slice()),
        )?;
        for t in landing {
            let path = t.change.path.as_slice();
            let outside = match &inside {
                _ if t.was.is_some() => false,
                Some(inside) => !inside.contains(path) || skipped.contains(path),
                // Before git 2.41 there is nobody to ask about a path that is not in the index: a folder that
                // is not there, and below which the index skips something, is outside.
                None => {
                    skipped.contains(path)
                        || folders(path).iter().any(|f| {
                            let below = [&f[..], b"/"].concat();
                            self.tree.lstat_at(f).is_ok_and(|m| m.is_none())
                                && skipped.iter().any(|s| s.starts_with(&below))
                        })
                }
            };
            if outside {
                refused.push(Refused::new(path, "is outside the sparse checkout".into()));
            }
        }
        Ok(())
    }
}

/// What can land nowhere.
fn never(change: &Change) -> Option<String> {
    if let Some(why) = refused_by_git(&change.path, change.new_mode == 0o120_000) {
        return Some(why.into());
    }
    // No tree that git wrote holds these; one that was made by hand can.
    if change.path.split(|b| *b == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
        return Some("a name that is no path below the top level".into());
    }
    if change.old_mode == GITLINK || change.new_mode == GITLINK {
        let what = if change.is_added() {
            "adds a submodule"
        } else if change.is_deleted() {
            "removes a submodule"
        } else {
            "moves a submodule to another commit"
        };
        return Some(format!(
            "{what}, which is more than a file in the working tree; do it with git submodule"
        ));
    }
    None
}

fn edited(change: &Change, found: Option<&Meta>) -> String {
    match found {
        None => "was deleted here since the run was cut".into(),
        Some(m) if m.is_dir() => "is a folder here".into(),
        Some(_) if change.is_added() => "is in the way: a file of yours that the run did not see".into(),
        Some(_) => "was edited here since the run was cut".into(),
    }
}

/// The folders above a path, nearest first, without the top level.
pub(super) fn folders(path: &[u8]) -> Vec<Vec<u8>> {
    let ends = path.iter().enumerate().rev().filter(|(_, b)| **b == b'/');
    ends.map(|(at, _)| path[..at].to_vec()).collect()
}

fn step_path(step: &Step) -> &[u8] {
    match step {
        Step::TakeFolder { path, .. } => path,
        _ => b"",
    }
}
