//! Real repositories, both doors and both ref backends.

use super::*;
use crate::git::{Call, ObjectKind, Place, Transaction, TreeEntry, Version, commit_bytes, tree_bytes};
use crate::model::*;
use std::path::{Path, PathBuf};

mod chains;
mod change;
mod homes;
mod lists;

/// A repository in a folder of its own.
pub(crate) struct Fixture {
    pub dir: tempfile::TempDir,
    pub repo: Repo,
    pub base: Oid,
}

/// The three kinds of repository we care about: through libgit2, and twice through the executable.
pub(super) const KINDS: [&[&str]; 3] = [&[], &["--object-format=sha256"], &["--ref-format=reftable"]];

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    Call::with_settings(
        args[0],
        &Place::default(),
        &["user.name=T", "user.email=t@example.org", "protocol.allow=always"],
    )
    .args(&args[1..])
    .current_dir(dir)
    .text()
    .unwrap_or_else(|e| panic!("git {args:?}: {e}"))
}

pub(super) fn has_reftable() -> bool {
    let text = git(Path::new("/"), &["version"]);
    let mut numbers = text.trim_start_matches("git version ").split('.').map(|n| n.parse().unwrap_or(0));
    Version(numbers.next().unwrap(), numbers.next().unwrap()) >= Version(2, 45)
}

impl Fixture {
    pub fn new(init: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("project");
        let mut args = vec!["init", "-q", "-b", "main"];
        args.extend(init);
        args.push("project");
        git(dir.path(), &args);
        crate::os::files::write_plain(&path.join("a"), b"one\n", 0o644).unwrap();
        git(&path, &["add", "a"]);
        git(&path, &["commit", "-q", "-m", "base"]);
        let repo = Repo::discover(&path).unwrap();
        let base = repo.commit_of("HEAD").unwrap().unwrap();
        Self { dir, repo, base }
    }

    /// One fixture of each kind that this git can make.
    pub fn each() -> Vec<Self> {
        let kinds = if has_reftable() { 3 } else { 2 };
        KINDS[..kinds].iter().map(|k| Self::new(k)).collect()
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    pub fn ledger(&self) -> Ledger<'_> {
        Ledger::new(&self.repo)
    }

    pub fn spawn(&self, name: &str) -> Draft {
        draft(Body::Spawn(Spawn {
            repo: "0".repeat(32),
            name: name.parse().unwrap(),
            role: "developer".parse().unwrap(),
            cr: None,
            isolation: Isolation::Worktree,
            write: Vec::new(),
            branch: format!("refs/heads/wt/{name}"),
            base: self.base.clone(),
            target: None,
            local_base: false,
            policy: PolicyInForce { source: "built-in".into(), sha256: Digest::of(b"") },
            strip: Vec::new(),
            include: Listed::default(),
            port: None,
            task: None,
        }))
    }

    /// A snapshot that changes file `a`, and its result event.
    pub fn result(&self, content: &str) -> Draft {
        let objects = self.repo.objects().unwrap();
        let oid = objects.write(ObjectKind::Blob, content.as_bytes()).unwrap();
        let tree = objects
            .write(
                ObjectKind::Tree,
                &tree_bytes(vec![TreeEntry { mode: 0o100_644, name: b"a".to_vec(), oid }]),
            )
            .unwrap();
        let bytes = commit_bytes(&tree, std::slice::from_ref(&self.base), "T <t@example.org>", 1, "snapshot");
        let snapshot = objects.write(ObjectKind::Commit, &bytes).unwrap();
        let entries = super::change::entries(&self.repo, &self.base, &snapshot).unwrap();
        draft(Body::Result(RunResult {
            base: self.base.clone(),
            tree,
            change: super::change::digest(&self.repo, &entries).unwrap(),
            files: entries.len() as u64,
            snapshot,
            ended: Ended::Exit(0),
            seconds: 1,
            report: Report::default(),
            declined: false,
            checks: Vec::new(),
        }))
    }

    /// Starts a run with the id that `n` gives.
    pub fn run(&self, n: u128, name: &str) -> Tip {
        self.start(&RunId::new(1_764_531_644_000, n), &self.spawn(name))
    }

    pub fn start(&self, run: &RunId, draft: &Draft) -> Tip {
        let prepared = self.ledger().prepare_first(run, draft).unwrap();
        prepared.join(Transaction::new()).commit(&self.repo, "test").unwrap();
        prepared.into_tip()
    }

    pub fn append(&self, run: &RunId, draft: &Draft) -> Result<Tip, Failure> {
        self.ledger().append(run, draft, |_| Ok(()))
    }
}

pub(super) fn draft(body: Body) -> Draft {
    let actor = Actor { name: "Ada <x>\n".into(), email: "ada@example.org".into() };
    Draft { body, att: Vec::new(), evidence: Vec::new(), time: 1_764_531_644, actor }
}

pub(super) fn engine(name: &str) -> Draft {
    draft(Body::Engine(Engine {
        engine: name.into(),
        command: vec!["true".into()],
        cage: CageReport { tier: "full".into(), network: "open".into(), canaries: Vec::new() },
    }))
}

pub(super) fn abort(reason: &str) -> Draft {
    draft(Body::Abort(Abort { reason: reason.into() }))
}

pub(super) fn shown(failure: Failure) -> String {
    format!("{failure} | {}", failure.hints.join(" | "))
}
