//! The examples of the documentation are policies, and mean what is said about them.

use crate::support::*;
use git_agent::policy::{Decision, Facts, Policy, Refusal, Tier, Word, decide};
use serde_json::json;

fn example(name: &str) -> (String, Policy) {
    let path = format!("{}/docs/examples/{name}/policy.yml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let policy = Policy::parse(text.as_bytes(), &path).unwrap_or_else(|e| panic!("{e}\n{}", e.snippet));
    (text, policy)
}

fn looser(policy: &Policy) -> Vec<String> {
    let all = policy.loosenings(Policy::built_in());
    all.iter().map(|l| format!("{} {}", l.key, l.what)).collect()
}

/// What the policy says of a result of `role` that changes `paths`, approved by `words`.
fn judged(policy: &Policy, role: &str, paths: &[&str], words: &[Word<'_>]) -> Decision {
    let paths: Vec<&[u8]> = paths.iter().map(|p| p.as_bytes()).collect();
    let role = role.parse().unwrap();
    let facts = Facts {
        role: &role,
        paths: &paths,
        started_by: "lead@example.com",
        words,
        signers: true,
        now: 1_000_000,
    };
    decide(policy, &facts)
}

fn refused(decision: Decision) -> Vec<String> {
    match decision {
        Decision::Refuse(all) => all.iter().map(Refusal::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

fn lacking(decision: Decision) -> Vec<String> {
    match decision {
        Decision::Wait(all) => all.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_example_is_listed_and_is_looser_in_what_it_says() {
    let folder = format!("{}/docs/examples", env!("CARGO_MANIFEST_DIR"));
    let index = std::fs::read_to_string(format!("{folder}/README.md")).unwrap();
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n != "README.md")
        .collect();
    names.sort();
    assert_eq!(names, ["ablation", "orchestrator", "solo", "team"]);
    for name in &names {
        assert!(index.contains(&format!("({name}/policy.yml)")), "{name} is not listed");
        example(name);
    }
}

#[test]
fn solo() {
    let (_, policy) = example("solo");
    assert_eq!(
        looser(&policy),
        [
            "roles.developer.setup names a program: npm ci",
            "roles.developer.checks names a program: npm test",
            "include copies .env.example into the run",
        ]
    );
    let word = Word { by: "lead@example.com", signed: false, time: 0, expires: None };
    assert_eq!(refused(judged(&policy, "docs-writer", &["docs/x", "src/x"], &[word])).len(), 1);
    // Signed where allowed_signers is committed; else a word is enough.
    assert_eq!(
        lacking(judged(&policy, "developer", &["src/x"], &[word])),
        ["an approval", "the approval of lead@example.com is not signed"]
    );
    let role = "developer".parse().unwrap();
    let facts = Facts {
        role: &role,
        paths: &[b"src/x"],
        started_by: "lead@example.com",
        words: &[word],
        signers: false,
        now: 0,
    };
    assert_eq!(decide(&policy, &facts), Decision::Allow);
    assert_eq!(refused(judged(&policy, "reviewer", &["x"], &[word])).len(), 1);
}

#[test]
fn team() {
    let (text, policy) = example("team");
    // It only tightens: a clone needs no consent.
    assert_eq!(looser(&policy), [""; 0]);
    assert_eq!(
        refused(judged(
            &policy,
            "ui-developer",
            &["web/a.ts", "web/generated/b", "web/yarn.lock", "api/x"],
            &[]
        )),
        [
            "web/generated/b: paths.deny 'web/generated/' on line 13 of the policy",
            "web/yarn.lock: paths.deny '**/*.lock' on line 13 of the policy",
            "api/x: not in paths.allow on line 12 of the policy",
        ]
    );
    assert_eq!(refused(judged(&policy, "developer", &[], &[])), ["the policy does not know the role"]);
    let signed = |by, time| Word { by, signed: true, time, expires: None };
    let ask = |words: &[Word<'_>]| judged(&policy, "ui-developer", &["web/a"], words);
    assert_eq!(ask(&[signed("second@example.com", 999_000)]), Decision::Allow);
    assert_eq!(lacking(ask(&[])), ["an approval"]);
    let why = |word| lacking(ask(&[word]))[1].clone();
    assert!(why(signed("lead@example.com", 999_000)).contains("started the run"));
    assert!(why(signed("ci@example.com", 999_000)).contains("nobody who may approve"));
    assert!(why(signed("who@example.com", 999_000)).contains("nobody who may approve"));
    assert!(why(signed("second@example.com", 1_000_000 - 8 * 86_400)).contains("expired"));
    assert!(why(Word { signed: false, ..signed("second@example.com", 999_000) }).contains("not signed"));
    let ended = Word { expires: Some(1_000_000), ..signed("second@example.com", 999_000) };
    assert!(why(ended).contains("expired"));
    // In a repository: explained without consent.
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy(&text);
    let said = repo.agent("policy explain --role ui-developer --json web/a api/b").with(1).json();
    assert_eq!(said["policy"]["in_force"], json!(true));
    assert_eq!(said["holds"]["network"], json!("proxy: packages.example.org, modules.example.org"));
}

#[test]
fn orchestrator() {
    let (text, policy) = example("orchestrator");
    assert_eq!(
        looser(&policy),
        [
            "roles.planner.kind reads your real working tree, untracked and ignored files included",
            "roles.developer.engines starts claude-code without being asked to",
            "roles.developer.engines starts codex without being asked to",
            "roles.tester.engines starts codex without being asked to",
        ]
    );
    for (path, hidden) in [("CLAUDE.md", true), (".claude/agents/a.md", true), ("docs/CLAUDE.md", false)] {
        assert_eq!(policy.strips(path.as_bytes()), hidden, "{path}");
    }
    let paths = ["tests/a", "pkg/x_test.go", "web/y.test.ts", "pkg/x.go"];
    assert_eq!(refused(judged(&policy, "tester", &paths, &[])).len(), 1);
    assert_eq!(policy.tier(), Tier::Landlock);
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy(&text);
    let said = repo.agent("policy explain --role planner --json").ok().json();
    assert_eq!((&said["holds"]["kind"], &said["policy"]["in_force"]), (&json!("reader"), &json!(false)));
}

#[test]
fn ablation() {
    let (_, policy) = example("ablation");
    assert_eq!(
        looser(&policy),
        [
            "roles.subject.engines starts subject without being asked to",
            "roles.subject.checks names a program: python3 bench/score.py",
            "engines.subject.command names a program: python3 bench/agent.py --task-file '{task_file}'",
            "engines.subject.env passes $BENCH_SEED to the engine",
            "engines.subject.env passes $BENCH_MODEL_URL to the engine",
        ]
    );
    assert_eq!(policy.branch(&"x-1".parse().unwrap()), "agent/x-1");
    assert!(policy.later().retention.keep_tree);
}

/// What `fuzz/` starts from, without its compiler: the same promises as in fuzz/fuzz_targets/policy.rs.
#[test]
fn the_seeds_of_the_fuzzer_are_replayed() {
    let folder = format!("{}/fuzz/seeds/policy", env!("CARGO_MANIFEST_DIR"));
    let mut good = 0;
    let mut all = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        all += 1;
        match Policy::parse(&bytes, "policy.yml") {
            Ok(policy) => {
                assert_eq!(policy.differences(&policy), [], "{}", path.display());
                good += 1;
            }
            Err(e) => {
                assert!(e.line >= 1 && e.column >= 1);
                let shown = git_agent::model::Failure::from(e).to_string();
                assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown}");
            }
        }
    }
    assert!(good >= 5 && all > good + 5, "{good} of {all}");
}
