//! Rows of `containment.md` that the landlock tier holds. Each attempt is a snippet that is run twice on
//! folders of the same shape: once without us, where it must succeed, and once as an engine, where everything
//! outside the run must be as before, byte for byte.

use crate::support::{Fingerprint, Repo, Sandbox, both, eventually, fingerprint, processes_of};
use rustix::process::Signal;
use std::path::{Path, PathBuf};

/// One row: its number, and what is tried. `$MAIN` is the user's repository, `$OUT` a folder of the user's
/// beside it, `$HOMEDIR` the user's home, `$SIB` a repository whose name starts with main's.
struct Row(&'static str, &'static str);

const ROWS: &[Row] = &[
    Row("fs01 absolute path", "echo evil >$MAIN/src/a"),
    Row("fs01 new file", "echo evil >$MAIN/new"),
    Row("fs02 dots", "echo evil >$(pwd)/../../../$REL/src/a"),
    Row("fs03 common prefix", "echo evil >$SIB/README"),
    Row("fs04 symlink to a file", "ln -s $MAIN/src/a l; echo evil >l"),
    Row("fs05 symlink to a folder", "ln -s $MAIN/src d; echo evil >d/new"),
    Row("fs06 dangling symlink", "ln -s $OUT/born l; echo evil >l"),
    Row("fs07 rename in and out", "mv $OUT/file moved"),
    Row("fs07 rename over", "echo evil >f; mv f $OUT/file"),
    Row("fs07 rename a folder out", "mkdir dd; mv dd $OUT/dd"),
    Row("fs08 truncate", "/usr/bin/python3 -c 'import os,sys; os.truncate(sys.argv[1], 0)' $MAIN/src/a"),
    Row(
        "fs08 O_TRUNC",
        "/usr/bin/python3 -c 'import os,sys; os.open(sys.argv[1], os.O_WRONLY|os.O_TRUNC)' $MAIN/src/a",
    ),
    Row("fs09 hard link", "ln $OUT/file hl; echo evil >hl"),
    Row("fs09 hard link out", "echo evil >hl2; ln hl2 $OUT/linked"),
    Row("fs11 proc root", "echo evil >/proc/self/root$MAIN/src/a"),
    Row("fs11 proc cwd", "echo evil >/proc/self/cwd/../../../$REL/src/a"),
    Row("fs11 proc of another", "sleep 9 & echo evil >/proc/$!/root$MAIN/src/a; kill $!"),
    Row(
        "fs12 O_PATH",
        "/usr/bin/python3 -c 'import os,sys; d=os.open(sys.argv[1], os.O_PATH|os.O_DIRECTORY); os.write(os.open(\"a\", os.O_WRONLY, dir_fd=d), b\"evil\")' $MAIN/src",
    ),
    Row(
        "fs12 O_PATH reopened",
        "/usr/bin/python3 -c 'import os,sys; d=os.open(sys.argv[1], os.O_PATH); os.write(os.open(\"/proc/self/fd/%d\" % d, os.O_WRONLY), b\"evil\")' $MAIN/src/a",
    ),
    Row(
        "fs12 O_TMPFILE",
        "/usr/bin/python3 -c 'import os,sys; f=os.open(sys.argv[1], os.O_TMPFILE|os.O_RDWR, 0o644); os.write(f, b\"evil\"); os.link(\"/proc/self/fd/%d\" % f, sys.argv[1]+\"/tmpfiled\", src_dir_fd=os.open(\"/\", os.O_PATH), follow_symlinks=True)' $OUT",
    ),
    Row("fs17 shell and git files of the user", "echo evil >>$HOMEDIR/.bashrc"),
    Row("fs17 profile", "echo evil >>$HOMEDIR/.profile"),
    Row("fs17 gitconfig", "echo evil >>$HOMEDIR/.gitconfig"),
    Row("fs17 config/git", "mkdir -p $HOMEDIR/.config/git; echo evil >>$HOMEDIR/.config/git/config"),
    Row("fs18 cargo bin", "echo evil >$HOMEDIR/.cargo/bin/cargo"),
    Row("fs18 npm", "echo evil >$HOMEDIR/.npm/x"),
    Row("fs18 cache", "echo evil >$HOMEDIR/.cache/x"),
    Row("fs20 cwd drift", "cd /; cd $HOMEDIR; echo evil >drift"),
    Row("fs22 spellings", "echo evil >$(dirname $MAIN)//./$(basename $MAIN)/src//a"),
    Row("fs22 trailing slash", "mkdir $OUT/made/"),
    Row("fs22 delete", "rm -rf $MAIN/src"),
    Row("fs22 special", "mkfifo $OUT/fifo"),
    Row("fs22 symlink out", "ln -s x $OUT/planted"),
    Row("gt01 checkout", "git -C $MAIN checkout -q --orphan evil"),
    Row("gt01 reset", "git -C $MAIN reset -q --hard HEAD"),
    Row("gt01 clean", "git -C $MAIN clean -fdxq"),
    Row("gt01 stash", "git -C $MAIN stash -q"),
    Row("gt02 GIT_DIR", "GIT_DIR=$MAIN/.git GIT_WORK_TREE=$MAIN git checkout -q -f HEAD -- ."),
    Row("gt02 --git-dir", "git --git-dir=$MAIN/.git --work-tree=$MAIN rm -q --cached src/a"),
    Row(
        "gt03 update-ref",
        "git -C $MAIN update-ref refs/heads/main $(git -C $MAIN commit-tree -m evil 4b825dc642cb6eb9a060e54bf8d69288fbee4904)",
    ),
    Row("gt03 by hand", "echo 0000 >$MAIN/.git/refs/heads/main"),
    Row("gt04 hooks", "echo evil >$MAIN/.git/hooks/pre-commit"),
    Row("gt05 config", "git config --file $MAIN/.git/config core.fsmonitor evil"),
    Row("gt05 by hand", "echo evil >>$MAIN/.git/config"),
    Row("gt06 commondir", "echo ../evil >$MAIN/.git/commondir"),
    Row("gt08 delete", "rm -rf $MAIN/.git/objects/??"),
    Row("gt08 overwrite", "f=$(find $MAIN/.git/objects/?? -type f | head -1); rm -f $f; echo evil >$f"),
    Row("gt08 new object", "mkdir -p $MAIN/.git/objects/zz; echo evil >$MAIN/.git/objects/zz/zz"),
    Row("gt08 alternates", "echo /evil >$MAIN/.git/objects/info/alternates"),
    Row("gt13 sibling runs", "echo evil >$STATE/evil"),
];

