//! Prune and discard: what goes, what stays, and how it is known.

use crate::support::*;
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Finished runs keep their folders until prune.
const KEEP: &str = "version: 1\nroles: {developer: {kind: writer}}\nretention: {keep_tree: true}\n";

fn root(repo: &Repo<'_>, run: &str) -> PathBuf {
    repo.tree(run).ancestors().nth(2).unwrap().to_owned()
}

fn prune(repo: &Repo<'_>, options: &str) -> Value {
    repo.agent(&format!("prune --json {options}")).ok().json()
}

fn names(answer: &Value, what: &str) -> Vec<String> {
    let mut names: Vec<String> =
        answer[what].as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Why a run was kept.
fn why(answer: &Value, run: &str) -> String {
    let kept = answer["kept"].as_array().unwrap();
    let found =
        kept.iter().find(|k| k["name"] == run).unwrap_or_else(|| panic!("{run} is not kept: {answer}"));
    found["why"].as_str().unwrap().to_owned()
}

/// A run with a result.
fn run(repo: &Repo<'_>, name: &str, script: &str) {
    repo.spawn(&format!("--role developer --run {name}"), script).ok();
}

/// A run that a person rejected and whose folder is still there.
fn rejected(repo: &Repo<'_>, name: &str) {
    run(repo, name, &format!("echo {name} > {name}"));
    repo.agent_args(["discard", name]).ok();
    assert!(repo.tree(name).exists(), "the policy keeps it");
}

/// Whether the engine of a run is at work: it begins with a file `x`.
fn running_in(repo: &Repo<'_>, run: &str) -> bool {
    let found = repo.agent_args(["path", run]);
    found.status() == 0 && Path::new(found.ok().out()).join("x").exists()
}

fn snapshot(repo: &Repo<'_>, run: &str) -> String {
    repo.show(run)["result"]["snapshot"].as_str().unwrap().to_owned()
}

fn trash_is_empty(root: &Path) {
    eventually("the trash is emptied", || {
        std::fs::read_dir(root.join(".trash")).map_or(true, |mut d| d.next().is_none())
    });
}

#[test]
fn r22_discard_lands_nothing_and_keeps_the_snapshot() {
    both(|s| {
        let repo = s.repo();
        run(&repo, "r", "echo new > new; echo two >> src/a");
        let (root, snapshot) = (root(&repo, "r"), snapshot(&repo, "r"));
        let before = repo.fingerprint();
        repo.agent_args(["discard", "r", "-m", "not this way"])
            .ok()
            .says(&["discarded run r", &snapshot[..10]]);
        before.unchanged(&repo.fingerprint());
        assert!(!root.join("r").exists());
        assert_eq!(repo.state("r"), "rejected");
        assert_eq!(repo.kinds("r"), ["spawn", "engine", "result", "reject"]);
        assert!(repo.agent("log r --json").ok().out().contains("not this way"));
        assert_eq!(repo.branches(), ["main"]);
        repo.git("gc --quiet --prune=now");
        assert_eq!(repo.git_args(["show", &format!("{snapshot}:new")]), "new");
        trash_is_empty(&root);
        // Again: it is rejected already.
        repo.agent("discard r").ok();
        assert_eq!(repo.kinds("r").len(), 4);
        // And prune has nothing to add.
        assert_eq!(prune(&repo, "")["pruned"], json!([]));
        assert_eq!(repo.state("r"), "rejected");
    });
}

#[test]
fn r22_discard_records_first_what_nobody_recorded() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.agent("spawn --role developer --run r").ok();
    repo.agent_args(["exec", "r", "--", "sh", "-c", "echo mine > mine"]).ok();
    repo.agent("discard r").ok();
    assert_eq!(repo.kinds("r"), ["spawn", "result", "reject"]);
    assert_eq!(repo.git_args(["show", &format!("{}:mine", snapshot(&repo, "r"))]), "mine");
    // One that nobody ever worked in has nothing to record.
    repo.agent("spawn --role developer --run idle").ok();
    repo.agent("discard idle").ok().says(&["it left nothing"]);
    assert_eq!(repo.kinds("idle"), ["spawn", "reject"]);
    repo.agent("discard nobody").with(128).refuses(&["no run is called 'nobody'"]);
}

