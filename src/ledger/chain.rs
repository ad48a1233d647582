//! Reading: tips for a list, whole chains with every check.

use super::{
    ARCHIVE, ATTACHMENTS, EVENT_FILE, LIMIT_BYTES, LIMIT_EVENTS, Ledger, MAX_SIGNATURE, REMOTES, RUNS,
    SIGNATURE_FILE, TASK, append::is_attachment_name,
};
use crate::git::{self, ObjectKind, TreeEntry};
use crate::model::{
    BadEvent, BadFold, Body, Decoded, Digest, Event, Failure, Head, MAX_EVENT, MAX_EVENTS, MAX_RUN, MAX_TASK,
    Oid, RunId,
};
use crate::text::Untrusted;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error as _;

/// The newest event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tip {
    /// The run.
    pub run: RunId,
    /// The event's commit, which the run's ref names.
    pub commit: Oid,
    /// The event.
    pub event: Decoded,
}

impl Tip {
    /// What the newest event says about the run; `None` when we do not understand it. Checked against the
    /// fold only by [`Ledger::chain`].
    pub fn head(&self) -> Option<&Head> {
        self.event.known().map(|e| &e.head)
    }

    /// The newest event, or a failure that says why nothing can be done with this run here.
    pub fn understood(&self) -> Result<&Event, Failure> {
        match &self.event {
            Decoded::Known(event) => Ok(event),
            Decoded::Unknown { v, kind, .. } => Err(unknown(&self.run, *v, kind)),
        }
    }

    /// The run's name, else its id.
    pub fn label(&self) -> String {
        self.event.envelope().name.map_or_else(|| self.run.to_string(), |n| n.to_string())
    }
}

pub(super) fn unknown(run: &RunId, v: u64, kind: &str) -> Failure {
    Failure::fatal(format!(
        "run {run} holds an event '{}' of format version {v}, which this git-agent does not know",
        Untrusted::new(kind)
    ))
    .hint("install a newer git-agent; nothing was written to the run")
}

/// A ref below `refs/agent-runs/` that holds no event we can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Full name of the ref.
    pub name: String,
    /// The run; `None` when the ref is not named like one.
    pub run: Option<RunId>,
    /// What the ref names.
    pub commit: Oid,
    /// What is wrong, for a person. Untrusted parts are escaped already.
    pub why: String,
}

/// All live runs.
#[derive(Debug, Clone, Default)]
pub struct Tips {
    /// Those whose newest event can be read, unknown kinds and versions included; oldest run id first.
    pub tips: Vec<Tip>,
    /// The others.
    pub broken: Vec<Broken>,
    /// Whether archived runs exist beside them.
    pub archived: bool,
}