/// What stands around a run: the repository, a sibling, the user's home and a folder.
struct World<'s> {
    repo: Repo<'s>,
    vars: String,
    outside: [PathBuf; 5],
}

/// Makes a world of this name.
fn world<'s>(s: &'s Sandbox, name: &str) -> World<'s> {
    let repo = s.repo_with(name, &[]);
    repo.write("src/a", "edited by the user\n");
    repo.write("untracked", "the user's\n");
    s.repo_with(&format!("{name}-evil"), &[]);
    let world = existing(s, name);
    let [_, _, out, home, state] = &world.outside;
    for folder in [
        out,
        home,
        &home.join(".cargo"),
        &home.join(".cargo/bin"),
        &home.join(".npm"),
        &home.join(".cache"),
        state,
    ] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::write(out.join("file"), "the user's\n").unwrap();
    std::fs::write(home.join(".bashrc"), "# the user's\n").unwrap();
    for folder in [out, home, state] {
        s.give(folder);
    }
    world
}

/// The world of this name, which is there.
fn existing<'s>(s: &'s Sandbox, name: &str) -> World<'s> {
    let outside =
        ["", "-evil", ".outside", ".home", ".state"].map(|part| s.dir().join(format!("{name}{part}")));
    let [main, sib, out, home, state] = &outside;
    let vars = format!(
        "MAIN={} OUT={} HOMEDIR={} SIB={} STATE={} REL={name}; export MAIN OUT HOMEDIR SIB STATE REL;",
        main.display(),
        out.display(),
        home.display(),
        sib.display(),
        state.display()
    );
    World { repo: Repo { sandbox: s, dir: main.clone() }, vars, outside }
}

impl World<'_> {
    fn prints(&self) -> Vec<Fingerprint> {
        // Not the ledger's own refs and objects, which spawn and finish write.
        let git = self.repo.dir.join(".git");
        let ours = move |path: &Path| {
            let Ok(inside) = path.strip_prefix(&git) else { return true };
            let text = inside.to_string_lossy();
            !(text.is_empty()
                || text.starts_with("agent")
                || ["refs", "refs/heads", "logs", "logs/refs", "logs/refs/heads", "objects"]
                    .contains(&&*text)
                || text.starts_with("refs/agent")
                || text.starts_with("refs/heads/wt")
                || text.starts_with("logs/refs/heads/wt")
                || text.starts_with("logs/refs/agent"))
        };
        self.outside.iter().map(|root| fingerprint(root, &ours)).collect()
    }
}

