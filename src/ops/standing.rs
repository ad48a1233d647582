//! Runs without a copy, which work where the person works: readers, who may write nothing there, and writers
//! with isolation off. Owns how such a run is decided on and set up; its cage is in `cage`, what it sees of the
//! repository's configuration in `view`, the tree as it was before in `before`.

mod before;
mod cage;
mod view;

pub use before::Before;
pub(super) use cage::engine as cage;

use super::engine::EnginePlan;
use super::making::Making;
use super::spawn::{Cut, Request};
use super::{Layout, Open, cut, land, person, store, switch};
use crate::git::Repo;
use crate::ledger::{Folder, Home, Ledger, runs};
use crate::model::{Actor, Failure, Head, Isolation, Kind, Oid, Phase, Role, RunId, RunName};
use crate::os::files;
use crate::os::lock::Lock;
use crate::os::process::{self, Identity};
use crate::policy::{self, Policy, RoleKind, RoleRule};
use crate::text::{Untrusted, quote_path};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a run needs to work in the person's tree.
#[derive(Debug)]
pub struct Ground {
    /// Top level of the work tree.
    pub top: PathBuf,
    /// The tree as it is before; only for a writer.
    pub before: Option<Before>,
    /// Paths elsewhere that the person lets it write.
    pub write: Vec<PathBuf>,
    /// Keeps a second writer away until this one can be seen by its own lock.
    _claim: Option<Lock>,
}

impl Ground {
    /// The writable paths as the ledger has them.
    pub fn named(&self) -> impl Iterator<Item = String> {
        self.write.iter().map(|p| quote_path(p.as_os_str().as_bytes()).into_owned())
    }
}

/// Where a new run works. A reader wins over everything; the off switch is for writers.
pub fn choose(
    policy: &Policy,
    role: &Role,
    rule: &RoleRule,
    engine: Option<&EnginePlan>,
    request: &Request,
) -> Result<Isolation, Failure> {
    let edits_nothing = engine
        .filter(|e| policy.engine(&e.name).is_some_and(|rule| rule.isolation == policy::Isolation::None));
    let (isolation, who) = match edits_nothing {
        _ if rule.kind == RoleKind::Reader => (Isolation::Reader, format!("role '{role}' is a reader")),
        Some(engine) => {
            let name = Untrusted::new(&engine.name);
            (Isolation::Reader, format!("engine '{name}' edits nothing and runs as a reader"))
        }
        None if switch::isolation_is_off()? => (Isolation::Off, "isolation is off".to_owned()),
        None => (Isolation::Worktree, String::new()),
    };
    if isolation != Isolation::Off && !request.write.is_empty() {
        return Err(Failure::usage("--write is for a run that works in your own tree")
            .hint("set GIT_AGENT_ISOLATION=off, or leave out --write"));
    }
    let asked = match (isolation, &request.base, request.with_changes) {
        (Isolation::Worktree, ..) | (_, None, false) => return check_steps(isolation, role, rule),
        (_, Some(_), _) => "--base",
        (..) => "--with-changes",
    };
    Err(Failure::fatal(format!("{who}: it works in your tree as it is and takes no {asked}")).hint(
        match isolation {
            Isolation::Reader => format!("leave out {asked}, or choose a writer's role with --role"),
            _ => format!("leave out {asked}, or unset GIT_AGENT_ISOLATION"),
        },
    ))
}

/// What is made for a copy does nothing without one; it is named instead of ignored.
fn check_steps(isolation: Isolation, role: &Role, rule: &RoleRule) -> Result<Isolation, Failure> {
    let used = [("setup", rule.setup.is_some()), ("teardown", !rule.teardown.is_empty())];
    match used.iter().find(|(_, used)| *used) {
        Some((key, _)) if !isolation.has_copy() => Err(Failure::fatal(format!(
            "role '{role}' has '{key}' in the policy, which runs in a copy, and this run works in your own tree"
        ))
        .hint(format!("take '{key}' out of the role"))),
        _ => Ok(isolation),
    }
}

