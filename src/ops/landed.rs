//! Whether a change is in a branch's history already: by reachability, or by content where it was squashed,
//! rebased or applied by hand. Writes nothing to the repository, not even a time.

use crate::git::{Call, Error, Place, Repo};
use crate::ledger::change::{self, Change};
use crate::model::{Failure, Oid};
use crate::os::files;
use std::collections::BTreeSet;

/// Commits of a branch that are compared, newest first; a change that landed longer ago is not recognised.
const MOST_COMMITS: usize = 64;
/// Largest file that is merged to find out.
const MOST_BYTES: u64 = 16 << 20;

/// A question about one repository, asked for many runs.
#[derive(Debug)]
pub struct Landed<'r> {
    repo: &'r Repo,
    /// Where files are merged.
    scratch: tempfile::TempDir,
    /// Branches and remote-tracking branches: full name and commit.
    heads: Vec<(String, Oid)>,
    current: Option<String>,
}

impl<'r> Landed<'r> {
    /// Reads the branches.
    pub fn new(repo: &'r Repo) -> Result<Self, Failure> {
        let scratch =
            tempfile::tempdir().map_err(|e| Failure::fatal("no temporary folder can be made").because(e))?;
        let heads = repo.refs(&["refs/heads/", "refs/remotes/"])?;
        Ok(Self {
            repo,
            scratch,
            heads: heads.into_iter().map(|t| (t.name, t.oid)).collect(),
            current: repo.head_branch()?,
        })
    }

    /// Where the change `base -> snapshot` landed, as a short name; `None` when it did not, or changes
    /// nothing. Looked for in `target`, in the branch that is checked out, and in what remotes have of them.
    pub fn find(&self, base: &Oid, snapshot: &Oid, target: Option<&str>) -> Result<Option<String>, Failure> {
        let changes = change::entries(self.repo, base, snapshot)?;
        if changes.is_empty() {
            return Ok(None);
        }
        let mut seen = BTreeSet::new();
        for (name, tip) in self.targets(target) {
            if tip == base || !seen.insert(tip) {
                continue;
            }
            if self.is_ancestor(snapshot, tip)? || self.holds(tip, base, &changes)? {
                let short = ["refs/heads/", "refs/remotes/"].iter().find_map(|p| name.strip_prefix(p));
                return Ok(Some(short.unwrap_or(name).to_owned()));
            }
        }
        Ok(None)
    }

    fn targets(&self, target: Option<&str>) -> impl Iterator<Item = (&str, &Oid)> {
        let short = |full: Option<&str>| full.and_then(|f| f.strip_prefix("refs/heads/")).map(str::to_owned);
        let wanted: Vec<String> =
            [short(target), short(self.current.as_deref())].into_iter().flatten().collect();
        self.heads.iter().filter_map(move |(name, oid)| {
            let is = match name.strip_prefix("refs/remotes/").and_then(|n| n.split_once('/')) {
                Some((_, branch)) => branch == "HEAD" || wanted.iter().any(|w| w == branch),
                None => wanted.iter().any(|w| name.strip_prefix("refs/heads/") == Some(w)),
            };
            is.then_some((name.as_str(), oid))
        })
    }

    fn is_ancestor(&self, commit: &Oid, of: &Oid) -> Result<bool, Failure> {
        Ok(self.repo.call("merge-base").args(["--is-ancestor", commit.as_str(), of.as_str()]).ask()?)
    }

    /// Whether the content of some commit since the base includes the change: every path as in the snapshot, or
    /// such that merging the snapshot's file into it adds nothing. Asked of each commit and not of the tip only:
    /// the same lines may have changed again since. `git merge-tree` would answer it in one go and would touch
    /// the times of the objects it writes a second time.
    fn holds(&self, tip: &Oid, base: &Oid, changes: &[Change]) -> Result<bool, Failure> {
        let mut input = format!("{tip}\n^{base}\n").into_bytes();
        if changes.iter().all(|c| !c.path.contains(&b'\n')) {
            input.extend_from_slice(b"--\n");
            changes.iter().for_each(|c| input.extend([c.path.as_slice(), b"\n"].concat()));
        }
        let listed = self
            .repo
            .call("rev-list")
            .arg(format!("--max-count={MOST_COMMITS}"))
            .arg("--stdin")
            .env("GIT_LITERAL_PATHSPECS", "1")
            .input(input)
            .output()?;
        let listed = String::from_utf8_lossy(&listed);
        for commit in listed.lines().filter_map(|l| l.parse::<Oid>().ok()) {
            let tree = self.repo.objects()?.commit(&commit)?.tree;
            if self.includes(&tree, changes)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Cheapest first: what an object id answers, then what takes a merge.
    fn includes(&self, tree: &Oid, changes: &[Change]) -> Result<bool, Failure> {
        let mut unclear = Vec::new();
        for change in changes {
            let Ok(path) = std::str::from_utf8(&change.path) else { return Ok(false) };
            let entry = self.repo.objects()?.entry_at(tree, path)?;
            match entry {
                None if change.is_deleted() => {}
                Some(e) if !change.is_deleted() && e.oid == change.new && e.mode == change.new_mode => {}
                Some(e) if is_file(e.mode) && e.mode == change.new_mode && is_file(change.old_mode) => {
                    unclear.push((change, e.oid));
                }
                _ => return Ok(false),
            }
        }
        for (change, there) in unclear {
            if !self.adds_nothing(change, &there)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn adds_nothing(&self, change: &Change, there: &Oid) -> Result<bool, Failure> {
        let objects = self.repo.objects()?;
        let mut theirs = Vec::new();
        for (name, oid) in [("theirs", there), ("base", &change.old), ("run", &change.new)] {
            let Ok(bytes) = objects.expect(oid, crate::git::ObjectKind::Blob, MOST_BYTES) else {
                return Ok(false);
            };
            files::write_plain(&self.scratch.path().join(name), &bytes, 0o600)
                .map_err(|e| Failure::fatal("a temporary file cannot be written").because(e))?;
            if name == "theirs" {
                theirs = bytes;
            }
        }
        let call = Call::new("merge-file", &Place::default())
            .args(["-p", "-q", "theirs", "base", "run"])
            .current_dir(self.scratch.path());
        match call.run() {
            Ok(answer) => Ok(answer.status == 0 && answer.stdout == theirs),
            // Conflicts are counted in the status; what cannot be merged at all has the highest.
            Err(Error::Failed { .. }) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

fn is_file(mode: u32) -> bool {
    matches!(mode, 0o100_644 | 0o100_755)
}
