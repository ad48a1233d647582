//! Branches: what an agent's branch must be, and which commits on any other need an approval.

use super::{Judge, Refusal, Verdict, is_agent};
use crate::git::{NewCommit, ObjectKind};
use crate::ledger::change;
use crate::ledger::signers::COMMIT;
use crate::model::approval::{Lacking, Standing};
use crate::model::{Digest, Mode, Oid};
use crate::ops::authority::{Authority, Case};
use crate::policy::Protection;
use std::collections::{HashMap, HashSet};

/// Whose address a snapshot has.
const OWN: &str = "@git-agent.invalid";

impl Judge<'_> {
    /// An agent's branch: one commit on the base, with exactly the tree that was approved. Message, author and
    /// signature are free.
    pub(super) fn agent_branch(&self, name: &str, new: &Oid, known: &[&Oid]) -> Verdict {
        let authority = self.law.for_agents()?;
        let commit = self.repo.objects()?.commit(new)?;
        let chains = self.runs.of_branch(name)?;
        let mut why = None;
        for chain in &chains {
            let run = chain.head.as_ref().map_or_else(String::new, |h| h.name.to_string());
            let Some(case) = Case::of(chain) else {
                why = why.or(Some(Refusal::lacks("agent-branch", format!("run '{run}' has no result"), "")));
                continue;
            };
            if commit.parents != [case.result.base.clone()] || commit.tree != case.result.tree {
                let what = "it is not the latest result of its run: one commit on the base with its tree";
                why = why.or(Some(Refusal::new("agent-branch", what, format!("git agent push {run}"))));
                continue;
            }
            match self.approved(authority, &case, None)? {
                Ok(_) => {
                    self.check_result(&case)?;
                    // The base is the person's; whatever came with it is judged as on a branch of theirs.
                    return self.commits(name, &case.result.base, known, Protection::Pusher);
                }
                Err(lacking) => why = Some(lacks("agent-branch", &run, &lacking)),
            }
        }
        Err(why
            .unwrap_or_else(|| {
                Refusal::lacks(
                    "agent-branch",
                    "no run of the ledger has this branch",
                    "push it with its run: git agent push RUN",
                )
            })
            .into())
    }

    /// Whether none of these commits needs a look where protection is `pusher`: asked once for all the refs of
    /// a push, most of which are people's.
    pub(super) fn all_peoples(&self, tips: &[&Oid], known: &[&Oid]) -> Verdict<bool> {
        if self.pusher_is_agent {
            return Ok(false);
        }
        let tips: Vec<&Oid> = tips.iter().copied().filter(|t| !known.contains(t)).collect();
        if tips.is_empty() {
            return Ok(true);
        }
        Ok(!self.repo.new_commits(&tips, known)?.iter().any(|c| self.is_agents(c)))
    }

    fn approved(
        &self,
        authority: &Authority,
        case: &Case<'_>,
        target: Option<&str>,
    ) -> Verdict<Result<Mode, Vec<Lacking>>> {
        Ok(authority.judge(self.repo, case, target, self.now)?.map(|a| a.mode))
    }

    /// The result is what it says: the snapshot is one commit on the base, and the digest is that of the
    /// difference.
    fn check_result(&self, case: &Case<'_>) -> Verdict {
        let result = case.result;
        let snapshot = self.repo.objects()?.commit(&result.snapshot)?;
        let found = self.difference(&result.base, &result.snapshot)?;
        if snapshot.parents != [result.base.clone()] || snapshot.tree != result.tree || found != result.change
        {
            return Err(Refusal::new("ledger", "the run's result is not what its snapshot holds", "").into());
        }
        Ok(())
    }

    fn difference(&self, from: &Oid, to: &Oid) -> Verdict<Digest> {
        Ok(change::digest(self.repo, &change::entries(self.repo, from, to)?)?)
    }

    /// The commits that `new` would bring to `name`, where `known` are there already.
    pub(super) fn commits(&self, name: &str, new: &Oid, known: &[&Oid], level: Protection) -> Verdict {
        if known.contains(&new) {
            return Ok(());
        }
        let new_commits = self.repo.new_commits(&[new], known)?;
        if new_commits.is_empty() {
            return Ok(());
        }
        let all: HashMap<&Oid, &NewCommit> = new_commits.iter().map(|c| (&c.id, c)).collect();
        let mut first_parents = Vec::new();
        let mut at = new;
        while let Some(commit) = all.get(at) {
            first_parents.push(*commit);
            match commit.parents.first() {
                Some(parent) => at = parent,
                None => break,
            }
        }
        let main_line: HashSet<&Oid> = first_parents.iter().map(|c| &c.id).collect();
        let target = name.starts_with("refs/heads/").then_some(name);
        for step in first_parents.iter().rev() {
            self.step(step, &all, &main_line, target, level)?;
        }
        if level == Protection::Signed {
            for commit in &new_commits {
                self.signed(commit, target)?;
            }
        }
        Ok(())
    }

    /// One step of the branch: a commit, or a merge with all that it brings.
    fn step(
        &self,
        step: &NewCommit,
        all: &HashMap<&Oid, &NewCommit>,
        main_line: &HashSet<&Oid>,
        target: Option<&str>,
        level: Protection,
    ) -> Verdict {
        let asked = level == Protection::Approved || self.pusher_is_agent || self.is_agents(step);
        if step.parents.len() < 2 {
            return if asked { self.landed(step, target) } else { Ok(()) };
        }
        let mut side: Vec<&NewCommit> = Vec::new();
        let mut open: Vec<&Oid> = step.parents[1..].iter().collect();
        let mut seen: HashSet<&Oid> = HashSet::new();
        while let Some(at) = open.pop() {
            if let Some(commit) = all.get(at)
                && !main_line.contains(at)
                && seen.insert(at)
            {
                side.push(commit);
                open.extend(&commit.parents);
            }
        }
        let agents: Vec<&&NewCommit> = side.iter().filter(|c| self.is_agents(c)).collect();
        if !asked && agents.is_empty() {
            return Ok(());
        }
        // The whole merge is one approved change, seen from the branch.
        let whole = self.landed(step, target);
        if whole.is_ok() || asked {
            return whole;
        }
        // Or a person merged approved commits, and the merge adds nothing of its own.
        for commit in &agents {
            self.landed(commit, target)?;
        }
        let [ours, theirs] = &step.parents[..] else { return whole };
        let tree = self.repo.objects()?.commit(&step.id)?.tree;
        if self.repo.merged_tree(ours, theirs)? == Some(tree) {
            return Ok(());
        }
        Err(Refusal::new(
            "merge",
            format!("merge {} of an agent's work holds more than what it merges", step.id.short()),
            "merge it without other changes, and commit those on their own",
        )
        .into())
    }

    /// Whether a commit says that it is an agent's.
    fn is_agents(&self, commit: &NewCommit) -> bool {
        !commit.runs.is_empty()
            || commit
                .mails
                .iter()
                .any(|m| m.to_ascii_lowercase().ends_with(OWN) || is_agent(self.law.policy(), m))
    }

    /// Whether a commit is exactly one approved change. A merge is judged by its difference to its first parent.
    fn landed(&self, commit: &NewCommit, target: Option<&str>) -> Verdict {
        let authority = self.law.for_agents()?;
        let short = commit.id.short();
        let Some(parent) = commit.parents.first() else {
            return Err(Refusal::lacks(
                "approval",
                format!("commit {short} needs an approval and has no parent"),
                "",
            )
            .into());
        };
        let change = self.difference(parent, &commit.id)?;
        let mut why = None;
        for chain in self.runs.of_change(&commit.runs, &change)? {
            let run = chain.head.as_ref().map_or_else(String::new, |h| h.name.to_string());
            let Some(case) = Case::of(&chain) else { continue };
            if case.result.change != change {
                let what = format!("commit {short} is not the change that run '{run}' proposes");
                why = why.or(Some(Refusal::new("approval", what, format!("git agent review {run}"))));
                continue;
            }
            let mode = match self.approved(authority, &case, target)? {
                Ok(mode) => mode,
                Err(lacking) => {
                    why = Some(lacks("approval", &run, &lacking));
                    continue;
                }
            };
            let tree = self.repo.objects()?.commit(&commit.id)?.tree;
            if mode == Mode::Exact
                && (commit.parents != [case.result.base.clone()] || tree != case.result.tree)
            {
                let what = format!(
                    "run '{run}' is approved for its very base alone (exact), and {short} is elsewhere"
                );
                why = Some(Refusal::new(
                    "approval",
                    what,
                    format!("start a run on the branch as it is: git agent spawn (was {run})"),
                ));
                continue;
            }
            self.check_result(&case)?;
            self.once(commit, parent, &case, &change)?;
            return Ok(());
        }
        Err(why
            .unwrap_or_else(|| {
                Refusal::lacks(
                    "approval",
                    format!("commit {short} needs an approval, and no run in the ledger proposes it"),
                    "push its run, too: git agent push RUN",
                )
            })
            .into())
    }

    /// An approval lands once: what was taken out again needs another yes.
    fn once(&self, commit: &NewCommit, parent: &Oid, case: &Case<'_>, change: &Digest) -> Verdict {
        if *parent == case.result.base {
            return Ok(());
        }
        let run = case.chain.run.as_str();
        for before in self.repo.new_commits(&[parent], &[&case.result.base])? {
            let names_it = before
                .runs
                .iter()
                .any(|r| r == run || Some(r.as_str()) == case.chain.head.as_ref().map(|h| h.name.as_str()));
            let Some(above) = before.parents.first().filter(|_| names_it && before.id != commit.id) else {
                continue;
            };
            if self.difference(above, &before.id)? == *change {
                let what = format!("run {run} has landed as {} already", before.id.short());
                return Err(Refusal::new("approval", what, "start another run for it").into());
            }
        }
        Ok(())
    }

    /// Protection `signed`: every commit has a person's signature, or is approved, which is one.
    fn signed(&self, commit: &NewCommit, target: Option<&str>) -> Verdict {
        if self.is_agents(commit) && self.landed(commit, target).is_ok() {
            return Ok(());
        }
        let short = commit.id.short();
        match self.signer_of(&commit.id)? {
            Ok(_) => Ok(()),
            Err(why) => Err(Refusal::new(
                "signed",
                format!("commit {short} has no person's signature: {why}"),
                "git commit --amend -S, or git rebase --exec 'git commit --amend --no-edit -S'",
            )
            .into()),
        }
    }

    /// The person who signed a commit, by the law; else why there is none.
    pub(super) fn signer_of(&self, commit: &Oid) -> Verdict<Result<crate::model::Signer, String>> {
        let bytes = self.repo.objects()?.expect(commit, ObjectKind::Commit, 1 << 20)?;
        let Some((signature, signed)) = split(&bytes) else { return Ok(Err("it is not signed".into())) };
        if let Some(root) = &self.root
            && let Ok(signer) = root.verify(COMMIT, &signature, &signed, self.now)?
        {
            return Ok(Ok(signer));
        }
        let authority = match self.law.for_agents() {
            Ok(authority) => authority,
            Err(super::Trouble::Refused(r)) => return Ok(Err(r.why)),
            Err(e) => return Err(e),
        };
        Ok(match authority.signer(COMMIT, &signature, &signed, self.now)? {
            Ok(signer) if authority.standing(&signer.names) == Standing::Person => Ok(signer),
            Ok(signer) => Err(format!("{} is no person to the policy", signer.names[0])),
            Err(why) => Err(why),
        })
    }
}

