//! `git agent doctor` and `git agent cage`: what they prove, what they find, and that they leave nothing behind.

use crate::support::{Repo, Sandbox, both, eventually, gits, run, set_mode, walk};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;

fn doctor(repo: &Repo, words: &str) -> Value {
    let report = repo.agent(&format!("doctor --json {words}")).ok().json();
    assert_eq!((&report["v"], &report["holds"]), (&json!(1), &json!(true)));
    report
}

fn rows(report: &Value) -> Vec<(&str, &str, bool)> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let rows = report["cage"]["rows"].as_array().unwrap();
    rows.iter()
        .map(|r| {
            assert!(!text(&r["what"]).is_empty());
            (r["attempt"].as_str().unwrap(), r["verdict"].as_str().unwrap(), r["promised"] == true)
        })
        .collect()
}

/// Everything doctor says is seen, and every file is as before: in the repository, and where runs are kept.
fn leaves_nothing(s: &Sandbox) {
    let state = s.state().join("git-agent");
    let left: Vec<_> = walk(&state)
        .into_iter()
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(".doctor-")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn doctor_proves_that_the_cage_holds() {
    both(|s| {
        let repo = s.repo();
        repo.write("untracked", "the user's\n");
        let before = repo.fingerprint();
        let report = doctor(&repo, "");
        before.unchanged(&repo.fingerprint());
        assert!(!repo.dir.join(".git/agent").exists(), "the repository has no identity because of doctor");
        assert_eq!(repo.git("for-each-ref --format=%(refname)"), "refs/heads/main");
        leaves_nothing(s);

        let rows = rows(&report);
        assert!(rows.len() > 40, "{}", rows.len());
        for (attempt, verdict, promised) in &rows {
            match *verdict {
                "held" => {}
                "open" => assert!(!promised, "{attempt}"),
                // As an ordinary user on a machine that is careful, some succeed for nobody.
                "void" => assert!(
                    [
                        "namespaces",
                        "trace",
                        "vsock",
                        "mptcp",
                        "keyring",
                        "io-uring",
                        "type-ahead",
                        "type-ahead-high"
                    ]
                    .contains(attempt),
                    "{attempt}: the control did not succeed"
                ),
                other => panic!("{attempt}: {other}"),
            }
        }
        let of = |name: &str| *rows.iter().find(|r| r.0 == name).unwrap();
        for name in
            ["write", "delete", "git-reset", "git-hook", "secret", "host", "signal", "environ-of", "daemon"]
        {
            assert_eq!(of(name), (name, "held", true));
        }
        for name in ["edit-inside", "commit-inside"] {
            assert_eq!(of(name).1, "held", "what an engine must be able to do");
        }
        if report["cage"]["tier"] == "landlock" {
            assert_eq!(
                of("pin-git"),
                ("pin-git", "open", false),
                "a row that is open now is noticed when it closes"
            );
        }
        if report["cage"]["network"] == "open" {
            assert_eq!(of("loopback"), ("loopback", "open", false));
        }
    });
}

#[test]
fn doctor_works_outside_of_a_repository_and_in_a_hooks_environment() {
    both(|s| {
        let said = s.run(s.dir(), "git-agent", ["doctor", "--json"]).ok();
        said.says(&["only the machine is looked at", "not a git repository"]);
        assert_eq!(said.json()["holds"], true);
        s.run(s.dir(), "git-agent", ["doctor", "--repo"]).with(128).refuses(&["not a git repository"]);
        // A hook exports the repository it runs in: the attempts mean doctor's own all the same.
        let repo = s.repo();
        repo.write("README", "edited by the user\n");
        let before = repo.fingerprint();
        let mut command = repo.agent_command(["doctor", "--json"]);
        command.env("GIT_DIR", repo.dir.join(".git")).env("GIT_INDEX_FILE", repo.dir.join(".git/index"));
        command.env("GIT_WORK_TREE", &repo.dir);
        assert_eq!(run(command, b"").ok().json()["holds"], true);
        before.unchanged(&repo.fingerprint());
        leaves_nothing(s);
    });
}

#[test]
fn doctor_works_with_every_git() {
    for (git, _) in gits() {
        let s = Sandbox::new().with_git(&git);
        doctor(&s.repo(), "--repo");
    }
}

#[test]
#[allow(unsafe_code)]
fn doctor_says_what_a_machine_lacks() {
    let s = Sandbox::new();
    let repo = s.repo();
    let mut command = repo.agent_command(["doctor", "--json"]);
    // SAFETY: installs a filter in the child, between fork and exec; nothing there waits for another thread.
    unsafe { command.pre_exec(|| without_landlock().map_err(std::io::Error::other)) };
    let ended = run(command, b"");
    let status = ended.status();
    let report = ended.with(status).json();
    if report["cage"].is_null() {
        assert_eq!((status, &report["holds"]), (1, &json!(false)));
        assert!(report["lacks"].as_str().unwrap().contains("Landlock"), "{report}");
        assert!(report["missing"][0]["what"].as_str().unwrap().contains("Landlock"), "{report}");
    } else {
        // A tier that does without holds what it promises.
        assert_eq!((status, &report["cage"]["tier"]), (0, &json!("namespaces")));
    }
    leaves_nothing(&s);
}

#[test]
fn doctor_proves_nothing_where_the_cage_is_switched_off() {
    let s = Sandbox::new();
    let repo = s.repo();
    let with = |name: &str| {
        let mut command = repo.agent_command(["doctor", "--json"]);
        command.env(name, "off");
        run(command, b"")
    };
    let report = with("GIT_AGENT_CAGE").with(1).json();
    assert!(
        report["cage"].is_null() && report["lacks"].as_str().unwrap().contains("switched off"),
        "{report}"
    );
    with("GIT_AGENT_ISOLATION")
        .with(128)
        .refuses(&["isolation is switched off", "unset GIT_AGENT_ISOLATION"]);
    leaves_nothing(&s);
}

/// A kernel as it was before Landlock: its calls do not exist.
fn without_landlock() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let calls = (444..=446).map(|call| (call, Vec::new())).collect();
    let answer = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, answer, std::env::consts::ARCH.try_into()?)?;
    Ok(seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?)
}

