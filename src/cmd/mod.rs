//! The command table: one file a command, each a `Command` that parses, plans, executes and reports.

mod apply;
mod approve;
mod cage;
mod checkout;
mod complete;
mod demo;
mod discard;
mod doctor;
mod exec;
mod finish;
mod gate;
pub mod help;
mod init;
mod list;
mod log;
mod login;
mod path;
mod policy;
mod prune;
mod recover;
mod review;
mod shell;
mod show;
mod spawn;
mod stop;
mod sync;
mod trust;
mod verify;

use crate::git::Repo;
use crate::model::{Failure, Kind};
use crate::ops;
use crate::os::attempt;
use crate::text::Untrusted;
use crate::ui::Out;
use clap::ArgMatches;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// What every command gets: where it was called, and where it may speak.
#[derive(Debug)]
pub struct Session {
    /// The caller's folder.
    pub cwd: PathBuf,
    /// The two streams.
    pub out: Out,
}

impl Session {
    /// The repository the caller stands in, tidied. Inside a run's tree that is the repository the run belongs
    /// to.
    pub fn repo(&mut self) -> Result<Repo, Failure> {
        let repo = self.untidied()?;
        let tidied = ops::tidy(&repo)?;
        for note in &tidied.notes {
            self.out.warning(note);
        }
        for name in &tidied.reclaimed {
            self.out.talk(&format!("reclaimed half-made run {name}"));
        }
        Ok(repo)
    }

    /// The same, and nothing is looked after: for a command that may promise to change nothing.
    fn untidied(&mut self) -> Result<Repo, Failure> {
        if let Some(run) = std::env::var_os("GIT_AGENT_RUN") {
            let run = Untrusted::new(run.as_encoded_bytes());
            return Err(Failure::fatal(format!(
                "this is already inside run {run}; a run does not spawn runs"
            ))
            .hint("ledger and other runs are out of reach here: call git agent outside"));
        }
        let repo = ops::repo_at(&self.cwd)?;
        let config = repo.config()?;
        let wanted = |key| match config.get(key) {
            Some("always") => Some(true),
            Some("never" | "false" | "no" | "off") => Some(false),
            _ => None,
        };
        self.out.set_color(wanted("color.agent").or_else(|| wanted("color.ui")));
        Ok(repo)
    }
}

/// How a command that did not fail ends.
pub type Outcome = Result<ExitCode, Failure>;

/// One row of the table.
struct Command {
    name: &'static str,
    /// One line for `git agent help`.
    about: &'static str,
    make: fn(clap::Command) -> clap::Command,
    run: fn(&mut Session, &ArgMatches) -> Outcome,
}

const COMMANDS: &[Command] = &[
    spawn::COMMAND,
    list::COMMAND,
    review::COMMAND,
    approve::COMMAND,
    approve::REVOKE,
    apply::COMMAND,
    discard::COMMAND,
    checkout::COMMAND,
    prune::COMMAND,
    show::COMMAND,
    log::COMMAND,
    path::COMMAND,
    exec::COMMAND,
    shell::COMMAND,
    finish::COMMAND,
    stop::COMMAND,
    policy::COMMAND,
    init::COMMAND,
    cage::COMMAND,
    doctor::COMMAND,
    recover::COMMAND,
    login::COMMAND,
    demo::COMMAND,
    trust::COMMAND,
    verify::COMMAND,
    sync::PUSH,
    sync::FETCH,
    sync::SYNC,
    sync::NOTES,
    gate::COMMAND,
];

/// Entry point of every binary. `fixed` is the command of the one-purpose binaries.
pub fn main(fixed: Option<&str>) -> ExitCode {
    let mut args = std::env::args_os();
    args.next();
    let mut args: Vec<OsString> = args.collect();
    let out = Out::default();
    let name = match fixed {
        Some(name) => name.to_owned(),
        None if args.is_empty() => {
            out.talk(&help::overview());
            return ExitCode::from(Kind::Usage.exit_status());
        }
        None => args.remove(0).to_string_lossy().into_owned(),
    };
    if fixed.is_none() && name == attempt::WORD {
        // Ourselves, inside the cage that doctor looks at.
        return ExitCode::from(attempt::main(&args));
    }
    let cwd = match std::env::current_dir() {
        Ok(cwd) => cwd,
        Err(e) => return fail(&out, &Failure::fatal("the current folder cannot be read").because(e)),
    };
    dispatch(&mut Session { cwd, out }, &name, args)
}