fn lacks(rule: &'static str, run: &str, lacking: &[Lacking]) -> Refusal {
    let what: Vec<String> = lacking.iter().map(ToString::to_string).collect();
    let why = format!("run '{run}': {}", what.join("; "));
    Refusal::lacks(rule, why, format!("git agent review {run}, then git agent push {run}"))
}

/// A commit's signature and the bytes it is over, as git makes them: the commit without its signature headers.
fn split(commit: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut signature, mut signed) = (Vec::new(), Vec::new());
    let mut rest = commit;
    let mut taking = false;
    while !rest.is_empty() {
        let end = rest.iter().position(|b| *b == b'\n').map_or(rest.len(), |n| n + 1);
        let (line, after) = rest.split_at(end);
        if line == b"\n" {
            signed.extend_from_slice(rest);
            break;
        }
        let value = [&b"gpgsig "[..], b"gpgsig-sha256 "].iter().find_map(|h| line.strip_prefix(*h));
        match (value, line.strip_prefix(b" ")) {
            // Two signatures would let one hide the other.
            (Some(_), _) if !signature.is_empty() => return None,
            (Some(value), _) => {
                taking = true;
                signature.extend_from_slice(value);
            }
            (None, Some(more)) if taking => signature.extend_from_slice(more),
            _ => {
                taking = false;
                signed.extend_from_slice(line);
            }
        }
        rest = after;
    }
    (!signature.is_empty()).then_some((signature, signed))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_commit_without_its_signature() {
        let commit = b"tree t\nparent p\nauthor a\ncommitter c\ngpgsig -----BEGIN\n  x\n -----END\nencoding e\n\nmessage\n gpgsig no\n";
        let (signature, signed) = split(commit).unwrap();
        assert_eq!(signature, b"-----BEGIN\n x\n-----END\n");
        assert_eq!(signed, b"tree t\nparent p\nauthor a\ncommitter c\nencoding e\n\nmessage\n gpgsig no\n");
        assert_eq!(split(b"tree t\n\ngpgsig no\n"), None);
        assert_eq!(split(b"tree t\ngpgsig a\ngpgsig-sha256 b\n\nm\n"), None);
    }
}
