//! `git agent init`: propose and write the project's policy.

use super::{Command, Outcome, Session};
use crate::model::{Failure, Kind};
use crate::ops::{self, init};
use crate::policy::PATH;
use crate::ui::{policy as view, prompt};
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command =
    Command { name: "init", about: "Write a policy that fits this project", make: Args::augment_args, run };

#[derive(clap::Args)]
struct Args {
    /// Take every proposal without being asked; needed without a terminal
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print what would be written, and write nothing
    #[arg(long, conflicts_with_all = ["yes", "json"])]
    print: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    if args.print {
        let plan = init::plan(&session.untidied()?)?;
        plan.notes.iter().for_each(|note| session.out.warning(note));
        return session.out.raw(init::propose(&plan.found)?.text.as_bytes()).map(|()| ExitCode::SUCCESS);
    }
    // What is written here counts as accepted, and only a person accepts.
    ops::person::require_person("write a policy that counts as accepted")?;
    let repo = session.repo()?;
    let mut plan = init::plan(&repo)?;
    let out = &session.out;
    if let Some(there) = &plan.there {
        out.talk(&format!("nothing to do: {there}"));
        out.hint("look at it: git agent policy check; accept it: git agent policy trust");
        if args.json {
            out.json(&view::initialised_json(&plan.found, None, &[]))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    plan.notes.iter().for_each(|note| out.warning(note));
    out.talk(&view::found(&plan.found));
    let ask = !args.yes;
    if ask {
        if args.json || !prompt::possible() {
            return Err(Failure::new(Kind::Consent, "no policy was written: there is no terminal to ask at")
                .hint("look at it: git agent init --print")
                .hint("take every proposal: git agent init --yes"));
        }
        ops::person::require_terminal("write a policy that counts as accepted")?;
        choose(&mut plan.found)?;
    }
    let proposal = init::propose(&plan.found)?;
    for l in &proposal.looser {
        out.talk(&format!("looser than the built-in default: {l}"));
    }
    if ask && !yes(&format!("write {PATH}, and accept it on this machine?"))? {
        return Ok(ExitCode::from(Kind::No.exit_status()));
    }
    let written = init::execute(&repo, &proposal, ops::now())?;
    for path in &written.paths {
        out.talk(&format!("wrote {path}"));
    }
    if args.json {
        out.json(&view::initialised_json(&plan.found, Some(&written), &proposal.looser))?;
    }
    out.hint("only what is committed counts: git add .git-agent && git commit -m 'policy of git-agent'");
    Ok(ExitCode::SUCCESS)
}

/// Asks about each kind of proposal.
fn choose(found: &mut init::Found) -> Result<(), Failure> {
    if !found.setup.is_empty() && !yes("prepare each writer's tree with this setup?")? {
        found.setup.clear();
    }
    if !found.checks.is_empty() && !yes("run these checks on each writer's result?")? {
        found.checks.clear();
    }
    if !found.strip.is_empty() && !yes("hide the orchestrator's files from runs?")? {
        found.strip.clear();
    }
    Ok(())
}

fn yes(question: &str) -> Result<bool, Failure> {
    let said = prompt::line(&format!("{question} [y/N] "))
        .map_err(|e| Failure::fatal("the terminal cannot be asked").because(e))?;
    Ok(matches!(said.as_deref(), Some("y" | "yes")))
}
