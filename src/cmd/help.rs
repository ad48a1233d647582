//! Help: the overview, and the manual pages that every binary carries.

use super::{COMMANDS, Command, Outcome, Session};
use crate::os::viewer;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

/// The manual pages, embedded so that they are there when nothing is installed.
const PAGES: &[(&str, &str)] = &[
    ("", include_str!("../../man/git-agent.1")),
    ("spawn", include_str!("../../man/git-agent-spawn.1")),
    ("list", include_str!("../../man/git-agent-list.1")),
    ("show", include_str!("../../man/git-agent-show.1")),
    ("log", include_str!("../../man/git-agent-log.1")),
    ("path", include_str!("../../man/git-agent-path.1")),
    ("exec", include_str!("../../man/git-agent-exec.1")),
    ("shell", include_str!("../../man/git-agent-shell.1")),
    ("finish", include_str!("../../man/git-agent-finish.1")),
    ("stop", include_str!("../../man/git-agent-stop.1")),
    ("review", include_str!("../../man/git-agent-review.1")),
    ("doctor", include_str!("../../man/git-agent-doctor.1")),
    ("cage", include_str!("../../man/git-agent-cage.1")),
    ("demo", include_str!("../../man/git-agent-demo.1")),
    ("approve", include_str!("../../man/git-agent-approve.1")),
    ("revoke", include_str!("../../man/git-agent-revoke.1")),
    ("verify", include_str!("../../man/git-agent-verify.1")),
    ("gate", include_str!("../../man/git-agent-gate.1")),
    ("gate.7", include_str!("../../man/git-agent-gate.7")),
    ("push", include_str!("../../man/git-agent-push.1")),
    ("fetch", include_str!("../../man/git-agent-fetch.1")),
    ("sync", include_str!("../../man/git-agent-sync.1")),
    ("notes", include_str!("../../man/git-agent-notes.1")),
    ("trust", include_str!("../../man/git-agent-trust.1")),
    ("apply", include_str!("../../man/git-agent-apply.1")),
    ("recover", include_str!("../../man/git-agent-recover.1")),
    ("discard", include_str!("../../man/git-agent-discard.1")),
    ("checkout", include_str!("../../man/git-agent-checkout.1")),
    ("prune", include_str!("../../man/git-agent-prune.1")),
    ("login", include_str!("../../man/git-agent-login.1")),
    ("init", include_str!("../../man/git-agent-init.1")),
    ("policy", include_str!("../../man/git-agent-policy.1")),
    ("policy.yml", include_str!("../../man/git-agent-policy.5")),
    ("ledger", include_str!("../../man/git-agent-ledger.7")),
];

/// What `git agent` prints by itself.
pub(super) fn overview() -> String {
    let mut text = String::from("usage: git agent <command> [<args>]\n\n");
    for command in COMMANDS {
        text.push_str(&format!("   {:10} {}\n", command.name, command.about));
    }
    text.push_str("\n'git agent help <command>' shows its manual page; 'git agent <command> -h' is short.");
    text
}

pub(super) fn run(session: &mut Session, word: &str, args: &[OsString]) -> Outcome {
    if word == "-h" || word == "help" && args.is_empty() {
        return session.out.answer(&overview()).map(|()| ExitCode::SUCCESS);
    }
    let name = args.first().map(|a| a.to_string_lossy().into_owned()).unwrap_or_default();
    match PAGES.iter().find(|(n, _)| *n == name) {
        Some((_, page)) => show(session, page),
        None => Err(super::unknown(&name)),
    }
}

/// `--help` of a command.
pub(super) fn page(session: &mut Session, command: &Command) -> Outcome {
    match PAGES.iter().find(|(n, _)| *n == command.name) {
        Some((_, page)) => show(session, page),
        None => session
            .out
            .answer(super::parser(command).render_long_help().to_string().trim_end())
            .map(|()| ExitCode::SUCCESS),
    }
}

/// Through man(1) on a terminal, so that it looks and searches like every other page; else as plain text.
fn show(session: &mut Session, page: &str) -> Outcome {
    if std::io::stdout().is_terminal() && viewer::man(page.as_bytes()).is_ok_and(|shown| shown) {
        return Ok(ExitCode::SUCCESS);
    }
    session.out.answer(plain(page).trim_end()).map(|()| ExitCode::SUCCESS)
}

/// man(7) source as text for where man(1) is missing: macros and font changes go, words stay.
fn plain(page: &str) -> String {
    let mut text = String::new();
    for line in page.lines() {
        let line = match line.strip_prefix('.') {
            None => line.to_owned(),
            Some(rest) => {
                let (name, words) = rest.split_once(' ').unwrap_or((rest, ""));
                match name.trim() {
                    "SH" => format!("\n{}", words.trim_matches('"')),
                    "SS" => format!("\n  {}", words.trim_matches('"')),
                    "B" | "I" | "BR" | "BI" | "RB" | "IR" | "RI" | "IB" => words.replace('"', ""),
                    "PP" | "P" | "TP" | "IP" => words.replace('"', ""),
                    _ => continue,
                }
            }
        };
        let line = ["\\fB", "\\fI", "\\fR", "\\fP", "\\&"].iter().fold(line, |l, code| l.replace(code, ""));
        text.push_str(&line.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\"));
        text.push('\n');
    }
    text
}

/// The names of the embedded pages, for the test that compares them with the table.
pub fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGES.iter().copied()
}
