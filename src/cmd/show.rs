//! `git agent show`: everything the ledger knows about one run.

use super::{Command, Outcome, Session};
use crate::ledger::Ledger;
use crate::ops;
use crate::ui::{json, report};
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command =
    Command { name: "show", about: "Show what the ledger knows about a run", make: Args::augment_args, run };

#[derive(clap::Args)]
struct Args {
    /// Run: name, branch, or prefix of its id
    run: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.repo()?;
    let ledger = Ledger::new(&repo);
    let shown = ops::show::read(&ledger, &args.run)?;
    if args.json {
        session.out.json(&json::shown(&shown))?;
    } else {
        session.out.answer(&report::shown(&session.out, &shown))?;
    }
    Ok(ExitCode::SUCCESS)
}
