//! Which policy is in force, and the consent that one needs which allows more than the built-in default.

mod store;

pub use store::{Accepted, Given, Store};

use super::person;
use crate::git::{ObjectKind, Repo};
use crate::model::{Digest, Failure, Kind, Oid, PolicyInForce};
use crate::os::files;
use crate::policy::{BUILT_IN, Difference, PATH, Policy, needs_consent};
use crate::text::Untrusted;

/// The person's own word on where the policy comes from: a revision. System and global configuration only.
const POLICY_REF: &str = "agent.policyref";

/// The policy that counts for a repository, whether or not it may be in force.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Compiled.
    pub policy: Policy,
    /// The commit it stands in; `None` is the built-in default.
    pub commit: Option<Oid>,
    /// Its bytes.
    pub text: Vec<u8>,
    /// `agent.policyRef`, where the person set it.
    pub by_ref: Option<String>,
}

impl Candidate {
    /// What the person knows it by.
    pub fn name(&self) -> String {
        match (&self.commit, &self.by_ref) {
            (None, _) => "the built-in one".into(),
            (Some(commit), None) => format!("that of {}", commit.short()),
            (Some(commit), Some(rev)) => {
                format!("that of {} (agent.policyRef is {})", commit.short(), Untrusted::new(rev))
            }
        }
    }

    /// As the ledger has it.
    pub fn in_force(&self) -> PolicyInForce {
        let source = self.commit.as_ref().map_or_else(|| "built-in".to_owned(), Oid::to_string);
        PolicyInForce { source, sha256: self.policy.sha256() }
    }
}

/// The commit whose policy and signers count: that of `agent.policyRef`, else `head`, which is checked out.
pub fn commit(repo: &Repo, head: Option<&Oid>) -> Result<Option<Oid>, Failure> {
    match repo.config()?.personal(POLICY_REF) {
        None => Ok(head.cloned()),
        // Never the checked-out one instead: the person wanted another.
        Some(rev) => repo.commit_of(rev)?.map(Some).ok_or_else(|| {
            Failure::fatal(format!("agent.policyRef is '{}', no commit here", Untrusted::new(rev)))
                .hint("fetch it, or change it: git config --global agent.policyRef REV")
        }),
    }
}

/// The policy of the commit that is checked out (`head`), or of `agent.policyRef`; the built-in one where
/// that commit has none. Never the work tree's copy, never a run's base.
pub fn candidate(repo: &Repo, head: Option<&Oid>) -> Result<Candidate, Failure> {
    let by_ref = repo.config()?.personal(POLICY_REF).map(str::to_owned);
    let commit = commit(repo, head)?;
    let built_in = |by_ref| Candidate {
        policy: Policy::built_in().clone(),
        commit: None,
        text: BUILT_IN.as_bytes().to_vec(),
        by_ref,
    };
    let Some(commit) = &commit else { return Ok(built_in(by_ref)) };
    let objects = repo.objects()?;
    match objects.entry_at(&objects.commit(commit)?.tree, PATH)? {
        None => Ok(built_in(by_ref)),
        Some(entry) if matches!(entry.mode, 0o100_644 | 0o100_755) => {
            let text = objects.expect(&entry.oid, ObjectKind::Blob, 1 << 20)?;
            let policy = Policy::parse(&text, PATH)?;
            Ok(Candidate { policy, commit: Some(commit.clone()), text, by_ref })
        }
        Some(_) => Err(Failure::fatal(format!("{PATH} is not a regular file in {}", commit.short()))),
    }
}

/// What a policy needs before it is in force, and what it has.
#[derive(Debug)]
pub struct Standing {
    /// What it allows beyond the built-in default.
    pub looser: Vec<Difference>,
    /// The consent to exactly this policy.
    pub accepted: Option<Accepted>,
    /// The policy that was accepted last, when it is another one.
    pub last: Option<Accepted>,
    /// What it allows beyond that one, else beyond the built-in default: what a person has to look at.
    pub fresh: Vec<Difference>,
}

