//! The person's tree as it is before a run with isolation off touches it: a commit to compare with and to go
//! back to, and the index that the snapshot afterwards starts from. The person's own index is only read.

use crate::git::{Call, ObjectKind, Place, Repo, commit_bytes};
use crate::model::{Actor, Failure, Oid};
use crate::os::files;
use std::path::{Path, PathBuf};

/// Settings under which an index is one whole file that says what is on disk.
const WHOLE: &[&str] =
    &["core.splitIndex=false", "core.untrackedCache=false", "index.sparse=false", "core.safecrlf=false"];

/// The tree before.
#[derive(Debug)]
pub struct Before {
    /// A commit of it on HEAD; HEAD itself when nothing differs.
    pub commit: Oid,
    scratch: tempfile::TempDir,
}

impl Before {
    /// The index that says so.
    pub fn index(&self) -> PathBuf {
        self.scratch.path().join("index")
    }

    /// Looks at the tree: staged, unstaged and untracked, without ignored files.
    pub(super) fn take(
        repo: &Repo,
        top: &Path,
        head: &Oid,
        actor: &Actor,
        now: i64,
    ) -> Result<Self, Failure> {
        let fail = |e: std::io::Error| Failure::fatal("a copy of the index could not be made").because(e);
        let scratch = tempfile::tempdir().map_err(fail)?;
        let index = scratch.path().join("index");
        let users = repo.git_dir().join("index");
        if users.exists() {
            files::copy_keep_mtime(&users, &index).map_err(fail)?;
        }
        let place = Place { index: Some(index), ..repo.place().clone() };
        let git = |verb: &str| Call::with_settings(verb, &place, WHOLE).current_dir(top);
        // A person's promise that a file does not change is none of the engine's.
        let listed = git("ls-files").args(["-v", "-z"]).output()?;
        let assumed: Vec<u8> = listed
            .split(|b| *b == 0)
            .filter(|l| l.first().is_some_and(u8::is_ascii_lowercase))
            .flat_map(|l| [l.get(2..).unwrap_or_default(), b"\0"].concat())
            .collect();
        git("update-index")
            .args(["--no-split-index", "--no-assume-unchanged", "-z", "--stdin"])
            .input(assumed)
            .output()?;
        git("add").args(["-A", "--", ":/"]).output().map_err(|e| {
            Failure::from(e)
                .hint("commit, ignore or remove what git cannot add: it could not be taken back afterwards")
        })?;
        let tree: Oid = git("write-tree").text()?.parse().map_err(Failure::fatal)?;
        let objects = repo.objects()?;
        if objects.commit(head)?.tree == tree {
            return Ok(Self { commit: head.clone(), scratch });
        }
        let plain = |s: &str| s.replace(['<', '>', '\n'], "");
        let who = format!("{} <{}>", plain(&actor.name), plain(&actor.email));
        let message = "The work tree as it was (isolation off)";
        let bytes = commit_bytes(&tree, std::slice::from_ref(head), &who, now, message);
        Ok(Self { commit: objects.write(ObjectKind::Commit, &bytes)?, scratch })
    }
}