/// Runs each row without us, on a world of its own: it must change something there.
fn controls(s: &Sandbox, rows: &[Row]) {
    world(s, "t");
    for (i, Row(name, script)) in rows.iter().enumerate() {
        s.sh(s.dir(), &format!("for x in '' -evil .outside .home .state; do cp -a t$x c{i}$x || exit; done"))
            .ok();
        let world = existing(s, &format!("c{i}"));
        // As deep as a run's tree, so that `../../../` means the same.
        let inside = s.dir().join(format!("x{i}/y/z"));
        std::fs::create_dir_all(&inside).unwrap();
        s.give(&s.dir().join(format!("x{i}")));
        s.run(&inside, "git", ["init", "-q"]).ok();
        let script = script
            .replace("../../../$REL", "../../../../$REL")
            .replace("/../../../../$REL", "/../../../$REL");
        let before = format!("{:?}", all(&world));
        let _ = s.sh(&inside, &format!("{} {script}", world.vars)).status();
        assert_ne!(before, format!("{:?}", all(&world)), "{name}: the control changed nothing");
    }
}

fn all(world: &World<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for root in &world.outside {
        for path in crate::support::walk(root) {
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let bytes = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            lines.push(format!(
                "{} {:?} {:?} {:?}",
                path.display(),
                meta.file_type(),
                meta.modified().unwrap(),
                bytes
            ));
        }
    }
    lines
}

fn part(prefix: &str) -> Vec<Row> {
    ROWS.iter().filter(|Row(n, _)| n.starts_with(prefix)).map(|Row(n, s)| Row(n, s)).collect()
}

/// Each row by an engine of its own in one run: after each, the outside is as it was.
fn denied(s: &Sandbox, rows: &[Row]) {
    let world = world(s, "main");
    world.repo.agent_args(["spawn", "--role", "developer", "--run", "r"]).ok();
    let objects = crate::support::fingerprint(&world.repo.dir.join(".git/objects"), |p| p.is_file());
    let before = world.prints();
    // From <state>/git-agent/<repo>/r/tree five up is the sandbox.
    for Row(name, script) in rows {
        let script = script.replace("../../../$REL", "../../../../../$REL");
        // Each in a process of its own, so that one which ends the shell does not hide the next.
        let _ = world
            .repo
            .agent_args(["exec", "r", "--", "sh", "-c", &format!("{} {script}; true", world.vars)])
            .ok();
        for (before, after) in before.iter().zip(world.prints()) {
            let outcome = std::panic::catch_unwind(|| before.unchanged(&after));
            assert!(outcome.is_ok(), "{name}: {script}");
        }
    }
    objects.unchanged(&crate::support::fingerprint(&world.repo.dir.join(".git/objects"), |p| p.is_file()));
    world.repo.git("fsck --full --strict");
    world.repo.agent("finish r").ok();
}

#[test]
fn fs01_to_fs22_writes_outside_are_denied() {
    both(|s| denied(s, &part("fs")));
}

#[test]
fn fs01_to_fs22_succeed_without_us() {
    both(|s| controls(s, &part("fs")));
}

#[test]
fn gt01_to_gt13_the_repository_is_untouched() {
    both(|s| denied(s, &part("gt")));
}

#[test]
fn gt01_to_gt13_succeed_without_us() {
    both(|s| controls(s, &part("gt")));
}

#[test]
fn fs13_sc02_no_descriptor_and_no_secret_is_inherited() {
    both(|s| {
        let repo = s.repo();
        let target = s.dir().join("open");
        std::fs::write(&target, "before").unwrap();
        crate::support::set_mode(&target, 0o666);
        let script = r#"trap "" PIPE; for fd in /proc/self/fd/*; do n=${fd##*/}; [ $n -gt 2 ] && eval "echo evil >&$n" 2>/dev/null; done; env >seen; true"#;
        let launch = |words: &str| {
            let mut command = s.command(&repo.dir, "bash");
            command.args(["-c", &format!("exec 5>>{t} 77>>{t} 200>>{t}; {words}", t = target.display())]);
            for (k, v) in [
                ("GH_TOKEN", "hunter2"),
                ("SSH_AUTH_SOCK", "/tmp/hunter2"),
                ("ANTHROPIC_API_KEY", "hunter2"),
                ("AWS_SECRET_ACCESS_KEY", "hunter2"),
                ("LD_LIBRARY_PATH", "/hunter2"),
                ("BASH_ENV", "/hunter2"),
                ("GIT_SSH_COMMAND", "hunter2"),
                ("NODE_OPTIONS", "--hunter2"),
                ("MY_OWN_PASSWORD", "hunter2"),
            ] {
                command.env(k, v);
            }
            crate::support::run(command, b"").ok()
        };
        launch(&format!("git-agent spawn --role developer --run r -- bash -c '{script}'"));
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "before");
        let seen = std::fs::read_to_string(repo.tree("r").join("seen")).unwrap();
        assert!(!seen.contains("hunter2"), "{seen}");
        // The control.
        launch(&format!("cd {}; bash -c '{script}'", s.dir().join("home").display()));
        assert!(std::fs::read_to_string(&target).unwrap().contains("evil"));
        assert!(std::fs::read_to_string(s.dir().join("home").join("seen")).unwrap().contains("hunter2"));
    });
}

