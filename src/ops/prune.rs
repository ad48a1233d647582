//! Prune: which runs' folders go. `plan` reads and decides, writing nothing; `execute` acts on exactly what the
//! plan lists. Owns the rules; `reclaim` owns the acts.

use super::landed::Landed;
use super::reclaim::{self, Seen};
use super::{making, spawn};
use crate::git::Repo;
use crate::ledger::{self, Folder, Home, Ledger, Tip};
use crate::model::{Body, Failure, Head, Isolation, Oid, Phase, RunId, RunName};
use crate::os::ancestry::Process;
use crate::os::lock::Lock;
use crate::os::{files, walk};
use crate::policy::Retention;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// In the root; its age says when the last automatic prune was.
const STAMP: &str = ".pruned";
/// Between two automatic prunes.
const A_DAY: Duration = Duration::from_secs(86_400);

/// What the caller asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request {
    /// Also what is kept only because it may hold something unrecorded: finished runs that changed after
    /// their last snapshot, failed runs before the retention. Never what is live, foreign or unmerged.
    pub force: bool,
}

/// Why something goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It was applied.
    Applied,
    /// A person rejected it.
    Rejected,
    /// It is in the history of this branch.
    Landed(String),
    /// It was a reader's, and has ended.
    Finished,
    /// It failed, and the retention is over.
    Failed,
    /// It was never used, and the retention is over.
    Unused,
    /// An earlier prune was interrupted.
    Leftover,
    /// A folder of ours that no run in the ledger owns.
    NoEntry,
    /// A run whose folder is gone already.
    NoFolder,
}

impl Why {
    /// One word for programs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Why::Applied => "applied",
            Why::Rejected => "rejected",
            Why::Landed(_) => "landed",
            Why::Finished => "finished",
            Why::Failed => "failed",
            Why::Unused => "unused",
            Why::Leftover => "leftover",
            Why::NoEntry => "no-entry",
            Why::NoFolder => "no-folder",
        }
    }

    /// One sentence for people and for the ledger.
    pub fn sentence(&self) -> String {
        match self {
            Why::Applied => "it was applied".into(),
            Why::Rejected => "it was rejected".into(),
            Why::Landed(branch) => format!("its change is in {branch}"),
            Why::Finished => "it was a reader's and has ended".into(),
            Why::Failed => "it failed longer ago than the retention".into(),
            Why::Unused => "it was not used for longer than the retention".into(),
            Why::Leftover => "an earlier prune was interrupted".into(),
            Why::NoEntry => "no run in the ledger owns it".into(),
            Why::NoFolder => "its folder is gone".into(),
        }
    }
}

/// Something that goes.
#[derive(Debug, Clone)]
pub struct Item {
    /// The run.
    pub run: RunId,
    /// Its name.
    pub name: RunName,
    /// Why.
    pub why: Why,
    /// Its folder, as it was looked at.
    pub seen: Option<Seen>,
    /// Full name of its branch, and the commit it is deleted at.
    pub branch: Option<(String, Oid)>,
    /// What is left of its processes; ended first.
    pub processes: Vec<Process>,
    /// The newest event when it was looked at; `None` where the ledger has none.
    pub tip: Option<Oid>,
    /// Whether a `prune` event is appended.
    pub record: bool,
}

/// Something that stays.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The run's name, or the name of what lies in the root.
    pub name: String,
    /// Where it lies.
    pub path: Option<PathBuf>,
    /// One sentence.
    pub why: String,
    /// Whether a person should look: something is not as it was made, or a finished run cannot go.
    pub refused: bool,
}

/// What will happen.
#[derive(Debug, Default)]
pub struct Plan {
    /// Where runs lie; `None` when this repository never had one.
    pub home: Option<Home>,
    /// What goes.
    pub items: Vec<Item>,
    /// What stays, and why.
    pub kept: Vec<Kept>,
    /// Half-made spawns to be undone.
    pub half_made: Vec<RunName>,
    /// What earlier deletions left in the trash.
    pub trash: Vec<OsString>,
}

/// What happened.
#[derive(Debug, Default)]
pub struct Done {
    /// What went.
    pub items: Vec<Item>,
    /// What stays: the plan's, and what changed before it could go.
    pub kept: Vec<Kept>,
    /// Half-made spawns that were undone.
    pub half_made: Vec<RunName>,
    /// What was left in the trash and is being deleted.
    pub trash: Vec<OsString>,
    /// One sentence each.
    pub notes: Vec<String>,
}

