//! What an attack from outside showed, each as the test that would have caught it.

use crate::support::{self, Sandbox};

/// `GIT_CONFIG_GLOBAL` may name any file; one inside the repository is the repository's word.
#[test]
fn a_repository_cannot_pose_as_the_persons_configuration() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", "echo x >x").ok();
    let digest = repo.agent("review one --json").ok().json()["digest"].as_str().unwrap().to_owned();
    repo.git("config agent.approve unattended");
    let approve = |file: &std::path::Path| {
        let mut command = repo.agent_command(["review", "one", "--approve", "--digest", &digest]);
        command.env("GIT_CONFIG_GLOBAL", file);
        support::run(command, b"")
    };
    approve(&repo.dir.join(".git/config")).with(4).refuses(&["no terminal"]);
    std::os::unix::fs::symlink(repo.dir.join(".git/config"), s.dir().join("link")).unwrap();
    approve(&s.dir().join("link")).with(4).refuses(&["no terminal"]);
    // Positive control: the same words in a file of the person's own count.
    let own = s.dir().join("own");
    std::fs::write(&own, "[agent]\n\tapprove = unattended\n").unwrap();
    approve(&own).ok().says(&["approved run one"]);
}

/// A ref of zero length, as a power cut leaves it, is passed over by git; its run's folder has an owner.
#[test]
fn a_ref_that_git_cannot_read_still_owns_its_folder() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", "echo x >x").ok();
    let id = repo.show("one")["run"].as_str().unwrap().to_owned();
    let tree = repo.tree("one");
    std::fs::write(repo.dir.join(".git/refs/agent-runs").join(id), "").unwrap();
    repo.agent("list").ok().says(&["git cannot read this ref"]);
    repo.agent("prune").ok();
    assert!(tree.join("x").exists());
    repo.agent("prune --force").ok();
    assert!(tree.join("x").exists());
}

#[test]
fn an_existing_run_needs_no_role() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role tester --run one", "echo 1 >x").ok();
    repo.spawn("--run one", "echo 2 >x").ok();
    assert_eq!(repo.show("one")["role"], "tester");
    assert_eq!(repo.kinds("one"), ["spawn", "engine", "result", "engine", "result"]);
    repo.agent("spawn --run two -- true").with(129).refuses(&["'two'", "role"]);
    assert_eq!(repo.names(), ["one"]);
}

#[test]
fn a_discarded_name_is_free_again() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", "echo 1 >x").ok();
    repo.agent("discard one").ok();
    repo.spawn("--role developer --run one", "echo 2 >x").ok();
    assert_eq!(repo.state("one"), "proposed");
    assert_eq!(repo.branches(), ["main", "wt/one"]);
}

#[test]
fn absurd_durations_and_contradicting_engines_are_refused_before_anything_is_made() {
    let s = Sandbox::new();
    let repo = s.repo();
    for words in [
        "spawn --role developer --run x --timeout 18446744073709551615s -- true",
        "spawn --role developer --run x --timeout 99999999d -- true",
        "spawn --role developer --run x --engine demo -- true",
    ] {
        repo.agent(words).with(129);
    }
    assert_eq!(repo.names(), [""; 0]);
    assert_eq!(repo.branches(), ["main"]);
}

/// Only the changed objects travel, not the whole tree: one file among many gives loose objects, no pack.
#[test]
fn the_import_is_as_large_as_the_change() {
    let s = Sandbox::new();
    let repo = s.repo();
    for n in 0..300 {
        repo.write(&format!("many/{n}"), format!("{n}\n"));
    }
    repo.commit("many");
    repo.git("repack -q -a -d");
    let packs = || std::fs::read_dir(repo.dir.join(".git/objects/pack")).unwrap().count();
    let before = packs();
    repo.spawn("--role developer --run one", "echo changed >many/7").ok();
    assert_eq!(packs(), before);
    let loose: u64 = repo.git("count-objects").split(' ').next().unwrap().parse().unwrap();
    assert!(loose < 20, "{loose} loose objects for one changed file and three events");
}
