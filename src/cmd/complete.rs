//! What could come next on a command line, for the completion scripts of the shells. Hidden: `git agent
//! __complete WORD...`, where the last word is the one being typed. Prints one candidate a line, a tab and what
//! it is; never an error, never a write. No candidate at all leaves the word to the shell: it is a file or a
//! command.

use super::{COMMANDS, Outcome, Session, parser};
use crate::git::Repo;
use crate::ledger::{Ledger, Tip};
use crate::model::{Failure, Head, Phase};
use crate::ops;
use clap::Arg;
use std::ffi::OsString;
use std::process::ExitCode;

/// Most candidates of one kind: a shell asks before it shows more than a screen, and never reads thousands.
const MOST: usize = 1000;

struct Candidate {
    word: String,
    about: String,
}

pub(super) fn run(session: &mut Session, words: &[OsString]) -> Outcome {
    let words: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let (typed, before) = words.split_last().map_or(("", &[][..]), |(last, rest)| (last.as_str(), rest));
    // `--role=de`: the value alone is the word.
    let typed_value = typed.split_once('=').filter(|(o, _)| o.starts_with("--")).map_or(typed, |(_, v)| v);
    let mut all = candidates(session, before, typed).unwrap_or_default();
    all.retain(|c| c.word.starts_with(typed_value));
    all.truncate(MOST);
    let lines: Vec<_> = all.iter().map(|c| format!("{}\t{}", c.word, c.about)).collect();
    if !lines.is_empty() {
        session.out.answer(&lines.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn candidates(session: &mut Session, before: &[String], typed: &str) -> Result<Vec<Candidate>, Failure> {
    let named = |word: &str, about: &str| Candidate { word: word.into(), about: about.into() };
    let Some((name, args)) = before.split_first() else {
        let commands = COMMANDS.iter().map(|c| named(c.name, c.about));
        return Ok(commands.chain([named("help", "Show a manual page")]).collect());
    };
    if name == "help" {
        return Ok(COMMANDS.iter().map(|c| named(c.name, c.about)).collect());
    }
    let Some(command) = COMMANDS.iter().find(|c| c.name == name) else { return Ok(Vec::new()) };
    let mut parser = parser(command);
    let mut args = args;
    // `policy trust`: the words so far lead to a command of a command.
    while let Some(found) = args.first().and_then(|word| parser.find_subcommand(word)).cloned() {
        (parser, args) = (found, &args[1..]);
    }
    if args.iter().any(|a| a == "--") {
        return Ok(Vec::new());
    }
    let option = |word: &str| {
        let takes = |a: &&Arg| a.get_action().takes_values();
        let is = |a: &&Arg| word.strip_prefix("--").is_some_and(|long| a.get_long() == Some(long));
        parser.get_arguments().filter(takes).find(is).map(|a| a.get_id().to_string())
    };
    if let Some((word, _)) = typed.split_once('=') {
        return option(word).map_or(Ok(Vec::new()), |id| values(session, &id));
    }
    if let Some(id) = args.last().and_then(|word| option(word)) {
        return values(session, &id);
    }
    if typed.starts_with('-') {
        let shown = parser.get_arguments().filter(|a| !a.is_hide_set() && !a.is_last_set());
        let about = |a: &Arg| a.get_help().map(ToString::to_string).unwrap_or_default();
        return Ok(shown
            .filter_map(|a| a.get_long().map(|long| named(&format!("--{long}"), &about(a))))
            .chain([named("--help", "Show the manual page")])
            .collect());
    }
    let below: Vec<_> = parser
        .get_subcommands()
        .map(|c| named(c.get_name(), &c.get_about().map(ToString::to_string).unwrap_or_default()))
        .collect();
    if !below.is_empty() {
        return Ok(below);
    }
    let given = args.iter().filter(|a| !a.starts_with('-')).count();
    let positional = parser.get_positionals().nth(given).map(|a| a.get_id().to_string());
    positional.map_or(Ok(Vec::new()), |id| values(session, &id))
}

/// What an argument can be, by its name in the parser. Empty: whatever the shell knows, such as files.
fn values(session: &mut Session, id: &str) -> Result<Vec<Candidate>, Failure> {
    let repo = session.untidied()?;
    match id {
        "run" | "runs" => runs(&repo),
        "role" => ops::vocabulary::roles(&repo).map(known),
        "engine" => ops::vocabulary::engines(&repo).map(known),
        "base" => {
            let branches = repo.branches()?;
            let short = |name: &str| name.strip_prefix("refs/heads/").unwrap_or(name).to_owned();
            Ok(branches.iter().map(|b| Candidate { word: short(&b.name), about: "branch".into() }).collect())
        }
        _ => Ok(Vec::new()),
    }
}

fn known(all: Vec<(String, &'static str)>) -> Vec<Candidate> {
    all.into_iter().map(|(word, about)| Candidate { word, about: about.into() }).collect()
}

/// Runs that something can be done about come first.
fn runs(repo: &Repo) -> Result<Vec<Candidate>, Failure> {
    let tips = Ledger::new(repo).tips()?.tips;
    let mut heads: Vec<_> = tips.iter().rev().filter_map(Tip::head).collect();
    heads.retain(|h| h.phase != Phase::Pruned);
    heads.sort_by_key(|h| {
        matches!(h.phase, Phase::Applied | Phase::Rejected | Phase::Failed | Phase::Finished)
    });
    let about = |h: &Head| format!("{}, {}", h.role, h.phase.with_liveness(false).as_str());
    Ok(heads.iter().map(|h| Candidate { word: h.name.to_string(), about: about(h) }).collect())
}
