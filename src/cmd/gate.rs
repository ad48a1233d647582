//! `git agent gate`: a server's hooks, and putting them there.

use super::{Command, Outcome, Session};
use crate::git::Repo;
use crate::model::{Failure, Kind};
use crate::ops;
use crate::ops::gate::{hook, install};
use crate::ui::gate as view;
use clap::{ArgMatches, FromArgMatches as _, Subcommand as _};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) const COMMAND: Command =
    Command { name: "gate", about: "Let a server refuse what nobody approved", make: augment, run };

/// Most bytes that git says about one push.
const MAX_INPUT: u64 = 4 << 20;

#[derive(clap::Subcommand)]
enum What {
    /// Put the gate into a repository on a server
    Install {
        /// The repository; the current folder's, when absent
        #[arg(long, value_name = "DIR")]
        repo: Option<PathBuf>,
        /// Keys that may set and repair policy and signers, as in allowed_signers
        #[arg(long, value_name = "FILE")]
        root_signers: Option<PathBuf>,
    },
    /// Take it out again
    Uninstall {
        /// The repository; the current folder's, when absent
        #[arg(long, value_name = "DIR")]
        repo: Option<PathBuf>,
    },
    /// Whether it stands, and by whose word it judges
    Status {
        /// The repository; the current folder's, when absent
        #[arg(long, value_name = "DIR")]
        repo: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// What the hook pre-receive calls
    PreReceive,
    /// What the hook post-receive calls
    PostReceive,
}

fn augment(command: clap::Command) -> clap::Command {
    What::augment_subcommands(command).subcommand_required(true)
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let what = What::from_arg_matches(matches).map_err(|e| Failure::usage(e.to_string()))?;
    let repo = |session: &Session, dir: &Option<PathBuf>| {
        let dir = dir.as_ref().map_or_else(|| session.cwd.clone(), |d| session.cwd.join(d));
        Repo::discover(&dir)
    };
    match what {
        What::Install { repo: dir, root_signers } => {
            ops::person::require_person("install a gate")?;
            let repo = repo(session, &dir)?;
            let program = std::env::current_exe()
                .map_err(|e| Failure::fatal("where this program is cannot be found out").because(e))?;
            let root = root_signers.map(|f| session.cwd.join(f));
            say(session, &install::install(&repo, root.as_deref(), &program)?);
        }
        What::Uninstall { repo: dir } => {
            ops::person::require_person("take a gate away")?;
            say(session, &install::uninstall(&repo(session, &dir)?)?);
        }
        What::Status { repo: dir, json } => {
            let repo = repo(session, &dir)?;
            let status = install::status(&repo, ops::now())?;
            if json {
                session.out.json(&view::json(&status))?
            } else {
                session.out.answer(&view::status(&status))?
            }
            if !status.wrong.is_empty() {
                return Ok(ExitCode::from(Kind::No.exit_status()));
            }
        }
        What::PreReceive => return pre_receive(session),
        What::PostReceive => return post_receive(session),
    }
    Ok(ExitCode::SUCCESS)
}

fn say(session: &Session, done: &[String]) {
    done.iter().for_each(|line| session.out.talk(line));
}

fn input() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(MAX_INPUT + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::fatal("git did not say which refs are pushed").because(e))?;
    if bytes.len() as u64 > MAX_INPUT {
        return Err(Failure::fatal("one push changes too many refs").hint("push fewer at once"));
    }
    Ok(bytes)
}

/// Whatever goes wrong refuses the push: exit status 0 is said once, at the end.
fn pre_receive(session: &Session) -> Outcome {
    crate::os::hook::deadline(hook::DEADLINE, hook::LATE);
    let input = input()?;
    let refusals = hook::pre_receive(&input, ops::now())?;
    if !refusals.is_empty() {
        session.out.talk(&view::refused(&refusals));
        return Ok(ExitCode::FAILURE);
    }
    chained("pre-receive", &input)
}

fn post_receive(session: &Session) -> Outcome {
    let input = input()?;
    say(session, &hook::post_receive(ops::now())?);
    chained("post-receive", &input)
}

fn chained(name: &str, input: &[u8]) -> Outcome {
    let Some(other) = install::chained(name) else { return Ok(ExitCode::SUCCESS) };
    let status = crate::os::hook::run(&other, input)
        .map_err(|e| Failure::fatal(format!("the hook '{}' cannot be run", other.display())).because(e))?;
    Ok(if status == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
