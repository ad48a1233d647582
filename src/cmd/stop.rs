//! `git agent stop`: end a run's engine; what it left is recorded.

use super::{Command, Outcome, Session};
use crate::ops;
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "stop",
    about: "End a run's engine and record what it left",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// Run: name, branch, or prefix of its id
    run: String,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.repo()?;
    let stopped = ops::supervise::stop(&repo, &args.run)?;
    session.out.talk(&stopped);
    Ok(ExitCode::SUCCESS)
}
