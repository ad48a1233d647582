//! What a person decided about a result: recorded only if the result is still the one that was looked at.

use super::authority::Authority;
use super::person;
use super::review::Review;
use super::sign::Key;
use crate::git::Repo;
use crate::ledger::{self, Draft, Ledger, Sign, Tip, signers};
use crate::model::approval::Standing;
use crate::model::{
    Approve, Body, Digest, Failure, Head, How, Keep, Kind, Mode, Oid, Phase, Revoke, RunName,
};
use std::time::Duration;

/// How an approval is given here, settled before anything is recorded.
#[derive(Debug)]
pub struct Way {
    how: How,
    key: Option<Key>,
    authority: Authority,
}

impl Way {
    /// In which way, for showing.
    pub fn how(&self) -> How {
        self.how
    }

    /// What binds it here.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }
}

/// What an approval may be made narrower by.
#[derive(Debug, Clone, Copy, Default)]
pub struct Narrow {
    /// Only the very tree on the base may land.
    pub exact: bool,
    /// How long it counts.
    pub expires: Option<Duration>,
}

/// Settles how an approval may be given here, or refuses with exit status 4. At the terminal no digest is
/// needed; without one the approval must be signed, or the person's own configuration must allow it, and the
/// digest must be given in full.
pub fn how(repo: &Repo, review: &Review, digest: Option<Digest>) -> Result<Way, Failure> {
    let name = &review.shown.head.name;
    person::require_person(&format!("approve run '{name}'"))?;
    if let Some(digest) = digest
        && digest != review.result.change
    {
        return Err(Failure::new(
            Kind::Consent,
            format!("run '{name}' does not propose {digest} but {}", review.result.change),
        )
        .hint(format!("look at what it proposes: git agent review --diff {name}")));
    }
    let way = way(repo)?;
    if person::require_terminal("approve").is_ok() {
        return Ok(way);
    }
    let signed = way.how == How::Signed;
    if !signed && repo.config()?.personal("agent.approve") != Some("unattended") {
        return Err(Failure::new(Kind::Consent, format!("run '{name}' was not approved: there is no terminal"))
            .hint("review it at a terminal; or allow it in your own configuration: git config --global agent.approve unattended"));
    }
    if digest.is_none() {
        return Err(Failure::new(Kind::Consent, "an approval without a terminal needs the digest in full")
            .hint(format!("git agent review {name} --approve --digest {}", review.result.change)));
    }
    Ok(if signed { way } else { Way { how: How::Unattended, ..way } })
}

/// How a person at the terminal approves: signed where the policy or `agent.sign` asks for it.
pub fn way(repo: &Repo) -> Result<Way, Failure> {
    let authority = Authority::here(repo)?;
    let config = repo.config()?;
    if authority.rules().signed && authority.signers.is_none() {
        return Err(Failure::new(
            Kind::Consent,
            format!("the policy asks for signed approvals, and there is no {}", signers::ALLOWED),
        )
        .hint("git agent trust signers add ADDRESS KEY-FILE"));
    }
    if !authority.rules().signed && !config.flag("agent.sign", false) {
        return Ok(Way { how: How::Terminal, key: None, authority });
    }
    let actor = ledger::actor(config);
    let key = Key::of(repo, &format!("{} <{}>", actor.name, actor.email))?;
    Ok(Way { how: How::Signed, key: Some(key), authority })
}

/// Settles how a person may say yes to a merged result here, which no approval covers: at the terminal when they are
/// asked (then the answer is for the caller to get), else with its digest in full, as their own configuration allows.
pub fn how_merged(
    repo: &Repo,
    name: &RunName,
    change: Digest,
    digest: Option<Digest>,
) -> Result<How, Failure> {
    person::require_person(&format!("land the merged result of run '{name}'"))?;
    let look = format!("look at it: git agent apply --merge --dry-run {name}");
    match digest {
        Some(digest) if digest != change => Err(Failure::new(
            Kind::Consent,
            format!("the merged result of run '{name}' is {change}, not {digest}"),
        )
        .hint(look)),
        Some(_) if person::require_terminal("land a merged result").is_ok() => Ok(How::Terminal),
        Some(_) if repo.config()?.personal("agent.approve") == Some("unattended") => Ok(How::Unattended),
        Some(_) => Err(Failure::new(
            Kind::Consent,
            format!("the merged result of run '{name}' waits for a person, and there is no terminal"),
        )
        .hint("allow it in your own configuration: git config --global agent.approve unattended")),
        None => Err(Failure::new(
            Kind::Consent,
            format!("the merged result of run '{name}' is not what was approved; it needs a look of its own"),
        )
        .hint(look)
        .hint(format!("then: git agent apply --merge --digest {change} {name}"))),
    }
}

