//! Events of a run: what is written to the ledger, one commit each.
//!
//! The stored form is canonical JSON (RFC 8785, restricted to integers); [`Event::encode`] and
//! [`Decoded::parse`] are the only way in and out. The format is normative in `git-agent-ledger(7)`.

use super::{Digest, Head, Oid, Role, RunId, RunName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The format version this program writes.
pub const FORMAT: u64 = 1;
/// Largest `event.json` in bytes.
pub const MAX_EVENT: usize = 64 * 1024;
/// Events a run may hold before only closing kinds are taken.
pub const MAX_EVENTS: u64 = 64;
/// Bytes a run may hold (`event.json`, `event.sig` and attachments of all its events) before only closing
/// kinds are taken.
pub const MAX_RUN: u64 = 1 << 20;
/// Largest integer: beyond it JSON readers that use doubles read another number.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;
/// Largest task text in bytes.
pub const MAX_TASK: usize = 16 * 1024;

/// Who did it: `user.name` and `user.email`, else `<login>@<host>`. Untrusted text when shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Display name.
    pub name: String,
    /// Mail address or `<login>@<host>`.
    pub email: String,
}

/// Fingerprint of one file below `att/` in the event's tree. In the event, so that a signature covers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// File name below `att/`.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: Digest,
}

/// One entry of a run's chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Format version, [`FORMAT`].
    pub v: u64,
    /// The run it belongs to.
    pub run: RunId,
    /// Position in the chain, from 0.
    pub seq: u64,
    /// SHA-256 of the bytes of the previous `event.json`; `None` for the first.
    pub prev: Option<Digest>,
    /// Seconds since the epoch, UTC, as the writer's clock said. Order comes from the chain, not from here.
    pub time: i64,
    /// Who wrote it.
    pub actor: Actor,
    /// Attached files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub att: Vec<Attachment>,
    /// The fold of the chain up to and including this event, so that a list reads tips only.
    pub head: Head,
    /// What happened.
    #[serde(flatten)]
    pub body: Body,
}

/// What happened. Kinds that this version does not know decode as [`Decoded::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "lowercase")]
// A handful exist at a time; boxes would only make building one harder.
#[allow(clippy::large_enum_variant)]
pub enum Body {
    /// The run was cut.
    Spawn(Spawn),
    /// An engine was started in the run's tree.
    Engine(Engine),
    /// What the run left on disk, as a snapshot.
    Result(RunResult),
    /// A person's word that the latest result may land.
    Approve(Approve),
    /// A person's word that it may not; the run is over.
    Reject(Reject),
    /// A person looked and left it for later; prune spares it.
    Keep(Keep),
    /// The approved change landed in a working tree.
    Apply(Apply),
    /// What landed was taken out of the working tree again.
    Undo(Undo),
    /// The run ended without a snapshot; its tree, if there is one, is kept.
    Abort(Abort),
    /// The run's folder was reclaimed.
    Prune(Prune),
    /// A reader's engine ended. There is nothing to land, and nothing more to say.
    End(End),
    /// A person took back what was approved of the latest result.
    Revoke(Revoke),
    /// The approved change is in the history of a branch.
    Land(Land),
    /// Two histories of one run that went apart on two machines.
    Join(Join),
}

impl Body {
    /// The kinds that this version knows.
    pub const KINDS: [&str; 14] = [
        "spawn", "engine", "result", "approve", "reject", "keep", "apply", "abort", "prune", "revoke",
        "land", "join", "end", "undo",
    ];

