//! Spawn: cut a run from a commit and leave it ready for an engine. `plan` reads and decides; `execute` acts.
//!
//! Crash safety: an intent in `<root>/.making/` is written and locked before the first effect and removed
//! after the last. Whoever finds one whose lock nobody holds undoes what it announces (`reclaim`).

use super::engine::{self, EnginePlan};
use super::standing::{self, Ground};
pub(super) use super::trust::in_force;
use super::{Layout, Open, base, chain, confine, cut, include, making::Making, open, ports};
use crate::git::{Branch, Repo};
use crate::ledger::{self, Home, Ledger, Tip};
use crate::model::{
    Actor, Failure, Head, Isolation, MAX_TASK, Oid, Phase, PolicyInForce, Role, RunId, RunName,
};
use crate::os::files;
use crate::policy::{Policy, RoleRule, TaskText};
use crate::text::Untrusted;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What the caller asks for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The role's name.
    pub role: String,
    /// Change request or ticket.
    pub cr: Option<String>,
    /// The run's own name; an existing run of that name is used again.
    pub run: Option<String>,
    /// Engine name.
    pub engine: Option<String>,
    /// Revision to cut from; HEAD when absent.
    pub base: Option<String>,
    /// Task text.
    pub task: Option<Vec<u8>>,
    /// Cut from the tree as it is.
    pub with_changes: bool,
    /// Paths outside the tree that it may write; only with `GIT_AGENT_ISOLATION=off`.
    pub write: Vec<PathBuf>,
    /// Wall clock limit.
    pub timeout: Option<Duration>,
    /// Command after `--`.
    pub command: Vec<OsString>,
}

/// What will happen.
#[derive(Debug)]
pub enum Plan {
    /// A new run.
    Cut(Box<Cut>),
    /// The run of that name exists: same tree, same branch, same entry.
    Again(Box<Again>),
}

/// A run to be cut. Everything decided, nothing done.
#[derive(Debug)]
pub struct Cut {
    /// Its id.
    pub run: RunId,
    /// Its name.
    pub name: RunName,
    /// Its role.
    pub role: Role,
    /// Change request.
    pub cr: Option<String>,
    /// Where it will work.
    pub isolation: Isolation,
    /// What it needs to work in the person's tree.
    pub ground: Option<Ground>,
    /// Full name of its branch; empty without a copy.
    pub branch: String,
    /// The commit, pinned.
    pub base: Oid,
    /// Whether the base is a commit of the user's uncommitted tree.
    pub local_base: bool,
    /// The branch that is checked out.
    pub target: Option<String>,
    /// The policy in force.
    pub policy: PolicyInForce,
    /// Its bytes, kept beside the run.
    pub policy_text: Vec<u8>,
    /// Stripped paths that exist in the base.
    pub strip: Vec<String>,
    /// Refs the store starts with; annotated tags with their commit.
    pub refs: base::Refs,
    /// Task text.
    pub task: Option<Vec<u8>>,
    /// What the ledger keeps of it.
    pub task_text: TaskText,
    /// Untracked files to copy in.
    pub include: Vec<String>,
    /// What the role may do and wants done.
    pub rule: RoleRule,
    /// Its port, where the policy asks for one.
    pub port: Option<u16>,
    /// Where the task and the identity go, relative to the tree.
    pub own_files: (String, String),
    /// The engines, in the order in which they are tried.
    pub engines: Vec<EnginePlan>,
    /// Where runs of this repository lie.
    pub home: Home,
    /// Where this one will lie.
    pub layout: Layout,
    /// Who acts.
    pub actor: Actor,
    /// Seconds since the epoch.
    pub now: i64,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
    /// The run exists and its last change landed: it goes on from there, with a tree of its own again.
    pub continues: Option<Tip>,
}

/// An existing run to be used again.
#[derive(Debug)]
pub struct Again {
    /// Its newest event.
    pub tip: Tip,
    /// Where runs of this repository lie.
    pub home: Home,
    /// The engines, from the one that is next.
    pub engines: Vec<EnginePlan>,
    /// The task for them: a new one, else the run's.
    pub task: Option<Vec<u8>>,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
}

