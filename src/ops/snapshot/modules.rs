//! Submodules in which the run made a repository: what became of them, and their new commits, which would die with the
//! run's tree, brought home through the same pipe as everything else.

use super::{ASIDE, Paths, Shot};
use crate::git::{Answer, Call, Place};
use crate::ledger::change::GITLINK;
use crate::model::{Failure, Oid, Report};
use crate::ops::confine;
use crate::text::{Untrusted, quote_path};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Bytes of one submodule's history that are kept.
const MOST: u64 = 256 << 20;

impl Shot<'_, '_> {
    /// Reports each submodule that has a repository in the tree. A commit that the base does not name is brought into
    /// the main repository, whole, with a ref of its own; where that cannot be, there is no snapshot.
    pub(super) fn keep_modules(
        &self,
        modules: &Paths,
        base_tree: &Oid,
        tree: &Oid,
        report: &mut Report,
    ) -> Result<Vec<(String, Oid)>, Failure> {
        let mut kept: Vec<(String, Oid)> = Vec::new();
        for path in modules {
            let shown = quote_path(path);
            let dirty = if self.is_dirty(path)? { ", with changes that are in the tree only" } else { "" };
            let (before, now) = (self.module_at(base_tree, path)?, self.module_at(tree, path)?);
            match now.filter(|now| before.as_ref() != Some(now)) {
                None => report.submodules.push(format!("{shown} (has a repository{dirty})")),
                Some(commit) => {
                    let pack = self.module_git("pack-objects", path)?;
                    let pack = pack.args(["--revs", "--stdout", "-q"]);
                    self.receive_whole(pack, &commit, MOST, ASIDE).map_err(|e| {
                        Failure::fatal(format!(
                            "commit {} of submodule {shown} could not be brought home and would be lost with the run",
                            commit.short()
                        ))
                        .because(e)
                    })?;
                    let name = format!("refs/agent-local/{}/sub/{commit}", self.run.folder.run);
                    report.submodules.push(format!("{shown} (new commit {commit}, kept as {name}{dirty})"));
                    kept.push((name, commit));
                }
            }
        }
        kept.sort();
        kept.dedup();
        Ok(kept)
    }

    /// Submodules whose place of origin the run changed, as `.gitmodules` has them.
    pub(super) fn module_urls(
        &self,
        base_tree: &Oid,
        tree: &Oid,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let blob = |of: &Oid| -> Result<Option<Oid>, Failure> {
            let listed = self.git("ls-tree")?.args(["-z", of.as_str(), "--", ".gitmodules"]).output()?;
            let line = String::from_utf8_lossy(&listed).into_owned();
            let word = line.split(['\t', '\0']).next().and_then(|l| l.split(' ').nth(2).map(str::to_owned));
            Ok(word.and_then(|w| w.parse().ok()))
        };
        let (before, now) = (blob(base_tree)?, blob(tree)?);
        if before == now {
            return Ok(());
        }
        let urls = |of: Option<Oid>| -> Result<BTreeMap<String, String>, Failure> {
            let Some(blob) = of else { return Ok(BTreeMap::new()) };
            let call = self.git("config")?.args(["--blob", blob.as_str(), "-z", "--get-regexp"]);
            // What is no configuration has no urls.
            let answer =
                call.arg(r"^submodule\..*\.url$").run().and_then(Answer::success).unwrap_or_default();
            let text = String::from_utf8_lossy(&answer).into_owned();
            let pair = |l: &str| l.split_once('\n').map(|(key, url)| (key.to_owned(), url.to_owned()));
            Ok(text.split('\0').filter_map(pair).collect())
        };
        let (before, now) = (urls(before)?, urls(now)?);
        for (key, url) in &now {
            let name = key.trim_start_matches("submodule.").trim_end_matches(".url");
            let what = match before.get(key) {
                Some(was) if was == url => continue,
                Some(_) => "its url is now",
                None => "is new in .gitmodules, from",
            };
            report.submodules.push(format!(
                "{} ({what} {})",
                Untrusted::new(name),
                Untrusted::new(url.as_str())
            ));
        }
        Ok(())
    }

    /// What a tree has at a submodule's path. Asked in the scratch, where the tree is.
    fn module_at(&self, tree: &Oid, path: &[u8]) -> Result<Option<Oid>, Failure> {
        let call = self.git("ls-tree")?.env("GIT_LITERAL_PATHSPECS", "1");
        let listed =
            call.args(["-z", "--full-tree", tree.as_str(), "--"]).arg(OsStr::from_bytes(path)).output()?;
        let line = String::from_utf8_lossy(&listed).into_owned();
        let link = format!("{GITLINK:06o} commit ");
        Ok(line.strip_prefix(&link).and_then(|rest| rest.split('\t').next()?.parse().ok()))
    }

    /// Whether git, asked there and then, sees changes. Nothing depends on it.
    fn is_dirty(&self, path: &[u8]) -> Result<bool, Failure> {
        let call = self.module_git("status", path)?.args(["--porcelain", "-uall", "-z"]).limit(1 << 20);
        Ok(call.run().and_then(Answer::success).is_ok_and(|answer| !answer.is_empty()))
    }

    /// git in a repository of the run's making: in the cage, with what it says taken for no more than that.
    fn module_git(&self, verb: &str, path: &[u8]) -> Result<Call, Failure> {
        let folder = self.run.layout.tree().join(OsStr::from_bytes(path));
        let place =
            Place { git_dir: Some(folder.join(".git")), work_tree: Some(folder.clone()), ..Place::default() };
        let call = Call::new(verb, &place).current_dir(&self.run.layout.tree());
        confine::caged(&self.cage, call.env("GIT_ALLOC_LIMIT", super::ALLOC_LIMIT).within(ASIDE))
    }
}