#[test]
fn fs24_gt12_work_inside_succeeds() {
    both(|s| {
        let repo = s.repo();
        let before = repo.fingerprint();
        let script = r"
set -ex
echo x >>src/a; mkdir new; echo n >new/file; rm src/b; chmod +x README; ln -s README link; mv new/file new/moved
git add -A; git commit -qm one; git commit -q --amend -m 'one amended'
git switch -qc side; echo s >s; git add s; git commit -qm side; git switch -q -
echo m >m; git add m; git commit -qm m; git merge -q -m merged side
git switch -qc topic HEAD~1; echo t >t; git add t; git commit -qm t; git rebase -q side; git switch -q -
git cherry-pick topic; echo st >>README; git stash -q; git stash pop -q; git stash -q -u; git stash apply -q; git stash drop -q
git tag v1; git tag -a -m annotated v2; git tag -d v1; git branch b; git branch -D b; git branch -D topic
git notes add -m note; git notes show >/dev/null
git bisect start HEAD HEAD~2; git bisect run true; git bisect reset
git reset -q --soft HEAD~1; git commit -qam again; git reflog >/dev/null; git repack -adq; git fsck; git worktree list; git log --all --oneline >/dev/null; git diff --stat HEAD~1; git status
";
        repo.spawn("--role developer --run r", script).ok();
        before.unchanged(&repo.fingerprint());
        let changed = repo.changed("r");
        for line in ["M README", "A link", "A m", "A new/moved", "A s", "M src/a", "D src/b", "A t"] {
            assert!(changed.iter().any(|c| c == line), "{line}: {changed:?}");
        }
    });
}

#[test]
fn gt23_gc_in_main_while_the_run_lives() {
    both(|s| {
        let repo = s.repo();
        repo.write("gone", "only on a branch that goes\n");
        let tip = repo.commit("going");
        repo.agent_args(["spawn", "--role", "developer", "--run", "r"]).ok();
        repo.git("reset -q --hard HEAD~1");
        repo.git("reflog expire --expire=now --all");
        repo.git("gc -q --prune=now");
        repo.git_args(["cat-file", "-e", &tip]);
        repo.agent_args([
            "exec",
            "r",
            "--",
            "sh",
            "-ec",
            "git log --oneline; git show HEAD:gone >/dev/null; git fsck; echo x >>gone; git commit -qam x",
        ])
        .ok();
        repo.git("gc -q --prune=now");
        repo.agent("finish r").ok();
        assert_eq!(repo.changed("r"), ["M gone"]);
    });
}

/// Leaves processes that would go on writing: in the background, in a session of their own, twice forked.
const DAEMONS: &str = r#"
(while :; do date >beat1; sleep 0.05; done) &
setsid sh -c 'while :; do date >beat2; sleep 0.05; done' >/dev/null 2>&1 &
/usr/bin/python3 -c '
import os, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
import signal
for s in range(1, 32):
    try: signal.signal(s, signal.SIG_IGN)
    except OSError: pass
while True: open("beat3", "w").write("x"); time.sleep(0.05)
'
while ! [ -s beat1 -a -s beat2 -a -s beat3 ]; do sleep 0.01; done
"#;

#[test]
fn pr05_nothing_outlives_the_engine() {
    both(|s| {
        let repo = s.repo();
        repo.spawn("--role developer --run r", DAEMONS).ok();
        assert_eq!(processes_of(&repo.tree("r")), [""; 0]);
        let run = repo.start("--role developer --run stop", &format!("{DAEMONS} touch up; sleep 1000"));
        eventually("the daemons are up", || s.state().exists() && up(s, "stop"));
        repo.agent("stop stop").ok();
        let _ = run.end().status();
        assert_eq!(processes_of(&repo.tree("stop")), [""; 0]);
    });
}

fn up(s: &Sandbox, run: &str) -> bool {
    crate::support::walk(&s.state().join("git-agent")).iter().any(|p| p.ends_with(format!("{run}/tree/up")))
}

#[test]
fn cg06_a_killed_supervisor_leaves_no_process() {
    both(|s| {
        let repo = s.repo();
        let run = repo.start("--role developer --run r", &format!("{DAEMONS} touch up; sleep 1000"));
        eventually("the daemons are up", || up(s, "r"));
        run.signal(Signal::KILL);
        let tree = repo.tree("r");
        eventually("no process is left", || processes_of(&tree).is_empty());
        assert_eq!(repo.state("r"), "interrupted");
        repo.agent("finish r").ok();
        assert_eq!(repo.state("r"), "proposed");
    });
}
