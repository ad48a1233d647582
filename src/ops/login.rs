//! Login of an engine: which way in its client has inside a run, and what of the person's own files that takes.
//! Read from the person's files, never written to them. Decision 0018.

mod gather;
mod own;

pub use own::{SignIn, sign_in};

use super::Open;
use super::engine::EnginePlan;
use crate::clients::account::{Access, Account, Facts, Place, Seed, Source, Unusable};
use crate::clients::{Preset, Program};
use crate::git::Config;
use crate::model::Failure;
use crate::os::files::{self, Dir};
use crate::os::{process, remove};
use crate::text::Untrusted;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Largest file that a login can be.
const LARGEST: u64 = 1 << 20;
/// Less than this many seconds of a login left: worth a word.
const SHORT: i64 = 3600;

/// What `agent.<engine>.login` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The engine's own variables pass.
    Env,
    /// A copy of the person's login without its refresh token.
    Access,
    /// The same of a login that is kept for runs only.
    Own,
    /// The client needs none: a local model, or settings that hold all of it.
    None,
}

/// A login as decided, and what it takes.
#[derive(Debug)]
enum Login {
    /// By the variables of these names.
    Env(Vec<String>),
    Access(Access),
    None,
}

/// What the engine is started with besides its preset.
#[derive(Debug, Default)]
pub struct Placed {
    /// Variables.
    pub env: Vec<(OsString, OsString)>,
    /// Words after the program's name.
    pub words: Vec<OsString>,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
}

/// Refuses an engine whose client is not logged in, before anything is made for it.
pub fn check(engine: &EnginePlan, config: &Config) -> Result<(), Failure> {
    let Some((preset, account)) = engine.client() else { return Ok(()) };
    decide(preset, account, engine, config, super::now(), &mut Vec::new()).map(drop)
}

/// Puts login, settings and seeds of the engine's client into the run.
pub fn place(run: &Open<'_>, engine: &EnginePlan) -> Result<Placed, Failure> {
    let Some((preset, account)) = engine.client() else { return Ok(Placed::default()) };
    let mut placed = Placed::default();
    let config = run.repo.config()?;
    let login = decide(preset, account, engine, config, super::now(), &mut placed.notes)?;
    let settings = gather::settings(account, &mut placed.notes)?;
    let names = match &login {
        Login::Env(names) => names.as_slice(),
        Login::Access(_) | Login::None => &[],
    };
    let seed = (account.seed)(&Facts {
        tree: &run.layout.tree().to_string_lossy(),
        login: match &login {
            Login::Env(_) => Source::Variables,
            Login::Access(_) => Source::File,
            Login::None => Source::Settings,
        },
        env: &|name| {
            let passes = names.iter().any(|n| n == name);
            std::env::var(name).ok().filter(|v| passes && !v.is_empty())
        },
        state: gather::state(account),
        copied: &|name| {
            let path = format!("{}/{name}", account.settings_to);
            settings.iter().find(|f| f.path == path).map(|f| f.bytes.clone())
        },
    });
    write(run, preset, account, &login, &settings, &seed).map_err(|e| {
        Failure::fatal(format!("login and settings of '{}' could not be put into the run", preset.name))
            .because(e)
    })?;
    placed.env = names.iter().filter_map(|n| Some((n.into(), std::env::var_os(n)?))).collect();
    placed.words = seed.words.into_iter().map(OsString::from).collect();
    Ok(placed)
}

/// Takes the login out of the run again. It would end by itself; there is no reason to let it lie about.
pub fn remove(run: &Open<'_>, engine: &EnginePlan) {
    let Some((_, account)) = engine.client() else { return };
    let path = format!("{}/{}", account.login_to, account.file);
    if let Ok(dir) = Dir::open(&run.layout.engine()) {
        let _ = dir.unlink_any_at(path.as_bytes());
    }
}

fn decide(
    preset: &Preset,
    account: &Account,
    engine: &EnginePlan,
    config: &Config,
    now: i64,
    notes: &mut Vec<String>,
) -> Result<Login, Failure> {
    let key = format!("agent.{}.login", preset.name);
    let way = match config.personal(&key) {
        None => None,
        Some("env") => Some(Way::Env),
        Some("access") => Some(Way::Access),
        Some("own") => Some(Way::Own),
        Some("none") => Some(Way::None),
        Some(other) => {
            return Err(Failure::fatal(format!("'{}' is no value of {key}", Untrusted::new(other)))
                .hint("values: env, access, own, none"));
        }
    };
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let file = match way {
        Some(Way::Env) if preset.login_env.iter().any(|n| is_set(n)) => {
            let names = preset.login_env.iter().chain(preset.more_env);
            return Ok(Login::Env(names.map(|n| (*n).to_owned()).collect()));
        }
        Some(Way::Env) => {
            let failure =
                Failure::fatal(format!("{key} is 'env', and none of {} is set", preset.login_env.join(", ")));
            return Err(failure.hint(format!("export {}=...", preset.login_env[0])));
        }
        Some(Way::None) => return Ok(Login::None),
        Some(Way::Own) => own::folder(preset)?.join(account.file),
        Some(Way::Access) | None => file_of(account),
    };
    let Some(bytes) = login_file(&file, notes)? else {
        return absent(preset, engine, way, is_set);
    };
    let shown = Untrusted::new(file.as_os_str().as_encoded_bytes());
    let access = match (account.access)(&bytes, now) {
        Ok(access) => access,
        Err(Unusable::Empty) => return absent(preset, engine, way, is_set),
        Err(Unusable::Malformed) => {
            return Err(Failure::fatal(format!("'{shown}' is not a login that {} wrote", program(preset)))
                .hint(again(preset, way)));
        }
    };
    match access.expires.map(|at| at - now) {
        Some(left) if left <= 0 => {
            Err(Failure::fatal(format!("the login of engine '{}' has ended", preset.name))
                .hint(again(preset, way)))
        }
        Some(left) if left < SHORT => {
            notes.push(format!(
                "the login of '{}' ends in {} minutes, and a run cannot renew it: {}",
                preset.name,
                left / 60,
                again(preset, way)
            ));
            Ok(Login::Access(access))
        }
        _ => Ok(Login::Access(access)),
    }
}

