//! Landing an approved change in the working tree, whole or not at all, whenever the process or the machine dies.
//! `plan` reads and decides and touches nothing; `execute` consumes what was planned. The index is never written
//! and nothing is committed unless that is asked for. Why not `git apply`: it writes in place, without a way back
//! (`git-agent-apply(1)`).

mod blame;
mod carry;
pub mod commit;
mod consent;
mod content;
mod ground;
mod journal;
mod lfs;
mod record;
pub mod recover;
mod refusal;
mod restore;
mod steps;
pub mod undo;

pub use consent::{Proposal, Warrant};
pub(super) use ground::quiet;
pub use recover::{Recovered, recover};
pub use restore::{Restore, Restored};

use super::show::Shown;
use crate::git::Repo;
use crate::ledger::{Ledger, Tip, change};
use crate::model::{AppliedMerge, Apply, Body, Digest, Failure, How, Kind, Mode, Oid};
use crate::os::files;
use crate::os::lock::Lock;
use crate::os::place::{self, Slot};
use crate::text::quote_path;
use content::Scratch;
use ground::{Ground, Touched};
use journal::Announced;
use std::path::PathBuf;
use steps::Step;

/// What happens at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// Its content, mode or type becomes another.
    Change,
    /// It goes.
    Delete,
}

impl Operation {
    /// The word used in every output.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Change => "change",
            Operation::Delete => "delete",
        }
    }
}

/// One path of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPlan {
    /// Its path from the top level; untrusted bytes.
    pub path: Vec<u8>,
    /// What happens there.
    pub operation: Operation,
    /// It is as the result has it already: nothing is done.
    pub already: bool,
}

/// A proposed change that would land cleanly, and in which steps. Nobody approved it yet.
#[derive(Debug)]
pub struct Unapproved {
    proposal: Proposal,
    head: Oid,
    top: PathBuf,
    touched: Vec<Touched>,
    steps: Vec<Step>,
    scratch: Scratch,
    merged: Option<Merged>,
    claim: Option<Lock>,
}

/// A merged result: not what was read in the review, so a person looks again.
#[derive(Debug, Clone)]
pub struct Merged {
    /// Digest of the difference that would land.
    pub change: Digest,
    /// The paths that are merged.
    pub paths: Vec<Vec<u8>>,
    /// Those paths, as a diff against what is there. Untrusted bytes.
    pub diff: Vec<u8>,
    /// How a person said yes.
    accepted: Option<How>,
}

/// An approved change and how it lands here. [`execute`] consumes it.
#[derive(Debug)]
pub struct Plan {
    warrant: Warrant,
    landing: Unapproved,
}

/// What landed.
#[derive(Debug)]
pub struct Landed {
    /// What was proposed and approved.
    pub proposal: Proposal,
    /// Every path of the change.
    pub paths: Vec<PathPlan>,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
    /// The commit of it, when one was made.
    pub commit: Option<Oid>,
    /// The run's newest event.
    pub tip: Tip,
}

/// Plans the landing of an approved run. `wanted` is the digest that the caller means, `now` seconds since the
/// epoch. Exit status 4 when the approval is lacking, 3 when the change cannot land on what is there.
pub fn plan(repo: &Repo, shown: &Shown, wanted: Option<&Digest>, now: i64) -> Result<Plan, Failure> {
    super::standing::nothing_to_land(&shown.head)?;
    let warrant = consent::check(repo, shown, wanted, now)?;
    let landing = survey(repo, warrant.proposal().clone(), false)?;
    Plan::join(warrant, landing)
}

/// The same, and where a file was edited the change is merged into it. What comes of that is not what was approved:
/// [`Plan::merged`] is to be shown to a person and [`Plan::accept`]ed.
pub fn plan_merge(repo: &Repo, shown: &Shown, now: i64) -> Result<Plan, Failure> {
    let warrant = consent::check(repo, shown, None, now)?;
    let landing = survey(repo, warrant.proposal().clone(), true)?;
    Plan::join(warrant, landing)
}

/// Plans the landing of the latest result of a run before anybody approved it: a review appends its `approve`
/// event only when this succeeds, then goes on with [`Unapproved::approved`]. `merge` as [`plan_merge`].
pub fn plan_unapproved(repo: &Repo, shown: &Shown, merge: bool) -> Result<Unapproved, Failure> {
    survey(repo, Proposal::of(shown)?, merge)
}

impl Unapproved {
    /// What is proposed.
    pub fn proposal(&self) -> &Proposal {
        &self.proposal
    }

    /// Every path of the change.
    pub fn paths(&self) -> Vec<PathPlan> {
        let one = |t: &Touched| PathPlan {
            path: t.change.path.clone(),
            operation: t.operation(),
            already: t.already,
        };
        self.touched.iter().map(one).collect()
    }

