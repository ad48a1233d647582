//! `git agent policy`: what it says, to the letter.

use crate::support::*;
use serde_json::{Value, json};

/// What `check` says of a file, on both streams.
fn check(s: &Sandbox, text: &[u8], status: i32) -> String {
    std::fs::write(s.dir().join("p.yml"), text).unwrap();
    let said = s.run(s.dir(), "git-agent", ["policy", "check", "p.yml"]).with(status);
    format!("{}{}", said.out(), said.err())
}

#[test]
fn p05_what_is_no_policy_is_shown_where_it_stands() {
    let s = Sandbox::new();
    let bad = |text: &str| check(&s, text.as_bytes(), 1);
    insta::assert_snapshot!(bad("version: 1\nroles:\n  dev: {kind: writer}\n  ops: {kind: writer}\n  dev: {kind: reader}\n"), @"
    error: cannot use this policy: p.yml:5:3: the key 'dev' is here a second time
      |
    5 |   dev: {kind: reader}
      |   ^
    ");
    insta::assert_snapshot!(bad("version: 1\nroles:\n  dev:\n    kind: writer\n    path: {allow: [x]}\n"), @"
    error: cannot use this policy: p.yml:5:5: there is no key 'path' here; did you mean 'paths'?
      |
    5 |     path: {allow: [x]}
      |     ^
    ");
    insta::assert_snapshot!(bad("version: 1\nstrip:\n  - &a [x, x, x]\n  - &b [*a, *a, *a]\n  - [*b, *b, *b]\n"), @"
    error: cannot use this policy: p.yml:3:8: anchors and aliases are not used in a policy: write the value out
      |
    3 |   - &a [x, x, x]
      |        ^
    ");
    insta::assert_snapshot!(bad("version: 1\nroles:\n  a: {kind: writer}\n  b:\n    <<: {kind: writer}\n"), @"
    error: cannot use this policy: p.yml:5:5: merge keys (<<) are not used in a policy: write the keys out
      |
    5 |     <<: {kind: writer}
      |     ^
    ");
    insta::assert_snapshot!(bad("version: 1\nstrip: CLAUDE.md\n"), @"
    error: cannot use this policy: p.yml:2:8: a list is needed here, such as [a, b]
      |
    2 | strip: CLAUDE.md
      |        ^
    ");
    insta::assert_snapshot!(bad("version: \"1\"\n"), @r#"
    error: cannot use this policy: p.yml:1:10: a whole number is needed here, not the text '1'
      |
    1 | version: "1"
      |          ^
    "#);
    insta::assert_snapshot!(bad("version: 1\nretention: {keep_tree: yes}\n"), @"
    error: cannot use this policy: p.yml:2:24: true or false is needed here, not the text 'yes'
      |
    2 | retention: {keep_tree: yes}
      |                        ^
    ");
    insta::assert_snapshot!(bad("version: 1\napproval: {two_person: on}\n"), @"
    error: cannot use this policy: p.yml:2:24: true or false is needed here, not the text 'on'
      |
    2 | approval: {two_person: on}
      |                        ^
    ");
    insta::assert_snapshot!(bad("version: 1\nroles: {a: {kind: writer, limits: {wall: 2}}}\n"), @"
    error: cannot use this policy: p.yml:2:42: a length of time such as 90s, 30m, 2h, 1h30m or 30d is needed here, not 2
      |
    2 | roles: {a: {kind: writer, limits: {wall: 2}}}
      |                                          ^
    ");
    // A file of 65 KiB; a kibibyte less is one.
    let mut large = String::from("version: 1\n");
    large.push_str(&"#".repeat(65 * 1024 - large.len()));
    insta::assert_snapshot!(bad(&large), @"error: cannot use this policy: p.yml:1:1: it is longer than 65536 bytes, the most that a policy may be");
    large.truncate(64 * 1024);
    assert!(check(&s, large.as_bytes(), 0).starts_with("ok: p.yml (sha256:"));
    // Nothing in a file steers a terminal.
    let said = bad("version: 1\n\u{1b}[31m\u{202e}x: 1\n");
    assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said}");
    let said = check(&s, b"version: 1\n# \xff\xfe\n", 1);
    assert!(said.contains("p.yml:2:3: it is not UTF-8 text"), "{said}");
}

#[test]
fn p05_the_same_where_it_would_be_in_force() {
    both(|s| {
        let repo = s.repo();
        for (text, words) in [
            (
                "version: 1\nroles:\n  a: {kind: writer}\n  a: {kind: reader}\n",
                &["policy.yml:4:3", "second time", "^"],
            ),
            ("version: 1\nstrips: [x]\n", &["policy.yml:2:1", "did you mean 'strip'?", "^"]),
            ("version: 1\nstrip: [&a x, *a]\n", &["policy.yml:2:12", "anchors and aliases", "^"]),
            ("version: 1\nroles: {<<: {a: {kind: writer}}}\n", &["policy.yml:2:9", "merge keys", "^"]),
        ] {
            repo.policy(text);
            repo.spawn("--role a --run no", "true").with(128).refuses(words);
            repo.agent("policy show").with(128).refuses(words);
            repo.agent("policy check").with(1).refuses(words);
            let said = repo.agent("policy check --json").with(1).json();
            assert_eq!(said["ok"], json!(false));
            assert!(
                said["error"]["line"].as_u64().unwrap() > 1 && said["error"]["column"].is_u64(),
                "{said}"
            );
        }
        let large = format!("version: 1\n{}", "#".repeat(65 * 1024));
        repo.policy(&large);
        repo.spawn("--role a --run no", "true").with(128).refuses(&["65536"]);
        assert_eq!(repo.branches(), ["main"]);
    });
}

#[test]
fn check_says_ok_and_what_is_looser() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.agent("policy check").with(128).refuses(&["there is no .git-agent/policy.yml", "git agent init"]);
    repo.write(
        ".git-agent/policy.yml",
        "version: 1\nroles:\n  dev: {kind: writer, engines: [clode]}\nstrip: [x]\n",
    );
    let said = repo.agent("policy check").ok();
    let lines: Vec<&str> = said.out().lines().collect();
    assert!(lines[0].starts_with("ok: .git-agent/policy.yml (sha256:"), "{lines:?}");
    assert_eq!(
        lines[1..],
        [
            "looser than the built-in default, so in force only once it is accepted:",
            "  line 3: roles.dev.engines starts clode without being asked to"
        ]
    );
    said.says(&["warning: line 3: roles.dev.engines names 'clode', which nobody knows"]);
    let said = repo.at("src").agent("policy check --json").ok().json();
    assert_eq!(said["ok"], json!(true));
    assert_eq!(
        said["looser"],
        json!([{ "direction": "looser", "key": "roles.dev.engines", "line": 3, "what": "starts clode without being asked to" }])
    );
    // A link is not followed, a folder is no file.
    std::fs::remove_file(repo.dir.join(".git-agent/policy.yml")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", repo.dir.join(".git-agent/policy.yml")).unwrap();
    repo.agent("policy check").with(128).refuses(&["cannot be read"]);
    repo.agent("policy check src").with(128).refuses(&["'src' cannot be read"]);
    repo.agent("policy check none.yml").with(128).refuses(&["'none.yml' cannot be read"]);
    // The built-in default is looser than itself in nothing.
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/policy.yml");
    let said = s.run(s.dir(), "git-agent", ["policy", "check", shipped]).ok();
    assert_eq!(said.out().lines().count(), 1, "{}", said.out());
    assert_eq!(said.err(), "");
}

const RULES: &str = "version: 1
roles:
  ui:
    kind: writer
    paths:
      allow:
        - ui/
        - \"*.md\"
        - \"caf\u{e9}/*\"
      deny:
        - ui/generated/
        - \"**/*.lock\"
    limits: {wall: 2h, files: 500}
  reviewer: {kind: reader}
";

#[test]
fn p06_the_explanation_names_rule_and_line() {
    // Not twice: inline snapshots are taken once.
    let s = Sandbox::as_user();
    let repo = s.repo();
    repo.policy(RULES);
    let explain = |role: &str, path: &str, status: i32| {
        let said = repo.agent_args(["policy", "explain", "--role", role, "--", path]).with(status);
        said.out().lines().last().unwrap().to_owned()
    };
    // `*` does not cross `/`; `dir/` is everything below and not the name itself.
    insta::assert_snapshot!(explain("ui", "ui/a/b.ts", 0), @"ui/a/b.ts: allowed by paths.allow 'ui/' on line 7");
    insta::assert_snapshot!(explain("ui", "README.md", 0), @"README.md: allowed by paths.allow '*.md' on line 8");
    insta::assert_snapshot!(explain("ui", "docs/README.md", 1), @"docs/README.md: denied, not in paths.allow on line 7 of the policy");
    insta::assert_snapshot!(explain("ui", "ui", 1), @"ui: denied, not in paths.allow on line 7 of the policy");
    // Case counts, and so does every byte of a name.
    insta::assert_snapshot!(explain("ui", "UI/a", 1), @"UI/a: denied, not in paths.allow on line 7 of the policy");
    insta::assert_snapshot!(explain("ui", "readme.MD", 1), @"readme.MD: denied, not in paths.allow on line 7 of the policy");
    insta::assert_snapshot!(explain("ui", "caf\u{e9}/x", 0), @"café/x: allowed by paths.allow 'café/*' on line 9");
    assert_eq!(
        explain("ui", "cafe\u{301}/x", 1),
        "cafe\u{301}/x: denied, not in paths.allow on line 7 of the policy"
    );
    insta::assert_snapshot!(explain("ui", "caf\u{e9}/x/y", 1), @"café/x/y: denied, not in paths.allow on line 7 of the policy");
    // Deny beats allow.
    insta::assert_snapshot!(explain("ui", "ui/generated/x", 1), @"ui/generated/x: denied, paths.deny 'ui/generated/' on line 11 of the policy");
    insta::assert_snapshot!(explain("ui", "ui/yarn.lock", 1), @"ui/yarn.lock: denied, paths.deny '**/*.lock' on line 12 of the policy");
    insta::assert_snapshot!(explain("reviewer", "ui/x", 1), @"ui/x: denied, a reader changes nothing on line 14 of the policy");

    // What is said is what is done.
    repo.spawn(
            "--role ui --run r",
            "mkdir -p ui/generated docs café/x; for f in ui/a.ts README.md ui/generated/x ui/yarn.lock docs/README.md \
             café/x/y café/z Readme.MD; do echo x >$f; done",
        )
        .ok();
    let outside = repo.agent("review r --json").ok().json()["outside"].clone();
    let mut outside: Vec<&str> = outside.as_array().unwrap().iter().map(|o| o.as_str().unwrap()).collect();
    outside.sort_unstable();
    assert_eq!(
        outside,
        [
            "Readme.MD: not in paths.allow on line 7 of the policy",
            "café/x/y: not in paths.allow on line 7 of the policy",
            "docs/README.md: not in paths.allow on line 7 of the policy",
            "ui/generated/x: paths.deny 'ui/generated/' on line 11 of the policy",
            "ui/yarn.lock: paths.deny '**/*.lock' on line 12 of the policy",
        ]
    );
}

/// Lines of the built-in file move with its comments.
fn unnumbered(text: &str) -> String {
    let mut parts = text.split("(line ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("(line _");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    out
}

#[test]
fn explain_says_what_holds_for_a_role() {
    let s = Sandbox::new();
    let repo = s.repo();
    let said = repo.agent("policy explain --role anything src/a").ok();
    insta::assert_snapshot!(unnumbered(said.out()), @"
    role anything (no line declares it)
    kind      writer (default)
    allow     every path (default)
    engines   none unless asked for
    limit     wall none (default)
    limit     files 100000 (default)
    limit     lines none (default)
    limit     bytes 4294967296 (default)
    limit     blob 2147483648 (default)
    network   open (line _)
    tier      landlock or more (line _)
    src/a: allowed, no rule limits the role's paths
    ");
    repo.policy(RULES);
    let said = repo.agent("policy explain --role ui").ok();
    said.says(&["the policy that counts is that of", "in force"]);
    insta::assert_snapshot!(said.out(), @"
    role ui (line 3)
    kind      writer (line 4)
    allow     ui/ (line 7), *.md (line 8), café/* (line 9)
    deny      ui/generated/ (line 11), **/*.lock (line 12)
    engines   none unless asked for
    limit     wall 7200 s (line 13)
    limit     files 500 (line 13)
    limit     lines none (default)
    limit     bytes 4294967296 (default)
    limit     blob 2147483648 (default)
    network   open (default)
    tier      landlock or more (default)
    ");
    // Paths are relative to where one stands, and need not exist.
    let said =
        repo.at("src").agent("policy explain --role ui --json ../ui/x ../ui/generated/y a").with(1).json();
    assert_eq!(
        said["paths"],
        json!([
            { "path": "ui/x", "allowed": true, "rule": "paths.allow", "pattern": "ui/", "line": 7 },
            { "path": "ui/generated/y", "allowed": false, "rule": "paths.deny", "pattern": "ui/generated/", "line": 11 },
            { "path": "src/a", "allowed": false, "rule": "paths.allow", "pattern": Value::Null, "line": 7 },
        ])
    );
    assert_eq!(said["holds"]["limits"]["wall"], json!(7200));
    assert_eq!(said["policy"]["in_force"], json!(true));
    repo.agent("policy explain --role ui ../elsewhere").with(129).refuses(&["outside the work tree"]);
    repo.agent("policy explain --role iu").with(128).refuses(&["no role 'iu'", "did you mean: ui"]);
    repo.agent("policy explain ui").with(129).refuses(&["--role"]);
    // One that nobody accepted is explained, and said not to be in force.
    repo.policy("version: 1\nroles:\n  ui: {kind: writer, engines: [codex]}\n");
    let said = repo.agent("policy explain --role ui").ok();
    said.says(&["not in force: nobody accepted it here"]);
    assert!(said.out().contains("engines   codex (line 3)"), "{}", said.out());
}

#[test]
fn diff_says_which_way_each_line_goes() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.policy("version: 1\nroles:\n  developer: {kind: writer, engines: [codex], limits: {files: 10}}\n");
    let digest = repo.agent("policy show --json").ok().json()["sha256"].as_str().unwrap().to_owned();
    repo.agent_args(["policy", "trust", "--digest", &digest]).ok();
    repo.write(
        ".git-agent/policy.yml",
        "version: 1\nroles:\n  developer:\n    kind: writer\n    engines: [codex, claude-code]\n    \
         limits: {files: 20, lines: 7}\nnetwork: off\nbranch: agent/{name}\n",
    );
    let said = repo.agent("policy diff").ok();
    let text: Vec<&str> = said
        .out()
        .lines()
        .map(
            |l| if l.contains("accepted on") { ".git-agent/policy.yml against the accepted one:" } else { l },
        )
        .collect();
    insta::assert_snapshot!(text.join("\n"), @"
    .git-agent/policy.yml against the built-in default:
      tighter roles is the whole list: no other name is taken
      tighter roles.backend-developer is gone
      tighter roles.docs-writer is gone
      tighter roles.reviewer is gone
      tighter roles.tester is gone
      tighter roles.ui-developer is gone
      looser  line 5: roles.developer.engines starts codex without being asked to
      looser  line 5: roles.developer.engines starts claude-code without being asked to
      tighter line 6: roles.developer.limits.files lowers the limit to 20
      tighter line 6: roles.developer.limits.lines lowers the limit to 7
      tighter line 7: network lets engines reach less of the network
      other   line 8: branch names run branches agent/{name}
    .git-agent/policy.yml against the accepted one:
      looser  line 5: roles.developer.engines starts claude-code without being asked to
      looser  line 6: roles.developer.limits.files raises the limit of 10
      tighter line 6: roles.developer.limits.lines lowers the limit to 7
      tighter line 7: network lets engines reach less of the network
      other   line 8: branch names run branches agent/{name}
    ");
    let said = repo.agent("policy diff --json").ok().json();
    assert_eq!(said["accepted"]["sha256"], json!(digest));
    assert_eq!(said["accepted"]["differences"][0]["direction"], json!("looser"));
    // A named file needs no repository, and where there is none nothing was accepted.
    std::fs::write(s.dir().join("p.yml"), "version: 1\n").unwrap();
    let said = s.run(s.dir(), "git-agent", ["policy", "diff", "p.yml"]).ok();
    assert_eq!(
        said.out(),
        "p.yml against the built-in default:\n  tighter roles is the whole list: no other name is taken"
    );
}

#[test]
fn show_prints_the_policy_that_counts_and_schema_its_schema() {
    let s = Sandbox::new();
    let repo = s.repo();
    let shipped = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/policy.yml")).unwrap();
    let said = repo.agent("policy show").ok();
    assert_eq!(said.out(), shipped.trim_end());
    said.says(&["the policy that counts is the built-in one", "in force"]);
    repo.policy("version: 1\nstrip: [x]\n");
    repo.write(".git-agent/policy.yml", "version: 1\n");
    let said = repo.agent("policy show --json").ok().json();
    assert_eq!(said["text"], json!("version: 1\nstrip: [x]\n"));
    assert_eq!(said["source"], json!(repo.git("rev-parse HEAD")));
    let schema = s.run(s.dir(), "git-agent", ["policy", "schema"]).ok();
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["properties"]["version"]["const"], json!(1));
    // Verbs are named, and each has a short help.
    repo.agent("policy").with(129).refuses(&[]);
    repo.agent("policy chekc").with(129).refuses(&["chekc"]);
    assert!(repo.agent("policy explain -h").ok().out().contains("--role <ROLE>"));
}