#[test]
fn r22_discard_of_a_run_at_work_is_refused() {
    let s = Sandbox::new();
    let repo = s.repo();
    let running = repo.start("--role developer --run r", "echo x > x; sleep 60");
    eventually("it runs", || running_in(&repo, "r"));
    repo.agent("discard r").with(128).refuses(&["at work", "git agent stop r"]);
    repo.agent("stop r").ok();
    running.end().fails();
    repo.agent("discard r").ok();
    assert_eq!(repo.state("r"), "rejected");
}

#[test]
fn r23_a_run_that_was_left_for_later_stays() {
    let s = Sandbox::new();
    let repo = s.repo();
    run(&repo, "r", "echo new > new");
    repo.agent("review r --keep").ok();
    let before = repo.fingerprint();
    assert!(why(&prune(&repo, "--force"), "r").contains("left it for later"));
    before.unchanged(&repo.fingerprint());
    assert!(repo.tree("r").join("new").exists());
    assert_eq!(repo.branches(), ["main", "wt/r"]);
}

#[test]
fn r32_finished_runs_go_and_live_ones_stay() {
    both(|s| {
        let repo = s.repo();
        repo.policy(KEEP);
        rejected(&repo, "done");
        let root = root(&repo, "done");
        let live = repo.start("--role developer --run live", "echo x > x; sleep 60");
        let orphaned = repo.start("--role developer --run orphaned", "echo x > x; sleep 60");
        eventually("both run", || ["live", "orphaned"].iter().all(|r| running_in(&repo, r)));
        // The supervisor is gone; what it started may still be there.
        orphaned.signal(rustix::process::Signal::KILL);
        let answer = prune(&repo, "--force");
        assert_eq!(names(&answer, "pruned"), ["done"]);
        assert!(!root.join("done").exists());
        assert_eq!(repo.state("done"), "pruned");
        assert_eq!(repo.branches(), ["main", "wt/live", "wt/orphaned"]);
        assert_eq!(why(&answer, "live"), "it is at work");
        assert!(root.join("orphaned/tree/x").exists());
        // A live run that the ledger does not know either.
        let id = repo.show("live")["run"].as_str().unwrap().to_owned();
        repo.git_args(["update-ref", "-d", &format!("refs/agent-runs/{id}")]);
        assert_eq!(why(&prune(&repo, "--force"), "live"), "it is at work");
        drop(live);
        trash_is_empty(&root);
    });
}

#[test]
fn r33_a_folder_without_an_entry_goes_only_if_it_is_ours() {
    both(|s| {
        let repo = s.repo();
        let names_of = ["recorded", "foreign", "unrecorded", "bare"];
        for name in names_of {
            run(&repo, name, &format!("echo {name} > {name}"));
        }
        let root = root(&repo, "recorded");
        for name in names_of {
            let id = repo.show(name)["run"].as_str().unwrap().to_owned();
            repo.git_args(["update-ref", "-d", &format!("refs/agent-runs/{id}")]);
        }
        let record = root.join("foreign/host/run.json");
        let text = std::fs::read_to_string(&record).unwrap();
        let mut value: Value = serde_json::from_str(&text).unwrap();
        value["repo"] = json!("0".repeat(32));
        std::fs::write(&record, value.to_string()).unwrap();
        std::fs::write(root.join("unrecorded/tree/late"), "late").unwrap();
        std::fs::remove_file(root.join("bare/host/run.json")).unwrap();

        let answer = prune(&repo, "");
        assert_eq!(names(&answer, "pruned"), ["recorded"]);
        assert_eq!(answer["pruned"][0]["why"], "no-entry");
        assert!(why(&answer, "foreign").contains("another repository"));
        assert!(why(&answer, "unrecorded").contains("late is in no snapshot"));
        // The work is on the branches; they are not prune's to take.
        assert_eq!(repo.branches(), ["main", "wt/bare", "wt/foreign", "wt/recorded", "wt/unrecorded"]);
        assert!(!root.join("recorded").exists());
        let answer = prune(&repo, "--force");
        assert_eq!(names(&answer, "pruned"), ["unrecorded"]);
        assert!(root.join("foreign/tree/foreign").exists() && root.join("bare/tree/bare").exists());
        trash_is_empty(&root);
    });
}