#[test]
fn doctor_reads_well_in_eighty_columns() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.git("branch worktree-agent-1");
    let plain = repo.agent("doctor --repo").ok();
    for word in
        ["Cage\n", "Engines\n", "Found\n", "This repository\n", "runs can be cut here", "promises holds"]
    {
        assert!(plain.out().contains(word), "{word}\n{}", plain.out());
    }
    assert!(!plain.out().contains('\x1b'));
    repo.git("config color.ui always");
    let coloured = repo.agent("doctor --repo").ok();
    assert!(coloured.out().contains("\x1b[1mCage"));
    for said in [plain, coloured] {
        for line in said.out().lines() {
            let mut shown = line.to_owned();
            while let Some(at) = shown.find('\x1b') {
                let end = shown[at..].find('m').unwrap();
                shown.replace_range(at..=at + end, "");
            }
            // A command that is to be pasted is not broken.
            assert!(shown.chars().count() <= 80, "{shown}");
        }
    }
}

fn findings<'r>(report: &'r Value, kind: &str) -> Vec<&'r Value> {
    report["findings"].as_array().unwrap().iter().filter(|f| f["kind"] == kind).collect()
}

#[test]
fn r42_doctor_finds_and_explains_what_no_run_knows() {
    both(|s| {
        let repo = s.repo();
        for n in 0..10 {
            repo.git(&format!("worktree add -q -b worktree-agent-{n} .claude/worktrees/agent-{n}"));
        }
        for n in 0..3 {
            let there = repo.at(format!(".claude/worktrees/agent-{n}"));
            there.write("work", "of an agent\n");
            there.commit("unmerged");
        }
        for n in 10..16 {
            repo.git(&format!("branch worktree-agent-{n}"));
        }
        repo.git("worktree add -q -b topic ../mine");
        let before = repo.fingerprint();
        let report = doctor(&repo, "");
        before.unchanged(&repo.fingerprint());
        let loose = findings(&report, "client-worktrees");
        assert_eq!(loose[0]["names"].as_array().unwrap().len(), 10);
        assert!(
            loose[0]["what"].as_str().unwrap().starts_with("10 worktrees of an agent client's own making")
        );
        let branches = findings(&report, "agent-branches");
        assert_eq!(branches[0]["names"].as_array().unwrap().len(), 16);
        let what = branches[0]["what"].as_str().unwrap();
        assert!(what.starts_with("16 branches") && what.contains("3 of them have commits"), "{what}");
        assert!(findings(&report, "two-systems").is_empty());
        let said = repo.agent("doctor").ok();
        for word in ["10 worktrees", "16 branches", "prune --adopt-client-worktrees --dry-run", "and 6 more"]
        {
            assert!(said.out().contains(word), "{word}\n{}", said.out());
        }
        // With runs beside them there are two systems; a run's own branch is none without a run.
        repo.spawn("--role developer --run mine", "echo x >x").ok();
        repo.spawn("--role developer --cr 42", "rm .agent-identity; echo x >x").ok();
        let report = doctor(&repo, "");
        assert_eq!(findings(&report, "two-systems").len(), 1);
        assert_eq!(findings(&report, "agent-branches")[0]["names"].as_array().unwrap().len(), 16);
        assert_eq!(findings(&report, "no-cr")[0]["names"], json!(["mine"]));
        assert_eq!(findings(&report, "no-identity")[0]["names"], json!(["developer-42"]));
    });
}

