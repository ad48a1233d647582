//! K: what of a person's login and settings gets into a run.

use crate::support::*;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Engine, program, the login's place below HOME, what such a file holds, and where the client looks in a run.
const CLIENTS: [(&str, &str, &str, &str, &str); 5] = [
    (
        "claude-code",
        "claude",
        ".claude/.credentials.json",
        r#"{"claudeAiOauth":{"accessToken":"ACCESS","refreshToken":"SECRET","expiresAt":4000000000000}}"#,
        "$CLAUDE_CONFIG_DIR/.credentials.json",
    ),
    (
        "codex",
        "codex",
        ".codex/auth.json",
        r#"{"tokens":{"id_token":"i","access_token":"ACCESS","refresh_token":"SECRET"},"last_refresh":"x"}"#,
        "$CODEX_HOME/auth.json",
    ),
    (
        "gemini-cli",
        "gemini",
        ".gemini/oauth_creds.json",
        r#"{"access_token":"ACCESS","refresh_token":"SECRET","expiry_date":4000000000000}"#,
        "$GEMINI_CLI_HOME/.gemini/oauth_creds.json",
    ),
    (
        "qwen-code",
        "qwen",
        ".qwen/oauth_creds.json",
        r#"{"access_token":"ACCESS","refresh_token":"SECRET","expiry_date":4000000000000}"#,
        "$QWEN_HOME/oauth_creds.json",
    ),
    (
        "opencode",
        "opencode",
        ".local/share/opencode/auth.json",
        r#"{"x":{"type":"oauth","access":"ACCESS","refresh":"SECRET","expires":4000000000000}}"#,
        "$XDG_DATA_HOME/opencode/auth.json",
    ),
];

/// Writes a file below the person's HOME, readable by them alone.
fn home(s: &Sandbox, path: &str, text: &str) {
    let file = s.dir().join("home").join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    set_mode(&file, 0o600);
    s.give(&s.dir().join("home"));
}

/// A sandbox whose person keeps everything at its default place below HOME.
fn at_home(s: &Sandbox) -> Repo<'_> {
    s.repo()
}

fn spawn(repo: &Repo<'_>, engine: &str, run: &str, vars: &[(&str, &str)]) -> Ended {
    let words = ["spawn", "--role", "developer", "--run", run, "--engine", engine, "-m", "do it"];
    let mut command = repo.agent_command(words);
    command.env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME").envs(vars.iter().copied());
    run_command(command)
}

fn run_command(command: std::process::Command) -> Ended {
    run(command, b"")
}

/// What a file is to whoever looks at it: bytes, time, mode, inode.
fn whole(path: &Path) -> (Vec<u8>, i64, i64, u32, u64) {
    let m = std::fs::metadata(path).unwrap();
    (std::fs::read(path).unwrap(), m.mtime(), m.mtime_nsec(), m.mode(), m.ino())
}

