//! What a cage shows and lets be written, as plain data; decided by pure functions over gathered facts.

use crate::os::process::{Identity, User};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Network of a cage. Only `Open` can be held so far; the others are refused at launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// As the machine's.
    #[default]
    Open,
    /// Through a proxy with a list of hosts.
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

/// Everything that decides a cage. `cage show` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CageSpec {
    /// Folders and files that can be read and executed, with everything below.
    pub read: Vec<PathBuf>,
    /// Folders in which everything can be done. A link at one is refused; one below another adds nothing.
    pub write: Vec<PathBuf>,
    /// Folders, of `read`, whose names can be listed although something in them is hidden.
    pub list: Vec<PathBuf>,
    /// What stays read-only although a folder of `write` holds it. Landlock has no exceptions: without a mount
    /// that holds them, no entry can be made or removed in any folder above one of these.
    pub protect: Vec<PathBuf>,
    /// Root stays root, without any capability: for a work tree that belongs to root and is to be written.
    pub keep_root: bool,
    /// Devices that can be read and written.
    pub devices: Vec<PathBuf>,
    /// What was left out of `read`, for the reader of this value; the kernel gets only the allow list.
    pub hidden: Vec<PathBuf>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Who the engine runs as; `None` = the caller. Root must name somebody else where it can.
    pub identity: Option<Identity>,
    /// Whether `socket(AF_UNIX)` is allowed; `socketpair` always is.
    pub unix_sockets: bool,
    /// Resource limits.
    pub limits: Limits,
    /// Network.
    pub network: Network,
}

/// What the caller of [`CageSpec::build`] decides.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Folders to hide beyond the built-in ones: main work tree, its git directories, `agent.root`.
    pub hidden: Vec<PathBuf>,
    /// Folders and files to show although a hidden folder holds them: main `objects`, alternates, the run's
    /// read-only parts, the user's `agent.read`.
    pub read: Vec<PathBuf>,
    /// The run's writable folders. They must exist.
    pub write: Vec<PathBuf>,
    /// Folders, of `read`, whose names can be listed although something in them is hidden.
    pub list: Vec<PathBuf>,
    /// What stays read-only although a folder of `write` holds it. Landlock has no exceptions: without a mount
    /// that holds them, no entry can be made or removed in any folder above one of these.
    pub protect: Vec<PathBuf>,
    /// Root stays root, without any capability: for a work tree that belongs to root and is to be written.
    pub keep_root: bool,
    /// The environment, usually from [`environment`].
    pub env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Who it runs as.
    pub identity: Option<Identity>,
    /// Allow `socket(AF_UNIX)`.
    pub unix_sockets: bool,
    /// Resource limits.
    pub limits: Limits,
    /// Network.
    pub network: Network,
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
    /// Things that others than root may not read: hidden when the engine has root's reading capability.
    pub private: BTreeSet<PathBuf>,
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
    pub fn gather(wish: &Wish, home: Option<&Path>, path: Option<&std::ffi::OsStr>) -> Self {
        let real = |p: &Path| std::fs::canonicalize(p).ok();
        let home = home.and_then(real).filter(|h| h != Path::new("/"));
        let ours: Vec<_> = wish.hidden.iter().map(|p| real_as_far_as_it_goes(p)).collect();
        let mut hidden: BTreeSet<_> = HIDDEN.iter().filter_map(|p| real(Path::new(p))).collect();
        hidden.extend(ours.iter().cloned());
        hidden.extend(home.clone());
        hidden.remove(Path::new("/"));

        let mut private = BTreeSet::new();
        if wish.identity.is_some() || wish.keep_root {
            for folder in MAYBE_PRIVATE {
                private.extend(children(Path::new(folder)).into_iter().filter(|c| !others_may_read(c)));
            }
        }
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
        let read = wish.read.iter().map(PathBuf::as_path).chain(SHOWN.iter().map(Path::new));
        let read = read.filter_map(real).collect();
        let mut entries = BTreeMap::new();
        for path in hidden.iter().chain(&private) {
            for above in path.ancestors().skip(1) {
                entries.entry(above.to_owned()).or_insert_with(|| children(above));
            }
        }
        Self { home, hidden, entries, tools, read, private }
    }
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
    /// The allow list: from `/` down, a folder with nothing hidden in it is granted as a whole, one above
    /// something hidden is split into its entries, and what is hidden gets nothing; then what is shown
    /// although it lies in a hidden folder, by the same rule. Pure.
    pub fn build(wish: &Wish, facts: &Facts) -> Self {
        let mut hidden = facts.hidden.clone();
        hidden.extend(facts.private.iter().cloned());
        let mut read = BTreeSet::new();
        grant(Path::new("/"), &hidden, &facts.entries, &mut read);
        for shown in facts.tools.iter().chain(&facts.read) {
            let inside = hidden.iter().filter(|h| h.starts_with(shown) && *h != shown).cloned().collect();
            grant(shown, &inside, &facts.entries, &mut read);
        }
        // A grant below another adds nothing.
        let all = read.clone();
        read.retain(|p| !p.ancestors().skip(1).any(|a| all.contains(a)));
        Self {
            read: read.into_iter().collect(),
            write: wish.write.clone(),
            list: wish.list.clone(),
            protect: wish.protect.clone(),
            keep_root: wish.keep_root,
            devices: DEVICES.iter().map(PathBuf::from).collect(),
            hidden: hidden.into_iter().collect(),
            env: wish.env.clone(),
            cwd: wish.cwd.clone(),
            identity: wish.identity,
            unix_sockets: wish.unix_sockets,
            limits: wish.limits,
            network: wish.network,
        }
    }
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