fn hook<'r>(report: &'r Value, client: &str) -> &'r Value {
    report["hooks"].as_array().unwrap().iter().find(|h| h["client"] == client).unwrap_or(&Value::Null)
}

fn alone(report: &Value, engine: &str) -> Value {
    let engines = report["engines"].as_array().unwrap();
    engines.iter().find(|e| e["name"] == engine).unwrap()["alone"].clone()
}

#[test]
fn cf05_an_untrusted_codex_hook_is_grade_c() {
    let s = Sandbox::new();
    let repo = s.repo();
    let hooks = r#"{"hooks":{"PreToolUse":[{"matcher":"*","hooks":[{"type":"command","command":"true # git-agent"}]}]}}"#;
    repo.write(".codex/hooks.json", hooks);
    let report = doctor(&repo, "");
    assert_eq!(hook(&report, "codex")["state"], "untrusted");
    assert_eq!(alone(&report, "codex"), "C");
    assert!(findings(&report, "hook")[0]["hint"].as_str().unwrap().contains("the cage holds without it"));
    // Trusted here, and in the next worktree it is a new hook again.
    let config = format!(
        "[hooks.state.\"{}/.codex/hooks.json:pre_tool_use:0:0\"]\ntrusted_hash = \"sha256:0\"\n",
        repo.dir.display()
    );
    std::fs::create_dir(s.dir().join("home/.codex")).unwrap();
    std::fs::write(s.dir().join("home/.codex/config.toml"), config).unwrap();
    let report = doctor(&repo, "");
    assert_eq!(
        (hook(&report, "codex")["state"].as_str(), alone(&report, "codex")),
        (Some("answers"), json!("B"))
    );
    repo.commit("hooks");
    repo.git("worktree add -q ../other");
    let report = doctor(&repo.at("../other"), "");
    assert_eq!(
        (hook(&report, "codex")["state"].as_str(), alone(&report, "codex")),
        (Some("untrusted"), json!("C"))
    );
    // The cage holds without it.
    assert_eq!(report["holds"], true);
}

#[test]
fn cf06_hook_files_that_nobody_can_read_are_found() {
    let s = Sandbox::new();
    let repo = s.repo();
    for (text, why) in [
        ("{ \"version\": 1, \"hooks\": {", "EOF"),
        ("{\"hooks\":{\"beforeShellExecution\":[{\"command\":\"true\"}]}}", "'version' must be 1"),
        ("{\"version\":1,\"hooks\":{\"beforeShellExecution\":[{\"run\":\"true\"}]}}", "without a 'command'"),
        ("{\"version\":1, // no comments here\n\"hooks\":{}}", "line 1"),
        ("", "EOF"),
    ] {
        repo.write(".cursor/hooks.json", text);
        let report = doctor(&repo, "--engine codex");
        assert_eq!(hook(&report, "cursor")["state"], "malformed", "{text}");
        let found = findings(&report, "hook");
        assert!(found[0]["what"].as_str().unwrap().contains(why), "{}", found[0]);
    }
    repo.write(
        ".cursor/hooks.json",
        "{\"version\":1,\"hooks\":{\"beforeShellExecution\":[{\"command\":\"true\"}]}}",
    );
    let report = doctor(&repo, "--engine codex");
    assert_eq!(hook(&report, "cursor")["state"], "others");
    assert!(findings(&report, "hook").is_empty());
}