#[test]
fn r33_an_entry_without_a_folder_is_marked() {
    let s = Sandbox::new();
    let repo = s.repo();
    for name in ["unmerged", "merged"] {
        run(&repo, name, &format!("echo {name} > {name}"));
    }
    let root = root(&repo, "merged");
    repo.git("merge -q wt/merged");
    for name in ["unmerged", "merged"] {
        std::fs::remove_dir_all(root.join(name)).unwrap();
    }
    // What waits for a review can still be reviewed: its change is in the ledger.
    let answer = prune(&repo, "");
    assert_eq!(names(&answer, "pruned"), ["merged"]);
    assert_eq!(repo.state("unmerged"), "proposed");
    assert_eq!(names(&prune(&repo, "--force"), "pruned"), ["unmerged"]);
    assert_eq!(repo.branches(), ["main", "wt/unmerged"]);
    assert_eq!((repo.state("merged"), repo.state("unmerged")), ("pruned".into(), "pruned".into()));
    assert_eq!(prune(&repo, "")["pruned"], json!([]));
}

#[test]
fn r33_nothing_is_marked_while_the_disk_is_not_mounted() {
    let s = Sandbox::new();
    let repo = s.repo();
    let disk = s.dir().join("disk");
    std::fs::create_dir(&disk).unwrap();
    repo.git_args(["config", "agent.root", disk.join("runs").to_str().unwrap()]);
    run(&repo, "r", "echo x > x");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    std::fs::rename(&disk, s.dir().join("unplugged")).unwrap();
    let answer = prune(&repo, "--force");
    assert_eq!(answer["pruned"], json!([]));
    assert!(why(&answer, "r").contains("another machine or disk"));
    std::fs::remove_dir_all(&disk).unwrap();
    std::fs::rename(s.dir().join("unplugged"), &disk).unwrap();
    assert_eq!(repo.state("r"), "proposed");
}

#[test]
fn r34_what_nobody_reviewed_stays() {
    both(|s| {
        let repo = s.repo();
        repo.agent("spawn --role developer --run touched").ok();
        repo.agent_args(["exec", "touched", "--", "sh", "-c", "echo x > untracked"]).ok();
        run(&repo, "proposed", "echo x > untracked");
        run(
            &repo,
            "detached",
            "git checkout -q --detach; echo d > d; git add d; git commit -qm d; git checkout -q wt/detached",
        );
        run(&repo, "empty", ":");
        let root = root(&repo, "touched");
        let answer = prune(&repo, "--force");
        assert_eq!(answer["pruned"], json!([]));
        for name in ["touched", "proposed", "detached", "empty"] {
            why(&answer, name);
            assert!(root.join(name).join("tree/README").exists());
        }
    });
}

#[test]
fn r34_a_landed_run_stays_while_it_holds_more_than_what_landed() {
    both(|s| {
        let repo = s.repo();
        // A commit on a side branch of the store, not on disk when the snapshot was taken.
        run(
            &repo,
            "side",
            "git checkout -q -b side; echo s > s; git add s; git commit -qm s; git checkout -q wt/side; echo v > v",
        );
        run(&repo, "stash", "echo s >> src/a; git stash -q; echo w > w");
        run(&repo, "late", "echo l > l");
        run(&repo, "nested", "git init -q in; echo n > in/n");
        for name in ["side", "stash", "late", "nested"] {
            repo.git_args(["merge", "-q", "--squash", &format!("wt/{name}")]);
            repo.git_args(["commit", "-qm", name]);
        }
        let late = repo.tree("late").join("src/later");
        std::fs::write(&late, "later").unwrap();
        let answer = prune(&repo, "");
        assert_eq!(answer["pruned"], json!([]));
        assert!(why(&answer, "side").contains("commits that are nowhere else"), "{answer}");
        assert!(why(&answer, "stash").contains("commits that are nowhere else"), "{answer}");
        assert!(why(&answer, "late").contains("src"), "{answer}");
        assert!(why(&answer, "nested").contains("a repository of its own"), "{answer}");
        let root = root(&repo, "late");
        assert_eq!(names(&prune(&repo, "--force"), "pruned"), ["late", "nested", "side", "stash"]);
        assert_eq!(repo.branches(), ["main"]);
        trash_is_empty(&root);
    });
}