/// Whether an existing run can be used again by what the caller asks for now.
pub fn again(known: &Head, asked: Isolation) -> Result<(), Failure> {
    let name = &known.name;
    match known.isolation {
        Isolation::Worktree if asked == Isolation::Reader && known.phase != Phase::Pruned => {
            Err(Failure::fatal(format!("run '{name}' has a tree of its own, and a reader has none"))
                .hint("give the reader a run of its own: leave out --run, or take another name"))
        }
        Isolation::Off if !matches!(known.phase, Phase::Ready | Phase::Engaged | Phase::Failed) => Err(
            Failure::fatal(format!("run '{name}' worked in your own tree, where you may have worked since"))
                .hint(format!("decide on it: git agent review {name}; then take another name")),
        ),
        _ => Ok(()),
    }
}

/// Looks at the person's work tree for a run that is to work there; nothing for a run with a copy.
#[allow(clippy::too_many_arguments)]
pub fn ground(
    repo: &Repo,
    home: &Home,
    isolation: Isolation,
    request: &Request,
    head: &Oid,
    actor: &Actor,
    now: i64,
) -> Result<Option<Ground>, Failure> {
    if isolation.has_copy() {
        return Ok(None);
    }
    let Some(top) = repo.work_tree().map(Path::to_owned) else {
        return Err(Failure::fatal("there is no work tree here for the run to work in")
            .hint("run it in a work tree of this repository"));
    };
    if isolation == Isolation::Reader {
        return Ok(Some(Ground { top, before: None, write: Vec::new(), _claim: None }));
    }
    if !request.write.is_empty() {
        person::require_person("let a run write elsewhere (--write)")?;
    }
    let write = request.write.iter().map(|p| writable(repo, home, p)).collect::<Result<_, _>>()?;
    land::quiet(repo)?;
    if let Some(filter) = land::filter_in_tree(repo)? {
        return Err(Failure::fatal(format!(
            "isolation cannot be off here: git runs a filter from the tree, which the engine could change: {}",
            Untrusted::new(&filter)
        ))
        .hint("name the filter's program by an absolute path, or let the run have a copy"));
    }
    let claim = claim(repo)?;
    if let Some((_, other)) = at_work_in(repo, home, &top)? {
        return Err(busy(&other));
    }
    let before = Before::take(repo, &top, head, actor, now)?;
    Ok(Some(Ground { top, before: Some(before), write, _claim: Some(claim) }))
}

fn claim(repo: &Repo) -> Result<Lock, Failure> {
    let folder = repo.git_dir().join("agent");
    let fail = |e: std::io::Error| {
        Failure::fatal(format!("'{}' cannot be locked", folder.join("isolation-off").display())).because(e)
    };
    files::create_dirs(&folder, 0o755).map_err(fail)?;
    Lock::acquire(&folder.join("isolation-off")).map_err(fail)?.ok_or_else(|| {
        Failure::fatal("another run with isolation off is just being started in this tree").hint("try again")
    })
}

fn busy(other: &RunName) -> Failure {
    Failure::fatal(format!("run '{other}' is at work in this tree, with isolation off"))
        .hint(format!("wait for it, or end it: git agent stop {other}"))
}

/// Refuses while another run works in this tree with isolation off: what lands meanwhile would be taken for its
/// own.
pub fn nobody_else_in(repo: &Repo, top: &Path, run: &RunId) -> Result<(), Failure> {
    let home = Ledger::new(repo).home()?;
    match at_work_in(repo, &home, top)? {
        Some((other, name)) if other != *run => Err(busy(&name)),
        _ => Ok(()),
    }
}

/// The live writer with isolation off in this work tree.
fn at_work_in(repo: &Repo, home: &Home, top: &Path) -> Result<Option<(RunId, RunName)>, Failure> {
    let listing = runs::list(&Ledger::new(repo), Some(home))?;
    let here = |path: &Path| layout(Layout::new(path)).is_ok_and(|l| l.tree() == top);
    let mut live = listing.runs.into_iter().filter(|r| r.isolation == Isolation::Off && r.live);
    Ok(live.find(|r| r.path.as_deref().is_some_and(here)).map(|r| (r.id, r.name)))
}

