//! The one-way door: what a forked child does to itself before exec.

use super::spec::{CageSpec, Limits};
use super::{CageError, Machine, seccomp};
use crate::os::files::Meta;
use crate::os::process::{self, Identity};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope,
};
use rustix::process::{Resource, Rlimit, Signal};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet};
use seccompiler::BpfProgram;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rule set, filters and identity, built in the parent.
#[derive(Debug)]
pub(super) struct Confinement {
    ruleset: OwnedFd,
    filters: Vec<BpfProgram>,
    identity: Option<Identity>,
    limits: Limits,
    privileged: bool,
    /// The person switched the cage off: nothing is held.
    off: bool,
}

impl Confinement {
    pub(super) fn new(spec: &CageSpec, machine: Machine) -> Result<Self, CageError> {
        Ok(Self {
            ruleset: ruleset(spec, machine.landlock_abi)?,
            filters: seccomp::filters(spec.unix_sockets)?,
            identity: spec.identity,
            limits: spec.limits,
            privileged: machine.euid0,
            off: false,
        })
    }

    /// Holds nothing: for what the person wants to run without a cage.
    pub(super) fn none(spec: &CageSpec) -> io::Result<Self> {
        let nothing = std::fs::File::open("/dev/null")?;
        Ok(Self {
            ruleset: nothing.into(),
            filters: Vec::new(),
            identity: spec.identity,
            limits: spec.limits,
            privileged: false,
            off: true,
        })
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { ruleset: self.ruleset.try_clone()?, filters: self.filters.clone(), ..*self })
    }

    /// Enters the cage for good. Runs in a forked child; `parent` is the pid whose death kills it.
    pub(super) fn enter(&self, parent: i32) -> io::Result<()> {
        for (resource, limit) in [
            (Resource::Core, Some(0)),
            (Resource::Fsize, self.limits.file_size),
            (Resource::Nproc, self.limits.processes),
            (Resource::Cpu, self.limits.cpu_seconds),
            (Resource::Nofile, self.limits.open_files),
        ] {
            let Some(limit) = limit else { continue };
            let hard = rustix::process::getrlimit(resource).maximum;
            let limit = Some(hard.map_or(limit, |hard| hard.min(limit)));
            rustix::process::setrlimit(resource, Rlimit { current: limit, maximum: limit })?;
        }
        close_on_exec_from_3()?;
        if self.off {
            if let Some(identity) = self.identity {
                drop_privileges(Some(identity))?;
            }
            return die_with(parent);
        }
        if self.privileged || self.identity.is_some() {
            drop_privileges(self.identity)?;
        }
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        // After the ids: changing them clears it.
        die_with(parent)?;
        rustix::thread::set_no_new_privs(true)?;
        restrict_self(&self.ruleset)?;
        for filter in &self.filters {
            seccompiler::apply_filter(filter).map_err(|e| match e {
                seccompiler::Error::Seccomp(e) | seccompiler::Error::Prctl(e) => e,
                other => io::Error::other(other.to_string()),
            })?;
        }
        Ok(())
    }
}

fn die_with(parent: i32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get()) != parent {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

/// The rule set, every right of it required: the crate must not leave out what this kernel should know.
fn ruleset(spec: &CageSpec, kernel: u32) -> Result<OwnedFd, CageError> {
    let abi = match kernel {
        ..=3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        _ => ABI::V7,
    };
    let fail = |e: &dyn std::fmt::Display| CageError::NotInForce { lacks: format!("Landlock: {e}") };
    let all = AccessFs::from_all(abi);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)
        .map_err(|e| fail(&e))?;
    if kernel >= 6 {
        rules = rules.scope(Scope::from_all(abi)).map_err(|e| fail(&e))?;
    }
    let mut rules = rules.create().map_err(|e| fail(&e))?;
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    let device = if kernel >= 5 { device | AccessFs::IoctlDev } else { device };
    let list = spec.list.iter().map(|p| (p, AccessFs::ReadDir.into(), false));
    let parts: Vec<PathBuf> = spec.write.iter().flat_map(|w| around(w, &spec.protect)).collect();
    // Below a writable folder a component may be a link that an engine made; and the rule above covers it.
    let outermost = |p: &&PathBuf| !p.ancestors().skip(1).any(|a| spec.write.iter().any(|w| w == a));
    let whole = |p: &&PathBuf| !p.is_file() && !spec.protect.iter().any(|held| held.starts_with(p));
    let write = spec.write.iter().filter(outermost).filter(whole).map(|p| (p, all, true));
    // Files too: named by the person, or beside what is protected.
    let write = write.chain(parts.iter().map(|p| (p, all, false)));
    let read = spec.read.iter().map(|p| (p, read, false));
    let devices = spec.devices.iter().map(|p| (p, device, false));
    for (path, access, needed) in read.chain(list).chain(devices).chain(write) {
        use rustix::fs::{Mode, OFlags, fstat, open};
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = if needed { flags | OFlags::DIRECTORY } else { flags };
        match open(path, flags, Mode::empty()) {
            Ok(fd) => {
                let meta = Meta::of(&fstat(&fd).map_err(|e| fail(&e))?);
                let access = if meta.is_dir() { access } else { access & AccessFs::from_file(abi) };
                if !meta.is_symlink() {
                    rules = rules.add_rule(PathBeneath::new(fd, access)).map_err(|e| fail(&e))?;
                }
            }
            // Gone since the list was made: then it is not shown.
            Err(_) if !needed => {}
            Err(e) => return Err(fail(&format_args!("{}: {e}", shown(path)))),
        }
    }
    let fd: Option<OwnedFd> = rules.into();
    fd.ok_or_else(|| fail(&"no rule set was made"))
}

