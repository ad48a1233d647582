//! A02, A24, A26, A27 and the race with an editor: what the ground has in store for a landing.

use crate::apply::{
    EVERY_PATH, EVERYTHING, approve, approved, dirty, landed, lands, nothing_left, others, project,
};
use crate::apply_killed::killed_at;
use crate::support::*;
use std::process::Command;

#[test]
fn a02_an_edit_is_merged_after_a_second_look() {
    for (git, _) in gits() {
        let sandbox = Sandbox::new().with_git(&git);
        let repo = approved(&sandbox, "sed -i s/one/1/ a; chmod +x a; echo 2 >src/b; echo n >n");
        repo.write("a", "one\ntwo\nthree\nmine\n");
        set_mode(&repo.dir.join("a"), 0o640);
        let before = repo.fingerprint();
        repo.agent("apply r1").with(3).refuses(&["a: was edited here", "--merge"]);
        let said = repo.agent("apply --merge --dry-run r1").ok();
        assert!(said.out().contains("+1\n two\n three\n mine"), "{}", said.out());
        let plan = repo.agent("apply --merge --dry-run --json r1").ok().json();
        assert_eq!(plan["merged"]["paths"], serde_json::json!(["a"]));
        let digest = plan["merged"]["change"].as_str().unwrap().to_owned();
        // Without a terminal: the digest of what would land, and the person's own word that this will do.
        repo.agent("apply --merge r1").with(4).refuses(&["needs a look of its own", &digest]);
        repo.agent(&format!("apply --merge --digest {digest} r1")).with(4).refuses(&["there is no terminal"]);
        repo.git("config --global agent.approve unattended");
        let other = plan["change"].as_str().unwrap();
        repo.agent(&format!("apply --merge --digest {other} r1"))
            .with(4)
            .refuses(&["the merged result", "is sha256:"]);
        before.unchanged(&repo.fingerprint());
        repo.agent(&format!("apply --merge --digest {digest} r1")).ok();
        assert_eq!(
            [repo.read("a"), repo.read("src/b"), repo.read("n")],
            ["1\ntwo\nthree\nmine\n", "2\n", "n\n"]
        );
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(repo.dir.join("a")).unwrap().permissions().mode() & 0o777, 0o750);
        let log = repo.agent("log --json r1").ok().json();
        let last = log["events"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["body"]["merged"], serde_json::json!({ "change": digest, "how": "unattended" }));
        repo.agent("apply --undo r1").ok();
        before.unchanged(&repo.fingerprint());
    }
}

#[test]
fn a02_an_edit_that_conflicts_is_refused_by_name() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "sed -i s/one/1/ a; echo 2 >src/b; rm gone");
    repo.write("a", "uno\ntwo\nthree\n");
    let before = repo.fingerprint();
    let kinds = repo.kinds("r1");
    for words in ["apply --merge r1", "apply --merge --dry-run r1"] {
        repo.agent(words).with(3).refuses(&["a: conflicts with your edit", "nothing was changed"]);
    }
    // What cannot be merged is refused as without --merge.
    repo.write("a", "one\ntwo\nthree\n");
    repo.write("gone", "edited\n");
    repo.agent("apply --merge r1").with(3).refuses(&["gone: was edited here"]);
    repo.write("gone", "gone\n");
    assert_eq!(repo.kinds("r1"), kinds);
    drop(before);
    // Nothing edited: as approved, whatever --merge says.
    lands_with(&repo, "apply --merge r1");
}

fn lands_with(repo: &Repo, words: &str) {
    repo.agent(words).ok();
    landed(repo, "r1");
}

#[test]
fn a28_no_merge_driver_of_the_run_is_started() {
    let sandbox = Sandbox::new();
    let mark = sandbox.dir().join("mark");
    let script = format!(
        "printf '* merge=m\\n' >.gitattributes; printf '#!/bin/sh\\ntouch {0}\\n' >driver; chmod +x driver; sed -i s/one/1/ a",
        mark.display()
    );
    let repo = approved(&sandbox, &script);
    repo.git("config merge.m.driver ./driver");
    repo.write(".gitattributes", "* merge=m\n");
    std::fs::copy(repo.dir.join("script"), repo.dir.join("driver")).unwrap();
    std::fs::remove_file(repo.dir.join("driver")).unwrap();
    std::fs::remove_file(repo.dir.join(".gitattributes")).unwrap();
    repo.write("a", "one\ntwo\nthree\nmine\n");
    let said = repo.agent("apply --merge --dry-run r1").ok();
    assert!(said.out().contains("+1"), "{}", said.out());
    assert!(!mark.exists());
}