/// No login: one sentence with the three ways, unless the policy or the caller took care of it.
fn absent(
    preset: &Preset,
    engine: &EnginePlan,
    way: Option<Way>,
    is_set: impl Fn(&str) -> bool,
) -> Result<Login, Failure> {
    if way.is_none() && engine.passes().any(|n| preset.login_env.contains(&n) && is_set(n)) {
        return Ok(Login::Env(engine.passes().map(str::to_owned).collect()));
    }
    if way.is_none() && engine.is_given() {
        return Ok(Login::None);
    }
    let name = preset.name;
    Err(Failure::fatal(format!(
        "engine '{name}' is not logged in: log in with '{}' as always, or let {} through with \
         'git config --global agent.{name}.login env', or make a login for runs only with 'git agent login {name}'",
        program(preset),
        preset.login_env[0],
    )))
}

fn program(preset: &Preset) -> &'static str {
    match preset.program {
        Program::Named(program) => program,
        Program::Ourselves | Program::Given => preset.name,
    }
}

/// What renews a login.
fn again(preset: &Preset, way: Option<Way>) -> String {
    match way {
        Some(Way::Own) => format!("git agent login {}", preset.name),
        _ => format!("start '{}' once, or log in with it again", program(preset)),
    }
}

/// The bytes of a login file; `None` without one. A link is followed, since people keep their files that way;
/// what it leads to has to be a plain file of theirs.
fn login_file(path: &Path, notes: &mut Vec<String>) -> Result<Option<Vec<u8>>, Failure> {
    let shown = Untrusted::new(path.as_os_str().as_encoded_bytes()).to_string();
    let fail = |e: io::Error| Failure::fatal(format!("login '{shown}' cannot be read")).because(e);
    let real = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(fail(e)),
    };
    let Some(meta) = files::lstat(&real).map_err(fail)? else { return Ok(None) };
    if !meta.is_file() {
        return Err(Failure::fatal(format!("login '{shown}' is not a file")));
    }
    if ![0, process::current_user().uid].contains(&meta.uid) {
        return Err(Failure::fatal(format!("login '{shown}' belongs to another user")));
    }
    if meta.mode & 0o077 != 0 {
        let quoted = crate::text::shell_quote(&shown).into_owned();
        notes.push(format!("other users of this machine can reach a login: chmod 600 {quoted}"));
    }
    files::read_bounded(&real, LARGEST).map_err(fail)
}

/// Everything is written by the run's own user and below `engine/`, whatever an earlier engine left there.
fn write(
    run: &Open<'_>,
    preset: &Preset,
    account: &Account,
    login: &Login,
    settings: &[gather::File],
    seed: &Seed,
) -> io::Result<()> {
    process::as_identity(run.identity(), || {
        let dir = Dir::open(&run.layout.engine())?;
        for (_, folder) in preset.state {
            folders(&dir, folder)?;
        }
        for file in settings {
            put(&dir, &file.path, &file.bytes, if file.executable { 0o700 } else { 0o600 })?;
        }
        for (path, bytes) in &seed.files {
            put(&dir, path, bytes, 0o600)?;
        }
        let path = format!("{}/{}", account.login_to, account.file);
        match login {
            Login::Access(access) => put(&dir, &path, &access.bytes, 0o600),
            // What another engine of the chain, or an earlier login, left.
            Login::None => clear(&dir, &path),
            Login::Env(_) if seed.files.iter().any(|(p, _)| *p == path) => Ok(()),
            Login::Env(_) => clear(&dir, &path),
        }
    })
}

fn put(dir: &Dir, path: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    if let Some((folder, _)) = path.rsplit_once('/') {
        folders(dir, folder)?;
    }
    clear(dir, path)?;
    dir.write_new_at(path.as_bytes(), bytes, mode)
}

/// Makes the folders of a path; a link or a file in the way goes.
fn folders(dir: &Dir, path: &str) -> io::Result<()> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for folder in ends.map(|end| &path[..end]) {
        match dir.lstat_at(folder.as_bytes())? {
            Some(meta) if meta.is_dir() => continue,
            Some(_) => clear(dir, folder)?,
            None => {}
        }
        dir.create_dir_at(folder.as_bytes(), 0o700)?;
    }
    Ok(())
}

/// Removes whatever has that name, a folder with all that is in it too.
fn clear(dir: &Dir, path: &str) -> io::Result<()> {
    let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
    if dir.lstat_at(path.as_bytes())?.is_none() {
        return Ok(());
    }
    let parent = dir.dir_at(folder.as_bytes())?;
    remove::tree(parent.as_fd(), OsStr::new(name))
}

/// The person's own login of a client, whether it is there or not.
pub(super) fn file_of(account: &Account) -> PathBuf {
    located(account.login).join(account.file)
}

/// Where a place of the person's is, as their own client would find it.
fn located(place: Place) -> PathBuf {
    let moved = std::env::var_os(place.var).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = moved.unwrap_or_else(|| process::current_user().home.unwrap_or_default().join(place.home));
    if place.below.is_empty() { base } else { base.join(place.below) }
}
