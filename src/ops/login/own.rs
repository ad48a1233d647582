//! A login for runs only. The client logs in inside a cage whose only writable folder is its own; what we keep
//! of that is the login without its refresh token, read as what a stranger wrote.

use super::LARGEST;
use crate::clients::account::{Account, Unusable};
use crate::clients::{self, Preset, Program};
use crate::ledger;
use crate::model::{Ended, Failure, Kind};
use crate::os::cage::{Cage, CageSpec, Facts, RunDirs, Stdio, Tier, Wish, environment, probe};
use crate::os::files::{self, Dir};
use crate::os::lock::Lock;
use crate::os::{process, remove};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::PathBuf;

/// A login that was made.
#[derive(Debug)]
pub struct SignIn {
    /// The engine.
    pub engine: &'static str,
    /// When it ends, in seconds since the epoch.
    pub expires: Option<i64>,
}

/// Where the login of an engine is kept.
pub(super) fn folder(preset: &Preset) -> Result<PathBuf, Failure> {
    Ok(ledger::state_folder()?.join("logins").join(preset.name))
}

/// Starts the client so that a person can log in, and keeps the login.
pub fn sign_in(engine: &str) -> Result<SignIn, Failure> {
    let Some(preset) = clients::known(engine) else {
        return Err(Failure::fatal(format!("there is no engine '{}'", crate::text::Untrusted::new(engine))));
    };
    let (Some(account), Program::Named(program)) = (preset.account, preset.program) else {
        return Err(Failure::usage(format!("engine '{engine}' needs no login")));
    };
    crate::ops::engine::present(OsStr::new(program))?;
    let home = folder(preset)?;
    let fail = |e: std::io::Error| {
        Failure::fatal(format!("the login of '{engine}' cannot be kept in '{}'", home.display())).because(e)
    };
    files::create_dirs(&home, 0o700).map_err(fail)?;
    let busy = || Failure::fatal(format!("somebody is logging in to '{engine}' just now"));
    let lock = Lock::acquire(&home.join("lock")).map_err(fail)?.ok_or_else(busy)?;
    let room = Dir::open(&home).map_err(fail)?;
    // What a session that was killed left. Gone before and after: it holds a refresh token.
    let clear = || remove::tree(room.as_fd(), OsStr::new("session")).map_err(fail);
    clear()?;
    let outcome =
        session(preset, account, program, &home, &lock).and_then(|login| keep(account, &home, &login));
    clear()?;
    Ok(SignIn { engine: preset.name, expires: outcome? })
}

/// The client in its cage. Returns what it left of a login.
fn session(
    preset: &Preset,
    account: &Account,
    program: &str,
    home: &std::path::Path,
    lock: &Lock,
) -> Result<Vec<u8>, Failure> {
    let session = home.join("session");
    let fail = |e: std::io::Error| Failure::fatal("the folder of the login cannot be made").because(e);
    // The run's user of a run that does not exist: nobody else is it while the claim lasts.
    let claimed =
        process::is_root().then(|| process::pick_run_uid(u64::from(std::process::id()))).transpose();
    let (identity, _claim) = claimed.map_err(fail)?.unzip();
    files::create_dir_for(&session, 0o700, identity).map_err(fail)?;
    process::as_identity(identity, || {
        let dir = Dir::open(&session)?;
        let state = preset.state.iter().map(|(_, folder)| *folder);
        for folder in ["engine", "tmp", "cache", "engine/home"]
            .map(str::to_owned)
            .into_iter()
            .chain(state.map(|s| format!("engine/{s}")))
        {
            super::folders(&dir, &folder)?;
        }
        Ok(())
    })
    .map_err(fail)?;
    let engine = session.join("engine");
    let dirs = RunDirs { engine: engine.clone(), tmp: session.join("tmp"), cache: session.join("cache") };
    let user = process::current_user();
    let mut env = environment(std::env::vars_os(), &user, &dirs, &|p| p.exists());
    env.extend(preset.caged_env.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))));
    env.extend(preset.state.iter().map(|(k, v)| (OsString::from(k), engine.join(v).into_os_string())));
    let wish = Wish {
        tier: probe().tier(Tier::Full)?,
        read: crate::ops::engine::program_files(OsStr::new(program)),
        write: vec![session.clone()],
        env,
        cwd: engine.join("home"),
        identity,
        ..Wish::default()
    };
    let facts = Facts::gather(&wish, user.home.as_deref(), std::env::var_os("PATH").as_deref());
    let cage = Cage::prepare(CageSpec::build(&wish, &facts))?;
    cage.canaries(&[("logins", home.join("agent-canary"))])?;
    let command: Vec<OsString> =
        std::iter::once(program).chain(account.sign_in.iter().copied()).map(OsString::from).collect();
    let outcome = cage.run(&command, Stdio::default(), lock, None)?;
    if let Ended::Signal(_) | Ended::Stopped | Ended::Unseen = outcome.ended {
        return Err(Failure::new(Kind::No, format!("'{program}' was ended; nothing was kept")));
    }
    let file = format!("engine/{}/{}", account.login_to, account.file);
    let read = Dir::open(&session).and_then(|d| d.read_bounded_at(file.as_bytes(), LARGEST));
    read.map_err(|e| Failure::fatal("what the client left cannot be read").because(e))?
        .ok_or_else(|| none(preset))
}

fn none(preset: &Preset) -> Failure {
    Failure::new(Kind::No, format!("no login of '{}' came of it; nothing was kept", preset.name))
}

/// Keeps the login without its refresh token. Returns when it ends.
fn keep(account: &Account, home: &std::path::Path, login: &[u8]) -> Result<Option<i64>, Failure> {
    let access = (account.access)(login, crate::ops::now()).map_err(|e| {
        let why = match e {
            Unusable::Malformed => "the login is not as this client is known to write it",
            Unusable::Empty => "the client did not log in",
        };
        Failure::new(Kind::No, format!("{why}; nothing was kept"))
    })?;
    files::write_atomic(&home.join(account.file), &access.bytes, 0o600)
        .map_err(|e| Failure::fatal("the login cannot be kept").because(e))?;
    Ok(access.expires)
}