#[test]
fn r35_a_change_that_landed_is_recognised_however_it_did() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.write("long", (0..40).map(|n| format!("line {n}\n")).collect::<String>());
    repo.commit("long");
    run(&repo, "merged", "echo m > m");
    run(&repo, "squashed", "sed -i 's/^two/TWO/' src/a; echo q > q");
    run(
        &repo,
        "rebased",
        "sed -i 's/line 30/LINE 30/' long; git commit -qam one; echo r > r; git add r; git commit -qm two",
    );
    run(&repo, "remote", "echo o > o");
    run(&repo, "partly", "echo p1 > p1; echo p2 > p2");
    run(&repo, "never", "sed -i 's/^one/ONE/' src/a");
    repo.git("merge -q wt/merged");
    // main moved in another part of the same file before, and in the same lines after.
    repo.write("long", repo.read("long").replace("line 3\n", "line three\n"));
    repo.commit("main moves");
    repo.git("merge -q --squash wt/squashed");
    repo.commit("squashed");
    repo.write("src/a", "one\nagain\nthree\n");
    repo.commit("the same lines changed again");
    repo.git("cherry-pick wt/rebased");
    repo.write("p1", "p1\n");
    repo.commit("a part only");
    // Merged on the remote only.
    s.run(s.dir(), "git", ["clone", "-q", "--bare", repo.dir.to_str().unwrap(), "remote.git"]).ok();
    repo.git("remote add origin ../remote.git");
    repo.git("checkout -q -b elsewhere");
    repo.git("merge -q --squash wt/remote");
    repo.commit("remote");
    repo.git("push -q origin elsewhere:main");
    repo.git("fetch -q origin");
    repo.git("checkout -q main");
    repo.git("branch -qD elsewhere");

    let answer = prune(&repo, "--dry-run");
    assert_eq!(names(&answer, "pruned"), ["merged", "rebased", "remote", "squashed"], "{answer}");
    assert_eq!(names(&prune(&repo, ""), "pruned"), ["merged", "rebased", "remote", "squashed"]);
    assert_eq!(repo.branches(), ["main", "wt/never", "wt/partly"]);
}

#[test]
fn r36_a_branch_that_is_somebody_elses_by_now_stays() {
    let s = Sandbox::new();
    let repo = s.repo();
    run(&repo, "gone", "echo g > g");
    repo.git("config branch.wt/gone.remote origin");
    repo.git("config branch.wt/gone.merge refs/heads/wt/gone");
    run(&repo, "reused", "echo r > r");
    run(&repo, "continued", "echo c > c");
    repo.git("merge -q wt/reused");
    repo.git("merge -q -m two wt/continued");
    repo.git("branch -qD wt/reused");
    repo.git("branch -q wt/reused HEAD");
    repo.git("switch -q wt/continued");
    repo.commit("on top");
    repo.git("switch -q main");
    let tips = |names: &[&str]| names.iter().map(|n| repo.git_args(["rev-parse", n])).collect::<Vec<_>>();
    let before = tips(&["wt/gone", "wt/reused", "wt/continued"]);
    let answer = prune(&repo, "--force");
    assert_eq!(names(&answer, "pruned"), ["continued", "reused"]);
    why(&answer, "gone");
    assert_eq!(tips(&["wt/gone", "wt/reused", "wt/continued"]), before);
    assert!(answer["pruned"].as_array().unwrap().iter().all(|i| i["branch"].is_null()));
    // A later run of the same name and base owns the branch of that name.
    repo.git("branch -qD wt/reused");
    run(&repo, "reused", "echo again > again");
    prune(&repo, "--force");
    assert_eq!(repo.branches(), ["main", "wt/continued", "wt/gone", "wt/reused"]);
}

