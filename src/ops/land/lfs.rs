//! Large files whose bytes are not in git: a pointer must not land without them, else the checkout that makes the file
//! would ask a server, or make a file that is no file.

use super::ground::Touched;
use super::refusal::Refused;
use crate::git::{ObjectKind, Repo};
use crate::model::Failure;
use crate::ops::lfs::{self, Pointer};
use std::collections::BTreeSet;

/// Refuses the paths that go through LFS and whose object is not in the main store.
pub fn all_here(
    repo: &Repo,
    touched: &[Touched],
    through_lfs: &BTreeSet<Vec<u8>>,
    refused: &mut Vec<Refused>,
) -> Result<(), Failure> {
    for t in touched.iter().filter(|t| through_lfs.contains(&t.change.path)) {
        let blob = t.merged.as_ref().and_then(|m| m.result.as_ref()).map_or(&t.change.new, |(_, oid)| oid);
        let objects = repo.objects()?;
        let Some((ObjectKind::Blob, size)) = objects.header(blob)? else { continue };
        if size > Pointer::MOST {
            continue;
        }
        let Some(pointer) = Pointer::parse(&objects.expect(blob, ObjectKind::Blob, Pointer::MOST)?) else {
            continue;
        };
        if !lfs::is_here(repo, &pointer)? {
            refused.push(Refused::new(
                &t.change.path,
                format!("its LFS object {} ({} bytes) is not here", pointer.oid, pointer.size),
            ));
        }
    }
    Ok(())
}
