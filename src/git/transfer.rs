//! Objects from a place we do not trust into a repository we do: one pack through a pipe, unpacked in a
//! quarantine by git's own strict readers, moved in only when everything hangs together. The receiving side
//! never opens a file of the sending side (a FIFO there would hang it, an alternates line would lend it
//! other repositories' objects).

use super::{Call, Error, Place, Repo};
use crate::model::Oid;
use crate::os::{files, remove};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Below this many objects a pack is unpacked into loose objects (git's own `transfer.unpackLimit`).
const UNPACK_LIMIT: u32 = 100;

/// What a transfer may cost. Beyond it nothing is imported.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of the pack.
    pub pack: u64,
    /// Wall clock for each step.
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
            alternates: Some(self.repo.common_dir().join("objects").into_os_string()),
            git_dir: Some(self.repo.git_dir().to_owned()),
            ..Place::default()
        }
    }

    /// Takes the pack that `sender` (a `pack-objects --stdout`) writes, within bounds.
    pub fn receive(&self, sender: Call, input: &[u8], bounds: Bounds) -> Result<(), TransferError> {
        let until = Instant::now() + bounds.time;
        let mut sender = Ended(sender.piped()?);
        let mut stdin = sender.0.stdin.take().expect("piped");
        stdin.write_all(input)?;
        drop(stdin);
        let mut from = sender.0.stdout.take().expect("piped");
        let mut header = [0; 12];
        read_full(&mut from, &mut header, until, bounds.time)?;
        // gitformat-pack(5): "PACK", version, number of objects.
        if &header[..4] != b"PACK" {
            return Err(TransferError::NotAPack);
        }
        let count = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let receiver = if count < UNPACK_LIMIT {
            Call::new("unpack-objects", &self.place()).args(["-q", "--strict"])
        } else {
            Call::new("index-pack", &self.place()).args(["--stdin", "--fix-thin", "--strict"])
        };
        let receiver = receiver.arg(format!("--max-input-size={}", bounds.pack));
        let mut receiver = Ended(receiver.piped()?);
        let mut to = receiver.0.stdin.take().expect("piped");
        let mut sent = header.len() as u64;
        let mut broken = to.write_all(&header).is_err();
        let mut buffer = vec![0; 1 << 16];
        while !broken {
            let n = read_some(&mut from, &mut buffer, until, bounds.time)?;
            if n == 0 {
                break;
            }
            sent += n as u64;
            if sent > bounds.pack {
                return Err(TransferError::TooLarge(bounds.pack));
            }
            broken = to.write_all(&buffer[..n]).is_err();
        }
        drop(to);
        drop(from);
        receiver.wait("unpack", until, bounds.time)?;
        sender.wait("pack-objects", until, bounds.time)
    }

    /// Checks that everything reachable from `tips` is there, what `known` reaches taken for granted.
    pub fn connected(&self, tips: &[&Oid], known: &[&Oid]) -> Result<(), TransferError> {
        let call = Call::new("rev-list", &self.place()).args(["--objects", "--quiet"]);
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

/// A child that does not outlive the function that started it.
struct Ended(Child);

impl Ended {
    fn wait(&mut self, verb: &str, until: Instant, whole: Duration) -> Result<(), TransferError> {
        let mut stderr = Vec::new();
        if let Some(mut pipe) = self.0.stderr.take() {
            let mut buffer = vec![0; 4096];
            loop {
                let n = read_some(&mut pipe, &mut buffer, until, whole)?;
                if n == 0 {
                    break;
                }
                if stderr.len() < 4096 {
                    stderr.extend_from_slice(&buffer[..n]);
                }
            }
        }
        let status = self.0.wait()?;
        if status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        Err(TransferError::Refused(Error::Failed { verb: verb.into(), status: status.code(), stderr }))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One `read`, but no longer than `until`.
fn read_some<R: Read + AsFd>(
    from: &mut R,
    buffer: &mut [u8],
    until: Instant,
    whole: Duration,
) -> Result<usize, TransferError> {
    let left = until.checked_duration_since(Instant::now()).ok_or(TransferError::TooSlow(whole))?;
    let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    let ready = poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&left)).map_err(std::io::Error::from)?;
    if ready == 0 {
        return Err(TransferError::TooSlow(whole));
    }
    Ok(from.read(buffer)?)
}

fn read_full<R: Read + AsFd>(
    from: &mut R,
    mut buffer: &mut [u8],
    until: Instant,
    whole: Duration,
) -> Result<(), TransferError> {
    while !buffer.is_empty() {
        let n = read_some(from, buffer, until, whole)?;
        if n == 0 {
            return Err(TransferError::NotAPack);
        }
        buffer = &mut buffer[n..];
    }
    Ok(())
}

impl Call {
    /// Starts git with all three streams piped, for a caller that owns them.
    fn piped(self) -> Result<Child, Error> {
        let mut command = self.into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(Error::NoGit)
    }
}
