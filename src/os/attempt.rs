//! Attempts to get out of a cage, made by the program that is held in it: what `git agent doctor` proves a cage
//! with. Each is one small deed against a target that doctor made for it; whether it succeeded is seen from
//! outside wherever that is possible. The same code runs without a cage first, where the deed must succeed.

mod files;
mod ipc;
mod process;
mod stage;

pub use stage::{Bystander, Print, Terminal, World, print};

use super::process::{exit_now, fork, wait};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::Path;

/// The word that makes this program the one that attempts; no command of anybody's.
pub const WORD: &str = "attempt-for-doctor";
/// The token that stands in what must not be read.
pub const TOKEN: &str = "git-agent-doctor-secret";
/// Seconds that one attempt may take.
const PATIENCE: u32 = 5;

/// One attempt's own account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its name.
    pub attempt: String,
    /// Whether every step of it succeeded.
    pub done: bool,
    /// What stopped it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

type Deed = fn(&World, &Path) -> io::Result<()>;

/// All attempts, in the order in which they can follow each other: what destroys comes last.
const ALL: &[(&str, Deed)] = &[
    ("edit-inside", files::edit_inside),
    ("commit-inside", files::commit_inside),
    ("write", files::write),
    ("dots", files::dots),
    ("prefix", files::prefix),
    ("link-file", files::link_file),
    ("link-folder", files::link_folder),
    ("link-dangling", files::link_dangling),
    ("truncate", files::truncate),
    ("hard-link", files::hard_link),
    ("proc-root", files::proc_root),
    ("reopen", files::reopen),
    ("tmpfile", files::tmpfile),
    ("delete", files::delete),
    ("rename", files::rename),
    ("mode", files::mode),
    ("times", files::times),
    ("secret", files::secret),
    ("host", files::host),
    ("sibling", files::sibling),
    ("descriptors", files::descriptors),
    ("environment", process::environment),
    ("git-reset", files::git_reset),
    ("git-ref", files::git_ref),
    ("git-hook", files::git_hook),
    ("git-config", files::git_config),
    ("git-objects", files::git_objects),
    ("git-commondir", files::git_commondir),
    ("environ-of", process::environ_of),
    ("trace", process::trace),
    ("namespaces", process::namespaces),
    ("privileges", process::privileges),
    ("daemon", process::daemon),
    ("socket", ipc::socket),
    ("abstract-socket", ipc::abstract_socket),
    ("shared-memory", ipc::shared_memory),
    ("keyring", ipc::keyring),
    ("vsock", ipc::vsock),
    ("mptcp", ipc::mptcp),
    ("io-uring", ipc::io_uring),
    ("loopback", ipc::loopback),
    ("terminal", ipc::terminal),
    ("type-ahead", ipc::type_ahead),
    ("type-ahead-high", ipc::type_ahead_high),
    ("pin-commondir", files::pin_commondir),
    ("pin-git", files::pin_git),
    ("signal", process::signal),
];

/// The names of all attempts.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// What the program does when it was started with [`WORD`]: `all WORLD` makes every attempt, each in a process of
/// its own, and prints one line of JSON for each; `stand` stays until its standard input ends.
pub fn main(words: &[std::ffi::OsString]) -> u8 {
    let word = |n: usize| words.get(n).and_then(|w| w.to_str()).unwrap_or_default();
    match word(0) {
        "stand" => {
            stage::stand();
            0
        }
        "all" => match serde_json::from_str::<World>(word(1)) {
            Ok(world) => {
                for (name, deed) in ALL {
                    let account = account(name, *deed, &world);
                    let line = serde_json::to_string(&account).unwrap_or_default();
                    if writeln!(io::stdout().lock(), "{line}").is_err() {
                        return 1;
                    }
                }
                0
            }
            Err(_) => 129,
        },
        _ => 129,
    }
}

/// Makes one attempt in a child, which a filter may kill, and tells how it went.
fn account(name: &str, deed: Deed, world: &World) -> Account {
    let own = world.out.join(name);
    let failed = |why: String| Account { attempt: name.to_owned(), done: false, why };
    let (read, write) = match rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) {
        Ok(pipe) => pipe,
        Err(e) => return failed(e.to_string()),
    };
    let child = match fork() {
        Ok(Some(child)) => child,
        Ok(None) => {
            process::alarm(PATIENCE);
            let said = match deed(world, &own) {
                Ok(()) => "+".to_owned(),
                Err(e) => format!("-{e}"),
            };
            let _ = std::fs::File::from(write).write_all(said.as_bytes());
            exit_now(0)
        }
        Err(e) => return failed(e.to_string()),
    };
    drop(write);
    let mut said = String::new();
    let mut read = std::fs::File::from(read);
    // A daemon that the attempt left holds no end of this pipe: it was closed on its way.
    let _ = io::Read::read_to_string(&mut read, &mut said);
    let status = wait(child).unwrap_or_default();
    match said.split_at_checked(1) {
        Some(("+", _)) => Account { attempt: name.to_owned(), done: true, why: String::new() },
        Some((_, why)) => failed(why.to_owned()),
        None if libc::WIFSIGNALED(status) => failed(format!("ended by signal {}", libc::WTERMSIG(status))),
        None => failed("no answer".to_owned()),
    }
}
