//! An ordinary work tree of a snapshot.

use crate::support::*;
use std::path::Path;

#[test]
fn r56_an_ordinary_work_tree_of_the_snapshot() {
    both(|s| {
        let repo = s.repo();
        s.run(s.dir(), "git", ["clone", "-q", "--bare", repo.dir.to_str().unwrap(), "remote.git"]).ok();
        repo.git("remote add origin ../remote.git");
        repo.write(".git/hooks/post-checkout", "#!/bin/sh\ntouch \"$GIT_DIR/hook-ran\" /tmp/never\n");
        set_mode(&repo.dir.join(".git/hooks/post-checkout"), 0o755);
        repo.spawn("--role developer --run r", "echo new > new; rm src/b; chmod +x README").ok();
        let snapshot = repo.show("r")["result"]["snapshot"].as_str().unwrap().to_owned();
        let said = repo.agent("checkout r").ok();
        let dir = said.out().to_owned();
        assert_eq!(Path::new(&dir), s.dir().join("project.r"));
        let there = repo.at(&dir);
        assert_eq!(there.git("rev-parse HEAD"), snapshot);
        assert_eq!(there.git("status --porcelain"), "");
        assert_eq!(there.read("new"), "new\n");
        assert_eq!(there.git("rev-parse --abbrev-ref HEAD"), "HEAD");
        there.git("fetch -q origin");
        there.git("push -q origin HEAD:refs/heads/for-review");
        assert!(repo.git("worktree list --porcelain").contains(&format!("worktree {dir}\n")));
        assert!(!repo.git("worktree list --porcelain").contains("prunable"));
        assert!(!repo.dir.join(".git/worktrees/project.r/hook-ran").exists());

        // Taken: refused by name. Elsewhere, from a sub-directory, relative to it.
        repo.agent("checkout r").with(128).refuses(&["project.r", "exists already"]);
        assert_eq!(
            repo.at("src").agent("checkout r ../../second").ok().out(),
            s.dir().join("project/src/../../second").to_str().unwrap()
        );
        assert!(s.dir().join("second/new").exists());

        // Prune knows them and leaves them alone, also when their run is gone.
        repo.agent("discard r").ok();
        let list = repo.git("worktree list --porcelain");
        there.write("mine", "mine");
        repo.agent("prune --force").ok();
        assert_eq!(repo.git("worktree list --porcelain"), list);
        assert_eq!(there.read("mine"), "mine");
        // The tree is gone; the snapshot is not.
        repo.agent("checkout r ../third").ok();
        assert!(s.dir().join("third/new").exists());
    });
}

#[test]
fn r56_refusals() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.agent("spawn --role developer --run r").ok();
    repo.agent("checkout r").with(128).refuses(&["has no snapshot yet", "git agent finish r"]);
    repo.agent("finish r").ok();
    let inside = repo.tree("r").parent().unwrap().join("tmp/here");
    repo.agent_args(["checkout", "r", inside.to_str().unwrap()]).with(128).refuses(&["belongs to prune"]);
    repo.agent("checkout nobody").with(128).refuses(&["no run is called 'nobody'"]);
    assert_eq!(repo.git("worktree list").lines().count(), 1);
    // From inside the run's tree it is the main repository's all the same.
    let tree = repo.tree("r");
    let said = repo.at(&tree).agent_args(["checkout", "r", s.dir().join("out").to_str().unwrap()]).ok();
    assert_eq!(said.out(), s.dir().join("out").to_str().unwrap());
    assert_eq!(repo.git("worktree list").lines().count(), 2);
}
