//! Taking back what a run did in the person's own tree: its change the other way round, by the same means. Every
//! touched path must be as the run left it, or already as it was before; what the person changed since is
//! refused by name.

use super::{Landed, Proposal, Unapproved, place, survey};
use crate::git::{ObjectKind, Repo, commit_bytes};
use crate::ledger::{Tip, change};
use crate::model::{Failure, Kind};
use crate::ops::show::Shown;

/// A change that can be taken back.
#[derive(Debug)]
pub struct Restore {
    back: Unapproved,
}

/// What was taken back.
pub type Restored = Landed;

impl Restore {
    /// Plans to undo the latest result of a run. Touches nothing in the work tree.
    pub fn plan(repo: &Repo, shown: &Shown) -> Result<Self, Failure> {
        let done = Proposal::of(shown)?;
        let objects = repo.objects()?;
        let before = objects.commit(&done.base)?;
        let who = "git-agent <discard@git-agent.invalid>";
        let message = format!("Before run {}", done.name);
        let bytes =
            commit_bytes(&before.tree, std::slice::from_ref(&done.snapshot), who, before.time, &message);
        // A commit that nobody names; gc takes it.
        let target = objects.write(ObjectKind::Commit, &bytes)?;
        let changes = change::entries(repo, &done.snapshot, &target)?;
        let (name, base, snapshot) = (done.name.clone(), done.base.clone(), done.snapshot.clone());
        let back = Proposal {
            base: done.snapshot,
            snapshot: target,
            tree: before.tree,
            change: change::digest(repo, &changes)?,
            ..done
        };
        let back = survey(repo, back, false).map_err(|failure| {
            if failure.kind != Kind::Conflict {
                return failure;
            }
            let told = format!("what run '{name}' did cannot be taken back");
            Failure::new(Kind::Conflict, told)
                .because(failure)
                .hint(format!("move your own edits of these paths away, then: git agent discard {name}"))
                .hint(format!(
                    "or take it back by hand: git diff --binary {} {} | git apply -3",
                    snapshot.short(),
                    base.short()
                ))
        })?;
        Ok(Self { back })
    }

    /// Takes it back, all of it or nothing. `last` writes down that it was; when it cannot, nothing is.
    pub fn execute(
        mut self,
        repo: &Repo,
        last: impl FnOnce() -> Result<Tip, Failure>,
    ) -> Result<Restored, Failure> {
        self.back.claim(repo)?;
        if self.back.is_in_place() {
            let tip = last()?;
            return Ok(super::landed(self.back, Vec::new(), tip));
        }
        place(repo, self.back, None, None, last)
    }
}