/// Decides what goes. Changes nothing, not even a time.
pub fn plan(repo: &Repo, request: Request, now: i64) -> Result<Plan, Failure> {
    // Without an id there was never a run, and asking for one would make it.
    if files::lstat(&repo.common_dir().join("agent/id"))
        .map_err(|e| Failure::fatal("the repository's id cannot be looked at").because(e))?
        .is_none()
    {
        return Ok(Plan::default());
    }
    let ledger = Ledger::new(repo);
    let home = ledger.home()?;
    let half_made = making::abandoned(&home)?;
    let trash = reclaim::trash(&home);
    let tips = ledger.tips()?;
    let found = reclaim::scan(&home)?;
    let judge = Judge::new(repo, home, request, now)?;

    let mut plan = Plan { half_made, trash, ..Plan::default() };
    let mut owned: BTreeSet<RunId> = tips.broken.iter().filter_map(|b| b.run.clone()).collect();
    let owners = owners(&tips.tips);
    for tip in &tips.tips {
        owned.insert(tip.run.clone());
        let Some(head) = tip.head() else {
            plan.kept.push(Kept::quiet(tip.label(), None, "a newer git-agent wrote it"));
            continue;
        };
        let verdict = match found.iter().find(|f| f.folder.as_ref().is_some_and(|r| r.run == tip.run)) {
            Some(found) => judge.run(tip, head, found, owners.get(&head.branch) == Some(&&tip.run))?,
            None => judge.without_folder(tip, head, &found, &plan.half_made)?,
        };
        plan.add(verdict);
    }
    for found in &found {
        match &found.folder {
            Some(folder) if owned.contains(&folder.run) => {}
            Some(folder) if folder.repo != judge.home.id => plan.kept.push(Kept::refused(
                found.entry.to_string_lossy(),
                Some(found.path.clone()),
                "it belongs to another repository",
            )),
            Some(folder) if !tips.archived && !plan.half_made.contains(&folder.name) => {
                plan.add(judge.orphan(folder, found)?);
            }
            _ => {}
        }
    }
    plan.home = Some(judge.home);
    Ok(plan)
}

/// Carries a plan out: exactly what it lists, each looked at again just before.
pub fn execute(repo: &Repo, plan: Plan, now: i64) -> Result<Done, Failure> {
    let Plan { home, items, kept, half_made, trash } = plan;
    let mut done = Done { kept, trash, ..Done::default() };
    let Some(home) = home else { return Ok(done) };
    if !half_made.is_empty() {
        done.half_made = making::reclaim(repo, &home)?;
    }
    let around = reclaim::Around::of(repo)?;
    for item in items {
        match reclaim::carry_out(repo, &home, &item, &around, None, now) {
            Ok(notes) => {
                done.notes.extend(notes);
                done.items.push(item);
            }
            Err(failure) => {
                let path = item.seen.map(|s| s.path);
                done.kept.push(Kept::refused(item.name.as_str(), path, &failure.to_string()));
            }
        }
    }
    if !done.trash.is_empty() || done.items.iter().any(|i| i.seen.is_some()) {
        reclaim::empty_trash(&home)?;
    }
    Ok(done)
}

/// The automatic prune: at most once a day, quiet. `None` when it is not due. For the end of `spawn` and
/// `apply`; its failure is nobody's failure.
pub fn auto(repo: &Repo) -> Result<Option<Done>, Failure> {
    if files::lstat(&repo.common_dir().join("agent/id")).ok().flatten().is_none() {
        return Ok(None);
    }
    let stamp = Ledger::new(repo).home()?.root.join(STAMP);
    let age = std::fs::symlink_metadata(&stamp)
        .and_then(|m| m.modified())
        .map(|t| SystemTime::now().duration_since(t));
    // A time in the future is as good as none.
    if age.is_ok_and(|age| age.is_ok_and(|age| age < A_DAY)) {
        return Ok(None);
    }
    files::write_atomic(&stamp, b"", 0o600)
        .map_err(|e| Failure::fatal(format!("'{}' cannot be written", stamp.display())).because(e))?;
    let plan = plan(repo, Request::default(), super::now())?;
    execute(repo, plan, super::now()).map(Some)
}

impl Plan {
    /// What [`execute`] would do, as if it had.
    pub fn would(self) -> Done {
        let Plan { home: _, items, kept, half_made, trash } = self;
        Done { items, kept, half_made, trash, notes: Vec::new() }
    }

    fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Goes(item) => self.items.push(*item),
            Verdict::Stays(kept) => self.kept.push(kept),
            Verdict::Nothing => {}
        }
    }
}

