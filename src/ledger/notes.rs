//! `refs/notes/agent-runs`: which run a landed commit came from. An index that can be made again from the runs;
//! nobody takes it for evidence. git's own writer loses concurrent notes, so every write here is a
//! compare-and-swap of the whole ref, tried again.

use super::{Ledger, plain};
use crate::git::{ObjectKind, RefError, Repo, Transaction, TreeEntry, commit_bytes, tree_bytes};
use crate::model::{Digest, Failure, Oid, RunId, RunName};
use std::collections::BTreeMap;
use std::time::Duration;

/// Full name of the ref; `git log --notes=agent-runs` shows it.
pub const NOTES: &str = "refs/notes/agent-runs";
/// How often a lost race is tried again.
const TRIES: u32 = 400;
/// Largest note in bytes.
const MAX_NOTE: u64 = 64 * 1024;

/// Notes by the commit they are on: the blob, so that what is not touched is not read.
type Map = BTreeMap<Oid, Oid>;

/// What a note says of a landed run.
pub fn text(run: &RunId, name: &RunName, approval: Option<Digest>, change: &Digest) -> String {
    let approval = approval.map_or_else(String::new, |a| format!("Agent-Approval: {a}\n"));
    format!("Agent-Run: {run} {name}\n{approval}Agent-Change: {change}\n")
}

/// Adds notes; one that says the same already is left alone, and another is kept above it.
pub fn add(repo: &Repo, notes: &[(Oid, String)], who: &crate::model::Actor, now: i64) -> Result<(), Failure> {
    change(repo, who, now, "agent: notes", &[], |map| {
        for (commit, text) in notes {
            let blob = merged(repo, map.get(commit), text)?;
            map.insert(commit.clone(), blob);
        }
        Ok(())
    })
}

/// Takes the notes of a remote in: the union, line by line.
pub fn take_in(repo: &Repo, theirs: &Oid, who: &crate::model::Actor, now: i64) -> Result<(), Failure> {
    if let Some(own) = repo.ref_tip(NOTES)?
        && repo.is_ancestor(theirs, &own)?
    {
        return Ok(());
    }
    let other = read(repo, Some(theirs))?;
    change(repo, who, now, "agent: notes of a remote", std::slice::from_ref(theirs), |map| {
        for (commit, blob) in &other {
            let blob = match map.get(commit) {
                Some(own) if own != blob => {
                    let bytes = repo.objects()?.expect(blob, ObjectKind::Blob, MAX_NOTE)?;
                    merged(repo, Some(own), &String::from_utf8_lossy(&bytes))?
                }
                _ => blob.clone(),
            };
            map.insert(commit.clone(), blob);
        }
        Ok(())
    })
}

/// Makes the index again from what the runs say, and forgets everything else in it.
pub fn rebuild(repo: &Repo, who: &crate::model::Actor, now: i64) -> Result<usize, Failure> {
    let ledger = Ledger::new(repo);
    let mut notes: BTreeMap<Oid, String> = BTreeMap::new();
    for tip in ledger.all_tips()?.tips {
        // One run that cannot be read takes no other's note away.
        let Ok(chain) = ledger.chain(&tip) else { continue };
        let mut approval = None;
        for (oid, event) in chain.known() {
            match &event.body {
                crate::model::Body::Approve(_) => approval = chain.digest_of(oid),
                crate::model::Body::Land(land) => {
                    let line = text(&event.run, &event.head.name, approval, &land.change);
                    notes.entry(land.commit.clone()).or_default().push_str(&line);
                }
                _ => {}
            }
        }
    }
    let count = notes.len();
    change(repo, who, now, "agent: notes rebuilt", &[], |map| {
        map.clear();
        for (commit, text) in &notes {
            map.insert(commit.clone(), merged(repo, None, text)?);
        }
        Ok(())
    })?;
    Ok(count)
}

fn merged(repo: &Repo, own: Option<&Oid>, text: &str) -> Result<Oid, Failure> {
    let objects = repo.objects()?;
    let mut all = match own {
        Some(own) => String::from_utf8_lossy(&objects.expect(own, ObjectKind::Blob, MAX_NOTE)?).into_owned(),
        None => String::new(),
    };
    for line in text.lines() {
        if !all.lines().any(|l| l == line) {
            all.push_str(line);
            all.push('\n');
        }
    }
    Ok(objects.write(ObjectKind::Blob, all.as_bytes())?)
}

/// However git or we spread the notes over folders: the path without its slashes is the commit.
fn read(repo: &Repo, tip: Option<&Oid>) -> Result<Map, Failure> {
    let Some(tip) = tip else { return Ok(Map::new()) };
    let bytes = repo.call("ls-tree").args(["-r", "-z", "--full-tree", tip.as_str()]).output()?;
    let entry = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok()?;
        let (meta, path) = line.split_once('\t')?;
        let commit = path.replace('/', "").parse().ok()?;
        Some((commit, meta.split(' ').nth(2)?.parse().ok()?))
    };
    Ok(bytes.split(|b| *b == 0).filter_map(entry).collect())
}

fn write(repo: &Repo, map: &Map) -> Result<Oid, Failure> {
    let entry = |(commit, blob): (&Oid, &Oid)| TreeEntry {
        mode: 0o100_644,
        name: commit.as_str().as_bytes().to_vec(),
        oid: blob.clone(),
    };
    let tree = tree_bytes(map.iter().map(entry).collect());
    Ok(repo.objects()?.write(ObjectKind::Tree, &tree)?)
}

fn change(
    repo: &Repo,
    who: &crate::model::Actor,
    now: i64,
    message: &str,
    more: &[Oid],
    edit: impl Fn(&mut Map) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let who = format!("{} <{}>", plain(&who.name), plain(&who.email));
    for attempt in 0..TRIES {
        let old = repo.ref_tip(NOTES)?;
        let before = read(repo, old.as_ref())?;
        let mut map = before.clone();
        edit(&mut map)?;
        if map == before && more.is_empty() {
            return Ok(());
        }
        let parents: Vec<Oid> = old.iter().cloned().chain(more.iter().cloned()).collect();
        let commit = commit_bytes(&write(repo, &map)?, &parents, &who, now.max(0), message);
        let commit = repo.objects()?.write(ObjectKind::Commit, &commit)?;
        let transaction = match &old {
            Some(old) => Transaction::new().update(NOTES, &commit, old),
            None => Transaction::new().create(NOTES, &commit),
        };
        match transaction.commit(repo, message) {
            Ok(()) => return Ok(()),
            Err(RefError::Moved { .. }) => {
                let spread = u64::from(std::process::id()) % 7 + 1;
                std::thread::sleep(Duration::from_millis(spread * u64::from(attempt.min(8))));
            }
            Err(e) => return Err(e.into()),
        }
    }
    Err(Failure::fatal(format!("{NOTES} is being written by too many at once")).hint("try again"))
}
