//! Only a person decides: signs of an agent refuse, and nothing else does.

use crate::pty::Pty;
use crate::support::*;

const MARKERS: &[&str] = &[
    "CLAUDECODE=1",
    "AI_AGENT=claude-code",
    "CODEX_SANDBOX=seatbelt",
    "GEMINI_CLI=1",
    "QWEN_CODE=1",
    "OPENCODE=1",
    "GIT_AGENT_RUN=01arz3ndektsv4rrffq69g5fav",
];

/// A client: a shell by another name, so that the process is what it is called.
fn client(s: &Sandbox, name: &str) {
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    std::fs::copy(shell, s.dir().join("bin").join(name)).unwrap();
}

/// The ways in which an agent would type `command`. `; exit` keeps the shell from becoming the command.
fn ways(command: &str) -> Vec<String> {
    let mut ways: Vec<String> = MARKERS.iter().map(|m| format!("env {m} {command}")).collect();
    for name in ["claude", "codex", "gemini"] {
        ways.push(format!("{name} -c '{command}; exit $?'"));
        ways.push(format!("{name} -c 'sh -c \"setsid -w {command}; exit \\$?\"; exit $?'"));
    }
    // A script, as npm installs clients.
    ways.push(format!("qwen '{command}'"));
    let shell = |way: &String| way.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$");
    let pty: Vec<String> = ways.iter().map(|w| format!("script -qec \"{}\" /dev/null", shell(w))).collect();
    // The client makes the terminal, and its child looks like a person's shell.
    ways.push(format!("claude -c 'script -qec \"{command}\" /dev/null; exit $?'"));
    ways.extend(pty);
    ways
}

fn clients(s: &Sandbox) {
    for name in ["claude", "codex", "gemini"] {
        client(s, name);
    }
    let script = s.dir().join("bin/qwen");
    std::fs::write(&script, "#!/bin/sh\nsh -c \"$1\"\nexit $?\n").unwrap();
    set_mode(&script, 0o755);
}

#[test]
fn r26b_an_agent_does_not_decide_on_its_own_run() {
    both(|s| {
        clients(s);
        let repo = s.repo();
        repo.spawn("--role developer --run r", "echo x > x").ok();
        let before = repo.kinds("r");
        for way in ways("git-agent discard r") {
            let said = s.sh(&repo.dir, &way).with(4);
            let all =
                format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
            assert!(all.contains("an agent may not discard a run"), "{way}: {all}");
        }
        assert_eq!(repo.kinds("r"), before);
        assert!(repo.tree("r").join("x").exists());
        // The same without a sign, as a person types it, is taken.
        s.sh(&repo.dir, "env CODEX_HOME=/x sh -c 'git-agent discard r; exit $?'").ok();
        assert_eq!(repo.state("r"), "rejected");
    });
}

#[test]
fn g26_an_agents_approval_is_refused_with_and_without_a_terminal() {
    both(|s| {
        clients(s);
        let repo = s.repo();
        repo.spawn("--role developer --run r", "echo x > x").ok();
        let digest = repo.show("r")["result"]["change"].as_str().unwrap().to_owned();
        // Even where the person allows approvals without a terminal.
        repo.git("config --global agent.approve unattended");
        let before = repo.kinds("r");
        for way in ways(&format!("git-agent review r --approve --digest {digest}")) {
            let said = s.sh(&repo.dir, &way).with(4);
            let all =
                format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
            assert!(all.contains("an agent may not"), "{way}: {all}");
        }
        assert_eq!(repo.kinds("r"), before);
        repo.git("config --global --unset agent.approve");
        repo.agent_args(["review", "r", "--approve", "--digest", &digest]).with(4).refuses(&["no terminal"]);
        assert_eq!(repo.kinds("r"), before);
        // A person at a terminal.
        s.sh(&repo.dir, "script -qec 'git-agent review r --approve' /dev/null").ok();
        assert_eq!(repo.state("r"), "approved");
        assert!(repo.agent("log r --json").ok().out().contains("\"how\":\"terminal\""));
    });
}

/// As in a container: the leaders of our session and group are numbers that this pid namespace does not have.
#[test]
fn r26_a_session_from_outside_the_pid_namespace() {
    both(|s| {
        let repo = s.repo();
        repo.spawn("--role developer --run r", "echo x > x").ok();
        let own = if s.is_user() { "--user --map-current-user " } else { "" };
        let inside = format!("unshare {own}--pid --fork --mount-proc");
        let ask = "git agent review r --approve";
        let digest = repo.show("r")["result"]["change"].as_str().unwrap().to_owned();
        s.sh(&repo.dir, &format!("{inside} {ask} --digest {digest}")).with(4).refuses(&["no terminal"]);
        s.sh(&repo.dir, &format!("script -qec '{inside} {ask}' /dev/null")).ok();
        assert_eq!(repo.state("r"), "approved");
        // An engine gets the terminal and its end leaves the session usable.
        let spawn = "git agent spawn --role developer --run t -m x -- sh -c 'read x; echo $x >x'";
        let mut shell = s.command(&repo.dir, "sh");
        shell.args(["-c", &format!("{inside} {spawn}; echo back $?")]);
        let mut pty = Pty::start(shell);
        pty.send("typed\n");
        pty.expect("back 0");
        pty.end().with(0);
        assert_eq!(repo.state("t"), "proposed");
    });
}