    /// What is merged, if anything is.
    pub fn merged(&self) -> Option<&Merged> {
        self.merged.as_ref()
    }

    /// A person has seen the merged result and said yes to it.
    #[must_use]
    pub fn accept(mut self, how: How) -> Self {
        if let Some(merged) = &mut self.merged {
            merged.accepted = Some(how);
        }
        self
    }

    /// Whether every path is as the result has it already.
    pub fn is_in_place(&self) -> bool {
        self.touched.iter().all(|t| t.already)
    }

    /// Takes the work tree for this landing, so that no other apply comes between a person's yes and
    /// [`execute`]. Without it `execute` takes it.
    pub fn claim(&mut self, repo: &Repo) -> Result<(), Failure> {
        if self.claim.is_none() {
            self.claim = Some(lock(repo)?);
        }
        Ok(())
    }

    /// The event that follows when `files` paths have landed.
    fn announced(&self, files: u64, after: u64) -> Announced {
        let Proposal { run, snapshot, change, .. } = &self.proposal;
        let merged =
            self.merged.as_ref().and_then(|m| Some(AppliedMerge { change: m.change, how: m.accepted? }));
        let apply =
            Apply { snapshot: snapshot.clone(), change: *change, head: self.head.clone(), files, merged };
        Announced {
            run: run.clone(),
            snapshot: snapshot.clone(),
            after,
            time: super::now(),
            body: Body::Apply(apply),
        }
    }

    /// The plan, once the ledger holds the approval of exactly this. `shown` is the run as it is now.
    pub fn approved(self, repo: &Repo, shown: &Shown, now: i64) -> Result<Plan, Failure> {
        let warrant = consent::check(repo, shown, Some(&self.proposal.change), now)?;
        if *warrant.proposal() != self.proposal {
            return Err(Failure::new(
                Kind::Consent,
                format!("run '{}' has another result than the one that was planned", self.proposal.name),
            )
            .hint(format!("look at it: git agent review {}", self.proposal.name)));
        }
        Plan::join(warrant, self)
    }
}

impl Plan {
    fn join(warrant: Warrant, landing: Unapproved) -> Result<Self, Failure> {
        let name = &landing.proposal.name;
        let again = |what: String| {
            Failure::new(Kind::Consent, what).hint(format!("decide again: git agent review {name}"))
        };
        if warrant.landed() && !landing.is_in_place() {
            return Err(again(format!(
                "run '{name}' was applied already, and what landed is not here any more"
            )));
        }
        if warrant.mode() == Mode::Exact && landing.merged.is_some() {
            return Err(again(format!("run '{name}' is approved for landing exactly as it is, not merged")));
        }
        if warrant.mode() == Mode::Exact && !warrant.landed() && landing.head != landing.proposal.base {
            return Err(again(format!(
                "run '{name}' is approved for landing on {} alone, and HEAD is {}",
                landing.proposal.base.short(),
                landing.head.short()
            )));
        }
        Ok(Self { warrant, landing })
    }

    /// What was approved, and by which event.
    pub fn warrant(&self) -> &Warrant {
        &self.warrant
    }

    /// Every path of the change.
    pub fn paths(&self) -> Vec<PathPlan> {
        self.landing.paths()
    }

    /// Whether every path is as approved already.
    pub fn is_in_place(&self) -> bool {
        self.landing.is_in_place()
    }

    /// What is merged, if anything is.
    pub fn merged(&self) -> Option<&Merged> {
        self.landing.merged()
    }

    /// A person has seen the merged result and said yes to it.
    #[must_use]
    pub fn accept(mut self, how: How) -> Self {
        self.landing = self.landing.accept(how);
        self
    }
}

