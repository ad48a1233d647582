//! What a project tells about itself by its files: how its dependencies are installed, how it is tested, and
//! whether an orchestrator lives in it. Only names from tables of ours become words of a command: no text of
//! the project does.

use crate::os::files::Dir;
use crate::policy::Command;

/// Largest file that is looked into.
const MAX_FILE: u64 = 1 << 20;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Commands that install what the lock files name, each with the file that says so.
    pub setup: Vec<(Command, &'static str)>,
    /// Folders that these commands fill.
    pub fills: Vec<&'static str>,
    /// Named commands that test the project, each with the file that says so.
    pub checks: Vec<(&'static str, Command, &'static str)>,
    /// Patterns of an orchestrator's files.
    pub strip: Vec<&'static str>,
}

/// Files by which an orchestrator is known, the pattern that hides them, and the guidance that its client reads
/// as the orchestrator's own orders. That guidance by itself is for whoever works here, and no sign.
const ORCHESTRATORS: &[(&str, &str, Option<&str>)] = &[
    (".claude/agents", ".claude/", CLAUDE),
    (".claude/commands", ".claude/", CLAUDE),
    (".claude/hooks", ".claude/", CLAUDE),
    (".claude-flow", ".claude-flow/", CLAUDE),
    ("claude-flow.config.json", "claude-flow.config.json", CLAUDE),
    (".hive-mind", ".hive-mind/", CLAUDE),
    (".swarm", ".swarm/", CLAUDE),
    (".gemini/agents", ".gemini/", Some("GEMINI.md")),
    (".qwen/agents", ".qwen/", Some("QWEN.md")),
    (".codex/agents", ".codex/", None),
    (".opencode/agent", ".opencode/", None),
    (".opencode/agents", ".opencode/", None),
    (".cursor/agents", ".cursor/", None),
    (".github/agents", ".github/agents/", None),
    (".roomodes", ".roomodes", None),
    (".bmad-core", ".bmad-core/", None),
    ("_bmad", "_bmad/", None),
    (".taskmaster", ".taskmaster/", None),
    (".agent-os", ".agent-os/", None),
    (".conductor", ".conductor/", None),
    ("conductor.json", "conductor.json", None),
];
const CLAUDE: Option<&str> = Some("CLAUDE.md");

/// Looks at the top level of a work tree. No link is followed.
pub fn look(top: &Dir) -> Found {
    let mut found = Found::default();
    javascript(top, &mut found);
    python(top, &mut found);
    rust_and_go(top, &mut found);
    make(top, &mut found);
    for (_, pattern, orders) in ORCHESTRATORS.iter().filter(|o| exists(top, o.0)) {
        for pattern in orders.iter().filter(|o| exists(top, o)).chain([pattern]) {
            if !found.strip.contains(pattern) {
                found.strip.push(pattern);
            }
        }
    }
    found.fills.sort_unstable();
    found.fills.dedup();
    found
}

fn exists(top: &Dir, path: &str) -> bool {
    top.lstat_at(path.as_bytes()).is_ok_and(|m| m.is_some())
}

