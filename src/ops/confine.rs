//! The cage of a run: what it shows and lets be written. Two kinds, one for git on the run's data, which may
//! write exactly what a step needs, and one for engines.

use super::tier::{self, Chosen};
use super::{Open, spawn, standing, switch};
use crate::git::{Call, Repo};
use crate::model::{CageReport, Failure, Isolation, Kind};
use crate::os::cage::{
    Cage, CageError, CageSpec, Facts, Limits, Network, PROXY_PORT, RunDirs, Tier, Wish, environment,
};
use crate::os::{files, process, proxy};
use crate::policy::{self, Policy};
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Folders of a run that its engine may write.
const WRITABLE: &[&str] = &[
    "tree",
    "engine",
    "tmp",
    "cache",
    "sub",
    "store/objects",
    "store/refs",
    "store/packed",
    "store/logs",
    "store/lfs",
    "store/worktrees",
];

/// Fixed files below those. An engine that replaced one could make git read what it wrote, also git that a
/// person starts in the tree.
const PINNED: &[&str] = &["tree/.git", "store/worktrees/tree/commondir", "store/worktrees/tree/gitdir"];

/// Most processes and threads of an engine, where they can be counted a run.
const PROCESSES: u64 = 8192;

/// How deep alternates may name alternates (git's own limit).
const ALTERNATES_DEPTH: usize = 5;

/// The cage for git on a run's data: reads the run and the main objects, writes what is named.
pub fn plumbing(run: &Open<'_>, write: &[PathBuf]) -> Result<Cage, Failure> {
    let home = run.layout.host().join("none");
    let env = vec![
        ("PATH".into(), std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())),
        ("HOME".into(), home.into()),
    ];
    let mut read = shown(run.repo)?;
    read.extend([run.layout.tree(), run.layout.store()]);
    let wish = wish(run, read, write.to_vec(), env)?;
    let Some(tier) = tier::plumbing() else {
        if switch::cage(run.repo.config()?)? == switch::Cage::On {
            return Err(tier::none());
        }
        // This machine holds nothing, and the person knows: what git is told about the tree still comes from us.
        let (env, cwd) = (wish.env, wish.cwd);
        return Ok(Cage::none(Wish { env, cwd, identity: wish.identity, ..Wish::default() }));
    };
    build(&Wish { tier, ..wish })
}

/// A cage for an engine, and what a person is told about it.
#[derive(Debug)]
pub struct Held {
    /// The cage.
    pub cage: Cage,
    /// Its tier; `None` where the person switched the cage off.
    pub chosen: Option<Chosen>,
}

/// Where something runs, and what it may write there.
#[derive(Debug)]
pub struct Room {
    /// Working folder.
    pub cwd: PathBuf,
    /// What HOME, TMPDIR and the caches are below.
    pub dirs: RunDirs,
    /// Writable folders.
    pub write: Vec<PathBuf>,
    /// Folders shown beside the machine's and the repository's objects.
    pub read: Vec<PathBuf>,
    /// Where the task is.
    pub task: PathBuf,
    /// What stays read-only below the writable folders.
    pub pins: Vec<PathBuf>,
    /// What it reaches of the network, where that is not what the policy leaves an engine.
    pub network: Option<policy::Network>,
}

impl Room {
    /// A run's own tree.
    pub fn of(run: &Open<'_>) -> Self {
        let layout = &run.layout;
        let below = |names: &[&str]| names.iter().map(|n| layout.dir().join(n)).collect();
        Self {
            cwd: layout.tree(),
            dirs: RunDirs { engine: layout.engine(), tmp: layout.tmp(), cache: layout.cache() },
            write: below(WRITABLE),
            pins: below(PINNED),
            read: vec![layout.store()],
            task: run.task_file(),
            network: None,
        }
    }
}