/// Time and chance, from outside so that logic below is repeatable.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// Milliseconds since the epoch.
    pub millis: u64,
    /// Random bits; the low 80 are used.
    pub chance: u128,
}

/// What is known of a request before anything of the machine's state is looked at.
#[derive(Debug)]
pub(super) struct Admitted {
    role: Role,
    head: Oid,
    policy: Policy,
    in_force: PolicyInForce,
    text: Vec<u8>,
    notes: Vec<String>,
    given: bool,
    engines: Vec<EnginePlan>,
    isolation: Isolation,
    rule: RoleRule,
}

/// The refusals that depend on the repository and the request alone. Touches nothing.
pub(super) fn admit(repo: &Repo, request: &Request) -> Result<Admitted, Failure> {
    repo.require_version()?;
    let role: Role =
        request.role.parse().map_err(|e: crate::model::BadName| Failure::usage(e.to_string()))?;
    let head = repo.commit_of("HEAD")?.ok_or_else(|| {
        Failure::fatal("the branch that is checked out has no commits yet")
            .hint("make a first commit: git commit --allow-empty -m 'first'")
    })?;
    let (policy, in_force, text, mut notes) = in_force(repo, &head)?;
    let rule = policy.role(&role).map_err(Failure::from)?;
    check_honoured(&policy, &role)?;
    // Before anything is made: an agent that may not, or a word that nobody understands.
    super::switch::cage(repo.config()?)?;
    let given = request.task.as_ref().is_some_and(|t| !t.is_empty());
    // A run that exists has its own; whether this one does is asked when it is known.
    let may_have = given || request.run.is_some() || request.cr.is_some();
    let (engine, command) = (request.engine.as_deref(), &request.command);
    let engines = engine::choose(&policy, &rule, engine, command, may_have, request.timeout, &mut notes)?;
    if !engines.is_empty() || rule.setup.is_some() {
        // Before anything is made; asked again for the run's own policy when the engine starts.
        confine::can_hold(repo, &policy)?;
    }
    let isolation = standing::choose(&policy, &role, &rule, engines.first(), request)?;
    for engine in &engines {
        super::login::check(engine, repo.config()?)?;
    }
    Ok(Admitted { role, rule, head, policy, in_force, text, notes, given, engines, isolation })
}

