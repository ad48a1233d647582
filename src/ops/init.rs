//! Init: propose a policy from what the project's files say, and write it. `plan` reads, `execute` writes.

mod found;
mod text;

pub use found::Found;

use super::trust::{Given, Store};
use crate::git::Repo;
use crate::model::{Digest, Failure};
use crate::os::files::{self, Dir};
use crate::policy::{Difference, PATH, Policy, SCHEMA};
use crate::text::Untrusted;
use std::io;
use std::path::Path;

/// The folder of the policy.
const FOLDER: &str = ".git-agent";
/// Beside the policy, where editors look for it.
const SCHEMA_PATH: &str = ".git-agent/policy.schema.json";

/// What could be written.
#[derive(Debug)]
pub struct Plan {
    /// Why nothing is to be done: a policy is there already.
    pub there: Option<String>,
    /// What was found in the project.
    pub found: Found,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
}

/// A policy that a person agreed to.
#[derive(Debug)]
pub struct Proposal {
    /// Its text.
    pub text: String,
    /// What in it is looser than the built-in default.
    pub looser: Vec<Difference>,
}

/// Looks at the project. Touches nothing.
pub fn plan(repo: &Repo) -> Result<Plan, Failure> {
    let top = top(repo)?;
    let dir = Dir::open(top).map_err(|e| cannot("open", top, e))?;
    // A link would lead elsewhere.
    if dir.lstat_at(FOLDER.as_bytes()).is_ok_and(|m| m.is_some_and(|m| !m.is_dir())) {
        return Err(Failure::fatal(format!("'{FOLDER}' is not a folder, so no policy can be written there")));
    }
    let there = match dir.lstat_at(PATH.as_bytes()) {
        Ok(Some(_)) => Some(format!("{PATH} is there already, and stays as it is")),
        Ok(None) if tracked(repo)? => {
            return Err(Failure::fatal(format!("{PATH} is committed, and gone from the work tree"))
                .hint(format!("git restore {PATH}")));
        }
        Ok(None) => None,
        Err(e) => return Err(cannot("look at", &top.join(PATH), e)),
    };
    let found = found::look(&dir);
    let mut notes = Vec::new();
    for folder in &found.fills {
        // What a setup or a test leaves in a folder that git does not ignore would be in every diff.
        if !ignored(repo, folder)? {
            notes.push(format!(
                "'{folder}' is not ignored by git: what setup and checks leave there would be part of every \
                 diff (add '{folder}/' to .gitignore)"
            ));
        }
    }
    Ok(Plan { there, found, notes })
}

/// The policy for what the person chose of the findings.
pub fn propose(found: &Found) -> Result<Proposal, Failure> {
    let text = text::policy(found);
    let policy = Policy::parse(text.as_bytes(), PATH)?;
    Ok(Proposal { looser: policy.loosenings(Policy::built_in()), text })
}

/// What was done.
#[derive(Debug)]
pub struct Written {
    /// Digest of the policy, which is accepted on this machine.
    pub sha256: Digest,
    /// Paths that were written, relative to the top level.
    pub paths: Vec<&'static str>,
}

/// Writes a proposal. Consent comes first: killed between the two, the person has accepted a text that is
/// nowhere, and the next `init` writes it. Each file appears whole, and none takes the place of another.
pub fn execute(repo: &Repo, proposal: &Proposal, now: i64) -> Result<Written, Failure> {
    let top = top(repo)?;
    let sha256 = Digest::of(proposal.text.as_bytes());
    if !proposal.looser.is_empty() {
        Store::of(repo)?.accept(proposal.text.as_bytes(), Given::Init, now)?;
    }
    let folder = top.join(FOLDER);
    match files::create_dir(&folder, 0o755) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(cannot("create", &folder, e)),
        _ => {}
    }
    if !files::lstat(&folder).is_ok_and(|m| m.is_some_and(|m| m.is_dir())) {
        return Err(Failure::fatal(format!("'{}' is not a folder", folder.display())));
    }
    let mut paths = Vec::new();
    for (path, bytes) in [(SCHEMA_PATH, SCHEMA.as_bytes()), (PATH, proposal.text.as_bytes())] {
        if place(&top.join(path), bytes)? {
            paths.push(path);
        } else if path == PATH {
            return Err(Failure::fatal(format!("{PATH} has just appeared, and stays as it is")));
        }
    }
    Ok(Written { sha256, paths })
}

/// Writes a file whole, unless there is one. Whether it was written.
fn place(path: &Path, bytes: &[u8]) -> Result<bool, Failure> {
    if files::lstat(path).map_err(|e| cannot("look at", path, e))?.is_some() {
        return Ok(false);
    }
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    files::write_atomic(&fresh, bytes, 0o644).map_err(|e| cannot("write", &fresh, e))?;
    let placed = match files::rename_noreplace(&fresh, path) {
        // File systems without RENAME_NOREPLACE.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => files::rename(&fresh, path),
        other => other,
    };
    match placed {
        Ok(()) => Ok(true),
        Err(e) => {
            let _ = files::remove_file(&fresh);
            if e.kind() == io::ErrorKind::AlreadyExists { Ok(false) } else { Err(cannot("write", path, e)) }
        }
    }
}

fn top(repo: &Repo) -> Result<&Path, Failure> {
    repo.work_tree().ok_or_else(|| Failure::fatal("there is no work tree here to write a policy to"))
}

fn tracked(repo: &Repo) -> Result<bool, Failure> {
    let Some(head) = repo.commit_of("HEAD")? else { return Ok(false) };
    let objects = repo.objects()?;
    Ok(objects.entry_at(&objects.commit(&head)?.tree, PATH)?.is_some())
}

/// Whether git ignores everything in a folder of the top level.
fn ignored(repo: &Repo, folder: &str) -> Result<bool, Failure> {
    let call = repo.call("check-ignore").current_dir(top(repo)?);
    let call = call.arg("-q").arg("--").arg(format!("{folder}/x"));
    Ok(call.ask()?)
}

fn cannot(what: &str, path: &Path, e: io::Error) -> Failure {
    let shown = path.to_string_lossy();
    Failure::fatal(format!("cannot {what} '{}'", Untrusted::new(shown.as_ref()))).because(e)
}