/// Two runs, one path: the second is told which run moved the ground.
#[test]
fn a24_the_run_that_moved_the_ground_is_named() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    for (run, script) in [
        ("r1", "echo 1 >a; rm gone; echo r1 >n"),
        ("r2", "echo 2 >a; echo x >>gone; echo 2 >n; echo 2 >full"),
    ] {
        repo.spawn(&format!("--role developer --run {run}"), script).ok();
        approve(&repo, run);
    }
    dirty(&repo);
    repo.agent("apply r1").ok();
    repo.write("full", "mine\n");
    let before = repo.fingerprint();
    let said = repo.agent("apply r2").with(3);
    for line in ["a: was edited", "gone: was deleted", "n: is in the way"] {
        let found =
            said.err().lines().find(|l| l.contains(line)).unwrap_or_else(|| panic!("{line}: {}", said.err()));
        assert!(found.contains("run 'r1' left it so when it landed"), "{found}");
    }
    let own = said.err().lines().find(|l| l.contains("full: ")).unwrap().to_owned();
    assert!(!own.contains("left it so"), "{own}");
    before.unchanged(&repo.fingerprint());
    // With that undone the second lands.
    repo.agent("apply --undo r1").ok();
    repo.write("full", "full\n");
    repo.agent("apply r2").ok();
    landed(&repo, "r2");
}

#[test]
fn a24_another_work_tree_is_never_touched() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    repo.spawn("--role developer --run r1", EVERYTHING).ok();
    approve(&repo, "r1");
    repo.git("worktree add -q ../other");
    dirty(&repo);
    let other = repo.at("../other");
    // What git keeps of the other work tree lies in the common folder.
    let main_tree =
        || fingerprint(&repo.dir, |p| !p.starts_with(repo.dir.join(".git")) || p.ends_with(".git/index"));
    let (main, before) = (main_tree(), fingerprint(&other.dir, |_| true));
    other.agent("apply r1").ok();
    landed(&other, "r1");
    main.unchanged(&main_tree());
    repo.agent("apply --undo").with(1).refuses(&["nothing that landed in this working tree"]);
    other.agent("apply --undo").ok();
    before.unchanged(&fingerprint(&other.dir, |_| true));
    main.unchanged(&main_tree());
}

/// A save by the person at any moment is where it was saved to, or the apply says where it is.
#[test]
fn a12_saves_during_a_landing_are_never_lost() {
    let (mut landings, mut refused, mut kept) = (0, 0, 0);
    for round in 0_u32..16 {
        let sandbox = Sandbox::new();
        let repo = approved(&sandbox, EVERYTHING);
        let journal = repo.dir.join(".git/agent/apply/journal");
        let ready = || std::fs::read(&journal).is_ok_and(|b| b.iter().filter(|b| **b == b'\n').count() >= 2);
        let target = repo.dir.join(["a", "crlf", "plain", "full", "binary"][round as usize % 5]);
        let text = format!("saved by the person in round {round}\n").into_bytes();
        let said = std::thread::scope(|s| {
            let saver = s.spawn(|| {
                // From the moment in which the moves are about to begin, a little later each time.
                let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
                while !ready() && std::time::Instant::now() < until {
                    std::hint::spin_loop();
                }
                for _ in 0..round * 4000 {
                    std::hint::spin_loop();
                }
                if round % 2 == 0 {
                    std::fs::write(&target, &text).unwrap();
                } else {
                    let temporary = target.with_extension("save");
                    std::fs::write(&temporary, &text).unwrap();
                    std::fs::rename(&temporary, &target).unwrap();
                }
            });
            let said = repo.agent("apply r1");
            saver.join().unwrap();
            said
        });
        if said.status() == 0 {
            let said = said.ok();
            landings += 1;
            if std::fs::read(&target).unwrap() != text {
                // Too late to take anything back: named, and there.
                kept += 1;
                assert!(
                    said.err().contains("was written to while it landed"),
                    "round {round}: {}",
                    said.err()
                );
                let slots = walk(&repo.dir.join(".git/agent/apply"));
                assert!(slots.iter().any(|p| std::fs::read(p).is_ok_and(|b| b == text)), "round {round}");
            }
            repo.agent("apply --undo r1").with(3).refuses(&[]);
        } else {
            refused += 1;
            assert_eq!(
                std::fs::read(&target).unwrap(),
                text,
                "round {round}: the save is where it was saved to"
            );
            assert_eq!(repo.state("r1"), "approved");
        }
        assert!(!journal.exists());
    }
    eprintln!(
        "saves during a landing: {landings} landed, {kept} of them kept aside, {refused} refused, 0 lost"
    );
}

