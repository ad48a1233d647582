//! Settings of the person's that a run gets a copy of: read within bounds, links followed only where the person
//! put them (at the named file or folder itself), nothing ever copied back.

use super::located;
use crate::clients::account::Account;
use crate::model::Failure;
use crate::os::files;
use crate::text::Untrusted;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One file, in memory.
#[derive(Debug)]
pub(super) struct File {
    /// Below the run's `engine/`.
    pub path: String,
    /// Content.
    pub bytes: Vec<u8>,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// Bounds of all settings of one client.
const FILES: usize = 4000;
const BYTES: u64 = 32 << 20;
const DEPTH: usize = 12;
/// Not settings, and large.
const SKIPPED: &[&str] = &[".git", "node_modules", ".DS_Store"];

/// Reads what the account names.
pub(super) fn settings(account: &Account, notes: &mut Vec<String>) -> Result<Vec<File>, Failure> {
    let from = located(account.settings);
    let mut found = Found { left: BYTES, ..Found::default() };
    for name in account.copied {
        // A dotfiles manager makes a link of it: that one is the person's own.
        if let Ok(real) = std::fs::canonicalize(from.join(name)) {
            found.take(&real, format!("{}/{name}", account.settings_to), 0)?;
        }
    }
    let shown = Untrusted::new(from.as_os_str().as_encoded_bytes());
    if found.links > 0 {
        notes.push(format!("{} symbolic links below '{shown}' are not in the run", found.links));
    }
    if found.dropped > 0 {
        notes.push(format!("{} settings below '{shown}' are too large, and not in the run", found.dropped));
    }
    Ok(found.files)
}

/// The state file that a seed is made from. One that cannot be read is as good as none.
pub(super) fn state(account: &Account) -> Option<Value> {
    let (place, name) = account.state?;
    let real = std::fs::canonicalize(located(place).join(name)).ok()?;
    serde_json::from_slice(&files::read_bounded(&real, BYTES).ok()??).ok()
}

#[derive(Default)]
struct Found {
    files: Vec<File>,
    left: u64,
    links: usize,
    dropped: usize,
}

impl Found {
    fn take(&mut self, path: &Path, to: String, depth: usize) -> Result<(), Failure> {
        let fail = |e: std::io::Error| {
            let shown = Untrusted::new(path.as_os_str().as_encoded_bytes());
            Failure::fatal(format!("setting '{shown}' cannot be read")).because(e)
        };
        let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
        if meta.is_symlink() {
            self.links += 1;
        } else if meta.is_dir() && depth < DEPTH {
            let mut entries: Vec<PathBuf> =
                std::fs::read_dir(path).map_err(fail)?.flatten().map(|e| e.path()).collect();
            entries.sort();
            for entry in entries {
                match entry.file_name().and_then(|n| n.to_str()) {
                    Some(name) if SKIPPED.contains(&name) => {}
                    Some(name) => self.take(&entry, format!("{to}/{name}"), depth + 1)?,
                    None => self.dropped += 1,
                }
            }
        } else if meta.is_file() && meta.len() <= self.left && self.files.len() < FILES {
            let Some(bytes) = files::read_bounded(path, self.left).map_err(fail)? else { return Ok(()) };
            self.left -= bytes.len() as u64;
            self.files.push(File { path: to, bytes, executable: meta.permissions().mode() & 0o100 != 0 });
        } else if meta.is_file() || meta.is_dir() {
            self.dropped += 1;
        }
        Ok(())
    }
}