/// The cage for an engine, or for what a person starts in a run's tree.
/// `programs` are files and folders that it has to be shown to start at all.
pub fn engine(
    run: &Open<'_>,
    variables: Vec<(OsString, OsString)>,
    programs: Vec<PathBuf>,
) -> Result<Held, Failure> {
    if !run.isolation().has_copy() {
        return standing::cage(run, variables, programs);
    }
    room(run, Room::of(run), variables, programs)
}

/// The cage for whatever runs in a room of a run.
pub fn room(
    run: &Open<'_>,
    room: Room,
    variables: Vec<(OsString, OsString)>,
    programs: Vec<PathBuf>,
) -> Result<Held, Failure> {
    let config = run.repo.config()?;
    let user = process::current_user();
    let mut env = environment(std::env::vars_os(), &user, &room.dirs, &|p| p.exists());
    env.retain(|(name, _)| !variables.iter().any(|(v, _)| v == name));
    env.extend(variables);
    let task = room.task;
    env.extend([
        ("GIT_AGENT_RUN".into(), run.folder.run.as_str().into()),
        ("GIT_AGENT_NAME".into(), run.folder.name.as_str().into()),
        ("GIT_AGENT_TASK".into(), task.into()),
    ]);
    let mut read = shown(run.repo)?;
    read.extend(room.read);
    read.extend(programs);
    read.extend(config.personal_all("agent.read").into_iter().map(|p| in_home(p, user.home.as_deref())));
    let wish = Wish { pins: room.pins, cwd: room.cwd, ..wish(run, read, room.write, env)? };
    hold_with(run, wish, room.network.as_ref())
}

/// The cage of a wish, or none where the person switched it off.
pub(super) fn hold(run: &Open<'_>, wish: Wish) -> Result<Held, Failure> {
    hold_with(run, wish, None)
}

/// The same with a network of its own.
fn hold_with(run: &Open<'_>, mut wish: Wish, own: Option<&policy::Network>) -> Result<Held, Failure> {
    let config = run.repo.config()?;
    if switch::cage(config)? == switch::Cage::On {
        let policy = spawn::policy_of(run)?;
        let chosen = tier::choose(config, policy.tier())?;
        wish.tier = chosen.tier;
        let counted = wish.identity.is_some() || chosen.tier != Tier::Landlock && !wish.keep_root;
        wish.limits = Limits { processes: counted.then_some(PROCESSES), ..wish.limits };
        network(run, own.unwrap_or(policy.network()), &mut wish);
        return Ok(Held { cage: build(&wish)?, chosen: Some(chosen) });
    }
    let mut wish = Wish { env: wish.env, cwd: wish.cwd, limits: wish.limits, ..Wish::default() };
    if process::is_root() {
        // The tree belongs to the user that the run would have been.
        let safe = [("COUNT", "1"), ("KEY_0", "safe.directory"), ("VALUE_0", "*")];
        wish.env.extend(safe.map(|(k, v)| (format!("GIT_CONFIG_{k}").into(), v.into())));
    }
    Ok(Held { cage: Cage::none(wish), chosen: None })
}

/// Refuses what this machine cannot hold, before anything is made.
pub fn can_hold(repo: &Repo, policy: &Policy) -> Result<(), Failure> {
    let config = repo.config()?;
    if switch::cage(config)? == switch::Cage::On {
        tier::choose(config, policy.tier())?;
    }
    Ok(())
}

/// The network that is left to whatever runs there.
fn network(run: &Open<'_>, given: &policy::Network, wish: &mut Wish) {
    wish.network = match given {
        policy::Network::Open => Network::Open,
        policy::Network::Off => Network::Off,
        policy::Network::Proxy(hosts) => {
            wish.hosts.clone_from(hosts);
            wish.refusals = Some(run.layout.host().join("refused.jsonl"));
            wish.env.extend(proxy::variables((Ipv4Addr::LOCALHOST, PROXY_PORT).into()));
            Network::Proxy
        }
    };
}