    /// The kind's name in the stored form.
    pub fn kind(&self) -> &'static str {
        match self {
            Body::Spawn(_) => "spawn",
            Body::Engine(_) => "engine",
            Body::Result(_) => "result",
            Body::Approve(_) => "approve",
            Body::Reject(_) => "reject",
            Body::Keep(_) => "keep",
            Body::Apply(_) => "apply",
            Body::Undo(_) => "undo",
            Body::Abort(_) => "abort",
            Body::Prune(_) => "prune",
            Body::End(_) => "end",
            Body::Revoke(_) => "revoke",
            Body::Land(_) => "land",
            Body::Join(_) => "join",
        }
    }

    /// Whether the kind is still taken when a run has reached [`MAX_EVENTS`].
    pub fn closes(&self) -> bool {
        matches!(
            self,
            Body::Reject(_)
                | Body::Apply(_)
                | Body::Abort(_)
                | Body::Prune(_)
                | Body::Revoke(_)
                | Body::Land(_)
                | Body::Join(_)
                | Body::End(_)
                | Body::Undo(_)
        )
    }
}

/// The policy a run was cut under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInForce {
    /// `built-in`, or the commit whose `.git-agent/policy.yml` is in force.
    pub source: String,
    /// SHA-256 of the policy's bytes.
    pub sha256: Digest,
}

/// Where a run works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// In a copy of its own.
    #[default]
    Worktree,
    /// In the person's work tree, where it may write nothing.
    Reader,
    /// In the person's work tree, where it may write (`GIT_AGENT_ISOLATION=off`).
    Off,
}

impl Isolation {
    /// The name in every output.
    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::Worktree => "worktree",
            Isolation::Reader => "reader",
            Isolation::Off => "off",
        }
    }

    /// Whether the run has a copy of its own.
    pub fn has_copy(&self) -> bool {
        *self == Isolation::Worktree
    }
}

/// Body of `spawn`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// Repository id.
    pub repo: String,
    /// The run's name.
    pub name: RunName,
    /// The run's role.
    pub role: Role,
    /// Change request or ticket id, when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cr: Option<String>,
    /// Where the run works.
    #[serde(default, skip_serializing_if = "Isolation::has_copy")]
    pub isolation: Isolation,
    /// Paths outside the tree that the person let the run write. Only where it works in the person's tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Full name of the run's branch; empty for a run without a copy, which has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// The commit the run was cut from. A parent of the event.
    pub base: Oid,
    /// The branch that was checked out, full name; `None` when HEAD was detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The base is a commit of the user's uncommitted tree (`--with-changes`, isolation off): local, not to be
    /// pushed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local_base: bool,
    /// The policy in force.
    pub policy: PolicyInForce,
    /// Paths hidden from the tree by the policy, as far as they existed in the base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strip: Vec<String>,
    /// Files that the policy copied in from the person's work tree; quoted.
    #[serde(default, skip_serializing_if = "Listed::is_empty")]
    pub include: Listed,
    /// The run's own port, where the policy asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Fingerprint of the task, where the policy keeps its text out of the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Fingerprint>,
}

/// Size and digest of something that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: Digest,
}

/// What held the engine, as found at launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CageReport {
    /// `full`, `namespaces`, `landlock`; `none` and `outer` where the person switched the cage off.
    pub tier: String,
    /// `open`, `proxy` or `off`.
    pub network: String,
    /// Attempts made from inside just before the engine started; each must have been denied.
    pub canaries: Vec<Canary>,
}

/// One canary: an attempt that the cage must deny.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// What was tried.
    pub name: String,
    /// Whether it was denied.
    pub held: bool,
}

/// Body of `engine`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// Engine name: a preset's, or `command`.
    pub engine: String,
    /// The command line, first word the program. Arguments that hold the task are replaced by `{task}`.
    pub command: Vec<String>,
    /// What held it.
    pub cage: CageReport,
}

/// How an engine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// By us, at the wall clock limit of this many seconds.
    Timeout(u64),
    /// By us, because it had nearly filled the disk.
    Full,
    /// By us, because somebody asked (`git agent stop`, a signal to the supervisor).
    Stopped,
    /// Nobody saw it end: the supervisor died, or no engine was running (`git agent finish`).
    Unseen,
}

