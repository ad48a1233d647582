//! What a cage shows and lets be written, as plain data; decided by pure functions over gathered facts.

use super::view::{Mount, PRIVATE, Parts, view};
use crate::model::Tier;
use crate::os::process::Identity;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Network of a cage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// As the machine's.
    #[default]
    Open,
    /// Through a proxy with a list of hosts; needs a network namespace.
    Proxy,
    /// None.
    Off,
}

/// Resource limits, one each process (`setrlimit(2)`); `None` leaves the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Largest file in bytes.
    pub file_size: Option<u64>,
    /// Processes of the user id. Counts all of the user's when there is no dedicated one.
    pub processes: Option<u64>,
    /// CPU time in seconds.
    pub cpu_seconds: Option<u64>,
    /// Open files.
    pub open_files: Option<u64>,
}

/// What the caller of [`CageSpec::build`] decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Wish {
    /// What is to hold it.
    pub tier: Tier,
    /// Folders to hide beyond the built-in ones: main work tree, its git directories, `agent.root`.
    pub hidden: Vec<PathBuf>,
    /// Folders and files to show although a hidden folder holds them: main `objects`, alternates, the run's
    /// read-only parts, the user's `agent.read`.
    pub read: Vec<PathBuf>,
    /// Folders in which everything can be done. They must exist. A link at one is refused; one below another
    /// adds nothing.
    pub write: Vec<PathBuf>,
    /// Below those and yet not to be written, renamed or replaced. They must exist. Held where there is a mount
    /// namespace.
    pub pins: Vec<PathBuf>,
    /// Folders, of `read`, whose names can be listed although something in them is hidden.
    pub list: Vec<PathBuf>,
    /// What stays read-only although a folder of `write` holds it. Landlock has no exceptions: without a mount
    /// that holds them, no entry can be made or removed in any folder above one of these.
    pub protect: Vec<PathBuf>,
    /// Root stays root, without any capability: for a work tree that belongs to root and is to be written.
    pub keep_root: bool,
    /// Files `.1` shown in the place of `.0`, where there is a mount namespace.
    pub instead: Vec<(PathBuf, PathBuf)>,
    /// The whole environment, usually from [`environment`](super::environment).
    pub env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Who the engine runs as; `None` = the caller. Root must name somebody else where it can.
    pub identity: Option<Identity>,
    /// Allow `socket(AF_UNIX)` also where sockets of others cannot be kept out of reach.
    pub unix_sockets: bool,
    /// Resource limits.
    pub limits: Limits,
    /// Network.
    pub network: Network,
    /// Hosts that the proxy lets through, as the policy names them.
    pub hosts: Vec<String>,
    /// File that gets the proxy's refusals.
    pub refusals: Option<PathBuf>,
}

/// Everything that decides a cage. `cage show` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CageSpec {
    /// What was asked for.
    pub wish: Wish,
    /// Landlock: folders and files that can be read and executed, with everything below.
    pub read: Vec<PathBuf>,
    /// Landlock: folders in which everything can be done.
    pub write: Vec<PathBuf>,
    /// Devices that can be read and written.
    pub devices: Vec<PathBuf>,
    /// What is hidden, for the reader of this value; the kernel gets `read` and `view`.
    pub hidden: Vec<PathBuf>,
    /// The mounts, in tiers that have them.
    pub view: Vec<Mount>,
    /// Whether `socket(AF_UNIX)` is allowed; `socketpair` always is.
    pub unix_sockets: bool,
    /// Whether the engine reads whatever file permissions say (`CAP_DAC_READ_SEARCH`): only when started as root.
    pub reads_all: bool,
}

