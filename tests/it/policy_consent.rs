//! A policy tightens freely and loosens only with consent.

use crate::pty::Pty;
use crate::support::*;
use serde_json::{Value, json};

const LOOSE: &str = "version: 1
tier: landlock
roles:
  developer:
    kind: writer
    engines: [evil]
    limits: {files: 900000}
engines:
  evil:
    command: [./evil]
    env: [AWS_SECRET_ACCESS_KEY]
";

fn digest(repo: &Repo<'_>) -> String {
    let said = repo.agent("policy show --json").ok().json();
    said["sha256"].as_str().unwrap().to_owned()
}

fn trust(repo: &Repo<'_>) {
    let digest = digest(repo);
    repo.agent_args(["policy", "trust", "--digest", &digest]).ok();
}

/// Everything where consent is kept.
fn consents(s: &Sandbox) -> Vec<std::path::PathBuf> {
    walk(&s.state().join("git-agent/.accepted")).into_iter().filter(|p| p.is_file()).collect()
}

#[test]
fn p01_nothing_of_a_strangers_loosening_policy_is_in_force() {
    both(|s| {
        let origin = s.repo();
        origin.write("evil", "#!/bin/sh\ntouch ../../pwned pwned\n");
        set_mode(&origin.dir.join("evil"), 0o755);
        origin.write(".env", "SECRET=1\n");
        // Tightened as well: that is not in force either, and the whole file is refused.
        origin.policy(&format!("{LOOSE}include: [.env]\nstrip: [README]\n"));
        s.run(s.dir(), "git", ["clone", "-q", "project", "clone"]).ok();
        let repo = origin.at("../clone");
        let before = repo.fingerprint();

        let said = repo.agent_args(["spawn", "--role", "developer", "--run", "r", "-m", "x"]).with(4);
        said.refuses(&[
            "allows more than the built-in one, and nobody accepted it here",
            "hint: line 6: roles.developer.engines starts evil without being asked to",
            "hint: line 7: roles.developer.limits.files raises the limit of 100000",
            "hint: line 10: engines.evil.command names a program: ./evil",
            "hint: line 11: engines.evil.env passes $AWS_SECRET_ACCESS_KEY to the engine",
            "hint: line 12: include copies .env into the run",
            "hint: look at it and accept it, or do not: git agent policy trust",
        ]);
        assert!(!said.err().contains("strip"), "only what loosens: {}", said.err());
        // With an engine of one's own nothing of it is in force either: the file counts whole or not at all.
        repo.spawn("--role developer --run r", "true").with(4).refuses(&["include copies .env"]);
        assert_eq!(repo.branches(), ["main"]);
        assert_eq!(repo.runs().len(), 0);
        // A policy that is not in force prunes nothing by its own word.
        repo.agent("prune --dry-run").ok();
        repo.fingerprint().unchanged(&before);

        let shown = repo.agent("policy show --json").ok().json();
        assert_eq!((&shown["in_force"], &shown["accepted"]), (&json!(false), &Value::Null));
        assert_eq!(shown["looser"].as_array().unwrap().len(), 5);
        assert_eq!(shown["fresh"], shown["looser"]);

        // By digest: another one is refused, a short one is none, the right one counts.
        repo.agent("policy trust").with(4).refuses(&["there is no terminal", &digest(&repo)]);
        let other = format!("sha256:{}", "0".repeat(64));
        repo.agent_args(["policy", "trust", "--digest", &other]).with(4).refuses(&["not sha256:0000"]);
        repo.agent_args(["policy", "trust", "--digest", &digest(&repo)[..20]]).with(129).refuses(&["digest"]);
        assert_eq!(consents(s), [""; 0].map(std::path::PathBuf::from));
        let said = repo.agent_args(["policy", "trust", "--json", "--digest", &digest(&repo)]).ok().json();
        assert_eq!((&said["in_force"], &said["accepted"]["how"]), (&json!(true), &json!("digest")));
        assert_eq!(consents(s).len(), 1);
        let said = repo.agent_args(["spawn", "--role", "developer", "--run", "r", "-m", "x"]).fails();
        assert!(!said.err().contains("nobody accepted"), "{}", said.err());
        // Not in the repository, and nobody else may read or write it.
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |p: &std::path::Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
        let file = &consents(s)[0];
        assert_eq!((mode(file), mode(file.parent().unwrap())), (0o600, 0o700));
        repo.fingerprint().unchanged(&before);
        // The other clone has its own say.
        origin.spawn("--role developer --run r", "true").with(4).refuses(&["nobody accepted it here"]);
    });
}