/// Looks at the ground and decides. Touches nothing in the repository or the work tree.
fn survey(repo: &Repo, proposal: Proposal, merge: bool) -> Result<Unapproved, Failure> {
    let top = ground::quiet(repo)?;
    super::standing::nobody_else_in(repo, &top, &proposal.run)?;
    let head = head(repo)?;
    let changes = change::entries(repo, &proposal.base, &proposal.snapshot)?;
    let digest = change::digest(repo, &changes)?;
    if digest != proposal.change {
        return Err(Failure::fatal(format!(
            "the change of run '{}' is {digest}, and the ledger has {}",
            proposal.name, proposal.change
        ))
        .hint("objects or ledger of this repository were tampered with or are damaged: git fsck"));
    }
    let ground = Ground::open(&top)?;
    let scratch = Scratch::new(repo, &ground)?;
    let mut refused = Vec::new();
    let mut touched = ground.classify(&scratch, changes, merge, &mut refused)?;
    let mut steps = ground.steps(repo, &scratch, &touched, &mut refused)?;
    if !refused.is_empty() {
        blame::name_runs(repo, &ground, &scratch, &proposal.run, &mut refused)?;
        return Err(refusal::of(&proposal, refused));
    }
    let mut second = None;
    if !steps.is_empty() {
        let merged =
            scratch.merge(repo, &head, &proposal.base, &proposal.snapshot, &mut touched, &mut refused)?;
        let Some(content) = merged else { return Err(refusal::of(&proposal, refused)) };
        if let Err(why) = scratch.agrees(&content)? {
            return Err(refusal::by_hand(
                &proposal,
                Failure::new(
                    Kind::Conflict,
                    format!(
                        "every path of run '{}' is as it was in its base, but git apply --check refuses the \
                         change; nothing was changed",
                        proposal.name
                    ),
                )
                .because(why),
            ));
        }
        // Where the edit has all of the change already, nothing is done.
        let already: std::collections::BTreeSet<&[u8]> = touched
            .iter()
            .filter(|t| t.already && t.merged.is_some())
            .map(|t| t.change.path.as_slice())
            .collect();
        steps.retain(|s| !matches!(s, Step::Change { path, .. } if already.contains(path.as_slice())));
        if touched.iter().any(|t| t.merged.is_some() && !t.already) {
            let (change, diff) = scratch.second_look(&content, &touched)?;
            let merged = touched.iter().filter(|t| t.merged.is_some() && !t.already);
            let paths = merged.map(|t| t.change.path.clone()).collect();
            second = Some(Merged { change, paths, diff, accepted: None });
        }
        scratch.attributes(&ground, &touched)?;
        let through_lfs = scratch.filters(repo, &touched, &mut refused)?;
        lfs::all_here(repo, &touched, &through_lfs, &mut refused)?;
        if !refused.is_empty() {
            return Err(refusal::of(&proposal, refused));
        }
        room(ground.tree(), Scratch::bytes(repo, &touched)?)?;
    }
    Ok(Unapproved { proposal, head, top, touched, steps, scratch, merged: second, claim: None })
}

/// A filter of the person's whose program is in the tree: whoever may write the tree says what git runs.
pub(super) fn filter_in_tree(repo: &Repo) -> Result<Option<String>, Failure> {
    let keys = [".clean", ".smudge", ".process"];
    let filter = |key: &str| key.starts_with("filter.") && keys.iter().any(|end| key.ends_with(end));
    let config = repo.config()?;
    Ok(config
        .iter()
        .find(|(_, key, value)| filter(key) && content::is_relative(value))
        .map(|(_, key, value)| format!("{key} = {value}")))
}

fn head(repo: &Repo) -> Result<Oid, Failure> {
    repo.commit_of("HEAD")?.ok_or_else(|| {
        Failure::fatal("HEAD names no commit yet").hint("check out a branch that has one: git switch BRANCH")
    })
}

fn room(folder: &files::Dir, bytes: u64) -> Result<(), Failure> {
    // What cannot be asked shows itself when the new files are written, before anything is touched.
    match place::free_space(folder) {
        Ok(free) if free < bytes => Err(Failure::fatal(format!(
            "the change needs {bytes} bytes and the working tree's file system has {free}; nothing was changed"
        ))),
        _ => Ok(()),
    }
}

/// Takes the lock of this work tree, if nobody has it.
fn try_lock(repo: &Repo) -> Result<Option<Lock>, Failure> {
    let folder = journal::folder(repo);
    let fail = |e: std::io::Error| {
        Failure::fatal(format!("'{}' cannot be locked", folder.join("lock").display())).because(e)
    };
    files::create_dirs(&folder, 0o755).map_err(fail)?;
    Lock::acquire(&folder.join("lock")).map_err(fail)
}

/// The same, with what an earlier holder left half done brought to its end.
fn lock(repo: &Repo) -> Result<Lock, Failure> {
    let lock = try_lock(repo)?.ok_or_else(|| {
        Failure::fatal("another git agent apply is at work in this working tree")
            .hint("wait for it and try again")
    })?;
    recover::locked(repo, &lock)?;
    Ok(lock)
}

