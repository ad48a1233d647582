//! Freeze: what the engine could have changed about the run's git plumbing is put back before the host or a
//! later engine uses it. Nothing of the agent's work is deleted: what stood in the way is moved to
//! `host/displaced`.

use super::store::flat;
use super::{Layout, Open};
use crate::model::Failure;
use crate::os::files::{self, Dir};
use crate::text::quote_path;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Entries of a store that are looked at; an honest run's store has far fewer.
const MOST_ENTRIES: usize = 200_000;
/// Folders of the run that must be usable by their owner. The landlock tier cannot keep an engine of the same
/// user from changing modes.
const OPEN: &[&str] = &[
    "",
    "host",
    "tree",
    "store",
    "store/info",
    "store/objects",
    "store/objects/info",
    "store/objects/pack",
    "store/refs",
    "store/packed",
    "store/logs",
    "store/lfs",
    "store/worktrees",
    "store/worktrees/tree",
];
/// Findings that are listed by name.
const LISTED: usize = 20;

/// What was found and put back, one sentence each, bounded. `sound` is false when the store held links or
/// special files, or more entries than anyone looks at: then nothing is imported from it.
#[derive(Debug, Default)]
pub struct Frozen {
    /// One sentence each.
    pub repaired: Vec<String>,
    /// Whether the store's own objects may be read (in the cage) at all.
    pub sound: bool,
}

/// Checks that the tree is the one we made and rewrites pointers and fixed files that differ.
pub fn freeze(run: &Open<'_>) -> Result<Frozen, Failure> {
    let layout = &run.layout;
    let io = |what: &str| {
        let what = format!("{what} of run '{}'", run.folder.name);
        move |e: std::io::Error| Failure::fatal(format!("{what} could not be frozen")).because(e)
    };
    identity(run)?;
    if !run.isolation().has_copy() {
        // Nothing of the run's is in the tree, and it has no store.
        reach(layout).map_err(io("the folder"))?;
        return Ok(Frozen { repaired: Vec::new(), sound: true });
    }
    let mut frozen = Frozen { repaired: Vec::new(), sound: true };
    for folder in OPEN {
        if files::open_up(&layout.dir().join(folder)).map_err(io(&format!("'{folder}'")))? {
            frozen.repaired.push(format!("'{folder}' was closed and is open again"));
        }
    }
    let dir = Dir::open(layout.dir()).map_err(io("the folder"))?;
    for entry in std::fs::read_dir(layout.fixed()).map_err(io("the record"))? {
        let flat_name = entry.map_err(io("the record"))?.file_name();
        let path = String::from_utf8_lossy(flat_name.as_bytes()).replace('%', "/");
        debug_assert_eq!(flat(&path).as_str(), flat_name.to_string_lossy());
        let want = files::read_bounded(&layout.fixed().join(&flat_name), 64 << 20)
            .map_err(io("the record"))?
            .unwrap_or_default();
        put_back(run, &dir, &path, &want, &mut frozen).map_err(io(&format!("'{path}'")))?;
    }
    for path in ["store/config.worktree", "store/worktrees/tree/config.worktree", "store/commondir"] {
        if dir.lstat_at(path.as_bytes()).map_err(io("the store"))?.is_some() {
            displace(layout, &dir, path.as_bytes()).map_err(io(&format!("'{path}'")))?;
            frozen.repaired.push(format!("'{path}' was added to the store and moved away"));
        }
    }
    head(run, &dir, &mut frozen).map_err(io("HEAD"))?;
    scan(layout, &mut frozen).map_err(io("the store"))?;
    frozen.repaired.truncate(LISTED);
    Ok(frozen)
}

/// Opens what we need to look at a run at all, where an engine of the same user has closed it.
pub(super) fn reach(layout: &Layout) -> std::io::Result<()> {
    files::open_up(layout.dir())?;
    files::open_up(&layout.host()).map(drop)
}

/// The tree must be the very folder that spawn made: not a link, not another one put in its place.
fn identity(run: &Open<'_>) -> Result<(), Failure> {
    let found = files::lstat(&run.layout.tree())
        .map_err(|e| Failure::fatal("the run's tree cannot be looked at").because(e))?;
    let made = run.folder.tree;
    match found {
        Some(m) if m.is_dir() && Some((m.id.dev, m.id.ino)) == made => Ok(()),
        found => Err(Failure::fatal(format!(
            "the tree of run '{}' {}: '{}'",
            run.folder.name,
            if found.is_some() { "is not the folder that spawn made" } else { "is gone" },
            run.layout.tree().display()
        ))
        .hint(format!("the ledger still has what was recorded: git agent show {}", run.folder.name))),
    }
}