/// What is wrong with an event.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The object store failed, or an object is missing.
    #[error(transparent)]
    Git(#[from] git::Error),
    /// `event.json` is not an event.
    #[error(transparent)]
    Event(#[from] BadEvent),
    /// The chain does not fold.
    #[error(transparent)]
    Fold(#[from] BadFold),
    /// It was copied from another run.
    #[error("it belongs to run {0}")]
    OtherRun(RunId),
    /// It was moved inside the run.
    #[error("it is number {says} in the place of number {place}")]
    Seq {
        /// Where it stands.
        place: u64,
        /// What it says.
        says: u64,
    },
    /// The event before it is another one than when it was written.
    #[error("'prev' is not the digest of the event before it")]
    Prev,
    /// The tree lacks something or holds something else.
    #[error("its tree {0}")]
    Tree(String),
    /// An attachment is not the one the event names.
    #[error("attachment '{name}' {what}")]
    Attachment {
        /// Its name, escaped.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A base or a snapshot that only a parent protects is not a parent.
    #[error("its commit does not have {0} as a parent")]
    Evidence(Oid),
    /// Not the first event, and no parent.
    #[error("its commit has no parent")]
    NoParent,
    /// A join that is not one.
    #[error("it does not join the two histories that its commit has as parents")]
    Join,
    /// More events than a run may hold.
    #[error("the run holds more events than the {MAX_EVENTS} that a run may hold")]
    TooMany,
    /// More bytes than a run may hold.
    #[error("the run holds more bytes than the {MAX_RUN} that a run may hold")]
    TooLarge,
}

impl Fault {
    fn sentence(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(e) = cause {
            text.push_str(&format!(": {e}"));
            cause = e.source();
        }
        text
    }
}

/// A whole run, every link of it checked.
#[derive(Debug, Clone)]
pub struct Chain {
    /// The run.
    pub run: RunId,
    /// Commit and event, oldest first; never empty. Of histories that were joined, the first parent's come first.
    pub events: Vec<(Oid, Decoded)>,
    /// For each event a bit for the place of every event that its writer knew.
    pub knew: Vec<u128>,
    /// Size of all events, signatures and attachments.
    pub bytes: u64,
    /// The fold; `None` when the newest event is unknown.
    pub head: Option<Head>,
    /// SHA-256 of the newest event's bytes: `prev` of the next.
    pub(super) last: Digest,
}

impl Chain {
    /// The events we understand, oldest first.
    pub fn known(&self) -> impl DoubleEndedIterator<Item = (&Oid, &Event)> {
        self.events.iter().filter_map(|(oid, e)| Some((oid, e.known()?)))
    }

    /// SHA-256 of the bytes of the event that the commit `event` holds: what an event is called outside of its
    /// run, since it stays the same when the run is archived.
    pub fn digest_of(&self, event: &Oid) -> Option<Digest> {
        let (_, event) = self.known().find(|(oid, _)| *oid == event)?;
        event.encode().ok().map(|bytes| Digest::of(&bytes))
    }

    /// The first event that we do not understand: its version and kind.
    pub fn unknown(&self) -> Option<(u64, &str)> {
        self.events.iter().find_map(|(_, e)| match e {
            Decoded::Unknown { v, kind, .. } => Some((*v, kind.as_str())),
            Decoded::Known(_) => None,
        })
    }
}

/// A signature, and the bytes that it is over.
pub type Signed = (Vec<u8>, Vec<u8>);

/// What an event leaves to those that stand on it.
struct Link {
    seq: u64,
    digest: Digest,
    head: Option<Head>,
    /// The places of this event and of all that it stands on.
    knew: u128,
}

enum Step {
    Read(Oid),
    Check(Box<Stored>),
}

/// One event commit as stored.
struct Stored {
    commit: Oid,
    parents: Vec<Oid>,
    tree: Vec<TreeEntry>,
    bytes: Vec<u8>,
    event: Decoded,
}

impl Stored {
    /// The events it stands on, which its first parents are: none for the first, two for a join.
    fn before(&self) -> Result<Vec<Oid>, Fault> {
        let count = match self.event.known().map(|e| &e.body) {
            _ if self.event.envelope().seq == 0 => 0,
            Some(Body::Join(_)) => 2,
            _ => 1,
        };
        match self.parents.get(..count) {
            Some(before) => Ok(before.to_vec()),
            None if count == 2 => Err(Fault::Join),
            None => Err(Fault::NoParent),
        }
    }
}

impl Ledger<'_> {
    /// The newest event of every live run: one listing of refs, and of every run its event only.
    pub fn tips(&self) -> Result<Tips, Failure> {
        let mut all = Tips::default();
        let (archived, refs): (Vec<_>, Vec<_>) =
            self.repo.refs(&[RUNS])?.into_iter().partition(|r| r.name.starts_with(ARCHIVE));
        all.archived = !archived.is_empty();
        let commits: Vec<Oid> = refs.iter().map(|r| r.oid.clone()).collect();
        let files = self.repo.objects()?.files_at(&commits, EVENT_FILE, MAX_EVENT as u64)?;
        for (found, file) in refs.into_iter().zip(files) {
            let run: Result<RunId, _> = found.name[RUNS.len()..].parse();
            let why = match &run {
                Ok(run) => match file.map_err(Fault::from).and_then(|bytes| decode(run, &bytes)) {
                    Ok(event) => {
                        all.tips.push(Tip { run: run.clone(), commit: found.oid, event });
                        continue;
                    }
                    Err(fault) => fault.sentence(),
                },
                Err(_) => "it is not named like a run".to_owned(),
            };
            all.broken.push(Broken { name: found.name, run: run.ok(), commit: found.oid, why });
        }
        self.passed_over(&mut all);
        Ok(all)
    }

    /// The newest event of every run that this repository knows: its own, else as a remote has it.
    pub fn all_tips(&self) -> Result<Tips, Failure> {
        let mut all = self.tips()?;
        let own: HashSet<&RunId> =
            all.tips.iter().map(|t| &t.run).chain(all.broken.iter().filter_map(|b| b.run.as_ref())).collect();
        let mut theirs: BTreeMap<RunId, Oid> = BTreeMap::new();
        for found in self.repo.refs(&[REMOTES])? {
            let run = found.name.rsplit_once("/runs/").and_then(|(_, id)| id.parse::<RunId>().ok());
            if let Some(run) = run.filter(|r| !own.contains(r)) {
                // The first remote by name; a person who works with several brings them together by 'sync'.
                theirs.entry(run).or_insert(found.oid);
            }
        }
        let (runs, commits): (Vec<RunId>, Vec<Oid>) = theirs.into_iter().unzip();
        let files = self.repo.objects()?.files_at(&commits, EVENT_FILE, MAX_EVENT as u64)?;
        for ((run, commit), file) in runs.into_iter().zip(commits).zip(files) {
            // What a remote has and we cannot read is the remote's trouble.
            if let Ok(event) = file.map_err(Fault::from).and_then(|bytes| decode(&run, &bytes)) {
                all.tips.push(Tip { run, commit, event });
            }
        }
        all.tips.sort_by(|a, b| a.run.cmp(&b.run));
        Ok(all)
    }

    /// What a remote has of a run that we do not have ourselves.
    pub(super) fn remote_tip(&self, run: &RunId) -> Result<Option<Oid>, Failure> {
        let end = format!("/runs/{run}");
        Ok(self.repo.refs(&[REMOTES])?.into_iter().find(|r| r.name.ends_with(&end)).map(|r| r.oid))
    }

    /// git passes over a ref that it cannot read, such as one of zero length after a power cut. Its run is
    /// not gone: a folder of it has an owner.
    fn passed_over(&self, all: &mut Tips) {
        let Ok(entries) = std::fs::read_dir(self.repo.common_dir().join(RUNS)) else { return };
        let known: HashSet<&RunId> =
            all.tips.iter().map(|t| &t.run).chain(all.broken.iter().filter_map(|b| b.run.as_ref())).collect();
        let named = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<RunId>().ok());
        let lost: Vec<RunId> = named.filter(|run| !known.contains(run)).collect();
        for run in lost {
            // Made between the two looks, it is only too new for this list.
            if self.tip(&run).is_ok_and(|tip| tip.is_some()) {
                continue;
            }
            let why =
                "git cannot read this ref; an older value may be in a backup or another clone".to_owned();
            all.broken.push(Broken {
                name: Self::ref_name(&run),
                run: Some(run),
                commit: self.repo.hash().null(),
                why,
            });
        }
    }

    /// The newest event of one run; `None` when there is no such run.
    pub fn tip(&self, run: &RunId) -> Result<Option<Tip>, Failure> {
        let own = self.repo.ref_tip(&Self::ref_name(run))?;
        let Some(commit) = own.map_or_else(|| self.remote_tip(run), |own| Ok(Some(own)))? else {
            return Ok(None);
        };
        let stored = self.stored(run, &commit).map_err(|fault| broken(run, &commit, None, fault))?;
        Ok(Some(Tip { run: run.clone(), commit: stored.commit, event: stored.event }))
    }

    /// The event in a commit, as the newest of a run.
    pub fn tip_at(&self, run: &RunId, commit: &Oid) -> Result<Tip, Failure> {
        let stored = self.stored(run, commit).map_err(|fault| broken(run, commit, None, fault))?;
        Ok(Tip { run: run.clone(), commit: stored.commit, event: stored.event })
    }

    /// Walks a run from its newest event to its first and checks everything that can be checked without
    /// keys: canonical form, order, digests, fold, attachments, evidence, caps.
    pub fn chain(&self, tip: &Tip) -> Result<Chain, Failure> {
        let run = &tip.run;
        let mut chain = Chain {
            run: run.clone(),
            events: Vec::new(),
            knew: Vec::new(),
            bytes: 0,
            head: None,
            last: Digest::of(b""),
        };
        let mut links: HashMap<Oid, Link> = HashMap::new();
        // Depth first, first parents first: an event is checked when all it stands on have been.
        let mut open: Vec<Step> = vec![Step::Read(tip.commit.clone())];
        let mut read = 0;
        while let Some(step) = open.pop() {
            match step {
                Step::Read(commit) if links.contains_key(&commit) => {}
                Step::Read(commit) => {
                    read += 1;
                    if read > LIMIT_EVENTS {
                        return Err(broken(run, &commit, None, Fault::TooMany));
                    }
                    let stored = self.stored(run, &commit).map_err(|f| broken(run, &commit, None, f))?;
                    let before = stored.before().map_err(|f| broken(run, &commit, None, f))?;
                    open.push(Step::Check(Box::new(stored)));
                    open.extend(before.into_iter().rev().map(Step::Read));
                }
                Step::Check(stored) => {
                    let place = chain.events.len() as u64;
                    let seq = stored.event.envelope().seq;
                    let link = self
                        .link(&mut chain, &links, &stored)
                        .map_err(|f| broken(run, &stored.commit, Some(seq.min(place)), f))?;
                    chain.last = link.digest;
                    chain.head.clone_from(&link.head);
                    chain.knew.push(link.knew);
                    links.insert(stored.commit.clone(), link);
                    chain.events.push((stored.commit, stored.event));
                }
            }
        }
        Ok(chain)
    }

    /// Checks that `next` may follow what it stands on, and adds its size to the chain.
    fn link(&self, chain: &mut Chain, links: &HashMap<Oid, Link>, next: &Stored) -> Result<Link, Fault> {
        let place = chain.events.len() as u64;
        let envelope = next.event.envelope();
        // Read before it: a commit cannot stand on itself.
        let before: Vec<&Link> = next.before()?.iter().filter_map(|oid| links.get(oid)).collect();
        let due = before.iter().map(|l| l.seq + 1).max().unwrap_or(0);
        if envelope.seq != due || (place > 0 && before.is_empty()) {
            return Err(Fault::Seq { place: due, says: envelope.seq });
        }
        if envelope.prev != before.first().map(|l| l.digest) {
            return Err(Fault::Prev);
        }
        let joined = match next.event.known().map(|e| &e.body) {
            Some(Body::Join(join)) => {
                let [first, second] = before[..] else { return Err(Fault::Join) };
                if join.with != second.digest || join.with <= first.digest {
                    return Err(Fault::Join);
                }
                Some((first, second))
            }
            _ => None,
        };
        let closes = next.event.known().is_none_or(|e| e.body.closes());
        if envelope.seq >= MAX_EVENTS && !closes {
            return Err(Fault::TooMany);
        }
        chain.bytes += next.bytes.len() as u64 + self.check_tree(next)?;
        if chain.bytes > if closes { LIMIT_BYTES } else { MAX_RUN } {
            return Err(Fault::TooLarge);
        }
        let knew = before.iter().fold(1u128 << place, |all, l| all | l.knew);
        let mut link = Link { seq: envelope.seq, digest: Digest::of(&next.bytes), head: None, knew };
        let Decoded::Known(event) = &next.event else {
            return Ok(link);
        };
        let evidence = if place == 0 { &next.parents[..] } else { &next.parents[1..] };
        if let Some(needed) = pinned(&event.body)
            && !evidence.contains(needed)
        {
            return Err(Fault::Evidence(needed.clone()));
        }
        // After an unknown event the fold is lost; the next known one starts it again.
        let folded = match (joined, before.first().map(|l| &l.head)) {
            (Some((first, second)), _) => match (&first.head, &second.head) {
                (Some(a), Some(b)) => Some(Head::join(a, b)),
                _ => None,
            },
            (None, None) => Some(Head::advance(None, 0, &event.body)?),
            (None, Some(Some(head))) => Some(Head::advance(Some(head), envelope.seq, &event.body)?),
            (None, Some(None)) => None,
        };
        if folded.is_some_and(|folded| folded != event.head) {
            return Err(BadFold::HeadDiffers(envelope.seq).into());
        }
        link.head = Some(event.head.clone());
        Ok(link)
    }

    /// Checks what lies beside `event.json`; returns its size. Of an unknown event only the size is known.
    fn check_tree(&self, stored: &Stored) -> Result<u64, Fault> {
        let objects = self.repo.objects()?;
        let size = |entry: &TreeEntry| match objects.header(&entry.oid)? {
            Some((ObjectKind::Blob, size)) => Ok(size),
            _ => Err(Fault::Git(git::Error::Missing(entry.oid.to_string()))),
        };
        let known = stored.event.known();
        let mut total = 0;
        let mut attached = Vec::new();
        for entry in &stored.tree {
            let name = String::from_utf8_lossy(&entry.name);
            match (&*name, entry.mode) {
                (EVENT_FILE, 0o100_644) => {}
                (SIGNATURE_FILE, 0o100_644) => {
                    let size = size(entry)?;
                    if size > MAX_SIGNATURE {
                        return Err(Fault::Tree(format!(
                            "holds a signature of more than {MAX_SIGNATURE} bytes"
                        )));
                    }
                    total += size;
                }
                (ATTACHMENTS, 0o040_000) => attached = objects.tree(&entry.oid)?,
                _ if known.is_none() => {}
                (_, mode) => {
                    return Err(Fault::Tree(format!("holds '{}' ({mode:06o})", Untrusted::new(&entry.name))));
                }
            }
        }
        let Some(event) = known else { return Ok(total) };
        let bad = |name: &[u8], what| Fault::Attachment { name: Untrusted::new(name).to_string(), what };
        for (i, named) in event.att.iter().enumerate() {
            if !is_attachment_name(&named.name) || (i > 0 && event.att[i - 1].name >= named.name) {
                return Err(bad(named.name.as_bytes(), "is out of order or cannot be called so"));
            }
            if named.size > if named.name == TASK { MAX_TASK as u64 } else { LIMIT_BYTES } {
                return Err(bad(named.name.as_bytes(), "is too large"));
            }
        }
        for entry in &attached {
            let Some(named) = event.att.iter().find(|a| a.name.as_bytes() == entry.name) else {
                return Err(bad(&entry.name, "is not named in the event"));
            };
            if entry.mode != 0o100_644 {
                return Err(bad(&entry.name, "is not a plain file"));
            }
            if size(entry)? != named.size {
                return Err(bad(&entry.name, "has another size"));
            }
            if objects.blob_digest(&entry.oid)? != named.sha256 {
                return Err(bad(&entry.name, "has another content"));
            }
            total += named.size;
        }
        if let Some(lost) = event.att.iter().find(|a| !attached.iter().any(|e| e.name == a.name.as_bytes())) {
            return Err(bad(lost.name.as_bytes(), "is missing"));
        }
        Ok(total)
    }

    /// Content of an attachment, checked against the event; `None` when the event names none of that name.
    pub fn attachment(&self, commit: &Oid, event: &Event, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let Some(named) = event.att.iter().find(|a| a.name == name) else { return Ok(None) };
        let objects = self.repo.objects()?;
        let tree = objects.commit(commit)?.tree;
        let fault = |what| {
            let name = Untrusted::new(name).to_string();
            broken(&event.run, commit, Some(event.seq), Fault::Attachment { name, what })
        };
        let entry =
            objects.entry_at(&tree, &format!("{ATTACHMENTS}/{name}"))?.ok_or_else(|| fault("is missing"))?;
        let bytes = objects.expect(&entry.oid, ObjectKind::Blob, LIMIT_BYTES)?;
        if bytes.len() as u64 != named.size || Digest::of(&bytes) != named.sha256 {
            return Err(fault("has another content"));
        }
        Ok(Some(bytes))
    }

    /// The signature beside an event, and the bytes that it is over; `None` when there is none.
    pub fn signature(&self, commit: &Oid) -> Result<Option<Signed>, Failure> {
        let objects = self.repo.objects()?;
        let tree = objects.tree(&objects.commit(commit)?.tree)?;
        let file = |name: &str| tree.iter().find(|e| e.name == name.as_bytes() && e.mode == 0o100_644);
        let (Some(signature), Some(event)) = (file(SIGNATURE_FILE), file(EVENT_FILE)) else {
            return Ok(None);
        };
        let signature = objects.expect(&signature.oid, ObjectKind::Blob, MAX_SIGNATURE)?;
        Ok(Some((signature, objects.expect(&event.oid, ObjectKind::Blob, MAX_EVENT as u64)?)))
    }

    fn stored(&self, run: &RunId, commit: &Oid) -> Result<Stored, Fault> {
        let objects = self.repo.objects()?;
        let data = objects.commit(commit)?;
        let tree = objects.tree(&data.tree)?;
        let file = tree
            .iter()
            .find(|e| e.name == EVENT_FILE.as_bytes() && e.mode == 0o100_644)
            .ok_or_else(|| Fault::Tree(format!("holds no file '{EVENT_FILE}'")))?;
        let bytes = objects.expect(&file.oid, ObjectKind::Blob, MAX_EVENT as u64)?;
        let event = decode(run, &bytes)?;
        Ok(Stored { commit: commit.clone(), parents: data.parents, tree, bytes, event })
    }
}

/// Reads `event.json` of a run.
fn decode(run: &RunId, bytes: &[u8]) -> Result<Decoded, Fault> {
    let event = Decoded::parse(bytes)?;
    let says = event.envelope().run;
    if says == *run { Ok(event) } else { Err(Fault::OtherRun(says)) }
}

/// The commit that an event names and that therefore must be one of its parents.
pub(super) fn pinned(body: &Body) -> Option<&Oid> {
    match body {
        Body::Spawn(s) => Some(&s.base),
        Body::Result(r) => Some(&r.snapshot),
        Body::Engine(_)
        | Body::Approve(_)
        | Body::Reject(_)
        | Body::Keep(_)
        | Body::Apply(_)
        | Body::Undo(_)
        | Body::Abort(_)
        | Body::Prune(_)
        | Body::End(_)
        | Body::Revoke(_)
        | Body::Land(_)
        | Body::Join(_) => None,
    }
}

fn broken(run: &RunId, commit: &Oid, seq: Option<u64>, fault: Fault) -> Failure {
    let which = seq.map_or_else(String::new, |n| format!(" {n}"));
    Failure::fatal(format!("run {run}: event{which} ({}) cannot be trusted", commit.short()))
        .because(fault)
        .hint(format!("look at it with: git log -p {}", Ledger::ref_name(run)))
}
