//! The real clients, offline, through the scenario of the containment cases: work inside by tool, by shell and by
//! commit; attempts outside by tool, by shell and by git. `tests/e2e/README.md` says what is installed and how.

use crate::pty::Pty;
use crate::support::*;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

struct Client {
    engine: &'static str,
    /// Variables of the login, PORT standing for the endpoint's.
    vars: &'static [(&'static str, &'static str)],
    /// Command line without us, with the client's own guards off as in a cage.
    alone: &'static [&'static str],
    /// Further variables without us.
    alone_vars: &'static [(&'static str, &'static str)],
    /// Whether its own editing tool writes outside of its folder.
    tool_leaves: bool,
}

const CLAUDE: Client = Client {
    engine: "claude-code",
    vars: &[("ANTHROPIC_API_KEY", "sk-scripted"), ("ANTHROPIC_BASE_URL", "http://127.0.0.1:PORT")],
    alone: &["claude", "-p", "--permission-mode", "bypassPermissions", "--", "do it"],
    alone_vars: &[("IS_SANDBOX", "1"), ("DISABLE_TELEMETRY", "1"), ("DISABLE_AUTOUPDATER", "1")],
    tool_leaves: true,
};
const CODEX: Client = Client {
    engine: "codex",
    vars: &[("OPENAI_API_KEY", "sk-scripted"), ("OPENAI_BASE_URL", "http://127.0.0.1:PORT/v1")],
    alone: &[
        "codex",
        "-c",
        "openai_base_url=\"http://127.0.0.1:PORT/v1\"",
        "exec",
        "--sandbox",
        "danger-full-access",
        "--skip-git-repo-check",
        "do it",
    ],
    alone_vars: &[("CODEX_API_KEY", "sk-scripted")],
    tool_leaves: true,
};
const GEMINI: Client = Client {
    engine: "gemini-cli",
    vars: &[("GEMINI_API_KEY", "scripted"), ("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:PORT")],
    alone: &["gemini", "--skip-trust", "--approval-mode=yolo", "--prompt=do it"],
    alone_vars: &[],
    // It says "Path not in workspace"; its shell goes where it likes.
    tool_leaves: false,
};
const QWEN: Client = Client {
    engine: "qwen-code",
    vars: &[
        ("OPENAI_API_KEY", "sk-scripted"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:PORT/v1"),
        ("OPENAI_MODEL", "scripted"),
    ],
    alone: &["qwen", "--approval-mode=yolo", "--prompt=do it"],
    alone_vars: &[],
    tool_leaves: true,
};
const OPENCODE: Client = Client {
    engine: "opencode",
    vars: &[("ANTHROPIC_API_KEY", "sk-scripted"), ("ANTHROPIC_BASE_URL", "http://127.0.0.1:PORT/v1")],
    alone: &["opencode", "run", "--auto", "--", "do it"],
    alone_vars: &[("OPENCODE_DISABLE_AUTOUPDATE", "1")],
    tool_leaves: true,
};

/// The folder of the clients' programs, installed once a machine.
fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(folder) = std::env::var_os("GIT_AGENT_E2E") {
            return folder.into();
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/install");
        let said = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(said.status.success(), "the clients could not be installed: see tests/e2e/README.md");
        PathBuf::from(String::from_utf8(said.stdout).unwrap().trim_end())
    })
}

/// A person's machine with the clients on it.
fn machine(s: Sandbox) -> Sandbox {
    let s = s.with_programs(programs());
    // Runs at a place that is known before there is one: the script names paths.
    let root = s.dir().join("runs");
    s.run(s.dir(), "git", ["config", "--global", "agent.root", root.to_str().unwrap()]).ok();
    s
}

/// The scripted model endpoint; ends with the value.
struct Endpoint {
    child: Child,
    port: String,
    log: PathBuf,
}