/// Reads and decides. Touches nothing but the repository's id and, with `--with-changes`, the object store.
pub fn plan(repo: &Repo, request: &Request, fate: Fate) -> Result<Plan, Failure> {
    let Admitted { role, rule, head, policy, in_force, text, mut notes, given, mut engines, isolation } =
        admit(repo, request)?;
    let ledger = Ledger::new(repo);
    let home = ledger.home()?;
    notes.extend(home.notes.iter().cloned());
    let run = RunId::new(fate.millis, fate.chance);
    let name = name(request, &role, &run)?;
    let now = (fate.millis / 1000).cast_signed();
    let layout = Layout::new(home.root.join(name.as_str()));
    let has_task = given || files::lstat(&layout.given_task()).ok().flatten().is_some();
    engines.iter().try_for_each(|e| e.check_task(has_task))?;
    let mut continued = None;
    if let Some(tip) = existing(&ledger, &home, &name)? {
        if request.base.is_some() || request.with_changes {
            return Err(Failure::fatal(format!("run '{name}' exists already; its base does not change"))
                .hint("leave out --base and --with-changes, or take another name with --run"));
        }
        let known = &tip.understood()?.head;
        standing::again(known, isolation)?;
        if known.role != role {
            notes.push(format!("run '{name}' keeps the role '{}' that it was cut with", known.role));
        }
        if isolation == Isolation::Off && known.isolation.has_copy() {
            notes.push(format!("run '{name}' keeps its copy; isolation is off for new runs only"));
        }
        if known.phase != Phase::Applied {
            if given {
                notes.push(format!("run '{name}' keeps the task it was cut with; the new one was not taken"));
            }
            if request.engine.is_none() && request.command.is_empty() {
                chain::resume(&ledger, &tip, &mut engines)?;
            }
            let task = request.task.clone().filter(|_| given);
            return Ok(Plan::Again(Box::new(Again { tip, home, engines, task, notes })));
        }
        continued = Some(tip);
    }

    let branches = repo.branches()?;
    let actor = ledger::actor(repo.config()?);
    let isolation = if continued.is_some() { Isolation::Worktree } else { isolation };
    let ground = standing::ground(repo, &home, isolation, request, &head, &actor, now)?;
    let layout = match &ground {
        Some(ground) => layout.standing_in(&ground.top),
        None => layout,
    };
    let (run, branch, base) = match &continued {
        Some(tip) => landed(tip)?,
        None if ground.is_some() => {
            let before = ground.as_ref().and_then(|g| g.before.as_ref());
            (run, String::new(), before.map_or_else(|| head.clone(), |b| b.commit.clone()))
        }
        None => {
            let branch = format!("refs/heads/{}", policy.branch(&name));
            free_branch(&branches, &branch)?;
            let (rev, changes) = (request.base.as_deref(), request.with_changes);
            (run, branch, base::resolve(repo, rev, changes, &head, &actor, now)?)
        }
    };
    if continued.is_some() && layout.dir().exists() {
        return Err(Failure::fatal(format!(
            "run '{name}' was applied, and its tree holds what nobody has recorded"
        ))
        .hint(format!("record it first: git agent finish {name}")));
    }
    free_folder(&layout)?;
    let tree = repo.objects()?.commit(&base)?.tree;
    let copy = ground.is_none();
    let strip = if copy { base::stripped(repo, &policy, &base)? } else { Vec::new() };
    let include = if copy { include::choose(repo, &policy, &head, &base)? } else { Default::default() };
    notes.extend(include.notes);
    if !copy && (policy.include().next().is_some() || !rule.checks.is_empty()) {
        notes.push("a run without a copy gets no 'include' and no 'checks' of the policy".into());
    }
    let port = match &continued {
        Some(tip) => chain::port(&ledger, tip)?,
        None if policy.wants_port() => Some(ports::choose(&home, &run)?),
        None => None,
    };
    Ok(Plan::Cut(Box::new(Cut {
        own_files: if copy { own_files(repo, &tree, &run)? } else { Default::default() },
        refs: if copy {
            base::refs(repo, &base, &branch, &branches, &policy.refs())?
        } else {
            base::Refs::default()
        },
        target: branches.iter().find(|b| b.head).map(|b| b.name.clone()),
        local_base: (request.with_changes || !copy) && base != head,
        isolation,
        ground,
        continues: continued,
        cr: request.cr.clone(),
        task: task(request)?,
        task_text: policy.task_text(),
        include: include.files,
        rule,
        port,
        policy: in_force,
        policy_text: text,
        run,
        name,
        role,
        branch,
        base,
        strip,
        engines,
        home,
        layout,
        actor,
        now,
        notes,
    })))
}

/// Refuses by name what the policy asks for and this version cannot do, so that nothing is silently ignored.
fn check_honoured(policy: &Policy, role: &Role) -> Result<(), Failure> {
    let lacking = policy.unsupported(role);
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Failure::fatal(format!(
        "the policy uses what this version does not enforce yet: {}",
        lacking.join(", ")
    )))
}

fn name(request: &Request, role: &Role, run: &RunId) -> Result<RunName, Failure> {
    let text = match (&request.run, &request.cr) {
        (Some(name), _) => name.clone(),
        (None, Some(cr)) => format!("{role}-{cr}"),
        (None, None) => format!("{role}-{}", run.tail()),
    };
    text.parse().map_err(|e: crate::model::BadName| Failure::usage(e.to_string()))
}

fn task(request: &Request) -> Result<Option<Vec<u8>>, Failure> {
    match &request.task {
        Some(t) if t.len() > MAX_TASK => {
            Err(Failure::fatal(format!("the task is {} bytes, more than the limit of {MAX_TASK}", t.len()))
                .hint("put the long part into a file of the repository and name it in the task"))
        }
        task => Ok(task.clone()),
    }
}

