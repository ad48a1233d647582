//! `git agent verify`: the gate's verdict on commits of a clone, for CI and for whoever wonders.

use super::{Command, Outcome, Session};
use crate::model::Kind;
use crate::ops;
use crate::ops::gate::verify::{self, Question};
use crate::ui::gate as view;
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "verify",
    about: "Say whether a gate would take these commits",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// A commit, a range, or an agent's branch: HEAD, origin/main..HEAD, wt/r1
    #[arg(value_name = "COMMIT|RANGE")]
    what: String,
    /// The branch where they are to land
    #[arg(long, value_name = "REF")]
    target: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    // Nothing is tidied: a CI job may have a read-only clone and no home.
    let repo = session.untidied()?;
    let question = Question { what: &args.what, target: args.target.as_deref() };
    let found = verify::verify(&repo, &question, ops::now())?;
    if args.json {
        session.out.json(&view::verified_json(&found))?;
    } else {
        if found.refusals.is_empty() {
            session.out.answer(&view::verified(&found))?;
        }
        for refusal in &found.refusals {
            session.out.talk(&refusal.to_string());
        }
    }
    Ok(match &found.refusals[..] {
        [] => ExitCode::SUCCESS,
        all if all.iter().all(|r| r.lacks) => ExitCode::from(Kind::Consent.exit_status()),
        _ => ExitCode::from(Kind::No.exit_status()),
    })
}
