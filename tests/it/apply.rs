//! A: landing. Every test starts from a person's dirty tree; after a refusal or a failure path, mode, bytes,
//! mtime and inode of everything are as before, after success those of everything else are.

use crate::support::*;
use git_agent::ledger::{Draft, Ledger};
use git_agent::model::{Actor, Approve, Body, Digest, How, Kind, Mode, Reject};
use git_agent::ops::land;
use git_agent::ops::show::Shown;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A project with a file of every kind.
pub fn project<'s>(sandbox: &'s Sandbox) -> Repo<'s> {
    let repo = sandbox.empty_repo("project", &[]);
    for (path, text) in [
        ("a", "one\ntwo\nthree\n"),
        ("src/b", "b\n"),
        ("src/deep/c", "c\n"),
        ("gone", "gone\n"),
        ("old/name", "a file that will be renamed\n"),
        ("script", "#!/bin/sh\n"),
        ("plain", "plain\n"),
        ("to-link", "to be a link\n"),
        ("to-folder", "to be a folder\n"),
        ("to-file/x", "x\n"),
        ("to-file/deep/y", "y\n"),
        ("empty", ""),
        ("full", "full\n"),
        ("no-newline", "no newline"),
        ("crlf", "one\r\ntwo\r\n"),
        ("user/staged", "staged\n"),
        ("user/unstaged", "unstaged\n"),
        ("user/both", "both\n"),
        ("user/deleted", "deleted\n"),
        (".gitignore", "*.log\n"),
    ] {
        repo.write(path, text);
    }
    repo.write("binary", (0..=255).collect::<Vec<u8>>());
    set_mode(&repo.dir.join("script"), 0o755);
    std::os::unix::fs::symlink("a", repo.dir.join("link")).unwrap();
    sandbox.give(&repo.dir);
    repo.commit("first");
    repo
}

/// What the person has under way: staged, unstaged, both, deleted, new, untracked, ignored.
pub fn dirty(repo: &Repo) {
    repo.write("user/staged", "staged by the user\n");
    repo.write("user/both", "staged\n");
    repo.write("user/new", "new and staged\n");
    repo.git("add user");
    repo.write("user/both", "staged, then edited\n");
    repo.write("user/unstaged", "edited by the user\n");
    std::fs::remove_file(repo.dir.join("user/deleted")).unwrap();
    repo.write("user/untracked", "untracked\n");
    repo.write("notes/untracked", "untracked\n");
    repo.write("build.log", "ignored\n");
    set_mode(&repo.dir.join("user/untracked"), 0o600);
}

/// A person's yes to the latest result, as a review would record it.
pub fn approve(repo: &Repo, run: &str) -> Digest {
    approve_until(repo, run, None)
}

fn approve_until(repo: &Repo, run: &str, expires: Option<i64>) -> Digest {
    let mut change = None;
    append(repo, run, |spawn, result| {
        change = Some(result.change);
        Body::Approve(Approve {
            repo: spawn.repo.clone(),
            base: result.base.clone(),
            snapshot: result.snapshot.clone(),
            tree: result.tree.clone(),
            change: result.change,
            policy: spawn.policy.sha256,
            target: spawn.target.clone(),
            mode: Mode::Carry,
            how: How::Terminal,
            expires,
        })
    });
    change.unwrap()
}

fn append(
    repo: &Repo,
    run: &str,
    body: impl FnOnce(&git_agent::model::Spawn, &git_agent::model::RunResult) -> Body,
) {
    let owned = |uid: &str| {
        let changed = Command::new("chown").args(["-R", uid]).arg(&repo.dir).status().unwrap();
        assert!(changed.success());
    };
    let of_user = std::fs::metadata(&repo.dir).unwrap().uid() == USER;
    if of_user {
        // The library works as us here.
        owned("0:0");
    }
    let found = git_agent::git::Repo::discover(&repo.dir).unwrap();
    let ledger = Ledger::new(&found);
    let tip = ledger.resolve(run).unwrap();
    let chain = ledger.chain(&tip).unwrap();
    let events: Vec<_> = chain.known().map(|(_, e)| &e.body).collect();
    let Body::Spawn(spawn) = events[0] else { panic!("no spawn") };
    let result = events
        .iter()
        .rev()
        .find_map(|b| match b {
            Body::Result(r) => Some(r),
            _ => None,
        })
        .unwrap();
    let draft = Draft {
        body: body(spawn, result),
        att: Vec::new(),
        evidence: Vec::new(),
        time: 1_700_000_000,
        actor: Actor { name: "Tess".into(), email: "tess@example.org".into() },
    };
    ledger.append(&tip.run, &draft, |_| Ok(())).unwrap();
    if of_user {
        owned(&format!("{USER}:{USER}"));
    }
}

/// Spawns a run that does what `script` says and is approved; then makes the person's mess.
pub fn approved<'s>(sandbox: &'s Sandbox, script: &str) -> Repo<'s> {
    let repo = project(sandbox);
    repo.spawn("--role developer --run r1", script).ok();
    approve(&repo, "r1");
    dirty(&repo);
    repo
}

/// Everything of the person's but the named paths and the folders above them.
pub fn others(repo: &Repo, touched: &[&str]) -> Fingerprint {
    let mut not: BTreeSet<PathBuf> = BTreeSet::new();
    for path in touched {
        not.extend(repo.dir.join(path).ancestors().map(Path::to_owned));
    }
    let git = repo.dir.join(".git");
    let below: Vec<PathBuf> = touched.iter().map(|p| repo.dir.join(p)).collect();
    fingerprint(&repo.dir, |path| {
        let ours = ["objects", "refs", "logs", "agent"].iter().any(|n| path.starts_with(git.join(n)));
        !(ours || path == git || not.contains(path) || below.iter().any(|b| path.starts_with(b)))
    })
}

/// `apply` refuses with this status and these words; not a thing changed, and no event was appended.
#[track_caller]
fn refuses(repo: &Repo, status: i32, words: &[&str]) {
    let before = repo.fingerprint();
    let kinds = repo.kinds("r1");
    for dry in [true, false] {
        let args = if dry { "apply --dry-run r1" } else { "apply r1" };
        repo.agent(args).with(status).refuses(words);
    }
    before.unchanged(&repo.fingerprint());
    assert_eq!(repo.kinds("r1"), kinds);
    nothing_left(repo);
}