impl Standing {
    /// Whether the policy may be in force.
    pub fn in_force(&self) -> bool {
        self.looser.is_empty() || self.accepted.is_some()
    }
}

/// Looks a policy's standing up. What only tightens needs no look-up at all.
pub fn standing(repo: &Repo, policy: &Policy) -> Result<Standing, Failure> {
    let looser = policy.loosenings(Policy::built_in());
    if looser.is_empty() {
        return Ok(Standing { looser, accepted: None, last: None, fresh: Vec::new() });
    }
    let store = Store::of(repo)?;
    let accepted = store.find(&policy.sha256())?;
    if accepted.is_some() {
        return Ok(Standing { looser, accepted, last: None, fresh: Vec::new() });
    }
    let last = store.last()?;
    // One that an older or newer version accepted may not be readable here: then everything is new.
    let known = last.as_ref().and_then(|l| Policy::parse(l.policy.as_bytes(), PATH).ok());
    let fresh = known.map_or_else(|| looser.clone(), |known| policy.loosenings(&known));
    Ok(Standing { looser, accepted, last, fresh })
}

/// The policy in force, or the refusal (exit status 4) of one that needs a consent it does not have. With it
/// come its bytes and what the person should know.
pub fn in_force(repo: &Repo, head: &Oid) -> Result<(Policy, PolicyInForce, Vec<u8>, Vec<String>), Failure> {
    let candidate = candidate(repo, Some(head))?;
    let standing = standing(repo, &candidate.policy)?;
    if !standing.in_force() {
        return Err(lacking(&candidate, &standing));
    }
    let notes = differs(repo, &candidate).into_iter().collect();
    let in_force = candidate.in_force();
    Ok((candidate.policy, in_force, candidate.text, notes))
}

/// The refusal of a policy that lacks consent.
pub fn lacking(candidate: &Candidate, standing: &Standing) -> Failure {
    let name = match &candidate.commit {
        Some(commit) => format!("{PATH} of {}", commit.short()),
        None => PATH.to_owned(),
    };
    needs_consent(&name, &standing.fresh, standing.last.is_some())
}

/// One sentence when the work tree's copy is not what is in force.
fn differs(repo: &Repo, candidate: &Candidate) -> Option<String> {
    let there = match files::read_bounded(&repo.work_tree()?.join(PATH), 1 << 20) {
        Ok(None) => return candidate.commit.as_ref().map(|_| differs_text(candidate, "none")),
        Ok(Some(bytes)) => bytes,
        // A link, or too large: certainly not the same file.
        Err(_) => return Some(differs_text(candidate, "another")),
    };
    // git may have checked it out with the other line ends.
    let plain = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    if candidate.commit.is_some() && plain(&there) == plain(&candidate.text) {
        return None;
    }
    Some(differs_text(candidate, "another"))
}

fn differs_text(candidate: &Candidate, there: &str) -> String {
    let name = candidate.name();
    if there == "none" {
        return format!("the policy in force is {name}; your work tree has none");
    }
    format!("the policy in force is {name}, not the one in your work tree: only what is committed counts")
}

/// Settles how consent to `digest` may be given here, or refuses with exit status 4. `None`: ask at the
/// terminal. `given` is the digest that the person typed.
pub fn how(candidate: &Candidate, given: Option<Digest>, can_ask: bool) -> Result<Option<Given>, Failure> {
    const WHAT: &str = "accept a policy";
    person::require_person(WHAT)?;
    let is = candidate.policy.sha256();
    match given {
        Some(digest) if digest == is => Ok(Some(Given::Digest)),
        Some(digest) => {
            Err(Failure::new(Kind::Consent, format!("the policy that counts is {is}, not {digest}"))
                .hint("look at it: git agent policy trust"))
        }
        None if can_ask => person::require_terminal(WHAT).map(|()| None),
        None => {
            Err(Failure::new(Kind::Consent, "the policy was not accepted: there is no terminal to ask at")
                .hint(format!("git agent policy trust --digest {is}")))
        }
    }
}
