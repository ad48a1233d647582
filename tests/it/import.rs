//! I01-I05: a store that wants the host to hang, to take more than it should or to run something. The engine
//! plants what it can from inside; the test plants the rest between engine and `finish`.

use crate::support::{Repo, Sandbox, both, fingerprint};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// No import may take longer on these small stores.
const BOUND: Duration = Duration::from_secs(60);

/// A run without an engine whose tree has one new file, and its store.
fn ready<'s>(repo: &Repo<'s>, run: &str) -> PathBuf {
    repo.agent_args(["spawn", "--role", "developer", "--run", run]).ok();
    let tree = repo.tree(run);
    std::fs::write(tree.join("kept"), run).unwrap();
    repo.sandbox.give(&tree.join("kept"));
    tree.parent().unwrap().join("store")
}

/// `sh -c` as whoever owns the run, in a folder.
fn plant(store: &std::path::Path, script: &str) {
    let said = Command::new("sh")
        .args(["-ec", script])
        .current_dir(store)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    assert!(said.status.success(), "{script}: {}", String::from_utf8_lossy(&said.stderr));
}

/// All objects of the main repository by name.
fn objects(repo: &Repo<'_>) -> Vec<String> {
    repo.git_args(["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"])
        .lines()
        .map(str::to_owned)
        .collect()
}

/// `finish` within the bound, and the one file is all that came.
#[track_caller]
fn finishes(repo: &Repo<'_>, run: &str) {
    let (before, started) = (objects(repo), Instant::now());
    repo.agent_args(["finish", run]).ok();
    assert!(started.elapsed() < BOUND, "{run}: {:?}", started.elapsed());
    assert_eq!(repo.changed(run), ["A kept"], "{run}");
    repo.git("fsck --full --strict");
    // Blob, tree, snapshot; event, its tree, its file. Nothing of the store's.
    let new = objects(repo).len() - before.len();
    assert!(new <= 6, "{run}: {new} objects came in");
}

#[test]
fn i01_special_files_where_git_keeps_its_own() {
    both(|s| {
        let repo = s.repo();
        let head = repo.git("rev-parse HEAD");
        let (aa, rest) = head.split_at(2);
        let places = [
            ("objects", format!("objects/{aa}/{rest}")),
            ("pack", "objects/pack/pack-0000000000000000000000000000000000000000.pack".into()),
            ("idx", "objects/pack/pack-0000000000000000000000000000000000000000.idx".into()),
            ("graph", "objects/info/commit-graph".into()),
            ("midx", "objects/pack/multi-pack-index".into()),
            ("ref", "refs/heads/wt/x".into()),
            ("packed", "packed/packed-refs".into()),
            ("head", "worktrees/tree/HEAD".into()),
            ("index", "worktrees/tree/index".into()),
            ("alternates", "objects/info/alternates".into()),
            ("config", "worktrees/tree/config.worktree".into()),
        ];
        let mut number = 0;
        for make in ["mkfifo", "mkdir", "ln -s /dev/zero", "ln -s /etc/passwd", "python"] {
            number += 1;
            let run = format!("r{number}");
            let store = ready(&repo, &run);
            for (_, at) in &places {
                let make = match make {
                    "python" => format!(
                        "/usr/bin/python3 -c \"import socket,os; os.chdir(os.path.dirname('{at}')); socket.socket(socket.AF_UNIX).bind(os.path.basename('{at}'))\""
                    ),
                    make => format!("{make} {at}"),
                };
                plant(&store, &format!("mkdir -p $(dirname {at}); rm -rf {at}; {make}"));
            }
            s.give(&store);
            finishes(&repo, &run);
        }
        // Devices, which only root can make.
        let store = ready(&repo, "device");
        plant(
            &store,
            "mknod objects/info/commit-graph c 1 5; mknod refs/heads/zero c 1 5; mknod objects/pack/multi-pack-index b 7 0",
        );
        finishes(&repo, "device");
        // The control: a fetch of ours from such a store waits for ever.
        let control = s.dir().join("control");
        s.run(
            s.dir(),
            "git",
            ["clone", "-q", "--bare", "--no-local", repo.dir.to_str().unwrap(), control.to_str().unwrap()],
        )
        .ok();
        plant(&control, "mkfifo objects/info/alternates");
        s.give(&control);
        let fetch = s.run(&repo.dir, "timeout", ["3", "git", "fetch", "-q", control.to_str().unwrap()]);
        assert_eq!(fetch.status(), 124, "the control did not hang");
    });
}