/// bindfs: a real file system without exchange and without no-replace.
struct Bound(std::path::PathBuf);

impl Bound {
    fn new(from: &std::path::Path, at: &std::path::Path) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let said = Command::new("bindfs")
            .args(["-o", "attr_timeout=0"])
            .arg(from)
            .arg(at)
            .output()
            .expect("bindfs is installed");
        assert!(said.status.success(), "bindfs: {}", String::from_utf8_lossy(&said.stderr));
        Self(at.to_owned())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a26_without_exchange_and_noreplace() {
    let sandbox = Sandbox::new();
    let back = sandbox.dir().join("back");
    std::fs::create_dir(&back).unwrap();
    let _bound = Bound::new(&back, &sandbox.dir().join("project"));
    let probe = |n: &str| sandbox.dir().join("project").join(n);
    std::fs::write(probe("x"), "").unwrap();
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    let cwd = rustix::fs::CWD;
    assert!(rustix::fs::renameat_with(cwd, probe("x"), cwd, probe("y"), flags).is_err(), "positive control");
    std::fs::remove_file(probe("x")).unwrap();
    let repo = approved(&sandbox, EVERYTHING);
    let before = repo.fingerprint();
    lands(&repo, EVERY_PATH);
    repo.agent("apply --undo r1").ok();
    before.unchanged(&repo.fingerprint());
    // In the middle: killed at some of its renames and links.
    let mut points = 0;
    for (call, n) in [
        ("linkat", 1),
        ("linkat", 9),
        ("unlinkat", 3),
        ("unlinkat", 12),
        ("renameat", 4),
        ("renameat", 20),
        ("syncfs", 2),
    ] {
        points += usize::from(killed_at(&repo, call, n, "apply r1"));
        repo.agent("list").ok();
        if repo.state("r1") == "applied" {
            landed(&repo, "r1");
            repo.agent("apply --undo r1").ok();
        }
        before.unchanged(&repo.fingerprint());
        nothing_left(&repo);
    }
    assert!(points >= 5, "{points} points were reached");
    // A change while it lands is refused here as well.
    repo.write("crlf", "mine\n");
    repo.agent("apply r1").with(3).refuses(&["crlf: was edited"]);
}

/// The journal on another device than the tree; killed there, too.
#[test]
fn a26_the_journal_on_another_device() {
    let sandbox = Sandbox::new();
    let _mounted = Mounted::tmpfs(&sandbox.dir().join("gitdir"), "size=64m,mode=755");
    let git_dir = sandbox.dir().join("gitdir/project.git");
    let repo = sandbox.repo_with("project", &["--separate-git-dir", git_dir.to_str().unwrap()]);
    repo.spawn("--role developer --run r1", "echo 2 >src/a; rm src/b; echo n >n; mkdir d; echo d >d/d").ok();
    approve(&repo, "r1");
    let before = repo.fingerprint();
    let mut points = 0;
    for (call, n) in
        [("mkdir", 1), ("mkdir", 3), ("renameat2", 1), ("renameat2", 3), ("fsync", 4), ("fsync", 12)]
    {
        points += usize::from(killed_at(&repo, call, n, "apply r1"));
        repo.agent("list").ok();
        if repo.state("r1") == "applied" {
            repo.agent("apply --undo r1").ok();
        }
        before.unchanged(&repo.fingerprint());
        nothing_left(&repo);
    }
    assert!(points >= 3, "{points} points were reached");
    repo.agent("apply r1").ok();
    landed(&repo, "r1");
    assert!(repo.dir.join(".git-agent-apply").exists());
    assert_eq!(repo.git("status --porcelain -- .git-agent-apply"), "");
}

/// Real git-lfs: what the run made is in the main store before the first byte lands; without it nothing does.
#[test]
fn a27_lfs_objects_come_home_or_nothing_lands() {
    let sandbox = Sandbox::new();
    sandbox.run(sandbox.dir(), "git", ["lfs", "install", "--skip-repo"]).ok();
    let repo = sandbox.repo();
    repo.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    repo.write("old.bin", "an old large file\n");
    repo.commit("lfs");
    assert!(repo.git("show HEAD:old.bin").starts_with("version https://git-lfs"));
    repo.spawn(
        "--role developer --run r1",
        "echo a new large file >new.bin; echo changed >old.bin; echo 2 >src/a",
    )
    .ok();
    approve(&repo, "r1");
    assert!(
        repo.git("show wt/r1:new.bin").starts_with("version https://git-lfs"),
        "a pointer is in the snapshot"
    );
    let oid =
        repo.git("show wt/r1:new.bin").lines().nth(1).unwrap().trim_start_matches("oid sha256:").to_owned();
    let object = repo.dir.join(format!(".git/lfs/objects/{}/{}/{oid}", &oid[..2], &oid[2..4]));
    assert_eq!(std::fs::read(&object).unwrap(), b"a new large file\n");
    // One is missing: refused, nothing touched, nobody asked for it.
    let aside = sandbox.dir().join("aside");
    std::fs::rename(&object, &aside).unwrap();
    // git-lfs itself writes there when it compares.
    let tmp = [repo.dir.join(".git/lfs/tmp")];
    let before = repo.fingerprint();
    repo.agent("apply r1").with(3).refuses(&["new.bin: its LFS object", "is not here"]);
    before.without(&tmp).unchanged(&repo.fingerprint().without(&tmp));
    std::fs::rename(&aside, &object).unwrap();
    repo.agent("apply r1").ok();
    assert_eq!(
        [repo.read("new.bin"), repo.read("old.bin"), repo.read("src/a")],
        ["a new large file\n", "changed\n", "2\n"]
    );
    assert_eq!(repo.git("status --porcelain").lines().count(), 3);
}

/// What lies in the run's store under the name of an object and is not it, stays there.
#[test]
fn a27_what_is_not_the_object_is_not_brought_home() {
    let sandbox = Sandbox::new();
    sandbox.run(sandbox.dir(), "git", ["lfs", "install", "--skip-repo"]).ok();
    let repo = sandbox.repo();
    repo.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    repo.commit("lfs");
    let oid = "5".repeat(64);
    // A pointer file goes through the filter as it is.
    let script = |size: u32, make: &str| {
        format!(
            "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:{oid}\\nsize {size}\\n' >x.bin
             d=$(git rev-parse --git-common-dir)/lfs/objects/55/55; mkdir -p $d; {make} $d/{oid}"
        )
    };
    for (run, size, make) in [
        ("link", 7, "ln -s /etc/passwd"),
        ("other", 5, "echo four >"),
        ("fifo", 0, "mkfifo"),
        ("none", 9, "true"),
    ] {
        repo.spawn(&format!("--role developer --run {run}"), &script(size, make)).ok();
        let log = repo.agent(&format!("log --json {run}")).ok().out().to_owned();
        let notes = log.split("\"notes\":").nth(1).unwrap_or_default().to_owned();
        assert!(notes.contains("LFS object of x.bin was not brought home"), "{run}: {notes}");
        approve(&repo, run);
        repo.agent(&format!("apply {run}")).with(3).refuses(&["x.bin: its LFS object"]);
    }
    assert!(!walk(&repo.dir.join(".git/lfs")).iter().any(|p| p.ends_with(&oid)));
    let _ = others(&repo, &[]);
}