/// What the machine looks like, read by [`Facts::gather`]. All paths are canonical.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// HOME, unless it is `/`.
    pub home: Option<PathBuf>,
    /// Everything hidden: the built-in list and the wish's.
    pub hidden: BTreeSet<PathBuf>,
    /// Entries that are no links, of every folder above a hidden path.
    pub entries: BTreeMap<PathBuf, Vec<PathBuf>>,
    /// Tool folders below HOME: PATH entries and the roots of known tools.
    pub tools: Vec<PathBuf>,
    /// The wish's read list.
    pub read: Vec<PathBuf>,
    /// The wish's write list.
    pub write: Vec<PathBuf>,
    /// The wish's pins.
    pub pins: BTreeSet<PathBuf>,
    /// Things that others than root may not read: hidden when the engine has root's reading capability.
    pub private: BTreeSet<PathBuf>,
    /// Whether something that must be shown cannot be read without that capability.
    pub closed: bool,
    /// Symbolic links on the way to what is shown, with where they lead in the end.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Sockets with a path, outside of hidden folders.
    pub sockets: BTreeSet<PathBuf>,
    /// Folders for temporary files, with the part of the memory that each may take.
    pub temporary: Vec<(PathBuf, u8)>,
    /// Whether the kernel keeps abstract sockets apart.
    pub abstract_scoped: bool,
}

/// Hidden on every machine. `/dev` but for [`DEVICES`]: with `CAP_DAC_READ_SEARCH` a disk can be read.
const HIDDEN: &[&str] = &[
    "/root",
    "/home",
    "/tmp",
    "/var/tmp",
    "/dev",
    "/run",
    "/var/run",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/spool",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
    "/sys/kernel/security",
    "/sys/firmware",
];
/// Shown although `/run` is hidden: name resolution is configured there.
const SHOWN: &[&str] = &["/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf"];
/// Devices every program may use.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Folders of known tools below HOME. Never a folder with credentials in it.
const TOOLS: &[&str] = &[
    ".cargo/bin",
    ".cargo/registry",
    ".cargo/git",
    ".rustup",
    ".nvm",
    ".volta",
    ".pyenv",
    ".asdf",
    ".sdkman",
    ".local/share/uv",
    ".local/share/mise",
    ".local/share/claude",
    ".local/share/pnpm",
    "go",
    ".bun",
    ".deno",
];
/// The shared home of a tool, hidden with `/home`.
const LINUXBREW: &str = "/home/linuxbrew/.linuxbrew";
/// Where programs keep what others may not read.
const MAYBE_PRIVATE: &[&str] = &[
    "/",
    "/etc",
    "/etc/ssl",
    "/etc/ssh",
    "/var",
    "/var/lib",
    "/var/log",
    "/var/cache",
    "/srv",
    "/opt",
    "/mnt",
    "/media",
];

