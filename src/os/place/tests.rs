use super::super::files;
use super::*;
use std::path::{Path, PathBuf};

struct Bench {
    dir: tempfile::TempDir,
    slot: Slot,
    moves: Vec<Move>,
}

/// A tree with every kind of move before it, on a file system that exchanges names or as on one that cannot.
fn bench(whole: bool) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let t = dir.path();
    files::create_dirs(&t.join("tree/d"), 0o755).unwrap();
    files::create_dirs(&t.join("tree/emptied"), 0o755).unwrap();
    files::create_dirs(&t.join("slots"), 0o755).unwrap();
    for name in ["a", "b", "d/x", "emptied/y"] {
        files::write_new(&t.join("tree").join(name), b"old", 0o640).unwrap();
    }
    let at = Where::choose(&t.join("slots"), &t.join("tree"), "one").unwrap();
    let slot = Slot::create(&at, &t.join("tree")).unwrap();
    slot.whole.set(whole);
    for name in ["a", "d", "n"] {
        files::write_new(&slot.successors().join(name), b"new", 0o644).unwrap();
    }
    let was = |path: &[u8]| Known::from(&slot.tree.lstat_at(path).unwrap().unwrap());
    let put = |path: &[u8]| Known::from(&slot.successor(path).unwrap().unwrap());
    let path = |path: &[u8]| path.to_vec();
    let moves = vec![
        Move::Take { path: path(b"b"), slot: path(b"old/0"), was: was(b"b") },
        Move::Take { path: path(b"d/x"), slot: path(b"old/1"), was: was(b"d/x") },
        Move::Take { path: path(b"emptied/y"), slot: path(b"old/2"), was: was(b"emptied/y") },
        Move::TakeFolder { path: path(b"d"), slot: path(b"old/3"), ino: was(b"d").ino, must: true },
        Move::TakeFolder {
            path: path(b"emptied"),
            slot: path(b"old/4"),
            ino: was(b"emptied").ino,
            must: false,
        },
        Move::MakeFolder { path: path(b"m") },
        Move::Exchange { path: path(b"a"), slot: path(b"new/a"), put: put(b"a"), was: was(b"a") },
        Move::Put { path: path(b"d"), slot: path(b"new/d"), put: put(b"d") },
        Move::Put { path: path(b"n"), slot: path(b"new/n"), put: put(b"n") },
    ];
    Bench { dir, slot, moves }
}

