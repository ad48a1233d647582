//! `git agent prune`: take away what finished runs left on disk.

use super::{Command, Outcome, Session};
use crate::ops::{self, prune::Request};
use crate::ui::{json, report};
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "prune",
    about: "Take away what finished runs left on disk",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// Only say what would go
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also finished runs that hold something unrecorded
    #[arg(long, short = 'f', conflicts_with = "auto")]
    force: bool,
    /// At most once a day, and quietly
    #[arg(long, conflicts_with_all = ["dry_run", "json"])]
    auto: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.untidied()?;
    if args.auto {
        ops::prune::auto(&repo)?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = ops::prune::plan(&repo, Request { force: args.force }, ops::now())?;
    let done = if args.dry_run { plan.would() } else { ops::prune::execute(&repo, plan, ops::now())? };
    if args.json {
        session.out.json(&json::pruned(&done, args.dry_run))?;
    } else {
        let text = report::pruned(&done, args.dry_run);
        if !text.is_empty() {
            session.out.answer(&text)?;
        }
    }
    for kept in done.kept.iter().filter(|k| k.refused) {
        session.out.warning(&format!("{} is left alone: {}", kept.name, kept.why));
    }
    for note in &done.notes {
        session.out.warning(note);
    }
    Ok(ExitCode::SUCCESS)
}
