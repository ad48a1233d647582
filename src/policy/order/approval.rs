//! The order of approvals and of protected branches.

use super::Found;
use crate::policy::{Approval, LandingMode, Located, Protection, SignerRole};
use std::collections::BTreeMap;

pub(super) fn compare(found: &mut Found, now: &Approval, old: &Approval) {
    let Approval { count, signed, two_person, expiry, mode, signers, lines } = now;
    let line = |key: &str| lines.get(key).copied().unwrap_or(0);
    let asks = format!("asks for {count} approvals, not {}", old.count);
    found.ranked("approval.count", line("count"), old.count.cmp(count), &asks, &asks);
    // The default signs where the policy's commit has signers: `false` may switch that off, and so may the
    // default where it was `true`.
    if *signed != old.signed {
        let to_more = *signed == Some(true) || old.signed == Some(false);
        match to_more {
            true => found.tighter("approval.signed", line("signed"), "asks for signatures"),
            false => {
                found.looser("approval.signed", line("signed"), "takes approvals without a signature");
            }
        }
    }
    found.ranked(
        "approval.two_person",
        line("two_person"),
        old.two_person.cmp(two_person),
        "lets people approve their own runs",
        "lets nobody approve their own run",
    );
    // None is longer than any.
    let life = |expiry: &Option<std::time::Duration>| expiry.map_or(u64::MAX, |d| d.as_secs());
    found.ranked(
        "approval.expiry",
        line("expiry"),
        life(expiry).cmp(&life(&old.expiry)),
        "keeps approvals valid for longer",
        "keeps approvals valid for a shorter time",
    );
    let exact = |m: &LandingMode| *m == LandingMode::Exact;
    found.ranked(
        "approval.mode",
        line("mode"),
        exact(&old.mode).cmp(&exact(mode)),
        "lets an approved change land on another parent",
        "lets an approved change land on the same parent only",
    );
    match (&old.signers, signers) {
        (None, None) => {}
        (None, Some(_)) => found.tighter("approval.signers", 0, "says who may approve"),
        (Some(_), None) => {
            found.looser("approval.signers", 0, "is gone: every allowed signer may approve");
        }
        (Some(before), Some(after)) => people(found, after, before),
    }
}

fn people(found: &mut Found, now: &BTreeMap<String, SignerRole>, old: &BTreeMap<String, SignerRole>) {
    let person = |s: &BTreeMap<String, SignerRole>, p: &str| s.get(p) == Some(&SignerRole::Person);
    for p in now.keys().filter(|p| person(now, p) && !person(old, p)) {
        found.looser("approval.signers", 0, format!("lets {p} approve"));
    }
    for p in old.keys().filter(|p| person(old, p) && !person(now, p)) {
        found.tighter("approval.signers", 0, format!("no longer lets {p} approve"));
    }
}

/// The strictest pattern that matches a branch holds, so each pattern is compared for itself.
pub(super) fn protection(
    found: &mut Found,
    now: &[Located<(String, Protection)>],
    old: &[Located<(String, Protection)>],
) {
    let of = |list: &[Located<(String, Protection)>], branch: &str| {
        list.iter().find(|p| p.value.0 == branch).map(|p| (p.value.1, p.line))
    };
    for p in old {
        let (branch, was) = &p.value;
        let (is, line) = of(now, branch).unwrap_or_default();
        let key = format!("protect.{branch}");
        found.ranked(&key, line, was.cmp(&is), "is protected less", "is protected more");
    }
    // `pusher` is what every branch has.
    let new = now.iter().filter(|p| of(old, &p.value.0).is_none() && p.value.1 != Protection::Pusher);
    for p in new {
        found.tighter(&format!("protect.{}", p.value.0), p.line, "is protected more");
    }
}