#[test]
fn p01_an_accepted_policy_is_in_force() {
    both(|s| {
        let repo = s.repo();
        repo.write("evil", "#!/bin/sh\necho from the policy >x\n");
        set_mode(&repo.dir.join("evil"), 0o755);
        repo.policy(LOOSE);
        repo.agent_args(["spawn", "--role", "developer", "--run", "r", "-m", "x"]).with(4).refuses(&["evil"]);
        trust(&repo);
        repo.agent_args(["spawn", "--role", "developer", "--run", "r", "-m", "x"]).ok();
        assert_eq!(repo.changed("r"), ["A x"]);
        // Again: nothing to accept.
        repo.agent("policy trust").ok().says(&["in force, accepted on"]);
        // Taken back.
        repo.agent("policy trust --revoke --json").ok().says(&[]);
        repo.spawn("--role developer --run s", "true").with(4).refuses(&["nobody accepted it here"]);
    });
}

#[test]
fn p01_consent_does_not_come_with_a_repository() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy(LOOSE);
    trust(&repo);
    repo.spawn("--role developer --run r", "true").ok();
    // The id, and with it the ledger, can be copied into another repository.
    let id = repo.read(".git/agent/id");
    s.run(s.dir(), "git", ["clone", "-q", "project", "twin"]).ok();
    let twin = repo.at("../twin");
    twin.write(".git/agent/id", &id);
    twin.spawn("--role developer --run r", "true").with(4).refuses(&["nobody accepted it here"]);
    // Also where the repository's own configuration names the folder of runs.
    twin.write(".git/agent/id", &id);
    twin.git_args(["config", "agent.root", s.dir().join("elsewhere").to_str().unwrap()]);
    twin.spawn("--role developer --run r", "true").with(4).refuses(&["nobody accepted it here"]);
    // A copy of everything is another repository.
    s.run(s.dir(), "cp", ["-r", "project", "copy"]).ok();
    repo.at("../copy")
        .spawn("--role developer --run q", "true")
        .with(4)
        .refuses(&["nobody accepted it here"]);
    repo.spawn("--role developer --run q", "true").ok();

    // A record that was tampered with, or cut short, is none.
    let file = consents(&s).pop().unwrap();
    let whole = std::fs::read_to_string(&file).unwrap();
    for broken in [&whole[..whole.len() / 2], "", "{}", &whole.replace("evil", "devil")] {
        std::fs::write(&file, broken).unwrap();
        repo.spawn("--role developer --run t", "true").with(4).refuses(&["nobody accepted it here"]);
    }
    std::fs::write(&file, &whole).unwrap();
    repo.spawn("--role developer --run t", "true").ok();
    // Nor does a folder count that others can write to.
    set_mode(file.parent().unwrap(), 0o777);
    repo.spawn("--role developer --run u", "true").with(128).refuses(&["only you can write to"]);
    set_mode(file.parent().unwrap(), 0o700);
    repo.spawn("--role developer --run u", "true").ok();
}

#[test]
fn p02_the_policy_of_a_base_is_not_used() {
    both(|s| {
        let repo = s.repo();
        repo.policy("version: 1\nroles:\n  developer: {kind: writer, paths: {deny: [src/]}}\n");
        s.run(s.dir(), "git", ["clone", "-q", "project", "fork"]).ok();
        let fork = repo.at("../fork");
        fork.policy(&format!("{LOOSE}strip: [README]\n"));
        repo.git("fetch -q ../fork main:theirs");
        // Neither its loosening (no consent is asked for) nor its strip, nor its engine.
        let said = repo.spawn("--role developer --base theirs --run r", "cat README; echo x >src/a").ok();
        assert_eq!(said.out(), "a project");
        let log = repo.agent("log r --json").ok().json();
        assert_eq!(log["events"][0]["body"]["policy"]["source"], json!(repo.git("rev-parse HEAD")));
        // The person's own policy judges the result.
        let review = repo.agent("review r --json").ok().json();
        assert_eq!(review["ruling"]["decision"], json!("refuse"));
        assert_eq!(review["outside"], json!(["src/a: paths.deny 'src/' on line 3 of the policy"]));
    });
}

