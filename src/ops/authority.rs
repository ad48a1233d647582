//! Who may say what, by one commit: its policy, its signers, and what they make of the words in a run's chain.
//! Review, apply, `git agent verify` and the gate ask here, each with the commit that binds it.

use crate::git::{ObjectKind, Repo};
use crate::ledger::signers::{self, Signers};
use crate::ledger::{Chain, Ledger};
use crate::model::approval::{self, Approved, Facts, Lacking, Proposed, Rules, Standing, Word};
use crate::model::{Actor, Body, Failure, Kind, Oid, RunResult, Signer, Spawn};
use crate::policy::{self, LandingMode, Policy, SignerRole};

/// Largest policy in bytes that is looked at.
const MAX_POLICY: u64 = 1 << 20;

/// See [`Authority::parts`].
pub type Parts = (Result<(Policy, bool), Failure>, Result<Option<Signers>, Failure>);

/// A policy and the signers beside it.
#[derive(Debug)]
pub struct Authority {
    /// The policy.
    pub policy: Policy,
    /// Whether the commit has a policy file of its own.
    pub own_policy: bool,
    /// The signers; `None` where the commit has none.
    pub signers: Option<Signers>,
}

impl Authority {
    /// What a commit says. Anything that is there and cannot be read is a refusal (exit status 4).
    pub fn at(repo: &Repo, commit: &Oid) -> Result<Self, Failure> {
        let (policy, signers) = Self::parts(repo, commit)?;
        let (policy, own_policy) = policy?;
        Ok(Self { policy, own_policy, signers: signers? })
    }

    /// The policy, with whether it is the commit's own, and the signers; each readable or not by itself.
    pub fn parts(repo: &Repo, commit: &Oid) -> Result<Parts, Failure> {
        let objects = repo.objects()?;
        let tree = objects.commit(commit)?.tree;
        let policy = match objects.entry_at(&tree, policy::PATH)? {
            None => Ok((Policy::built_in().clone(), false)),
            Some(e) if matches!(e.mode, 0o100_644 | 0o100_755) => {
                let text = objects.expect(&e.oid, ObjectKind::Blob, MAX_POLICY)?;
                Policy::parse(&text, policy::PATH).map(|p| (p, true)).map_err(Failure::from)
            }
            Some(_) => Err(Failure::new(Kind::Consent, format!("{} is not a plain file", policy::PATH))
                .hint("commit the policy as a file")),
        };
        Ok((policy, Signers::at(objects, &tree)))
    }

    /// What binds a person in this repository: the commit of `agent.policyRef`, else the one that is checked
    /// out, else the built-in policy.
    pub fn here(repo: &Repo) -> Result<Self, Failure> {
        match super::trust::commit(repo, repo.commit_of("HEAD")?.as_ref())? {
            Some(head) => Self::at(repo, &head),
            None => Ok(Self { policy: Policy::built_in().clone(), own_policy: false, signers: None }),
        }
    }

    /// What is asked of approvals.
    pub fn rules(&self) -> Rules {
        let asked = self.policy.approval();
        Rules {
            count: asked.count,
            signed: asked.signed.unwrap_or(self.signers.is_some()),
            two_person: asked.two_person,
            expiry: asked.expiry.map(|e| i64::try_from(e.as_secs()).unwrap_or(i64::MAX)),
            exact: asked.mode == LandingMode::Exact,
        }
    }

    /// What the policy makes of a principal's names. An agent's name among them decides.
    pub fn standing(&self, names: &[String]) -> Standing {
        let Some(roles) = &self.policy.approval().signers else { return Standing::Person };
        let of =
            |role| names.iter().any(|n| roles.iter().any(|(p, r)| *r == role && p.eq_ignore_ascii_case(n)));
        if of(SignerRole::Agent) {
            Standing::Agent
        } else if of(SignerRole::Person) {
            Standing::Person
        } else {
            Standing::Nobody
        }
    }

    /// Who signed `bytes`, if one of this commit's signers did.
    pub fn signer(
        &self,
        namespace: &str,
        signature: &[u8],
        bytes: &[u8],
        now: i64,
    ) -> Result<Result<Signer, String>, Failure> {
        match &self.signers {
            Some(signers) => signers.verify(namespace, signature, bytes, now),
            None => Ok(Err(format!("there is no {} to check it by", signers::ALLOWED))),
        }
    }

    /// Whether what people said of a run's latest result is enough. `target`: the branch it is to land on, full
    /// name; `None` where that is not asked. `now`: seconds since the epoch.
    pub fn judge(
        &self,
        repo: &Repo,
        case: &Case<'_>,
        target: Option<&str>,
        now: i64,
    ) -> Result<Result<Approved, Vec<Lacking>>, Failure> {
        let ledger = Ledger::new(repo);
        let mut words = Vec::new();
        for (index, (oid, event)) in case.chain.events.iter().enumerate() {
            let Some(event) = event.known() else { continue };
            if !matches!(event.body, Body::Approve(_) | Body::Revoke(_) | Body::Reject(_)) {
                continue;
            }
            let relevant = matches!(&event.body, Body::Approve(a) if a.snapshot == case.result.snapshot);
            // A word that takes away needs no key: the safe side wins.
            let signature = match ledger.signature(oid)? {
                Some((signature, bytes)) if relevant && self.signers.is_some() => {
                    Some(self.signer(signers::APPROVAL, &signature, &bytes, now)?)
                }
                Some(_) if relevant && self.rules().signed => {
                    Some(Err(format!("there is no {} to check it by", signers::ALLOWED)))
                }
                // Nobody can say whose it is, and nobody asks: as good as the word of who wrote it.
                Some(_) | None => None,
            };
            let standing = match &signature {
                Some(Ok(signer)) => self.standing(&signer.names),
                _ => self.standing(std::slice::from_ref(&event.actor.email)),
            };
            let knew = case.chain.knew[index];
            let (actor, time, body) = (&event.actor, event.time, &event.body);
            words.push(Word { event: oid, index, knew, actor, time, body, signature, standing });
        }
        let proposed = Proposed {
            base: case.result.base.clone(),
            snapshot: case.result.snapshot.clone(),
            tree: case.result.tree.clone(),
            change: case.result.change,
        };
        let (spawn, spawner) = (case.spawn, case.spawner);
        let facts =
            Facts { rules: &self.rules(), spawn, spawner, proposed: &proposed, words: &words, target, now };
        Ok(approval::judge(&facts))
    }
}

/// A run with a result that somebody may have approved.
#[derive(Debug, Clone, Copy)]
pub struct Case<'c> {
    /// The whole run, checked.
    pub chain: &'c Chain,
    /// Its first event.
    pub spawn: &'c Spawn,
    /// Who wrote that.
    pub spawner: &'c Actor,
    /// Its latest result.
    pub result: &'c RunResult,
}

impl<'c> Case<'c> {
    /// `None` when the run has no result, or holds an event that this version does not know: then nothing may
    /// land.
    pub fn of(chain: &'c Chain) -> Option<Self> {
        if chain.unknown().is_some() {
            return None;
        }
        let (spawn, spawner) = chain.known().find_map(|(_, e)| match &e.body {
            Body::Spawn(s) => Some((s, &e.actor)),
            _ => None,
        })?;
        let latest = chain.head.as_ref()?.result.as_ref()?;
        let result = chain.known().rev().find_map(|(_, e)| match &e.body {
            Body::Result(r) if e.seq == latest.seq && r.snapshot == latest.snapshot => Some(r),
            _ => None,
        })?;
        Some(Self { chain, spawn, spawner, result })
    }
}