#[test]
fn i02_gt20_forged_and_broken_objects() {
    both(|s| {
        let repo = s.repo();
        // From inside: a commit of the agent's whose blob is missing, whose tree is of another type, whose
        // pack is corrupt, and an object that lies about its name. What is on disk counts all the same.
        let cases = [
            (
                "missing",
                "echo x >f; git add f; git commit -qm x; o=$(git rev-parse HEAD:f); rm -f ../store/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-); rm f",
            ),
            (
                "forged",
                "echo good >f; git add f; o=$(git rev-parse :f); p=../store/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-); git commit -qm x; n=$(echo evil | git hash-object -w --stdin); chmod u+w $p; cp ../store/objects/$(echo $n | cut -c1-2)/$(echo $n | cut -c3-) $p; rm f",
            ),
            (
                "type",
                "c=$(git rev-parse HEAD); printf 'tree %s\\nauthor a <a> 1 +0000\\ncommitter a <a> 1 +0000\\n\\nx\\n' $c | git hash-object -t commit -w --stdin --literally >h; git update-ref HEAD $(cat h); rm h",
            ),
            (
                "corrupt",
                "echo x >f; git add f; git commit -qm x; git repack -adq; for p in ../store/objects/pack/*.pack; do chmod u+w $p; dd if=/dev/zero of=$p bs=1 seek=12 count=$(($(stat -c %s $p) - 32)) conv=notrunc 2>/dev/null; done; rm f",
            ),
            (
                "garbage",
                "echo x >f; git add f; git commit -qm x; find ../store/objects -type f ! -name alternates -exec sh -c 'chmod u+w {}; echo garbage >{}' \\;; rm f",
            ),
        ];
        for (run, script) in cases {
            let started = Instant::now();
            repo.spawn(&format!("--role developer --run {run}"), &format!("{script}; printf {run} >kept"))
                .ok();
            assert!(started.elapsed() < BOUND);
            assert_eq!(repo.changed(run), ["A kept"], "{run}");
            repo.git("fsck --full --strict");
            assert!(repo.git("for-each-ref refs/agent-local").is_empty(), "{run}: broken commits were kept");
        }
        // The sound ones are kept.
        repo.spawn(
            "--role developer --run sound",
            "echo x >f; git add f; git commit -qm x; rm f; echo >kept",
        )
        .ok();
        assert_eq!(repo.git("for-each-ref refs/agent-local").lines().count(), 1);
        // An object forged under the name of what is on disk does not stand in for it.
        let kept = "the right content\n";
        repo.spawn("--role developer --run stand", &format!("printf '{}' >kept; o=$(git hash-object -w kept); p=../store/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-); n=$(echo evil | git hash-object -w --stdin); chmod u+w $p; cp ../store/objects/$(echo $n | cut -c1-2)/$(echo $n | cut -c3-) $p", kept.replace('\n', "\\n"))).ok();
        let snapshot = repo.show("stand")["result"]["snapshot"].as_str().unwrap().to_owned();
        assert_eq!(repo.git_args(["show", &format!("{snapshot}:kept")]), kept.trim_end());
        assert!(
            std::fs::read_dir(repo.dir.join(".git/objects"))
                .unwrap()
                .flatten()
                .all(|e| !e.file_name().to_string_lossy().contains("tmp_objdir")),
            "a quarantine was left"
        );
    });
}

