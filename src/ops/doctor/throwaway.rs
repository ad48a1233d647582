//! The repository and the run that doctor makes, and their end.

use crate::git::{Call, Place, Repo};
use crate::ledger::repository::state_folder;
use crate::model::{Failure, Kind};
use crate::ops::{Open, confine, spawn, switch};
use crate::os::cage::Cage;
use crate::os::lock::Lock;
use crate::os::{files, remove};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

const PREFIX: &str = ".doctor-";
const LOCK: &str = "lock";
/// After this long a folder without a lock belongs to nobody.
const FORGOTTEN: std::time::Duration = std::time::Duration::from_secs(600);

/// A folder beside the runs of real repositories: what holds there, holds for them. Deleted with the value.
#[derive(Debug)]
pub struct Throwaway {
    dir: PathBuf,
    main: Repo,
    _lock: Lock,
}

/// A run that an engine could start in, and its cage.
#[derive(Debug)]
pub struct Held<'r> {
    pub run: Open<'r>,
    pub cage: Cage,
    /// What the canaries said.
    pub report: crate::model::CageReport,
}

impl Throwaway {
    pub fn make() -> Result<Self, Failure> {
        let above = state_folder().ok().filter(|s| files::create_dirs(s, 0o700).is_ok());
        if let Some(above) = &above {
            sweep(above);
        }
        let fail = |e: std::io::Error| Failure::fatal("doctor's folder could not be made").because(e);
        let mut builder = tempfile::Builder::new();
        let dir = builder.prefix(PREFIX);
        let dir = above.as_ref().and_then(|a| dir.tempdir_in(a).ok());
        let dir = match dir {
            Some(dir) => dir,
            // A state folder that cannot be written; then runs will lie elsewhere too.
            None => tempfile::Builder::new().prefix(PREFIX).tempdir().map_err(fail)?,
        };
        let dir = dir.keep();
        let dir = std::fs::canonicalize(&dir).map_err(fail)?;
        let made = Lock::acquire(&dir.join(LOCK)).map_err(fail).and_then(|lock| {
            let lock = lock.ok_or_else(|| Failure::fatal("doctor's own folder is locked by somebody"))?;
            repository(&dir.join("free-main"), &dir.join("free-runs"))?;
            let main = dir.join("main");
            repository(&main, &dir.join("runs"))?;
            Ok((Repo::at(&main)?, lock))
        });
        match made {
            Ok((main, lock)) => Ok(Self { dir, main, _lock: lock }),
            Err(failure) => {
                discard(&dir);
                Err(failure)
            }
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The repository the run was cut from.
    pub fn main(&self) -> &Path {
        self.main.work_tree().unwrap_or(&self.dir)
    }

    /// A repository of the same shape for what is tried without a cage.
    pub fn free_main(&self) -> PathBuf {
        self.dir.join("free-main")
    }

    /// Cuts the run as `spawn` does, and prepares and probes its cage as `spawn` does.
    pub fn run(&self) -> Result<Held<'_>, Failure> {
        if switch::cage(self.main.config()?)? != switch::Cage::On {
            return Err(Failure::new(
                Kind::Cage,
                "the cage is switched off, by GIT_AGENT_CAGE or agent.cage",
            ));
        }
        let request = spawn::Request {
            role: "developer".into(),
            run: Some("doctor".into()),
            ..spawn::Request::default()
        };
        let plan = spawn::plan(&self.main, &request, crate::ops::fate()?)?;
        let run = spawn::execute(&self.main, plan)?.run;
        let cage = confine::engine(&run, Vec::new(), Vec::new())?.cage;
        let report = confine::prove(&run, &cage)?;
        Ok(Held { run, cage, report })
    }
}

impl Held<'_> {
    /// A cage of the same run with more variables and programs, for engines.
    pub fn cage_with(
        &self,
        variables: Vec<(OsString, OsString)>,
        programs: Vec<PathBuf>,
    ) -> Result<Cage, Failure> {
        Ok(confine::engine(&self.run, variables, programs)?.cage)
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        discard(&self.dir);
    }
}

/// A repository with one commit.
pub(super) fn repository(dir: &Path, runs: &Path) -> Result<(), Failure> {
    let fail = |e: std::io::Error| Failure::fatal(format!("'{}' cannot be made", dir.display())).because(e);
    files::create_dir(dir, 0o755).map_err(fail)?;
    files::write_new(&dir.join("README"), b"Made by 'git agent doctor'.\n", 0o644).map_err(fail)?;
    let settings = ["user.name=Doctor", "user.email=doctor@git-agent.invalid", "commit.gpgSign=false"];
    let git = |verb: &str, args: &[&str]| -> Result<(), Failure> {
        Call::with_settings(verb, &Place::default(), &settings).args(args).current_dir(dir).output()?;
        Ok(())
    };
    git("init", &["-q", "-b", "main"])?;
    git("add", &["-A"])?;
    git("commit", &["-q", "-m", "For doctor"])?;
    git("branch", &["target"])?;
    git("config", &["agent.root", &runs.to_string_lossy()])
}

/// Deletes what an earlier doctor left that was killed.
fn sweep(above: &Path) {
    for entry in std::fs::read_dir(above).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let lock = entry.path().join(LOCK);
        let dead = match files::lstat(&lock) {
            Ok(Some(_)) => Lock::is_held(&lock).is_ok_and(|held| !held),
            // Between its making and its lock a folder has none; one that was half deleted has none for long.
            Ok(None) => entry
                .metadata()
                .and_then(|m| m.modified())
                .is_ok_and(|t| t.elapsed().is_ok_and(|age| age > FORGOTTEN)),
            Err(_) => false,
        };
        if dead {
            discard(&entry.path());
        }
    }
}

fn discard(dir: &Path) {
    if let (Some(above), Some(name)) = (dir.parent(), dir.file_name())
        && let Ok(above) = files::open_dir_nofollow(above)
    {
        let _ = remove::tree(above.as_fd(), name);
    }
}
