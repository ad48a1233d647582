//! Objects from a place we do not trust into a repository we do: one pack through a pipe, unpacked in a
//! quarantine by git's own strict readers, moved in only when everything hangs together. The receiving side
//! never opens a file of the sending side (a FIFO there would hang it, an alternates line would lend it
//! other repositories' objects).

use super::{Call, Error, Place, Repo};
use crate::model::Oid;
use crate::os::{files, remove};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// Below this many objects a pack is unpacked into loose objects (git's own `transfer.unpackLimit`).
const UNPACK_LIMIT: u32 = 100;
/// Objects of one pack. An object costs memory on our side before anything of it can be judged.
const MOST_OBJECTS: u32 = 2_000_000;
/// What a child says that is kept.
const TALK_LIMIT: usize = 4096;
/// Largest piece of memory that the receiving git may ask for at once: a delta may claim any size.
const ALLOC_LIMIT: &str = "1g";

/// What a transfer may cost. Beyond it nothing is imported.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of the pack.
    pub pack: u64,
    /// Bytes of all its objects, unpacked.
    pub contents: u64,
    /// Wall clock of the transfer, and again of the checks.
    pub time: Duration,
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// More bytes than allowed.
    #[error("the pack is larger than {0} bytes")]
    TooLarge(u64),
    /// Took too long.
    #[error("the import took longer than {} s", .0.as_secs())]
    TooSlow(Duration),
    /// More objects, or more bytes in them, than allowed.
    #[error("the objects hold more than is allowed: {0}")]
    TooMuch(String),
    /// What came is not a pack.
    #[error("what came through the pipe is not a pack")]
    NotAPack,
    /// An object is broken, or something that must be there is not.
    #[error("the objects were refused")]
    Refused(#[source] Error),
    /// A file operation of ours failed.
    #[error("the quarantine could not be used")]
    Io(#[from] std::io::Error),
    /// git could not be asked.
    #[error(transparent)]
    Git(#[from] Error),
}

impl From<TransferError> for crate::model::Failure {
    fn from(e: TransferError) -> Self {
        Self::fatal("the run's objects were not imported").because(e)
    }
}

/// An object directory that is not part of the repository yet. Dropped without [`Quarantine::release`], it
/// is deleted; a crash leaves a `tmp_objdir-*` folder, which git's own `prune` takes.
#[derive(Debug)]
pub struct Quarantine<'r> {
    repo: &'r Repo,
    dir: PathBuf,
}

impl<'r> Quarantine<'r> {
    /// Makes an empty quarantine in `objects/`.
    pub fn new(repo: &'r Repo, label: &str) -> Result<Self, TransferError> {
        let dir = repo.common_dir().join("objects").join(format!("tmp_objdir-agent-{label}"));
        if files::lstat(&dir)?.is_some() {
            remove_below(&dir)?;
        }
        files::create_dir(&dir, 0o700)?;
        files::create_dir(&dir.join("pack"), 0o777)?;
        Ok(Self { repo, dir })
    }

    fn place(&self) -> Place {
        Place {
            objects: Some(self.dir.clone()),
            alternates: Some(self.repo.common_dir().join("objects")),
            git_dir: Some(self.repo.git_dir().to_owned()),
            ..Place::default()
        }
    }

    /// Takes the pack that `sender` (a `pack-objects --stdout`) writes, within bounds.
    pub fn receive(&self, sender: Call, input: &[u8], bounds: Bounds) -> Result<(), TransferError> {
        let until = Until { at: Instant::now() + bounds.time, whole: bounds.time };
        let mut sender = Ended::start(sender, Stdio::piped())?;
        sender.stdin().write_all(input)?;
        drop(sender.child.stdin.take());
        let mut from = sender.child.stdout.take().expect("piped");
        let mut header = Vec::with_capacity(12);
        while header.len() < 12 {
            let mut rest = vec![0; 12 - header.len()];
            wait(Some(&from), None, &mut [&mut sender], until)?;
            match from.read(&mut rest)? {
                0 => {
                    sender.wait("pack-objects", until)?;
                    return Err(TransferError::NotAPack);
                }
                n => header.extend_from_slice(&rest[..n]),
            }
        }
        // gitformat-pack(5): "PACK", version, number of objects.
        if &header[..4] != b"PACK" {
            return Err(TransferError::NotAPack);
        }
        let count = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        if count > MOST_OBJECTS {
            return Err(TransferError::TooMuch(format!("{count} objects")));
        }
        let mut receiver = Ended::start(self.receiver(count, bounds), Stdio::null())?;
        let to = receiver.child.stdin.take().expect("piped");
        rustix::io::ioctl_fionbio(&to, true).map_err(std::io::Error::from)?;
        pump(from, to, header, &mut [&mut sender, &mut receiver], bounds.pack, until)?;
        receiver.wait("unpack", until)?;
        sender.wait("pack-objects", until)?;
        self.weigh(bounds)
    }

    fn receiver(&self, count: u32, bounds: Bounds) -> Call {
        // Large blobs go by in pieces instead of through memory.
        let settings = &["core.bigFileThreshold=64m"];
        let call = if count < UNPACK_LIMIT {
            Call::with_settings("unpack-objects", &self.place(), settings).args(["-q", "--strict"])
        } else {
            let call = Call::with_settings("index-pack", &self.place(), settings);
            call.args(["--stdin", "--fix-thin", "--strict"])
        };
        call.env("GIT_ALLOC_LIMIT", ALLOC_LIMIT).arg(format!("--max-input-size={}", bounds.pack))
    }

    /// A pack of 3 MB may hold 3 GiB: what counts is what came out.
    fn weigh(&self, bounds: Bounds) -> Result<(), TransferError> {
        let alone = Place { alternates: None, ..self.place() };
        let sizes = Call::new("cat-file", &alone)
            .args(["--batch-all-objects", "--unordered", "--batch-check=%(objectsize)"])
            .within(bounds.time)
            .output()
            .map_err(TransferError::Refused)?;
        let mut total = 0_u64;
        for line in sizes.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            let size = std::str::from_utf8(line).ok().and_then(|l| l.parse::<u64>().ok());
            total = total.saturating_add(size.unwrap_or(u64::MAX));
        }
        if total > bounds.contents {
            return Err(TransferError::TooMuch(format!("{total} bytes, not {}", bounds.contents)));
        }
        Ok(())
    }

    /// Checks that everything reachable from `tips` is there, what `known` reaches taken for granted.
    pub fn connected(&self, tips: &[&Oid], known: &[&Oid], time: Duration) -> Result<(), TransferError> {
        let call = Call::new("rev-list", &self.place()).args(["--objects", "--quiet"]).within(time);
        let call =
            call.args(tips.iter().map(|t| t.as_str())).arg("--not").args(known.iter().map(|k| k.as_str()));
        call.output().map(drop).map_err(TransferError::Refused)
    }

    /// Moves the objects into the repository.
    pub fn release(self) -> Result<(), TransferError> {
        let objects = self.repo.common_dir().join("objects");
        let mut packs = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            let to = objects.join(entry.file_name());
            if !files::lstat(&to)?.is_some_and(|m| m.is_dir()) {
                // Another process may make the same folder at this moment.
                if let Err(e) = files::create_dir(&to, 0o777)
                    && e.kind() != std::io::ErrorKind::AlreadyExists
                {
                    return Err(e.into());
                }
            }
            for file in std::fs::read_dir(entry.path())? {
                let file = file?;
                let pair = (file.path(), to.join(file.file_name()));
                if entry.file_name() == "pack" { packs.push(pair) } else { move_in(&pair.0, &pair.1)? }
            }
        }
        // A pack exists for others from the moment its .idx does.
        packs.sort_by_key(|(from, _)| from.extension().is_some_and(|e| e == "idx"));
        for (from, to) in packs {
            move_in(&from, &to)?;
        }
        Ok(())
    }
}

