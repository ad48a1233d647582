//! The fold of a run's events, and the state a person sees.

use super::{Body, Digest, Event, How, Isolation, Oid, Role, RunName};
use serde::{Deserialize, Serialize};

/// What the events alone say about a run. Bounded, repeated in every event, and checked against the fold by
/// whoever walks the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The run's name.
    pub name: RunName,
    /// The run's role.
    pub role: Role,
    /// Where it works.
    #[serde(default, skip_serializing_if = "Isolation::has_copy")]
    pub isolation: Isolation,
    /// Full name of its branch; empty for a run without a copy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// The commit it was cut from.
    pub base: Oid,
    /// The latest engine's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The tier the latest engine ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The latest result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Latest>,
    /// Where the events leave the run.
    pub phase: Phase,
    /// Whether the approval of the latest result was given without a person at a terminal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// Whether what was approved of the latest result was taken back, and nobody approved it since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
}

/// The latest result, as far as a list needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latest {
    /// `seq` of the result event.
    pub seq: u64,
    /// Snapshot commit.
    pub snapshot: Oid,
    /// Change digest.
    pub change: Digest,
    /// Paths that differ.
    pub files: u64,
}

/// Where the events leave a run. With liveness it becomes a [`RunState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Cut; no engine yet.
    Ready,
    /// An engine was started and no result is known.
    Engaged,
    /// A snapshot waits for a person.
    Proposed,
    /// The latest result may land.
    Approved,
    /// It may not.
    Rejected,
    /// Looked at and left for later.
    Kept,
    /// It landed in a working tree.
    Applied,
    /// Ended without a snapshot.
    Failed,
    /// Its folder is gone.
    Pruned,
    /// A reader that ended.
    Finished,
    /// It is in the history of a branch.
    Landed,
}

/// What a person sees: the fold plus liveness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunState {
    /// Prepared, no engine yet.
    Ready,
    /// An engine is at work: somebody holds the run's lock.
    Running,
    /// An engine was started, there is no result, and nobody holds the lock.
    Interrupted,
    /// A snapshot waits for a person.
    Proposed,
    /// A person approved the latest result; it has not landed.
    Approved,
    /// A person rejected it.
    Rejected,
    /// A person looked and left it.
    Kept,
    /// It landed as uncommitted changes.
    Applied,
    /// Ended without a snapshot; tree kept.
    Failed,
    /// Folder reclaimed.
    Pruned,
    /// A reader that ended: nothing to land.
    Finished,
    /// In the history of a branch.
    Landed,
}

impl RunState {
    /// The word used in every output.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Ready => "ready",
            RunState::Running => "running",
            RunState::Interrupted => "interrupted",
            RunState::Proposed => "proposed",
            RunState::Approved => "approved",
            RunState::Rejected => "rejected",
            RunState::Kept => "kept",
            RunState::Applied => "applied",
            RunState::Failed => "failed",
            RunState::Pruned => "pruned",
            RunState::Finished => "finished",
            RunState::Landed => "landed",
        }
    }
}

impl Phase {
    /// Adds liveness: whether somebody holds the run's lock now.
    pub fn with_liveness(self, live: bool) -> RunState {
        match (self, live) {
            (_, true) => RunState::Running,
            (Phase::Ready, _) => RunState::Ready,
            (Phase::Engaged, _) => RunState::Interrupted,
            (Phase::Proposed, _) => RunState::Proposed,
            (Phase::Approved, _) => RunState::Approved,
            (Phase::Rejected, _) => RunState::Rejected,
            (Phase::Kept, _) => RunState::Kept,
            (Phase::Applied, _) => RunState::Applied,
            (Phase::Failed, _) => RunState::Failed,
            (Phase::Pruned, _) => RunState::Pruned,
            (Phase::Finished, _) => RunState::Finished,
            (Phase::Landed, _) => RunState::Landed,
        }
    }
}

/// Why an event cannot follow a chain.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadFold {
    /// The first event must be `spawn`.
    #[error("the first event of a run must be 'spawn', not '{0}'")]
    NotSpawn(&'static str),
    /// Only the first may be.
    #[error("a second 'spawn' in one run")]
    SecondSpawn,
    /// A join of one.
    #[error("a 'join' that joins nothing")]
    LonelyJoin,
    /// The stored `head` is not the fold.
    #[error("event {0} carries a head that is not the fold of its chain")]
    HeadDiffers(u64),
}

