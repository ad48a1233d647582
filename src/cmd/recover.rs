//! `git agent recover`: bring an interrupted apply to its end.

use super::{Command, Outcome, Session};
use crate::model::{Failure, Kind};
use crate::ops::land::{self, Recovered};
use crate::ui::landing;
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "recover",
    about: "Bring an interrupted apply to its end",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.untidied()?;
    if repo.work_tree().is_none() {
        return Err(Failure::fatal("there is no working tree here")
            .hint("run it in the working tree in which the apply was interrupted"));
    }
    let recovered = land::recover(&repo)?;
    if matches!(recovered, Recovered::AtWork) {
        return Err(Failure::new(Kind::No, "a git agent apply is at work in this working tree")
            .hint("wait for it; it was not interrupted"));
    }
    if args.json {
        session.out.json(&landing::recovered_json(&recovered))?;
    } else {
        session.out.answer(&landing::recovered(&recovered))?;
    }
    Ok(ExitCode::SUCCESS)
}