impl Kept {
    fn quiet(name: impl Into<String>, path: Option<PathBuf>, why: &str) -> Self {
        Self { name: name.into(), path, why: why.into(), refused: false }
    }

    fn refused(name: impl Into<String>, path: Option<PathBuf>, why: &str) -> Self {
        Self { name: name.into(), path, why: why.into(), refused: true }
    }
}

/// The run that a branch belongs to: the newest of those that name it and are not pruned.
fn owners(tips: &[Tip]) -> BTreeMap<String, &RunId> {
    let heads = tips.iter().filter_map(|t| Some((t.head()?, &t.run)));
    heads.filter(|(h, _)| h.phase != Phase::Pruned).map(|(h, run)| (h.branch.clone(), run)).collect()
}

#[derive(Debug)]
pub(super) enum Verdict {
    Goes(Box<Item>),
    Stays(Kept),
    /// Neither: nothing of it is here.
    Nothing,
}

/// Everything that the rules ask about one repository.
pub(super) struct Judge<'r> {
    repo: &'r Repo,
    ledger: Ledger<'r>,
    pub(super) home: Home,
    request: Request,
    now: i64,
    /// `None` when the policy in force cannot be told: then nothing goes by age.
    retention: std::cell::OnceCell<Option<Retention>>,
    pub(super) around: reclaim::Around,
    landed: std::cell::OnceCell<Landed<'r>>,
    /// The caller holds the run's lock.
    pub(super) locked: bool,
}

impl<'r> Judge<'r> {
    pub(super) fn new(repo: &'r Repo, home: Home, request: Request, now: i64) -> Result<Self, Failure> {
        Ok(Self {
            ledger: Ledger::new(repo),
            retention: std::cell::OnceCell::new(),
            around: reclaim::Around::of(repo)?,
            landed: std::cell::OnceCell::new(),
            locked: false,
            repo,
            home,
            request,
            now,
        })
    }

    /// A run whose folder is here.
    pub(super) fn run(
        &self,
        tip: &Tip,
        head: &Head,
        found: &reclaim::Found,
        owns_branch: bool,
    ) -> Result<Verdict, Failure> {
        let name = head.name.as_str();
        let stays = |why: &str| Ok(Verdict::Stays(Kept::quiet(name, Some(found.path.clone()), why)));
        let refused = |why: &str| Ok(Verdict::Stays(Kept::refused(name, Some(found.path.clone()), why)));
        if !self.locked && Lock::is_held(&Folder::lock_path(&found.path)).unwrap_or(true) {
            return stays("it is at work");
        }
        let why = match head.phase {
            Phase::Applied | Phase::Landed => Why::Applied,
            Phase::Rejected => Why::Rejected,
            Phase::Pruned => Why::Leftover,
            Phase::Finished => Why::Finished,
            // A reader left nothing that anybody could record.
            Phase::Engaged | Phase::Failed if head.isolation == Isolation::Reader => Why::Finished,
            Phase::Failed if self.request.force || self.is_old(tip) => Why::Failed,
            Phase::Failed => return stays("it failed; its tree is kept for the retention"),
            Phase::Ready if head.result.is_none() && self.is_old(tip) => Why::Unused,
            Phase::Ready => return stays("no engine has worked in it yet"),
            Phase::Engaged => return stays("it was interrupted; 'git agent finish' records what it left"),
            Phase::Kept => return stays("a person left it for later"),
            Phase::Proposed | Phase::Approved => match self.landed(tip, head)? {
                Some(branch) => Why::Landed(branch),
                None if head.phase == Phase::Approved => return stays("it is approved and not applied"),
                None => return stays("it waits for a review"),
            },
        };
        let seen = match reclaim::look(&self.home, found, &tip.run, &self.around.places) {
            Ok(seen) => seen,
            Err(why) => return refused(&why),
        };
        if let Some(why) = self.unrecorded(tip, head, &why, &seen)? {
            return refused(&why);
        }
        let branch = match why {
            Why::Applied | Why::Rejected | Why::Landed(_) if owns_branch => self.branch(head)?,
            _ => None,
        };
        Ok(Verdict::Goes(Box::new(Item {
            run: tip.run.clone(),
            name: head.name.clone(),
            record: why != Why::Leftover,
            processes: seen.processes(&self.around.processes),
            seen: Some(seen),
            branch,
            tip: Some(tip.commit.clone()),
            why,
        })))
    }

