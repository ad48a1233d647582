//! What a cage with a mount namespace shows, as a list of steps; decided by a pure function.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// One step. Everything that no step names is shown as it is and cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "do")]
pub enum Mount {
    /// Nothing is here, and nothing can be.
    Hide {
        /// A folder or a file.
        at: PathBuf,
    },
    /// A folder of the cage's own, in memory, empty at first.
    Private {
        /// Where.
        at: PathBuf,
        /// How much memory its files may take.
        percent: u8,
    },
    /// What is here outside.
    Show {
        /// Where.
        at: PathBuf,
        /// Whether it can be written.
        write: bool,
        /// Whether a hidden or private folder holds it, so that a place must be made for it.
        made: bool,
        /// Whether the cage is worth nothing without it.
        needed: bool,
    },
    /// A file of the host's in the place of another.
    Instead {
        /// Where.
        at: PathBuf,
        /// What is shown there.
        from: PathBuf,
    },
    /// A symbolic link that a hidden or private folder holds.
    Link {
        /// Where.
        at: PathBuf,
        /// Where it leads.
        to: PathBuf,
    },
}

/// Folders that every cage has for itself, and how much of the memory each may take.
pub(super) const PRIVATE: &[(&str, u8)] = &[("/tmp", 20), ("/var/tmp", 10), ("/run", 1), ("/dev/shm", 20)];

/// What [`view`] decides from. Paths are canonical.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    /// Private folders.
    pub(super) private: Vec<(PathBuf, u8)>,
    /// Hidden, and read-only where they lie in a private folder.
    pub(super) hidden: BTreeSet<&'a Path>,
    /// Hidden unless their folder is.
    pub(super) gone: BTreeSet<&'a Path>,
    /// Shown although something hides them.
    pub(super) read: BTreeSet<&'a Path>,
    /// Shown and writable.
    pub(super) write: BTreeSet<&'a Path>,
    /// Below something writable, and not.
    pub(super) pins: BTreeSet<PathBuf>,
    /// Shown in the place of something.
    pub(super) instead: BTreeMap<&'a Path, &'a Path>,
    /// Links on the way to what is shown.
    pub(super) links: &'a BTreeMap<PathBuf, PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hide,
    Gone,
    Private(u8),
    Read,
    Pin,
    Write,
    Instead,
    Link,
}