/// Lands what was planned: every path, or none. Appends the `apply` event; without it nothing stays. Killed at any
/// moment, the next command of any kind in this work tree completes it or takes it back.
pub fn execute(repo: &Repo, plan: Plan) -> Result<Landed, Failure> {
    let Plan { warrant, mut landing } = plan;
    if landing.merged.as_ref().is_some_and(|m| m.accepted.is_none()) {
        return Err(Failure::new(Kind::Consent, "nobody has looked at the merged result"));
    }
    landing.claim(repo)?;
    let known = known_tip(repo, &landing.proposal)?;
    let after = known.understood()?.seq;
    if landing.is_in_place() {
        let tip = match warrant.landed() {
            true => known,
            false => record_event(repo, &landing.announced(0, after), &landing.proposal)?,
        };
        return Ok(landed(landing, Vec::new(), tip));
    }
    let files = landing.touched.iter().filter(|t| !t.already).count() as u64;
    let (event, proposal) = (landing.announced(files, after), landing.proposal.clone());
    let last = || record_event(repo, &event, &proposal);
    place(repo, landing, warrant.target(), Some(event.clone()), last)
}

/// Puts a surveyed change in place, all of it or nothing. `last` appends the event that says so; when it
/// cannot, everything is taken back. With `event`, which is what `last` appends, a landing that is killed just before is
/// completed by the next command, and can be undone; without it the landing is complete when all is in place.
fn place(
    repo: &Repo,
    mut landing: Unapproved,
    target: Option<&str>,
    event: Option<Announced>,
    last: impl FnOnce() -> Result<Tip, Failure>,
) -> Result<Landed, Failure> {
    let mut notes = Vec::new();
    // The ground may have moved since the plan. Paths are told by their identity, one by one.
    let top = ground::quiet(repo)?;
    if head(repo)? != landing.head || top != landing.top {
        return Err(Failure::fatal("HEAD moved while the change was about to land; nothing was changed")
            .hint(format!("try again: git agent apply {}", landing.proposal.name)));
    }
    if let (Some(meant), Ok(Some(here))) = (target, repo.head_branch())
        && meant != here
    {
        let short = |name: &str| name.trim_start_matches("refs/heads/").to_owned();
        notes.push(format!("approved with {} in mind, landed on {}", short(meant), short(&here)));
    }
    let paths: Vec<&[u8]> =
        landing.touched.iter().filter(|t| !t.already).map(|t| t.change.path.as_slice()).collect();
    let cargo = carry::Cargo {
        repo,
        top: &top,
        name: &landing.proposal.name,
        steps: &landing.steps,
        index: ground::staged(repo, &top, &paths)?,
        time: super::now(),
        event,
    };
    let make = |slot: &Slot| {
        landing.scratch.stage(&landing.touched, slot)?;
        dress(&landing, slot, &mut notes)
    };
    let done = carry::land(cargo, make, |_| last());
    let (tip, late, slot) = done.map_err(|t| refusal::trouble(&landing.proposal, t))?;
    for path in late {
        notes.push(format!(
            "{} was written to while it landed; that file is kept below {}",
            quote_path(&path),
            slot.display()
        ));
    }
    let surplus = carry::surplus(repo, &top);
    landing.claim = None;
    record::discard(&surplus);
    Ok(landed(landing, notes, tip))
}

fn landed(landing: Unapproved, notes: Vec<String>, tip: Tip) -> Landed {
    Landed { paths: landing.paths(), proposal: landing.proposal, notes, commit: None, tip }
}

/// The new files get what a person gave the old ones; what cannot be kept is named.
fn dress(landing: &Unapproved, slot: &Slot, notes: &mut Vec<String>) -> Result<(), Failure> {
    for t in landing.touched.iter().filter(|t| !t.already && t.operation() == Operation::Change) {
        let (path, Some(was)) = (&t.change.path, t.was) else { continue };
        let fail = |e: std::io::Error| {
            Failure::fatal(format!("{} could not be made ready; nothing was changed", quote_path(path)))
                .because(e)
        };
        let made = slot.successor(path).map_err(fail)?;
        if !was.is_file() || !made.is_some_and(|m| m.is_file()) {
            continue;
        }
        if was.links > 1 {
            notes.push(format!(
                "{} had {} names; the others keep the old content",
                quote_path(path),
                was.links
            ));
        }
        let executable = match (t.change.old_mode & 0o111 != 0, t.change.new_mode & 0o111 != 0) {
            (false, true) => Some(true),
            (true, false) => Some(false),
            _ => None,
        };
        for lost in slot.dress(path, &was, executable).map_err(fail)? {
            notes.push(format!("{} lost {lost}", quote_path(path)));
        }
    }
    Ok(())
}

/// Appends the `apply` event if the run is still approved.
fn record_event(repo: &Repo, event: &Announced, proposal: &Proposal) -> Result<Tip, Failure> {
    carry::announce(repo, event, |head| consent::still(head, &proposal.snapshot))
}

fn known_tip(repo: &Repo, proposal: &Proposal) -> Result<Tip, Failure> {
    Ledger::new(repo)
        .tip(&proposal.run)?
        .ok_or_else(|| Failure::fatal(format!("there is no run '{}' any more", proposal.name)))
}
