//! `git agent doctor`: what holds on this machine, proved, and what goes on around runs.

use super::{Command, Outcome, Session};
use crate::model::Kind;
use crate::ops::doctor::{self, Request};
use crate::ui;
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "doctor",
    about: "Prove what holds on this machine, and find what escapes runs",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Look at this engine only
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Let each engine that is logged in do a small task; costs tokens
    #[arg(long)]
    live: bool,
    /// List what this repository is like and what that means for runs
    #[arg(long)]
    repo: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    // Outside of a repository there is still a machine to look at; inside of a run there is neither.
    let inside = std::env::var_os("GIT_AGENT_RUN").is_some();
    let repo = match session.untidied() {
        Ok(repo) => Some(repo),
        Err(failure) if inside || args.repo => return Err(failure),
        Err(failure) => {
            session.out.talk(&format!("only the machine is looked at: {failure}"));
            None
        }
    };
    let request = Request { engine: args.engine, live: args.live, traits: args.repo };
    let report = doctor::examine(repo.as_ref(), &request)?;
    if args.json {
        session.out.json(&ui::doctor::json(&report))?;
    } else {
        session.out.answer(&ui::doctor::text(&session.out, &report))?;
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::from(Kind::No.exit_status()) })
}