/// Content-addressed: if it is already there, it is the same.
fn move_in(from: &Path, to: &Path) -> std::io::Result<()> {
    match files::rename_noreplace(from, to) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn remove_below(dir: &Path) -> std::io::Result<()> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Ok(()) };
    remove::tree(files::open_dir_nofollow(parent)?.as_fd(), name)
}

impl Drop for Quarantine<'_> {
    fn drop(&mut self) {
        let _ = remove_below(&self.dir);
    }
}

/// When everything must be done.
#[derive(Debug, Clone, Copy)]
struct Until {
    at: Instant,
    whole: Duration,
}

/// A child that does not outlive the function that started it.
struct Ended {
    child: Child,
    stderr: Option<ChildStderr>,
    said: Vec<u8>,
}

impl Ended {
    fn start(call: Call, stdout: Stdio) -> Result<Self, Error> {
        let mut command = call.into_command();
        command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Error::NoGit)?;
        let stderr = child.stderr.take();
        Ok(Self { child, stderr, said: Vec::new() })
    }

    fn stdin(&mut self) -> &mut ChildStdin {
        self.child.stdin.as_mut().expect("piped")
    }

    /// Reads what it says until it has nothing more to say, and takes its status.
    fn wait(&mut self, verb: &str, until: Until) -> Result<(), TransferError> {
        while self.stderr.is_some() {
            wait(None, None, &mut [self], until)?;
        }
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&self.said).into_owned();
        Err(TransferError::Refused(Error::Failed { verb: verb.into(), status: status.code(), stderr }))
    }

    fn hear(&mut self) -> std::io::Result<()> {
        let mut buffer = [0; 4096];
        if let Some(pipe) = &mut self.stderr {
            match pipe.read(&mut buffer)? {
                0 => self.stderr = None,
                n => self.said.extend_from_slice(&buffer[..n.min(TALK_LIMIT - self.said.len())]),
            }
        }
        Ok(())
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        super::call::end(&mut self.child);
    }
}