#[test]
fn r37_the_users_own_work_trees_are_none_of_our_business() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy(KEEP);
    rejected(&repo, "r");
    rejected(&repo, "inside");
    rejected(&repo, "looked-at");
    let root = root(&repo, "r");
    for name in ["own", "locked", "missing", "missing-locked"] {
        repo.git_args(["worktree", "add", "-q", "-b", name, &format!("../{name}")]);
    }
    repo.git("worktree lock ../locked");
    repo.git("worktree lock ../missing-locked");
    std::fs::remove_dir_all(s.dir().join("missing")).unwrap();
    std::fs::remove_dir_all(s.dir().join("missing-locked")).unwrap();
    // The run's branch in a work tree of the user's, and a work tree of the user's in a run's folder.
    repo.git("worktree add -q ../looking wt/looked-at");
    repo.git_args(["worktree", "add", "-q", "-b", "deep", root.join("inside/tmp/deep").to_str().unwrap()]);
    let list = repo.git("worktree list --porcelain");
    let answer = prune(&repo, "--force");
    assert_eq!(names(&answer, "pruned"), ["looked-at", "r"]);
    assert!(why(&answer, "inside").contains("a work tree or repository of yours is inside"));
    assert_eq!(repo.git("worktree list --porcelain"), list);
    assert!(repo.branches().contains(&"wt/looked-at".to_owned()));
    assert!(!repo.branches().contains(&"wt/r".to_owned()));
    assert!(root.join("inside/tmp/deep/README").exists() && s.dir().join("looking/looked-at").exists());
}

#[test]
fn r38_what_is_not_the_folder_we_made_is_refused() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy(KEEP);
    let all = ["another", "first", "second", "linked", "main-link", "tree-link", "file", "moved"];
    for name in all {
        rejected(&repo, name);
    }
    let root = root(&repo, "first");
    let at = |name: &str| root.join(name);
    let mv = |a: PathBuf, b: PathBuf| std::fs::rename(a, b).unwrap();
    // Another repository in the tree's place.
    mv(at("another/tree"), s.dir().join("kept"));
    s.run(s.dir(), "git", ["clone", "-q", repo.dir.to_str().unwrap(), at("another/tree").to_str().unwrap()])
        .ok();
    // Two siblings that changed places.
    mv(at("first"), s.dir().join("swap"));
    mv(at("second"), at("first"));
    mv(s.dir().join("swap"), at("second"));
    // A folder that now lies behind a link.
    mv(at("linked"), s.dir().join("linked"));
    std::os::unix::fs::symlink(s.dir().join("linked"), at("linked")).unwrap();
    // The main checkout.
    mv(at("main-link"), s.dir().join("was-main-link"));
    std::os::unix::fs::symlink(&repo.dir, at("main-link")).unwrap();
    mv(at("tree-link/tree"), s.dir().join("was-tree-link"));
    std::os::unix::fs::symlink(&repo.dir, at("tree-link/tree")).unwrap();
    mv(at("file"), s.dir().join("was-file"));
    std::fs::write(at("file"), "mine").unwrap();
    mv(at("moved"), at("elsewhere"));

    let before = fingerprint(s.dir(), |p| !p.starts_with(repo.dir.join(".git")));
    for options in ["--dry-run", "", "--force"] {
        let answer = prune(&repo, options);
        assert_eq!(answer["pruned"], json!([]), "{options}");
        for name in ["another", "first", "second", "linked", "main-link", "tree-link", "file"] {
            let kept = answer["kept"].as_array().unwrap().iter().find(|k| k["name"] == name);
            assert!(kept.is_some_and(|k| k["refused"] == true), "{name}: {answer}");
        }
        let said = repo.agent(&format!("prune {options}")).ok();
        said.says(&["another is left alone", "first is left alone", "linked is left alone"]);
    }
    before.unchanged(&fingerprint(s.dir(), |p| !p.starts_with(repo.dir.join(".git"))));
}

