//! The commit a run is cut from, and what the run may know of the repository around it.

use crate::git::{Branch, Call, ObjectKind, Place, RefTip, Repo, commit_bytes};
use crate::model::{Actor, Failure, Oid};
use crate::os::files;
use crate::policy::{Globs, Policy};
use crate::text::Untrusted;
use std::collections::BTreeMap;

/// Pins the base: `--base` peeled to a commit, a commit of the tree as it is, or HEAD.
pub fn resolve(
    repo: &Repo,
    revision: Option<&str>,
    with_changes: bool,
    head: &Oid,
    actor: &Actor,
    now: i64,
) -> Result<Oid, Failure> {
    match (revision, with_changes) {
        (Some(_), true) => Err(Failure::usage("--base and --with-changes name two different bases")
            .hint("leave one of them out")),
        (None, false) => Ok(head.clone()),
        (None, true) => of_changes(repo, head, actor, now),
        (Some(revision), false) => repo.commit_of(revision)?.ok_or_else(|| {
            Failure::fatal(format!("'{}' names no commit", Untrusted::new(revision)))
                .hint("a branch, a tag or a commit id; see gitrevisions(7)")
        }),
    }
}

/// A commit of the work tree as it is: staged, unstaged and untracked, without ignored files. The index and
/// the work tree are not touched. HEAD itself when there is nothing to add.
fn of_changes(repo: &Repo, head: &Oid, actor: &Actor, now: i64) -> Result<Oid, Failure> {
    let Some(top) = repo.work_tree() else {
        return Err(Failure::fatal("--with-changes needs a work tree, and this repository is bare"));
    };
    let fail = |e: std::io::Error| Failure::fatal("a copy of the index could not be made").because(e);
    let scratch = tempfile::tempdir().map_err(fail)?;
    let index = scratch.path().join("index");
    let users = repo.git_dir().join("index");
    if users.exists() {
        files::copy_keep_mtime(&users, &index).map_err(fail)?;
    }
    let place = Place { index: Some(index), ..repo.place().clone() };
    // A split index names its shared part relative to the git dir: the copy still finds it there.
    Call::new("add", &place).args(["-A", "--", ":/"]).current_dir(top).output().map_err(|e| {
        Failure::from(e).hint("commit or stash what git cannot add, or leave out --with-changes")
    })?;
    let tree: Oid = Call::new("write-tree", &place).text()?.parse().map_err(Failure::fatal)?;
    let objects = repo.objects()?;
    if objects.commit(head)?.tree == tree {
        return Ok(head.clone());
    }
    let plain = |s: &str| s.replace(['<', '>', '\n'], "");
    let who = format!("{} <{}>", plain(&actor.name), plain(&actor.email));
    let message = "The work tree as it was (git agent spawn --with-changes)";
    let bytes = commit_bytes(&tree, std::slice::from_ref(head), &who, now, message);
    Ok(objects.write(ObjectKind::Commit, &bytes)?)
}

/// Paths of the base that the policy hides. A path that is not UTF-8 is never hidden.
pub fn stripped(repo: &Repo, policy: &Policy, base: &Oid) -> Result<Vec<String>, Failure> {
    if policy.strip().is_empty() {
        return Ok(Vec::new());
    }
    let bytes =
        repo.call("ls-tree").args(["-r", "-z", "--name-only", "--full-tree", base.as_str()]).output()?;
    let paths = bytes.split(|b| *b == 0).filter(|p| !p.is_empty() && policy.strips(p));
    Ok(paths.filter_map(|p| std::str::from_utf8(p).ok()).map(str::to_owned).collect())
}