/// The folders of a run that the environment points at. They must be below a writable folder of the cage.
#[derive(Debug, Clone)]
pub struct RunDirs {
    /// The engine's own state; its `home` is HOME.
    pub engine: PathBuf,
    /// TMPDIR.
    pub tmp: PathBuf,
    /// Caches.
    pub cache: PathBuf,
}

/// The environment of a cage: an allow list over the caller's, and our own values. Tokens, sockets, `GIT_*`,
/// `LD_*`, `BASH_ENV`, `NODE_OPTIONS` and whatever comes up next are gone because they are not on the list.
/// `exists` tells whether a folder below the user's home exists. Pure but for that question.
pub fn environment(
    caller: impl Iterator<Item = (OsString, OsString)>,
    user: &User,
    dirs: &RunDirs,
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<(OsString, OsString)> {
    let mut env = BTreeMap::<OsString, OsString>::new();
    for (name, value) in caller {
        let Some(text) = name.to_str() else { continue };
        if text == "PATH" {
            let absolute = std::env::split_paths(&value).filter(|p| p.is_absolute());
            if let Ok(joined) = std::env::join_paths(absolute) {
                env.insert(name, joined);
            }
        } else if PASSED.contains(&text) || text.starts_with("LC_") {
            env.insert(name, value);
        }
    }
    let mut set = |name: &str, value: PathBuf| {
        env.insert(name.into(), value.into());
    };
    let home = dirs.engine.join("home");
    set("XDG_CONFIG_HOME", home.join(".config"));
    set("XDG_DATA_HOME", home.join(".local/share"));
    set("XDG_STATE_HOME", home.join(".local/state"));
    set("HOME", home);
    set("XDG_CACHE_HOME", dirs.cache.clone());
    for name in ["TMPDIR", "TMP", "TEMP"] {
        set(name, dirs.tmp.clone());
    }
    set("npm_config_cache", dirs.cache.join("npm"));
    set("PIP_CACHE_DIR", dirs.cache.join("pip"));
    set("UV_CACHE_DIR", dirs.cache.join("uv"));
    set("GOPATH", dirs.cache.join("go"));
    set("GOCACHE", dirs.cache.join("go-build"));
    set("CARGO_HOME", dirs.cache.join("cargo"));
    if let Some(real_home) = &user.home {
        for (name, folder) in [
            ("RUSTUP_HOME", ".rustup"),
            ("PYENV_ROOT", ".pyenv"),
            ("NVM_DIR", ".nvm"),
            ("VOLTA_HOME", ".volta"),
            ("MISE_DATA_DIR", ".local/share/mise"),
            ("UV_PYTHON_INSTALL_DIR", ".local/share/uv/python"),
        ] {
            let folder = real_home.join(folder);
            if exists(&folder) {
                set(name, folder);
            }
        }
    }
    env.entry("PATH".into()).or_insert_with(|| "/usr/local/bin:/usr/bin:/bin".into());
    env.into_iter().collect()
}

/// Names that pass. None of them can hold a secret or make a program load code.
const PASSED: &[&str] =
    &["USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ", "NO_COLOR", "CI"];