/// The entries of a writable folder that stand beside what is protected in it; none when nothing is. Landlock
/// grants a folder with everything below, so that what holds an exception cannot be granted itself.
fn around(folder: &Path, protect: &[PathBuf]) -> Vec<PathBuf> {
    let holds = |p: &Path| protect.iter().any(|held| held.starts_with(p) && held != p);
    let (mut parts, mut pending) = (Vec::new(), Vec::new());
    if folder.is_file() {
        parts.push(folder.to_owned());
    } else if holds(folder) {
        pending.push(folder.to_owned());
    }
    while let Some(above) = pending.pop() {
        for entry in std::fs::read_dir(&above).into_iter().flatten().flatten() {
            let path = entry.path();
            if protect.contains(&path) || entry.file_type().is_ok_and(|t| t.is_symlink()) {
                continue;
            }
            if holds(&path) {
                pending.push(path);
            } else {
                parts.push(path);
            }
        }
    }
    parts
}

fn shown(path: &Path) -> String {
    crate::text::quote_path(path.as_os_str().as_encoded_bytes()).into_owned()
}

/// From root to `identity` (or, where ids cannot be changed, to the same user without powers). Keeps
/// `CAP_DAC_READ_SEARCH` across exec when there is an identity and it was held; nothing can come back.
fn drop_privileges(identity: Option<Identity>) -> io::Result<()> {
    let before = rustix::thread::capabilities(None)?;
    let kept = match identity {
        Some(_) => before.permitted & CapabilitySet::DAC_READ_SEARCH,
        None => CapabilitySet::empty(),
    };
    rustix::thread::set_keep_capabilities(true)?;
    let can_lock = before.effective.contains(CapabilitySet::SETPCAP);
    // Before the bounding set goes: what is not in it cannot become inheritable.
    process::set_only_capabilities(before.permitted, kept)?;
    if can_lock {
        for bit in (0..64).map(|n| CapabilitySet::from_bits_retain(1 << n)) {
            match rustix::thread::remove_capability_from_bounding_set(bit) {
                // Past the last capability this kernel knows.
                Err(rustix::io::Errno::INVAL) => break,
                other => other?,
            }
        }
    }
    if let Some(identity) = identity {
        process::set_ids(identity)?;
    }
    // Changing the user cleared the effective set; permitted is kept.
    let permitted = rustix::thread::capabilities(None)?.permitted;
    process::set_only_capabilities(permitted, kept)?;
    rustix::thread::clear_ambient_capability_set()?;
    if !kept.is_empty() {
        rustix::thread::configure_capability_in_ambient_set(CapabilitySet::DAC_READ_SEARCH, true)?;
    }
    if can_lock {
        // NO_SETUID_FIXUP also keeps access(2) from forgetting the capability.
        use CapabilitiesSecureBits as Bits;
        rustix::thread::set_capabilities_secure_bits(
            Bits::NO_ROOT
                | Bits::NO_ROOT_LOCKED
                | Bits::NO_SETUID_FIXUP
                | Bits::NO_SETUID_FIXUP_LOCKED
                | Bits::KEEP_CAPS_LOCKED
                | Bits::NO_CAP_AMBIENT_RAISE
                | Bits::NO_CAP_AMBIENT_RAISE_LOCKED,
        )?;
    }
    process::set_only_capabilities(kept, kept)
}

/// Hangs `work` between fork and exec of a command.
#[allow(unsafe_code)]
pub(super) fn before_exec(command: &mut Command, work: impl Fn() -> io::Result<()> + Send + Sync + 'static) {
    use std::os::unix::process::CommandExt;
    // SAFETY: `work` makes system calls on values built before the fork; it allocates only for errors, and
    // this program is single-threaded.
    unsafe {
        command.pre_exec(work);
    }
}

/// Version of the kernel's Landlock, 0 without.
#[allow(unsafe_code)]
pub(super) fn landlock_abi() -> u32 {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes no pointer.
    let abi =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Zero from the kernel means that all of it is in force.
#[allow(unsafe_code)]
fn restrict_self(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes a descriptor and flags.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether filters exist: with a null program the kernel answers EFAULT if it has them, else EINVAL.
#[allow(unsafe_code)]
pub(super) fn has_seccomp() -> bool {
    // SAFETY: a null pointer is what is asked about; nothing is installed.
    let result =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, std::ptr::null::<u8>(), 0, 0) };
    result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

#[allow(unsafe_code)]
fn close_on_exec_from_3() -> io::Result<()> {
    // SAFETY: sets a flag on our own descriptors.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