/// No journal, no folder of a landing but those that undo records need, no lock file that git would stumble over.
#[track_caller]
pub fn nothing_left(repo: &Repo) {
    let git_dir = PathBuf::from(repo.git("rev-parse --path-format=absolute --git-dir"));
    let names = |dir: &Path| -> BTreeSet<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|e| e.file_name().into_string().unwrap()).collect()
    };
    let records = names(&git_dir.join("agent/apply/undo"));
    let mut slots = names(&git_dir.join("agent/apply"));
    slots.extend(names(&repo.dir.join(".git-agent-apply")));
    // A slot that nobody needs is deleted in the background; half a journal that never got its name goes with the
    // next landing.
    slots.retain(|n| {
        !(["lock", "undo", ".gitignore"].contains(&n.as_str())
            || n.starts_with("gone-")
            || n.ends_with(".tmp"))
    });
    let records: BTreeSet<String> = records.into_iter().filter(|n| !n.ends_with(".tmp")).collect();
    assert_eq!(slots, records);
    if records.is_empty() {
        assert!(!repo.dir.join(".git-agent-apply").exists());
    }
    assert!(!git_dir.join("index.lock").exists());
}

/// Every path that the run changed is on disk as in the snapshot.
#[track_caller]
pub fn landed(repo: &Repo, run: &str) -> Vec<String> {
    let shown = repo.show(run);
    let snapshot = shown["result"]["snapshot"].as_str().unwrap().to_owned();
    let base = shown["base"].as_str().unwrap().to_owned();
    let out = repo.sandbox.dir().join("extracted");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir(&out).unwrap();
    repo.sandbox.give(&out);
    let tar = out.with_extension("tar");
    repo.git_args(["archive", "-o", tar.to_str().unwrap(), &snapshot]);
    repo.sandbox.run(&out, "tar", ["xf", tar.to_str().unwrap()]).ok();
    let said = repo
        .sandbox
        .run(&repo.dir, "git", ["diff-tree", "-r", "-z", "--no-renames", "--name-only", &base, &snapshot])
        .ok();
    let mut paths = Vec::new();
    for path in said.stdout.split(|b| *b == 0).filter(|p| !p.is_empty()) {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let (want, have) = (out.join(path), repo.dir.join(path));
        let look = |p: &Path| {
            // Below a file there is nothing.
            let meta = std::fs::symlink_metadata(p).ok().filter(|m| !m.is_dir())?;
            let content = if meta.is_symlink() {
                std::fs::read_link(p).unwrap().into_os_string().into_encoded_bytes()
            } else {
                std::fs::read(p).unwrap()
            };
            Some((meta.file_type(), meta.permissions().mode() & 0o100, content))
        };
        assert!(look(&want) == look(&have), "{} is not as in the snapshot", path.display());
        paths.push(path.to_string_lossy().into_owned());
    }
    paths
}

/// Applies and checks: everything of the run landed, everything else and the index are as before.
#[track_caller]
pub fn lands(repo: &Repo, touched: &[&str]) {
    let before = others(repo, touched);
    let staged = repo.git("diff --cached --raw");
    let head = repo.git("rev-parse HEAD");
    repo.agent("apply r1").ok();
    landed(repo, "r1");
    before.unchanged(&others(repo, touched));
    assert_eq!(repo.git("diff --cached --raw"), staged);
    assert_eq!(repo.git("rev-parse HEAD"), head);
    assert_eq!(repo.state("r1"), "applied");
    nothing_left(repo);
}

pub const EVERYTHING: &str = "printf 'one\\n2\\nthree\\nfour\\n' >a; rm gone; git mv old/name new-name; mv src/b src/moved
    chmod +x plain; chmod -x script; rm to-link; ln -s src/moved to-link; rm link; echo file >link
    rm to-folder; mkdir -p to-folder/deep; echo in >to-folder/deep/in; rm -r to-file; echo now a file >to-file
    echo full >empty; : >full; printf 'still none' >no-newline; printf 'one\\r\\n2\\r\\n' >crlf
    printf '\\000\\001\\377' >binary; head -c 3000000 /dev/urandom >random
    ln -s nowhere dangling; ln -s /etc/passwd absolute; mkdir -p new/deep; echo new >new/deep/file
    echo x >new/exec; chmod +x new/exec; mkdir odd; cd odd
    for n in -dash 'a space' 'quote\"' 'back\\slash' '*[a]?' ':(glob)' 'trailing ' 'a=>b'; do echo odd >\"./$n\"; done
    echo odd >\"$(printf 'tab\\tname')\"; echo odd >\"$(printf 'line\\nfeed')\"; echo odd >\"$(printf 'bad\\377')\"
    echo odd >\"$(printf 'bell\\001')\"; cd ..; git add -A; git commit -qm 'by the agent'; echo later >>a";

pub const EVERY_PATH: &[&str] = &[
    "a",
    "gone",
    "old",
    "new-name",
    "src/b",
    "src/moved",
    "plain",
    "script",
    "to-link",
    "link",
    "to-folder",
    "to-file",
    "empty",
    "full",
    "no-newline",
    "crlf",
    "binary",
    "random",
    "dangling",
    "absolute",
    "new",
    "odd",
];

#[test]
fn a01_every_kind_of_change_lands_exactly() {
    for (git, _) in gits() {
        let sandbox = Sandbox::new().with_git(&git);
        let repo = approved(&sandbox, EVERYTHING);
        let said = repo.agent("apply --dry-run r1").ok();
        assert!(said.out().contains("change  a") && said.out().contains("delete  gone"), "{}", said.out());
        lands(&repo, EVERY_PATH);
        assert!(!repo.dir.join("old").exists(), "a folder that became empty goes");
        assert!(repo.dir.join("src/deep/c").exists());
        assert_eq!(repo.kinds("r1").last().unwrap(), "apply");
    }
}

#[test]
fn a01_as_an_ordinary_user() {
    let sandbox = Sandbox::as_user();
    let repo = approved(&sandbox, EVERYTHING);
    lands(&repo, EVERY_PATH);
}

