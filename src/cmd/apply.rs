//! `git agent apply`: land an approved change in the working tree.

use super::{Command, Outcome, Session};
use crate::git::Repo;
use crate::ledger::Ledger;
use crate::model::{Digest, RunState};
use crate::ops::{self, land, show};
use crate::ui::{landing, prompt};
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "apply",
    about: "Land an approved change in the working tree",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// Run: name, branch, or prefix of its id
    run: String,
    /// The change that is meant; refuse any other
    #[arg(long, value_name = "sha256:HEX")]
    digest: Option<Digest>,
    /// Say what would happen and touch nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.repo()?;
    let shown = show::read(&Ledger::new(&repo), &args.run)?;
    // At a terminal, landing what nobody approved yet is the review.
    let waits = matches!(shown.state, RunState::Proposed | RunState::Kept);
    if waits && !args.dry_run && !args.json && args.digest.is_none() && prompt::possible() {
        return super::review::ask(session, &repo, ops::review::read(&repo, shown)?);
    }
    let plan = land::plan(&repo, &shown, args.digest.as_ref(), ops::now())?;
    let out = &session.out;
    if args.dry_run {
        let proposal = plan.warrant().proposal();
        if args.json {
            out.json(&landing::json(proposal, &plan.paths(), &[], true))?;
        } else {
            out.answer(&landing::planned(proposal, &plan.paths()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    land(session, &repo, plan, args.json)
}

/// Lands a plan, says what happened, and takes the run's tree away. Also the answer `apply` of a review.
pub(super) fn land(session: &Session, repo: &Repo, plan: land::Plan, as_json: bool) -> Outcome {
    let out = &session.out;
    let landed = land::execute(repo, plan)?;
    for note in &landed.notes {
        out.warning(note);
    }
    if as_json {
        out.json(&landing::json(&landed.proposal, &landed.paths, &landed.notes, false))?;
    } else {
        out.answer(&landing::landed(&landed))?;
        for hint in landing::next(&landed) {
            out.hint(&hint);
        }
    }
    // The change has landed; what is left to clear up is no failure of the apply.
    match ops::reclaim::after_apply(repo, &landed.tip, ops::now()) {
        Ok(notes) => notes.iter().for_each(|n| out.warning(n)),
        Err(e) => out.warning(&format!("the run's tree is still there: {e}")),
    }
    let _ = ops::prune::auto(repo);
    Ok(ExitCode::SUCCESS)
}