/// Records the approval of exactly what `review` holds.
pub fn approve(repo: &Repo, review: &Review, way: &Way, narrow: Narrow, now: i64) -> Result<Tip, Failure> {
    super::judge::allowed(review.shown.head.name.as_str(), review.decision.as_ref())?;
    let result = &review.result;
    let spawn = review.shown.chain.known().find_map(|(_, e)| match &e.body {
        Body::Spawn(s) => Some(s),
        _ => None,
    });
    let spawn = spawn.ok_or_else(|| Failure::fatal("the run has no spawn event"))?;
    let rules = way.authority.rules();
    let lives = narrow.expires.map(|d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
    let lives = [lives, rules.expiry].into_iter().flatten().min();
    let body = Body::Approve(Approve {
        repo: spawn.repo.clone(),
        base: result.base.clone(),
        snapshot: result.snapshot.clone(),
        tree: result.tree.clone(),
        change: result.change,
        policy: way.authority.policy.sha256(),
        target: review.target.clone(),
        mode: if narrow.exact || rules.exact { Mode::Exact } else { Mode::Carry },
        how: way.how,
        expires: lives.map(|l| now.saturating_add(l)),
    });
    let sign = |bytes: &[u8]| signed(way, bytes, now);
    let sign: Option<&Sign<'_>> = if way.key.is_some() { Some(&sign) } else { None };
    append(repo, review, body, sign, now)
}

/// A signature that will count: one that nobody would take is not worth recording.
fn signed(way: &Way, bytes: &[u8], now: i64) -> Result<Vec<u8>, Failure> {
    let key = way.key.as_ref().ok_or_else(|| Failure::fatal("there is no key to sign with"))?;
    let signature = key.sign(signers::APPROVAL, bytes)?;
    let Some(known) = &way.authority.signers else { return Ok(signature) };
    let useless = |why: String| {
        Failure::new(Kind::Consent, format!("your signature would not count: {why}"))
            .hint("who may sign: git agent trust signers list")
    };
    match known.verify(signers::APPROVAL, &signature, bytes, now)? {
        Err(why) => Err(useless(why)),
        Ok(signer) => match way.authority.standing(&signer.names) {
            Standing::Person => Ok(signature),
            Standing::Agent => {
                Err(useless(format!("{} is an agent, and an agent never approves", signer.names[0])))
            }
            Standing::Nobody => Err(useless(format!("{} has no role in the policy", signer.names[0]))),
        },
    }
}

/// Records that a person looked and left it.
pub fn keep(repo: &Repo, review: &Review, now: i64) -> Result<Tip, Failure> {
    append(repo, review, Body::Keep(Keep { snapshot: review.result.snapshot.clone() }), None, now)
}

/// Takes back whatever was approved of the latest result.
pub fn revoke(repo: &Repo, review: &Review, reason: Option<String>, now: i64) -> Result<Tip, Failure> {
    person::require_person(&format!("revoke the approval of run '{}'", review.shown.head.name))?;
    let snapshot = review.result.snapshot.clone();
    let draft = draft(repo, Body::Revoke(Revoke { snapshot: snapshot.clone(), reason }), now)?;
    Ledger::new(repo).append(&review.shown.tip.run, &draft, |head| match head.phase {
        Phase::Rejected | Phase::Pruned => Err(Failure::new(
            Kind::No,
            format!("run '{}' is {}", head.name, head.phase.with_liveness(false).as_str()),
        )),
        _ if head.result.as_ref().is_some_and(|r| r.snapshot == snapshot) => Ok(()),
        _ => Err(newer(head)),
    })
}

fn draft(repo: &Repo, body: Body, now: i64) -> Result<Draft, Failure> {
    let actor = ledger::actor(repo.config()?);
    Ok(Draft { body, att: Vec::new(), evidence: Vec::new(), time: now, actor })
}

fn append(
    repo: &Repo,
    review: &Review,
    body: Body,
    sign: Option<&Sign<'_>>,
    now: i64,
) -> Result<Tip, Failure> {
    let snapshot = review.result.snapshot.clone();
    let draft = draft(repo, body, now)?;
    Ledger::new(repo).append_signed(&review.shown.tip.run, &draft, sign, |head| still(head, &snapshot))
}

fn newer(head: &Head) -> Failure {
    Failure::fatal(format!("run '{}' has a newer result than the one you looked at", head.name))
        .hint(format!("git agent review {}", head.name))
}

/// The run still waits for a word, and about this very snapshot.
fn still(head: &Head, snapshot: &Oid) -> Result<(), Failure> {
    let latest = head.result.as_ref().is_some_and(|r| r.snapshot == *snapshot);
    match head.phase {
        Phase::Proposed | Phase::Approved | Phase::Kept if latest => Ok(()),
        Phase::Proposed | Phase::Approved | Phase::Kept => Err(newer(head)),
        phase => Err(Failure::fatal(format!(
            "run '{}' does not wait for a decision: it is {}",
            head.name,
            phase.with_liveness(false).as_str()
        ))),
    }
}