#[test]
fn p03_after_a_change_only_what_is_new_is_asked_about() {
    both(|s| {
        let repo = s.repo();
        repo.policy(LOOSE);
        trust(&repo);
        repo.spawn("--role developer --run a", "true").ok();
        repo.policy(&format!("{LOOSE}retention: {{snapshots: 1d}}\nstrip: [README]\n"));
        let said = repo.spawn("--role developer --run b", "true").with(4);
        said.refuses(&[
            "allows more than the one that was accepted here",
            "hint: line 12: retention.snapshots deletes snapshots earlier",
        ]);
        for old in ["evil", "limits", "strip"] {
            assert!(!said.err().contains(old), "'{old}' was accepted or tightens: {}", said.err());
        }
        let shown = repo.agent("policy show --json").ok().json();
        assert_eq!(shown["fresh"].as_array().unwrap().len(), 1);
        assert_eq!(shown["looser"].as_array().unwrap().len(), 5);
        // Another text is another digest, also where nothing in it is looser.
        repo.policy(&format!("# hello\n{LOOSE}"));
        let said = repo.spawn("--role developer --run b", "true").with(4);
        said.refuses(&["not the one that was accepted here, although nothing in it is looser"]);
        assert!(!said.err().contains("hint: line"), "{}", said.err());
        // What was accepted before is accepted still.
        repo.policy(LOOSE);
        repo.spawn("--role developer --run b", "true").ok();
        // What only tightens the default is asked about never.
        repo.policy("version: 1\nstrip: [README]\n");
        repo.spawn("--role developer --run c", "test ! -e README").ok();
        repo.agent("policy trust").ok().says(&["in force"]);
    });
}

#[test]
fn p03_at_a_terminal_only_the_loosening_lines_are_shown() {
    both(|s| {
        let repo = s.repo();
        repo.policy(LOOSE);
        let ask = |answer: &str| {
            let mut pty = Pty::start(repo.agent_command(["policy", "trust"]));
            let shown = pty.expect("on this machine? [y/N] ");
            pty.send(answer);
            (shown.replace("\r\n", "\n"), pty.end())
        };
        let (shown, end) = ask("\n");
        end.with(1);
        assert!(
            shown.contains("It is looser than the built-in default in this:\n  line 6: roles."),
            "{shown}"
        );
        assert!(!shown.contains("tier"), "{shown}");
        repo.spawn("--role developer --run r", "true").with(4).refuses(&["nobody accepted it here"]);
        let (_, end) = ask("y\n");
        end.with(0);
        repo.spawn("--role developer --run r", "true").ok();
        let shown = repo.agent("policy show --json").ok().json();
        assert_eq!(shown["accepted"]["how"], json!("terminal"));

        repo.policy(&format!("{LOOSE}retention: {{snapshots: 1d}}\n"));
        let (shown, end) = ask("yes\n");
        end.with(0);
        assert!(shown.contains("It is looser than the policy that you accepted on"), "{shown}");
        assert!(shown.contains("line 12: retention") && !shown.contains("evil"), "{shown}");
        repo.spawn("--role developer --run s", "true").ok();
    });
}

#[test]
fn p04_without_a_terminal_and_an_agent_is_exit_status_4() {
    both(|s| {
        let repo = s.repo();
        repo.policy(LOOSE);
        let said = repo.spawn("--role developer --run r", "true").with(4);
        said.refuses(&["git agent policy trust"]);
        let hint = format!("git agent policy trust --digest {}", digest(&repo));
        repo.agent("policy trust").with(4).refuses(&["there is no terminal", &hint]);
        repo.agent("policy trust --json").with(4).refuses(&["there is no terminal"]);
        // An agent may not, whatever it knows.
        for mark in ["CLAUDECODE=1", "AI_AGENT=x", "CODEX_SANDBOX=1", "GIT_AGENT_RUN=x"] {
            for words in
                [hint.clone(), "git agent policy trust --revoke".into(), "git agent init --yes".into()]
            {
                let said = s.sh(&repo.dir, &format!("env {mark} {words}")).with(4);
                said.refuses(&["an agent may not"]);
            }
        }
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        std::fs::copy(shell, s.dir().join("bin/claude")).unwrap();
        s.sh(&repo.dir, &format!("claude -c '{hint}; exit $?'")).with(4).refuses(&["an agent may not"]);
        assert_eq!(consents(s).len(), 0);
        // The same without a sign, as a person's script has it.
        s.sh(&repo.dir, &hint).ok();
        repo.spawn("--role developer --run r", "true").ok();
    });
}