/// A path that the person names with `--write`: it exists, and letting it go does not let go of everything.
fn writable(repo: &Repo, home: &Home, path: &Path) -> Result<PathBuf, Failure> {
    let shown = || Untrusted::new(path.as_os_str().as_encoded_bytes()).to_string();
    let real = std::fs::canonicalize(path)
        .map_err(|e| Failure::fatal(format!("'{}' cannot be made writable", shown())).because(e))?;
    let root = std::fs::canonicalize(&home.root).unwrap_or_else(|_| home.root.clone());
    let user = process::current_user().home.and_then(|h| std::fs::canonicalize(h).ok());
    let git = [repo.git_dir(), repo.common_dir()].map(|p| std::fs::canonicalize(p).ok());
    let held = git.iter().flatten().chain([&root]);
    let too_much = held.clone().any(|h| h.starts_with(&real) || real.starts_with(h))
        || user.is_some_and(|h| h.starts_with(&real));
    if too_much {
        return Err(Failure::fatal(format!(
            "'{}' cannot be made writable: it holds a home, a repository or the runs",
            shown()
        ))
        .hint("name the folder that the run needs, and no more"));
    }
    Ok(real)
}

/// The layout of a run that has no copy, with the work tree that the host remembers for it.
pub(super) fn layout(layout: Layout) -> Result<Layout, Failure> {
    let path = layout.stand();
    let fail = || Failure::fatal(format!("'{}' cannot be read", path.display()));
    let text = files::read_bounded(&path, 1 << 16).map_err(|e| fail().because(e))?.ok_or_else(fail)?;
    Ok(layout.standing_in(OsStr::from_bytes(&text)))
}

/// Sets the run up, up to the point where an engine could start. The order is that of a cut: folder claimed,
/// spawn event, contents, and last the record that makes the run whole.
pub(super) fn execute<'r>(
    repo: &'r Repo,
    plan: &Cut,
    making: &Making,
) -> Result<(Open<'r>, Vec<String>), Failure> {
    let ground = plan.ground.as_ref().ok_or_else(|| Failure::fatal("there is no work tree for the run"))?;
    let (identity, user) = cut::identity(plan)?;
    let mut folder = Folder {
        v: Folder::FORMAT,
        run: plan.run.clone(),
        repo: plan.home.id.clone(),
        name: plan.name.clone(),
        created: plan.now,
        uid: identity.map(|i| i.uid),
        tree: None,
        base: plan.base.clone(),
        isolation: plan.isolation,
        branch: String::new(),
        task_path: String::new(),
        identity_path: String::new(),
        strip: Vec::new(),
        port: plan.port,
    };
    let lock = cut::claim(repo, plan, making, &folder)?;
    let ledger = Ledger::new(repo);
    let tip = cut::publish(repo, &ledger, plan)?;
    let layout = plan.layout.clone();
    contents(repo, plan, ground, identity)
        .map_err(|e| Failure::fatal("the run's folder could not be filled").because(e))?;
    let made = files::lstat(&ground.top)
        .map_err(|e| Failure::fatal(format!("'{}' cannot be looked at", ground.top.display())).because(e))?;
    folder.tree = made.map(|m| (m.id.dev, m.id.ino));
    folder.write(layout.dir())?;
    let notes = match plan.isolation {
        Isolation::Off => vec![format!(
            "isolation is off: the engine works in '{}' itself; 'git agent discard {}' takes back what it did",
            Untrusted::new(ground.top.as_os_str().as_encoded_bytes()),
            plan.name
        )],
        _ => Vec::new(),
    };
    let run = Open { repo, ledger, tip, folder, layout, lock, actor: plan.actor.clone(), user };
    Ok((run, notes))
}

