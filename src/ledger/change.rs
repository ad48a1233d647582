//! The change digest: one number for exactly one difference. Normative in `git-agent-ledger(7)`.

use crate::git::Repo;
use crate::model::{Digest, Failure, Oid};
use crate::text::quote_path;
use sha2::Digest as _;
use std::collections::HashMap;

/// What the hashed bytes begin with.
pub const PREFIX: &[u8] = b"git-agent-change-v1\0";
/// Mode of a submodule's commit.
pub const GITLINK: u32 = 0o160_000;

/// One path that differs. A mode of 0 and a null id mean that the path is absent on that side.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Its path from the top level; untrusted bytes.
    pub path: Vec<u8>,
    /// Mode before.
    pub old_mode: u32,
    /// Mode after.
    pub new_mode: u32,
    /// Blob, or commit of a submodule, before.
    pub old: Oid,
    /// Blob, or commit of a submodule, after.
    pub new: Oid,
}

impl Change {
    /// Whether the path is new.
    pub fn is_added(&self) -> bool {
        self.old_mode == 0
    }

    /// Whether the path is gone.
    pub fn is_deleted(&self) -> bool {
        self.new_mode == 0
    }
}

/// What differs between two trees (or commits), sorted by path bytes. Renames are a deletion and an addition.
pub fn entries(repo: &Repo, base: &Oid, snapshot: &Oid) -> Result<Vec<Change>, Failure> {
    let bytes = repo
        .call("diff-tree")
        // --ignore-submodules=none also keeps git from asking `.gitmodules` and `submodule.*.ignore`, which
        // the run may have written, whether a submodule's change is worth showing.
        .args(["-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none"])
        .args(["--no-ext-diff", "--no-textconv", "--no-relative"])
        .args(["--end-of-options", base.as_str(), snapshot.as_str(), "--"])
        .output()?;
    parse(&bytes).ok_or_else(|| Failure::fatal("git diff-tree answered something unexpected"))
}

/// The change digest of a list of changes, in whatever order they come.
pub fn digest(repo: &Repo, changes: &[Change]) -> Result<Digest, Failure> {
    let objects = repo.objects()?;
    digest_with(changes, |oid| Ok(objects.blob_digest(oid)?))
}

/// The same, where blobs are not only in the repository's own store.
pub fn digest_with(
    changes: &[Change],
    blob: impl Fn(&Oid) -> Result<Digest, Failure>,
) -> Result<Digest, Failure> {
    let mut seen: HashMap<Oid, String> = HashMap::new();
    let mut content = |mode: u32, oid: &Oid| -> Result<String, Failure> {
        match mode {
            0 => Ok("-".into()),
            GITLINK => Ok(format!("gitlink:{oid}")),
            _ => {
                if let Some(known) = seen.get(oid) {
                    return Ok(known.clone());
                }
                let hex = blob(oid)?.hex();
                seen.insert(oid.clone(), hex.clone());
                Ok(hex)
            }
        }
    };
    let mut sorted: Vec<&Change> = changes.iter().collect();
    sorted.sort();
    let mut hash = sha2::Sha256::new();
    hash.update(PREFIX);
    for (i, c) in sorted.iter().enumerate() {
        if i > 0 && sorted[i - 1].path == c.path {
            // Only a corrupt tree names one path twice; two readings of it must not share a digest.
            return Err(Failure::fatal(format!("a tree names '{}' twice", quote_path(&c.path))));
        }
        let (old, new) = (content(c.old_mode, &c.old)?, content(c.new_mode, &c.new)?);
        hash.update(format!("{:06o} {:06o} {old} {new} ", c.old_mode, c.new_mode));
        hash.update(&c.path);
        hash.update([0]);
    }
    Ok(Digest::from_bytes(hash.finalize().into()))
}

/// `:<old mode> <new mode> <old> <new> <status>NUL<path>NUL`, as `git diff-tree -z --raw` has it.
pub fn parse(bytes: &[u8]) -> Option<Vec<Change>> {
    let mut parts = bytes.split(|b| *b == 0);
    let mut changes = Vec::new();
    while let Some(head) = parts.next() {
        if head.is_empty() {
            break;
        }
        let head = std::str::from_utf8(head).ok()?.strip_prefix(':')?;
        let words: Vec<&str> = head.split(' ').collect();
        let [old_mode, new_mode, old, new, _status] = words[..] else { return None };
        let path = parts.next().filter(|p| !p.is_empty())?.to_vec();
        changes.push(Change {
            path,
            old_mode: u32::from_str_radix(old_mode, 8).ok()?,
            new_mode: u32::from_str_radix(new_mode, 8).ok()?,
            old: old.parse().ok()?,
            new: new.parse().ok()?,
        });
    }
    changes.sort();
    Some(changes)
}