/// Body of `result`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// The commit the difference is against.
    pub base: Oid,
    /// Commit whose tree is what was on disk and whose only parent is the base. A parent of the event.
    pub snapshot: Oid,
    /// Its tree.
    pub tree: Oid,
    /// Digest of the difference base -> snapshot (`git-agent-ledger(7)`).
    pub change: Digest,
    /// Paths that differ.
    pub files: u64,
    /// How the engine ended.
    pub ended: Ended,
    /// Wall clock of the engine in seconds.
    pub seconds: u64,
    /// What the snapshot cannot hold. The cage's word, not ours.
    pub report: Report,
    /// The engine ended with the status that hands the tree to another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declined: bool,
    /// The policy's checks on this snapshot, in its order; empty when none were asked for or run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// One check of a result. What it printed last is the attachment [`Check::attachment`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name in the policy; `setup` is the setup that precedes them.
    pub name: String,
    /// The command line, first word the program.
    pub command: Vec<String>,
    /// How it ended; `None`: it could not be started, or was not because something before it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// Wall clock in milliseconds.
    pub ms: u64,
}

impl Check {
    /// Whether it passed.
    pub fn passed(&self) -> bool {
        self.ended == Some(Ended::Exit(0))
    }

    /// Name of the attachment that holds the end of its output.
    pub fn attachment(name: &str) -> String {
        format!("check-{name}")
    }
}

/// What a tree cannot hold or what deserves a word. Paths are quoted ([`crate::text::quote_path`]), at
/// most [`Report::LISTED`] each; the counts are exact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Files that could not be read.
    #[serde(default, skip_serializing_if = "Listed::is_empty")]
    pub unreadable: Listed,
    /// Fifos, sockets and devices.
    #[serde(default, skip_serializing_if = "Listed::is_empty")]
    pub special: Listed,
    /// Folders that hold a git repository of their own; their files are in the snapshot, their history is not.
    #[serde(default, skip_serializing_if = "Listed::is_empty")]
    pub nested: Listed,
    /// Empty folders.
    #[serde(default, skip_serializing_if = "Listed::is_empty")]
    pub empty: Listed,
    /// Symbolic links that are absolute or lead out of the tree.
    #[serde(default, skip_serializing_if = "Listed::is_empty")]
    pub links: Listed,
    /// Stripped paths that the run wrote again with other content: a trust-boundary change.
    #[serde(default, skip_serializing_if = "Listed::is_empty")]
    pub stripped: Listed,
    /// Submodules that are dirty or were moved.
    #[serde(default, skip_serializing_if = "Listed::is_empty")]
    pub submodules: Listed,
    /// Ignored files: how many and how large.
    #[serde(default, skip_serializing_if = "Listed::is_empty")]
    pub ignored: Listed,
    /// What freeze found changed in the store and put back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<String>,
    /// The agent's own commits, newest first: `<oid> <subject>`.
    #[serde(default, skip_serializing_if = "Listed::is_empty")]
    pub commits: Listed,
    /// One sentence each, for what fits nowhere else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Report {
    /// How many paths a list holds at most.
    pub const LISTED: usize = 50;
}

/// A bounded list with an exact count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// How many there are.
    pub count: u64,
    /// Their size in bytes, where that makes sense.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// The first of them.
    pub first: Vec<String>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Listed {
    /// Whether nothing was listed.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds one, kept by name while there is room.
    pub fn push(&mut self, item: impl Into<String>) {
        self.count += 1;
        if self.first.len() < Report::LISTED {
            let mut item: String = item.into();
            if item.len() > 400 {
                let mut cut = 400;
                while !item.is_char_boundary(cut) {
                    cut -= 1;
                }
                item.truncate(cut);
                item.push_str("...");
            }
            self.first.push(item);
        }
    }
}

/// On what an approved change may land beside the user's own tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Wherever every touched path is as it was in the base.
    Carry,
    /// Only as the very tree that was approved, on the base.
    Exact,
}

/// How an approval was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// By a person at the controlling terminal.
    Terminal,
    /// With a signature over the event.
    Signed,
    /// Without a terminal, as the person's own configuration allows (`agent.approve=unattended`).
    Unattended,
}

