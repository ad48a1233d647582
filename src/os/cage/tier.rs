//! Tiers: how much of a cage this machine's kernel holds, found out by trying.

use super::CageError;
use super::spaces::{Right, Spaces};
use super::spec::Network;
use super::step::{Failed, Step};
use super::{confine, mounts};
use crate::model::Tier;
use crate::os::process::{self, Identity, exit_now, fork, wait};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::OnceLock;

/// The first version of Landlock that covers truncation.
const ABI_NEEDED: u32 = 3;

/// What this machine's kernel lets us hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Landlock ABI version, 0 without Landlock.
    pub landlock_abi: u32,
    /// Seccomp filters.
    pub seccomp: bool,
    /// Running as uid 0.
    pub euid0: bool,
    /// Whether a child can change to a run's user.
    pub can_setuid: bool,
}

/// Asks the kernel.
pub fn probe() -> Machine {
    Machine {
        landlock_abi: confine::landlock_abi(),
        seccomp: confine::has_seccomp(),
        euid0: process::is_root(),
        can_setuid: process::can_become(Identity { uid: 61184, gid: 61184 }),
    }
}

/// By what right namespaces and their mounts can be made. Tried once a process, in a child.
pub(super) fn right() -> Result<Right, Failed> {
    static TRIED: OnceLock<Result<Right, Failed>> = OnceLock::new();
    *TRIED.get_or_init(|| {
        let mut last = Err(Failed::at(Step::Unshare)(rustix::io::Errno::PERM));
        for right in Spaces::rights() {
            match attempt(right) {
                Ok(()) => return Ok(right),
                Err(e) => last = Err(e),
            }
        }
        last
    })
}

fn attempt(right: Right) -> Result<(), Failed> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(Failed::at(Step::Fork))?;
    let Some(child) = fork().map_err(Failed::at(Step::Fork))? else {
        let keep = [write.as_raw_fd()];
        let tried = Spaces { right, network: Network::Open }
            .unshare(true)
            .and_then(|_| Spaces::first_process(&keep))
            .and_then(|()| mounts::try_out());
        let answer = tried.map_or_else(Failed::pack, |()| 0);
        let _ = File::from(write).write_all(&answer.to_ne_bytes());
        exit_now(0)
    };
    drop(write);
    let mut answer = [0; 4];
    let heard = File::from(read).read_exact(&mut answer);
    let _ = wait(child);
    match (heard, i32::from_ne_bytes(answer)) {
        (Ok(()), 0) => Ok(()),
        (Ok(()), failed) => Err(Failed::unpack(failed)),
        (Err(e), _) => Err(Failed::at(Step::Fork)(e)),
    }
}

impl Machine {
    /// The best tier that this machine holds, at most `cap`.
    pub fn tier(&self, cap: Tier) -> Result<Tier, CageError> {
        let lacks = [self.lacks(Tier::Full), self.lacks(Tier::Namespaces), self.lacks(Tier::Landlock)];
        let tiers = [Tier::Full, Tier::Namespaces, Tier::Landlock];
        let best = tiers.into_iter().zip(&lacks).find(|(t, lacks)| *t <= cap && lacks.is_none());
        match best {
            Some((tier, _)) => Ok(tier),
            None => {
                let [full, _, landlock] = lacks;
                let lacks = landlock.or(full).unwrap_or_else(|| format!("tier {}", cap.as_str()));
                Err(CageError::NotInForce { lacks })
            }
        }
    }

    /// Why this machine does not hold a tier.
    pub fn lacks(&self, tier: Tier) -> Option<String> {
        if !self.seccomp {
            return Some("this kernel has no seccomp filters".to_owned());
        }
        let landlock = match self.landlock_abi {
            0 => Some("this kernel has no Landlock".to_owned()),
            abi if abi < ABI_NEEDED => {
                Some(format!("Landlock ABI {abi} does not cover truncation; {ABI_NEEDED} is needed"))
            }
            _ => None,
        };
        match tier {
            Tier::Landlock => landlock,
            Tier::Namespaces => right().err().map(|e| e.to_string()),
            Tier::Full => right().err().map(|e| e.to_string()).or(landlock),
        }
    }

    /// What a person can do so that this machine holds `tier`: one line each.
    pub fn raise(&self, tier: Tier) -> Vec<String> {
        let number = |file: &str| -> Option<u64> {
            std::fs::read_to_string(Path::new("/proc/sys").join(file)).ok()?.trim().parse().ok()
        };
        let mut lines = Vec::new();
        if tier != Tier::Landlock
            && let Err(failed) = right()
        {
            if number("kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
                lines.push("sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0".to_owned());
            }
            if number("user/max_user_namespaces") == Some(0) {
                lines.push("sudo sysctl user.max_user_namespaces=15000".to_owned());
            }
            if number("kernel/unprivileged_userns_clone") == Some(0) {
                lines.push("sudo sysctl kernel.unprivileged_userns_clone=1".to_owned());
            }
            let contained = ["/.dockerenv", "/run/.containerenv"].iter().any(|f| Path::new(f).exists());
            if contained || lines.is_empty() && (failed.is(Step::Proc) || failed.is(Step::Unshare)) {
                lines.push(
                    "in a container: docker run --security-opt seccomp=unconfined --security-opt \
                     apparmor=unconfined --security-opt systempaths=unconfined"
                        .to_owned(),
                );
            }
        }
        if tier != Tier::Namespaces && self.landlock_abi < ABI_NEEDED {
            lines.push(
                "Linux 6.2 or later, with 'landlock' in the list of the boot parameter 'lsm='".to_owned(),
            );
        }
        lines
    }
}
