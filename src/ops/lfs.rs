//! LFS objects: a run's own are brought home with its snapshot, so that a later checkout of what landed finds them.
//! git-lfs itself is not asked: what lies in a run's store is the agent's, and only a file with the size and the
//! SHA-256 that a pointer names is taken.

use super::Open;
use crate::git::{ObjectKind, Repo};
use crate::ledger::change;
use crate::model::{Digest, Failure, Oid, Report};
use crate::os::files::{self, Dir};
use crate::text::quote_path;
use std::path::{Path, PathBuf};

/// What a pointer file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// SHA-256 of the content, 64 lower-case hexadecimal digits.
    pub oid: String,
    /// Its size in bytes.
    pub size: u64,
}

impl Pointer {
    /// Largest pointer file (git-lfs's own limit).
    pub const MOST: u64 = 1024;

    /// Reads a pointer file; `None` when it is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        let version = lines.next()?.strip_prefix("version ")?;
        if !["https://git-lfs.github.com/spec/v1", "https://hawser.github.com/spec/v1"].contains(&version) {
            return None;
        }
        let value = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)).map(str::to_owned);
        let oid = value("oid sha256:")?;
        let size = value("size ")?.parse().ok()?;
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (oid.len() == 64 && oid.bytes().all(hex)).then_some(Self { oid, size })
    }

    fn path(&self) -> String {
        format!("objects/{}/{}/{}", &self.oid[..2], &self.oid[2..4], self.oid)
    }
}

/// The main repository's LFS folder (git-lfs-config(5), `lfs.storage`).
fn store(repo: &Repo) -> Result<PathBuf, Failure> {
    let set = repo.config()?.get("lfs.storage").filter(|s| !s.is_empty()).map(PathBuf::from);
    Ok(repo.common_dir().join(set.unwrap_or_else(|| "lfs".into())))
}

/// Whether the object of a pointer is in the main store.
pub fn is_here(repo: &Repo, pointer: &Pointer) -> Result<bool, Failure> {
    let path = store(repo)?.join(pointer.path());
    let meta = files::lstat(&path)
        .map_err(|e| Failure::fatal(format!("'{}' cannot be looked at", path.display())).because(e))?;
    Ok(meta.is_some_and(|m| m.is_file() && m.size == pointer.size))
}

/// Brings the objects home that changed pointers of a snapshot name. What is missing or not what its name says is
/// reported; the apply refuses it.
pub fn bring_home(run: &Open<'_>, base: &Oid, tree: &Oid, report: &mut Report) -> Result<(), Failure> {
    let objects = run.repo.objects()?;
    for c in change::entries(run.repo, base, tree)? {
        if c.new_mode & 0o170_000 != 0o100_000 || c.new == c.old {
            continue;
        }
        let Some((ObjectKind::Blob, size)) = objects.header(&c.new)? else { continue };
        if size > Pointer::MOST {
            continue;
        }
        let bytes = objects.expect(&c.new, ObjectKind::Blob, Pointer::MOST)?;
        let Some(pointer) = Pointer::parse(&bytes) else { continue };
        if is_here(run.repo, &pointer)? {
            continue;
        }
        if let Err(why) = bring(run, &pointer) {
            report.notes.push(format!("LFS object of {} was not brought home: {why}", quote_path(&c.path)));
        }
    }
    Ok(())
}

fn bring(run: &Open<'_>, pointer: &Pointer) -> Result<(), String> {
    let from = Dir::open(&run.layout.store()).map_err(|e| e.to_string())?;
    let to = store(run.repo).map_err(|e| e.to_string())?.join(pointer.path());
    let folder = to.parent().unwrap_or(Path::new("."));
    files::create_dirs(folder, 0o755).map_err(|e| e.to_string())?;
    let wanted: Digest = format!("sha256:{}", pointer.oid).parse().map_err(|_| "not a digest".to_owned())?;
    match from.copy_exact_at(format!("lfs/{}", pointer.path()).as_bytes(), &to, pointer.size, &wanted) {
        Ok(true) => Ok(()),
        Ok(false) => Err("the run does not have it".into()),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::Pointer;

    #[test]
    fn pointers() {
        let oid = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";
        let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 12345\n");
        assert_eq!(Pointer::parse(text.as_bytes()), Some(Pointer { oid: oid.into(), size: 12345 }));
        assert_eq!(Pointer::parse(text.replace(oid, "../../../etc/passwd").as_bytes()), None);
        assert_eq!(Pointer::parse(text.replace("version", "Version").as_bytes()), None);
        assert_eq!(Pointer::parse(b"plain\n"), None);
    }
}
