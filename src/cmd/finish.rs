//! `git agent finish`: take the snapshot of a run now.

use super::{Command, Outcome, Session};
use crate::model::Ended;
use crate::ops::{self, Open};
use crate::ui::{json, report};
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command =
    Command { name: "finish", about: "Take the snapshot of a run now", make: Args::augment_args, run };

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
    let mut run = Open::named(&repo, &args.run)?;
    if ops::reader::is_one(&run) {
        ops::reader::close(&mut run, Ended::Unseen, 0, ops::now())?;
        session.out.talk(&report::read(&run, Ended::Unseen));
        if args.json {
            session.out.json(&json::read(&run, Ended::Unseen))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    ops::standing::still_open(&run.tip.understood()?.head)?;
    if let Some(note) = report::of_your_own(run.isolation()) {
        session.out.warning(note);
    }
    let taking = ops::Taking { checks: true, ..ops::Taking::UNSEEN };
    let finished = ops::finish(&mut run, taking, ops::now())?;
    for note in &finished.notes {
        session.out.warning(note);
    }
    session.out.talk(&report::finished(&run, &finished));
    if args.json {
        session.out.json(&json::finished(&run, &finished))?;
    }
    Ok(ExitCode::SUCCESS)
}
