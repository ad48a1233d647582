//! What a person has accepted on this machine: `<state folder>/.accepted/<repository id>/<sha256>.json`, one
//! file a policy, mode 0600, written whole. Never in the repository, and never below `agent.root`, which a
//! repository's own configuration can move: a repository that comes with its `.git` must not bring consent
//! along.

use crate::git::Repo;
use crate::ledger::{self, Ledger};
use crate::model::{Digest, Failure};
use crate::os::{files, process};
use crate::policy::MAX_POLICY;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// In the state folder. No folder of runs can be called so: theirs end in an id.
const FOLDER: &str = ".accepted";
/// Largest record: JSON escapes a byte of the policy with at most six.
const MAX_RECORD: u64 = MAX_POLICY as u64 * 6 + 1024;

/// How consent was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Given {
    /// Asked at a terminal.
    Terminal,
    /// By the digest in full.
    Digest,
    /// The policy was written here by `git agent init`.
    Init,
}

/// One policy that a person accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    v: u64,
    /// Seconds since the epoch.
    pub time: i64,
    /// How.
    pub how: Given,
    /// Inode of the repository's common git directory: an id can be copied, and ids travel with the ledger.
    ino: u64,
    /// The policy's text.
    pub policy: String,
}

/// The consents of one repository.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    ino: u64,
}

impl Store {
    /// That of this repository. Makes nothing but the repository's id.
    pub fn of(repo: &Repo) -> Result<Self, Failure> {
        let home = Ledger::new(repo).home()?;
        let common = repo.common_dir();
        let real = std::fs::canonicalize(common).map_err(|e| cannot("find", common, e))?;
        let meta = files::lstat(&real).and_then(|m| m.ok_or_else(|| io::ErrorKind::NotFound.into()));
        let ino = meta.map_err(|e| cannot("look at", &real, e))?.id.ino;
        Ok(Self { folder: ledger::state_folder()?.join(FOLDER).join(home.id), ino })
    }

    /// The consent to exactly this policy.
    pub fn find(&self, policy: &Digest) -> Result<Option<Accepted>, Failure> {
        if !self.private()? {
            return Ok(None);
        }
        let path = self.file(policy);
        let Some(bytes) = files::read_bounded(&path, MAX_RECORD).map_err(|e| cannot("read", &path, e))?
        else {
            return Ok(None);
        };
        // Damage is no consent. The name says what the text must be.
        let record: Option<Accepted> = serde_json::from_slice(&bytes).ok();
        Ok(record.filter(|r| r.v == 1 && r.ino == self.ino && Digest::of(r.policy.as_bytes()) == *policy))
    }

    /// The policy that was accepted last.
    pub fn last(&self) -> Result<Option<Accepted>, Failure> {
        let mut last: Option<Accepted> = None;
        for digest in self.digests()? {
            let Some(found) = self.find(&digest)? else { continue };
            if last.as_ref().is_none_or(|l| (l.time, &l.policy) < (found.time, &found.policy)) {
                last = Some(found);
            }
        }
        Ok(last)
    }

    /// Records consent. Durable when it returns.
    pub fn accept(&self, text: &[u8], how: Given, now: i64) -> Result<(), Failure> {
        let policy = String::from_utf8(text.to_vec())
            .map_err(|e| Failure::fatal("a policy that is no text cannot be accepted").because(e))?;
        // The last one accepted is the last one by time, also within one second and when the clock was set back.
        let time = now.max(self.last()?.map_or(i64::MIN, |l| l.time.saturating_add(1)));
        let record = Accepted { v: 1, time, how, ino: self.ino, policy };
        files::create_dirs(&self.folder, 0o700).map_err(|e| cannot("create", &self.folder, e))?;
        self.private()?;
        let path = self.file(&Digest::of(text));
        let bytes = serde_json::to_vec(&record).map_err(|e| Failure::fatal(e.to_string()))?;
        files::write_atomic(&path, &bytes, 0o600).map_err(|e| cannot("write", &path, e))?;
        // The folder itself is new the first time.
        let above = self.folder.parent().unwrap_or(&self.folder);
        files::sync_dir(above).map_err(|e| cannot("write", above, e))
    }

    /// Takes back every consent of this repository. How many there were.
    pub fn revoke(&self) -> Result<usize, Failure> {
        let mut gone = 0;
        for digest in self.digests()? {
            let path = self.file(&digest);
            gone += usize::from(files::remove_file(&path).map_err(|e| cannot("remove", &path, e))?);
        }
        if gone > 0 {
            files::sync_dir(&self.folder).map_err(|e| cannot("write", &self.folder, e))?;
        }
        Ok(gone)
    }

    fn file(&self, policy: &Digest) -> PathBuf {
        self.folder.join(format!("{}.json", policy.to_string().trim_start_matches("sha256:")))
    }

    fn digests(&self) -> Result<Vec<Digest>, Failure> {
        if !self.private()? {
            return Ok(Vec::new());
        }
        let listing = std::fs::read_dir(&self.folder).map_err(|e| cannot("read", &self.folder, e))?;
        let names = listing.flatten().filter_map(|e| e.file_name().into_string().ok());
        Ok(names.filter_map(|n| format!("sha256:{}", n.strip_suffix(".json")?).parse().ok()).collect())
    }

    /// Whether the folder is there. One that others could write to is an error: what is in it proves nothing.
    fn private(&self) -> Result<bool, Failure> {
        match files::lstat(&self.folder).map_err(|e| cannot("look at", &self.folder, e))? {
            None => Ok(false),
            Some(m) if m.is_dir() && m.mode & 0o022 == 0 && m.uid == process::current_user().uid => Ok(true),
            Some(_) => Err(Failure::fatal(format!(
                "'{}' is not a folder that only you can write to, so no consent in it counts",
                self.folder.display()
            ))
            .hint("move it away, and accept the policies again")),
        }
    }
}

fn cannot(what: &str, path: &Path, e: io::Error) -> Failure {
    Failure::fatal(format!("cannot {what} '{}'", path.display())).because(e)
}