/// Waits until `from` can be read or `to` written (or a child says something, which is taken in: a child
/// whose warnings nobody reads would wait for us while we wait for it).
fn wait(
    from: Option<&ChildStdout>,
    to: Option<&ChildStdin>,
    children: &mut [&mut Ended],
    until: Until,
) -> Result<(), TransferError> {
    loop {
        let late = TransferError::TooSlow(until.whole);
        let left = until.at.checked_duration_since(Instant::now()).ok_or(late)?;
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let mut fds = Vec::with_capacity(4);
        fds.extend(from.map(|f| PollFd::new(f, PollFlags::IN)));
        fds.extend(to.map(|t| PollFd::new(t, PollFlags::OUT)));
        let ours = fds.len();
        let talking: Vec<usize> = (0..children.len()).filter(|i| children[*i].stderr.is_some()).collect();
        for i in &talking {
            if let Some(pipe) = &children[*i].stderr {
                fds.push(PollFd::new(pipe, PollFlags::IN));
            }
        }
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(std::io::Error::from(e).into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut heard = false;
        for (i, _) in talking.iter().zip(&ready[ours..]).filter(|(_, ready)| **ready) {
            children[*i].hear()?;
            heard = true;
        }
        if ready[..ours].contains(&true) || ours == 0 && heard {
            return Ok(());
        }
    }
}

/// Copies from one pipe to the other, `most` bytes and no more. A receiver that reads no more says why by
/// its status.
fn pump(
    mut from: ChildStdout,
    mut to: ChildStdin,
    header: Vec<u8>,
    children: &mut [&mut Ended],
    most: u64,
    until: Until,
) -> Result<(), TransferError> {
    let mut buffer = vec![0; 1 << 16];
    let (mut start, mut end) = (0, header.len());
    buffer[..end].copy_from_slice(&header);
    let mut sent = end as u64;
    loop {
        if start < end {
            wait(None, Some(&to), children, until)?;
            match to.write(&buffer[start..end]) {
                Ok(n) => start += n,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => return Ok(()),
            }
            continue;
        }
        wait(Some(&from), None, children, until)?;
        (start, end) = (0, from.read(&mut buffer)?);
        if end == 0 {
            return Ok(());
        }
        sent += end as u64;
        if sent > most {
            return Err(TransferError::TooLarge(most));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn sh(dir: &Path, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(dir).env("GIT_CONFIG_GLOBAL", "/dev/null");
        for name in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{name}_NAME"), "n").env(format!("GIT_{name}_EMAIL"), "e");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A sender that is no git at all: what comes through the pipe is whatever the cage wants.
    fn sender(repo: &Repo, script: &str) -> Call {
        let alias = format!("alias.hostile=!f() {{ cat >/dev/null; {script}; }}; f");
        let call = Call::with_settings("hostile", repo.place(), &[&alias]);
        let adapted = call.adapt(|c| {
            c.process_group(0);
            Ok::<_, ()>(())
        });
        adapted.unwrap()
    }

    #[test]
    fn a_hostile_sender_brings_nothing_and_does_not_hold_us_up() {
        let t = tempfile::tempdir().unwrap();
        let (main, evil) = (t.path().join("main"), t.path().join("evil"));
        sh(t.path(), "git init -q main; git init -q evil; cd main; git commit -q --allow-empty -m first");
        sh(
            &evil,
            "echo good >f; git add f; git commit -qm good; git rev-parse HEAD | git pack-objects --revs --stdout -q >../good; \
             head -c 20000000 /dev/zero >bomb; git add bomb; git commit -qm bomb; \
             git rev-parse HEAD | git pack-objects --revs --stdout -q >../bomb; \
             mkdir d; cd d; for i in $(seq 200); do echo $i >$i; done; git add .; git commit -qm many; \
             git rev-parse HEAD^{tree}:d | git pack-objects --revs --stdout -q >../../many; \
             cd ../..; head -c 60 good >cut; (printf 'PACK\\0\\0\\0\\2\\377\\377\\377\\377'; cat good) >counts",
        );
        let repo = Repo::discover(&main).unwrap();
        let objects = || sh(&main, "find .git/objects -type f | sort");
        let before = objects();
        let bounds = Bounds { pack: 1 << 20, contents: 10 << 20, time: Duration::from_secs(25) };
        let at = |name: &str| format!("cat {}", t.path().join(name).display());
        let receive = |script: &str, bounds: Bounds| {
            let started = Instant::now();
            let outcome =
                Quarantine::new(&repo, "test").and_then(|q| q.receive(sender(&repo, script), b"x\n", bounds));
            assert!(started.elapsed() < Duration::from_secs(30), "{script}");
            outcome
        };
        type Is = fn(&TransferError) -> bool;
        let cases: [(String, Is); 9] = [
            (at("bomb"), |e| matches!(e, TransferError::TooMuch(_))),
            (at("counts"), |e| matches!(e, TransferError::TooMuch(_))),
            (at("cut"), |e| matches!(e, TransferError::Refused(_))),
            ("echo this is no pack at all".into(), |e| matches!(e, TransferError::NotAPack)),
            ("true".into(), |e| matches!(e, TransferError::NotAPack)),
            ("exit 3".into(), |e| matches!(e, TransferError::Refused(_))),
            ("sleep 100".into(), |e| matches!(e, TransferError::TooSlow(_))),
            ("yes >&2".into(), |e| matches!(e, TransferError::TooSlow(_))),
            (format!("head -c 20 {}; cat /dev/zero", t.path().join("many").display()), |e| {
                matches!(e, TransferError::Refused(_) | TransferError::TooLarge(_))
            }),
        ];
        for (script, is) in cases {
            let waits = script.starts_with("sleep") || script.starts_with("yes");
            let time = if waits { Duration::from_secs(1) } else { bounds.time };
            let e = receive(&script, Bounds { time, ..bounds }).expect_err(&script);
            assert!(is(&e), "{script}: {e:?}");
            assert_eq!(objects(), before, "{script}");
        }
        let small = Bounds { pack: 100, ..bounds };
        assert!(receive(&at("many"), small).is_err());
        // What keeps within the bounds comes in, however much it has to say.
        for name in ["good", "many"] {
            receive(&format!("yes | head -c 300000 >&2; {}", at(name)), bounds).unwrap();
        }
        assert_eq!(objects(), before, "not released");
    }
}
