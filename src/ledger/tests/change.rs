use super::super::change::{Change, digest, entries};
use super::*;
use sha2::Digest as _;
use std::fmt::Write as _;

fn tree(f: &Fixture, files: &[(u32, &str, &[u8])]) -> Oid {
    // `git mktree` is the independent way from a list to a tree.
    let objects = f.repo.objects().unwrap();
    let mut index = Vec::new();
    for (mode, path, content) in files {
        let oid = if *mode == 0o160_000 {
            String::from_utf8(content.to_vec()).unwrap()
        } else {
            objects.write(ObjectKind::Blob, content).unwrap().to_string()
        };
        index.extend_from_slice(format!("{mode:06o} {oid} 0\t{path}\0").as_bytes());
    }
    let place = Place { index: Some(f.dir.path().join("index")), ..f.repo.place().clone() };
    let _ = crate::os::files::remove_file(&f.dir.path().join("index"));
    Call::new("update-index", &place).args(["-z", "--index-info"]).input(index).output().unwrap();
    Call::new("write-tree", &place).arg("--missing-ok").text().unwrap().parse().unwrap()
}

fn sha(bytes: &[u8]) -> String {
    crate::text::hex(&sha2::Sha256::digest(bytes))
}

#[test]
fn the_digest_is_what_the_manual_says() {
    for f in Fixture::each() {
        let link = f.base.to_string();
        let before = tree(
            &f,
            &[
                (0o100_644, "a", b"one\n"),
                (0o100_644, "exec", b"#!/bin/sh\n"),
                (0o100_644, "gone", b"bye\n"),
                (0o100_644, "kind", b"file\n"),
                (0o100_644, "same", b"same\n"),
                (0o160_000, "sub", link.as_bytes()),
            ],
        );
        let other = link.replace(&link[..1], if &link[..1] == "a" { "b" } else { "a" });
        let after = tree(
            &f,
            &[
                (0o100_644, "a", b"two\n"),
                (0o100_755, "exec", b"#!/bin/sh\n"),
                (0o100_644, "kind/inside", b"\0\xff"),
                (0o120_000, "link", b"/etc/passwd"),
                (0o100_644, "same", b"same\n"),
                (0o160_000, "sub", other.as_bytes()),
                (0o100_644, "with\nfeed", b""),
            ],
        );
        let changes = entries(&f.repo, &before, &after).unwrap();
        let paths: Vec<_> = changes.iter().map(|c| String::from_utf8_lossy(&c.path).into_owned()).collect();
        assert_eq!(paths, ["a", "exec", "gone", "kind", "kind/inside", "link", "sub", "with\nfeed"]);

        let mut text = String::from("git-agent-change-v1\0");
        let (zero, file) = ("000000", "100644");
        for (old, new, left, right, path) in [
            (file, file, sha(b"one\n"), sha(b"two\n"), "a"),
            (file, "100755", sha(b"#!/bin/sh\n"), sha(b"#!/bin/sh\n"), "exec"),
            (file, zero, sha(b"bye\n"), "-".into(), "gone"),
            (file, zero, sha(b"file\n"), "-".into(), "kind"),
            (zero, file, "-".into(), sha(b"\0\xff"), "kind/inside"),
            (zero, "120000", "-".into(), sha(b"/etc/passwd"), "link"),
            ("160000", "160000", format!("gitlink:{link}"), format!("gitlink:{other}"), "sub"),
            (zero, file, "-".into(), sha(b""), "with\nfeed"),
        ] {
            write!(text, "{old} {new} {left} {right} {path}\0").unwrap();
        }
        let expected = Digest::of(text.as_bytes());
        assert_eq!(digest(&f.repo, &changes).unwrap(), expected);
        let mut reversed = changes.clone();
        reversed.reverse();
        assert_eq!(digest(&f.repo, &reversed).unwrap(), expected);

        // No setting and no file that the run may write changes it.
        let config = f.path().join(".gitmodules");
        let modules = b"[submodule \"s\"]\n\tpath = sub\n\turl = x\n\tignore = all\n";
        crate::os::files::write_plain(&config, modules, 0o644).unwrap();
        for (key, value) in [
            ("submodule.s.ignore", "all"),
            ("diff.ignoreSubmodules", "all"),
            ("diff.renames", "copies"),
            ("diff.relative", "true"),
            ("diff.noprefix", "true"),
            ("diff.external", "false"),
            ("core.quotePath", "true"),
            ("core.abbrev", "7"),
            ("diff.orderFile", "/nonexistent"),
        ] {
            git(&f.path(), &["config", key, value]);
        }
        assert_eq!(entries(&f.repo, &before, &after).unwrap(), changes);
        git(&f.path(), &["config", "--unset", "diff.orderFile"]);
    }
}

/// Test vectors 1 to 3 of the manual.
#[test]
fn vectors_of_the_manual() {
    for f in Fixture::each() {
        let none = tree(&f, &[]);
        let one = tree(&f, &[(0o100_644, "a", b"one\n")]);
        let two = tree(&f, &[(0o100_755, "a", b"two\n"), (0o120_000, "l", b"a")]);
        let of =
            |from: &Oid, to: &Oid| digest(&f.repo, &entries(&f.repo, from, to).unwrap()).unwrap().to_string();
        let vectors = [of(&one, &one), of(&none, &one), of(&one, &two)];
        let manual = include_str!("../../../man/git-agent-ledger.7");
        for v in vectors {
            assert!(manual.contains(&v), "{v} is not in the manual");
        }
    }
}

#[test]
fn commits_count_as_their_trees_and_large_blobs_are_streamed() {
    let f = Fixture::new(&[]);
    let big = vec![b'x'; (8 << 20) + 1];
    let after = tree(&f, &[(0o100_644, "a", b"one\n"), (0o100_644, "big", &big)]);
    let changes = entries(&f.repo, &f.base, &after).unwrap();
    assert_eq!(changes.len(), 1);
    assert!(changes[0].is_added() && !changes[0].is_deleted());
    let text = format!("git-agent-change-v1\0000000 100644 - {} big\0", sha(&big));
    assert_eq!(digest(&f.repo, &changes).unwrap(), Digest::of(text.as_bytes()));
    let twice: Vec<Change> = changes.iter().chain(&changes).cloned().collect();
    assert!(digest(&f.repo, &twice).is_err());
}
