//! Canaries: what the cage must deny, tried from inside of it.

use super::confine::Confinement;
use super::step::Failed;
use super::{CageError, CageSpec};
use crate::model::Canary;
use crate::os::process::{exit_now, fork, wait};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The name of the attempt to reach a socket outside.
const SOCKET: &str = "socket";

pub(super) fn canaries(
    spec: &CageSpec,
    cage: &Confinement,
    targets: &[(&str, PathBuf)],
) -> Result<Vec<Canary>, CageError> {
    // An abstract socket: the only kind that no view of files hides.
    let outside = if spec.scoped() {
        Some(listen().map_err(CageError::launch("make a socket for the canaries"))?)
    } else {
        None
    };
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| CageError::launch("pipe")(e.into()))?;
    let parent = std::process::id() as i32;
    let Some(child) = fork().map_err(CageError::launch("fork"))? else {
        let mut write = File::from(write);
        let keep = [std::os::fd::AsRawFd::as_raw_fd(&write)];
        // With a pid namespace its first process dies with the one that waits for it.
        let parent = (!cage.has_spaces()).then_some(parent);
        let entered = cage.surround(true, &keep, |_| Ok(())).and_then(|()| cage.enter(parent));
        let answers: Vec<u8> = match entered {
            Err(failed) => failed.pack().to_ne_bytes().to_vec(),
            Ok(()) => {
                let files = targets.iter().map(|(_, path)| is_denied(path));
                let sockets = outside.iter().map(|(_, name)| UnixStream::connect_addr(name).is_err());
                files.chain(sockets).map(|held| if held { b'h' } else { b'o' }).collect()
            }
        };
        let _ = write.write_all(&answers);
        exit_now(0)
    };
    drop(write);
    let mut answers = Vec::new();
    let heard = File::from(read).read_to_end(&mut answers);
    let _ = wait(child);
    // One answer is one of two letters, which no step that failed begins with.
    if heard.is_err()
        || answers.len() != targets.len() + usize::from(outside.is_some())
        || answers.iter().any(|a| !b"ho".contains(a))
    {
        let failed = answers.try_into().map(|number| Failed::unpack(i32::from_ne_bytes(number)));
        let lacks = failed.map_or("the confinement could not be entered".into(), |f| f.to_string());
        return Err(CageError::NotInForce { lacks });
    }
    let canaries: Vec<_> = targets
        .iter()
        .map(|(name, _)| *name)
        .chain(outside.is_some().then_some(SOCKET))
        .zip(answers)
        .map(|(name, answer)| Canary { name: name.to_owned(), held: answer == b'h' })
        .collect();
    match canaries.iter().find(|c| !c.held) {
        Some(open) => {
            Err(CageError::NotInForce { lacks: format!("the canary {} was not denied", open.name) })
        }
        None => Ok(canaries),
    }
}

fn listen() -> io::Result<(UnixListener, SocketAddr)> {
    let mut chance = [0; 16];
    crate::os::random(&mut chance)?;
    let name = format!("git-agent-canary-{:032x}", u128::from_ne_bytes(chance));
    let address = SocketAddr::from_abstract_name(name)?;
    Ok((UnixListener::bind_addr(&address)?, address))
}

/// Tries to open for writing; a file that the attempt made is removed again.
fn is_denied(path: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::Errno;
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let refused = |e| matches!(e, Errno::ACCESS | Errno::PERM | Errno::ROFS);
    match open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => match open(path, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR) {
            Ok(_) => {
                let _ = rustix::fs::unlink(path);
                false
            }
            // Its folder is not shown.
            Err(e) => refused(e) || e == Errno::NOENT,
        },
        Ok(_) => false,
        Err(e) => refused(e),
    }
}
