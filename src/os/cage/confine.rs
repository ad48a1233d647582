//! The one-way door: what a forked child does to itself before exec.

use super::spaces::Spaces;
use super::spec::{CageSpec, Limits, Network};
use super::step::{Failed, Step};
use super::tier::{Machine, right};
use super::view::Mount;
use super::{CageError, mounts, seccomp};
use crate::model::Tier;
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
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that a child needs to enter the cage, made in the parent as far as it can be.
#[derive(Debug)]
pub(super) struct Confinement {
    /// Namespaces, where the tier has them.
    surroundings: Option<Surroundings>,
    landlock: Landlock,
    filters: Vec<BpfProgram>,
    identity: Option<Identity>,
    reads_all: bool,
    limits: Limits,
    privileged: bool,
    /// The person switched the cage off: nothing is held.
    off: bool,
}

#[derive(Debug, Clone)]
struct Surroundings {
    spaces: Spaces,
    view: Vec<Mount>,
    devices: Vec<PathBuf>,
    terminal: Option<PathBuf>,
}

#[derive(Debug)]
enum Landlock {
    /// The tier has none.
    None,
    /// Made before the fork.
    Ready(OwnedFd),
    /// To be made among the cage's own mounts.
    Inside(Box<Rules>),
}

/// What a rule set is made of.
#[derive(Debug, Clone)]
struct Rules {
    read: Vec<PathBuf>,
    list: Vec<PathBuf>,
    write: Vec<PathBuf>,
    /// Exceptions of `write`.
    protect: Vec<PathBuf>,
    devices: Vec<PathBuf>,
    /// Files of processes can be written: nothing else is in `/proc` for this user.
    processes: bool,
    kernel: u32,
}

impl Confinement {
    pub(super) fn new(spec: &CageSpec, machine: Machine) -> Result<Self, CageError> {
        let wish = &spec.wish;
        let mut rules = Rules {
            read: spec.read.clone(),
            list: wish.list.clone(),
            protect: wish.protect.clone(),
            write: spec.write.clone(),
            devices: spec.devices.clone(),
            processes: false,
            kernel: machine.landlock_abi,
        };
        let not_in_force = |e: Failed| CageError::NotInForce { lacks: e.to_string() };
        let surroundings = match wish.tier {
            Tier::Landlock => None,
            Tier::Namespaces | Tier::Full => {
                let terminal = terminal();
                rules.devices.extend(terminal.as_ref().map(|_| PathBuf::from("/dev/console")));
                rules.devices.push("/dev/pts".into());
                // A root that stays root would write more than its own processes there.
                rules.processes = !wish.keep_root;
                // Mounts hold the others.
                rules.protect.retain(|p| std::fs::symlink_metadata(p).is_err());
                Some(Surroundings {
                    spaces: Spaces { right: right().map_err(not_in_force)?, network: wish.network },
                    view: spec.view.clone(),
                    devices: spec.devices.clone(),
                    terminal,
                })
            }
        };
        Ok(Self {
            landlock: match wish.tier {
                Tier::Landlock => Landlock::Ready(ruleset(&rules)?),
                Tier::Namespaces => Landlock::None,
                Tier::Full => Landlock::Inside(Box::new(rules)),
            },
            // Without a network namespace there is only the filter to keep the network out.
            filters: seccomp::filters(
                spec.unix_sockets,
                surroundings.is_some() || wish.network == Network::Open,
            )?,
            surroundings,
            identity: wish.identity,
            reads_all: spec.reads_all,
            limits: wish.limits,
            privileged: machine.euid0,
            off: false,
        })
    }

    /// Holds nothing: for what the person wants to run without a cage.
    pub(super) fn none(spec: &CageSpec) -> Self {
        Self {
            surroundings: None,
            landlock: Landlock::None,
            filters: Vec::new(),
            identity: spec.wish.identity,
            reads_all: true,
            limits: spec.wish.limits,
            privileged: false,
            off: true,
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            surroundings: self.surroundings.clone(),
            landlock: match &self.landlock {
                Landlock::None => Landlock::None,
                Landlock::Ready(fd) => Landlock::Ready(fd.try_clone()?),
                Landlock::Inside(rules) => Landlock::Inside(rules.clone()),
            },
            filters: self.filters.clone(),
            ..*self
        })
    }

    /// Whether the processes of this cage have a pid namespace, so that they die with its first one.
    pub(super) fn has_spaces(&self) -> bool {
        self.surroundings.is_some()
    }

    /// Makes the namespaces and their mounts, in a forked child. With `processes` what follows is done by the
    /// first process of a pid namespace, and the caller never returns: see [`Spaces::first_process`].
    /// `listener` takes the socket that the proxy listens on.
    pub(super) fn surround(
        &self,
        processes: bool,
        keep: &[i32],
        listener: impl FnOnce(TcpListener) -> io::Result<()>,
    ) -> Result<(), Failed> {
        let Some(around) = &self.surroundings else { return Ok(()) };
        if let Some(socket) = around.spaces.unshare(processes)? {
            listener(socket).map_err(Failed::at(Step::Listen))?;
        }
        if processes {
            Spaces::first_process(keep)?;
        }
        mounts::make(&around.view, &around.devices, around.terminal.as_deref(), processes)
    }

    /// Enters the cage for good. Runs in a forked child; `parent` is the pid whose death kills it.
    pub(super) fn enter(&self, parent: Option<i32>) -> Result<(), Failed> {
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
            rustix::process::setrlimit(resource, Rlimit { current: limit, maximum: limit })
                .map_err(Failed::at(Step::Limits))?;
        }
        close_on_exec_from_3().map_err(Failed::at(Step::Limits))?;
        if self.off {
            if self.identity.is_some() {
                drop_privileges(self.identity, true).map_err(Failed::at(Step::User))?;
            }
            return parent.map_or(Ok(()), die_with);
        }
        // While we still may look at what is shown.
        let inside = match &self.landlock {
            Landlock::Inside(rules) => {
                Some(ruleset(rules).map_err(|_| Failed::at(Step::Landlock)(rustix::io::Errno::INVAL))?)
            }
            Landlock::None | Landlock::Ready(_) => None,
        };
        if self.privileged || self.identity.is_some() || self.has_spaces() {
            drop_privileges(self.identity, self.reads_all).map_err(Failed::at(Step::User))?;
        }
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        // After the ids: changing them clears it.
        match parent {
            Some(parent) => die_with(parent)?,
            // The first process of a pid namespace, which cannot see its parent.
            None => die_with_parent()?,
        }
        rustix::thread::set_no_new_privs(true).map_err(Failed::at(Step::Seccomp))?;
        let ruleset = match &self.landlock {
            Landlock::Ready(fd) => Some(fd),
            Landlock::None | Landlock::Inside(_) => inside.as_ref(),
        };
        if let Some(ruleset) = ruleset {
            restrict_self(ruleset).map_err(Failed::at(Step::Landlock))?;
        }
        for filter in &self.filters {
            seccompiler::apply_filter(filter)
                .map_err(|e| match e {
                    seccompiler::Error::Seccomp(e) | seccompiler::Error::Prctl(e) => e,
                    other => io::Error::other(other.to_string()),
                })
                .map_err(Failed::at(Step::Seccomp))?;
        }
        Ok(())
    }
}