#[test]
fn a01_sha256_and_a_linked_work_tree() {
    let sandbox = Sandbox::new();
    let repo = sandbox.repo_with("project", &["--object-format=sha256"]);
    repo.spawn("--role developer --run r1", "echo new >src/a; echo n >new").ok();
    approve(&repo, "r1");
    repo.git("worktree add -q ../other");
    let other = repo.at("../other");
    other.agent("apply r1").ok();
    landed(&other, "r1");
    assert_eq!(repo.read("src/a"), "one\ntwo\nthree\n");
    nothing_left(&other);
}

#[test]
fn a01_json_and_dry_run_touch_nothing() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; rm gone; echo n >n");
    let before = repo.fingerprint();
    // git itself renews the time of an object that it would have written again.
    let objects = walk(&repo.dir.join(".git/objects"));
    let said = repo.agent("apply --dry-run --json r1").ok().json();
    before.unchanged(&repo.fingerprint());
    assert_eq!(objects, walk(&repo.dir.join(".git/objects")));
    assert_eq!(said["v"], 1);
    assert_eq!(said["dry_run"], true);
    let done = repo.agent("apply --json r1").ok().json();
    assert_eq!(done["paths"], said["paths"]);
    let operations: Vec<_> = said["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| format!("{} {}", p["operation"], p["path"]))
        .collect();
    assert_eq!(operations, ["\"change\" \"a\"", "\"delete\" \"gone\"", "\"create\" \"n\""]);
    assert!(done.get("digest").is_none());
}

#[test]
fn a02_an_edited_path_is_refused_by_name() {
    for kind in ["unstaged", "staged", "both", "deleted", "mode"] {
        let sandbox = Sandbox::new();
        let repo = approved(&sandbox, "echo 2 >a; echo 2 >src/b; echo n >n");
        match kind {
            "deleted" => std::fs::remove_file(repo.dir.join("src/b")).unwrap(),
            "mode" => set_mode(&repo.dir.join("src/b"), 0o755),
            _ => repo.write("src/b", "mine\n"),
        }
        if kind == "staged" || kind == "both" {
            repo.git("add src/b");
        }
        if kind == "both" {
            repo.write("src/b", "mine again\n");
        }
        refuses(&repo, 3, &["1 path of run 'r1'", "src/b: was", "git apply -3", "git agent checkout r1"]);
        assert_eq!(repo.state("r1"), "approved");
    }
}

#[test]
fn a02_staged_and_then_put_back_is_no_edit() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a");
    repo.write("a", "mine\n");
    repo.git("add a");
    repo.write("a", "one\ntwo\nthree\n");
    lands(&repo, &["a"]);
    assert_eq!(repo.git("show :a"), "mine");
}

#[test]
fn a03_edits_of_other_files_stay() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; rm src/deep/c; echo n >user/by-the-run");
    lands(&repo, &["a", "src/deep/c", "user/by-the-run"]);
    assert!(repo.dir.join("src/b").exists());
    assert!(!repo.dir.join("src/deep").exists());
    assert_eq!(repo.read("user/both"), "staged, then edited\n");
}

#[test]
fn a04_what_is_in_the_way_is_refused_by_name() {
    let script =
        "echo n >n; mkdir d; echo x >d/x; rm -r to-file; echo f >to-file; echo l >x.log; git add -f x.log";
    let case = |prepare: &dyn Fn(&Repo), words: &[&str]| {
        let sandbox = Sandbox::new();
        let repo = approved(&sandbox, script);
        prepare(&repo);
        refuses(&repo, 3, words);
    };
    case(&|r| r.write("n", "mine\n"), &["n: is in the way"]);
    case(&|r| r.write("d/x", "mine\n"), &["d/x: is in the way"]);
    case(&|r| r.write("x.log", "ignored\n"), &["x.log: is in the way"]);
    case(&|r| r.write("d", "a file\n"), &["d/x: d is a file here"]);
    case(&|r| std::fs::create_dir(r.dir.join("n")).unwrap(), &["n: is a folder here"]);
    case(&|r| r.write("to-file/mine", "mine\n"), &["to-file: to-file/mine is in the way"]);
    case(&|r| r.write("to-file/deep/my.log", "ignored\n"), &["to-file/deep/my.log is in the way"]);
    case(&|r| std::os::unix::fs::symlink("user", r.dir.join("d")).unwrap(), &["d is a symbolic link"]);
}

#[test]
fn a05_the_same_edit_by_hand_is_already_applied() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; rm gone; echo n >n; chmod +x plain");
    repo.write("a", "2\n");
    std::fs::remove_file(repo.dir.join("gone")).unwrap();
    repo.write("n", "n\n");
    set_mode(&repo.dir.join("plain"), 0o755);
    let before = repo.fingerprint();
    let said = repo.agent("apply r1").ok();
    assert!(said.out().contains("already applied"), "{}", said.out());
    before.unchanged(&repo.fingerprint());
    let log = repo.agent("log --json r1").ok().json();
    let last = log["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["kind"], &last["body"]["files"]), (&"apply".into(), &0.into()));
}

#[test]
fn a05_half_of_it_by_hand_lands_the_rest() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; rm gone; echo n >n");
    repo.write("a", "2\n");
    let a = std::fs::metadata(repo.dir.join("a")).unwrap().ino();
    let said = repo.agent("apply r1").ok();
    assert!(said.out().contains("1 file here already"), "{}", said.out());
    landed(&repo, "r1");
    assert_eq!(std::fs::metadata(repo.dir.join("a")).unwrap().ino(), a);
}

#[test]
fn a06_repeated_context_is_never_guessed() {
    let body = |n: usize| {
        (0..n).map(|i| format!("fn f() {{\n    call();\n}}\n// {}\n", i / 100)).collect::<String>()
    };
    let sandbox = Sandbox::new();
    let repo = sandbox.repo();
    repo.write("src/a", body(20));
    repo.commit("functions");
    repo.spawn("--role developer --run r1", "sed -i '58s/call/other/' src/a").ok();
    approve(&repo, "r1");
    repo.write("src/a", body(12));
    repo.commit("fewer");
    refuses(&repo, 3, &["src/a: was edited here"]);
}

