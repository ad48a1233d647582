//! Paths that deserve a second look whatever the diff says: what runs by itself, what steers tools and
//! agents, what decides which code is fetched. Pure.

use crate::ledger::change::{Change, GITLINK};

/// Why a change deserves a second look; `None` for ordinary files.
pub fn of(change: &Change) -> Option<&'static str> {
    let exec = change.new_mode == 0o100_755 && change.old_mode != 0o100_755;
    if change.new_mode == GITLINK || change.old_mode == GITLINK {
        return Some("submodule");
    }
    if change.new_mode == 0o120_000 {
        return Some("symbolic link");
    }
    by_name(&change.path).or_else(|| exec.then_some("executable bit"))
}

fn by_name(path: &[u8]) -> Option<&'static str> {
    let path = String::from_utf8_lossy(path).to_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    let below =
        |folder: &str| path.starts_with(&format!("{folder}/")) || path.contains(&format!("/{folder}/"));
    let ci = [".github", ".gitlab", ".circleci", ".buildkite", ".woodpecker", ".forgejo", ".gitea"];
    let ci_names =
        [".gitlab-ci.yml", "jenkinsfile", "azure-pipelines.yml", ".travis.yml", "bitbucket-pipelines.yml"];
    if ci.iter().any(|f| below(f)) || ci_names.contains(&name) {
        return Some("CI");
    }
    let hooks = [".githooks", ".husky"];
    if hooks.iter().any(|f| below(f)) || name.starts_with("lefthook.") || name == ".pre-commit-config.yaml" {
        return Some("hook");
    }
    if below(".git-agent") {
        return Some("policy");
    }
    let agents = [".claude", ".codex", ".gemini", ".qwen", ".opencode", ".cursor", ".aider", ".agents"];
    let agent_names =
        ["claude.md", "agents.md", "gemini.md", "qwen.md", ".mcp.json", ".cursorrules", "opencode.json"];
    if agents.iter().any(|f| below(f)) || agent_names.contains(&name) {
        return Some("agent configuration");
    }
    if [".gitattributes", ".gitmodules", ".gitconfig"].contains(&name) {
        return Some("git configuration");
    }
    let locks = [
        "cargo.lock",
        "package-lock.json",
        "npm-shrinkwrap.json",
        "pnpm-lock.yaml",
        "yarn.lock",
        "bun.lock",
        "poetry.lock",
        "uv.lock",
        "pipfile.lock",
        "gemfile.lock",
        "composer.lock",
        "go.sum",
        "flake.lock",
    ];
    if locks.contains(&name) {
        return Some("lock file");
    }
    let builds = [
        "build.rs",
        "makefile",
        "gnumakefile",
        "cmakelists.txt",
        "package.json",
        "setup.py",
        "pyproject.toml",
        "cargo.toml",
        "go.mod",
        "gemfile",
        "dockerfile",
        "containerfile",
        "build.gradle",
        "pom.xml",
        "justfile",
        ".npmrc",
        ".envrc",
        "conftest.py",
        "tox.ini",
        "noxfile.py",
    ];
    if builds.contains(&name) || below(".cargo") || below(".vscode") || below(".devcontainer") {
        return Some("build or tool script");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_deserve_a_look() {
        for (path, why) in [
            (".github/workflows/ci.yml", "CI"),
            ("sub/.claude/settings.json", "agent configuration"),
            ("AGENTS.md", "agent configuration"),
            ("web/package-lock.json", "lock file"),
            ("crates/x/build.rs", "build or tool script"),
            (".git-agent/policy.yml", "policy"),
            (".husky/pre-commit", "hook"),
        ] {
            assert_eq!(by_name(path.as_bytes()), Some(why), "{path}");
        }
        assert_eq!(by_name(b"src/main.rs"), None);
    }
}