#[test]
fn hooks_that_are_configured_and_do_not_fire_are_found() {
    let s = Sandbox::new();
    let repo = s.repo();
    let settings = |command: &str, more: &str| {
        let hooks = json!({ "PreToolUse": [{ "matcher": "*", "hooks": [{ "type": "command", "command": command }] }] });
        repo.write(".claude/settings.json", format!("{{\"hooks\":{hooks}{more}}}"));
        let report = doctor(&repo, "--engine claude-code");
        (hook(&report, "claude-code")["state"].as_str().unwrap().to_owned(), alone(&report, "claude-code"))
    };
    let state = |s: &str| s.to_owned();
    let seen = s.dir().join("asked");
    // It is asked as the client would ask it, and must answer with what the client understands.
    let asks = format!("tee {} >/dev/null; exit 2 # git-agent", seen.display());
    assert_eq!(settings(&asks, ""), (state("answers"), json!("B")));
    let question: Value = serde_json::from_slice(&std::fs::read(&seen).unwrap()).unwrap();
    assert_eq!(
        (&question["hook_event_name"], &question["tool_name"]),
        (&json!("PreToolUse"), &json!("Read"))
    );
    for silent in
        ["exit 1 # git-agent", "sleep 60 # git-agent", "/no/such/git-agent hook", "kill -9 $$ # git-agent"]
    {
        assert_eq!(settings(silent, ""), (state("silent"), json!("C")), "{silent}");
    }
    assert_eq!(settings(&asks, ",\"disableAllHooks\":true"), (state("off"), json!("C")));
    // Somebody else's is not run.
    let marker = s.dir().join("ran");
    assert_eq!(settings(&format!("touch {}", marker.display()), ""), (state("others"), Value::Null));
    assert!(!marker.exists());
}

#[test]
fn cg05_a_sandbox_of_the_clients_own_is_found() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.write(".claude/settings.json", "{\"sandbox\":{\"enabled\":true}}");
    repo.write(".gemini/settings.json", "{ // comments are allowed\n\"tools\":{\"sandbox\":\"docker\"}}");
    repo.write(".qwen/settings.json", "{\"tools\":{\"sandbox\":false}}");
    let report = doctor(&repo, "");
    let names: Vec<&Value> = findings(&report, "nested-sandbox").iter().map(|f| &f["names"][0]).collect();
    assert_eq!(names, ["claude-code", "gemini-cli"]);
}

fn client(s: &Sandbox, name: &str, script: &str) {
    let path = s.dir().join("bin").join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    set_mode(&path, 0o755);
}

#[test]
fn engines_are_tried_in_the_cage() {
    both(|s| {
        let repo = s.repo();
        // It says its version only where the cage is in force.
        let control = s.dir().join("control");
        client(
            s,
            "claude",
            &format!(
                "if [ \"$1\" = --version ]; then\n  if (: >{}) 2>/dev/null; then exit 1; fi\n  echo '2.1.9 (Claude Code)'\n  exit 0\nfi\n\
                 test \"$ANTHROPIC_API_KEY\" = key || exit 3\ncase \"$*\" in *hello.txt*) echo hello >hello.txt ;; esac",
                control.display()
            ),
        );
        client(s, "codex", "exit 1");
        let engine = |report: &Value, name: &str| {
            let engines = report["engines"].as_array().unwrap().clone();
            engines.into_iter().find(|e| e["name"] == name).unwrap()
        };
        let report = doctor(&repo, "");
        let claude = engine(&report, "claude-code");
        assert_eq!(
            (&claude["version"], &claude["in_a_run"], &claude["login"]),
            (&json!("2.1.9"), &json!("A"), &Value::Null)
        );
        assert!(!control.exists());
        let codex = engine(&report, "codex");
        assert!(codex["program"].is_string() && codex["version"].is_null() && codex["in_a_run"].is_null());
        assert!(engine(&report, "opencode")["program"].is_null());
        // One only, logged in, and let do something.
        let mut command = repo.agent_command(["doctor", "--json", "--engine", "claude-code", "--live"]);
        command.env("ANTHROPIC_API_KEY", "key");
        let report = run(command, b"").ok().json();
        assert_eq!(report["engines"].as_array().unwrap().len(), 1);
        let claude = engine(&report, "claude-code");
        assert_eq!(
            (&claude["login"], &claude["live"]["done"]),
            (&json!("$ANTHROPIC_API_KEY"), &json!(true)),
            "{claude}"
        );
        repo.agent("doctor --engine claude").with(129).refuses(&["'claude'", "claude-code"]);
    });
}

