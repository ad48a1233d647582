//! What a repository is like, what each of that means for its runs, and whether a run can be cut at all.

use crate::git::{RefFormat, Repo, Scope};
use crate::model::{Failure, HashKind};
use crate::ops::spawn;
use serde::Serialize;

/// One trait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trait {
    /// For programs.
    pub name: &'static str,
    /// What it means for runs, in a sentence.
    pub meaning: String,
}

/// All traits, and the verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Traits {
    /// Whether `spawn` cuts a run here, as far as that can be known before it does.
    pub works: bool,
    /// What `spawn` says if not.
    pub refusal: Option<String>,
    /// What was found out of the ordinary.
    pub traits: Vec<Trait>,
}

/// Asks git. Writes nothing.
pub fn look(repo: &Repo) -> Result<Traits, Failure> {
    let request = spawn::Request { role: "developer".into(), ..spawn::Request::default() };
    let refusal = spawn::admit(repo, &request).err().map(|f| f.to_string());
    let mut traits = Vec::new();
    let mut add = |name, meaning: &str| traits.push(Trait { name, meaning: meaning.to_owned() });
    let config = repo.config()?;
    let common = repo.common_dir();

    if repo.hash() == HashKind::Sha256 {
        add("sha256", "objects are named by SHA-256; runs work the same");
    }
    if repo.ref_format()? == RefFormat::Reftable {
        add("reftable", "refs are kept as reftable; runs work, and git 2.45 or later must be first on PATH");
    }
    if repo.work_tree().is_none() {
        add("bare", "there is no work tree: runs are cut from HEAD, and apply has nowhere to land");
    }
    if repo.git_dir() != common {
        add(
            "linked-worktree",
            "this is a linked worktree: runs are cut from its HEAD and belong to the whole repository",
        );
    }
    if repo.commit_of("HEAD")?.is_none() {
        add("no-commits", "nothing is committed on this branch yet: there is nothing to cut a run from");
    } else if repo.head_branch()?.is_none() {
        add("detached", "HEAD is at no branch: a run knows no target branch");
    }
    if repo.call("rev-parse").arg("--is-shallow-repository").text()? == "true" {
        add(
            "shallow",
            "history is cut off: so it is in a run, and merges beyond the edge cannot be made there",
        );
    }
    let partial =
        config.iter().any(|(_, k, v)| k.starts_with("remote.") && k.ends_with(".promisor") && v == "true");
    if partial {
        add(
            "partial",
            "objects are fetched on demand: a run has no credentials, so what is not here yet is missing there",
        );
    }
    if config.flag("core.sparsecheckout", false) {
        add("sparse", "only a part is checked out here: a run has all paths of its base");
    }
    if config.flag("index.sparse", false) {
        add("sparse-index", "the index is sparse; a run has a full one of its own");
    }
    if config.flag("core.splitindex", false) || has_shared_index(repo) {
        add("split-index", "the index is split; a run has an index of its own");
    }
    if common.join("objects/info/alternates").is_file() {
        add(
            "alternates",
            "objects are borrowed from another repository: runs see those, and nothing else of it",
        );
    }
    let tracked = Tracked::look(repo)?;
    if tracked.submodules {
        add("submodules", "a submodule's folder is empty in a run until something sets it up there");
    }
    if tracked.lfs {
        add("lfs", "large files come from this repository's LFS store; a run fetches none from the network");
    }
    if let Some(filter) = tracked.filters.first() {
        add(
            "filters",
            &format!(
                "files go through the filter '{filter}': in a run it works without keys and without the network"
            ),
        );
    }
    if config.flag("core.ignorecase", false) {
        add("ignore-case", "file names that differ only in case are one file here");
    }
    // Our own calls set it on their command line.
    let hooks = config.iter().any(|(scope, k, _)| scope != Scope::Command && k == "core.hookspath");
    if hooks {
        add("hooks-path", "hooks lie in a folder of their own: spawn, review and apply run none of them");
    }
    Ok(Traits { works: refusal.is_none(), refusal, traits })
}

fn has_shared_index(repo: &Repo) -> bool {
    std::fs::read_dir(repo.git_dir())
        .into_iter()
        .flatten()
        .flatten()
        .any(|e| e.file_name().as_encoded_bytes().starts_with(b"sharedindex."))
}

/// What HEAD's tree says.
struct Tracked {
    submodules: bool,
    lfs: bool,
    filters: Vec<String>,
}

impl Tracked {
    fn look(repo: &Repo) -> Result<Self, Failure> {
        let mut tracked = Self { submodules: false, lfs: false, filters: Vec::new() };
        let Some(head) = repo.commit_of("HEAD")? else { return Ok(tracked) };
        let objects = repo.objects()?;
        let tree = objects.commit(&head)?.tree;
        tracked.submodules = objects.entry_at(&tree, ".gitmodules")?.is_some();
        let listed =
            repo.call("ls-tree").args(["-r", "-z", "--end-of-options"]).arg(tree.as_str()).output()?;
        for line in listed.split(|b| *b == 0) {
            let Some((meta, path)) = std::str::from_utf8(line).ok().and_then(|l| l.split_once('\t')) else {
                continue;
            };
            if meta.starts_with("160000 ") {
                tracked.submodules = true;
            }
            if path == ".gitattributes" || path.ends_with("/.gitattributes") {
                let Some(oid) = meta.split(' ').nth(2).and_then(|o| o.parse().ok()) else { continue };
                let text = objects.expect(&oid, crate::git::ObjectKind::Blob, 1 << 20)?;
                tracked.attributes(&String::from_utf8_lossy(&text));
            }
        }
        Ok(tracked)
    }

    fn attributes(&mut self, text: &str) {
        let lines = text.lines().filter(|l| !l.trim_start().starts_with('#'));
        for filter in lines.flat_map(str::split_whitespace).filter_map(|w| w.strip_prefix("filter=")) {
            if filter == "lfs" {
                self.lfs = true;
            } else if !self.filters.iter().any(|f| f == filter) {
                self.filters.push(filter.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_in_attributes() {
        let mut tracked = Tracked { submodules: false, lfs: false, filters: Vec::new() };
        tracked.attributes("# *.x filter=no\n*.bin filter=lfs diff=lfs -text\n*.key filter=git-crypt\n*.k filter=git-crypt\n");
        assert!(tracked.lfs);
        assert_eq!(tracked.filters, ["git-crypt"]);
    }
}