/// The steps in an order in which they can be carried out. What is named twice is shown rather than hidden,
/// and written rather than shown.
pub(super) fn view(parts: &Parts<'_>) -> Vec<Mount> {
    let mut all: BTreeMap<PathBuf, Kind> = BTreeMap::new();
    let links = parts.links.keys().map(|p| (p.clone(), Kind::Link));
    let gone = parts.gone.iter().map(|p| (p.to_path_buf(), Kind::Gone));
    let hidden = parts.hidden.iter().map(|p| (p.to_path_buf(), Kind::Hide));
    let private = parts.private.iter().map(|(p, percent)| (p.clone(), Kind::Private(*percent)));
    let read = parts.read.iter().map(|p| (p.to_path_buf(), Kind::Read));
    let instead = parts.instead.keys().map(|p| (p.to_path_buf(), Kind::Instead));
    let write = parts.write.iter().map(|p| (p.to_path_buf(), Kind::Write));
    let pins = parts.pins.iter().map(|p| (p.clone(), Kind::Pin));
    // Later ones win.
    // What is hidden is not to be written either.
    let hides =
        |all: &BTreeMap<PathBuf, Kind>, p: &PathBuf| matches!(all.get(p), Some(Kind::Hide | Kind::Gone));
    all.extend(links.chain(gone).chain(hidden).chain(private).chain(read).chain(instead).chain(write));
    for (pin, kind) in pins {
        if !hides(&all, &pin) {
            all.insert(pin, kind);
        }
    }
    // A pinned name must not be carried away with a folder above it.
    for pin in &parts.pins {
        if let Some(root) =
            parts.write.iter().filter(|w| pin.starts_with(w)).min_by_key(|w| w.as_os_str().len())
        {
            for above in pin.ancestors().skip(1).take_while(|a| a != root) {
                all.entry(above.to_owned()).or_insert(Kind::Write);
            }
        }
    }
    // In a private folder the way to what is shown or hidden is nobody's to write: a file written to a path of
    // the repository must fail there, not vanish.
    for (folder, _) in &parts.private {
        let below = |p: &&PathBuf| p.starts_with(folder) && *p != folder;
        let tops: Vec<PathBuf> = all
            .iter()
            .filter(|(_, k)| !matches!(k, Kind::Gone | Kind::Private(_) | Kind::Link))
            .map(|(p, _)| p)
            .filter(below)
            .filter_map(|p| Some(folder.join(p.strip_prefix(folder).ok()?.components().next()?)))
            .collect();
        for top in tops {
            let kind = all.entry(top).or_insert(Kind::Hide);
            if matches!(kind, Kind::Gone | Kind::Link) {
                *kind = Kind::Hide;
            }
        }
    }

    let mut steps = Vec::new();
    let mut placed: Vec<(PathBuf, Kind)> = Vec::new();
    for (at, kind) in all {
        let above = placed.iter().rev().find(|(p, _)| at.starts_with(p)).map_or(Kind::Read, |(_, k)| *k);
        let empty = matches!(above, Kind::Hide | Kind::Private(_));
        let step = match kind {
            Kind::Hide | Kind::Gone if above == Kind::Hide => continue,
            Kind::Gone if empty => continue,
            Kind::Hide | Kind::Gone => Mount::Hide { at: at.clone() },
            Kind::Private(percent) => Mount::Private { at: at.clone(), percent },
            Kind::Read if matches!(above, Kind::Read | Kind::Pin) => continue,
            Kind::Read => {
                Mount::Show { at: at.clone(), write: false, made: empty, needed: above == Kind::Write }
            }
            Kind::Pin => {
                Mount::Show { at: at.clone(), write: false, made: empty, needed: above == Kind::Write }
            }
            Kind::Write => Mount::Show { at: at.clone(), write: true, made: empty, needed: true },
            Kind::Instead => {
                let from = parts.instead.get(at.as_path()).map_or_else(PathBuf::new, |p| p.to_path_buf());
                Mount::Instead { at: at.clone(), from }
            }
            Kind::Link if !empty => continue,
            Kind::Link => Mount::Link { to: parts.links[&at].clone(), at: at.clone() },
        };
        steps.push(step);
        placed.push((at, if kind == Kind::Gone { Kind::Hide } else { kind }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths<'a>(list: &'a [&'a str]) -> BTreeSet<&'a Path> {
        list.iter().map(Path::new).collect()
    }

    #[test]
    fn what_is_below_something_hidden_is_shown_again_and_the_way_to_it_is_nobodys() {
        let links =
            BTreeMap::from([("/home/u/bin".into(), "/home/u/dot/bin".into()), ("/x".into(), "/y".into())]);
        let parts = Parts {
            private: vec![("/tmp".into(), 20)],
            hidden: paths(&["/home", "/home/u", "/tmp/p/main", "/w"]),
            gone: paths(&["/home/u/s.sock", "/opt/s.sock", "/tmp/other.sock"]),
            read: paths(&["/home/u/dot/bin", "/usr/bin", "/tmp/p/main/.git/objects", "/w"]),
            write: paths(&["/tmp/p/run/tree", "/tmp/p/run/store/wt"]),
            pins: [PathBuf::from("/tmp/p/run/tree/.git"), PathBuf::from("/tmp/p/run/store/wt/tree/gitdir")]
                .into(),
            instead: BTreeMap::new(),
            links: &links,
        };
        let shown: Vec<String> = view(&parts)
            .into_iter()
            .map(|m| match m {
                Mount::Hide { at } => format!("hide {}", at.display()),
                Mount::Private { at, .. } => format!("private {}", at.display()),
                Mount::Show { at, write, made, .. } => format!("show {} {write} {made}", at.display()),
                Mount::Instead { at, .. } => format!("instead {}", at.display()),
                Mount::Link { at, to } => format!("link {} {}", at.display(), to.display()),
            })
            .collect();
        let expected = [
            "hide /home",
            "link /home/u/bin /home/u/dot/bin",
            "show /home/u/dot/bin false true",
            "hide /opt/s.sock",
            "private /tmp",
            "hide /tmp/p",
            "show /tmp/p/main/.git/objects false true",
            "show /tmp/p/run/store/wt true true",
            "show /tmp/p/run/store/wt/tree true false",
            "show /tmp/p/run/store/wt/tree/gitdir false false",
            "show /tmp/p/run/tree true true",
            "show /tmp/p/run/tree/.git false false",
        ];
        assert_eq!(shown, expected);
    }
}