#[test]
fn i03_another_repository_through_alternates() {
    both(|s| {
        let repo = s.repo();
        let secret = s.repo_with("secret", &[]);
        secret.write("password", "hunter2\n");
        let commit = secret.commit("secret");
        let blob = secret.git("rev-parse HEAD:password");
        let store = ready(&repo, "r");
        // The control: with that line git finds the other repository's objects.
        let line = format!(
            "echo {}/.git/objects >>objects/info/alternates; echo {commit} >refs/heads/evil",
            secret.dir.display()
        );
        plant(&store, &line);
        s.give(&store);
        plant(
            &store,
            &format!("test \"$(git -c safe.directory='*' --git-dir=. cat-file -t {commit})\" = commit"),
        );
        plant(&store, &format!("printf '%s\\n' {commit} >worktrees/tree/HEAD"));
        repo.agent("finish r").ok();
        let all = objects(&repo);
        assert!(!all.contains(&commit) && !all.contains(&blob));
        assert_eq!(repo.changed("r"), ["A kept"]);
        // And from inside, the same.
        repo.spawn("--role developer --run inside", &format!("echo {}/.git/objects >>../store/objects/info/alternates; git update-ref --no-deref HEAD {commit}; echo {commit} >../store/worktrees/tree/HEAD; echo >kept", secret.dir.display())).ok();
        let all = objects(&repo);
        assert!(!all.contains(&commit) && !all.contains(&blob));
        assert_eq!(repo.changed("inside"), ["A kept"]);
    });
}

#[test]
fn i04_bombs() {
    let s = Sandbox::new();
    let repo = s.repo();
    let before = objects(&repo).len();
    let bomb = r#"
/usr/bin/python3 - <<'END'
import hashlib, zlib, os, subprocess
# A loose blob of 300 MB in 300 kB, committed; a chain of deltas that doubles; 250,000 refs.
size = 300 << 20
head = b'blob %d\0' % size
h, z = hashlib.sha1(head), zlib.compressobj(9)
out = [z.compress(head)]
block = bytes(1 << 20)
for _ in range(size >> 20): h.update(block); out.append(z.compress(block))
out.append(z.flush())
name = h.hexdigest()
os.makedirs('../store/objects/' + name[:2], exist_ok=True)
open('../store/objects/' + name[:2] + '/' + name[2:], 'wb').write(b''.join(out))
subprocess.run(['git', 'update-index', '--add', '--cacheinfo', '100644,%s,bomb' % name], check=True)
subprocess.run(['git', 'commit', '-qm', 'bomb'], check=True)
head = subprocess.run(['git', 'rev-parse', 'HEAD'], stdout=subprocess.PIPE).stdout.decode().strip()
with open('../store/packed/packed-refs', 'w') as f:
    f.write('# pack-refs with: peeled fully-peeled sorted \n')
    for i in range(1000000): f.write('%s refs/heads/x%07d\n' % (head, i))
os.makedirs('../store/refs/many')
for i in range(2000): open('../store/refs/many/%d' % i, 'w').write(head)
open('kept', 'w').write('x')
END
"#;
    let started = Instant::now();
    repo.spawn("--role developer --run r", bomb).ok();
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    assert_eq!(repo.changed("r"), ["A kept"]);
    assert!(repo.git("for-each-ref refs/agent-local").is_empty(), "the bomb was kept");
    assert!(objects(&repo).len() - before < 20);
    repo.git("fsck --full");
    // On disk: over the limit the run is failed, its tree kept, nothing imported; mended, it is finished.
    repo.policy("version: 1\nroles:\n  small:\n    kind: writer\n    limits:\n      bytes: 1MiB\n      files: 50\n      blob: 512KiB\n");
    let cases = [
        ("bytes", "for i in 1 2 3; do head -c 500000 /dev/urandom >big$i; done", "rm big1 big2"),
        ("blob", "head -c 600000 /dev/urandom >big", "rm big"),
        ("files", "for i in $(seq 60); do echo >f$i; done", "rm f*"),
        ("zeros", "truncate -s 3G zeros", "rm zeros"),
    ];
    for (run, script, mend) in cases {
        let before = objects(&repo).len();
        repo.spawn(&format!("--role small --run {run}"), &format!("echo >kept; {script}"))
            .with(128)
            .says(&["limit", &format!("git agent finish {run}")]);
        assert_eq!(repo.state(run), "failed");
        assert!(repo.tree(run).join("kept").exists());
        // Events of spawn, engine, abort; nothing of the tree's.
        assert!(objects(&repo).len() - before <= 12, "{run}");
        plant(&repo.tree(run), mend);
        repo.agent_args(["finish", run]).ok();
        assert_eq!(repo.state(run), "proposed");
    }
}

