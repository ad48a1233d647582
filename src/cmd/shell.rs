//! `git agent shell`: the person's shell in a run's tree, in the same cage.

use super::{Command, Outcome, Session};
use crate::ops::{self, Open};
use crate::ui::report;
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "shell",
    about: "Open a shell in a run's tree, in its cage",
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
    let run = Open::named(&repo, &args.run)?;
    if let Some(danger) = ops::supervise::without_cage(&repo)?.and_then(report::without_cage) {
        session.out.danger(danger);
    }
    let shell = std::env::var_os("SHELL").filter(|s| !s.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    session.out.talk(&format!(
        "run {}: changes are recorded by 'git agent finish {}'",
        run.folder.name, run.folder.name
    ));
    Ok(ExitCode::from(ops::supervise::exec(&run, &[shell])?))
}