impl Facts {
    /// Looks at the machine: lists the folders above hidden paths and finds the tools. `path` is `$PATH`.
    pub fn gather(wish: &Wish, home: Option<&Path>, path: Option<&OsStr>) -> Self {
        let real = |p: &Path| std::fs::canonicalize(p).ok();
        let raw_home = home.map(Path::to_owned);
        let home = home.and_then(real).filter(|h| h != Path::new("/"));
        let ours: Vec<_> = wish.hidden.iter().map(|p| real_as_far_as_it_goes(p)).collect();
        let mut hidden: BTreeSet<_> = HIDDEN.iter().filter_map(|p| real(Path::new(p))).collect();
        hidden.extend(ours.iter().cloned());
        hidden.extend(home.clone());
        hidden.remove(Path::new("/"));

        let on_path = std::env::split_paths(path.unwrap_or_default()).filter(|p| p.is_absolute());
        let known = home.iter().flat_map(|h| TOOLS.iter().map(|t| h.join(t)));
        // Neither a home, nor what holds one, nor anything of the main work tree or of a run is a tool.
        let is_home = |h: &PathBuf| home.as_ref() == Some(h);
        let fit = |p: &PathBuf| {
            let home = home.as_deref().is_some_and(|h| h.starts_with(p));
            let built_in = HIDDEN.iter().any(|h| Path::new(h).starts_with(p));
            let of_a_run = ours.iter().any(|h| p.starts_with(h) && !is_home(h));
            !home && !built_in && !of_a_run
        };
        let tools =
            known.chain([LINUXBREW.into()]).chain(on_path).filter_map(|p| real(&p)).filter(fit).collect();
        let raw_read = || wish.read.iter().map(PathBuf::as_path).chain(SHOWN.iter().map(Path::new));
        let mut facts = Self { tools, read: raw_read().filter_map(real).collect(), ..Self::default() };
        // The last part of a writable folder's path may be a link that an engine made.
        let in_place = |p: &PathBuf| Some(real(p.parent()?)?.join(p.file_name()?));
        facts.write = wish.write.iter().map(|p| in_place(p).unwrap_or_else(|| p.clone())).collect();
        let pinned = |p: &PathBuf| {
            let below = wish.write.iter().zip(&facts.write);
            let found = below.filter_map(|(w, place)| Some((p.strip_prefix(w).ok()?, place)));
            found.map(|(rest, place)| place.join(rest)).next()
        };
        facts.pins = wish
            .pins
            .iter()
            .chain(wish.protect.iter().filter(|p| p.exists()))
            .map(|p| pinned(p).unwrap_or_else(|| p.clone()))
            .collect();
        facts.closed = raw_read().filter_map(real).any(|p| !all_may_read(&p))
            || facts.tools.iter().any(|p| !others_may_read(p));
        let reads_all = wish.identity.is_some() && (wish.tier == Tier::Landlock || facts.closed);
        if reads_all || wish.keep_root {
            for folder in MAYBE_PRIVATE {
                facts.private.extend(children(Path::new(folder)).into_iter().filter(|c| !others_may_read(c)));
            }
        }
        if wish.tier == Tier::Landlock {
            for path in hidden.iter().chain(&facts.private) {
                for above in path.ancestors().skip(1) {
                    facts.entries.entry(above.to_owned()).or_insert_with(|| children(above));
                }
            }
        } else {
            let tools = home.iter().flat_map(|h| TOOLS.iter().map(|t| h.join(t)));
            let ways = tools.chain(std::env::split_paths(path.unwrap_or_default())).chain(raw_home);
            for way in ways.chain(raw_read().map(Path::to_owned)).chain(wish.write.iter().cloned()) {
                links_on(&way, &mut facts.links);
            }
            let temporary = PRIVATE.iter().filter_map(|(p, percent)| Some((real(Path::new(p))?, *percent)));
            facts.temporary = temporary.collect();
            facts.sockets = sockets(&hidden);
            facts.abstract_scoped = wish.network != Network::Open
                || wish.tier == Tier::Full && super::probe().landlock_abi >= ABI_SCOPES;
        }
        Self { home, hidden, ..facts }
    }
}

impl CageSpec {
    /// Whether abstract sockets of others are out of reach.
    pub(super) fn scoped(&self) -> bool {
        match self.wish.tier {
            Tier::Landlock | Tier::Full => {
                super::probe().landlock_abi >= ABI_SCOPES || !self.unix_sockets || self.own_network()
            }
            Tier::Namespaces => !self.unix_sockets || self.own_network(),
        }
    }

    fn own_network(&self) -> bool {
        self.wish.tier != Tier::Landlock && self.wish.network != Network::Open
    }
}

/// The first version of Landlock that keeps signals and abstract sockets apart.
const ABI_SCOPES: u32 = 6;

/// Notes the links that a path goes through.
fn links_on(path: &Path, links: &mut BTreeMap<PathBuf, PathBuf>) {
    let mut at = PathBuf::from("/");
    for part in path.strip_prefix("/").into_iter().flat_map(Path::components) {
        at.push(part);
        if std::fs::symlink_metadata(&at).is_ok_and(|m| m.is_symlink()) {
            let Ok(to) = std::fs::canonicalize(&at) else { return };
            links.insert(std::mem::replace(&mut at, to.clone()), to);
        }
    }
}

/// Sockets that somebody outside has bound to a path which no hidden folder holds.
fn sockets(hidden: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    use std::os::unix::{ffi::OsStrExt, fs::FileTypeExt};
    let list = std::fs::read("/proc/net/unix").unwrap_or_default();
    let paths = list.split(|b| *b == b'\n').filter_map(|line| {
        let at = line.windows(2).position(|w| w == b" /")? + 1;
        Some(PathBuf::from(OsStr::from_bytes(&line[at..])))
    });
    paths
        .map(|p: PathBuf| real_as_far_as_it_goes(&p))
        .filter(|p| !p.ancestors().any(|a| hidden.contains(a)))
        .filter(|p| std::fs::symlink_metadata(p).is_ok_and(|m| m.file_type().is_socket()))
        .collect()
}

/// Whether everybody may read it and what is directly in it.
fn all_may_read(path: &Path) -> bool {
    others_may_read(path) && children(path).iter().all(|c| others_may_read(c))
}

