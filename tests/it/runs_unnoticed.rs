//! R51, R52, R54: what must not go unnoticed.

use crate::support::{Sandbox, both, fingerprint};
use serde_json::{Value, json};

#[test]
fn r51_spawn_says_what_the_copy_lacks() {
    both(|s| {
        let repo = s.repo();
        repo.write(".gitignore", "*.log\n");
        repo.write("c", "c\n");
        repo.commit("more");
        let clean = repo.spawn("--role developer", "true").ok();
        assert!(!clean.err().contains("not in this run"), "{}", clean.err());

        repo.write("src/a", "modified\n");
        std::fs::remove_file(repo.dir.join("src/b")).unwrap();
        repo.write("c", "staged\n");
        repo.git("add c");
        repo.write("untracked", "u\n");
        repo.write("ignored.log", "i\n");
        repo.write("d ir/\"odd\" \u{e9}\n", "o\n");
        let before = repo.fingerprint();
        let engine = "cat src/a c && test -e src/b && test ! -e untracked";
        let said = repo.spawn("--role developer --run copy", engine).ok();
        assert_eq!(said.out(), "one\ntwo\nthree\nc");
        said.says(&["3 modified, 2 untracked files of your tree are not in this run", "--with-changes"]);
        assert_eq!(repo.changed("copy"), [""; 0]);

        let engine = "cat src/a c untracked && test ! -e src/b && test ! -e ignored.log && ls 'd ir' && echo x >x && git status --porcelain";
        let said = repo.spawn("--role developer --run all --with-changes", engine).ok();
        assert_eq!(said.out(), "modified\nstaged\nu\n\"odd\" \u{e9}\n\n?? x");
        assert!(!said.err().contains("not in this run"), "{}", said.err());
        assert_eq!(repo.changed("all"), ["A x"], "the person's own changes are not the run's");
        let log = repo.agent("log all --json").ok().json();
        let spawn = &log["events"][0]["body"];
        assert_eq!(spawn["local_base"], json!(true));
        assert_eq!(
            repo.git(&format!("rev-parse {}^", spawn["base"].as_str().unwrap())),
            repo.git("rev-parse HEAD")
        );
        assert!(repo.agent("show all").ok().out().contains("this machine only"));
        before.unchanged(&repo.fingerprint());

        // With nothing to include the base is HEAD, and not local.
        repo.git("stash -q -u");
        repo.spawn("--role developer --run none --with-changes", "true").ok();
        let log = repo.agent("log none --json").ok().json();
        assert!(log["events"][0]["body"].get("local_base").is_none());
        assert_eq!(log["events"][0]["body"]["base"], json!(repo.git("rev-parse HEAD")));
        repo.agent("spawn --role developer --base HEAD --with-changes")
            .with(129)
            .refuses(&["two different bases"]);
    });
}

#[test]
fn r51_changes_of_every_kind_are_taken_along() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.write("moved", "a text that is long enough to be found again\n");
    repo.write("mode", "m\n");
    repo.write("kind", "k\n");
    repo.commit("more");
    repo.git("mv moved renamed");
    crate::support::set_mode(&repo.dir.join("mode"), 0o755);
    std::fs::remove_file(repo.dir.join("kind")).unwrap();
    std::os::unix::fs::symlink("README", repo.dir.join("kind")).unwrap();
    repo.write("intended", "i\n");
    repo.git("add -N intended");
    repo.write("binary", [0, 255, 10, 13, 0]);
    // The person's index may do what it likes: neither lock nor flags are ours.
    repo.git("update-index --assume-unchanged README");
    let before = repo.fingerprint();
    repo.spawn("--role developer --run all --with-changes", "true").ok();
    let told = repo.git("diff-tree -r --no-renames --name-status HEAD wt/all").replace('\t', " ");
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(told, ["A binary", "A intended", "T kind", "M mode", "D moved", "A renamed"]);
    before.unchanged(&repo.fingerprint());
    // With an index that somebody else holds it still works: only a copy is written.
    repo.write(".git/index.lock", "");
    repo.spawn("--role developer --run locked --with-changes", "true").ok();
    std::fs::remove_file(repo.dir.join(".git/index.lock")).unwrap();
}