fn put_back(run: &Open<'_>, dir: &Dir, path: &str, want: &[u8], frozen: &mut Frozen) -> std::io::Result<()> {
    // Whatever cannot be read as a file of this very size (a folder, a link, mode 000) is different.
    let same =
        dir.read_bounded_at(path.as_bytes(), want.len() as u64).is_ok_and(|b| b.as_deref() == Some(want));
    if same {
        return Ok(());
    }
    parents(run, dir, path)?;
    if dir.lstat_at(path.as_bytes())?.is_some() {
        displace(&run.layout, dir, path.as_bytes())?;
    }
    dir.write_new_at(path.as_bytes(), want, 0o644)?;
    files::give(&run.layout.dir().join(path), run.owner_of(path))?;
    frozen.repaired.push(format!("'{path}' was changed and put back"));
    Ok(())
}

/// Makes the folders above a fixed file again where they are gone or are something else.
fn parents(run: &Open<'_>, dir: &Dir, path: &str) -> std::io::Result<()> {
    let mut at = String::new();
    for part in path.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev() {
        if !at.is_empty() {
            at.push('/');
        }
        at.push_str(part);
        if dir.lstat_at(at.as_bytes())?.is_some_and(|m| m.is_dir()) {
            continue;
        }
        if dir.lstat_at(at.as_bytes())?.is_some() {
            displace(&run.layout, dir, at.as_bytes())?;
        }
        dir.create_dir_at(at.as_bytes(), 0o755)?;
        files::give(&run.layout.dir().join(&at), run.owner_of(&at))?;
    }
    Ok(())
}

/// Without a usable HEAD there is no repository for whoever continues the run.
fn head(run: &Open<'_>, dir: &Dir, frozen: &mut Frozen) -> std::io::Result<()> {
    let path = b"store/worktrees/tree/HEAD";
    if let Ok(Some(text)) = dir.read_bounded_at(path, 4096)
        && (text.starts_with(b"ref: refs/") || text.first().is_some_and(u8::is_ascii_hexdigit))
    {
        return Ok(());
    }
    if dir.lstat_at(path)?.is_some() {
        displace(&run.layout, dir, path)?;
    }
    dir.write_new_at(path, format!("ref: {}\n", run.folder.branch).as_bytes(), 0o644)?;
    files::give(&run.layout.git_dir().join("HEAD"), run.identity())?;
    frozen.repaired.push("HEAD of the run was unusable and was made again".into());
    Ok(())
}

/// Moves something of the run's folder out of the way, under a name that is free.
pub(super) fn displace(layout: &Layout, dir: &Dir, path: &[u8]) -> std::io::Result<()> {
    if files::lstat(&layout.displaced())?.is_none() {
        files::create_dir(&layout.displaced(), 0o700)?;
    }
    // A folder that its owner may not write cannot change its parent.
    files::open_up(&layout.dir().join(OsStr::from_bytes(path)))?;
    let flat: Vec<u8> = path.iter().map(|b| if *b == b'/' { b'%' } else { *b }).collect();
    let short = &flat[flat.len().saturating_sub(200)..];
    for n in 0..10_000 {
        let to = [b"host/displaced/", short, format!(".{n}").as_bytes()].concat();
        if dir.lstat_at(&to)?.is_none() {
            return dir.rename_at(path, &to);
        }
    }
    Err(std::io::Error::other("host/displaced is full"))
}

/// Looks at every entry of the store, following nothing. Links and special files are unlinked: git never
/// makes them, and a later engine would stumble over them.
fn scan(layout: &Layout, frozen: &mut Frozen) -> std::io::Result<()> {
    let store = Dir::open(&layout.store())?;
    let mut pending: Vec<Vec<u8>> = vec![Vec::new()];
    let mut seen = 0_usize;
    while let Some(folder) = pending.pop() {
        let path = layout.store().join(OsStr::from_bytes(&folder));
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(_) => {
                frozen.sound = false;
                frozen.repaired.push(format!("the store's folder {} cannot be read", quote_path(&folder)));
                continue;
            }
        };
        for entry in entries {
            let entry = entry?;
            seen += 1;
            if seen > MOST_ENTRIES {
                frozen.sound = false;
                frozen.repaired.push(format!("the store holds more than {MOST_ENTRIES} entries"));
                return Ok(());
            }
            let mut below = folder.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(entry.file_name().as_bytes());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                pending.push(below);
            } else if !kind.is_file() && !is_our_link(&store, &below)? {
                store.unlink_any_at(&below)?;
                frozen.sound = false;
                frozen.repaired.push(format!(
                    "the store held {} at {}, which git never makes",
                    if kind.is_symlink() { "a symbolic link" } else { "a special file" },
                    quote_path(&below)
                ));
            }
        }
    }
    Ok(())
}

fn is_our_link(store: &Dir, path: &[u8]) -> std::io::Result<bool> {
    Ok(path == b"packed-refs" && store.read_link_at(path)?.as_deref() == Some(b"packed/packed-refs"))
}