#[test]
fn a07_settings_of_the_user_do_not_change_the_bytes() {
    for settings in [
        &["apply.whitespace=fix", "core.whitespace=tab-in-indent,cr-at-eol"][..],
        &["apply.whitespace=error", "apply.ignoreWhitespace=change"],
        &["core.autocrlf=input"],
        &["core.autocrlf=true", "core.safecrlf=true"],
        &["diff.noprefix=true", "diff.mnemonicPrefix=true", "diff.context=0", "diff.external=false"],
        &["core.splitIndex=true", "feature.manyFiles=true"],
    ] {
        let sandbox = Sandbox::new();
        let repo = sandbox.repo();
        repo.write("crlf", "one\r\ntwo\r\n");
        repo.commit("crlf");
        let script = "printf 'one  \\n\\t two\\n' >src/a; printf 'one\\r\\n2\\r\\n' >crlf";
        repo.spawn("--role developer --run r1", script).ok();
        approve(&repo, "r1");
        for setting in settings {
            let (key, value) = setting.split_once('=').unwrap();
            repo.git_args(["config", key, value]);
        }
        let before = others(&repo, &["src/a", "crlf"]);
        repo.agent("apply r1").ok();
        before.unchanged(&others(&repo, &["src/a", "crlf"]));
        let crlf = settings.contains(&"core.autocrlf=true");
        assert_eq!(repo.read("src/a"), if crlf { "one  \r\n\t two\r\n" } else { "one  \n\t two\n" });
        assert_eq!(repo.read("crlf"), "one\r\n2\r\n");
    }
}

#[test]
fn a08_new_attributes_count_as_in_a_checkout() {
    let sandbox = Sandbox::new();
    let repo = approved(
        &sandbox,
        "printf '*.bat text eol=crlf\\n*.u text working-tree-encoding=UTF-16LE\\n' >.gitattributes
         printf 'a\\r\\nb\\r\\n' >x.bat; printf 'a\\000b\\000' >x.u",
    );
    repo.agent("apply r1").ok();
    assert_eq!(repo.read("x.bat"), "a\r\nb\r\n");
    assert_eq!(repo.read("x.u"), "a\0b\0");
}

#[test]
fn a09_from_a_sub_folder_nothing_is_skipped() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; echo 2 >src/b; rm src/deep/c; echo n >n");
    let before = others(&repo, &["a", "src/b", "src/deep/c", "n"]);
    repo.at("src/deep").agent("apply r1").ok();
    landed(&repo, "r1");
    before.unchanged(&others(&repo, &["a", "src/b", "src/deep/c", "n"]));
    assert!(repo.dir.join("src/deep").exists(), "the folder that the caller stands in stays");
}

/// An immutable file half way: EPERM in the middle of the exchanges.
#[test]
fn a10_an_immutable_file_takes_everything_back() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, EVERYTHING);
    for victim in ["plain", "to-file/deep/y", "script"] {
        let victim = repo.dir.join(victim);
        let chattr = |how: &str| Command::new("chattr").arg(how).arg(&victim).status().unwrap().success();
        assert!(chattr("+i"), "this test needs a file system with chattr +i");
        let before = repo.fingerprint();
        let ended = repo.agent("apply r1");
        let after = repo.fingerprint();
        assert!(chattr("-i"));
        ended.with(128).refuses(&["nothing was changed", "taken back"]);
        before.unchanged(&after);
        nothing_left(&repo);
    }
    assert_eq!(repo.state("r1"), "approved");
    lands(&repo, EVERY_PATH);
}

/// EPERM when a name is made, after other steps were done.
#[test]
fn a10_an_immutable_folder_takes_everything_back() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; rm gone; mkdir -p z/y; echo n >z/y/n; echo 3 >user/by-the-run");
    let victim = repo.dir.join("user");
    let chattr = |how: &str| Command::new("chattr").arg(how).arg(&victim).status().unwrap().success();
    assert!(chattr("+i"), "this test needs a file system with chattr +i");
    let before = repo.fingerprint();
    let ended = repo.agent("apply r1");
    let after = repo.fingerprint();
    assert!(chattr("-i"));
    ended.fails().refuses(&["nothing was changed"]);
    before.unchanged(&after);
    nothing_left(&repo);
    lands(&repo, &["a", "gone", "z", "user/by-the-run"]);
}

#[test]
fn a10_a_read_only_folder_is_named_before_anything_is_touched() {
    let sandbox = Sandbox::as_user();
    let repo = approved(&sandbox, "echo 2 >a; echo 2 >src/deep/c");
    set_mode(&repo.dir.join("src/deep"), 0o555);
    refuses(&repo, 3, &["src/deep/c: src/deep is not writable"]);
    set_mode(&repo.dir.join("src/deep"), 0o755);
}

/// A real small file system that fills up while the new files are written.
#[test]
fn a10_a_full_disk_changes_nothing() {
    let sandbox = Sandbox::new();
    let _mounted = Mounted::tmpfs(&sandbox.dir().join("project"), "size=4m,mode=755");
    let repo = sandbox.repo_with("project", &[]);
    repo.spawn(
        "--role developer --run r1",
        "head -c 900000 /dev/zero | tr '\\0' x >big; echo 2 >src/a; rm README",
    )
    .ok();
    approve(&repo, "r1");
    repo.write("mine", "mine\n");
    let mut filler = Vec::new();
    // Leaves less than the new file needs, and once so little that the check of free space still passes.
    let free = rustix::fs::statvfs(&repo.dir).unwrap();
    let free = (free.f_bavail * free.f_frsize) as usize;
    filler.resize(free - 500_000, b'f');
    repo.write("filler", &filler);
    refuses(&repo, 128, &["nothing was changed"]);
    filler.truncate(free - 920_000);
    std::fs::remove_file(repo.dir.join("filler")).unwrap();
    repo.write("filler", &filler);
    let before = repo.fingerprint();
    repo.agent("apply r1").fails().refuses(&[]);
    before.unchanged(&repo.fingerprint());
    nothing_left(&repo);
    std::fs::remove_file(repo.dir.join("filler")).unwrap();
    repo.agent("apply r1").ok();
    landed(&repo, "r1");
}

