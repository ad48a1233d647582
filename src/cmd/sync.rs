//! `git agent push`, `fetch`, `sync`: runs between repositories; and `git agent notes`.

use super::{Command, Outcome, Session};
use crate::ledger::{self, notes};
use crate::model::Failure;
use crate::ops;
use crate::ops::sync::{self, push};
use crate::ui::sync as view;
use clap::{ArgMatches, Args as _, FromArgMatches as _, Subcommand as _};
use std::process::ExitCode;

pub(super) const PUSH: Command = Command {
    name: "push",
    about: "Send runs, and what is approved of them, to a remote",
    make: PushArgs::augment_args,
    run: run_push,
};

pub(super) const FETCH: Command = Command {
    name: "fetch",
    about: "Bring the runs of a remote",
    make: FetchArgs::augment_args,
    run: run_fetch,
};

pub(super) const SYNC: Command = Command {
    name: "sync",
    about: "Bring the runs of a remote, and send it news of those it has",
    make: FetchArgs::augment_args,
    run: run_sync,
};

pub(super) const NOTES: Command = Command {
    name: "notes",
    about: "Make the index of landed commits again",
    make: |c| What::augment_subcommands(c).subcommand_required(true),
    run: run_notes,
};

#[derive(clap::Args)]
struct PushArgs {
    /// A remote, if the first word is the name of one; then runs
    #[arg(required = true, value_name = "[REMOTE] RUN")]
    words: Vec<String>,
    /// Say what would leave and send nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Push a commit of yours with this message instead of the snapshot
    #[arg(short = 'm', long = "message", value_name = "TEXT")]
    message: Option<String>,
    /// Sign that commit as git signs commits
    #[arg(short = 'S', long = "sign")]
    sign: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct FetchArgs {
    /// The remote; the one of the branch that is checked out, when absent
    remote: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum What {
    /// From what the runs say; anything else in it is forgotten
    Rebuild,
}

fn run_push(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: PushArgs = super::parsed(matches)?;
    let repo = session.repo()?;
    let named = args.words.len() > 1 && repo.remotes()?.contains(&args.words[0]);
    let (remote, runs) =
        if named { (Some(args.words[0].as_str()), &args.words[1..]) } else { (None, &args.words[..]) };
    let remote = sync::remote(&repo, remote)?;
    let plan = push::plan(&repo, &remote, runs, ops::now())?;
    session.out.talk(&view::leaves(&plan));
    if args.dry_run {
        if args.json {
            session.out.json(&view::push_json(&plan, &[], true))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let form = push::Form { message: args.message, sign: args.sign };
    let done = push::execute(&repo, plan, &form, ops::now())?;
    done.notes.iter().for_each(|n| session.out.warning(n));
    if args.json {
        session.out.json(&view::push_json(&done.plan, &done.notes, false))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run_fetch(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: FetchArgs = super::parsed(matches)?;
    let repo = session.repo()?;
    let remote = sync::remote(&repo, args.remote.as_deref())?;
    fetch(session, &repo, &remote, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn fetch(session: &Session, repo: &crate::git::Repo, remote: &str, as_json: bool) -> Result<(), Failure> {
    let fetched = sync::fetch(repo, remote, ops::now())?;
    fetched.notes.iter().for_each(|n| session.out.warning(n));
    if as_json {
        return session.out.json(&view::fetched_json(&fetched));
    }
    session.out.talk(&view::fetched(&fetched));
    Ok(())
}

fn run_sync(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: FetchArgs = super::parsed(matches)?;
    let repo = session.repo()?;
    let remote = sync::remote(&repo, args.remote.as_deref())?;
    fetch(session, &repo, &remote, args.json)?;
    let shared = sync::shared(&repo, &remote)?;
    if !shared.is_empty() {
        let mut plan = push::plan(&repo, &remote, &shared, ops::now())?;
        // News of runs that the remote has; a branch goes only when somebody pushes it.
        plan.items.iter_mut().for_each(|i| i.branch = None);
        let done = push::execute(&repo, plan, &push::Form::default(), ops::now())?;
        done.notes.iter().for_each(|n| session.out.warning(n));
    }
    Ok(ExitCode::SUCCESS)
}

fn run_notes(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let What::Rebuild = What::from_arg_matches(matches).map_err(|e| Failure::usage(e.to_string()))?;
    let repo = session.repo()?;
    let count = notes::rebuild(&repo, &ledger::actor(repo.config()?), ops::now())?;
    session.out.talk(&format!("{} holds {count} landed commits", notes::NOTES));
    Ok(ExitCode::SUCCESS)
}