/// The run of this name that can be used again. A name that differs only in case is refused: on many file
/// systems it is the same folder and the same branch.
fn existing(ledger: &Ledger<'_>, home: &Home, name: &RunName) -> Result<Option<Tip>, Failure> {
    let mut found = None;
    for tip in ledger.tips()?.tips {
        let Some(head) = tip.head() else {
            // A newer version may be at work on it: its name is not free.
            if tip.event.envelope().name.is_some_and(|n| n == *name || n.collides(name)) {
                tip.understood()?;
            }
            continue;
        };
        let gone = |head: &Head| {
            // Its folder and its branch are free again; the ledger keeps its word on it under its id.
            head.phase == Phase::Pruned
                || matches!(head.phase, Phase::Failed | Phase::Rejected | Phase::Finished)
                    && !home.root.join(head.name.as_str()).exists()
        };
        if head.name == *name && !gone(head) {
            found = Some(tip);
        } else if head.name.collides(name) && !gone(head) {
            return Err(Failure::fatal(format!(
                "run '{}' exists already; '{name}' would be its folder",
                head.name
            ))
            .hint(format!("use it with --run {}, or take another name", head.name)));
        }
    }
    Ok(found)
}

/// The role that an existing run was cut with: whoever names the run need not name it again.
pub fn role_of(repo: &Repo, name: &str) -> Result<String, Failure> {
    let tips = Ledger::new(repo).tips()?.tips;
    let known = tips.iter().rev().filter_map(Tip::head).find(|h| h.name.as_str() == name);
    known.map(|h| h.role.to_string()).ok_or_else(|| {
        Failure::usage(format!("there is no run '{}' yet, and a new one needs a role", Untrusted::new(name)))
            .hint(format!("git agent spawn --role developer --run {} ...", crate::text::shell_quote(name)))
    })
}

/// Where an applied run goes on: the same run and branch, from the snapshot that landed.
fn landed(tip: &Tip) -> Result<(RunId, String, Oid), Failure> {
    let head = &tip.understood()?.head;
    let result = head.result.as_ref().ok_or_else(|| Failure::fatal("an applied run without a result"))?;
    Ok((tip.run.clone(), head.branch.clone(), result.snapshot.clone()))
}

/// Refuses a branch name that is taken, or that another branch's name makes impossible.
fn free_branch(branches: &[Branch], branch: &str) -> Result<(), Failure> {
    let fold = branch.to_lowercase();
    for tip in branches.iter().filter(|b| b.name.starts_with("refs/heads/")) {
        let other = tip.name.to_lowercase();
        let clash = other == fold
            || fold.strip_prefix(&other).is_some_and(|rest| rest.starts_with('/'))
            || other.strip_prefix(&fold).is_some_and(|rest| rest.starts_with('/'));
        if clash {
            let short = |name: &str| Untrusted::new(name.trim_start_matches("refs/heads/")).to_string();
            let (branch, other) = (short(branch), short(&tip.name));
            let why = if branch == other { "exists already" } else { "cannot stand beside" };
            let what = if branch == other { String::new() } else { format!(" branch '{other}'") };
            return Err(Failure::fatal(format!("branch '{branch}' {why}{what}"))
                .hint("take another name with --run, or rename that branch with 'git branch -m'"));
        }
    }
    Ok(())
}

/// Refuses a folder that something occupies.
fn free_folder(layout: &Layout) -> Result<(), Failure> {
    let dir = layout.dir();
    let looked = std::fs::symlink_metadata(dir);
    match looked {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Failure::fatal(format!("'{}' cannot be looked at", dir.display())).because(e)),
        Ok(m) => {
            let what = if m.file_type().is_symlink() {
                "a symbolic link"
            } else if m.is_dir() {
                "a folder that belongs to no run"
            } else {
                "a file"
            };
            Err(Failure::fatal(format!("'{}' is in the way: {what}", dir.display()))
                .hint("move it away, or take another name with --run"))
        }
    }
}

/// Where `TASK.md` and `.agent-identity` go: the top level, or below `.agent/` where the project has files
/// of these names.
fn own_files(repo: &Repo, tree: &Oid, run: &RunId) -> Result<(String, String), Failure> {
    let objects = repo.objects()?;
    let place = |name: &str| -> Result<String, Failure> {
        for candidate in [name.to_owned(), format!(".agent/{name}")] {
            let first = candidate.split('/').next().unwrap_or_default();
            let blocked = objects.entry_at(tree, &candidate)?.is_some()
                || first != candidate && objects.entry_at(tree, first)?.is_some_and(|e| e.mode != 0o040_000);
            if !blocked {
                return Ok(candidate);
            }
        }
        Ok(format!(".agent-{run}/{name}"))
    };
    Ok((place("TASK.md")?, place(".agent-identity")?))
}

