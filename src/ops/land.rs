//! Landing an approved change in the working tree, whole or not at all. `plan` reads and decides and touches
//! nothing; `execute` consumes what was planned. The index is never written and nothing is committed. Why not
//! `git apply`: it writes in place, without a way back (`git-agent-apply(1)`).

mod consent;
mod content;
mod ground;
mod restore;

pub use consent::{Proposal, Warrant};
pub(super) use ground::quiet;
pub use restore::{Restore, Restored};

use super::show::Shown;
use crate::git::Repo;
use crate::ledger::{self, Draft, Ledger, Tip, change};
use crate::model::{Apply, Body, Decoded, Digest, Failure, Kind, Mode, Oid};
use crate::os::files;
use crate::os::lock::Lock;
use crate::os::place::{self, Stage, Step, Trouble, Uninterrupted};
use crate::text::quote_path;
use content::Scratch;
use ground::{Ground, Touched};

/// Refused paths that are listed by name.
const LISTED: usize = 20;

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

/// Why a path cannot land.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Refused {
    path: Vec<u8>,
    why: String,
}

impl Refused {
    fn new(path: &[u8], why: String) -> Self {
        Self { path: path.to_vec(), why }
    }
}

/// A proposed change that would land cleanly, and in which steps. Nobody approved it yet.
#[derive(Debug)]
pub struct Unapproved {
    proposal: Proposal,
    head: Oid,
    touched: Vec<Touched>,
    steps: Vec<Step>,
    scratch: Scratch,
    claim: Option<Lock>,
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
    /// The run's newest event.
    pub tip: Tip,
}

/// Plans the landing of an approved run. `wanted` is the digest that the caller means, `now` seconds since the
/// epoch. Exit status 4 when the approval is lacking, 3 when the change cannot land on what is there.
pub fn plan(repo: &Repo, shown: &Shown, wanted: Option<&Digest>, now: i64) -> Result<Plan, Failure> {
    super::standing::nothing_to_land(&shown.head)?;
    let warrant = consent::check(shown, wanted, now)?;
    let landing = survey(repo, warrant.proposal().clone())?;
    Plan::join(warrant, landing)
}

