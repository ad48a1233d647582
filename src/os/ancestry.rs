//! Who is above us and who is left of a run: `/proc`, read and never believed beyond what a user could forge.

use super::process::{self, RUN_UIDS, terminal};
use crate::model::person::Ancestor;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Processes above us that are looked at. Deeper nesting than this is no person's doing.
const MOST_ANCESTORS: usize = 128;
/// Words of a command line that are looked at, and bytes.
const MOST_WORDS: usize = 16;
/// How long leftovers may take to end by themselves.
const PATIENCE: Duration = Duration::from_millis(500);

/// The processes above us, nearest first. Ends at what the kernel does not show.
pub fn ancestors() -> Vec<Ancestor> {
    let mut found: Vec<Ancestor> = Vec::new();
    let mut pid = parent("self").unwrap_or(0);
    while pid > 0 && found.len() < MOST_ANCESTORS && found.iter().all(|a| a.pid != pid) {
        let Ok(Some(start)) = process::start_time(pid) else { break };
        let Ok(comm) = std::fs::read(format!("/proc/{pid}/comm")) else { break };
        found.push(Ancestor {
            pid,
            start,
            comm: String::from_utf8_lossy(comm.trim_ascii_end()).into_owned(),
            exe: std::fs::read_link(format!("/proc/{pid}/exe"))
                .ok()
                .map(|p| p.to_string_lossy().into_owned()),
            args: words(pid),
        });
        let Some(above) = parent(&pid.to_string()) else { break };
        pid = above;
    }
    found
}

/// Whether standard input and standard error are this session's controlling terminal, and it can be opened.
pub fn has_controlling_terminal() -> bool {
    // tcgetsid fails on every terminal but the controlling one.
    let ours =
        |fd: BorrowedFd<'_>| terminal::session_of(fd).is_ok_and(|session| session == terminal::session());
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty").is_ok();
    let (input, error) = (std::io::stdin(), std::io::stderr());
    opened && ours(input.as_fd()) && ours(error.as_fd())
}

/// A process that belongs to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start: u64,
}

/// One process that could be left of some run.
#[derive(Debug)]
struct Candidate {
    process: Process,
    uids: Vec<u32>,
    mark: Option<Vec<u8>>,
    /// Working folder and root, as far as the kernel shows them.
    at: [Option<PathBuf>; 2],
}

/// The processes of this machine that could be left of a run, read once.
#[derive(Debug)]
pub struct Processes(Vec<Candidate>);

impl Processes {
    /// Reads `/proc`: everything with a run's mark, and everything of a user that only runs have.
    pub fn look() -> Self {
        let mut all = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
            let proc = entry.path();
            if pid == std::process::id().cast_signed() {
                continue;
            }
            let mark = mark(&proc);
            let uids = uids(&proc);
            let alive = || matches!(process::start_time(pid), Ok(Some(_))) && !is_zombie(pid);
            if mark.is_none() && !uids.iter().any(|uid| RUN_UIDS.contains(uid)) || !alive() {
                continue;
            }
            let Ok(Some(start)) = process::start_time(pid) else { continue };
            let at = ["cwd", "root"].map(|name| std::fs::read_link(proc.join(name)).ok());
            all.push(Candidate { process: Process { pid, start }, uids, mark, at });
        }
        Self(all)
    }

    /// What is left of a run whose supervisor is gone. `run` is its id, `dir` its folder, `uid` the user that
    /// the engine had for itself.
    ///
    /// With a user of its own: the processes of that user, unless they carry another run's mark, because the
    /// number may have been given out again. Without: those of our user that carry the run's mark *and* stand
    /// in its folder; a person's shell that merely stands there is not the run's.
    pub fn of(&self, run: &str, dir: &Path, uid: Option<u32>) -> Vec<Process> {
        let own = uid.filter(|uid| RUN_UIDS.contains(uid));
        let user = own.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let of_user: Vec<&Candidate> = self.0.iter().filter(|c| c.uids.contains(&user)).collect();
        let is_marked = |c: &Candidate| c.mark.as_deref() == Some(run.as_bytes());
        let others = of_user.iter().any(|c| c.mark.is_some() && !is_marked(c));
        let belongs = |c: &Candidate| {
            let inside = c.at.iter().flatten().any(|p| p.starts_with(dir));
            match (own, &c.mark) {
                (None, _) => is_marked(c) && inside,
                (Some(_), Some(_)) => is_marked(c),
                (Some(_), None) => inside || !others,
            }
        };
        of_user.into_iter().filter(|c| belongs(c)).map(|c| c.process).collect()
    }
}

