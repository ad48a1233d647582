//! What a server asks while it receives: a repository whose new objects are still in quarantine, refs as they
//! really are, and the commits that a push would bring.

use super::{Call, Error, Repo};
use crate::model::{Failure, Oid};
use std::path::{Path, PathBuf};

/// A ref as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRef {
    /// Full name.
    pub name: String,
    /// What it names, through a symbolic ref if it is one.
    pub oid: Oid,
    /// Whether it only points to another ref.
    pub symbolic: bool,
}

/// A commit that is new to the refs it was compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommit {
    /// Its id.
    pub id: Oid,
    /// Its parents.
    pub parents: Vec<Oid>,
    /// Addresses of author and committer; untrusted.
    pub mails: [String; 2],
    /// What its `Agent-Run:` lines say, wherever they stand in the message; untrusted.
    pub runs: Vec<String>,
}

impl Repo {
    /// The repository of a hook that git started in `git_dir`. `quarantine` is where git says that the pushed
    /// objects are; one that is not a folder of this very repository is refused, because then somebody
    /// steered git from outside.
    pub fn receiving(git_dir: &Path, quarantine: Option<&Path>) -> Result<Self, Failure> {
        let mut repo = Self::at_git_dir(git_dir)?;
        let Some(quarantine) = quarantine else { return Ok(repo) };
        let real = |path: &Path| {
            std::fs::canonicalize(path)
                .map_err(|e| Failure::fatal(format!("cannot find '{}'", path.display())).because(e))
        };
        let objects = real(&repo.common_dir().join("objects"))?;
        let quarantine = real(quarantine)?;
        if quarantine.parent() != Some(&objects) {
            return Err(Failure::fatal("the pushed objects are not in this repository's own quarantine")
                .hint("the server lets its callers set GIT_OBJECT_DIRECTORY; forbid that"));
        }
        repo.look_into(quarantine, objects);
        Ok(repo)
    }

    /// Every ref, with one look.
    pub fn server_refs(&self) -> Result<Vec<ServerRef>, Error> {
        let bytes = self.call("for-each-ref").arg("--format=%(objectname) %(refname) %(symref)").output()?;
        let bad = || Error::Unreadable { verb: "for-each-ref".into(), what: "an unexpected line".into() };
        let mut refs = Vec::new();
        for line in bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            let line = String::from_utf8_lossy(line);
            let mut words = line.splitn(3, ' ');
            let (Some(oid), Some(name), Some(symref)) = (words.next(), words.next(), words.next()) else {
                return Err(bad());
            };
            let oid = oid.parse().map_err(|_| bad())?;
            refs.push(ServerRef { name: name.to_owned(), oid, symbolic: !symref.is_empty() });
        }
        Ok(refs)
    }

    /// Whether a ref is a symbolic one, also when what it points to does not exist.
    pub fn is_symbolic(&self, name: &str) -> Result<bool, Error> {
        if self.common_dir().join("reftable").is_dir() {
            return self.call("symbolic-ref").args(["--quiet", name]).ask();
        }
        // In files a symbolic ref is always loose, and a push may bring hundreds of names.
        let path = self.common_dir().join(name);
        if std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_symlink()) {
            return Ok(true);
        }
        Ok(std::fs::read(&path).is_ok_and(|bytes| bytes.starts_with(b"ref:")))
    }

    /// The commits of `tips` that `known` do not have, newest first.
    pub fn new_commits(&self, tips: &[&Oid], known: &[&Oid]) -> Result<Vec<NewCommit>, Error> {
        let mut input: String = tips.iter().map(|t| format!("{t}\n")).collect();
        known.iter().for_each(|k| input.push_str(&format!("^{k}\n")));
        // Ids come first and have no line feed, so that whatever a message holds cannot pass for another commit.
        let call = self.call("log").args([
            "-z",
            "--topo-order",
            "--no-show-signature",
            "--no-decorate",
            "--no-notes",
            "--no-color",
            "--no-patch",
            "--no-mailmap",
            "--encoding=UTF-8",
            "--format=tformat:%H%n%P%n%ae%n%ce%n%B",
            "--stdin",
        ]);
        let bytes = call.input(input.into_bytes()).output()?;
        let bad = || Error::Unreadable { verb: "log".into(), what: "an unexpected commit".into() };
        let mut commits = Vec::new();
        for commit in bytes.split(|b| *b == 0).filter(|c| !c.is_empty()) {
            let text = String::from_utf8_lossy(commit);
            let mut parts = text.splitn(5, '\n');
            let mut next = || parts.next().ok_or_else(bad);
            let id = next()?.parse().map_err(|_| bad())?;
            let parents: Result<Vec<Oid>, _> = next()?.split_ascii_whitespace().map(str::parse).collect();
            let mails = [next()?.to_owned(), next()?.to_owned()];
            let runs = next()?.lines().filter_map(marked).map(str::to_owned).collect();
            commits.push(NewCommit { id, parents: parents.map_err(|_| bad())?, mails, runs });
        }
        Ok(commits)
    }

    /// The tree of an undisturbed merge of two commits; `None` when they conflict. What it writes goes to a
    /// folder that is gone afterwards.
    pub fn merged_tree(&self, ours: &Oid, theirs: &Oid) -> Result<Option<Oid>, Failure> {
        let scratch =
            tempfile::tempdir().map_err(|e| Failure::fatal("no temporary folder can be made").because(e))?;
        let mut place = self.place().clone();
        let behind: Vec<PathBuf> =
            place.objects.take().into_iter().chain([self.common_dir().join("objects")]).collect();
        place.objects = Some(scratch.path().to_owned());
        place.alternates = None;
        let info = scratch.path().join("info");
        let written = crate::os::files::create_dir(&info, 0o700).and_then(|()| {
            use std::os::unix::ffi::OsStrExt;
            let lines: Vec<u8> =
                behind.iter().flat_map(|p| [p.as_os_str().as_bytes(), b"\n"].concat()).collect();
            crate::os::files::write_plain(&info.join("alternates"), &lines, 0o600)
        });
        written.map_err(|e| Failure::fatal("a temporary folder cannot be written").because(e))?;
        let settings = ["merge.renames=true", "merge.conflictStyle=merge", "merge.directoryRenames=conflict"];
        let answer = Call::with_settings("merge-tree", &place, &settings)
            .args(["--write-tree", "--no-messages", ours.as_str(), theirs.as_str()])
            .run()?;
        if answer.status != 0 {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&answer.stdout);
        Ok(text.trim().parse().ok())
    }

    /// Whether `old` is in the history of `new`.
    pub fn is_ancestor(&self, old: &Oid, new: &Oid) -> Result<bool, Error> {
        self.call("merge-base").args(["--is-ancestor", old.as_str(), new.as_str()]).ask()
    }
}

/// The value of an `Agent-Run:` line, however it is written.
fn marked(line: &str) -> Option<&str> {
    let (key, value) = line.trim().split_once(':')?;
    key.trim_end().eq_ignore_ascii_case("agent-run").then(|| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_however_they_are_written() {
        for line in ["Agent-Run: x", "  agent-run :x", "AGENT-RUN:x "] {
            assert_eq!(marked(line), Some("x"), "{line}");
        }
        assert_eq!(marked("Agent-Runs: x"), None);
        assert_eq!(marked("an Agent-Run: x"), None);
    }
}