#[test]
fn r52_each_built_in_role_without_a_policy() {
    let s = Sandbox::new();
    let repo = s.repo();
    for role in ["developer", "ui-developer", "backend-developer", "tester", "docs-writer", "anything-else"] {
        repo.spawn(&format!("--role {role} --cr 1"), "echo x >x").ok();
        let run = format!("{role}-1");
        assert_eq!(repo.changed(&run), ["A x"]);
        let log = repo.agent_args(["log", &run, "--json"]).ok().json();
        assert_eq!(log["events"][0]["body"]["policy"]["source"], json!("built-in"));
        assert_eq!(log["events"][0]["body"]["role"], json!(role));
    }
    for role in ["reviewer", "security-reviewer"] {
        let said = repo.spawn(&format!("--role {role} --run no"), "cat README; echo x >x").fails();
        assert_eq!(said.out(), "a project");
        assert_eq!(repo.show("no")["isolation"], "reader");
    }
    assert!(!repo.branches().contains(&"wt/no".to_owned()));
    // A policy file makes the list exact.
    repo.policy("version: 1\nroles:\n  developer: {kind: writer}\n  tester: {kind: writer}\n");
    repo.spawn("--role develper --run no", "true").with(128).refuses(&["develper", "developer"]);
    repo.spawn("--role tester --run yes", "true").ok();
    let log = repo.agent("log yes --json").ok().json();
    assert_eq!(log["events"][0]["body"]["policy"]["source"], json!(repo.git("rev-parse HEAD")));
}

#[test]
fn r52_the_policy_in_force_is_the_committed_one() {
    let s = Sandbox::new();
    let repo = s.repo();
    // Not committed: not in force, and said so (R53).
    repo.write(".git-agent/policy.yml", "version: 1\nstrip: [README]\n");
    repo.spawn("--role developer", "cat README").ok().says(&["the policy in force is the built-in one"]);
    repo.commit("policy");
    repo.spawn("--role developer", "test ! -e README").ok();
    repo.write(".git-agent/policy.yml", "version: 1\n");
    repo.spawn("--role developer", "test ! -e README").ok().says(&["the policy in force is that of"]);
    repo.git("checkout -q .git-agent");
    // That of the base does not count.
    repo.spawn("--role developer --base HEAD~1", "test ! -e README").ok();
    // What loosens waits for consent; what is not enforced yet is refused by name; nonsense with its place.
    for (text, status, words) in [
        ("version: 1\nengines:\n  x: {command: [./evil]}\n", 4, &["policy.yml", "hint: "][..]),
        ("version: 1\ninclude: [.env]\n", 4, &["include"]),
        ("version: 1\nrefs: [\"refs/heads/*\"]\n", 4, &["refs"]),
        ("version: 1\npool: 3\n", 4, &["pool"]),
        ("version: 1\nstrips: [x]\n", 128, &["strips", "2"]),
        ("version: 1\nroles:\n  a: {kind: writer}\n  a: {kind: writer}\n", 128, &["4"]),
        ("version: 9\n", 128, &["version"]),
        ("", 128, &[]),
    ] {
        repo.policy(text);
        let said = repo.spawn("--role developer --run no", "true").with(status);
        said.refuses(words);
    }
    assert!(!repo.branches().contains(&"wt/no".to_owned()));
}