#[test]
fn r38_mount_points_are_refused() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy(KEEP);
    for name in ["within", "over", "main"] {
        rejected(&repo, name);
    }
    let root = root(&repo, "over");
    let within = Mounted::tmpfs(&root.join("within/tree/mnt"), "size=1m");
    std::fs::write(root.join("within/tree/mnt/f"), "mine").unwrap();
    let bind = |from: &Path, to: &Path| {
        let done = Command::new("mount").arg("--bind").args([from, to]).status().unwrap();
        assert!(done.success());
        Unmount(to.to_owned())
    };
    let over = bind(&root.join("over"), &root.join("over"));
    let main = bind(&repo.dir, &root.join("main/tree"));
    let answer = prune(&repo, "--force");
    assert_eq!(answer["pruned"], json!([]), "{answer}");
    for name in ["within", "over", "main"] {
        assert!(why(&answer, name).contains("a file system is mounted at"), "{answer}");
    }
    assert!(root.join("within/tree/mnt/f").exists() && repo.dir.join("README").exists());
    drop((within, over, main));
    assert_eq!(names(&prune(&repo, "--force"), "pruned"), ["main", "over", "within"]);
    trash_is_empty(&root);
    assert!(repo.dir.join("README").exists());
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn r40_a_dry_run_changes_nothing_and_says_exactly_what_happens() {
    both(|s| {
        let repo = s.repo();
        repo.policy(KEEP);
        rejected(&repo, "rejected");
        run(&repo, "landed", "echo l > l");
        run(&repo, "waits", "echo w > w");
        repo.agent("spawn --role developer --run folderless").ok();
        run(&repo, "orphan", "echo o > o");
        repo.git("merge -q --squash wt/landed");
        repo.commit("landed");
        let root = root(&repo, "waits");
        let id = repo.show("orphan")["run"].as_str().unwrap().to_owned();
        repo.git_args(["update-ref", "-d", &format!("refs/agent-runs/{id}")]);
        std::fs::remove_dir_all(root.join("folderless")).unwrap();
        // What a prune that died left.
        std::fs::create_dir_all(root.join(".trash/01arz3ndektsv4rrffq69g5fav/tree")).unwrap();
        s.give(&root.join(".trash"));

        let before = fingerprint(s.dir(), |_| true);
        let said = repo.agent("prune --dry-run").ok();
        assert_eq!(said.out().lines().count(), 5, "{}", said.out());
        let mut would = prune(&repo, "--dry-run");
        before.unchanged(&fingerprint(s.dir(), |_| true));
        let mut did = prune(&repo, "");
        assert_eq!((would["dry_run"].take(), did["dry_run"].take()), (json!(true), json!(false)));
        assert_eq!(would, did);
        assert_eq!(names(&did, "pruned"), ["folderless", "landed", "orphan", "rejected"]);
        for item in did["pruned"].as_array().unwrap() {
            assert!(item["path"].as_str().is_none_or(|p| !Path::new(p).exists()));
            assert!(item["branch"].as_str().is_none_or(|b| repo.git_args(["for-each-ref", b]).is_empty()));
        }
        trash_is_empty(&root);
        assert!(root.join("waits/tree/w").exists());
    });
}

#[test]
fn r41_what_is_left_of_a_run_is_ended_and_nothing_else() {
    both(|s| {
        let repo = s.repo();
        repo.policy(KEEP);
        rejected(&repo, "r");
        rejected(&repo, "other");
        let id = repo.show("r")["run"].as_str().unwrap().to_owned();
        let root = root(&repo, "r");
        let tree = root.join("r/tree");
        let uid = |name: &str| {
            let record = std::fs::read(root.join(name).join("host/run.json")).unwrap();
            serde_json::from_slice::<Value>(&record).unwrap()["uid"].as_u64().map(|u| u as u32)
        };
        let sleeper = |mark: Option<&str>, dir: &Path, uid: Option<u32>| {
            let mut command = s.command(dir, "sleep");
            command.arg("300").stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            if let Some(mark) = mark {
                command.env("GIT_AGENT_RUN", mark);
            }
            if let Some(uid) = uid {
                // The folder above is the host's alone; as the run's engine it was entered before.
                command.uid(uid).gid(uid);
            }
            Running(Some(command.spawn().unwrap()))
        };
        let mut ours = vec![sleeper(Some(&id), &tree, None)];
        let mut others = vec![
            sleeper(None, &tree, None),
            sleeper(Some(&id), s.dir(), None),
            sleeper(Some("01arz3ndektsv4rrffq69g5fav"), &tree, None),
        ];
        if let Some(uid) = uid("r") {
            // As root the engine had a user of its own, and a person's processes are root's.
            others.append(&mut ours);
            ours.push(sleeper(Some(&id), Path::new("/"), Some(uid)));
            others.push(sleeper(None, Path::new("/"), Some(USER)));
        }
        let pids: Vec<i32> = ours.iter().map(Running::pid).collect();
        let alive = |running: &mut Running| running.0.as_mut().unwrap().try_wait().unwrap().is_none();
        let would = prune(&repo, "--dry-run");
        let item = would["pruned"].as_array().unwrap().iter().find(|i| i["name"] == "r").unwrap();
        assert_eq!(item["processes"], json!(pids), "{would}");
        assert!(ours.iter_mut().chain(&mut others).all(alive));
        // Nobody reaps our sleepers while prune waits for them.
        let did = prune(&repo, "");
        assert_eq!(names(&did, "pruned"), ["other", "r"], "{did}");
        assert!(!ours.iter_mut().any(alive));
        assert!(others.iter_mut().all(alive));
        trash_is_empty(&root);
    });
}

