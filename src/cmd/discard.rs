//! `git agent discard`: reject a run and take its tree away.

use super::{Command, Outcome, Session};
use crate::ops;
use crate::ui::{json, report};
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command =
    Command { name: "discard", about: "Reject a run and take its tree away", make: Args::augment_args, run };

#[derive(clap::Args)]
struct Args {
    /// Run: name, branch, or prefix of its id
    run: String,
    /// Why; kept in the ledger
    #[arg(short = 'm', long = "message", value_name = "REASON")]
    message: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    ops::person::require_person("discard a run")?;
    let repo = session.repo()?;
    discard(session, &repo, &args.run, args.message.as_deref(), args.json)
}

/// Rejects a run and says what became of it. Also the answer `discard` of a review.
pub(super) fn discard(
    session: &Session,
    repo: &crate::git::Repo,
    word: &str,
    reason: Option<&str>,
    as_json: bool,
) -> Outcome {
    let discarded = ops::discard::discard(repo, word, reason, ops::now())?;
    let of_tree = discarded.tree.iter().flat_map(|t| &t.notes);
    for note in discarded.notes.iter().chain(of_tree) {
        session.out.warning(note);
    }
    session.out.talk(&report::discarded(&discarded));
    if as_json {
        session.out.json(&json::discarded(&discarded))?;
    }
    Ok(ExitCode::SUCCESS)
}
