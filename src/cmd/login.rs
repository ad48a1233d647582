//! `git agent login`: a login of an engine's client that runs get and nothing else uses.

use super::{Command, Outcome, Session};
use crate::ops;
use crate::ui::time;
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command =
    Command { name: "login", about: "Log an engine in for runs only", make: Args::augment_args, run };

#[derive(clap::Args)]
struct Args {
    /// Engine: claude-code, codex, gemini-cli, qwen-code or opencode
    engine: String,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let made = ops::login::sign_in(&args.engine)?;
    let until = made.expires.map_or_else(String::new, |at| format!(" until {}", time::local(at)));
    session.out.talk(&format!("logged in to {}{until}, for runs only", made.engine));
    session.out.hint(&format!("git config --global agent.{}.login own", made.engine));
    Ok(ExitCode::SUCCESS)
}