fn contents(repo: &Repo, plan: &Cut, ground: &Ground, identity: Option<Identity>) -> std::io::Result<()> {
    let layout = &plan.layout;
    let owner = if plan.isolation == Isolation::Off { owner(&ground.top)? } else { identity };
    for folder in [layout.engine(), layout.engine().join("home"), layout.tmp(), layout.cache()] {
        files::create_dir_for(&folder, 0o755, owner)?;
    }
    files::write_new(&layout.task(), &cut::task_text(plan), 0o644)?;
    view::home(repo, &plan.actor, &layout.engine().join("home"), owner)?;
    if let Some(before) = &ground.before {
        // What the snapshot needs: the index as it was, where LFS content goes, and the person's own rules.
        files::create_dir(&layout.store(), 0o755)?;
        files::create_dir_for(&layout.store().join("lfs"), 0o755, identity)?;
        files::create_dirs(&layout.fixed(), 0o700)?;
        for (path, bytes) in store::rules(repo, &[]).map_err(std::io::Error::other)? {
            files::write_new(&layout.fixed().join(store::flat(path)), &bytes, 0o600)?;
        }
        files::copy_keep_mtime(&before.index(), &layout.pristine_index())?;
        let list =
            ground.write.iter().flat_map(|p| [p.as_os_str().as_bytes(), b"\0"].concat()).collect::<Vec<_>>();
        files::write_new(&layout.host().join("write"), &list, 0o600)?;
    }
    files::write_new(&layout.stand(), ground.top.as_os_str().as_bytes(), 0o600)
}

/// As whom a writer works in the person's own tree: as its owner, when we are root. Root's own tree is written
/// by root without any capability.
fn owner(top: &Path) -> std::io::Result<Option<Identity>> {
    if !process::is_root() {
        return Ok(None);
    }
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(top)?;
    Ok((meta.uid() != 0).then(|| Identity { uid: meta.uid(), gid: meta.gid() }))
}

/// Whether a run may be worked in or recorded now. In the person's own tree what comes after the engine's end
/// is the person's, and would be taken for the run's.
pub fn still_open(head: &Head) -> Result<(), Failure> {
    let name = &head.name;
    match (head.isolation, head.phase) {
        (Isolation::Off, Phase::Ready | Phase::Engaged | Phase::Failed) => Ok(()),
        (Isolation::Off, _) => Err(Failure::new(
            Kind::No,
            format!("run '{name}' worked in your own tree, and what it did there is recorded"),
        )
        .hint(format!("decide on it: git agent review {name}"))),
        _ => Ok(()),
    }
}

/// What a reader says to whoever wants to land its work (exit status 1).
pub fn nothing_to_land(head: &Head) -> Result<(), Failure> {
    match head.isolation {
        Isolation::Reader => Err(Failure::new(
            Kind::No,
            format!("run '{}' is a reader's: it may write nothing, and there is nothing to land", head.name),
        )
        .hint(format!("what is known of it: git agent show {}", head.name))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_by_role_and_by_engine() {
        let policy = Policy::parse(
            b"version: 1\nroles:\n  developer: {kind: writer}\n  critic: {kind: reader}\n\
              engines:\n  codex: {isolation: none}\n  qwen-code: {isolation: worktree}\n",
            "policy.yml",
        )
        .unwrap();
        let ask = |role: &str, engine: Option<&str>, request: &Request| {
            let role: Role = role.parse().unwrap();
            let rule = policy.role(&role).unwrap();
            let sh = ["sh".into()];
            let engines =
                super::super::engine::choose(&policy, &rule, engine, &sh, true, None, &mut Vec::new())
                    .unwrap();
            choose(&policy, &role, &rule, engines.first(), request).map_err(|e| e.to_string())
        };
        let plain = Request::default();
        assert_eq!(ask("developer", None, &plain), Ok(Isolation::Worktree));
        assert_eq!(ask("developer", Some("qwen-code"), &plain), Ok(Isolation::Worktree));
        assert_eq!(ask("developer", Some("codex"), &plain), Ok(Isolation::Reader));
        // A reader stays one whatever its engine works in.
        assert_eq!(ask("critic", Some("qwen-code"), &plain), Ok(Isolation::Reader));
        let changes = Request { with_changes: true, ..Request::default() };
        assert!(
            ask("developer", Some("codex"), &changes).unwrap_err().contains("engine 'codex' edits nothing")
        );
        assert!(ask("critic", None, &changes).unwrap_err().contains("role 'critic' is a reader"));
        let write = Request { write: vec!["/tmp".into()], ..Request::default() };
        assert!(ask("developer", None, &write).is_err());
    }
}
