//! Runs between repositories: nothing is lost, whoever pushes, fetches and prunes.

use crate::gate::{Server, formats};
use crate::support::*;
use std::path::PathBuf;

/// A server without a gate and two clones of it.
fn two<'s>(s: &'s Sandbox, init: &[&str]) -> (PathBuf, Repo<'s>, Repo<'s>) {
    let bare = s.dir().join("server.git");
    let mut args = vec!["init", "-q", "--bare"];
    args.extend(init);
    args.push(bare.to_str().unwrap());
    s.run(s.dir(), "git", args).ok();
    let one = s.repo_with("one", init);
    one.git_args(["remote", "add", "origin", bare.to_str().unwrap()]);
    one.git("push -q -u origin main");
    s.run(s.dir(), "git", ["clone", "-q", bare.to_str().unwrap(), "two"]).ok();
    let two = Repo { sandbox: s, dir: s.dir().join("two") };
    s.run(s.dir(), "git", ["config", "--global", "agent.approve", "unattended"]).ok();
    (bare, one, two)
}

fn run_ref(repo: &Repo, run: &str) -> String {
    format!("refs/agent-runs/{}", repo.show(run)["run"].as_str().unwrap())
}

#[test]
fn r43_r44_two_clones_append_and_lose_nothing() {
    let probe = Sandbox::new();
    for init in formats(&probe) {
        let s = Sandbox::new();
        let (_, one, two) = two(&s, &init);
        one.spawn("--role developer --run r1", "echo two > src/b").ok();
        let run = run_ref(&one, "r1");
        let said = one.agent("push r1").ok();
        said.says(&["r1 -> origin: its record", "nobody has approved"]);
        // Another machine sees the same, and its word is its own.
        two.agent("fetch").ok().says(&["origin has 1 runs"]);
        assert_eq!(two.git("for-each-ref refs/agent-runs/"), "");
        assert_eq!(two.names(), ["r1"]);
        assert_eq!(two.change("r1"), one.change("r1"));
        assert_eq!(two.kinds("r1"), one.kinds("r1"));
        two.approves("r1").ok();
        assert_eq!(two.state("r1"), "approved");
        // Meanwhile the first says something, too: neither knew the other.
        one.agent("revoke r1").ok();
        two.agent("sync").ok();
        one.agent("sync").ok().says(&["one history now"]);
        two.agent("sync").ok();
        let tips = [&one, &two].map(|r| r.git(&format!("rev-parse {run}")));
        assert_eq!(tips[0], tips[1]);
        for repo in [&one, &two] {
            let mut kinds = repo.kinds("r1");
            kinds.sort();
            assert_eq!(kinds, ["approve", "engine", "join", "result", "revoke", "spawn"]);
            // G12: the safe side wins.
            assert_eq!(repo.state("r1"), "proposed");
            repo.agent("apply --dry-run r1").with(4).says(&["taken back"]);
        }
        // Both join at once: the same bytes, so that there is nothing left to join.
        one.approves("r1").ok();
        two.agent_args(["revoke", "r1", "-m", "again"]).ok();
        let [here, there] = [&one, &two].map(|r| r.git(&format!("rev-parse {run}")));
        let swap = |to: &Repo, from: &Repo| {
            to.git_args([
                "fetch",
                "-q",
                from.dir.to_str().unwrap(),
                &format!("+{run}:refs/agent-remotes/x/runs/{}", &run[16..]),
            ]);
        };
        swap(&one, &two);
        swap(&two, &one);
        for (repo, other) in [(&one, &there), (&two, &here)] {
            let found = git_agent::git::Repo::discover(&repo.dir).unwrap();
            let joined = git_agent::ledger::Ledger::new(&found)
                .take_in(&run[16..].parse().unwrap(), &other.parse().unwrap());
            assert_eq!(joined.unwrap(), git_agent::ledger::Joined::Both);
        }
        let tips = [&one, &two].map(|r| r.git(&format!("rev-parse {run}")));
        assert_eq!(tips[0], tips[1]);
        assert_eq!(one.state("r1"), "proposed");
    }
}

#[test]
fn r46_what_others_prune_and_mirror_loses_no_event() {
    let s = Sandbox::new();
    let (bare, one, two) = two(&s, &[]);
    one.spawn("--role developer --run r1", "echo two > src/b").ok();
    let run = run_ref(&one, "r1");
    one.agent("push r1").ok();
    two.agent("fetch").ok();
    // Not pushed yet.
    two.approves("r1").ok();
    let own = two.git(&format!("rev-parse {run}"));
    two.git("config fetch.prune true");
    two.git("config remote.origin.prune true");
    // The server lost everything.
    s.run(&bare, "git", ["update-ref", "-d", &run]).ok();
    for words in ["fetch -q --prune", "remote update --prune", "fetch -q --all --prune"] {
        two.git(words);
    }
    two.agent("fetch").ok();
    assert_eq!(two.git(&format!("rev-parse {run}")), own);
    assert_eq!(two.state("r1"), "approved");
    // A mirror of a stale clone takes it from a server without a gate; both clones still have it.
    two.agent("push r1").ok();
    s.run(s.dir(), "git", ["clone", "-q", bare.to_str().unwrap(), "stale"]).ok();
    s.run(&s.dir().join("stale"), "git", ["push", "-q", "--mirror", "origin"]).ok();
    one.agent("fetch").ok();
    two.agent("push r1").ok();
    one.agent("sync").ok();
    assert_eq!(one.git(&format!("rev-parse {run}")), own);
}