#[test]
fn k01_k02_a_run_gets_the_login_without_its_refresh_token() {
    both(|s| {
        let repo = at_home(s);
        for (engine, program, file, login, inside) in CLIENTS {
            home(s, file, login);
            // The positive control: a client that is not caged finds the refresh token.
            let own = s.dir().join("home").join(file);
            assert!(s.sh(&repo.dir, &format!("grep -c SECRET '{}'", own.display())).ok().out() == "1");
            let before = whole(&own);
            s.program(
                program,
                &format!(
                    "cp \"{inside}\" seen && stat -c %a \"{inside}\" > mode
                     d=$(dirname \"$GIT_AGENT_TASK\")/..
                     if grep -rs SECRET \"$d/engine\" \"$d/tmp\" \"$d/cache\" . /proc/self/environ; then exit 7; fi
                     # And a client that keeps its login does what it likes with it.
                     echo overwritten > \"{inside}\""
                ),
            );
            spawn(&repo, engine, engine, &[]).ok();
            let tree = repo.tree(engine);
            let seen = std::fs::read_to_string(tree.join("seen")).unwrap();
            assert!(seen.contains("ACCESS") && !seen.contains("SECRET"), "{engine}: {seen}");
            assert_eq!(std::fs::read_to_string(tree.join("mode")).unwrap(), "600\n");
            assert_eq!(whole(&own), before, "{engine}");
            // When the engine has ended, the run holds no login any more.
            let left = s
                .sh(&repo.dir, &format!("grep -rl -e ACCESS -e overwritten '{0}/../engine'", tree.display()));
            assert_eq!(left.status(), 1, "{engine}");
        }
    });
}

#[test]
fn k03_other_logins_and_settings_are_out_of_reach() {
    both(|s| {
        let repo = at_home(s);
        for (_, _, file, login, _) in CLIENTS {
            home(s, file, login);
        }
        for file in [".claude/settings.json", ".codex/config.toml", ".cursor/x", ".copilot/x", ".claude.json"]
        {
            home(s, file, "SECRET");
        }
        let all = "for f in .claude/.credentials.json .claude/settings.json .claude.json .codex/auth.json \
                   .codex/config.toml .gemini/oauth_creds.json .qwen/oauth_creds.json .cursor/x .copilot/x \
                   .local/share/opencode/auth.json; do cat \"$H/$f\" && echo; done";
        let all = all.replace("$H", s.dir().join("home").to_str().unwrap());
        assert_eq!(s.sh(&repo.dir, &all).ok().out().matches("SECRET").count(), 10, "the control");
        s.program("gemini", &format!("{{ {all}; }} > got 2> errors; exit 0"));
        spawn(&repo, "gemini-cli", "r", &[]).ok();
        let tree = repo.tree("r");
        assert_eq!(std::fs::read_to_string(tree.join("got")).unwrap(), "");
        assert_eq!(std::fs::read_to_string(tree.join("errors")).unwrap().lines().count(), 10);
    });
}

#[test]
fn k04_settings_go_in_and_never_back() {
    both(|s| {
        let repo = at_home(s);
        home(s, ".claude/.credentials.json", CLIENTS[0].3);
        home(s, "dotfiles/settings.json", "{\"model\":\"mine\"}");
        home(s, ".claude/skills/tidy/run.sh", "#!/bin/sh\n");
        home(s, ".claude/CLAUDE.md", "be kind\n");
        home(s, ".claude/projects/other/secret.jsonl", "what another project said\n");
        home(s, ".claude.json", r#"{"theme":"dark","projects":{"/elsewhere":{}}}"#);
        let person = s.dir().join("home/.claude");
        std::os::unix::fs::symlink("../dotfiles/settings.json", person.join("settings.json")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", person.join("skills/tidy/passwd")).unwrap();
        set_mode(&person.join("skills/tidy/run.sh"), 0o700);
        s.program(
            "claude",
            "cd \"$CLAUDE_CONFIG_DIR\" && find . -type f | sort > \"$OLDPWD/files\" &&
             cp settings.json CLAUDE.md .claude.json \"$OLDPWD\" && test -x skills/tidy/run.sh || exit 8
             echo '{\"model\":\"theirs\"}' > settings.json; echo evil >> CLAUDE.md; echo evil > skills/new",
        );
        let files = ["settings.json", "CLAUDE.md", ".credentials.json", "skills/tidy/run.sh"];
        let before: Vec<_> = files.iter().map(|f| whole(&person.join(f))).collect();
        let said = spawn(&repo, "claude-code", "r", &[]).ok();
        assert!(said.err().contains("1 symbolic links below"), "{}", said.err());
        let tree = repo.tree("r");
        let read = |name: &str| std::fs::read_to_string(tree.join(name)).unwrap();
        assert_eq!(
            read("files"),
            "./.claude.json\n./.credentials.json\n./CLAUDE.md\n./settings.json\n./skills/tidy/run.sh\n"
        );
        assert_eq!(
            (read("settings.json").as_str(), read("CLAUDE.md").as_str()),
            ("{\"model\":\"mine\"}", "be kind\n")
        );
        let state = read(".claude.json");
        assert!(state.contains("dark") && !state.contains("/elsewhere"), "{state}");
        assert!(state.contains(tree.to_str().unwrap()), "{state}");
        assert_eq!(files.iter().map(|f| whole(&person.join(f))).collect::<Vec<_>>(), before);
        assert!(!person.join("skills/new").exists());
        // The next engine in this run starts from the person's settings again.
        spawn(&repo, "claude-code", "r", &[]).ok();
        assert_eq!(std::fs::read_to_string(tree.join("settings.json")).unwrap(), "{\"model\":\"mine\"}");
    });
}

#[test]
fn k05_not_logged_in_is_one_sentence_with_three_ways() {
    both(|s| {
        let repo = at_home(s);
        let before = repo.fingerprint();
        for (engine, program, file, _, _) in CLIENTS {
            s.program(program, "echo started > started");
            let ways = format!("git config --global agent.{engine}.login env");
            let own = format!("git agent login {engine}");
            let refused = |said: Said| {
                let err = said.err();
                for part in
                    [&format!("engine '{engine}' is not logged in: log in with '{program}'"), &ways, &own]
                {
                    assert!(err.contains(part), "{err}");
                }
                assert_eq!(err.lines().count(), 1, "{err}");
            };
            refused(spawn(&repo, engine, "r", &[]).with(128));
            // An empty file, or one without a login, is no login.
            for nothing in ["", "{}"] {
                home(s, file, nothing);
                refused(spawn(&repo, engine, "r", &[]).with(128));
            }
        }
        before.unchanged(&repo.fingerprint());
        assert_eq!(repo.branches(), ["main"]);
        assert_eq!(repo.names(), Vec::<String>::new());
    });
}

#[test]
fn strange_login_files_are_refused_by_name_or_followed() {
    both(|s| {
        let repo = at_home(s);
        s.program("claude", "cp \"$CLAUDE_CONFIG_DIR/.credentials.json\" seen");
        let login = CLIENTS[0].3;
        let file = s.dir().join("home/.claude/.credentials.json");
        home(s, ".claude/.credentials.json", "");
        let refused = |said: &str| {
            let ended = spawn(&repo, "claude-code", "bad", &[]).with(128);
            assert!(ended.err().contains(said), "{}", ended.err());
            assert!(!ended.err().contains("SECRET"));
        };
        for bad in ["{", "[]", "SECRET", "{\"claudeAiOauth\":{\"accessToken\":\"SECRET\""] {
            home(s, ".claude/.credentials.json", bad);
            refused("is not a login that claude wrote");
        }
        home(s, ".claude/.credentials.json", &format!("{login}{}", " ".repeat(2 << 20)));
        refused("cannot be read");
        let ended = login.replace("4000000000000", "1000000000000");
        home(s, ".claude/.credentials.json", &ended);
        refused("the login of engine 'claude-code' has ended");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        refused("is not a file");
        std::fs::remove_dir(&file).unwrap();
        s.sh(s.dir(), &format!("mkfifo '{}'", file.display())).ok();
        refused("is not a file");
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(".credentials.json", &file).unwrap();
        refused("cannot be read");
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("nowhere", &file).unwrap();
        refused("is not logged in");
        assert_eq!(repo.names(), Vec::<String>::new());

        // A link that the person made is theirs, and so is a mode; they hear of it.
        std::fs::remove_file(&file).unwrap();
        home(s, "dotfiles/login", login);
        std::os::unix::fs::symlink("../dotfiles/login", &file).unwrap();
        set_mode(&s.dir().join("home/dotfiles/login"), 0o644);
        let said = spawn(&repo, "claude-code", "r", &[]).ok();
        assert!(
            said.err().contains("other users of this machine can reach a login: chmod 600"),
            "{}",
            said.err()
        );
        assert!(std::fs::read_to_string(repo.tree("r").join("seen")).unwrap().contains("ACCESS"));
        // Soon to end: the person hears how long, and how to renew it.
        let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
            + 1_805_000;
        std::fs::remove_file(&file).unwrap();
        home(s, ".claude/.credentials.json", &login.replace("4000000000000", &soon.to_string()));
        let said = spawn(&repo, "claude-code", "r2", &[]).ok();
        let err = said.err();
        assert!(err.contains("ends in 30 minutes") || err.contains("ends in 29 minutes"), "{err}");
        assert!(err.contains("start 'claude' once"), "{err}");
    });
}

#[test]
fn variables_of_a_login_pass_when_the_person_says_so_and_only_the_engines_own() {
    both(|s| {
        let repo = at_home(s);
        s.program("claude", "env > vars; ls -a \"$CLAUDE_CONFIG_DIR\" > files");
        home(s, ".claude/.credentials.json", CLIENTS[0].3);
        let vars = [
            ("ANTHROPIC_API_KEY", "key-0123456789012345678901"),
            ("ANTHROPIC_BASE_URL", "http://127.0.0.1:1"),
            ("OPENAI_API_KEY", "other"),
            ("GH_TOKEN", "other"),
        ];
        let passed = |run: &str| -> Vec<String> {
            let text = std::fs::read_to_string(repo.tree(run).join("vars")).unwrap();
            let names = text.lines().filter_map(|l| l.split_once('=')).map(|(n, _)| n.to_owned());
            names.filter(|n| vars.iter().any(|(v, _)| v == n)).collect()
        };
        spawn(&repo, "claude-code", "access", &vars).ok();
        assert_eq!(passed("access"), Vec::<String>::new());
        repo.git("config --global agent.claude-code.login env");
        spawn(&repo, "claude-code", "env", &vars).ok();
        let mut names = passed("env");
        names.sort();
        assert_eq!(names, ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"]);
        // Then the login in the person's file stays outside.
        assert!(!std::fs::read_to_string(repo.tree("env").join("files")).unwrap().contains("credentials"));
        let said = spawn(&repo, "claude-code", "none", &[]).with(128);
        assert!(
            said.err().contains("agent.claude-code.login is 'env', and none of ANTHROPIC_API_KEY"),
            "{}",
            said.err()
        );
        repo.git("config --global agent.claude-code.login always");
        let said = spawn(&repo, "claude-code", "none", &[]).with(128);
        assert!(said.err().contains("values: env, access, own, none"), "{}", said.err());
        // A repository's own configuration has no say.
        repo.git("config --global --unset agent.claude-code.login");
        repo.git("config agent.claude-code.login env");
        spawn(&repo, "claude-code", "local", &vars).ok();
        assert_eq!(passed("local"), Vec::<String>::new());
        repo.git("config --global agent.claude-code.login none");
        spawn(&repo, "claude-code", "without", &vars).ok();
        assert_eq!(passed("without"), Vec::<String>::new());
    });
}

#[test]
fn what_an_engine_left_in_its_folder_leads_no_login_astray() {
    both(|s| {
        let repo = at_home(s);
        home(s, ".claude/.credentials.json", CLIENTS[0].3);
        home(s, ".claude/settings.json", "{}");
        let trap = s.dir().join("trap");
        std::fs::create_dir(&trap).unwrap();
        set_mode(&trap, 0o777);
        for (at, plant) in [
            ("rm -rf \"$CLAUDE_CONFIG_DIR\"; ln -s TRAP \"$CLAUDE_CONFIG_DIR\"").into(),
            "cd \"$CLAUDE_CONFIG_DIR\"; rm -rf .credentials.json; ln -s TRAP/login .credentials.json"
                .to_owned(),
            "cd \"$CLAUDE_CONFIG_DIR\"; rm -f .credentials.json settings.json; mkdir -p settings.json/a/b; \
             ln -s TRAP settings.json/c; mkdir .credentials.json"
                .to_owned(),
            "rm -rf \"$CLAUDE_CONFIG_DIR\"; mkfifo \"$CLAUDE_CONFIG_DIR\"".to_owned(),
        ]
        .into_iter()
        .enumerate()
        {
            let run = format!("r{at}");
            let plant: String = plant;
            s.program("claude", &plant.replace("TRAP", trap.to_str().unwrap()));
            spawn(&repo, "claude-code", &run, &[]).ok();
            s.program(
                "claude",
                "cp \"$CLAUDE_CONFIG_DIR/.credentials.json\" \"$CLAUDE_CONFIG_DIR/settings.json\" .",
            );
            spawn(&repo, "claude-code", &run, &[]).ok();
            let tree = repo.tree(&run);
            assert!(std::fs::read_to_string(tree.join(".credentials.json")).unwrap().contains("ACCESS"));
            assert_eq!(std::fs::read_to_string(tree.join("settings.json")).unwrap(), "{}");
        }
        assert_eq!(std::fs::read_dir(&trap).unwrap().count(), 0);
    });
}

#[test]
fn a_login_for_runs_only_is_made_in_a_cage_and_kept_without_its_refresh_token() {
    both(|s| {
        let repo = at_home(s);
        home(s, ".claude/.credentials.json", &CLIENTS[0].3.replace("ACCESS", "PERSONS"));
        let outside = s.dir().join("home/.claude/.credentials.json");
        let before = whole(&outside);
        s.program(
            "claude",
            &format!(
                "if test \"$1 $2\" = 'auth login'; then
                     cat '{0}' && exit 9; echo x >> '{0}' && exit 9
                     echo '{1}' > \"$CLAUDE_CONFIG_DIR/.credentials.json\"; exit
                 fi
                 cp \"$CLAUDE_CONFIG_DIR/.credentials.json\" seen",
                outside.display(),
                CLIENTS[0].3
            ),
        );
        repo.git("config --global agent.claude-code.login own");
        let said = spawn(&repo, "claude-code", "r", &[]).with(128);
        assert!(said.err().contains("git agent login claude-code"), "{}", said.err());
        let said = repo.agent("login claude-code").ok();
        assert!(said.err().contains("logged in to claude-code until"), "{}", said.err());
        let kept = s.state().join("git-agent/logins/claude-code");
        let names: Vec<_> = std::fs::read_dir(&kept).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(names.len() == 2 && kept.join(".credentials.json").is_file(), "{names:?}");
        let text = std::fs::read_to_string(kept.join(".credentials.json")).unwrap();
        assert!(text.contains("ACCESS") && !text.contains("SECRET"), "{text}");
        spawn(&repo, "claude-code", "r", &[]).ok();
        assert!(std::fs::read_to_string(repo.tree("r").join("seen")).unwrap().contains("ACCESS"));
        assert_eq!(whole(&outside), before);

        // A client that does not log in changes nothing of what is kept.
        s.program("claude", "exit 0");
        let said = repo.agent("login claude-code").with(1);
        assert!(said.err().contains("nothing was kept"), "{}", said.err());
        assert_eq!(std::fs::read_to_string(kept.join(".credentials.json")).unwrap(), text);
        repo.agent("login command").with(129);
        repo.agent("login nobody").with(128);
    });
}

#[test]
fn without_a_cage_the_clients_own_guard_stays_on() {
    both(|s| {
        let repo = at_home(s);
        home(s, ".claude/.credentials.json", CLIENTS[0].3);
        s.program("claude", "echo \"$IS_SANDBOX $*\" > words");
        let words = |run: &str, vars: &[(&str, &str)]| {
            spawn(&repo, "claude-code", run, vars).ok();
            std::fs::read_to_string(repo.tree(run).join("words")).unwrap()
        };
        let caged = words("caged", &[]);
        assert!(caged.starts_with("1 -p --permission-mode bypassPermissions"), "{caged}");
        let free = words("free", &[("GIT_AGENT_CAGE", "off")]);
        assert!(free.starts_with(" -p --permission-mode acceptEdits"), "{free}");
    });
}