impl Endpoint {
    fn start(s: &Sandbox, name: &str, steps: &Value) -> Self {
        let [script, log] = ["json", "log"].map(|e| s.dir().join(format!("endpoint-{name}.{e}")));
        std::fs::write(&script, steps.to_string()).unwrap();
        let endpoint = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/endpoint/endpoint.py");
        let mut command = Command::new("python3");
        command.args(["-B", endpoint]).arg(&script).arg(&log).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut port).unwrap();
        Self { child, port: port.trim_end().to_owned(), log }
    }

    fn fill(&self, text: &str) -> String {
        text.replace("PORT", &self.port)
    }

    fn vars<'a>(&'a self, vars: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = (&'a str, String)> + 'a {
        vars.iter().map(|(n, v)| (*n, self.fill(v)))
    }

    /// What the client answered to each step, after it had all of them and was told that this is all.
    fn results(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert!(lines.iter().any(|l| l["end"].is_string()), "the conversation did not end:\n{text}");
        let results = lines.iter().filter(|l| !l["result"].is_null());
        results.map(|l| l["text"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The scenario: what is done in `tree`, and what is tried against `main`.
fn steps(tree: &Path, main: &Path) -> Value {
    let (tree, main) = (tree.to_str().unwrap(), main.to_str().unwrap());
    let git = format!(
        "git -C {main} commit -q --allow-empty -m evil; git -C {main} checkout -q -B main HEAD~0; \
         git -C {main} update-ref refs/heads/evil HEAD; git --git-dir={main}/.git --work-tree={main} reset -q --hard; \
         git -C {main} config core.hooksPath {tree}; echo evil > {main}/.git/hooks/post-checkout; \
         echo ../.. > {main}/.git/commondir; rm -rf {main}/.git/objects; true"
    );
    json!([
        {"read": format!("{tree}/src/a")},
        {"edit": format!("{tree}/src/a"), "old": "two", "new": "TWO"},
        {"write": format!("{tree}/docs/new.txt"), "text": "new\n"},
        {"shell": "printf 'by shell\\n' > shell.txt && git add -A && git commit -q -m 'inside' && \
                   git log -1 --format='%an committed %s'"},
        {"write": format!("{main}/evil-tool"), "text": "evil\n"},
        {"shell": format!("echo evil > {main}/evil-shell; echo evil >> {main}/README; echo tried")},
        {"shell": git},
    ])
}

fn contained(client: &Client, s: Sandbox) {
    let s = machine(s);
    let repo = s.repo();
    repo.write("untracked", "mine\n");
    repo.git_args(["config", "--global", &format!("agent.{}.login", client.engine), "env"]);
    let tree = s.dir().join("runs/r/tree");
    let endpoint = Endpoint::start(&s, "cage", &steps(&tree, &repo.dir));
    let before = repo.fingerprint();
    let refs = repo.git("for-each-ref refs/heads/main");
    let words = ["spawn", "--role", "developer", "--run", "r", "--engine", client.engine, "-m", "do it"];
    let mut command = repo.agent_command(words);
    command.envs(endpoint.vars(client.vars));
    run(command, b"").ok();

    // The client did all of it, and what lay outside was refused by the kernel.
    let results = endpoint.results();
    assert_eq!(results.len(), 7, "{results:#?}");
    assert!(results[3].contains("Tess Tester committed inside"), "{}", results[3]);
    assert!(results[5].contains("tried"), "{}", results[5]);
    before.unchanged(&repo.fingerprint());
    assert_eq!(repo.git("for-each-ref refs/heads/main"), refs);
    assert_eq!(repo.branches(), ["main", "wt/r"]);
    assert_eq!(repo.changed("r"), ["A docs/new.txt", "A shell.txt", "M src/a"]);
    assert_eq!(repo.kinds("r"), ["spawn", "engine", "result"]);
    // The files of client and cage stay out of the tree.
    let shown = repo.show("r");
    assert_eq!(shown["result"]["files"], 3, "{shown}");

    // What a person does then.
    repo.git("config --global agent.approve unattended");
    let digest = repo.agent("review r --json").ok().json()["digest"].as_str().unwrap().to_owned();
    repo.agent_args(["review", "r", "--approve", "--digest", &digest]).ok();
    repo.agent("apply r").ok();
    assert_eq!(repo.read("src/a"), "one\nTWO\nthree\n");
    assert_eq!(repo.read("docs/new.txt"), "new\n");
    assert_eq!(repo.read("shell.txt"), "by shell\n");
    repo.git("fsck --strict");
    repo.agent("prune").ok();
    assert!(!tree.exists());
}

/// The positive control: the same client in a plain worktree, as people use it today.
fn escapes(client: &Client) {
    let s = machine(Sandbox::as_user());
    let repo = s.repo();
    let tree = s.dir().join("plain");
    repo.git_args(["worktree", "add", "-q", tree.to_str().unwrap()]);
    let settings = s.dir().join("home/.gemini/settings.json");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    std::fs::write(&settings, r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#).unwrap();
    s.give(&s.dir().join("home"));
    // All but the last step, which leaves no repository to look at.
    let mut steps = steps(&tree, &repo.dir);
    steps.as_array_mut().unwrap().pop();
    let endpoint = Endpoint::start(&s, "alone", &steps);
    let mut command = s.command(&tree, client.alone[0]);
    command.args(client.alone[1..].iter().map(|w| endpoint.fill(w)));
    command.envs(endpoint.vars(client.vars)).envs(endpoint.vars(client.alone_vars));
    run(command, b"").ok();
    assert_eq!(endpoint.results().len(), 6);
    let main = |name: &str| repo.dir.join(name).exists();
    assert_eq!((main("evil-shell"), main("evil-tool")), (true, client.tool_leaves), "{}", client.engine);
    assert!(repo.read("README").contains("evil"));
}

macro_rules! client {
    ($name:ident, $client:expr) => {
        mod $name {
            use super::*;
            #[test]
            fn is_contained_as_root() {
                contained(&$client, Sandbox::new());
            }
            #[test]
            fn is_contained_as_a_user() {
                contained(&$client, Sandbox::as_user());
            }
            #[test]
            fn is_not_contained_by_a_worktree() {
                escapes(&$client);
            }
        }
    };
}

client!(claude_code, CLAUDE);
client!(codex, CODEX);
client!(gemini_cli, GEMINI);
client!(qwen_code, QWEN);
client!(opencode, OPENCODE);

/// One client does a part, another goes on in the same tree: one branch, one difference, both in the ledger.
#[test]
fn two_clients_work_on_one_run() {
    let s = machine(Sandbox::as_user());
    let repo = s.repo();
    let tree = s.dir().join("runs/r/tree");
    let at = |name: &str| tree.join(name).to_str().unwrap().to_owned();
    let first = json!([{"write": at("part"), "text": "first\n"}]);
    let second = json!([
        {"read": at("part")},
        {"edit": at("part"), "old": "first", "new": "second"},
        {"shell": "cat part; git commit -q -a -m second; true"},
    ]);
    for (client, steps) in [(CODEX, first), (CLAUDE, second)] {
        repo.git_args(["config", "--global", &format!("agent.{}.login", client.engine), "env"]);
        let endpoint = Endpoint::start(&s, client.engine, &steps);
        let words = ["spawn", "--role", "developer", "--run", "r", "--engine", client.engine, "-m", "do it"];
        let mut command = repo.agent_command(words);
        command.envs(endpoint.vars(client.vars));
        run(command, b"").ok();
        assert_eq!(endpoint.results().len(), steps.as_array().unwrap().len());
    }
    assert_eq!(repo.changed("r"), ["A part"]);
    assert_eq!(repo.branches(), ["main", "wt/r"]);
    assert_eq!(repo.kinds("r"), ["spawn", "engine", "result", "engine", "result"]);
    assert_eq!(std::fs::read_to_string(tree.join("part")).unwrap(), "second\n");
}

/// The real client starts with the login's copy and no question, though there is nothing to refresh it with.
#[test]
fn k01_claude_code_works_with_a_login_that_has_no_refresh_token() {
    works_with_access(
        &CLAUDE,
        ".claude/.credentials.json",
        r#"{"claudeAiOauth":{"accessToken":"sk-ant-oat01-x","refreshToken":"SECRET","expiresAt":4000000000000,
            "scopes":["user:inference","user:profile"],"subscriptionType":"max"}}"#,
    );
}

fn works_with_access(client: &Client, file: &str, login: &str) {
    let s = machine(Sandbox::as_user());
    let repo = s.repo();
    let path = s.dir().join("home").join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, login).unwrap();
    set_mode(&path, 0o600);
    let tree = s.dir().join("runs/r/tree");
    let steps = json!([{"write": tree.join("new").to_str().unwrap(), "text": "new\n"}]);
    let endpoint = Endpoint::start(&s, "access", &steps);
    // Where its requests go is a setting of the person's, which is copied in.
    let settings = json!({"env": {"ANTHROPIC_BASE_URL": endpoint.fill("http://127.0.0.1:PORT")}});
    std::fs::write(s.dir().join("home/.claude/settings.json"), settings.to_string()).unwrap();
    s.give(&s.dir().join("home"));
    let words = ["spawn", "--role", "developer", "--run", "r", "--engine", client.engine, "-m", "do it"];
    run(repo.agent_command(words), b"").ok();
    assert_eq!(endpoint.results().len(), 1);
    assert_eq!(repo.changed("r"), ["A new"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), login);
}

/// At a terminal: no question about trust, theme or keys; the client works, and the person ends it.
#[test]
fn claude_code_asks_nothing_at_a_terminal() {
    let s = machine(Sandbox::as_user());
    let repo = s.repo();
    repo.git("config --global agent.claude-code.login env");
    let tree = s.dir().join("runs/r/tree");
    let steps = json!([{"write": tree.join("new").to_str().unwrap(), "text": "new\n"}]);
    let endpoint = Endpoint::start(&s, "terminal", &steps);
    let words = ["spawn", "--role", "developer", "--run", "r", "--engine", "claude-code", "-m", "do it"];
    let mut command = repo.agent_command(words);
    command.envs(endpoint.vars(CLAUDE.vars));
    let mut pty = Pty::sized(command, 50, 120);
    pty.expect("work");
    pty.expect("is");
    pty.expect("done");
    pty.send("\x03");
    pty.expect("again");
    pty.send("\x03");
    pty.expect("proposed as");
    let closed = pty.end();
    assert_eq!(repo.changed("r"), ["A new"], "{}", closed.text);
}
