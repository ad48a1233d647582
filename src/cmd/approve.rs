//! `git agent approve` and `git agent revoke`: a person's word on one exact change, without a look at it. The
//! plumbing below `git agent review`.

use super::{Command, Outcome, Session};
use crate::git::Repo;
use crate::ledger::Ledger;
use crate::model::{Digest, Failure};
use crate::ops::authority::{Authority, Case};
use crate::ops::review::Review;
use crate::ops::verdict::{self, Narrow};
use crate::ops::{self, show};
use crate::ui::report;
use crate::ui::time;
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;
use std::time::Duration;

pub(super) const COMMAND: Command = Command {
    name: "approve",
    about: "Approve a run's change without looking at it here",
    make: Args::augment_args,
    run,
};

pub(super) const REVOKE: Command = Command {
    name: "revoke",
    about: "Take back what was approved of a run",
    make: RevokeArgs::augment_args,
    run: run_revoke,
};

#[derive(clap::Args)]
struct Args {
    /// Run: name, branch, or prefix of its id
    run: String,
    /// The digest of the change, in full; needed without a terminal
    #[arg(long, value_name = "DIGEST")]
    digest: Option<Digest>,
    /// It may land only as the very tree, on the very base
    #[arg(long)]
    exact: bool,
    /// It counts only for so long: 90m, 12h, 7d
    #[arg(long, value_name = "DURATION", value_parser = time::parse_duration)]
    expires: Option<Duration>,
}

#[derive(clap::Args)]
struct RevokeArgs {
    /// Run: name, branch, or prefix of its id
    run: String,
    /// Why; kept in the ledger
    #[arg(short = 'm', long = "message", value_name = "REASON")]
    message: Option<String>,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    // First: inside a run nothing else can be asked, and the answer to an agent is no.
    ops::person::require_person("decide on a run")?;
    let repo = session.repo()?;
    let review = ops::review::read(&repo, show::read(&Ledger::new(&repo), &args.run)?)?;
    ops::review::waits(&review)?;
    record(session, &repo, &review, args.digest, Narrow { exact: args.exact, expires: args.expires })?;
    Ok(ExitCode::SUCCESS)
}

fn run_revoke(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: RevokeArgs = super::parsed(matches)?;
    ops::person::require_person("decide on a run")?;
    let repo = session.repo()?;
    let review = ops::review::read(&repo, show::read(&Ledger::new(&repo), &args.run)?)?;
    verdict::revoke(&repo, &review, args.message, ops::now())?;
    session.out.talk(&report::revoked(&review));
    Ok(ExitCode::SUCCESS)
}

/// Records an approval, and says what it still lacks. Also `git agent review --approve`.
pub(super) fn record(
    session: &Session,
    repo: &Repo,
    review: &Review,
    digest: Option<Digest>,
    narrow: Narrow,
) -> Result<(), Failure> {
    let way = verdict::how(repo, review, digest)?;
    verdict::approve(repo, review, &way, narrow, ops::now())?;
    let shown = show::read(&Ledger::new(repo), review.shown.tip.run.as_str())?;
    let lacking = match Case::of(&shown.chain) {
        Some(case) => Authority::here(repo)?.judge(repo, &case, None, ops::now())?.err().unwrap_or_default(),
        None => Vec::new(),
    };
    session.out.talk(&report::approved(review, way.how(), lacking.is_empty()));
    for what in &lacking {
        session.out.warning(&format!("it may not land yet: {what}"));
    }
    Ok(())
}