/// The git directory on another device than the tree: staged inside the tree, without a trace.
#[test]
fn a10_the_git_directory_on_another_device() {
    let sandbox = Sandbox::new();
    let _mounted = Mounted::tmpfs(&sandbox.dir().join("gitdir"), "size=32m,mode=755");
    let git_dir = sandbox.dir().join("gitdir/project.git");
    let repo = sandbox.repo_with("project", &["--separate-git-dir", git_dir.to_str().unwrap()]);
    repo.spawn("--role developer --run r1", "echo 2 >src/a; rm src/b; echo n >n").ok();
    approve(&repo, "r1");
    repo.write("mine", "mine\n");
    let victim = repo.dir.join("src/b");
    let chattr = |how: &str| Command::new("chattr").arg(how).arg(&victim).status().unwrap().success();
    assert!(chattr("+i"));
    let before = repo.fingerprint();
    let ended = repo.agent("apply r1");
    let after = repo.fingerprint();
    assert!(chattr("-i"));
    ended.with(128).refuses(&["taken back"]);
    before.unchanged(&after);
    nothing_left(&repo);
    repo.agent("apply r1").ok();
    landed(&repo, "r1");
    nothing_left(&repo);
}

#[test]
fn a10_a_mount_inside_the_tree_is_refused() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; echo n >src/deep/n");
    std::fs::remove_dir_all(repo.dir.join("src/deep")).unwrap();
    let _mounted = Mounted::tmpfs(&repo.dir.join("src/deep"), "size=1m,mode=755");
    refuses(&repo, 3, &["src/deep/n: src/deep is on another file system"]);
}

#[test]
fn a12_a_folder_that_became_a_link_is_refused() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >src/deep/c; echo n >src/deep/n");
    let outside = sandbox.dir().join("outside");
    std::fs::rename(repo.dir.join("src/deep"), &outside).unwrap();
    std::os::unix::fs::symlink(&outside, repo.dir.join("src/deep")).unwrap();
    let before = fingerprint(&outside, |_| true);
    refuses(&repo, 3, &["src/deep/n: src/deep is a symbolic link"]);
    before.unchanged(&fingerprint(&outside, |_| true));
}

#[test]
fn a13_in_the_middle_of_something_nothing_lands() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a");
    let git = repo.dir.join(".git");
    let head = repo.git("rev-parse HEAD");
    for (name, words) in [
        ("MERGE_HEAD", "a merge is in progress"),
        ("CHERRY_PICK_HEAD", "a cherry-pick is in progress"),
        ("REVERT_HEAD", "a revert is in progress"),
        ("BISECT_LOG", "a bisect is in progress"),
        ("index.lock", "index.lock"),
    ] {
        std::fs::write(git.join(name), format!("{head}\n")).unwrap();
        let before = repo.fingerprint();
        repo.agent("apply r1").with(128).refuses(&[words]);
        before.unchanged(&repo.fingerprint());
        std::fs::remove_file(git.join(name)).unwrap();
    }
    for name in ["rebase-merge", "rebase-apply"] {
        std::fs::create_dir(git.join(name)).unwrap();
        refuses(&repo, 128, &["a rebase"]);
        std::fs::remove_dir(git.join(name)).unwrap();
    }
    lands(&repo, &["a"]);
}

#[test]
fn a13_a_real_conflict_in_the_index() {
    let sandbox = Sandbox::new();
    let repo = sandbox.repo();
    repo.spawn("--role developer --run r1", "echo 2 >README").ok();
    approve(&repo, "r1");
    repo.git("switch -qc other");
    repo.write("src/b", "theirs\n");
    repo.commit("theirs");
    repo.git("switch -q main");
    repo.write("src/b", "ours\n");
    repo.commit("ours");
    sandbox.run(&repo.dir, "git", ["merge", "-q", "other"]).with(1);
    refuses(&repo, 128, &["a merge is in progress", "git merge --abort"]);
    std::fs::remove_file(repo.dir.join(".git/MERGE_HEAD")).unwrap();
    refuses(&repo, 128, &["unmerged paths"]);
}

#[test]
fn a13_a_bare_repository_has_no_place_to_land() {
    let sandbox = Sandbox::new();
    let repo = sandbox.repo();
    repo.spawn("--role developer --run r1", "echo 2 >README").ok();
    approve(&repo, "r1");
    repo.at(".git").agent("apply r1").with(128).refuses(&["no working tree"]);
}

#[test]
fn a14_a_base_that_moved_elsewhere_does_not_matter() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    repo.spawn("--role developer --run r1", "echo 2 >a; rm src/b; echo n >n").ok();
    approve(&repo, "r1");
    repo.write("plain", "moved on\n");
    repo.git("mv old renamed");
    repo.commit("moved on");
    dirty(&repo);
    lands(&repo, &["a", "src/b", "n"]);
    assert_eq!(repo.read("plain"), "moved on\n");
}

#[test]
fn a14_a_base_that_moved_here_is_refused() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    repo.spawn("--role developer --run r1", "echo 2 >a; rm src/b; echo n >n").ok();
    approve(&repo, "r1");
    repo.write("a", "moved on\n");
    repo.commit("moved on");
    dirty(&repo);
    refuses(&repo, 3, &["a: was edited here"]);
}

#[test]
fn a15_permissions_are_kept_and_links_named() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; echo 2 >src/b; echo 2 >>script; chmod +x plain; echo 2 >full");
    set_mode(&repo.dir.join("a"), 0o444);
    set_mode(&repo.dir.join("src/b"), 0o600);
    set_mode(&repo.dir.join("script"), 0o700);
    set_mode(&repo.dir.join("plain"), 0o640);
    std::fs::hard_link(repo.dir.join("full"), sandbox.dir().join("second-name")).unwrap();
    rustix::fs::setxattr(repo.dir.join("a"), "user.mine", b"kept", rustix::fs::XattrFlags::empty()).unwrap();
    std::os::unix::fs::chown(repo.dir.join("full"), Some(4242), Some(4243)).unwrap();
    repo.agent("apply r1").ok().says(&["full had 2 names"]);
    let mode = |p: &str| std::fs::metadata(repo.dir.join(p)).unwrap().mode() & 0o7777;
    assert_eq!(["a", "src/b", "script", "plain"].map(mode), [0o444, 0o600, 0o700, 0o750]);
    let mut value = [0; 16];
    let n = rustix::fs::getxattr(repo.dir.join("a"), "user.mine", &mut value[..]).unwrap();
    assert_eq!(&value[..n], b"kept");
    let full = std::fs::metadata(repo.dir.join("full")).unwrap();
    assert_eq!((full.uid(), full.gid()), (4242, 4243));
    assert_eq!(std::fs::read(sandbox.dir().join("second-name")).unwrap(), b"full\n");
}