impl Bench {
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("tree").join(path)
    }

    fn look(&self) -> Vec<(Vec<u8>, Meta, Vec<u8>)> {
        let mut all = Vec::new();
        let mut pending = vec![Vec::new()];
        while let Some(folder) = pending.pop() {
            for name in names(&self.slot.tree, &folder).unwrap() {
                let path = if folder.is_empty() { name } else { [&folder[..], b"/", &name].concat() };
                let meta = self.slot.tree.lstat_at(&path).unwrap().unwrap();
                let mut meta = Meta { links: 0, ..meta };
                if meta.is_dir() {
                    pending.push(path.clone());
                    // Whoever moved something has set the time; the caller of ours puts it back.
                    (meta.mtime, meta.size) = ((0, 0), 0);
                }
                let bytes = std::fs::read(self.at(std::str::from_utf8(&path).unwrap())).unwrap_or_default();
                all.push((path, meta, bytes));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

#[test]
fn all_or_none() {
    for whole in [true, false] {
        let bench = bench(whole);
        let before = bench.look();
        for last in 0..=bench.moves.len() {
            bench.slot.place(&bench.moves[..last]).unwrap();
            assert!(bench.slot.take_back(&bench.moves).is_empty());
            assert_eq!(bench.look(), before, "after step {last}");
            assert!(bench.slot.take_back(&bench.moves).is_empty(), "twice is once");
            assert_eq!(bench.look(), before);
            assert!(!bench.slot.is_placed(&bench.moves));
        }
        bench.slot.place(&bench.moves).unwrap();
        assert!(bench.slot.is_placed(&bench.moves));
        assert_eq!(names(&bench.slot.tree, b"").unwrap(), [&b"a"[..], b"d", b"m", b"n"]);
        assert!(bench.slot.written(&bench.moves).is_empty());

        // Turned round, the same moves are the way back, and can be taken back in turn.
        let made = files::lstat(&bench.at("m")).unwrap().unwrap().id.ino;
        let round: Vec<Move> =
            bench.moves.iter().rev().cloned().filter_map(|m| m.inverse(Some(made), "old/m")).collect();
        let landed = bench.look();
        for last in 0..=round.len() {
            bench.slot.place(&round[..last]).unwrap();
            assert!(bench.slot.take_back(&round).is_empty());
            assert_eq!(bench.look(), landed, "after step {last} of the way back");
        }
        bench.slot.place(&round).unwrap();
        assert!(bench.slot.is_placed(&round));
        assert_eq!(bench.look(), before);
    }
}

/// Every moment between two system calls of an exchange that takes several.
#[test]
fn half_an_exchange_without_the_call_for_it() {
    let stops: &[&[(&str, &str, bool)]] = &[
        &[("tree/a", "slots/one/side/6", false)],
        &[("tree/a", "slots/one/side/6", false), ("slots/one/new/a", "tree/a", true)],
        &[("tree/a", "slots/one/side/6", false), ("slots/one/new/a", "tree/a", false)],
        &[
            ("tree/a", "slots/one/side/6", false),
            ("slots/one/new/a", "tree/a", false),
            ("slots/one/side/6", "slots/one/new/a", false),
            // And back.
            ("tree/a", "slots/one/side/6", false),
        ],
        &[
            ("tree/a", "slots/one/side/6", false),
            ("slots/one/new/a", "tree/a", false),
            ("slots/one/side/6", "slots/one/new/a", false),
            ("tree/a", "slots/one/side/6", false),
            ("slots/one/new/a", "tree/a", true),
        ],
    ];
    for stop in stops {
        for whole in [true, false] {
            let bench = bench(whole);
            let before = bench.look();
            for (from, to, link) in *stop {
                let (from, to) = (bench.dir.path().join(from), bench.dir.path().join(to));
                if *link { std::fs::hard_link(from, to) } else { std::fs::rename(from, to) }.unwrap();
            }
            assert!(bench.slot.take_back(&bench.moves).is_empty());
            assert_eq!(bench.look(), before);
            bench.slot.place(&bench.moves).unwrap();
        }
    }
}

type Edit = fn(&Path);

#[test]
fn what_is_edited_meanwhile_stays_where_it_was_saved() {
    for whole in [true, false] {
        let edits: &[(&str, Edit, &str)] = &[
            // In place, and as editors do it.
            ("n", |p| std::fs::write(p, "edited meanwhile").unwrap(), ""),
            ("a", |p| std::fs::write(p, "edited meanwhile").unwrap(), "new/a"),
            (
                "a",
                |p| {
                    std::fs::write(p.with_extension("tmp"), "edited meanwhile").unwrap();
                    std::fs::rename(p.with_extension("tmp"), p).unwrap();
                },
                "new/a",
            ),
            ("b", |p| std::fs::write(p, "edited meanwhile").unwrap(), "old/0"),
        ];
        for (path, edit, original) in edits {
            let bench = bench(whole);
            bench.slot.place(&bench.moves).unwrap();
            edit(&bench.at(path));
            let kept = bench.slot.take_back(&bench.moves);
            let [Kept::Edited(kept, at)] = &kept[..] else { panic!("{kept:?}") };
            assert_eq!(
                (kept.as_slice(), at.as_deref()),
                (path.as_bytes(), (!original.is_empty()).then_some(original.as_bytes()))
            );
            assert_eq!(std::fs::read(bench.at(path)).unwrap(), b"edited meanwhile");
            if !original.is_empty() {
                assert_eq!(std::fs::read(bench.dir.path().join("slots/one").join(original)).unwrap(), b"old");
            }
            assert_eq!(std::fs::read(bench.at("d/x")).unwrap(), b"old");
        }
    }
}

#[test]
fn a_late_write_through_an_open_descriptor_is_seen() {
    use std::io::Write;
    let bench = bench(true);
    let mut editor = std::fs::OpenOptions::new().append(true).open(bench.at("a")).unwrap();
    bench.slot.place(&bench.moves).unwrap();
    editor.write_all(b" and more").unwrap();
    assert_eq!(bench.slot.written(&bench.moves), [b"a".to_vec()]);
    assert!(bench.slot.take_back(&bench.moves).is_empty());
    assert_eq!(std::fs::read(bench.at("a")).unwrap(), b"old and more");
}

#[test]
fn a_folder_that_is_not_empty_stays() {
    for whole in [true, false] {
        let bench = bench(whole);
        files::write_new(&bench.at("emptied/mine"), b"", 0o644).unwrap();
        let before = bench.look();
        bench.slot.place(&bench.moves).unwrap();
        assert!(bench.at("emptied/mine").exists(), "nothing needs its name");
        assert!(bench.slot.take_back(&bench.moves).is_empty());
        assert_eq!(bench.look(), before);
        files::write_new(&bench.at("d/mine"), b"", 0o644).unwrap();
        let before = bench.look();
        assert!(matches!(bench.slot.place(&bench.moves), Err((3, Why::NotEmpty))));
        assert!(bench.slot.take_back(&bench.moves).is_empty());
        assert_eq!(bench.look(), before);
    }
}

#[test]
fn any_path_has_a_text() {
    #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    struct One(#[serde(with = "as_text")] Vec<u8>);
    for path in [&b"plain"[..], b"100%", b"%41", b"bad\xff%", "\u{e9}\u{1}".as_bytes(), b"\xe9", b""] {
        let one = One(path.to_vec());
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<One>(&text).unwrap(), one, "{text}");
    }
}