/// Body of `approve`. Binds exactly what was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approve {
    /// Repository id of the run's spawn event.
    pub repo: String,
    /// The commit the difference is against.
    pub base: Oid,
    /// The snapshot that was looked at.
    pub snapshot: Oid,
    /// Its tree.
    pub tree: Oid,
    /// Digest of the difference.
    pub change: Digest,
    /// The policy that the approver saw in force.
    pub policy: Digest,
    /// The branch it is meant for; `None` when HEAD was detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// On what it may land.
    pub mode: Mode,
    /// How it was given.
    pub how: How,
    /// Seconds since the epoch after which it no longer counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
}

/// Body of `reject`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    /// The snapshot that was looked at; `None` when the run had no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Oid>,
    /// One sentence, if the person gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Body of `keep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// The snapshot that was looked at.
    pub snapshot: Oid,
}

/// Body of `apply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apply {
    /// The snapshot that landed.
    pub snapshot: Oid,
    /// Digest of the difference that landed.
    pub change: Digest,
    /// What HEAD was in the tree where it landed.
    pub head: Oid,
    /// Paths written; 0 when all of them were as approved already.
    pub files: u64,
    /// Set when it was merged into what the person had edited: then this landed and not `change`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<AppliedMerge>,
}

/// A merged result that a person looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedMerge {
    /// Digest of the difference that landed.
    pub change: Digest,
    /// How the person said yes to it.
    pub how: How,
}

/// Body of `undo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// The snapshot that had landed.
    pub snapshot: Oid,
    /// Digest of the run's difference.
    pub change: Digest,
    /// What HEAD was in the tree out of which it was taken.
    pub head: Oid,
}

/// Body of `abort`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    /// One sentence.
    pub reason: String,
}

/// Body of `end`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How the engine ended.
    pub ended: Ended,
    /// Wall clock of the engine in seconds.
    pub seconds: u64,
}

/// Body of `prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prune {
    /// One sentence.
    pub reason: String,
}

/// Body of `revoke`. Whatever was approved of this snapshot before or at the same time counts no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoke {
    /// The snapshot.
    pub snapshot: Oid,
    /// One sentence, if the person gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Body of `land`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Land {
    /// The snapshot that was approved.
    pub snapshot: Oid,
    /// Digest of the difference.
    pub change: Digest,
    /// The branch that holds it, full name.
    pub target: String,
    /// The commit that brought it.
    pub commit: Oid,
}

/// Body of `join`. The event of the first parent is `prev`, and both tips are parents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// SHA-256 of the bytes of the second parent's `event.json`; greater than `prev`.
    pub with: Digest,
}

/// An event as found in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// One we understand.
    Known(Box<Event>),
    /// A newer version or kind: shown, never dropped; nothing may be appended after it.
    Unknown {
        /// Its format version.
        v: u64,
        /// Its kind, untrusted text.
        kind: String,
        /// The part that every version shares.
        envelope: Envelope,
    },
}

/// The fields that keep their name and meaning in every version, so that an old reader can still place an
/// event in its chain and call its run by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The run it belongs to.
    pub run: RunId,
    /// Position in the chain, from 0.
    pub seq: u64,
    /// SHA-256 of the bytes of the previous `event.json`; `None` for the first.
    pub prev: Option<Digest>,
    /// `head.name`, where there is one that can be a name.
    pub name: Option<RunName>,
}