/// Tries what the cage must deny, from inside, before anything else runs there.
pub fn prove(run: &Open<'_>, cage: &Cage) -> Result<CageReport, Failure> {
    if let Some(tier) = switch::cage(run.repo.config()?)?.tier() {
        return Ok(CageReport { tier: tier.into(), network: "open".into(), canaries: Vec::new() });
    }
    let name = "agent-canary";
    let root = run.layout.dir().parent().unwrap_or(Path::new("/"));
    let mut targets = vec![
        ("host", run.layout.host().join(name)),
        ("sibling", root.join(name)),
        ("git-dir", run.repo.common_dir().join(name)),
    ];
    if let Some(tree) = run.repo.work_tree().filter(|_| run.isolation() != Isolation::Off) {
        targets.push(("work-tree", tree.join(name)));
    }
    let git_file = run.layout.tree().join(".git");
    if run.isolation() == Isolation::Off && git_file.is_file() {
        targets.push(("git-file", git_file));
    }
    let canaries = cage.canaries(&targets)?;
    if let Some(lost) = canaries.iter().find(|c| !c.held) {
        return Err(Failure::new(
            Kind::Cage,
            format!("the cage did not hold: '{}' could be written", lost.name),
        ));
    }
    let wish = &cage.spec().wish;
    let network = match wish.network {
        Network::Open => "open",
        Network::Proxy => "proxy",
        Network::Off => "off",
    };
    Ok(CageReport { tier: wish.tier.as_str().into(), network: network.into(), canaries })
}

/// Puts a git call into a cage, keeping the folder that the call asked for.
pub fn caged(cage: &Cage, call: Call) -> Result<Call, Failure> {
    let adapted = call.adapt(|command| {
        let dir = command.get_current_dir().map(Path::to_owned);
        cage.confine(command)?;
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
        Ok::<_, CageError>(())
    });
    Ok(adapted?)
}

/// What no cage shows unless it is named: the repository and all runs.
pub(super) fn hidden(run: &Open<'_>) -> Vec<PathBuf> {
    let repo = run.repo;
    let mut hidden =
        vec![repo.main_folder().to_owned(), repo.common_dir().to_owned(), repo.git_dir().to_owned()];
    hidden.extend(repo.work_tree().map(Path::to_owned));
    hidden.extend(run.layout.dir().parent().map(Path::to_owned));
    hidden
}

fn wish(
    run: &Open<'_>,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    env: Vec<(OsString, OsString)>,
) -> Result<Wish, Failure> {
    let config = run.repo.config()?;
    Ok(Wish {
        hidden: hidden(run),
        read,
        write,
        env,
        cwd: run.layout.tree(),
        identity: run.identity(),
        unix_sockets: config.personal("agent.unixsockets") == Some("true"),
        ..Wish::default()
    })
}

fn build(wish: &Wish) -> Result<Cage, Failure> {
    let user = process::current_user();
    let facts = Facts::gather(wish, user.home.as_deref(), std::env::var_os("PATH").as_deref());
    Ok(Cage::prepare(CageSpec::build(wish, &facts))?)
}

/// What a writer sees of the main repository: its objects and what they borrow from, and LFS content.
pub(super) fn shown(repo: &Repo) -> Result<Vec<PathBuf>, Failure> {
    let mut all = vec![repo.common_dir().join("lfs")];
    let mut pending = vec![(repo.common_dir().join("objects"), 0)];
    while let Some((objects, depth)) = pending.pop() {
        if all.contains(&objects) || depth > ALTERNATES_DEPTH {
            continue;
        }
        let list = files::read_bounded(&objects.join("info/alternates"), 1 << 20)
            .map_err(|e| Failure::fatal("the repository's alternates cannot be read").because(e))?
            .unwrap_or_default();
        for line in list.split(|b| *b == b'\n').filter(|l| !l.is_empty() && !l.starts_with(b"#")) {
            pending.push((objects.join(OsStr::from_bytes(line)), depth + 1));
        }
        all.push(objects);
    }
    Ok(all)
}

pub(super) fn in_home(path: &str, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}
