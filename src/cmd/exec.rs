//! `git agent exec`: a command of the person's in a run's tree, in the same cage.

use super::{Command, Outcome, Session};
use crate::ops::{self, Open};
use crate::ui::report;
use clap::{ArgMatches, Args as _};
use std::ffi::OsString;
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "exec",
    about: "Run a command in a run's tree, in its cage",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// Run: name, branch, or prefix of its id
    run: String,
    /// The command line
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.repo()?;
    let run = Open::named(&repo, &args.run)?;
    if let Some(danger) = ops::supervise::without_cage(&repo)?.and_then(report::without_cage) {
        session.out.danger(danger);
    }
    Ok(ExitCode::from(ops::supervise::exec(&run, &args.command)?))
}