impl Head {
    /// The head after `body` follows `before`. Pure and total.
    pub fn advance(before: Option<&Head>, seq: u64, body: &Body) -> Result<Head, BadFold> {
        let Some(before) = before else {
            let Body::Spawn(s) = body else { return Err(BadFold::NotSpawn(body.kind())) };
            return Ok(Head {
                name: s.name.clone(),
                role: s.role.clone(),
                isolation: s.isolation,
                branch: s.branch.clone(),
                base: s.base.clone(),
                engine: None,
                tier: None,
                result: None,
                phase: Phase::Ready,
                unattended: false,
                revoked: false,
            });
        };
        let mut head = before.clone();
        match body {
            Body::Spawn(_) => return Err(BadFold::SecondSpawn),
            Body::Engine(e) => {
                head.engine = Some(e.engine.clone());
                head.tier = Some(e.cage.tier.clone());
                head.phase = Phase::Engaged;
            }
            Body::Result(r) => {
                head.result =
                    Some(Latest { seq, snapshot: r.snapshot.clone(), change: r.change, files: r.files });
                head.phase = Phase::Proposed;
                head.unattended = false;
                head.revoked = false;
            }
            // A word about anything but the latest result changes nothing.
            Body::Approve(a) if head.is_latest(&a.snapshot) => {
                head.phase = Phase::Approved;
                head.unattended = a.how == How::Unattended;
                head.revoked = false;
            }
            Body::Keep(k) if head.is_latest(&k.snapshot) => head.phase = Phase::Kept,
            Body::Apply(a) if head.is_latest(&a.snapshot) => head.phase = Phase::Applied,
            // As it was before it landed; the approval was not taken back.
            Body::Undo(u) if head.is_latest(&u.snapshot) && head.phase == Phase::Applied => {
                head.phase = if head.revoked { Phase::Proposed } else { Phase::Approved };
            }
            // What landed has landed; a revoked approval is one that may not land any more.
            Body::Revoke(r) if head.is_latest(&r.snapshot) => {
                if matches!(head.phase, Phase::Approved | Phase::Kept | Phase::Proposed) {
                    head.phase = Phase::Proposed;
                }
                head.unattended = false;
                head.revoked = true;
            }
            Body::Land(l) if head.is_latest(&l.snapshot) => {
                if head.phase != Phase::Pruned {
                    head.phase = Phase::Landed;
                }
            }
            Body::Approve(_)
            | Body::Keep(_)
            | Body::Apply(_)
            | Body::Undo(_)
            | Body::Revoke(_)
            | Body::Land(_) => {}
            // Of one side alone it says nothing: see [`Head::join`].
            Body::Join(_) => return Err(BadFold::LonelyJoin),
            Body::Reject(_) => head.phase = Phase::Rejected,
            Body::Abort(_) => head.phase = Phase::Failed,
            Body::Prune(_) => head.phase = Phase::Pruned,
            Body::End(_) => head.phase = Phase::Finished,
        }
        Ok(head)
    }

    /// The head of two histories of one run that went apart; the same whichever side asks. The safe side
    /// wins: a reject or a revoke beats an approval that was given at the same time.
    pub fn join(a: &Head, b: &Head) -> Head {
        let weight = |p: Phase| match p {
            Phase::Ready => 0,
            Phase::Engaged => 1,
            Phase::Proposed => 2,
            Phase::Kept => 3,
            Phase::Approved => 4,
            Phase::Failed => 5,
            Phase::Finished => 6,
            Phase::Applied => 7,
            Phase::Landed => 8,
            Phase::Pruned => 9,
            Phase::Rejected => 10,
        };
        let rank = |h: &Head| h.result.as_ref().map(|r| (r.seq, r.snapshot.clone()));
        let text = |h: &Head| (h.engine.clone(), h.tier.clone(), weight(h.phase), h.unattended, h.revoked);
        let (newer, older) = if (rank(a), text(a)) >= (rank(b), text(b)) { (a, b) } else { (b, a) };
        let mut head = newer.clone();
        let same = rank(a).map(|r| r.1) == rank(b).map(|r| r.1);
        if same {
            if weight(older.phase) > weight(head.phase) {
                head.phase = older.phase;
            }
            head.revoked = a.revoked || b.revoked;
            if head.revoked && head.phase == Phase::Approved {
                head.phase = Phase::Proposed;
            }
            head.unattended = (a.unattended || b.unattended) && !head.revoked;
        } else if older.phase == Phase::Rejected {
            // Whoever rejected a run did not know its newer result, and meant the run.
            head.phase = Phase::Rejected;
        }
        head
    }

    fn is_latest(&self, snapshot: &Oid) -> bool {
        self.result.as_ref().is_some_and(|r| r.snapshot == *snapshot)
    }

    /// Folds a chain, oldest first, and checks the head that each event carries.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Option<Head>, BadFold> {
        let mut head: Option<Head> = None;
        for event in events {
            let next = Head::advance(head.as_ref(), event.seq, &event.body)?;
            if next != event.head {
                return Err(BadFold::HeadDiffers(event.seq));
            }
            head = Some(next);
        }
        Ok(head)
    }
}