#[test]
fn r45_many_notes_at_once_are_all_there() {
    let s = Sandbox::new();
    let repo = s.repo();
    let commits: Vec<String> = (0..200)
        .map(|n| {
            let tree = "HEAD^{tree}";
            repo.git_args(["commit-tree", "-m", &n.to_string(), tree])
        })
        .collect();
    let dir = &repo.dir;
    std::thread::scope(|scope| {
        for part in commits.chunks(25) {
            scope.spawn(move || {
                let found = git_agent::git::Repo::discover(dir).unwrap();
                let who = git_agent::model::Actor { name: "Tess".into(), email: "t@example.org".into() };
                for commit in part {
                    let note = [(commit.parse().unwrap(), format!("Agent-Run: {commit}\n"))];
                    git_agent::ledger::notes::add(&found, &note, &who, 1).unwrap();
                }
            });
        }
    });
    let listed = repo.git("notes --ref=agent-runs list");
    assert_eq!(listed.lines().count(), 200);
    assert_eq!(
        repo.git_args(["notes", "--ref=agent-runs", "show", &commits[7]]),
        format!("Agent-Run: {}", commits[7])
    );
}

#[test]
fn g33_what_leaves_is_said_and_an_agents_own_commits_do_not() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let script = "echo secret-of-mine > key; git add key; git commit -q -m oops; git rm -q key; git commit -q -m sorry; echo two > src/b";
    let run = g.approved("r1", script);
    let secret = run_id_of_blob(&g.dev, "secret-of-mine\n");
    let plan = g.dev.agent("push --dry-run --json r1").ok().json();
    assert_eq!(plan["runs"][0]["branch"]["ref"], "refs/heads/wt/r1");
    assert_eq!(plan["runs"][0]["branch"]["below"], 0);
    assert!(!g.refs().contains("wt/r1"));
    g.dev.agent("push r1").ok().says(&["branch wt/r1 as one commit", "its record (4 events)"]);
    assert!(g.refs().contains("wt/r1") && g.refs().contains(&run));
    s.run(&g.bare, "git", ["cat-file", "-e", "HEAD:src/b"]).ok();
    s.run(&g.bare, "git", ["cat-file", "-e", &secret]).with(1);
    // G31: with the person's own message, trailers and signature.
    g.dev.agent_args(["push", "-S", "-m", "Fix b", "origin", "r1"]).ok();
    let message = g.git("log -1 --format=%B%an wt/r1");
    assert!(
        message.starts_with("Fix b")
            && message.contains("Agent-Run: ")
            && message.contains("Agent-Approval: "),
        "{message}"
    );
    assert!(message.ends_with("Tess Tester"), "{message}");
    assert!(g.git("cat-file commit wt/r1").contains("gpgsig"));
    // What is not approved leaves its record alone; an agent sends nothing.
    g.proposed("r2", "echo three > src/b");
    g.dev.agent("push r2").ok().says(&["no branch: nobody has approved"]);
    let mut agent = g.dev.agent_command(["push", "r2"]);
    agent.env("CLAUDECODE", "1");
    run_to_end(agent).with(4);
    // Uncommitted work of a person's does not leave by accident.
    g.dev.write("src/a", "not committed\n");
    g.dev.spawn("--role developer --run r3 --with-changes", "echo x > x").ok();
    g.dev.agent("push r3").with(1).refuses(&["uncommitted work"]);
}

fn run_to_end(command: std::process::Command) -> Ended {
    crate::support::run(command, b"")
}

fn run_id_of_blob(repo: &Repo, text: &str) -> String {
    let mut hash = repo.sandbox.command(&repo.dir, "git");
    hash.args(["hash-object", "--stdin"]);
    crate::support::run(hash, text.as_bytes()).ok().out().to_owned()
}

#[test]
fn a_change_that_landed_is_seen_noted_and_indexed() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    g.approved("r1", "echo two > src/b");
    g.dev.agent("apply r1").ok();
    let commit = g.commit_of("r1", true);
    g.push("HEAD:main").fails().says(&["no run in the ledger"]);
    g.dev.agent("push r1").ok();
    g.push("HEAD:main").ok();
    g.dev.git("fetch -q origin");
    let fetched = g.dev.agent("fetch --json").ok().json();
    assert_eq!(fetched["landed"][0]["commit"], commit.as_str());
    assert_eq!(g.dev.state("r1"), "landed");
    assert!(g.dev.git("log -1 --notes=agent-runs").contains("Agent-Change: sha256:"));
    // Again: nothing new. And a lost index comes back.
    assert_eq!(g.dev.agent("fetch --json").ok().json()["landed"], serde_json::json!([]));
    g.dev.git("update-ref -d refs/notes/agent-runs");
    g.dev.agent("notes rebuild").ok().says(&["1 landed commits"]);
    assert!(g.dev.git("log -1 --notes=agent-runs").contains("Agent-Run: "));
    g.dev.agent("sync").ok();
    assert!(g.refs().contains("refs/notes/agent-runs"), "{}", g.refs());
    assert!(g.git("log -1 --notes=agent-runs main").contains("Agent-Run: "));
}

#[test]
fn a_remotes_run_of_the_same_name_is_not_ours() {
    let s = Sandbox::new();
    let (_, one, two) = two(&s, &[]);
    one.spawn("--role developer --run r1", "echo mine > src/b").ok();
    two.spawn("--role developer --run r1", "echo evil > src/b").ok();
    two.agent("push r1").ok();
    one.agent("fetch").ok();
    assert_eq!(one.names(), ["r1", "r1"]);
    one.approves("r1").ok();
    one.agent("apply r1").ok();
    assert_eq!(one.read("src/b"), "mine\n");
}
