//! Completion in the real shells, from the files that are shipped.

use crate::pty::Pty;
use crate::support::*;
use std::path::PathBuf;

fn shipped(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("completions").join(name)
}

/// A repository with a run in it, and what the program offers for a command line.
fn offered(repo: &Repo<'_>, words: &[&str]) -> Vec<String> {
    let said = repo.agent_args([&["__complete"], words].concat()).ok();
    said.out().lines().map(|l| l.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn candidates_come_from_the_parser_the_policy_and_the_ledger() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run alpha", "echo x >x").ok();
    repo.spawn("--role developer --run beta", "echo x >y").ok();
    repo.agent("discard alpha").ok();
    let before = repo.fingerprint_but("config");
    assert_eq!(offered(&repo, &["sp"]), ["spawn"]);
    assert_eq!(offered(&repo, &["review", ""]), ["beta", "alpha"], "what can be decided comes first");
    assert_eq!(offered(&repo, &["review", "al"]), ["alpha"]);
    assert_eq!(offered(&repo, &["checkout", "beta", ""]), [""; 0], "a folder is the shell's");
    assert_eq!(offered(&repo, &["spawn", "--role", "ui"]), ["ui-developer"]);
    assert_eq!(offered(&repo, &["spawn", "--role=doc"]), ["docs-writer"]);
    assert_eq!(offered(&repo, &["spawn", "--engine", "cl"]), ["claude-code"]);
    assert_eq!(offered(&repo, &["spawn", "--base", "m"]), ["main"]);
    assert_eq!(offered(&repo, &["spawn", "--with"]), ["--with-changes"]);
    assert_eq!(offered(&repo, &["spawn", "--", "--wi"]), [""; 0], "after -- it is the engine's");
    assert_eq!(offered(&repo, &["nonsense", ""]), [""; 0]);
    assert_eq!(offered(&repo, &[]).len(), git_agent::cmd::table().count() + 1);
    before.unchanged(&repo.fingerprint_but("config"));
    let outside = s.run(s.dir(), "git-agent", ["__complete", "review", ""]).ok();
    assert_eq!((outside.out(), outside.stderr.len()), ("", 0), "no repository, no word");
}

#[test]
fn bash_completes_through_gits_own() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run alpha", "echo x >x").ok();
    let ask = |line: &str| {
        let words = line.split(' ').map(|w| format!("'{w}'")).collect::<Vec<_>>().join(" ");
        let script = format!(
            "source /usr/share/bash-completion/completions/git; source {}; COMP_LINE='{line}' \
             COMP_POINT={} COMP_WORDS=({words}) COMP_CWORD={}; __git_wrap__git_main; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            shipped("git-agent.bash").display(),
            line.len(),
            line.split(' ').count() - 1,
        );
        repo.sandbox.run(&repo.dir, "bash", ["--norc", "-c", &script]).ok().out().to_owned()
    };
    assert_eq!(ask("git agent sp"), "spawn ");
    assert_eq!(ask("git agent review al"), "alpha ");
    assert_eq!(ask("git agent spawn --role ui"), "ui-developer ");
    assert_eq!(ask("git --no-pager agent spawn --engine cl"), "claude-code ");
}

#[test]
fn zsh_completes_at_a_terminal() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run alpha", "echo x >x").ok();
    let mut command = s.command(&repo.dir, "zsh");
    command.args(["-f", "-i"]);
    let mut pty = Pty::sized(command, 24, 200);
    let folder = shipped("").display().to_string();
    pty.send(&format!(
        "PS1='> '; fpath=({folder} $fpath); autoload -Uz compinit && compinit -u -D; echo rea''dy\n"
    ));
    pty.expect("ready");
    pty.send("git agent spawn --role ui\t");
    pty.expect("ui-developer");
    pty.send("\u{15}git agent review al\t");
    pty.expect("alpha");
    pty.send("\u{15}exit\n");
    pty.end();
}

#[test]
fn fish_completes_with_descriptions() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run alpha", "echo x >x").ok();
    let ask = |line: &str| {
        let script = format!("source {}; complete -C '{line}'", shipped("git-agent.fish").display());
        repo.sandbox.run(&repo.dir, "fish", ["-c", &script]).ok().out().to_owned()
    };
    assert_eq!(ask("git agent review al"), "alpha\tdeveloper, proposed");
    assert_eq!(ask("git agent spawn --role ui"), "ui-developer\twriter");
    assert_eq!(ask("git agent spawn --role=ui"), "--role=ui-developer\twriter");
    assert!(ask("git agent ").contains("spawn\t"));
    assert!(ask("git age").contains("agent\t"));
    assert_eq!(ask("git-agent pru").lines().next(), Some("prune\tTake away what finished runs left on disk"));
}
