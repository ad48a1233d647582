//! The kernel cage around an engine. What is held is what the kernel was asked to hold and confirmed; if it
//! cannot be held, nothing is started ([`CageError::NotInForce`], exit 97).
//!
//! Three tiers, found by trying: `full` (namespaces, Landlock, seccomp), `namespaces` (no Landlock), `landlock`
//! (no namespaces). What each leaves open stands in `docs/threat-model.md`, and tests assert it as open.
//!
//! One way in for all: a [`Wish`] and the machine's [`Facts`] make a [`CageSpec`], plain data; that makes a
//! [`Cage`], which runs programs.

mod canary;
mod confine;
mod env;
mod init;
mod launch;
mod mounts;
mod proxied;
mod run;
mod seccomp;
mod spaces;
mod spec;
mod step;
mod sys;
mod terminal;
#[cfg(test)]
mod tests;
mod tier;
mod view;

pub use crate::model::Tier;
pub use env::{RunDirs, environment};
pub use run::{Input, Outcome, Output, Stdio};
pub use spaces::PROXY_PORT;
pub use spec::{CageSpec, Facts, Limits, Network, Wish};
pub use tier::{Machine, probe};
pub use view::Mount;

use crate::os::lock::Lock;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Why no program runs in a cage.
#[derive(Debug, thiserror::Error)]
pub enum CageError {
    /// The kernel cannot hold what was promised. Exit 97.
    #[error("the cage is not in force: {lacks}")]
    NotInForce {
        /// What is missing.
        lacks: String,
    },
    /// The engine's program does not exist (127).
    #[error("no such program")]
    NotFound,
    /// The engine's program cannot be executed, or the cage does not show it (126).
    #[error("cannot execute")]
    NotExecutable(#[source] io::Error),
    /// Starting it failed on our side (125).
    #[error("cannot launch: {what}")]
    Launch {
        /// The step.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl CageError {
    /// The exit status of `spawn`, `exec` and `shell`.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::NotInForce { .. } => 97,
            Self::Launch { .. } => 125,
            Self::NotExecutable(_) => 126,
            Self::NotFound => 127,
        }
    }

    fn launch(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Launch { what, source }
    }
}

impl From<CageError> for crate::model::Failure {
    fn from(e: CageError) -> Self {
        use crate::model::{Failure, Kind};
        let kind = match &e {
            CageError::NotInForce { .. } => Kind::Cage,
            other => Kind::Exec(other.exit_status()),
        };
        let message = e.to_string();
        match e {
            CageError::NotExecutable(source) | CageError::Launch { source, .. } => {
                Failure::new(kind, message).because(source)
            }
            _ => Failure::new(kind, message),
        }
    }
}

/// A cage ready to hold programs: rule set and filters are built, with the parent's rights. Everything
/// started from one value is in the very same confinement.
#[derive(Debug)]
pub struct Cage {
    spec: CageSpec,
    confinement: confine::Confinement,
}

impl Cage {
    /// Builds the rule set. Fails when the machine cannot hold it, a writable folder does not exist, or root
    /// would stay root where it need not.
    pub fn prepare(spec: CageSpec) -> Result<Self, CageError> {
        let machine = probe();
        let (wish, tier) = (&spec.wish, spec.wish.tier);
        let refuse = |lacks: &str| Err(CageError::NotInForce { lacks: lacks.to_owned() });
        if let Some(lacks) = machine.lacks(tier) {
            return Err(CageError::NotInForce { lacks });
        }
        if wish.network == Network::Proxy && tier == Tier::Landlock {
            return refuse("the tier landlock cannot hold the network to a proxy");
        }
        let missing = |p: &std::path::PathBuf| std::fs::symlink_metadata(p).is_err();
        if tier == Tier::Namespaces && (wish.keep_root || wish.protect.iter().any(missing)) {
            return refuse("the tier namespaces cannot make this tree writable and hold its git directory");
        }
        let stays_root = wish.identity.is_none_or(|i| i.uid == 0 || i.gid == 0) && !wish.keep_root;
        if machine.euid0 && machine.can_setuid && stays_root {
            return refuse("root must run the engine as a user of its own");
        }
        for folder in &spec.write {
            if !std::fs::symlink_metadata(folder).is_ok_and(|m| !m.is_symlink()) {
                return refuse(&format!(
                    "{} is not there, or a link",
                    crate::text::quote_path(folder.as_os_str().as_encoded_bytes())
                ));
            }
        }
        let confinement = confine::Confinement::new(&spec, machine)?;
        Ok(Self { spec, confinement })
    }

    /// No cage at all: what is started from it is ended as from any other, and nothing else is held. Only on the
    /// person's own word.
    pub fn none(wish: Wish) -> Self {
        let spec = CageSpec { wish, ..CageSpec::default() };
        Self { confinement: confine::Confinement::none(&spec), spec }
    }

    /// What it was made from.
    pub fn spec(&self) -> &CageSpec {
        &self.spec
    }

    /// Puts a simple child into the cage: for the plumbing the host runs on hostile data. Its environment and
    /// working directory become the spec's; descriptors above 2 are closed on exec. A confinement that
    /// cannot be entered is an error of `spawn`, before exec. There is no pid namespace and no `/proc`.
    pub fn confine(&self, command: &mut Command) -> Result<(), CageError> {
        use std::os::unix::process::CommandExt;
        let wish = &self.spec.wish;
        command.env_clear().envs(wish.env.iter().map(|(k, v)| (k, v))).current_dir(&wish.cwd);
        let confinement = self.confinement.try_clone().map_err(CageError::launch("copy the rule set"))?;
        let parent = std::process::id() as i32;
        confine::before_exec(command.process_group(0), move || {
            let at = std::env::current_dir()?;
            confinement.surround(false, &[], |_| Ok(()))?;
            confinement.enter(Some(parent))?;
            // Where it was, among the cage's own mounts.
            Ok(rustix::process::chdir(&at)?)
        });
        Ok(())
    }

    /// Tries, inside the cage, to open each target for writing, creating it if it is missing and never
    /// truncating. Each is `(name, path)`; put a sibling's file, `host/` and main `.git/config` there. An
    /// attempt that is not denied is [`CageError::NotInForce`], and no engine must be started.
    pub fn canaries(&self, targets: &[(&str, PathBuf)]) -> Result<Vec<crate::model::Canary>, CageError> {
        canary::canaries(&self.spec, &self.confinement, targets)
    }

    /// Runs the engine `argv` to its end, supervised: when this returns nothing of it is left. The engine's
    /// death, `wall`, a SIGTERM, SIGHUP or SIGINT to us, and our own death end everything it started. The lock
    /// is shared with cage-init, so it is held until all of that is dead, even when we are not there.
    pub fn run(
        &self,
        argv: &[OsString],
        stdio: Stdio,
        lock: &Lock,
        wall: Option<Duration>,
    ) -> Result<Outcome, CageError> {
        run::run(&self.spec, &self.confinement, argv, stdio, lock, wall)
    }
}