/// Canonical even when the end of the path does not exist yet, so that it is hidden when it comes.
fn real_as_far_as_it_goes(path: &Path) -> PathBuf {
    let known = path.ancestors().find_map(|a| Some((a, std::fs::canonicalize(a).ok()?)));
    match known {
        Some((above, real)) => match path.strip_prefix(above) {
            Ok(rest) if rest.as_os_str().is_empty() => real,
            Ok(rest) => real.join(rest),
            Err(_) => path.to_owned(),
        },
        None => path.to_owned(),
    }
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A link is not followed here: what it names is shown, or not, by its own place.
    listed.filter(|e| e.file_type().is_ok_and(|t| !t.is_symlink())).map(|e| e.path()).collect()
}

fn others_may_read(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::symlink_metadata(path).is_ok_and(|m| {
        let wanted = if m.is_dir() { 0o001 } else { 0o004 };
        m.permissions().mode() & wanted == wanted
    })
}

impl CageSpec {
    /// Decides what the kernel is asked for. Pure.
    ///
    /// Landlock tier: an allow list for reading. From `/` down, a folder with nothing hidden in it is granted
    /// as a whole, one above something hidden is split into its entries, and what is hidden gets nothing; then
    /// what is shown although it lies in a hidden folder, by the same rule. Where there is a mount namespace
    /// the view hides, and Landlock says only what can be written.
    pub fn build(wish: &Wish, facts: &Facts) -> Self {
        let mut hidden = facts.hidden.clone();
        hidden.extend(facts.private.iter().cloned());
        let mut spec = Self {
            wish: wish.clone(),
            read: vec!["/".into()],
            write: facts.write.clone(),
            devices: DEVICES.iter().map(PathBuf::from).collect(),
            hidden: hidden.iter().cloned().collect(),
            view: Vec::new(),
            unix_sockets: wish.unix_sockets || facts.abstract_scoped,
            reads_all: wish.identity.is_some() && (wish.tier == Tier::Landlock || facts.closed),
        };
        if wish.tier == Tier::Landlock {
            spec.read = allowed(facts, &hidden);
            return spec;
        }
        let dev = Path::new("/dev");
        let parts = Parts {
            private: facts.temporary.clone(),
            hidden: facts.hidden.iter().map(PathBuf::as_path).filter(|p| *p != dev).collect(),
            gone: facts.sockets.iter().chain(&facts.private).map(PathBuf::as_path).collect(),
            read: facts.tools.iter().chain(&facts.read).map(PathBuf::as_path).collect(),
            write: facts.write.iter().map(PathBuf::as_path).collect(),
            pins: facts.pins.clone(),
            instead: wish.instead.iter().map(|(at, from)| (at.as_path(), from.as_path())).collect(),
            links: &facts.links,
        };
        spec.view = view(&parts);
        spec.write.extend(facts.temporary.iter().map(|(p, _)| p.clone()));
        spec
    }
}

fn allowed(facts: &Facts, hidden: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut read = BTreeSet::new();
    grant(Path::new("/"), hidden, &facts.entries, &mut read);
    for shown in facts.tools.iter().chain(&facts.read) {
        let inside = hidden.iter().filter(|h| h.starts_with(shown) && *h != shown).cloned().collect();
        grant(shown, &inside, &facts.entries, &mut read);
    }
    // A grant below another adds nothing.
    let all = read.clone();
    read.retain(|p| !p.ancestors().skip(1).any(|a| all.contains(a)));
    read.into_iter().collect()
}

fn grant(
    start: &Path,
    hidden: &BTreeSet<PathBuf>,
    entries: &BTreeMap<PathBuf, Vec<PathBuf>>,
    read: &mut BTreeSet<PathBuf>,
) {
    let above: BTreeSet<&Path> = hidden.iter().flat_map(|h| h.ancestors().skip(1)).collect();
    let mut pending = vec![start.to_owned()];
    while let Some(path) = pending.pop() {
        // From above, so that nothing below a hidden path is ever reached.
        if hidden.contains(&path) {
            continue;
        }
        if above.contains(path.as_path()) {
            pending.extend(entries.get(&path).into_iter().flatten().cloned());
        } else {
            read.insert(path);
        }
    }
}
