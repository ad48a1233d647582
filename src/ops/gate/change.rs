//! Changes of the policy and the signers: only by the policy's owners, under the old policy, and travelling alone.

use super::{Judge, Law, Refusal, Verdict};
use crate::git::NewCommit;
use crate::ledger::change;
use crate::model::Oid;
use crate::policy;
use std::collections::HashMap;

/// Everything in it is law.
const FOLDER: &str = ".git-agent";

impl Judge<'_> {
    fn folder(&self, commit: Option<&Oid>) -> Verdict<Option<(u32, Oid)>> {
        let Some(commit) = commit else { return Ok(None) };
        let objects = self.repo.objects()?;
        let entry = objects.entry_at(&objects.commit(commit)?.tree, FOLDER)?;
        Ok(entry.map(|e| (e.mode, e.oid)))
    }

    /// What a push to the protected branch does to the law itself.
    pub(super) fn policy_change(&self, old: Option<&Oid>, new: &Oid) -> Verdict {
        if self.folder(old)? == self.folder(Some(new))? {
            return match &self.law {
                // Nobody can say how the branch is protected; only a repair goes in.
                Law::Unreadable(why) => Err(unreadable(why).into()),
                _ => Ok(()),
            };
        }
        if let Some(old) = old
            && !self.repo.is_ancestor(old, new)?
        {
            return Err(Refusal::new(
                "policy",
                "it would take the policy back to an older one",
                "commit the older policy anew, on top of the branch",
            )
            .into());
        }
        let known: Vec<&Oid> = old.into_iter().collect();
        let commits = self.repo.new_commits(&[new], &known)?;
        let all: HashMap<&Oid, &NewCommit> = commits.iter().map(|c| (&c.id, c)).collect();
        let mut at = new;
        while let Some(commit) = all.get(at) {
            let parent = commit.parents.first();
            if self.folder(parent)? != self.folder(Some(&commit.id))? {
                self.alone(commit)?;
                self.by_an_owner(commit)?;
            }
            match parent {
                Some(parent) => at = parent,
                None => break,
            }
        }
        self.readable(new)
    }

    fn alone(&self, commit: &NewCommit) -> Verdict {
        let empty = self.repo.hash().empty_tree();
        let from = commit.parents.first().unwrap_or(&empty);
        let inside = format!("{FOLDER}/");
        let entries = change::entries(self.repo, from, &commit.id)?;
        if let Some(other) = entries.iter().find(|c| !c.path.starts_with(inside.as_bytes())) {
            return Err(Refusal::new(
                "policy",
                format!(
                    "commit {} changes {FOLDER}/ together with {}",
                    commit.id.short(),
                    crate::text::quote_path(&other.path)
                ),
                "a change of the policy travels alone, in a commit of its own",
            )
            .into());
        }
        Ok(())
    }

    fn by_an_owner(&self, commit: &NewCommit) -> Verdict {
        let short = commit.id.short();
        let refused = |why: String| {
            let owners: Vec<&str> = self.law.policy().owners().iter().map(|o| o.value.as_str()).collect();
            let who = match (&self.law, owners.is_empty()) {
                (Law::Ready(a), _) if a.signers.is_none() => "a root signer".to_owned(),
                (_, true) => "one who may approve".to_owned(),
                (_, false) => format!("one of {}", owners.join(", ")),
            };
            Refusal::new(
                "policy",
                format!("commit {short} changes {FOLDER}/: {why}"),
                format!("git commit --amend -S, by {who}"),
            )
        };
        let signer = match self.signer_of(&commit.id)? {
            Ok(signer) => signer,
            Err(why) => return Err(refused(why).into()),
        };
        if self.root.as_ref().is_some_and(|root| root.has_key(&signer.key)) {
            return Ok(());
        }
        let owners = self.law.policy().owners();
        let owns = |name: &String| owners.iter().any(|o| o.value.eq_ignore_ascii_case(name));
        if owners.is_empty() || signer.names.iter().any(owns) {
            return Ok(());
        }
        Err(refused(format!("{} does not own the policy", signer.names[0])).into())
    }

    /// A law that nobody could read would refuse everybody afterwards.
    fn readable(&self, new: &Oid) -> Verdict {
        match Law::at(self.repo, Some(new))? {
            Law::Ready(_) => Ok(()),
            Law::Unsigned(_, why) | Law::Unreadable(why) => Err(Refusal::new(
                "policy",
                format!("what it would put in force cannot be read: {why}"),
                format!("{}; git agent trust signers check", policy::PATH),
            )
            .into()),
        }
    }
}

pub(super) fn unreadable(why: &str) -> Refusal {
    Refusal::new(
        "policy",
        format!("the policy in force cannot be read: {why}"),
        "a root signer repairs it with a signed commit that changes nothing else",
    )
}
