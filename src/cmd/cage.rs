//! `git agent cage`: what a run's cage lets be seen and done.

use super::{Command, Outcome, Session};
use crate::ops::cage_show;
use crate::ui;
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "cage",
    about: "Show what a run's engine can see, write and reach",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// What to do
    #[arg(value_parser = ["show"])]
    verb: String,
    /// Run: name, branch, or prefix of its id
    run: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.repo()?;
    let shown = cage_show::read(&repo, &args.run)?;
    if args.json {
        session.out.json(&ui::cage::json(&shown))?;
    } else {
        session.out.answer(&ui::cage::text(&session.out, &shown))?;
    }
    Ok(ExitCode::SUCCESS)
}