/// Plans the landing of the latest result of a run before anybody approved it: a review appends its `approve`
/// event only when this succeeds, then goes on with [`Unapproved::approved`].
pub fn plan_unapproved(repo: &Repo, shown: &Shown) -> Result<Unapproved, Failure> {
    survey(repo, Proposal::of(shown)?)
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

    /// The plan, once the ledger holds the approval of exactly this. `shown` is the run as it is now.
    pub fn approved(self, shown: &Shown, now: i64) -> Result<Plan, Failure> {
        let warrant = consent::check(shown, Some(&self.proposal.change), now)?;
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
}

/// Looks at the ground and decides. Touches nothing in the repository or the work tree.
fn survey(repo: &Repo, proposal: Proposal) -> Result<Unapproved, Failure> {
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
    let touched = ground.classify(&scratch, changes, &mut refused)?;
    let steps = ground.steps(repo, &scratch, &touched, &mut refused)?;
    if !refused.is_empty() {
        return Err(refusal(&proposal, refused));
    }
    if !steps.is_empty() {
        let merged =
            scratch.merge(repo, &head, &proposal.base, &proposal.snapshot, &touched, &mut refused)?;
        let Some(content) = merged else { return Err(refusal(&proposal, refused)) };
        if let Err(why) = scratch.agrees(&content)? {
            return Err(by_hand(
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
        scratch.attributes(&ground, &touched)?;
        scratch.filters(repo, &touched, &mut refused)?;
        if !refused.is_empty() {
            return Err(refusal(&proposal, refused));
        }
        room(ground.tree(), Scratch::bytes(repo, &touched)?)?;
    }
    Ok(Unapproved { proposal, head, touched, steps, scratch, claim: None })
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

/// All paths that cannot land, by name, and how to go on by hand.
fn refusal(proposal: &Proposal, mut refused: Vec<Refused>) -> Failure {
    refused.sort();
    refused.dedup_by(|a, b| a.path == b.path);
    let n = refused.len();
    let mut text = format!(
        "{n} path{} of run '{}' cannot land here; nothing was changed",
        if n == 1 { "" } else { "s" },
        proposal.name
    );
    for r in refused.iter().take(LISTED) {
        text.push_str(&format!("\n  {}: {}", quote_path(&r.path), r.why));
    }
    if n > LISTED {
        text.push_str(&format!("\n  and {} more", n - LISTED));
    }
    by_hand(proposal, Failure::new(Kind::Conflict, text))
}

fn by_hand(proposal: &Proposal, failure: Failure) -> Failure {
    let Proposal { name, base, snapshot, .. } = proposal;
    failure
        .hint(format!("move or undo what is in the way, then: git agent apply {name}"))
        .hint(format!(
            "or commit it and merge by hand (--merge is not there yet): git diff --binary {} {} | git apply -3",
            base.short(),
            snapshot.short()
        ))
        .hint(format!("the run in a work tree of its own: git agent checkout {name}"))
}

fn lock(repo: &Repo) -> Result<Lock, Failure> {
    let folder = repo.git_dir().join("agent/apply");
    let fail = |e: std::io::Error| {
        Failure::fatal(format!("'{}' cannot be locked", folder.join("lock").display())).because(e)
    };
    files::create_dirs(&folder, 0o755).map_err(fail)?;
    Lock::acquire(&folder.join("lock")).map_err(fail)?.ok_or_else(|| {
        Failure::fatal("another git agent apply is at work in this working tree")
            .hint("wait for it and try again")
    })
}

/// Lands what was planned: every path, or none. Appends the `apply` event; without it nothing stays.
pub fn execute(repo: &Repo, plan: Plan) -> Result<Landed, Failure> {
    let Plan { warrant, mut landing } = plan;
    landing.claim(repo)?;
    if landing.is_in_place() {
        let tip =
            if warrant.landed() { known_tip(repo, &landing.proposal)? } else { record(repo, &landing, 0)? };
        return Ok(landed(landing, Vec::new(), tip));
    }
    place(repo, landing, warrant.target(), record)
}

/// Puts a surveyed change in place, all of it or nothing. `last` appends the event that says so; when it
/// cannot, everything is taken back.
fn place(
    repo: &Repo,
    landing: Unapproved,
    target: Option<&str>,
    last: impl FnOnce(&Repo, &Unapproved, u64) -> Result<Tip, Failure>,
) -> Result<Landed, Failure> {
    let mut notes = Vec::new();
    // The ground may have moved since the plan. Paths are told by their identity, one by one.
    let top = ground::quiet(repo)?;
    if head(repo)? != landing.head {
        return Err(Failure::fatal("HEAD moved while the change was about to land; nothing was changed")
            .hint(format!("try again: git agent apply {}", landing.proposal.name)));
    }
    if let (Some(meant), Ok(Some(here))) = (target, repo.head_branch())
        && meant != here
    {
        let short = |name: &str| name.trim_start_matches("refs/heads/").to_owned();
        notes.push(format!("approved with {} in mind, landed on {}", short(meant), short(&here)));
    }
    let fate = super::fate()?;
    let label = crate::model::RunId::new(fate.millis, fate.chance);
    let mut stage = Stage::create(&repo.git_dir().join("agent/apply"), &top, label.as_str())
        .map_err(|e| Failure::fatal("no staging folder could be made").because(e))?;
    landing.scratch.stage(&landing.touched, &stage)?;
    dress(&landing, &stage, &mut notes)?;

    let files = landing.touched.iter().filter(|t| !t.already).count() as u64;
    let stage_path = stage.path().to_owned();
    let held_off = Uninterrupted::begin();
    let placed = stage.place(&landing.steps).map_err(|e| trouble(&landing.proposal, e, &stage_path))?;
    let tip = match last(repo, &landing, files) {
        Ok(tip) => tip,
        Err(failure) => {
            let left = placed.roll_back();
            if left.is_empty() {
                return Err(failure.hint("what had landed was taken back; nothing was changed"));
            }
            let names: Vec<_> = left.iter().map(|(p, e)| format!("{} ({e})", quote_path(p))).collect();
            return Err(failure
                .hint(format!("could not be taken back: {}", names.join(", ")))
                .hint(format!("the originals are in {}", stage_path.display())));
        }
    };
    for path in placed.settle() {
        notes.push(format!(
            "{} was written to while it landed; that file is kept below {}",
            quote_path(&path),
            stage_path.display()
        ));
    }
    drop(stage);
    drop(held_off);
    Ok(landed(landing, notes, tip))
}

fn landed(landing: Unapproved, notes: Vec<String>, tip: Tip) -> Landed {
    Landed { paths: landing.paths(), proposal: landing.proposal, notes, tip }
}

/// The new files get what a person gave the old ones; what cannot be kept is named.
fn dress(landing: &Unapproved, stage: &Stage, notes: &mut Vec<String>) -> Result<(), Failure> {
    for t in landing.touched.iter().filter(|t| !t.already && t.operation() == Operation::Change) {
        let (path, Some(was)) = (&t.change.path, t.was) else { continue };
        let fail = |e: std::io::Error| {
            Failure::fatal(format!("{} could not be made ready; nothing was changed", quote_path(path)))
                .because(e)
        };
        let made = stage.successor(path).map_err(fail)?;
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
        for lost in stage.dress(path, &was, executable).map_err(fail)? {
            notes.push(format!("{} lost {lost}", quote_path(path)));
        }
    }
    Ok(())
}

fn trouble(proposal: &Proposal, trouble: Trouble, stage: &std::path::Path) -> Failure {
    let name = &proposal.name;
    match &trouble {
        Trouble::TakenBack { why: place::Why::Changed | place::Why::NotEmpty, .. } => {
            Failure::new(Kind::Conflict, format!("run '{name}' did not land; nothing was changed"))
                .because(trouble)
                .hint(format!("look again: git agent apply {name} --dry-run"))
        }
        Trouble::TakenBack { .. } => Failure::fatal(format!(
            "run '{name}' could not land; what had landed was taken back, nothing was changed"
        ))
        .because(trouble),
        Trouble::Stuck { .. } => Failure::fatal(format!(
            "run '{name}' did not land, and not everything is where it was"
        ))
        .because(trouble)
        .hint(format!(
            "what you edited or what stood there meanwhile is kept in {}: compare before you delete it",
            stage.display()
        )),
    }
}

/// Appends the `apply` event if the run is still approved.
fn record(repo: &Repo, landing: &Unapproved, files: u64) -> Result<Tip, Failure> {
    let proposal = &landing.proposal;
    let body = Body::Apply(Apply {
        snapshot: proposal.snapshot.clone(),
        change: proposal.change,
        head: landing.head.clone(),
        files,
    });
    let draft = Draft {
        body: body.clone(),
        att: Vec::new(),
        evidence: Vec::new(),
        time: super::now(),
        actor: ledger::actor(repo.config()?),
    };
    let ledger = Ledger::new(repo);
    ledger.append(&proposal.run, &draft, |head| consent::still(head, proposal)).or_else(|failure| {
        // A git that was killed after its work was done reports a failure that is none.
        match ledger.tip(&proposal.run) {
            Ok(Some(tip)) if matches!(&tip.event, Decoded::Known(e) if e.body == body && e.time == draft.time) => {
                Ok(tip)
            }
            _ => Err(failure),
        }
    })
}

fn known_tip(repo: &Repo, proposal: &Proposal) -> Result<Tip, Failure> {
    Ledger::new(repo)
        .tip(&proposal.run)?
        .ok_or_else(|| Failure::fatal(format!("there is no run '{}' any more", proposal.name)))
}
