//! What a person decided about a result: recorded only if the result is still the one that was looked at.

use super::person;
use super::review::Review;
use crate::git::Repo;
use crate::ledger::{self, Draft, Ledger, Tip};
use crate::model::{Approve, Body, Digest, Failure, Head, How, Keep, Kind, Mode, Oid, Phase, RunName};

/// Settles how an approval may be given here, or refuses with exit status 4. At the terminal no digest is
/// needed; without one the person's own configuration must allow it and the digest must be given in full.
pub fn how(repo: &Repo, review: &Review, digest: Option<Digest>) -> Result<How, Failure> {
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
    if person::require_terminal("approve").is_ok() {
        return Ok(How::Terminal);
    }
    if repo.config()?.personal("agent.approve") != Some("unattended") {
        return Err(Failure::new(Kind::Consent, format!("run '{name}' was not approved: there is no terminal"))
            .hint("review it at a terminal; or allow it in your own configuration: git config --global agent.approve unattended"));
    }
    if digest.is_none() {
        return Err(Failure::new(Kind::Consent, "an unattended approval needs the digest in full")
            .hint(format!("git agent review {name} --approve --digest {}", review.result.change)));
    }
    Ok(How::Unattended)
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
pub fn approve(repo: &Repo, review: &Review, how: How, now: i64) -> Result<Tip, Failure> {
    super::judge::allowed(review.shown.head.name.as_str(), review.decision.as_ref())?;
    let result = &review.result;
    let spawn = review.shown.chain.known().find_map(|(_, e)| match &e.body {
        Body::Spawn(s) => Some(s),
        _ => None,
    });
    let spawn = spawn.ok_or_else(|| Failure::fatal("the run has no spawn event"))?;
    let body = Body::Approve(Approve {
        repo: spawn.repo.clone(),
        base: result.base.clone(),
        snapshot: result.snapshot.clone(),
        tree: result.tree.clone(),
        change: result.change,
        policy: review.policy.sha256,
        target: review.target.clone(),
        mode: Mode::Carry,
        how,
        expires: None,
    });
    append(repo, review, body, now)
}

/// Records that a person looked and left it.
pub fn keep(repo: &Repo, review: &Review, now: i64) -> Result<Tip, Failure> {
    append(repo, review, Body::Keep(Keep { snapshot: review.result.snapshot.clone() }), now)
}

fn append(repo: &Repo, review: &Review, body: Body, now: i64) -> Result<Tip, Failure> {
    let ledger = Ledger::new(repo);
    let actor = ledger::actor(repo.config()?);
    let draft = Draft { body, att: Vec::new(), evidence: Vec::new(), time: now, actor };
    let snapshot = review.result.snapshot.clone();
    ledger.append(&review.shown.tip.run, &draft, |head| still(head, &snapshot))
}

/// The run still waits for a word, and about this very snapshot.
fn still(head: &Head, snapshot: &Oid) -> Result<(), Failure> {
    let latest = head.result.as_ref().is_some_and(|r| r.snapshot == *snapshot);
    match head.phase {
        Phase::Proposed | Phase::Approved | Phase::Kept if latest => Ok(()),
        Phase::Proposed | Phase::Approved | Phase::Kept => {
            Err(Failure::fatal(format!("run '{}' has a newer result than the one you looked at", head.name))
                .hint(format!("git agent review {}", head.name)))
        }
        phase => Err(Failure::fatal(format!(
            "run '{}' does not wait for a decision: it is {}",
            head.name,
            phase.with_liveness(false).as_str()
        ))),
    }
}