    /// What a finished run's folder holds that nothing else does.
    fn unrecorded(&self, tip: &Tip, head: &Head, why: &Why, seen: &Seen) -> Result<Option<String>, Failure> {
        let by_age = matches!(why, Why::Failed);
        if by_age || self.request.force && *why != Why::Unused {
            return Ok(None);
        }
        let name = &head.name;
        let recorded = if head.result.is_some() { seen.last_snapshot } else { seen.made };
        if let Some(path) = seen.changed_since(recorded) {
            let way = match why {
                Why::Unused => format!("'git agent finish {name}' records it"),
                _ => format!("'git agent finish {name}' records it, --force discards it"),
            };
            return Ok(Some(format!("{path} changed after its last snapshot; {way}")));
        }
        if *why == Why::Rejected {
            return Ok(None);
        }
        let kept = self.repo.ref_tip(&format!("refs/agent-local/{}/head", tip.run))?;
        for (name, oid) in seen.commits() {
            if Some(&oid) != kept.as_ref() && self.repo.objects()?.header(&oid)?.is_none() {
                return Ok(Some(format!(
                    "it holds commits that are nowhere else ({name}); --force discards them"
                )));
            }
        }
        let chain = self.ledger.chain(tip)?;
        let result = chain.known().rev().find_map(|(_, e)| match &e.body {
            Body::Result(r) => Some(r),
            _ => None,
        });
        if let Some(report) = result.map(|r| &r.report)
            && let Some(first) = report.nested.first.iter().chain(&report.submodules.first).next()
        {
            let first = crate::text::Untrusted::new(first);
            return Ok(Some(format!("it holds a repository of its own ({first}); --force discards it")));
        }
        Ok(None)
    }

    /// A run of the ledger that has no folder here.
    fn without_folder(
        &self,
        tip: &Tip,
        head: &Head,
        found: &[reclaim::Found],
        half_made: &[RunName],
    ) -> Result<Verdict, Failure> {
        let path = self.home.root.join(head.name.as_str());
        let there = found.iter().find(|f| f.entry == OsStr::new(head.name.as_str()));
        if half_made.contains(&head.name) || head.phase == Phase::Pruned {
            return Ok(Verdict::Nothing);
        }
        if let Some(there) = there {
            // A later run of the same name is what should be there.
            let rightful =
                there.folder.as_ref().is_some_and(|f| f.name == head.name && f.repo == self.home.id);
            if !rightful {
                return Ok(Verdict::Stays(Kept::refused(
                    head.name.as_str(),
                    Some(path),
                    &format!("'{}' is not the folder of this run", there.path.display()),
                )));
            }
        }
        match head.phase {
            // Nothing of them is left to go; the ledger keeps its word on them.
            Phase::Applied | Phase::Landed | Phase::Rejected | Phase::Finished => {
                return Ok(Verdict::Nothing);
            }
            Phase::Approved | Phase::Kept => {
                let why =
                    "its folder is gone; a person has spoken about it and its snapshot is in the ledger";
                return Ok(Verdict::Stays(Kept::quiet(head.name.as_str(), None, why)));
            }
            Phase::Proposed if !self.request.force && self.landed(tip, head)?.is_none() => {
                let why = "its folder is gone, its change is in the ledger and waits for a review; --force closes it";
                return Ok(Verdict::Stays(Kept::quiet(head.name.as_str(), None, why)));
            }
            _ => {}
        }
        if !self.was_made_here(tip)? {
            return Ok(Verdict::Stays(Kept::quiet(
                head.name.as_str(),
                None,
                "it lies on another machine or disk",
            )));
        }
        let merged = head.phase == Phase::Proposed && self.landed(tip, head)?.is_some();
        Ok(Verdict::Goes(Box::new(Item {
            run: tip.run.clone(),
            name: head.name.clone(),
            why: Why::NoFolder,
            seen: None,
            branch: if merged { self.branch(head)? } else { None },
            processes: Vec::new(),
            tip: Some(tip.commit.clone()),
            record: true,
        })))
    }

