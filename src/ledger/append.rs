//! Writing: objects first, then one ref update that names the old value.

use super::chain::{Tip, pinned, unknown};
use super::{
    ATTACHMENTS, EVENT_FILE, LIMIT_BYTES, LIMIT_EVENTS, Ledger, MAX_SIGNATURE, SIGNATURE_FILE, TASK, plain,
};
use crate::git::{ObjectKind, RefError, Transaction, TreeEntry, commit_bytes, tree_bytes};
use crate::model::{
    Actor, Attachment, Body, Decoded, Digest, Event, FORMAT, Failure, Head, MAX_EVENTS, MAX_RUN, MAX_TASK,
    Oid, RunId,
};
use std::time::Duration;

/// How often a lost race is tried again.
const TRIES: u32 = 50;
/// Largest time a commit header takes everywhere: the end of the year 9999.
pub(super) const MAX_TIME: i64 = 253_402_300_799;

/// An event to be written, without its place in a chain.
#[derive(Debug, Clone)]
pub struct Draft {
    /// What happened.
    pub body: Body,
    /// Name and content of attached files. [`TASK`] is limited to [`MAX_TASK`].
    pub att: Vec<(String, Vec<u8>)>,
    /// Commits to protect from gc beside those the body names (those are added by themselves). Never the
    /// agent's own commits: they may hold what the run then removed.
    pub evidence: Vec<Oid>,
    /// Seconds since the epoch.
    pub time: i64,
    /// Who acts.
    pub actor: Actor,
}

/// Signs the bytes of an event: an armoured SSHSIG or OpenPGP signature.
pub type Sign<'s> = dyn Fn(&[u8]) -> Result<Vec<u8>, Failure> + 's;

/// Where an event goes.
struct At<'t> {
    seq: u64,
    prev: Option<Digest>,
    head: Head,
    before: Option<&'t Tip>,
    held: u64,
}

/// An event whose objects are written and that becomes part of its run with one ref update.
#[derive(Debug, Clone)]
#[must_use = "nothing is in the ledger before the transaction is committed"]
pub struct Prepared {
    /// Full name of the run's ref.
    pub name: String,
    /// The event's commit.
    pub commit: Oid,
    /// What the ref must name before; `None`: it must not exist.
    pub old: Option<Oid>,
    /// The event.
    pub event: Event,
}

impl Prepared {
    /// Adds the ref update to a transaction.
    pub fn join(&self, transaction: Transaction) -> Transaction {
        match &self.old {
            Some(old) => transaction.update(&self.name, &self.commit, old),
            None => transaction.create(&self.name, &self.commit),
        }
    }

    /// The run's newest event once the transaction is committed.
    pub fn into_tip(self) -> Tip {
        Tip { run: self.event.run.clone(), commit: self.commit, event: Decoded::Known(Box::new(self.event)) }
    }
}