/// Ends what is left of a run: politely, then not. `false` when something is still there.
pub fn end_leftovers(run: &str, dir: &Path, uid: Option<u32>) -> io::Result<bool> {
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGKILL, libc::SIGKILL] {
        let left = Processes::look().of(run, dir, uid);
        if left.is_empty() {
            return Ok(true);
        }
        for process in &left {
            process::signal_exact(process.pid, process.start, signal)?;
        }
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && left.iter().any(|p| is_alive(*p)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(Processes::look().of(run, dir, uid).is_empty())
}

/// A process's four user ids. The owner of its folder in `/proc` may be root instead.
fn uids(proc: &Path) -> Vec<u32> {
    let status = std::fs::read(proc.join("status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let ids = status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap_or_default();
    ids.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Neither gone nor waiting to be reaped.
fn is_alive(process: Process) -> bool {
    process::start_time(process.pid).is_ok_and(|s| s == Some(process.start)) && !is_zombie(process.pid)
}

fn is_zombie(pid: i32) -> bool {
    let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { return true };
    matches!(after_name(&stat).and_then(|rest| rest.first()), Some(b'Z' | b'X'))
}

/// The value of `GIT_AGENT_RUN` in a process's environment as it was at exec.
fn mark(proc: &Path) -> Option<Vec<u8>> {
    let environ = std::fs::read(proc.join("environ")).ok()?;
    let found = environ.split(|b| *b == 0).find_map(|v| v.strip_prefix(b"GIT_AGENT_RUN="));
    found.map(<[u8]>::to_vec)
}

fn words(pid: i32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|b| *b == 0).filter(|w| !w.is_empty()).take(MOST_WORDS);
    words.map(|w| String::from_utf8_lossy(&w[..w.len().min(4096)]).into_owned()).collect()
}

fn parent(pid: &str) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let rest = std::str::from_utf8(after_name(&stat)?).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What follows the program's name, which may hold spaces and parentheses: state, parent, and so on.
fn after_name(stat: &[u8]) -> Option<&[u8]> {
    let at = stat.iter().rposition(|b| *b == b')')?;
    stat.get(at + 2..)
}

/// Mount points at or below a folder, as this process sees them.
pub fn mounts_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let info = std::fs::read("/proc/self/mountinfo")?;
    let mut found = Vec::new();
    for line in info.split(|b| *b == b'\n') {
        let Some(point) = line.split(|b| *b == b' ').nth(4) else { continue };
        let point = unescape(point);
        let point = Path::new(OsStr::from_bytes(&point));
        if point.starts_with(dir) {
            found.push(PathBuf::from(std::ffi::OsString::from_vec(point.as_os_str().as_bytes().to_vec())));
        }
    }
    Ok(found)
}

/// `\040` and the like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut i = 0;
    while i < field.len() {
        let code = field.get(i + 1..i + 4).and_then(|d| std::str::from_utf8(d).ok());
        match code.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| field[i] == b'\\') {
            Some(byte) => {
                out.push(byte);
                i += 4;
            }
            None => {
                out.push(field[i]);
                i += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_ancestors_lead_up() {
        let found = ancestors();
        assert!(!found.is_empty());
        assert_eq!(found[0].pid, rustix::process::getppid().unwrap().as_raw_nonzero().get());
        assert!(found.iter().all(|a| a.start > 0 || a.pid == 1));
    }

    #[test]
    fn mount_points_are_unescaped() {
        assert_eq!(unescape(b"/a\\040b\\134c"), b"/a b\\c");
        assert!(mounts_below(Path::new("/")).unwrap().contains(&"/".into()));
        assert!(mounts_below(Path::new("/no-such-folder")).unwrap().is_empty());
    }
}