    /// A folder that no run owns.
    fn orphan(&self, folder: &Folder, found: &reclaim::Found) -> Result<Verdict, Failure> {
        let name = found.entry.to_string_lossy();
        let stays = |why: &str| Ok(Verdict::Stays(Kept::refused(&*name, Some(found.path.clone()), why)));
        if Lock::is_held(&Folder::lock_path(&found.path)).unwrap_or(true) {
            return Ok(Verdict::Stays(Kept::quiet(&*name, Some(found.path.clone()), "it is at work")));
        }
        let seen = match reclaim::look(&self.home, found, &folder.run, &self.around.places) {
            Ok(seen) => seen,
            Err(why) => return stays(&why),
        };
        let processes = seen.processes(&self.around.processes);
        if !processes.is_empty() {
            return stays("processes of it are at work");
        }
        // What it did is lost with it, unless it did nothing or its snapshot is on its branch, which stays.
        let snapshot = self.repo.ref_tip(&folder.branch)?.filter(|tip| self.is_snapshot(folder, tip));
        let recorded = if snapshot.is_some() { seen.last_snapshot } else { seen.made };
        if !self.request.force
            && let Some(path) = seen.changed_since(recorded)
        {
            return stays(&format!(
                "no run in the ledger owns it, and {path} is in no snapshot; --force discards it"
            ));
        }
        Ok(Verdict::Goes(Box::new(Item {
            run: folder.run.clone(),
            name: folder.name.clone(),
            why: Why::NoEntry,
            seen: Some(seen),
            branch: None,
            processes,
            tip: None,
            record: false,
        })))
    }

    /// Whether a commit is a snapshot of this very run: its message names it.
    fn is_snapshot(&self, folder: &Folder, commit: &Oid) -> bool {
        let trailer = format!("\n\nAgent-Run: {}", folder.run);
        let read =
            self.repo.objects().and_then(|o| o.expect(commit, crate::git::ObjectKind::Commit, 1 << 16));
        let parents = self.repo.objects().and_then(|o| o.commit(commit)).map(|c| c.parents);
        parents.is_ok_and(|p| p == [folder.base.clone()])
            && read.is_ok_and(|b| String::from_utf8_lossy(&b).trim_end().ends_with(&trailer))
    }

    /// The run's branch, if it may go: where we left it, and nobody has it checked out.
    pub(super) fn branch(&self, head: &Head) -> Result<Option<(String, Oid)>, Failure> {
        if head.branch.is_empty() {
            return Ok(None);
        }
        let Some(tip) = self.repo.ref_tip(&head.branch)? else { return Ok(None) };
        let ours = tip == head.base || head.result.as_ref().is_some_and(|r| r.snapshot == tip);
        Ok((ours && !self.around.places.has_checked_out(&head.branch)).then(|| (head.branch.clone(), tip)))
    }

    fn landed(&self, tip: &Tip, head: &Head) -> Result<Option<String>, Failure> {
        let Some(result) = &head.result else { return Ok(None) };
        let chain = self.ledger.chain(tip)?;
        let target = chain.known().find_map(|(_, e)| match &e.body {
            Body::Spawn(s) => s.target.clone(),
            _ => None,
        });
        if self.landed.get().is_none() {
            let _ = self.landed.set(Landed::new(self.repo)?);
        }
        let landed = self.landed.get().expect("set just above");
        landed.find(&head.base, &result.snapshot, target.as_deref())
    }

    fn is_old(&self, tip: &Tip) -> bool {
        let time = tip.event.known().map_or(i64::MAX, |e| e.time);
        self.retention
            .get_or_init(|| retention(self.repo))
            .is_some_and(|r| self.now.saturating_sub(time) > r.snapshots.as_secs().cast_signed())
    }

    /// Whether a run's folder was made in this root, so that its absence means that it is gone: by the same
    /// person, and not before the root itself (another disk may not be mounted).
    fn was_made_here(&self, tip: &Tip) -> Result<bool, Failure> {
        let chain = self.ledger.chain(tip)?;
        let actor = ledger::actor(self.repo.config()?);
        let mine = chain.known().next().is_some_and(|(_, e)| e.actor.email == actor.email);
        let record = files::lstat(&self.home.root.join(".repository")).ok().flatten();
        let made = (tip.run.millis() / 1000).cast_signed();
        Ok(mine && record.is_some_and(|r| r.mtime.0 <= made))
    }
}

/// The retention of the policy in force.
fn retention(repo: &Repo) -> Option<Retention> {
    match repo.commit_of("HEAD").ok()? {
        None => Some(Retention::default()),
        Some(head) => spawn::in_force(repo, &head).ok().map(|(policy, ..)| policy.later().retention),
    }
}

/// The first path below an open tree that changed after `than`.
pub(super) fn changed(tree: &files::Dir, than: (i64, u32)) -> Option<String> {
    match walk::changed_since(tree.as_fd(), than) {
        Ok(None) => None,
        Ok(Some(path)) if path == b"." => Some("its tree".into()),
        Ok(Some(path)) => Some(crate::text::quote_path(&path).into_owned()),
        Err(_) => Some("its tree".into()),
    }
}