impl Ledger<'_> {
    /// Writes the objects of a run's first event, which must be a `spawn`.
    pub fn prepare_first(&self, run: &RunId, draft: &Draft) -> Result<Prepared, Failure> {
        let head = Head::advance(None, 0, &draft.body).map_err(|e| Failure::fatal(e.to_string()))?;
        self.write(run, draft, At { seq: 0, prev: None, head, before: None, held: 0 }, None)
    }

    /// Writes the objects of the event that follows `tip`. The whole chain is checked first: nothing is ever
    /// appended to a run that cannot be trusted or that holds something newer than we know.
    pub fn prepare_next(&self, tip: &Tip, draft: &Draft) -> Result<Prepared, Failure> {
        self.prepare(tip, draft, None)
    }

    fn prepare(&self, tip: &Tip, draft: &Draft, sign: Option<&Sign<'_>>) -> Result<Prepared, Failure> {
        tip.understood()?;
        let chain = self.chain(tip)?;
        if let Some((v, kind)) = chain.unknown() {
            return Err(unknown(&tip.run, v, kind));
        }
        let seq = tip.event.envelope().seq + 1;
        let held = chain.events.len() as u64;
        if held >= LIMIT_EVENTS || (seq >= MAX_EVENTS && !draft.body.closes()) {
            return Err(full(tip, &format!("{seq} events"), &draft.body));
        }
        let head = Head::advance(chain.head.as_ref(), seq, &draft.body)
            .map_err(|e| Failure::fatal(format!("run {}: {e}", tip.label())))?;
        let place = At { seq, prev: Some(chain.last), head, before: Some(tip), held: chain.bytes };
        self.write(&tip.run, draft, place, sign)
    }

    /// Appends an event whatever others append meanwhile. `check` sees what the run is at the moment of each
    /// try and says whether the event still makes sense.
    pub fn append(
        &self,
        run: &RunId,
        draft: &Draft,
        check: impl Fn(&Head) -> Result<(), Failure>,
    ) -> Result<Tip, Failure> {
        self.append_signed(run, draft, None, check)
    }

    /// The same with a signature over the event's bytes beside it. A lost race means signing again.
    pub fn append_signed(
        &self,
        run: &RunId,
        draft: &Draft,
        sign: Option<&Sign<'_>>,
        check: impl Fn(&Head) -> Result<(), Failure>,
    ) -> Result<Tip, Failure> {
        for attempt in 0..TRIES {
            let tip =
                self.tip(run)?.ok_or_else(|| Failure::fatal(format!("there is no run {run} any more")))?;
            check(&tip.understood()?.head)?;
            let prepared = self.prepare(&tip, draft, sign)?;
            let why = format!("agent: {}", draft.body.kind());
            match prepared.join(Transaction::new()).commit(self.repo, &why) {
                Ok(()) => return Ok(prepared.into_tip()),
                Err(RefError::Moved { .. }) => {
                    // Spread those who lost the same race; the process id differs where the clock does not.
                    let spread = u64::from(std::process::id()) % 7 + 1;
                    std::thread::sleep(Duration::from_millis(spread * u64::from(attempt.min(8))));
                }
                Err(e) => return Err(e.into()),
            }
        }
        Err(Failure::fatal(format!("run {run} is being written by too many at once")).hint("try again"))
    }

    fn write(
        &self,
        run: &RunId,
        draft: &Draft,
        at: At<'_>,
        sign: Option<&Sign<'_>>,
    ) -> Result<Prepared, Failure> {
        let At { seq, prev, head, before, held } = at;
        let objects = self.repo.objects()?;
        let evidence = self.evidence(draft)?;
        let mut att = Vec::new();
        for (name, content) in &draft.att {
            check_attachment(name, content)?;
            let size = content.len() as u64;
            att.push(Attachment { name: name.clone(), size, sha256: Digest::of(content) });
        }
        att.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(twice) = att.windows(2).find(|w| w[0].name == w[1].name) {
            return Err(Failure::fatal(format!("two attachments are named '{}'", twice[0].name)));
        }
        let event = Event {
            v: FORMAT,
            run: run.clone(),
            seq,
            prev,
            time: draft.time,
            actor: draft.actor.clone(),
            att,
            head,
            body: draft.body.clone(),
        };
        let refused = || format!("the '{}' event cannot be written", draft.body.kind());
        let bytes = event.encode().map_err(|e| Failure::fatal(refused()).because(e))?;
        let signature = sign.map(|sign| sign(&bytes)).transpose()?;
        let signed = signature.as_ref().map_or(0, |s| s.len() as u64);
        if signed > MAX_SIGNATURE {
            return Err(Failure::fatal(refused()).because(format!("its signature has {signed} bytes")));
        }
        let total = held + bytes.len() as u64 + signed + event.att.iter().map(|a| a.size).sum::<u64>();
        if total > if draft.body.closes() { LIMIT_BYTES } else { MAX_RUN } {
            return Err(match before {
                Some(tip) => full(tip, &format!("{held} bytes"), &draft.body),
                None => Failure::fatal(refused()).because(format!("it has more than {MAX_RUN} bytes")),
            });
        }
        let mut tree = vec![TreeEntry {
            mode: 0o100_644,
            name: EVENT_FILE.into(),
            oid: objects.write(ObjectKind::Blob, &bytes)?,
        }];
        if let Some(signature) = &signature {
            let oid = objects.write(ObjectKind::Blob, signature)?;
            tree.push(TreeEntry { mode: 0o100_644, name: SIGNATURE_FILE.into(), oid });
        }
        let mut files = Vec::new();
        for (name, content) in &draft.att {
            let oid = objects.write(ObjectKind::Blob, content)?;
            files.push(TreeEntry { mode: 0o100_644, name: name.clone().into_bytes(), oid });
        }
        if !files.is_empty() {
            let oid = objects.write(ObjectKind::Tree, &tree_bytes(files))?;
            tree.push(TreeEntry { mode: 0o040_000, name: ATTACHMENTS.into(), oid });
        }
        let tree = objects.write(ObjectKind::Tree, &tree_bytes(tree))?;
        let mut parents: Vec<Oid> = before.map(|tip| tip.commit.clone()).into_iter().collect();
        parents.extend(evidence.into_iter().filter(|oid| before.is_none_or(|tip| tip.commit != *oid)));
        let message = format!("agent: {} {}", event.body.kind(), event.head.name);
        let commit =
            commit_bytes(&tree, &parents, &who(&draft.actor), draft.time.clamp(0, MAX_TIME), &message);
        let commit = objects.write(ObjectKind::Commit, &commit)?;
        let name = Self::ref_name(run);
        let mut old = before.map(|t| t.commit.clone());
        // The first word of ours about a run that so far only a remote has.
        if old.is_some() && self.repo.ref_tip(&name)?.is_none() && self.remote_tip(run)? == old {
            old = None;
        }
        Ok(Prepared { name, commit, old, event })
    }

    /// What the body names, then what the caller adds; each once, each an existing commit.
    fn evidence(&self, draft: &Draft) -> Result<Vec<Oid>, Failure> {
        let objects = self.repo.objects()?;
        if let Body::Result(r) = &draft.body {
            let snapshot = objects.commit(&r.snapshot)?;
            if snapshot.parents != [r.base.clone()] || snapshot.tree != r.tree {
                return Err(Failure::fatal(format!(
                    "commit {} is not a snapshot: its only parent must be the base",
                    r.snapshot
                )));
            }
        }
        let mut all: Vec<Oid> = Vec::new();
        for oid in pinned(&draft.body).into_iter().chain(&draft.evidence) {
            if all.contains(oid) {
                continue;
            }
            match objects.header(oid)? {
                Some((ObjectKind::Commit, _)) => all.push(oid.clone()),
                _ => return Err(Failure::fatal(format!("commit {oid} does not exist here"))),
            }
        }
        Ok(all)
    }
}

