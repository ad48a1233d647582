//! Whether what people said of a result is enough for it to land: facts in, verdict out. The one function that
//! review, apply, `git agent verify` and the gate share. Pure and total.

use super::{Actor, Approve, Body, Digest, How, Mode, Oid, Spawn};
use std::fmt;

/// How far an event's date may be ahead of our clock, in seconds.
const AHEAD: i64 = 600;

/// Who a good signature is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// The key's principals; the first is its name. Never empty.
    pub names: Vec<String>,
    /// The key's fingerprint.
    pub key: String,
}

/// What the policy makes of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// May approve.
    Person,
    /// May never approve.
    Agent,
    /// Has no role.
    Nobody,
}

/// What a policy asks of approvals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How many people.
    pub count: u8,
    /// Only signed ones count.
    pub signed: bool,
    /// The one who started the run does not count.
    pub two_person: bool,
    /// Seconds that an approval lives.
    pub expiry: Option<i64>,
    /// Whatever the approval says, only the very tree on the base may land.
    pub exact: bool,
}

/// A word about a result: an `approve`, `revoke` or `reject` event, in the order of the chain.
#[derive(Debug, Clone)]
pub struct Word<'a> {
    /// The event's commit.
    pub event: &'a Oid,
    /// Its place in the chain.
    pub index: usize,
    /// The places of all events that its writer knew.
    pub knew: u128,
    /// Who says to have written it.
    pub actor: &'a Actor,
    /// When, as the writer's clock said.
    pub time: i64,
    /// What it says.
    pub body: &'a Body,
    /// Who signed it; `None` without a signature.
    pub signature: Option<Result<Signer, String>>,
    /// What the policy makes of the signer; of the actor's address where there is no good signature.
    pub standing: Standing,
}

/// What is to land.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposed {
    /// The commit the difference is against.
    pub base: Oid,
    /// The snapshot.
    pub snapshot: Oid,
    /// Its tree.
    pub tree: Oid,
    /// Digest of the difference.
    pub change: Digest,
}

/// Everything the verdict depends on.
#[derive(Debug)]
pub struct Facts<'a> {
    /// What the policy asks.
    pub rules: &'a Rules,
    /// The run's first event.
    pub spawn: &'a Spawn,
    /// Who started the run.
    pub spawner: &'a Actor,
    /// The latest result.
    pub proposed: &'a Proposed,
    /// What people said.
    pub words: &'a [Word<'a>],
    /// The branch it is to land on, full name; `None` where that is not asked.
    pub target: Option<&'a str>,
    /// Seconds since the epoch.
    pub now: i64,
}

/// An approval that is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    /// The events that say so, oldest first.
    pub events: Vec<Oid>,
    /// Who: a signer's principal, else the address that the event gives.
    pub by: Vec<String>,
    /// On what it may land.
    pub mode: Mode,
    /// The branch that was meant.
    pub target: Option<String>,
    /// Whether one of them was given unattended.
    pub unattended: bool,
}

/// What an approval lacks. `Display` is one sentence part; what others wrote is escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lacking {
    /// Nobody said anything about this result.
    Nobody,
    /// An older result of the run was approved.
    Older,
    /// Somebody rejected the run.
    Rejected(String),
    /// The approval was taken back.
    Revoked(String),
    /// It binds something else than what is proposed.
    Other(&'static str),
    /// It has no signature, and one is asked for.
    Unsigned(String, How),
    /// Its signature does not count.
    Signature(String, String),
    /// The signer is an agent.
    Agent(String),
    /// The signer has no role.
    NoRole(String),
    /// Its time is over.
    Expired(String),
    /// It is dated in the future.
    Future(String),
    /// It is for another branch.
    Target(String),
    /// Given by who started the run.
    Spawner(String),
    /// Not enough people: how many, of how many.
    Count(usize, u8),
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let safe = |t: &String| crate::text::Untrusted::new(t).to_string();
        match self {
            Lacking::Nobody => f.write_str("nobody has approved its latest result"),
            Lacking::Older => f.write_str("nobody has approved its latest result, only an older one"),
            Lacking::Rejected(by) => write!(f, "it was rejected by {}", safe(by)),
            Lacking::Revoked(by) => write!(f, "the approval was taken back by {}", safe(by)),
            Lacking::Other(what) => write!(f, "the approval is for {what}"),
            Lacking::Unsigned(by, How::Unattended) => {
                write!(
                    f,
                    "the unattended approval of {} has no signature, and the policy asks for one",
                    safe(by)
                )
            }
            Lacking::Unsigned(by, _) => {
                write!(f, "the approval of {} has no signature, and the policy asks for one", safe(by))
            }
            Lacking::Signature(by, why) => {
                write!(f, "the signature on the approval of {} does not count: {why}", safe(by))
            }
            Lacking::Agent(who) => write!(f, "{} is an agent, and an agent never approves", safe(who)),
            Lacking::NoRole(who) => write!(f, "{} is nobody to the policy's approval.signers", safe(who)),
            Lacking::Expired(by) => write!(f, "the approval of {} has expired", safe(by)),
            Lacking::Future(by) => write!(f, "the approval of {} is dated in the future", safe(by)),
            Lacking::Target(target) => write!(f, "it is approved for {} alone", safe(target)),
            Lacking::Spawner(who) => {
                write!(f, "{} started the run, and another person must approve it", safe(who))
            }
            Lacking::Count(have, need) => write!(f, "{have} of {need} approvals"),
        }
    }
}

