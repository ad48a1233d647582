//! Whether a change is in a branch's history already: by reachability, or by content where it was squashed,
//! rebased or applied by hand. Reads only; what git computes on the way goes to a folder of its own.

use crate::git::{Call, Error, Place, Repo};
use crate::ledger::change;
use crate::model::{Failure, Oid};
use std::collections::BTreeSet;

/// Commits of a branch that are compared, newest first; a change that landed longer ago is not recognised.
const MOST_COMMITS: usize = 64;

/// A question about one repository, asked for many runs.
#[derive(Debug)]
pub struct Landed<'r> {
    repo: &'r Repo,
    /// Where merges of no consequence are written.
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
        let paths: Vec<&[u8]> = changes.iter().map(|c| c.path.as_slice()).collect();
        let mut seen = BTreeSet::new();
        for (name, tip) in self.targets(target) {
            if tip == base || !seen.insert(tip) {
                continue;
            }
            if self.is_ancestor(snapshot, tip)? || self.holds(tip, base, snapshot, &paths)? {
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

    /// Whether some commit since the base is such that merging the snapshot into it changes nothing. Asked of
    /// each commit and not of the tip only: the same lines may have changed again since.
    fn holds(&self, tip: &Oid, base: &Oid, snapshot: &Oid, paths: &[&[u8]]) -> Result<bool, Failure> {
        let mut input = format!("{tip}\n^{base}\n").into_bytes();
        if paths.iter().all(|p| !p.contains(&b'\n')) {
            input.extend_from_slice(b"--\n");
            paths.iter().for_each(|p| input.extend([p, &b"\n"[..]].concat()));
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
            if self.adds_nothing(&commit, snapshot)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn adds_nothing(&self, commit: &Oid, snapshot: &Oid) -> Result<bool, Failure> {
        // No work tree and no index: attributes that the run wrote name no driver here.
        let place = Place {
            git_dir: Some(self.repo.common_dir().to_owned()),
            index: Some(self.scratch.path().join("none")),
            objects: Some(self.scratch.path().to_owned()),
            alternates: Some(self.repo.common_dir().join("objects").into_os_string()),
            ..Place::default()
        };
        let call = Call::new("merge-tree", &place)
            .args(["--write-tree", "--no-messages", commit.as_str(), snapshot.as_str()])
            .current_dir(self.scratch.path());
        let answer = match call.run() {
            Ok(answer) if answer.status == 0 => answer,
            // A conflict; or what cannot be merged at all, such as histories without a common commit.
            Ok(_) | Err(Error::Failed { .. }) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let merged = String::from_utf8_lossy(&answer.stdout);
        let tree = self.repo.objects()?.commit(commit)?.tree;
        Ok(merged.lines().next() == Some(tree.as_str()))
    }
}