fn die_with_parent() -> Result<(), Failed> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failed::at(Step::Parent))
}

fn die_with(parent: i32) -> Result<(), Failed> {
    die_with_parent()?;
    if rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get()) != parent {
        return Err(Failed::at(Step::Parent)(rustix::io::Errno::SRCH));
    }
    Ok(())
}

/// Our terminal, which an engine has too: where it can be found by name, programs know that it is one.
fn terminal() -> Option<PathBuf> {
    let links = (0..3).filter_map(|n| std::fs::read_link(format!("/proc/self/fd/{n}")).ok());
    links.into_iter().find(|p| p.starts_with("/dev/pts") && p.parent() != Some(Path::new("/dev")))
}

/// The rule set, every right of it required: the crate must not leave out what this kernel should know.
fn ruleset(rules: &Rules) -> Result<OwnedFd, CageError> {
    let kernel = rules.kernel;
    let abi = match kernel {
        ..=3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        _ => ABI::V7,
    };
    let fail = |e: &dyn std::fmt::Display| CageError::NotInForce { lacks: format!("Landlock: {e}") };
    let all = AccessFs::from_all(abi);
    let mut made = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)
        .map_err(|e| fail(&e))?;
    if kernel >= 6 {
        made = made.scope(Scope::from_all(abi)).map_err(|e| fail(&e))?;
    }
    let mut made = made.create().map_err(|e| fail(&e))?;
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir;
    let device = if kernel >= 5 { device | AccessFs::IoctlDev } else { device };
    // Below a writable folder a component may be a link that an engine made; and the rule above covers it.
    let outermost = |p: &&PathBuf| !p.ancestors().skip(1).any(|a| rules.write.iter().any(|w| w == a));
    let parts: Vec<PathBuf> = rules.write.iter().flat_map(|w| around(w, &rules.protect)).collect();
    let whole = |p: &&PathBuf| !p.is_file() && !rules.protect.iter().any(|held| held.starts_with(p));
    let write = rules.write.iter().filter(outermost).filter(whole).map(|p| (p.as_path(), all, true));
    // Files too: named by the person, or beside what is protected.
    let write = write.chain(parts.iter().map(|p| (p.as_path(), all, false)));
    let list = rules.list.iter().map(|p| (p.as_path(), AccessFs::ReadDir.into(), false));
    let read = rules.read.iter().map(|p| (p.as_path(), read, false));
    let devices = rules.devices.iter().map(|p| (p.as_path(), device, false));
    let own = rules.processes.then_some((Path::new("/proc"), AccessFs::WriteFile.into(), true));
    for (path, access, needed) in read.chain(list).chain(devices).chain(own).chain(write) {
        use rustix::fs::{Mode, OFlags, fstat, open};
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = if needed { flags | OFlags::DIRECTORY } else { flags };
        match open(path, flags, Mode::empty()) {
            Ok(fd) => {
                let meta = Meta::of(&fstat(&fd).map_err(|e| fail(&e))?);
                let access = if meta.is_dir() { access } else { access & AccessFs::from_file(abi) };
                if !meta.is_symlink() {
                    made = made.add_rule(PathBeneath::new(fd, access)).map_err(|e| fail(&e))?;
                }
            }
            // Gone since the list was made: then it is not shown.
            Err(_) if !needed => {}
            Err(e) => return Err(fail(&format_args!("{}: {e}", shown(path)))),
        }
    }
    let fd: Option<OwnedFd> = made.into();
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
/// `CAP_DAC_READ_SEARCH` across exec when `reads_all` and it was held; nothing can come back.
fn drop_privileges(identity: Option<Identity>, reads_all: bool) -> io::Result<()> {
    let before = rustix::thread::capabilities(None)?;
    let kept = match identity {
        Some(_) if reads_all => before.permitted & CapabilitySet::DAC_READ_SEARCH,
        Some(_) | None => CapabilitySet::empty(),
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