#[test]
fn traits_say_what_spawn_does() {
    type Shape = fn(&Repo);
    let shapes: &[(&str, Shape, &[&str])] = &[
        ("plain", |_| {}, &[]),
        ("sparse", |r| drop(r.git("sparse-checkout set --cone src")), &["sparse"]),
        ("split index", |r| drop(r.git("update-index --split-index")), &["split-index"]),
        ("detached", |r| drop(r.git("switch -q --detach")), &["detached"]),
        ("orphan", |r| drop(r.git("checkout -q --orphan fresh")), &["no-commits"]),
        (
            "lfs",
            |r| {
                r.write(".gitattributes", "*.bin filter=lfs diff=lfs -text\n*.key filter=crypt\n");
                r.commit("attributes");
            },
            &["lfs", "filters"],
        ),
        (
            "policy",
            |r| {
                r.policy("version: 1\nunknown: 1\n");
            },
            &[],
        ),
        (
            "submodule",
            |r| {
                let other = r.sandbox.repo_with("sub", &[]);
                r.git_args(["submodule", "--quiet", "add", other.dir.to_str().unwrap(), "sub"]);
                r.commit("submodule");
            },
            &["submodules"],
        ),
    ];
    for (name, make, want) in shapes {
        let s = Sandbox::new();
        let repo = s.repo();
        make(&repo);
        let before = repo.fingerprint();
        let found = doctor(&repo, "--repo --engine codex")["traits"].clone();
        before.unchanged(&repo.fingerprint());
        let names: Vec<&str> =
            found["traits"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
        assert_eq!(&names, want, "{name}");
        let ended = repo.spawn("--role developer", "true");
        assert_eq!(found["works"], ended.status() == 0, "{name}: {found}");
        if ended.status() != 0 {
            let status = ended.status();
            let first = found["refusal"].as_str().unwrap().lines().next().unwrap();
            ended.with(status).refuses(&[first]);
        }
    }
    for (name, init, want) in [("sha256", "--object-format=sha256", "sha256"), ("bare", "--bare", "bare")] {
        let s = Sandbox::new();
        let found = doctor(&s.empty_repo(name, &[init]), "--repo --engine codex")["traits"].clone();
        assert_eq!(found["traits"][0]["name"], want);
        assert_eq!(found["works"], false, "no commits yet");
    }
    let s = Sandbox::new();
    let repo = s.repo();
    repo.write("README", "2\n");
    repo.commit("second");
    repo.git_args(["clone", "-q", "--depth=1", &format!("file://{}", repo.dir.display()), "../shallow"]);
    let found = doctor(&repo.at("../shallow"), "--repo --engine codex")["traits"].clone();
    assert_eq!((&found["traits"][0]["name"], &found["works"]), (&json!("shallow"), &json!(true)));
}

#[test]
fn cage_show_says_what_a_run_can_do() {
    both(|s| {
        let repo = s.repo();
        let at_work = repo.start("--role developer --run r", "touch up; sleep 1000");
        eventually("the engine is up", || walk(&s.state()).iter().any(|p| p.ends_with("r/tree/up")));
        let shown = repo.agent("cage show r --json").ok().json();
        assert_eq!((&shown["v"], &shown["name"], &shown["started"]), (&json!(1), &json!("r"), &json!(true)));
        let tree = repo.tree("r");
        let tree = tree.to_str().unwrap();
        let write = shown["cage"]["write"].as_array().unwrap();
        assert!(write.contains(&json!(tree)), "{shown}");
        // Where there are mounts, these are the cage's own.
        let private = ["/tmp", "/var/tmp", "/run", "/dev/shm"].map(|p| json!(p));
        let mut own = write.iter().filter(|w| shown["tier"] == "landlock" || !private.contains(w));
        assert!(own.all(|w| w.as_str().unwrap().starts_with(tree.trim_end_matches("tree"))), "{shown}");
        assert!(shown["cage"]["hidden"].as_array().unwrap().contains(&json!(repo.dir.to_str().unwrap())));
        let env = shown["cage"]["env"].as_array().unwrap();
        assert!(env.contains(&json!("GIT_AGENT_NAME=r")), "{env:?}");
        let said = repo.agent("cage show r").ok();
        // Every key of the value has its heading, whatever it is called.
        for word in [
            "cage of run r",
            "can write",
            "can read and run",
            "hidden",
            "network",
            "environment",
            "limits",
            tree,
        ] {
            assert!(said.out().contains(word), "{word}\n{}", said.out());
        }
        repo.agent("stop r").ok();
        let _ = at_work.end().status();
        // One that no engine was started in yet, and an engine with a login.
        repo.agent("spawn --role developer --run fresh").ok();
        let shown = repo.agent("cage show fresh --json").ok().json();
        assert_eq!((&shown["started"], &shown["name"]), (&json!(false), &json!("fresh")));
        assert!(shown["tier"].is_string());
        repo.agent("cage show nobody").with(128).refuses(&["nobody"]);
        repo.agent("cage hide r").with(129).refuses(&["hide"]);
    });
}