/// A snapshot that no git would check out, written object by object.
fn forged(repo: &Repo, entries: &[(&str, &str)]) {
    repo.spawn("--role developer --run r1", "echo 2 >a").ok();
    let found = git_agent::git::Repo::discover(&repo.dir).unwrap();
    let objects = found.objects().unwrap();
    let base: git_agent::model::Oid = repo.git("rev-parse HEAD").parse().unwrap();
    let base_data = objects.commit(&base).unwrap();
    let mut tree = objects.tree(&base_data.tree).unwrap();
    for (name, mode) in entries {
        let mode = u32::from_str_radix(mode, 8).unwrap();
        let blob = git_agent::git::ObjectKind::Blob;
        let mut oid = objects.write(blob, b"forged\n").unwrap();
        if mode == 0o160_000 {
            oid = base.clone();
        }
        if mode == 0o040_000 {
            let below = vec![git_agent::git::TreeEntry { mode: 0o100_644, name: b"config".to_vec(), oid }];
            let bytes = git_agent::git::tree_bytes(below);
            oid = objects.write(git_agent::git::ObjectKind::Tree, &bytes).unwrap();
        }
        tree.push(git_agent::git::TreeEntry { mode, name: name.as_bytes().to_vec(), oid });
    }
    let tree_oid =
        objects.write(git_agent::git::ObjectKind::Tree, &git_agent::git::tree_bytes(tree)).unwrap();
    let commit = git_agent::git::commit_bytes(
        &tree_oid,
        std::slice::from_ref(&base),
        "x <x@x>",
        base_data.time,
        "forged",
    );
    let snapshot = objects.write(git_agent::git::ObjectKind::Commit, &commit).unwrap();
    let changes = git_agent::ledger::change::entries(&found, &base, &snapshot).unwrap();
    let change = git_agent::ledger::change::digest(&found, &changes).unwrap();
    append(repo, "r1", |_, result| {
        let mut result = result.clone();
        (result.snapshot, result.tree, result.change) = (snapshot, tree_oid, change);
        result.files = changes.len() as u64;
        Body::Result(result)
    });
    approve(repo, "r1");
    dirty(repo);
}

#[test]
fn a16_names_that_are_dot_git_somewhere_are_refused() {
    for name in [".git", ".GIT", "git~1", ".git ", ".gIt::$INDEX_ALLOCATION", ".g\u{200c}it", ".."] {
        let sandbox = Sandbox::new();
        let repo = project(&sandbox);
        let mode = if name == ".git" { "040000" } else { "100644" };
        forged(&repo, &[(name, mode)]);
        refuses(&repo, 3, &["1 path of run 'r1'", "a name"]);
    }
}

#[test]
fn a16_a_nested_repository_is_refused() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "mkdir nested; echo n >nested/n; echo 2 >a");
    repo.git("init -q nested");
    refuses(&repo, 3, &["nested/n: nested is a repository of its own"]);
}

#[test]
fn a17_a_submodule_change_is_refused_with_the_reason() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    forged(&repo, &[("sub", "160000")]);
    refuses(&repo, 3, &["sub: adds a submodule", "git submodule"]);
}

#[test]
fn a18_outside_the_sparse_checkout_is_refused_by_name() {
    for (git, _) in gits() {
        let sandbox = Sandbox::new().with_git(&git);
        let repo = project(&sandbox);
        repo.spawn("--role developer --run r1", "echo 2 >a; echo 2 >src/deep/c; echo n >src/deep/n").ok();
        approve(&repo, "r1");
        repo.git("sparse-checkout set user old");
        assert!(!repo.dir.join("src").exists());
        refuses(&repo, 3, &["src/deep/c", "src/deep/n: is outside the sparse checkout"]);
    }
}

#[test]
fn a19_of_two_applies_one_wins() {
    let sandbox = Sandbox::new();
    // A filter that waits makes the first apply stand in the middle of its staging.
    let repo = project(&sandbox);
    repo.write(".gitattributes", "a filter=slow\n");
    repo.commit("attributes");
    repo.spawn("--role developer --run r1", "echo 2 >a").ok();
    approve(&repo, "r1");
    dirty(&repo);
    let gate = sandbox.dir().join("gate");
    let here = sandbox.dir().join("here");
    let smudge =
        format!("touch {}; while [ ! -e {} ]; do sleep 0.01; done; cat", here.display(), gate.display());
    repo.git_args(["config", "filter.slow.smudge", &smudge]);
    repo.git_args(["config", "filter.slow.clean", "cat"]);
    let first = Running(Some(repo.agent_command(["apply", "r1"]).spawn().unwrap()));
    eventually("the first apply is at work", || here.exists());
    let before = repo.fingerprint();
    repo.agent("apply r1").with(128).refuses(&["another git agent apply is at work"]);
    before.unchanged(&repo.fingerprint());
    std::fs::write(&gate, "").unwrap();
    first.end().ok();
    landed(&repo, "r1");
    assert_eq!(repo.kinds("r1").iter().filter(|k| *k == "apply").count(), 1);
}

#[test]
fn a19_many_at_once_record_one_landing() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, EVERYTHING);
    let all: Vec<_> =
        (0..8).map(|_| Running(Some(repo.agent_command(["apply", "r1"]).spawn().unwrap()))).collect();
    let statuses: Vec<i32> = all.into_iter().map(|r| r.end().status()).collect();
    assert!(statuses.contains(&0), "{statuses:?}");
    landed(&repo, "r1");
    assert_eq!(repo.kinds("r1").iter().filter(|k| *k == "apply").count(), 1);
    nothing_left(&repo);
}

#[test]
fn a20_only_what_is_approved_now_lands() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    repo.spawn("--role developer --run r1", "echo 2 >a").ok();
    dirty(&repo);
    refuses(&repo, 4, &["nobody has approved", "git agent review r1"]);
    approve_until(&repo, "r1", Some(1_700_000_001));
    refuses(&repo, 4, &["has expired"]);
    let digest = approve_until(&repo, "r1", Some(4_000_000_000));
    let other = Digest::of(b"something else");
    let before = repo.fingerprint();
    repo.agent(&format!("apply --digest {other} r1")).with(4).refuses(&["is approved as"]);
    repo.agent("apply --digest sha256:1 r1").with(129).refuses(&["not a digest"]);
    before.unchanged(&repo.fingerprint());
    append(&repo, "r1", |_, r| Body::Reject(Reject { snapshot: Some(r.snapshot.clone()), reason: None }));
    refuses(&repo, 4, &["was rejected"]);
    // A new yes to the same change counts again.
    approve(&repo, "r1");
    repo.agent(&format!("apply --digest {digest} r1")).ok();
    landed(&repo, "r1");
}