#[test]
fn age_takes_failed_and_unused_runs_only() {
    use git_agent::ops::prune::{Request, plan};
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy("version: 1\nroles: {developer: {kind: writer, limits: {files: 1}}}\n");
    let runs = s.dir().join("runs");
    repo.git_args(["config", "agent.root", runs.to_str().unwrap()]);
    repo.spawn("--role developer --run failed", "echo 1 > 1; echo 2 > 2").fails();
    assert_eq!(repo.state("failed"), "failed");
    repo.agent("spawn --role developer --run unused").ok();
    repo.agent("spawn --role developer --run used").ok();
    repo.agent_args(["exec", "used", "--", "sh", "-c", "echo x > x"]).ok();
    run(&repo, "proposed", "echo p > p");
    let opened = git_agent::git::Repo::discover(&repo.dir).unwrap();
    let now = git_agent::ops::now();
    let goes = |days: i64, force: bool| {
        let plan = plan(&opened, Request { force }, now + days * 86_400).unwrap();
        plan.items.iter().map(|i| format!("{} {}", i.name, i.why.as_str())).collect::<Vec<_>>()
    };
    assert!(goes(89, false).is_empty());
    assert_eq!(goes(91, false), ["failed failed", "unused unused"]);
    assert_eq!(goes(91, true), ["failed failed", "unused unused"], "a changed tree is never unused");
    assert_eq!(goes(0, true), ["failed failed"]);
}

#[test]
fn the_automatic_prune_is_quiet_and_at_most_daily() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.agent("prune --auto").ok();
    assert!(!repo.dir.join(".git/agent").exists(), "a repository without runs stays without traces");
    repo.policy(KEEP);
    rejected(&repo, "one");
    let root = root(&repo, "one");
    std::fs::remove_file(root.join(".pruned")).ok();
    let said = repo.agent("prune --auto").ok();
    assert_eq!((said.out(), said.err()), ("", ""));
    assert!(!root.join("one").exists());
    rejected(&repo, "two");
    repo.agent("prune --auto").ok();
    assert!(root.join("two").exists());
    let day_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(90_000);
    std::fs::File::open(root.join(".pruned")).unwrap().set_modified(day_ago).unwrap();
    repo.agent("prune --auto").ok();
    assert!(!root.join("two").exists());
    trash_is_empty(&root);
}

#[test]
fn an_interrupted_prune_is_finished_by_the_next() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy(KEEP);
    rejected(&repo, "r");
    let root = root(&repo, "r");
    // Dead after the event, before the folder went.
    std::fs::rename(root.join("r"), s.dir().join("aside")).unwrap();
    std::fs::create_dir_all(root.join(".trash")).unwrap();
    std::fs::rename(s.dir().join("aside"), root.join("r")).unwrap();
    prune(&repo, "");
    trash_is_empty(&root);
    assert_eq!(repo.state("r"), "pruned");
    // Dead after the folder went, before the event.
    rejected(&repo, "q");
    std::fs::rename(root.join("q"), root.join(".trash/01arz3ndektsv4rrffq69g5fav")).unwrap();
    let answer = prune(&repo, "");
    assert_eq!(answer["trash"], json!(["01arz3ndektsv4rrffq69g5fav"]));
    trash_is_empty(&root);
    assert_eq!(repo.state("q"), "rejected");
}