#[test]
fn r52_a_project_with_files_of_these_names() {
    both(|s| {
        let repo = s.repo();
        repo.write("TASK.md", "the project's own\n");
        repo.commit("task");
        let engine = "cat TASK.md \"$GIT_AGENT_TASK\"; git status --porcelain; echo more >>TASK.md; echo over >\"$GIT_AGENT_TASK\"";
        let mut words: Vec<&str> = "spawn --role developer --run one -m ours -- sh -c".split(' ').collect();
        words.push(engine);
        assert_eq!(repo.agent_args(words).ok().out(), "the project's own\nours");
        let tree = repo.tree("one");
        assert!(tree.join(".agent/TASK.md").is_file() && tree.join(".agent-identity").is_file());
        assert_eq!(repo.changed("one"), ["M TASK.md"], "the project's, not ours");

        repo.write(".agent-identity", "the project's own\n");
        repo.commit("identity");
        repo.spawn(
            "--role developer --run two",
            "git status --porcelain; rm -r .agent; echo x >.agent-identity",
        )
        .ok();
        assert_eq!(repo.changed("two"), ["M .agent-identity"]);

        repo.write(".agent", "a file\n");
        repo.commit("in the way");
        let said = repo
            .spawn(
                "--role developer --run three",
                "cat .agent; cat \"$GIT_AGENT_TASK\"; git status --porcelain",
            )
            .ok();
        assert_eq!(said.out(), "a file\nNo task was given.");
        assert_eq!(repo.changed("three"), [""; 0]);
        let id = repo.show("three")["run"].as_str().unwrap().to_owned();
        let file = repo.tree("three").join(format!(".agent-{id}/.agent-identity"));
        let identity: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(identity["run"], json!(id));
    });
}

#[test]
fn r54_a_copied_repository_is_another_one() {
    both(|s| {
        let repo = s.repo();
        repo.spawn("--role developer --run mine", "echo x >x").ok();
        repo.agent("spawn --role developer --run ready").ok();
        let tree = repo.tree("mine");
        let root = tree.parent().unwrap().parent().unwrap().to_owned();
        let state = fingerprint(&root, |_| true);
        let original = repo.fingerprint();
        s.run(s.dir(), "cp", ["-r", "project", "copy"]).ok();
        let copy = repo.at("../copy");

        let said = copy.agent("list --json").ok();
        said.says(&["copy of", "id of its own"]);
        let runs = said.json()["runs"].as_array().unwrap().clone();
        assert_eq!(runs.len(), 2, "its ledger holds the runs");
        assert!(
            runs.iter().all(|r| r["path"] == Value::Null && r["live"] == json!(false)),
            "not their folders"
        );
        for words in [
            "finish mine",
            "exec mine -- touch evil",
            "path mine",
            "stop mine",
            "spawn --role developer --run mine",
        ] {
            copy.agent(words).fails().refuses(&["mine"]);
        }
        copy.spawn("--role developer --run new", "echo y >y").ok();
        assert!(!copy.tree("new").starts_with(&root), "a root of its own");
        assert_ne!(copy.read(".git/agent/id"), repo.read(".git/agent/id"));

        state.unchanged(&fingerprint(&root, |_| true));
        original.unchanged(&repo.fingerprint());
        assert_eq!(repo.names(), ["mine", "ready"]);
        let said = repo.spawn("--role developer --run mine", "echo z >z").ok();
        assert!(!said.err().contains("copy"), "{}", said.err());

        // With an explicit root that both share.
        let shared = s.dir().join("shared");
        let repo = s.repo_with("third", &[]);
        repo.git_args([std::path::Path::new("config"), std::path::Path::new("agent.root"), &shared]);
        repo.spawn("--role developer --run mine", "echo x >x").ok();
        s.run(s.dir(), "cp", ["-r", "third", "fourth"]).ok();
        let copy = repo.at("../fourth");
        copy.spawn("--role developer --run other", "echo y >y").ok();
        copy.agent("finish mine").fails().refuses(&["mine"]);
        assert_ne!(
            copy.tree("other").parent().unwrap().parent(),
            repo.tree("mine").parent().unwrap().parent()
        );
        assert_eq!(repo.names(), ["mine"]);
        repo.agent("show other").with(128).refuses(&["other"]);
    });
}

#[test]
fn r54_a_moved_repository_is_the_same() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run mine", "echo x >x").ok();
    let tree = repo.tree("mine");
    std::fs::rename(&repo.dir, s.dir().join("moved")).unwrap();
    let moved = crate::support::Repo { sandbox: &s, dir: s.dir().join("moved") };
    let said = moved.agent("list").ok();
    said.says(&["was moved here"]);
    assert_eq!(moved.tree("mine"), tree);
    moved.spawn("--role developer --run mine", "git log --oneline && echo y >y").ok();
    assert_eq!(moved.changed("mine"), ["A x", "A y"]);
}