#[test]
fn a20_applied_already() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a");
    repo.agent("apply r1").ok();
    let before = repo.fingerprint();
    let kinds = repo.kinds("r1");
    let said = repo.agent("apply r1").ok();
    assert!(said.out().contains("already applied"), "{}", said.out());
    before.unchanged(&repo.fingerprint());
    assert_eq!(repo.kinds("r1"), kinds, "no second event");
    repo.write("a", "one\ntwo\nthree\n");
    refuses(&repo, 4, &["was applied already", "git agent review r1"]);
}

#[test]
fn a20_a_new_result_needs_a_new_approval() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a");
    repo.agent_args(["exec", "r1", "--", "sh", "-c", "echo 3 >a"]).ok();
    // R28: what was looked at is what lands, whatever the tree holds meanwhile.
    let said = repo.agent("apply --dry-run r1").ok();
    assert!(said.out().contains("change  a"));
    repo.agent("finish r1").ok();
    refuses(&repo, 4, &["nobody has approved"]);
}

#[test]
fn a23_the_time_of_what_landed_is_now() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; chmod +x plain; echo n >n");
    let start = std::time::SystemTime::now() - std::time::Duration::from_secs(2);
    repo.agent("apply r1").ok();
    for path in ["a", "plain", "n"] {
        assert!(std::fs::metadata(repo.dir.join(path)).unwrap().modified().unwrap() > start, "{path}");
    }
}

#[test]
fn a28_programs_of_the_run_are_never_started() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    let mark = sandbox.dir().join("mark");
    let script = format!(
        "printf '* filter=f diff=d merge=m\\n' >.gitattributes; mkdir tools; echo 2 >a; rm gone
         printf '#!/bin/sh\\ntouch {0}\\ncat\\n' >tools/x; chmod +x tools/x; cp tools/x script",
        mark.display()
    );
    repo.spawn("--role developer --run r1", &script).ok();
    approve(&repo, "r1");
    dirty(&repo);
    for key in ["filter.f.smudge", "filter.f.process", "diff.d.textconv", "diff.d.command", "merge.m.driver"]
    {
        repo.git_args(["config", key, "./tools/x"]);
    }
    refuses(&repo, 3, &["a: goes through the filter 'f'", "./tools/x"]);
    assert!(!mark.exists());
    repo.git("config --unset filter.f.process");
    repo.git("config --unset filter.f.smudge");
    repo.agent("apply r1").ok();
    landed(&repo, "r1");
    assert!(!mark.exists());
}

#[test]
fn r21b_a_conflict_appends_nothing_and_says_how_to_go_on() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "sed -i s/one/1/ a");
    repo.write("a", "mine\n");
    refuses(&repo, 3, &["a: was edited here", "git agent checkout r1", "git apply -3"]);
    assert_eq!(repo.state("r1"), "approved");
    assert!(repo.tree("r1").exists());
    // The printed recovery works, once the edit is committed.
    repo.write("a", "one\ntwo\nthree\nmine\n");
    let said = repo.agent("apply r1").with(3);
    let line = said.err().lines().find(|l| l.contains("git apply -3")).unwrap().to_owned();
    let command = line[line.find("git diff").unwrap()..].to_owned();
    repo.git_args(["commit", "-q", "-m", "mine", "--", "a"]);
    sandbox.sh(&repo.dir, &command).ok();
    assert_eq!(repo.read("a"), "1\ntwo\nthree\nmine\n");
}

/// The run as the library reads it, without asking where this process's own state folder is.
fn shown(found: &git_agent::git::Repo, run: &str) -> Shown {
    let ledger = Ledger::new(found);
    let tip = ledger.resolve(run).unwrap();
    let chain = ledger.chain(&tip).unwrap();
    let head = chain.head.clone().unwrap();
    Shown { state: head.phase.with_liveness(false), tip, chain, head, layout: None, task: None }
}

#[test]
fn r21b_a_plan_before_the_approval_lands_only_after_it() {
    let sandbox = Sandbox::new();
    let repo = project(&sandbox);
    repo.spawn("--role developer --run r1", EVERYTHING).ok();
    dirty(&repo);
    let found = git_agent::git::Repo::discover(&repo.dir).unwrap();
    let now = git_agent::ops::now();
    let kinds = repo.kinds("r1");

    repo.write("crlf", "mine\n");
    let refused = land::plan_unapproved(&found, &shown(&found, "r1"), false).unwrap_err();
    assert_eq!(refused.kind, Kind::Conflict);
    repo.write("crlf", "one\r\ntwo\r\n");
    let planned = land::plan_unapproved(&found, &shown(&found, "r1"), false).unwrap();
    assert!(!planned.is_in_place());
    let refused = planned.approved(&found, &shown(&found, "r1"), now).unwrap_err();
    assert_eq!(refused.kind, Kind::Consent);
    assert_eq!(repo.kinds("r1"), kinds);

    let mut planned = land::plan_unapproved(&found, &shown(&found, "r1"), false).unwrap();
    planned.claim(&found).unwrap();
    approve(&repo, "r1");
    repo.agent("apply r1").with(128).refuses(&["another git agent apply"]);
    let plan = planned.approved(&found, &shown(&found, "r1"), now).unwrap();
    let others_before = others(&repo, EVERY_PATH);
    let done = land::execute(&found, plan).unwrap();
    assert_eq!(done.proposal.name.as_str(), "r1");
    landed(&repo, "r1");
    others_before.unchanged(&others(&repo, EVERY_PATH));
    nothing_left(&repo);
}