/// Whether the words are enough, or everything they lack.
pub fn judge(facts: &Facts<'_>) -> Result<Approved, Vec<Lacking>> {
    let mut lacking = Vec::new();
    let (mut older, mut good) = (false, Vec::new());
    for word in facts.words {
        let Body::Approve(approve) = word.body else { continue };
        if approve.snapshot != facts.proposed.snapshot {
            older = true;
            continue;
        }
        match counts(facts, word, approve) {
            Ok(()) => good.push((word, approve)),
            Err(why) => lacking.push(why),
        }
    }
    // One person is one principal and one key: neither two keys nor two names make two.
    let mut distinct: Vec<(&Word<'_>, &Approve)> = Vec::new();
    for (word, approve) in good.iter().rev() {
        let same = |w: &Word<'_>| {
            let shared =
                |a: &Signer, b: &Signer| a.key == b.key || a.names.iter().any(|n| b.names.contains(n));
            match (signer(w), signer(word)) {
                (Some(a), Some(b)) => shared(a, b),
                (None, None) => w.actor.email.eq_ignore_ascii_case(&word.actor.email),
                (Some(a), None) => a.names.iter().any(|n| n.eq_ignore_ascii_case(&word.actor.email)),
                (None, Some(b)) => b.names.iter().any(|n| n.eq_ignore_ascii_case(&w.actor.email)),
            }
        };
        if !distinct.iter().any(|(w, _)| same(w)) {
            distinct.push((word, approve));
        }
    }
    distinct.reverse();
    let need = facts.rules.count.max(1);
    if distinct.len() < usize::from(need) {
        if lacking.is_empty() && distinct.is_empty() {
            let reject = facts.words.iter().rev().find(|w| matches!(w.body, Body::Reject(_)));
            lacking.push(match reject {
                Some(word) => Lacking::Rejected(name(word)),
                None if older => Lacking::Older,
                None => Lacking::Nobody,
            });
        }
        if need > 1 {
            lacking.push(Lacking::Count(distinct.len(), need));
        }
        return Err(lacking);
    }
    let exact = facts.rules.exact || distinct.iter().any(|(_, a)| a.mode == Mode::Exact);
    Ok(Approved {
        events: distinct.iter().map(|(w, _)| w.event.clone()).collect(),
        by: distinct.iter().map(|(w, _)| name(w)).collect(),
        mode: if exact { Mode::Exact } else { Mode::Carry },
        target: distinct.iter().rev().find_map(|(_, a)| a.target.clone()),
        unattended: distinct.iter().any(|(_, a)| a.how == How::Unattended),
    })
}

/// Whether one approval of the latest snapshot counts.
fn counts(facts: &Facts<'_>, word: &Word<'_>, approve: &Approve) -> Result<(), Lacking> {
    let proposed = facts.proposed;
    if approve.repo != facts.spawn.repo {
        return Err(Lacking::Other("another repository"));
    }
    if approve.base != proposed.base || approve.tree != proposed.tree || approve.change != proposed.change {
        return Err(Lacking::Other("another change"));
    }
    // A revoke or a reject that the approver did not know beats it: it came later, or at the same time elsewhere.
    let unknown = |w: &&Word<'_>| word.knew >> w.index & 1 == 0;
    for against in facts.words.iter().filter(unknown) {
        match against.body {
            Body::Revoke(r) if r.snapshot == proposed.snapshot => {
                return Err(Lacking::Revoked(name(against)));
            }
            Body::Reject(_) => return Err(Lacking::Rejected(name(against))),
            _ => {}
        }
    }
    if let Some(target) = &approve.target
        && facts.target.is_some_and(|t| t != target)
    {
        return Err(Lacking::Target(target.clone()));
    }
    match &word.signature {
        Some(Err(why)) => return Err(Lacking::Signature(name(word), why.clone())),
        None if facts.rules.signed => return Err(Lacking::Unsigned(name(word), approve.how)),
        None if approve.how == How::Signed => {
            return Err(Lacking::Signature(name(word), "there is none, though it says to be signed".into()));
        }
        Some(Ok(_)) | None => {}
    }
    match word.standing {
        Standing::Agent => return Err(Lacking::Agent(name(word))),
        Standing::Nobody if signer(word).is_some() => return Err(Lacking::NoRole(name(word))),
        Standing::Nobody | Standing::Person => {}
    }
    if facts.rules.two_person {
        let spawner = &facts.spawner.email;
        let own = match signer(word) {
            Some(s) => s.names.iter().any(|n| n.eq_ignore_ascii_case(spawner)),
            None => false,
        };
        // What the event says of itself counts against it, whoever signed.
        if own || word.actor.email.eq_ignore_ascii_case(spawner) {
            return Err(Lacking::Spawner(name(word)));
        }
    }
    if word.time > facts.now + AHEAD {
        return Err(Lacking::Future(name(word)));
    }
    let by_policy = facts.rules.expiry.map(|life| word.time.saturating_add(life));
    if [approve.expires, by_policy].into_iter().flatten().any(|end| end <= facts.now) {
        return Err(Lacking::Expired(name(word)));
    }
    Ok(())
}

fn signer<'w>(word: &'w Word<'_>) -> Option<&'w Signer> {
    word.signature.as_ref().and_then(|s| s.as_ref().ok())
}

/// Whom to call the writer: the signer's name, else the address that the event gives.
fn name(word: &Word<'_>) -> String {
    signer(word).map_or_else(|| word.actor.email.clone(), |s| s.names[0].clone())
}