/// What a plan became.
#[derive(Debug)]
pub struct Ready<'r> {
    /// The run, locked.
    pub run: Open<'r>,
    /// The engines to try, in order.
    pub engines: Vec<EnginePlan>,
    /// The task for them.
    pub task: Option<Vec<u8>>,
    /// Whether the run existed before.
    pub again: bool,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// Carries the plan out, up to the point where an engine could start.
pub fn execute<'r>(repo: &'r Repo, plan: Plan) -> Result<Ready<'r>, Failure> {
    match plan {
        Plan::Again(again) => {
            let Again { tip, home, engines, task, notes } = *again;
            let run = Open::of(repo, &home, tip)?;
            if run.folder.tree.is_none() {
                return Err(Failure::fatal(format!("run '{}' is still being made", run.folder.name)));
            }
            super::freeze(&run)?;
            let fail = |e: std::io::Error| Failure::fatal("the run's task cannot be read").because(e);
            let known = files::read_bounded(&run.layout.given_task(), MAX_TASK as u64).map_err(fail)?;
            Ok(Ready { run, engines, task: task.or(known), again: true, notes })
        }
        Plan::Cut(plan) => {
            let mut making = Making::announce(&plan)?;
            let made = match plan.isolation {
                Isolation::Worktree => cut::execute(repo, &plan, &mut making),
                Isolation::Reader | Isolation::Off => standing::execute(repo, &plan, &making),
            };
            match made {
                Ok((run, notes)) => {
                    making.done()?;
                    let Cut { engines, task, notes: mut all, .. } = *plan;
                    all.extend(notes);
                    Ok(Ready { run, engines, task, again: false, notes: all })
                }
                Err(failure) => {
                    let failure = crowded(failure, &plan.home.root);
                    Err(match making.withdraw(repo) {
                        Ok(()) => failure,
                        Err(e) => failure.hint(format!("the next command will try again to clear up: {e}")),
                    })
                }
            }
        }
    }
}

/// git does not always say why a file could not be written; a disk with next to nothing left is worth a word.
fn crowded(failure: Failure, root: &std::path::Path) -> Failure {
    const LITTLE: u64 = 64 << 20;
    match crate::os::files::free_space(root) {
        Ok(free) if free < LITTLE => failure.hint(format!(
            "'{}' has only {} KiB left: make room, or set agent.root to a folder elsewhere",
            root.display(),
            free >> 10
        )),
        _ => failure,
    }
}

/// What a run's role may do, from the policy that was in force when it was cut.
pub fn rule(run: &Open<'_>) -> Result<RoleRule, Failure> {
    let head = &run.tip.understood()?.head;
    policy_of(run)?.role(&head.role).map_err(Failure::from)
}

/// The policy that was in force when a run was cut.
pub fn policy_of(run: &Open<'_>) -> Result<Policy, Failure> {
    policy_at(&run.layout)
}

/// The same by the run's folder.
pub(super) fn policy_at(layout: &Layout) -> Result<Policy, Failure> {
    let _ = super::freeze::reach(layout);
    let path = layout.host().join("policy.yml");
    let text = crate::os::files::read_bounded(&path, 1 << 20)
        .map_err(|e| Failure::fatal(format!("'{}' cannot be read", path.display())).because(e))?
        .ok_or_else(|| Failure::fatal(format!("'{}' is gone", path.display())))?;
    if text == crate::policy::BUILT_IN.as_bytes() {
        return Ok(Policy::built_in().clone());
    }
    Ok(Policy::parse(&text, "policy.yml")?)
}

/// Whether a run is here and what its folder is, without taking its lock.
pub fn locate(repo: &Repo, word: &str) -> Result<(Tip, Layout), Failure> {
    let ledger = Ledger::new(repo);
    let tip = ledger.resolve(word)?;
    let (layout, _) = open::find(&ledger.home()?, &tip)?;
    Ok((tip, layout))
}