fn dispatch(session: &mut Session, name: &str, args: Vec<OsString>) -> ExitCode {
    let outcome = match name {
        "-h" | "--help" | "help" => help::run(session, name, &args),
        "__complete" => complete::run(session, &args),
        "-v" | "--version" | "version" => session
            .out
            .answer(concat!("git-agent version ", env!("CARGO_PKG_VERSION")))
            .map(|()| ExitCode::SUCCESS),
        name => match COMMANDS.iter().find(|c| c.name == name) {
            Some(command) => run(session, command, args),
            None => Err(unknown(name)),
        },
    };
    outcome.unwrap_or_else(|failure| fail(&session.out, &failure))
}

fn run(session: &mut Session, command: &Command, args: Vec<OsString>) -> Outcome {
    let ours: Vec<_> = args.iter().take_while(|a| *a != "--").collect();
    if ours.iter().any(|a| *a == "--help") {
        return help::page(session, command);
    }
    let words = std::iter::once(OsString::from(command.name)).chain(args);
    match parser(command).try_get_matches_from(words) {
        Ok(matches) => (command.run)(session, &matches),
        Err(e) if e.kind() == clap::error::ErrorKind::DisplayHelp => {
            session.out.answer(e.to_string().trim_end()).map(|()| ExitCode::SUCCESS)
        }
        Err(e) => Err(usage(&e)),
    }
}

/// The clap parser of one command. Also what help, man check and completion are made from.
fn parser(command: &Command) -> clap::Command {
    let base = clap::Command::new(command.name)
        .bin_name(format!("git agent {}", command.name))
        .about(command.about)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .arg(short_help());
    (command.make)(base)
}

/// `-h`, of a command and of each of its verbs.
fn short_help() -> clap::Arg {
    clap::Arg::new("help")
        .short('h')
        .action(clap::ArgAction::HelpShort)
        .help("Show this short help; --help shows the manual page")
}

/// The arguments of a command, as its own type.
fn parsed<A: clap::FromArgMatches>(matches: &ArgMatches) -> Result<A, Failure> {
    A::from_arg_matches(matches).map_err(|e| Failure::usage(e.to_string()))
}

/// clap's error in git's voice: the sentence; its tips and the usage as hints.
fn usage(e: &clap::Error) -> Failure {
    let text = e.to_string();
    let line = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n");
    let message = line(paragraphs.next().unwrap_or_default().trim_start_matches("error: "));
    paragraphs.fold(Failure::usage(message), |failure, paragraph| {
        let first = paragraph.trim().lines().next().unwrap_or_default();
        match (first.strip_prefix("Usage: "), first.strip_prefix("tip: ")) {
            (Some(usage), _) => failure.hint(format!("usage: {usage}")),
            (_, Some(tip)) => failure.hint(tip),
            _ => failure,
        }
    })
}

fn unknown(name: &str) -> Failure {
    let near = crate::text::nearest(name, COMMANDS.iter().map(|c| c.name));
    let shown = Untrusted::new(name);
    let failure = Failure::usage(format!("'{shown}' is not a git agent command"));
    match near.first() {
        Some(near) => failure.hint(format!("did you mean '{near}'?")),
        None => failure.hint("see 'git agent help'"),
    }
}

fn fail(out: &Out, failure: &Failure) -> ExitCode {
    out.failure(failure);
    ExitCode::from(failure.kind.exit_status())
}

/// The table as the tests see it: names and parsers.
pub fn table() -> impl Iterator<Item = (&'static str, clap::Command)> {
    COMMANDS.iter().map(|c| (c.name, parser(c)))
}