fn text(top: &Dir, path: &str) -> Option<String> {
    let bytes = top.read_bounded_at(path.as_bytes(), MAX_FILE).ok().flatten()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn words(line: &str) -> Command {
    line.split(' ').map(str::to_owned).collect()
}

/// Package managers by their lock files, the one first that a project with several most likely means.
const MANAGERS: &[(&str, &str, &str, &str)] = &[
    ("pnpm", "pnpm-lock.yaml", "pnpm install --frozen-lockfile", "pnpm test"),
    ("yarn", "yarn.lock", "yarn install --frozen-lockfile", "yarn test"),
    ("bun", "bun.lock", "bun install --frozen-lockfile", "bun run test"),
    ("bun", "bun.lockb", "bun install --frozen-lockfile", "bun run test"),
    ("npm", "package-lock.json", "npm ci", "npm test"),
    ("npm", "npm-shrinkwrap.json", "npm ci", "npm test"),
];

fn javascript(top: &Dir, found: &mut Found) {
    let package = text(top, "package.json").and_then(|t| serde_json::from_str::<serde_json::Value>(&t).ok());
    let declared = package.as_ref().and_then(|p| p["packageManager"].as_str()).unwrap_or_default();
    let locked = || MANAGERS.iter().filter(|(_, lock, ..)| exists(top, lock));
    let named = locked().find(|(name, ..)| declared.split('@').next() == Some(*name));
    let manager = named.or_else(|| locked().next());
    if let Some((name, lock, install, _)) = manager {
        // Yarn 2 and later have another word for it.
        let install = match *name {
            "yarn" if exists(top, ".yarnrc.yml") => "yarn install --immutable",
            _ => install,
        };
        found.setup.push((words(install), lock));
        found.fills.push("node_modules");
    }
    let script = package.as_ref().and_then(|p| p["scripts"]["test"].as_str()).unwrap_or_default();
    // What `npm init` writes where there is no test.
    if !script.is_empty() && !script.contains("no test specified") {
        let test = manager.map_or("npm test", |(.., test)| test);
        found.checks.push(("test", words(test), "package.json"));
    }
}

fn python(top: &Dir, found: &mut Found) {
    let project = text(top, "pyproject.toml").unwrap_or_default();
    let (mut runner, mut by) = ("python3 -m pytest", None);
    if exists(top, "uv.lock") {
        found.setup.push((words("uv sync --locked"), "uv.lock"));
        found.fills.push(".venv");
        runner = "uv run pytest";
    } else if exists(top, "poetry.lock") {
        found.setup.push((words("poetry install --no-interaction"), "poetry.lock"));
        runner = "poetry run pytest";
    } else if exists(top, "requirements.txt") {
        found.setup.push((words("python3 -m venv .venv"), "requirements.txt"));
        found.setup.push((words(".venv/bin/pip install -r requirements.txt"), "requirements.txt"));
        found.fills.push(".venv");
        runner = ".venv/bin/python -m pytest";
    }
    let has = |file: &str, word: &str| text(top, file).is_some_and(|t| t.contains(word));
    if exists(top, "pytest.ini") {
        by = Some("pytest.ini");
    } else if project.contains("[tool.pytest") {
        by = Some("pyproject.toml");
    } else if has("setup.cfg", "[tool:pytest]") {
        by = Some("setup.cfg");
    } else if has("tox.ini", "[pytest]") {
        by = Some("tox.ini");
    }
    if let Some(by) = by {
        found.checks.push(("pytest", words(runner), by));
    }
}

fn rust_and_go(top: &Dir, found: &mut Found) {
    if exists(top, "Cargo.lock") {
        found.setup.push((words("cargo fetch --locked"), "Cargo.lock"));
    }
    if exists(top, "Cargo.toml") {
        found.fills.push("target");
        found.checks.push(("cargo-test", words("cargo test"), "Cargo.toml"));
    }
    if exists(top, "go.sum") {
        found.setup.push((words("go mod download"), "go.sum"));
    }
    if exists(top, "go.mod") {
        found.checks.push(("go-test", words("go test ./..."), "go.mod"));
    }
}

/// A project that has a target `test` has said itself how it is tested, for all of its languages.
fn make(top: &Dir, found: &mut Found) {
    let file = ["GNUmakefile", "makefile", "Makefile"].into_iter().find(|f| exists(top, f));
    let Some(file) = file else { return };
    let target = |line: &str| {
        line.split_once(':').is_some_and(|(names, rest)| {
            !rest.starts_with('=') && names.split_ascii_whitespace().any(|n| n == "test")
        })
    };
    if text(top, file).is_some_and(|t| t.lines().any(target)) {
        found.checks = vec![("test", words("make test"), file)];
    }
}
