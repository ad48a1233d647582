//! What the agent committed or forced into its index: listed, kept aside, never needed.

use super::{ASIDE, Paths, Shot, paths};
use crate::git::Answer;
use crate::model::{Failure, Oid, Report};
use crate::ops::Frozen;
use crate::text::Untrusted;

/// Commits that are listed and kept.
const MOST_COMMITS: usize = 200;
/// Bytes of commits that are kept, unpacked.
const COMMITS_BYTES: u64 = 64 << 20;

impl Shot<'_, '_> {
    /// What the agent committed, and ignored files that it forced into its index or its commits. A store
    /// that is not sound, or an index or a HEAD that git cannot read, is the agent's loss, not ours: the
    /// files on disk count all the same.
    pub(super) fn agent_commits(
        &self,
        frozen: &Frozen,
        report: &mut Report,
    ) -> Result<(Option<Oid>, Paths), Failure> {
        let mut candidates = Paths::new();
        if !self.run.isolation().has_copy() {
            // It has no repository of its own, and could not commit.
            return Ok((None, candidates));
        }
        if !frozen.sound {
            report
                .notes
                .push("the run's store was tampered with; the agent's own commits are not kept".into());
            return Ok((None, candidates));
        }
        let base = self.run.folder.base.as_str();
        let added = self
            .agents_git("diff-index")?
            .args([
                "--cached",
                "--name-only",
                "-z",
                "--diff-filter=A",
                "--no-renames",
                "--ignore-submodules",
                base,
            ])
            .start()?;
        let log = self
            .agents_git("log")?
            .args(["-z", "--no-color", "--no-show-signature", "--format=%H %s", "--encoding=UTF-8"])
            .args([&format!("--max-count={MOST_COMMITS}"), "HEAD", "--not", base, "--"])
            .limit(1 << 20)
            .start()?;
        match added.finish().and_then(Answer::success) {
            Ok(bytes) => candidates.extend(paths(&bytes)),
            Err(_) => report.notes.push("the run's own index could not be read".into()),
        }
        let Ok(log) = log.finish().and_then(Answer::success) else {
            report.notes.push("the agent's own commits could not be read".into());
            return Ok((None, candidates));
        };
        let commits: Vec<_> = log.split(|b| *b == 0).filter(|l| !l.is_empty()).collect();
        for line in &commits {
            report.commits.push(Untrusted::new(line).to_string());
        }
        let Some(head) =
            commits.first().and_then(|l| std::str::from_utf8(l.split(|b| *b == b' ').next()?).ok())
        else {
            return Ok((None, candidates));
        };
        let Ok(head) = head.parse::<Oid>() else { return Ok((None, candidates)) };
        if let Ok(bytes) = self
            .agents_git("diff-tree")?
            .args(["-r", "-z", "--name-only", "--diff-filter=A", "--no-renames", base, head.as_str(), "--"])
            .output()
        {
            candidates.extend(paths(&bytes));
        }
        match self.keep_commits(&head) {
            Ok(()) => Ok((Some(head), candidates)),
            Err(e) => {
                report.notes.push(format!(
                    "the agent's own commits are not kept: {}",
                    Untrusted::new(&e.to_string())
                ));
                Ok((None, candidates))
            }
        }
    }

    /// Brings the agent's commits home, for `refs/agent-local`: capped, checked, never needed.
    pub(super) fn keep_commits(&self, head: &Oid) -> Result<(), Failure> {
        let base = &self.run.folder.base;
        let objects = self
            .agents_git("rev-list")?
            .args(["--objects", "--no-object-names", head.as_str(), "--not", base.as_str()])
            .limit(16 << 20)
            .output()?;
        let sizes = self
            .agents_git("cat-file")?
            .args(["--batch-check=%(objectsize)"])
            .input(objects)
            .limit(16 << 20)
            .text()?;
        let total: u64 =
            sizes.lines().map(|l| l.parse::<u64>().unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
        if total > COMMITS_BYTES {
            return Err(Failure::fatal(format!("they hold more than {COMMITS_BYTES} bytes")));
        }
        let call = self.agents_git("pack-objects")?.args(["--revs", "--thin", "--stdout", "-q"]);
        // Bases of deltas come along and count.
        self.receive(call, head, base, COMMITS_BYTES, COMMITS_BYTES * 4, ASIDE)
    }
}
