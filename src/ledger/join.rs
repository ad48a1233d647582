//! Two histories of one run that went apart on two machines become one: the same commit, byte for byte,
//! whoever makes it. Nothing is rebased and no event is lost.

use super::{EVENT_FILE, Ledger};
use crate::git::{ObjectKind, RefError, Transaction, TreeEntry, commit_bytes, tree_bytes};
use crate::model::{Actor, Body, Digest, Event, FORMAT, Failure, Head, Join, MAX_EVENT, Oid, RunId};

/// How often a lost race is tried again.
const TRIES: u32 = 20;

/// What became of our own history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// It holds the other already.
    Ahead,
    /// It moved forward to the other.
    Forward,
    /// Both have news; they are one now.
    Both,
}

/// One of the two sides, as its newest event has it.
struct Side {
    commit: Oid,
    digest: Digest,
    seq: u64,
    time: i64,
    head: Head,
}

impl Ledger<'_> {
    /// Takes another history of a run of ours in. Both are checked whole first.
    pub fn take_in(&self, run: &RunId, other: &Oid) -> Result<Joined, Failure> {
        let name = Self::ref_name(run);
        let theirs = self.chain(&self.tip_at(run, other)?)?;
        for _ in 0..TRIES {
            let own = self
                .repo()
                .ref_tip(&name)?
                .ok_or_else(|| Failure::fatal(format!("there is no run {run} here")))?;
            let ours = self.chain(&self.tip_at(run, &own)?)?;
            if ours.events.iter().any(|(oid, _)| oid == other) {
                return Ok(Joined::Ahead);
            }
            let (new, how) = if theirs.events.iter().any(|(oid, _)| *oid == own) {
                (other.clone(), Joined::Forward)
            } else {
                if ours.events.first().map(|e| &e.0) != theirs.events.first().map(|e| &e.0) {
                    return Err(Failure::fatal(format!("two different runs have the id {run}"))
                        .hint("one of the repositories was tampered with; git agent log shows both"));
                }
                (self.write_join(run, &own, other)?, Joined::Both)
            };
            match Transaction::new().update(&name, &new, &own).commit(self.repo(), "agent: join") {
                Ok(()) => return Ok(how),
                Err(RefError::Moved { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(Failure::fatal(format!("run {run} is being written by too many at once")).hint("try again"))
    }

    fn side(&self, run: &RunId, commit: &Oid) -> Result<Side, Failure> {
        let objects = self.repo().objects()?;
        let tip = self.tip_at(run, commit)?;
        let event = tip.understood()?;
        let file = objects
            .entry_at(&objects.commit(commit)?.tree, EVENT_FILE)?
            .ok_or_else(|| Failure::fatal(format!("{commit} holds no event")))?;
        let bytes = objects.expect(&file.oid, ObjectKind::Blob, MAX_EVENT as u64)?;
        Ok(Side {
            commit: commit.clone(),
            digest: Digest::of(&bytes),
            seq: event.seq,
            time: event.time,
            head: event.head.clone(),
        })
    }

    /// Nothing in it depends on whose side is whose, nor on the clock or the name of whoever writes it.
    fn write_join(&self, run: &RunId, a: &Oid, b: &Oid) -> Result<Oid, Failure> {
        let (a, b) = (self.side(run, a)?, self.side(run, b)?);
        let (first, second) = if a.digest <= b.digest { (a, b) } else { (b, a) };
        if first.digest == second.digest {
            return Err(Failure::fatal(format!("run {run}: one event was written in two forms")));
        }
        let actor = Actor { name: "git-agent".into(), email: "join@git-agent.invalid".into() };
        let event = Event {
            v: FORMAT,
            run: run.clone(),
            seq: first.seq.max(second.seq) + 1,
            prev: Some(first.digest),
            time: first.time.max(second.time),
            actor,
            att: Vec::new(),
            head: Head::join(&first.head, &second.head),
            body: Body::Join(Join { with: second.digest }),
        };
        let bytes = event.encode().map_err(|e| Failure::fatal("the join cannot be written").because(e))?;
        let objects = self.repo().objects()?;
        let oid = objects.write(ObjectKind::Blob, &bytes)?;
        let entry = TreeEntry { mode: 0o100_644, name: EVENT_FILE.into(), oid };
        let tree = objects.write(ObjectKind::Tree, &tree_bytes(vec![entry]))?;
        let who = "git-agent <join@git-agent.invalid>";
        let message = format!("agent: join {}", event.head.name);
        let parents = [first.commit, second.commit];
        let time = event.time.clamp(0, super::append::MAX_TIME);
        let commit =
            objects.write(ObjectKind::Commit, &commit_bytes(&tree, &parents, who, time, &message))?;
        // A join that no reader would take must not become the run: the limits hold for both together.
        self.chain(&self.tip_at(run, &commit)?)?;
        Ok(commit)
    }
}