/// The ground moves between plan and execution: refused with the name of what moved, everything else back.
#[test]
fn a24_what_moved_after_the_plan_is_named() {
    type Move = fn(&Repo);
    let moves: &[(Move, Kind, &str)] = &[
        (|r| r.write("plain", "edited\n"), Kind::Conflict, "plain: changed"),
        (|r| r.write("to-file/deep/y", "Y\n"), Kind::Conflict, "to-file/deep/y: changed"),
        (|r| std::fs::remove_file(r.dir.join("crlf")).unwrap(), Kind::Conflict, "crlf: changed"),
        (|r| r.write("random", "in the way\n"), Kind::Conflict, "random: changed"),
        (|r| r.write("to-file/new", "in the way\n"), Kind::Conflict, "to-file: the folder holds"),
        (|r| r.write("odd", "in the way\n"), Kind::Conflict, "odd: changed"),
        (
            |r| {
                std::fs::rename(r.dir.join("src"), r.sandbox.dir().join("outside")).unwrap();
                std::os::unix::fs::symlink("../outside", r.dir.join("src")).unwrap();
            },
            Kind::Conflict,
            "src/b: changed",
        ),
        (|r| set_mode(&r.dir.join("binary"), 0o755), Kind::Conflict, "binary: changed"),
        (
            |r| {
                r.git("commit -q --allow-empty -m moved");
            },
            Kind::Fatal,
            "HEAD moved",
        ),
        (|r| std::fs::write(r.dir.join(".git/index.lock"), "").unwrap(), Kind::Fatal, "index.lock"),
        (
            |r| {
                append(r, "r1", |_, result| {
                    Body::Reject(Reject { snapshot: Some(result.snapshot.clone()), reason: None })
                })
            },
            Kind::Consent,
            "not approved any more",
        ),
    ];
    let sandbox = Sandbox::new();
    for (n, (go, kind, words)) in moves.iter().enumerate() {
        let dir = sandbox.dir().join(format!("copy{n}"));
        if n == 0 {
            approved(&sandbox, EVERYTHING);
            std::fs::rename(sandbox.dir().join("project"), sandbox.dir().join("original")).unwrap();
        }
        let copied = Command::new("cp").arg("-a").arg(sandbox.dir().join("original")).arg(&dir).status();
        assert!(copied.unwrap().success());
        let repo = Repo { sandbox: &sandbox, dir };
        let found = git_agent::git::Repo::discover(&repo.dir).unwrap();
        let plan = land::plan(&found, &shown(&found, "r1"), None, git_agent::ops::now()).unwrap();
        go(&repo);
        let outside = fingerprint(sandbox.dir(), |p| p.starts_with(sandbox.dir().join("outside")));
        let before = repo.fingerprint();
        let refused = land::execute(&found, plan).unwrap_err();
        assert_eq!(refused.kind, *kind, "{refused}");
        assert!(refused.to_string().contains(words), "{words}: {refused}");
        before.unchanged(&repo.fingerprint());
        outside.unchanged(&fingerprint(sandbox.dir(), |p| p.starts_with(sandbox.dir().join("outside"))));
        let _ = std::fs::remove_file(repo.dir.join(".git/index.lock"));
        nothing_left(&repo);
    }
}

#[test]
fn a01_without_file_modes_an_executable_bit_lands_all_the_same() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "chmod +x plain; echo 2 >a");
    repo.git("config core.fileMode false");
    set_mode(&repo.dir.join("a"), 0o755);
    repo.agent("apply r1").ok();
    let mode = |p: &str| std::fs::metadata(repo.dir.join(p)).unwrap().mode() & 0o777;
    assert_eq!((["a", "plain"].map(mode), &*repo.read("a")), ([0o755, 0o755], "2\n"));
}

#[test]
fn a01_a_repository_with_a_colon_in_its_path() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; echo n >n");
    std::fs::rename(&repo.dir, sandbox.dir().join("pro:ject")).unwrap();
    let repo = Repo { sandbox: &sandbox, dir: sandbox.dir().join("pro:ject") };
    repo.agent("apply r1").ok();
    landed(&repo, "r1");
}

#[test]
fn a13_reftable_keeps_what_is_in_progress_among_the_refs() {
    let (git, version) = gits().into_iter().max_by_key(|(_, v)| *v).unwrap();
    assert!(version >= (2, 45), "this test needs a git with reftable");
    let sandbox = Sandbox::new().with_git(&git);
    let repo = sandbox.repo_with("project", &["--ref-format=reftable"]);
    repo.spawn("--role developer --run r1", "echo 2 >README; echo n >n").ok();
    // By the command: the library in this process calls whichever git is first on our own PATH.
    repo.git("config --global agent.approve unattended");
    let review: serde_json::Value =
        serde_json::from_str(repo.agent("review r1 --json").ok().out()).expect("JSON");
    let digest = review["digest"].as_str().expect("a digest");
    repo.agent(&format!("review r1 --approve --digest {digest}")).ok();
    repo.git("switch -qc other");
    repo.write("src/b", "theirs\n");
    repo.commit("theirs");
    repo.git("switch -q main");
    repo.write("src/b", "ours\n");
    repo.commit("ours");
    sandbox.run(&repo.dir, "git", ["cherry-pick", "other"]).with(1);
    repo.agent("apply r1").with(128).refuses(&["a cherry-pick is in progress"]);
    repo.git("cherry-pick --abort");
    repo.agent("apply r1").ok();
    landed(&repo, "r1");
}

/// R55: what follows an uncommitted apply is against what was applied.
#[test]
fn a25_a_continued_run_lands_only_what_is_new() {
    let sandbox = Sandbox::new();
    let repo = approved(&sandbox, "echo 2 >a; echo n >n; rm gone");
    repo.agent("apply r1").ok();
    let first = std::fs::metadata(repo.dir.join("n")).unwrap().ino();
    repo.spawn("--role developer --run r1", "test \"$(cat a)\" = 2 && echo 3 >a; echo more >src/deep/c").ok();
    approve(&repo, "r1");
    let before = others(&repo, &["a", "src/deep/c"]);
    let said = repo.agent("apply r1").ok();
    assert!(said.out().contains(": 2 files"), "{}", said.out());
    before.unchanged(&others(&repo, &["a", "src/deep/c"]));
    assert_eq!([repo.read("a"), repo.read("src/deep/c")], ["3\n", "more\n"]);
    assert_eq!(std::fs::metadata(repo.dir.join("n")).unwrap().ino(), first);
}
