//! `git agent init`: what it finds, what it writes, what it leaves alone.

use crate::pty::Pty;
use crate::support::*;
use serde_json::{Value, json};

/// A repository with these files, and what `init` says about it.
fn proposal(s: &Sandbox, name: &str, files: &[(&str, &str)]) -> Value {
    let repo = s.repo_with(name, &[]);
    repo.write(".gitignore", "node_modules/\n.venv/\ntarget/\n");
    for (path, text) in files {
        repo.write(path, text);
    }
    repo.commit("files");
    let said = repo.agent("init --yes --json").ok().json();
    // Whatever was found, what was written is a policy and in force once it is committed.
    repo.agent("policy check").ok();
    repo.commit("policy");
    let shown = repo.agent("policy show --json").ok().json();
    assert_eq!(shown["in_force"], json!(true), "{name}");
    assert_eq!(shown["sha256"], said["sha256"], "{name}");
    said
}

/// Commands of a proposal, one a line.
fn commands(said: &Value, key: &str) -> Vec<String> {
    let words = |c: &Value| {
        let words: Vec<&str> = c["command"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
        words.join(" ")
    };
    said[key].as_array().unwrap().iter().map(words).collect()
}

#[test]
fn setup_comes_from_lock_files_and_checks_from_the_projects_own_command() {
    let s = Sandbox::new();
    let package = "{\"scripts\": {\"test\": \"node --test\"}}";
    let none = "{\"scripts\": {\"test\": \"echo \\\"Error: no test specified\\\" && exit 1\"}}";
    let several = "{\"packageManager\": \"npm@10.2.0\", \"scripts\": {\"test\": \"x\"}}";
    for (name, files, setup, checks) in [
        (
            "npm",
            &[("package-lock.json", "{}"), ("package.json", package)][..],
            &["npm ci"][..],
            &["npm test"][..],
        ),
        ("no-test", &[("package-lock.json", "{}"), ("package.json", none)], &["npm ci"], &[]),
        (
            "pnpm",
            &[("pnpm-lock.yaml", ""), ("package.json", package)],
            &["pnpm install --frozen-lockfile"],
            &["pnpm test"],
        ),
        (
            "yarn",
            &[("yarn.lock", ""), ("package.json", package)],
            &["yarn install --frozen-lockfile"],
            &["yarn test"],
        ),
        (
            "berry",
            &[("yarn.lock", ""), (".yarnrc.yml", ""), ("package.json", "{}")],
            &["yarn install --immutable"],
            &[],
        ),
        (
            "both",
            &[("yarn.lock", ""), ("package-lock.json", "{}"), ("package.json", several)],
            &["npm ci"],
            &["npm test"],
        ),
        (
            "uv",
            &[("uv.lock", ""), ("pyproject.toml", "[tool.pytest.ini_options]\n")],
            &["uv sync --locked"],
            &["uv run pytest"],
        ),
        (
            "poetry",
            &[("poetry.lock", ""), ("pytest.ini", "[pytest]\n")],
            &["poetry install --no-interaction"],
            &["poetry run pytest"],
        ),
        (
            "pip",
            &[("requirements.txt", "x==1\n"), ("setup.cfg", "[tool:pytest]\n")],
            &["python3 -m venv .venv", ".venv/bin/pip install -r requirements.txt"],
            &[".venv/bin/python -m pytest"],
        ),
        ("cargo", &[("Cargo.lock", ""), ("Cargo.toml", "")], &["cargo fetch --locked"], &["cargo test"]),
        ("go", &[("go.sum", ""), ("go.mod", "module x\n")], &["go mod download"], &["go test ./..."]),
        ("make", &[("Makefile", "CC := x\nall test: a\n\tx\n"), ("Cargo.toml", "")], &[], &["make test"]),
        ("no-make", &[("Makefile", "test := 1\nxtest: a\n")], &[], &[]),
        (
            "mixed",
            &[("package-lock.json", "{}"), ("package.json", package), ("Cargo.lock", ""), ("Cargo.toml", "")],
            &["npm ci", "cargo fetch --locked"],
            &["npm test", "cargo test"],
        ),
        ("nothing", &[], &[], &[]),
        // Files that are not what their name says.
        ("broken", &[("package.json", "{"), ("pyproject.toml", "\u{0}")], &[], &[]),
    ] {
        let said = proposal(&s, name, files);
        assert_eq!(commands(&said, "setup"), setup, "{name}");
        assert_eq!(commands(&said, "checks"), checks, "{name}");
        assert_eq!(said["strip"], json!([]), "{name}");
        // Only roles that work on code prepare and test.
        let repo = s.empty_repo(name, &[]);
        let docs = repo.agent("policy explain --role docs-writer --json").ok().json();
        assert_eq!(docs["holds"]["setup"], Value::Null);
        let tester = repo.agent("policy explain --role tester --json").ok().json();
        assert_eq!(tester["holds"]["checks"].as_array().unwrap().len(), checks.len(), "{name}");
    }
}

#[test]
fn an_orchestrators_files_are_hidden_and_guidance_is_not() {
    let s = Sandbox::new();
    for (name, files, strip) in [
        ("guidance", &["CLAUDE.md", "AGENTS.md", ".claude/settings.json"][..], json!([])),
        (
            "agents",
            &["CLAUDE.md", "AGENTS.md", ".claude/agents/a.md", ".claude/commands/b.md"],
            json!(["CLAUDE.md", ".claude/"]),
        ),
        ("flow", &[".claude-flow/x", ".hive-mind/y"], json!([".claude-flow/", ".hive-mind/"])),
        ("modes", &[".roomodes", "CLAUDE.md"], json!([".roomodes"])),
    ] {
        let files: Vec<(&str, &str)> = files.iter().map(|f| (*f, "x\n")).collect();
        assert_eq!(proposal(&s, name, &files)["strip"], strip, "{name}");
    }
    let repo = s.empty_repo("agents", &[]);
    repo.spawn("--role developer --run r", "test ! -e CLAUDE.md; test ! -e .claude; test -e AGENTS.md").ok();
    assert_eq!(repo.changed("r"), [""; 0]);
}

#[test]
fn what_is_there_stays_and_a_second_run_does_nothing() {
    both(|s| {
        let repo = s.repo();
        repo.agent("init").with(4).refuses(&["there is no terminal", "git agent init --yes", "--print"]);
        repo.agent("init --json").with(4).refuses(&["there is no terminal"]);
        assert!(!repo.dir.join(".git-agent").exists());
        // Only to look at; also where an agent asks.
        let print = s.sh(&repo.dir, "env CLAUDECODE=1 git agent init --print").ok();
        assert!(!repo.dir.join(".git-agent").exists());

        repo.agent("init --yes").ok().says(&["wrote .git-agent/policy.yml", "git add .git-agent"]);
        let text = repo.read(".git-agent/policy.yml");
        assert_eq!(text.trim_end(), print.out());
        assert!(text.starts_with("# yaml-language-server: $schema=policy.schema.json\n"));
        let schema: Value = serde_json::from_str(&repo.read(".git-agent/policy.schema.json")).unwrap();
        assert_eq!(schema["type"], json!("object"));
        for role in ["developer", "ui-developer", "backend-developer", "tester", "docs-writer", "reviewer"] {
            assert!(text.contains(&format!("\n  {role}:\n")), "{role}");
        }
        let before = fingerprint(&repo.dir.join(".git-agent"), |_| true);
        for words in ["init --yes", "init", "init --yes --json"] {
            let said = repo.agent(words).ok();
            said.says(&["nothing to do: .git-agent/policy.yml is there already"]);
        }
        fingerprint(&repo.dir.join(".git-agent"), |_| true).unchanged(&before);
        // Edited: as it was left.
        repo.write(".git-agent/policy.yml", "version: 1\n");
        repo.agent("init --yes").ok().says(&["nothing to do"]);
        assert_eq!(repo.read(".git-agent/policy.yml"), "version: 1\n");
        // Committed and deleted: the person's own doing.
        repo.commit("policy");
        std::fs::remove_file(repo.dir.join(".git-agent/policy.yml")).unwrap();
        repo.agent("init --yes").with(128).refuses(&["gone from the work tree", "git restore"]);
    });
}

#[test]
fn init_writes_through_no_link() {
    let s = Sandbox::new();
    let repo = s.repo();
    std::fs::create_dir(s.dir().join("victim")).unwrap();
    std::os::unix::fs::symlink("../victim", repo.dir.join(".git-agent")).unwrap();
    repo.agent("init --yes").with(128).refuses(&["is not a folder"]);
    assert_eq!(std::fs::read_dir(s.dir().join("victim")).unwrap().count(), 0);
    std::fs::remove_file(repo.dir.join(".git-agent")).unwrap();
    repo.write(".git-agent/x", "");
    std::os::unix::fs::symlink("../../victim/p", repo.dir.join(".git-agent/policy.yml")).unwrap();
    repo.agent("init --yes").ok().says(&["nothing to do"]);
    assert_eq!(std::fs::read_dir(s.dir().join("victim")).unwrap().count(), 0);
}

#[test]
fn at_a_terminal_each_proposal_is_asked_about() {
    both(|s| {
        let repo = s.repo();
        repo.write("Cargo.lock", "");
        repo.write("Cargo.toml", "");
        repo.write(".claude/agents/a.md", "x\n");
        repo.commit("files");
        let ask = |answers: [&str; 4]| {
            let mut pty = Pty::start(repo.agent_command(["init"]));
            for answer in answers.iter().filter(|a| !a.is_empty()) {
                pty.expect("[y/N] ");
                pty.send(answer);
            }
            pty.end()
        };
        // No is the default, at the end as well.
        let text = ask(["y\n", "y\n", "y\n", "\n"]).with(1);
        assert!(text.contains("cargo fetch --locked (Cargo.lock)"), "{text}");
        assert!(!repo.dir.join(".git-agent").exists());
        ask(["\n", "y\n", "\n", "y\n"]).with(0);
        let text = repo.read(".git-agent/policy.yml");
        assert!(!text.contains("cargo, fetch") && text.contains("[cargo, test]"), "{text}");
        assert!(text.contains("strip: []"), "{text}");
        repo.commit("policy");
        let shown = repo.agent("policy show --json").ok().json();
        assert_eq!((&shown["in_force"], &shown["accepted"]["how"]), (&json!(true), &json!("init")));
        // One edit that allows more, and it is asked about.
        repo.policy(&text.replace("[cargo, test]", "[cargo, nextest]"));
        repo.spawn("--role developer --run r", "true").with(4).refuses(&["cargo nextest"]);
    });
}

#[test]
fn what_setup_leaves_should_be_ignored() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.write("package-lock.json", "{}");
    repo.at("src").agent("init --print").ok().says(&["'node_modules' is not ignored by git"]);
    repo.write(".gitignore", "node_modules\n");
    let said = repo.at("src").agent("init --print").ok();
    assert_eq!(said.err(), "");
}