#[test]
fn i05_what_is_planted_in_the_store_is_never_read_by_the_host() {
    both(|s| {
        let repo = s.repo();
        let ran = s.dir().join("ran");
        let script = format!("#!/bin/sh\necho \"$0\" >>{}\nexit 1\n", ran.display());
        let evil = s.dir().join("evil.sh");
        std::fs::write(&evil, &script).unwrap();
        crate::support::set_mode(&evil, 0o755);
        let run = "r";
        let store = ready(&repo, run);
        let e = evil.display();
        let config = format!(
            "[core]\\n\\tfsmonitor = {e}\\n\\thooksPath = {h}\\n\\tattributesFile = {h}/attributes\\n\\tpager = {e}\\n[filter \"x\"]\\n\\tclean = {e}\\n\\tsmudge = {e}\\n\\trequired\\n[diff \"x\"]\\n\\ttextconv = {e}\\n\\tcommand = {e}\\n[uploadpack]\\n\\tpackObjectsHook = {e}\\n",
            h = s.dir().display()
        );
        plant(
            &store,
            &format!(
                r#"
printf '{config}' >>config; printf '{config}' >config.worktree; printf '{config}' >worktrees/tree/config.worktree; printf '[extensions]\n\tworktreeConfig = true\n' >>config
mkdir -p hooks worktrees/tree/hooks info worktrees/tree/info
for h in post-checkout reference-transaction pre-commit post-index-change fsmonitor-watchman pre-auto-gc; do cp {e} hooks/$h; cp {e} worktrees/tree/hooks/$h; done
echo '* filter=x diff=x' >>info/attributes; echo '* filter=x diff=x' >worktrees/tree/info/attributes; echo kept >>info/exclude
echo CGPH >objects/info/commit-graph; echo MIDX >objects/pack/multi-pack-index; echo BITM >objects/pack/pack-0.bitmap; echo /nowhere >commondir
echo '* filter=x diff=x' >../tree/.gitattributes
"#
            ),
        );
        s.give(&store);
        s.give(&repo.tree(run));
        let main = fingerprint(&repo.dir, |p| !p.to_string_lossy().contains("/.git/"));
        repo.agent("finish r").ok();
        repo.agent("show r").ok();
        repo.agent("list").ok();
        assert!(!ran.exists(), "the agent's code ran: {}", std::fs::read_to_string(&ran).unwrap());
        assert_eq!(repo.changed(run), ["A .gitattributes", "A kept"]);
        repo.git("fsck --full --strict");
        main.unchanged(&fingerprint(&repo.dir, |p| !p.to_string_lossy().contains("/.git/")));
        // The control: with such a configuration git does run it.
        let control = s.dir().join("control");
        s.run(s.dir(), "git", ["clone", "-q", repo.dir.to_str().unwrap(), control.to_str().unwrap()]).ok();
        plant(&control, &format!("printf '{config}' >>.git/config"));
        s.give(&control);
        let _ = s.run(&control, "git", ["status"]).status();
        assert!(ran.exists(), "the control ran nothing");
    });
}