#[test]
fn r53_a_policy_that_is_not_committed_is_not_in_force() {
    both(|s| {
        let repo = s.repo();
        repo.agent("init --yes").ok().says(&["wrote .git-agent/policy.yml", "only what is committed counts"]);
        let said = repo.spawn("--role developer --run a", "true").ok();
        said.says(&["the policy in force is the built-in one, not the one in your work tree"]);
        repo.commit("policy");
        let said = repo.spawn("--role developer --run b", "true").ok();
        assert!(!said.err().contains("the policy in force"), "{}", said.err());
        repo.write(".git-agent/policy.yml", "version: 1\n");
        let said = repo.spawn("--role developer --run c", "true").ok();
        said.says(&["the policy in force is that of", "not the one in your work tree"]);
        std::fs::remove_file(repo.dir.join(".git-agent/policy.yml")).unwrap();
        repo.spawn("--role developer --run d", "true").ok().says(&["your work tree has none"]);
        // Other line ends are the same policy.
        repo.git("checkout -q .git-agent");
        let text = repo.read(".git-agent/policy.yml").replace('\n', "\r\n");
        repo.write(".git-agent/policy.yml", text);
        let said = repo.spawn("--role developer --run e", "true").ok();
        assert!(!said.err().contains("the policy in force"), "{}", said.err());
    });
}

#[test]
fn the_persons_own_configuration_names_another_policy() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.git("branch rules");
    repo.policy("version: 1\nstrip: [README]\n");
    repo.git("checkout -q rules");
    repo.policy("version: 1\nstrip: [src/b]\n");
    let rules = repo.git("rev-parse HEAD");
    repo.git("checkout -q main");
    // Not from the repository's own configuration, nor from the command line that an alias could hold.
    repo.git("config agent.policyRef rules");
    repo.spawn("--role developer --run a", "test ! -e README").ok();
    repo.git("config --unset agent.policyRef");
    repo.git("config --global agent.policyRef rules");
    let said = repo.spawn("--role developer --run b", "test -e README; test ! -e src/b").ok();
    said.says(&["agent.policyRef is rules"]);
    let log = repo.agent("log b --json").ok().json();
    assert_eq!(log["events"][0]["body"]["policy"]["source"], json!(rules));
    assert_eq!(repo.agent("policy show --json").ok().json()["source"], json!(rules));
    // One that names nothing is no reason to take another.
    repo.git("config --global agent.policyRef nowhere");
    repo.spawn("--role developer --run c", "true").with(128).refuses(&["agent.policyRef is 'nowhere'"]);
}

#[test]
fn what_the_policy_forbids_nobody_approves() {
    both(|s| {
        let repo = s.repo();
        repo.policy("version: 1\nroles:\n  developer:\n    kind: writer\n    paths:\n      allow: [src/]\n");
        repo.spawn("--role developer --run good", "echo x >>src/a").ok();
        repo.spawn("--role developer --run bad", "echo x >>src/a; echo y >README; echo z >new").ok();
        repo.git("config --global agent.approve unattended");
        let digest = |run: &str| repo.show(run)["result"]["change"].as_str().unwrap().to_owned();
        let kinds = repo.kinds("bad");
        repo.agent_args(["review", "bad", "--approve", "--digest", &digest("bad")]).with(1).refuses(&[
            "the policy does not let run 'bad' land: README: not in paths.allow on line 6 of the policy (and 1 more)",
        ]);
        assert_eq!(repo.kinds("bad"), kinds);
        let ruling = repo.agent("review good --json").ok().json();
        assert_eq!(ruling["ruling"], json!({ "decision": "wait", "lacking": ["an approval"] }));
        assert_eq!(ruling["allowed"], json!("writer of src/; at most 100000 files"));
        repo.agent_args(["review", "good", "--approve", "--digest", &digest("good")]).ok();
        let ruling = repo.agent("review good --json").ok().json();
        assert_eq!(ruling["ruling"], json!({ "decision": "allow" }));
    });
}