/// Why bytes are not an event.
#[derive(Debug, thiserror::Error)]
pub enum BadEvent {
    /// Larger than [`MAX_EVENT`].
    #[error("the event is {0} bytes, more than {MAX_EVENT}")]
    TooLarge(usize),
    /// Not JSON.
    #[error("the event is not JSON")]
    Json(#[source] serde_json::Error),
    /// Spaces, key order, duplicate keys, floats, or another spelling of the same value.
    #[error("the event is not in canonical form")]
    NotCanonical,
    /// No integer `v` from 1, no `kind`, or an envelope without `run`, `seq` or `prev`.
    #[error("the event has no version, no kind, or no place in a run")]
    NoVersion,
    /// A field that its version and kind do not have, or a default value that must be left out.
    #[error("the event holds a field that its version does not have")]
    ExtraField,
    /// A known version and kind whose fields do not fit.
    #[error("the event's fields do not fit its kind")]
    Fields(#[source] serde_json::Error),
}

impl Event {
    /// The canonical bytes.
    pub fn encode(&self) -> Result<Vec<u8>, BadEvent> {
        let value = serde_json::to_value(self).map_err(BadEvent::Fields)?;
        let bytes = canonical(&value)?;
        if bytes.len() > MAX_EVENT { Err(BadEvent::TooLarge(bytes.len())) } else { Ok(bytes) }
    }
}

impl Decoded {
    /// Reads `event.json`. Refuses what is not byte for byte canonical, whatever its version.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadEvent> {
        if bytes.len() > MAX_EVENT {
            return Err(BadEvent::TooLarge(bytes.len()));
        }
        let value: Value = serde_json::from_slice(bytes).map_err(BadEvent::Json)?;
        // A duplicate key is lost in parsing, so re-encoding differs: the cheapest proof of canonical form.
        if canonical(&value)? != bytes {
            return Err(BadEvent::NotCanonical);
        }
        let v = value.get("v").and_then(Value::as_u64).filter(|v| *v > 0).ok_or(BadEvent::NoVersion)?;
        let kind = value.get("kind").and_then(Value::as_str).ok_or(BadEvent::NoVersion)?.to_owned();
        if v > FORMAT || !Body::KINDS.contains(&kind.as_str()) {
            let envelope = Envelope::of(&value).ok_or(BadEvent::NoVersion)?;
            return Ok(Decoded::Unknown { v, kind, envelope });
        }
        let event: Event = serde_json::from_value(value).map_err(BadEvent::Fields)?;
        // A field we would drop is one a signature covers and no reader of this version sees.
        if event.encode()? != bytes {
            return Err(BadEvent::ExtraField);
        }
        Ok(Decoded::Known(Box::new(event)))
    }

    /// The event, if we understand it.
    pub fn known(&self) -> Option<&Event> {
        match self {
            Decoded::Known(e) => Some(e),
            Decoded::Unknown { .. } => None,
        }
    }

    /// The kind's name; untrusted text when it is unknown.
    pub fn kind(&self) -> &str {
        match self {
            Decoded::Known(e) => e.body.kind(),
            Decoded::Unknown { kind, .. } => kind,
        }
    }

    /// The part that every version shares.
    pub fn envelope(&self) -> Envelope {
        match self {
            Decoded::Known(e) => {
                Envelope { run: e.run.clone(), seq: e.seq, prev: e.prev, name: Some(e.head.name.clone()) }
            }
            Decoded::Unknown { envelope, .. } => envelope.clone(),
        }
    }
}

impl Envelope {
    fn of(value: &Value) -> Option<Self> {
        Some(Self {
            run: value.get("run")?.as_str()?.parse().ok()?,
            seq: value.get("seq")?.as_u64()?,
            prev: match value.get("prev")? {
                Value::Null => None,
                prev => Some(prev.as_str()?.parse().ok()?),
            },
            name: value.pointer("/head/name").and_then(Value::as_str).and_then(|n| n.parse().ok()),
        })
    }
}

/// RFC 8785 for values without floats. `serde_json`'s map is ordered by UTF-8 bytes, RFC 8785 by UTF-16
/// units; our keys are ASCII, where both agree, and other keys are refused.
fn canonical(value: &Value) -> Result<Vec<u8>, BadEvent> {
    fn fits(v: &Value) -> bool {
        match v {
            Value::Number(n) => n.as_i64().is_some_and(|n| n.unsigned_abs() <= MAX_INTEGER),
            Value::Array(a) => a.iter().all(fits),
            Value::Object(o) => o.iter().all(|(k, v)| k.is_ascii() && fits(v)),
            _ => true,
        }
    }
    if !fits(value) {
        return Err(BadEvent::NotCanonical);
    }
    serde_json::to_vec(value).map_err(BadEvent::Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawn() -> Event {
        let body = Body::Spawn(Spawn {
            repo: "0123456789abcdef0123456789abcdef".into(),
            name: "EG-026".parse().unwrap(),
            role: "developer".parse().unwrap(),
            cr: None,
            isolation: Isolation::Worktree,
            write: Vec::new(),
            branch: "refs/heads/wt/EG-026".into(),
            base: "1".repeat(40).parse().unwrap(),
            target: Some("refs/heads/main".into()),
            local_base: false,
            policy: PolicyInForce { source: "built-in".into(), sha256: Digest::of(b"") },
            strip: Vec::new(),
            include: Listed::default(),
            port: None,
            task: None,
        });
        Event {
            v: FORMAT,
            run: RunId::new(1_764_531_644_000, 7),
            seq: 0,
            prev: None,
            time: 1_764_531_644,
            actor: Actor { name: "Ada \u{e9}\u{1}\"".into(), email: "ada@example.org".into() },
            att: Vec::new(),
            head: Head::advance(None, 0, &body).unwrap(),
            body,
        }
    }

    fn parse(text: &str) -> Result<Decoded, BadEvent> {
        Decoded::parse(text.as_bytes())
    }

    #[test]
    fn one_event_has_one_spelling() {
        let bytes = spawn().encode().unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        // Keys sorted at every depth: fails if a dependency turns serde_json's `preserve_order` on.
        assert!(text.starts_with(
            "{\"actor\":{\"email\":\"ada@example.org\",\"name\":\"Ada é\\u0001\\\"\"},\"body\":{\"base\":"
        ));
        assert_eq!(Decoded::parse(&bytes).unwrap().known(), Some(&spawn()));
        for (what, from, to) in [
            ("a space", "{\"actor\"", "{ \"actor\""),
            ("a duplicate key", "\"seq\":0", "\"seq\":1,\"seq\":0"),
            ("a float", "\"seq\":0", "\"seq\":0.0"),
            ("an exponent", "\"seq\":0", "\"seq\":0e0"),
            ("an escape that needs none", "ada@", "\\u0061da@"),
            ("a trailing line feed", "\"v\":1}", "\"v\":1}\n"),
            ("an integer that doubles cannot hold", "1764531644,", "9007199254740993,"),
            ("a key that is not ASCII", "{\"actor\"", "{\"\u{e9}\":1,\"actor\""),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{what}");
            assert!(matches!(parse(&changed), Err(BadEvent::NotCanonical)), "{what}");
        }
        let extra = text.replacen("{\"actor\"", "{\"a\":1,\"actor\"", 1);
        assert!(matches!(parse(&extra), Err(BadEvent::ExtraField)));
        let spelled = text.replacen("\"body\"", "\"att\":[],\"body\"", 1);
        assert!(matches!(parse(&spelled), Err(BadEvent::ExtraField)));
        assert!(matches!(parse("{}"), Err(BadEvent::NoVersion)));
        assert!(matches!(parse(&text.replace("\"v\":1}", "\"v\":0}")), Err(BadEvent::NoVersion)));
        assert!(matches!(parse(&" ".repeat(MAX_EVENT + 1)), Err(BadEvent::TooLarge(_))));
        assert!(matches!(parse(&"[".repeat(10_000)), Err(BadEvent::Json(_))));
    }

    #[test]
    fn newer_versions_and_kinds_are_unknown_and_not_lost() {
        let text = String::from_utf8(spawn().encode().unwrap()).unwrap();
        for (from, to, v, kind) in [
            ("\"v\":1}", "\"v\":2,\"zz\":[]}", 2, "spawn"),
            ("\"kind\":\"spawn\"", "\"kind\":\"dance\"", 1, "dance"),
        ] {
            let Decoded::Unknown { v: found, kind: name, envelope } = parse(&text.replace(from, to)).unwrap()
            else {
                panic!("{to} is not known")
            };
            assert_eq!((found, name.as_str(), envelope.seq), (v, kind, 0));
            assert_eq!(envelope.name.unwrap().as_str(), "EG-026");
        }
    }
}
