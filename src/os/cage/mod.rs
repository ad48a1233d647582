//! The kernel cage around an engine. What is held is what the kernel was asked to hold and confirmed; if it
//! cannot be held, nothing is started ([`CageError::NotInForce`], exit 97).
//!
//! Only the `landlock` tier exists here: Landlock, seccomp, dropped privileges and a child subreaper. What
//! that tier cannot hold: metadata of files outside (chmod, utimes, xattr by their owner), processes that
//! survive when both supervisor and cage-init are killed by somebody outside, other services on loopback.
//! Below Landlock ABI 6, and without a user of its own, an engine can signal the caller's processes.
//! Pseudo-terminals cannot be opened inside, since `/dev/pts` also holds the user's other terminals.

mod confine;
mod run;
mod seccomp;
mod spec;
#[cfg(test)]
mod tests;

pub use run::{Input, Outcome, Output, Stdio};
pub use spec::{CageSpec, Facts, Limits, Network, RunDirs, Wish, environment};

use crate::os::lock::Lock;
use crate::os::process::{self, Identity};
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

/// What this machine's kernel lets us hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Landlock ABI version, 0 without Landlock.
    pub landlock_abi: u32,
    /// Whether user namespaces look usable (`/proc/sys/user/max_user_namespaces`, AppArmor's restriction).
    pub user_namespaces: bool,
    /// Seccomp filters.
    pub seccomp: bool,
    /// Running as uid 0.
    pub euid0: bool,
    /// Whether a child can change to a run's user.
    pub can_setuid: bool,
}

/// How much is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Landlock, seccomp and subreaper.
    Landlock,
}

impl Tier {
    /// The name in policy, ledger and messages.
    pub fn as_str(self) -> &'static str {
        "landlock"
    }
}

/// Asks the kernel.
pub fn probe() -> Machine {
    let number = |file: &str| std::fs::read_to_string(file).ok().and_then(|t| t.trim().parse::<u64>().ok());
    Machine {
        landlock_abi: confine::landlock_abi(),
        user_namespaces: number("/proc/sys/user/max_user_namespaces").is_some_and(|n| n > 0)
            && number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").unwrap_or(0) == 0,
        seccomp: confine::has_seccomp(),
        euid0: process::is_root(),
        can_setuid: process::can_become(Identity { uid: 61184, gid: 61184 }),
    }
}

impl Machine {
    /// The best tier this program can hold here.
    pub fn tier(&self) -> Result<Tier, CageError> {
        let lacks = match (self.landlock_abi, self.seccomp) {
            (0, _) => "this kernel has no Landlock".to_owned(),
            (abi @ 1..=2, _) => format!("Landlock ABI {abi} does not cover truncation; 3 is needed"),
            (_, false) => "this kernel has no seccomp filters".to_owned(),
            (_, true) => return Ok(Tier::Landlock),
        };
        Err(CageError::NotInForce { lacks })
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
        machine.tier()?;
        let refuse = |lacks: &str| Err(CageError::NotInForce { lacks: lacks.to_owned() });
        if spec.network != Network::Open {
            return refuse("network proxy and off are not implemented");
        }
        let stays_root = spec.identity.is_none_or(|i| i.uid == 0 || i.gid == 0) && !spec.keep_root;
        if machine.euid0 && machine.can_setuid && stays_root {
            return refuse("root must run the engine as a user of its own");
        }
        let confinement = confine::Confinement::new(&spec, machine)?;
        Ok(Self { spec, confinement })
    }

    /// No cage at all: what is started from it is ended as from any other, and nothing else is held. Only on the
    /// person's own word.
    pub fn none(spec: CageSpec) -> Result<Self, CageError> {
        let confinement = confine::Confinement::none(&spec).map_err(CageError::launch("open /dev/null"))?;
        Ok(Self { spec, confinement })
    }

    /// What it was made from.
    pub fn spec(&self) -> &CageSpec {
        &self.spec
    }

    /// Puts a simple child into the cage: for the plumbing the host runs on hostile data. Its environment and
    /// working directory become the spec's; descriptors above 2 are closed on exec. A confinement that
    /// cannot be entered is an error of `spawn`, before exec.
    pub fn confine(&self, command: &mut Command) -> Result<(), CageError> {
        use std::os::unix::process::CommandExt;
        command.env_clear().envs(self.spec.env.iter().map(|(k, v)| (k, v))).current_dir(&self.spec.cwd);
        let confinement = self.confinement.try_clone().map_err(CageError::launch("copy the rule set"))?;
        let parent = std::process::id() as i32;
        confine::before_exec(command.process_group(0), move || confinement.enter(parent));
        Ok(())
    }

    /// Tries, inside the cage, to open each target for writing, creating it if it is missing and never
    /// truncating. Each is `(name, path)`; put a sibling's file, `host/` and main `.git/config` there. An
    /// attempt that is not denied is [`CageError::NotInForce`], and no engine must be started.
    pub fn canaries(&self, targets: &[(&str, PathBuf)]) -> Result<Vec<crate::model::Canary>, CageError> {
        run::canaries(&self.confinement, targets)
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