fn full(tip: &Tip, what: &str, body: &Body) -> Failure {
    Failure::fatal(format!("run {} holds {what} and takes no '{}' any more", tip.label(), body.kind()))
        .hint("continue in a new run")
}

/// Attachments become files in a tree: one plain ASCII component.
pub(super) fn is_attachment_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !name.is_empty() && name.len() <= 100 && !name.starts_with('.') && name.bytes().all(plain)
}

fn check_attachment(name: &str, content: &[u8]) -> Result<(), Failure> {
    if !is_attachment_name(name) {
        return Err(Failure::fatal(format!(
            "'{}' cannot name an attachment",
            crate::text::Untrusted::new(name)
        )));
    }
    if name == TASK && content.len() > MAX_TASK {
        return Err(Failure::usage(format!(
            "the task is {} bytes long, more than the {MAX_TASK} that the ledger takes",
            content.len()
        ))
        .hint("put the long part into a file of the repository and name it in the task"));
    }
    Ok(())
}

/// `Name <mail>` for a commit header, whatever the actor is called.
fn who(actor: &Actor) -> String {
    let or = |text: &str| Some(plain(text)).filter(|t| !t.is_empty()).unwrap_or_else(|| "unknown".into());
    format!("{} <{}>", or(&actor.name), or(&actor.email))
}
