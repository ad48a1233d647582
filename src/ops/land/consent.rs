//! Whether a person said yes to exactly this. The only maker of a [`Warrant`].

use crate::git::Repo;
use crate::model::approval::Lacking;
use crate::model::{Approve, Body, Digest, Failure, Head, Kind, Mode, Oid, Phase, RunId, RunName};
use crate::ops::authority::{Authority, Case};
use crate::ops::show::Shown;
use crate::text::Untrusted;

/// What the latest result proposes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The run.
    pub run: RunId,
    /// Its name.
    pub name: RunName,
    /// The commit the difference is against.
    pub base: Oid,
    /// The snapshot.
    pub snapshot: Oid,
    /// Its tree.
    pub tree: Oid,
    /// Digest of the difference, as the ledger has it.
    pub change: Digest,
}

impl Proposal {
    /// The latest result of a run.
    pub fn of(shown: &Shown) -> Result<Self, Failure> {
        let name = &shown.head.name;
        shown.tip.understood()?;
        if let Some((v, kind)) = shown.chain.unknown() {
            // Nothing can be appended after it, so nothing may land.
            return Err(Failure::fatal(format!(
                "run '{name}' holds an event '{}' of format version {v}, which this git-agent does not know",
                Untrusted::new(kind)
            ))
            .hint("install a newer git-agent"));
        }
        let latest = shown.head.result.as_ref();
        let result = shown.chain.known().rev().find_map(|(_, e)| match &e.body {
            Body::Result(r) if latest.is_some_and(|l| l.seq == e.seq) => Some(r),
            _ => None,
        });
        let Some(r) = result else {
            return Err(Failure::fatal(format!("run '{name}' has no result yet"))
                .hint(format!("take one: git agent finish {name}")));
        };
        Ok(Self {
            run: shown.tip.run.clone(),
            name: name.clone(),
            base: r.base.clone(),
            snapshot: r.snapshot.clone(),
            tree: r.tree.clone(),
            change: r.change,
        })
    }
}

/// Proof that a person approved exactly this change. Only `check` makes one, and whoever lands a change
/// consumes it: nothing about the change is looked up again.
#[derive(Debug)]
pub struct Warrant {
    proposal: Proposal,
    approval: Oid,
    approval_digest: Digest,
    mode: Mode,
    target: Option<String>,
    landed: bool,
}

impl Warrant {
    /// What was approved.
    pub fn proposal(&self) -> &Proposal {
        &self.proposal
    }

    /// The event that says so.
    pub fn approval(&self) -> &Oid {
        &self.approval
    }

    /// SHA-256 of that event's bytes, which stays the same when the run is archived.
    pub fn approval_digest(&self) -> &Digest {
        &self.approval_digest
    }

    /// On what it may land.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The branch it was meant for.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// Whether the ledger says that it landed already.
    pub fn landed(&self) -> bool {
        self.landed
    }
}

/// The warrant for the latest result, or what lacks (exit status 4). `wanted` is the digest that the caller
/// means, `now` seconds since the epoch.
pub fn check(repo: &Repo, shown: &Shown, wanted: Option<&Digest>, now: i64) -> Result<Warrant, Failure> {
    let name = &shown.head.name;
    let lacks = |what: String| {
        Failure::new(Kind::Consent, what).hint(format!("look at it and decide: git agent review {name}"))
    };
    let landed = match shown.head.phase {
        Phase::Applied | Phase::Landed => true,
        Phase::Rejected => return Err(lacks(format!("run '{name}' was rejected"))),
        _ => false,
    };
    let nobody = || lacks(format!("nobody has approved the latest result of run '{name}'"));
    if shown.head.result.is_none() && !landed {
        return Err(nobody());
    }
    let proposal = Proposal::of(shown)?;
    let Some(case) = Case::of(&shown.chain) else { return Err(nobody()) };
    let (approval, mode, target) = match Authority::here(repo)?.judge(repo, &case, None, now)? {
        Ok(approved) => match approved.events.last() {
            Some(event) => (event.clone(), approved.mode, approved.target),
            None => return Err(nobody()),
        },
        // What landed was approved then; a policy or a key of today does not undo it.
        Err(_) if landed => match word_of(shown, &proposal) {
            Some((event, word)) => (event.clone(), word.mode, word.target.clone()),
            None => return Err(nobody()),
        },
        Err(lacking) if lacking == [Lacking::Nobody] => return Err(nobody()),
        Err(lacking) => {
            let what: Vec<String> = lacking.iter().map(ToString::to_string).collect();
            return Err(lacks(format!("run '{name}' may not land: {}", what.join("; "))));
        }
    };
    if let Some(wanted) = wanted
        && *wanted != proposal.change
    {
        return Err(lacks(format!("run '{name}' is approved as {}, not as {wanted}", proposal.change)));
    }
    let event = shown.chain.known().find(|(oid, _)| **oid == approval).map(|(_, e)| e);
    let event = event.ok_or_else(|| Failure::fatal("the approval cannot be found"))?;
    let bytes = event.encode().map_err(|e| Failure::fatal("the approval cannot be read").because(e))?;
    Ok(Warrant { proposal, approval, approval_digest: Digest::of(&bytes), mode, target, landed })
}

/// The newest approval of a proposal.
fn word_of<'s>(shown: &'s Shown, proposal: &Proposal) -> Option<(&'s Oid, &'s Approve)> {
    shown.chain.known().rev().find_map(|(oid, e)| match &e.body {
        Body::Approve(a) if a.snapshot == proposal.snapshot && a.change == proposal.change => Some((oid, a)),
        _ => None,
    })
}

/// Whether the ledger still allows it at the moment of the append.
pub(super) fn still(head: &Head, snapshot: &Oid) -> Result<(), Failure> {
    let latest = head.result.as_ref().is_some_and(|r| r.snapshot == *snapshot);
    if head.phase == Phase::Approved && latest {
        return Ok(());
    }
    Err(Failure::new(Kind::Consent, format!("run '{}' is not approved any more", head.name))
        .hint(format!("what happened: git agent log {}", head.name)))
}