/// The refs a run's store starts with: its own branch at the base, the branch that is checked out, its
/// upstream, `origin/HEAD`, and the tags reachable from the base; annotated tags with their commit. And what the
/// policy's `refs` name.
pub fn refs(
    repo: &Repo,
    base: &Oid,
    branch: &str,
    branches: &[Branch],
    more: &Globs,
) -> Result<Refs, Failure> {
    let mut refs: BTreeMap<String, (RefTip, Option<Oid>)> = BTreeMap::new();
    let mut keep = |name: &str, oid: Oid, peeled: Option<Oid>| {
        refs.insert(name.to_owned(), (RefTip { name: name.to_owned(), oid }, peeled));
    };
    keep(branch, base.clone(), None);
    let head = branches.iter().find(|b| b.head);
    let upstream = head.and_then(|b| b.upstream.as_deref());
    for b in branches {
        let origin_head = b.name == "refs/remotes/origin/HEAD";
        if b.head || origin_head || Some(b.name.as_str()) == upstream {
            keep(b.symref.as_deref().unwrap_or(&b.name), b.oid.clone(), None);
        }
    }
    let format = "--format=%(objectname) %(refname) %(*objectname)";
    let merged = format!("--merged={base}");
    for line in
        String::from_utf8_lossy(&repo.call("for-each-ref").args([format, &merged, "refs/tags/"]).output()?)
            .lines()
    {
        let words: Vec<&str> = line.split(' ').collect();
        let [oid, name, peeled] = words[..] else { continue };
        let peeled = peeled.parse().ok();
        keep(name, oid.parse().map_err(Failure::fatal)?, peeled);
    }
    let Refs { all, mut pins } = named(repo, more)?;
    for (tip, peeled) in all {
        refs.entry(tip.name.clone()).or_insert((tip, peeled));
    }
    let tag = |name: &str| name.starts_with("refs/tags/");
    // Tags are there because the base reaches them; what it may not reach needs a pin.
    pins.extend(refs.values().filter(|(t, _)| !tag(&t.name)).map(|(t, _)| t.oid.clone()));
    Ok(Refs { all: refs.into_values().collect(), pins })
}

/// The refs a run's store starts with.
#[derive(Debug, Default)]
pub struct Refs {
    /// Each with its commit where it is an annotated tag.
    pub all: Vec<(RefTip, Option<Oid>)>,
    /// Commits that the ledger must hold, or gc would take them from the run.
    pub pins: Vec<Oid>,
}

/// Most refs that a policy may add.
const MOST: usize = 1000;

/// What the policy names, and the commits that keep it alive. What is no commit stays out.
fn named(repo: &Repo, more: &Globs) -> Result<Refs, Failure> {
    let (mut all, mut pins) = (Vec::new(), Vec::new());
    if more.is_empty() {
        return Ok(Refs { all, pins });
    }
    let format = "--format=%(objectname) %(objecttype) %(refname) %(*objectname) %(*objecttype)";
    let listed = repo.call("for-each-ref").args([format, "refs/"]).output()?;
    for line in String::from_utf8_lossy(&listed).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [oid, kind, name, peeled, peeled_kind] = words[..] else { continue };
        let ours = name.starts_with("refs/agent-");
        if ours || !more.is_match(name.as_bytes()) {
            continue;
        }
        let oid: Oid = oid.parse().map_err(Failure::fatal)?;
        let peeled: Option<Oid> = match (kind, peeled_kind) {
            ("commit", _) => None,
            ("tag", "commit") => Some(peeled.parse().map_err(Failure::fatal)?),
            _ => continue,
        };
        pins.push(peeled.clone().unwrap_or_else(|| oid.clone()));
        all.push((RefTip { name: name.to_owned(), oid }, peeled));
    }
    if all.len() > MOST {
        return Err(Failure::fatal(format!("the policy's 'refs' name {} refs, more than {MOST}", all.len())));
    }
    Ok(Refs { all, pins })
}

/// What the run does not see of the person's work tree: modified and untracked entries.
pub fn lacking(answer: &[u8]) -> (usize, usize) {
    let mut modified = 0;
    let mut untracked = 0;
    let mut entries = answer.split(|b| *b == 0).filter(|e| !e.is_empty());
    while let Some(entry) = entries.next() {
        match entry.get(..2) {
            Some(b"??") => untracked += 1,
            Some(code) => {
                modified += 1;
                // A rename or copy has its source as an entry of its own.
                if code.contains(&b'R') || code.contains(&b'C') {
                    entries.next();
                }
            }
            None => {}
        }
    }
    (modified, untracked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_the_copy_lacks() {
        assert_eq!(lacking(b" M a\0?? b\0R  new\0old\0A  c\0"), (3, 1));
        assert_eq!(lacking(b""), (0, 0));
    }
}
