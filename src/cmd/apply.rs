//! `git agent apply`: land an approved change in the working tree, or take it out again.

use super::{Command, Outcome, Session};
use crate::git::Repo;
use crate::ledger::Ledger;
use crate::model::{Digest, Failure, How, Kind, RunName, RunState};
use crate::ops::{self, land, show, verdict};
use crate::ui::{landing, pager, prompt, review as view};
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
    /// Run: name, branch, or prefix of its id; with --undo the one that landed last, when absent
    #[arg(required_unless_present = "undo")]
    run: Option<String>,
    /// The change that is meant, with --merge the merged one; refuse any other
    #[arg(long, value_name = "sha256:HEX")]
    digest: Option<Digest>,
    /// Where you edited a file, merge the change into it and show the result for a second look
    #[arg(long)]
    merge: bool,
    /// Commit exactly what landed, as git commit would
    #[arg(long, conflicts_with = "merge")]
    commit: bool,
    /// With --commit: the message, in place of the task's first line
    #[arg(short = 'm', long = "message", value_name = "TEXT", requires = "commit")]
    message: Option<String>,
    /// Take out again what a run brought in, if nothing of it changed since
    #[arg(long, conflicts_with_all = ["digest", "merge", "commit"])]
    undo: bool,
    /// Say what would happen and touch nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What follows a yes.
#[derive(Debug, Default)]
pub(super) struct Manner {
    /// Merge where the person edited.
    pub merge: bool,
    commit: bool,
    message: Option<String>,
    json: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.repo()?;
    if args.undo {
        return undo(session, &repo, &args);
    }
    let shown = show::read(&Ledger::new(&repo), args.run.as_deref().unwrap_or_default())?;
    let Args { digest, merge, commit, dry_run, json, message, .. } = args;
    let manner = Manner { merge, commit, message, json };
    // At a terminal, landing what nobody approved yet is the review.
    let waits = matches!(shown.state, RunState::Proposed | RunState::Kept);
    if waits && !dry_run && !json && digest.is_none() && prompt::possible() {
        return super::review::ask(session, &repo, ops::review::read(&repo, shown)?, manner);
    }
    let mut plan = if merge {
        land::plan_merge(&repo, &shown, ops::now())?
    } else {
        land::plan(&repo, &shown, digest.as_ref(), ops::now())?
    };
    let wanted = commit_plan(&repo, &shown, &plan, &manner)?;
    if dry_run {
        let proposal = plan.warrant().proposal();
        if json {
            session.out.json(&landing::json(proposal, &plan.paths(), &[], true, plan.merged()))?;
        } else {
            session.out.answer(&landing::planned(proposal, &plan.paths()))?;
            if let Some(merged) = plan.merged() {
                session.out.raw(b"\n")?;
                session.out.raw(view::diff(&session.out, &merged.diff).as_bytes())?;
                session.out.hint(&format!("the merged result is {}", merged.change));
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(merged) = plan.merged() {
        let how = look_again(session, &repo, &plan.warrant().proposal().name, merged, digest)?;
        plan = plan.accept(how);
    } else if let Some(digest) = digest.filter(|d| merge && *d != plan.warrant().proposal().change) {
        let name = &plan.warrant().proposal().name;
        return Err(Failure::new(
            Kind::Consent,
            format!("nothing of run '{name}' is merged; it is not {digest}"),
        ));
    }
    land(session, &repo, plan, &manner, wanted)
}

fn commit_plan(
    repo: &Repo,
    shown: &show::Shown,
    plan: &land::Plan,
    manner: &Manner,
) -> Result<Option<land::commit::Wanted>, Failure> {
    manner.commit.then(|| land::commit::plan(repo, shown, plan, manner.message.as_deref())).transpose()
}

/// Shows a merged result and asks; without a terminal its digest must have been given.
pub(super) fn look_again(
    session: &Session,
    repo: &Repo,
    name: &RunName,
    merged: &land::Merged,
    digest: Option<Digest>,
) -> Result<How, Failure> {
    if digest.is_some()
        || !prompt::possible()
        || ops::person::require_terminal("land a merged result").is_err()
    {
        return verdict::how_merged(repo, name, merged.change, digest);
    }
    pager::show(&session.out, repo.config()?, &view::diff(&session.out, &merged.diff))?;
    let asked = prompt::line(&format!("{name}: land this merged result? [y/N] "))
        .map_err(|e| Failure::fatal("the terminal cannot be asked").because(e))?;
    match asked.as_deref() {
        Some("y" | "yes") => Ok(How::Terminal),
        _ => Err(Failure::new(Kind::No, format!("run '{name}' was not landed; nothing was changed"))),
    }
}

/// Lands what a review approved a moment ago.
pub(super) fn land_approved(
    session: &Session,
    repo: &Repo,
    shown: &show::Shown,
    plan: land::Plan,
    manner: &Manner,
) -> Outcome {
    let wanted = commit_plan(repo, shown, &plan, manner)?;
    land(session, repo, plan, manner, wanted)
}

/// Lands a plan, says what happened, commits it if that is wanted, and takes the run's tree away.
fn land(
    session: &Session,
    repo: &Repo,
    plan: land::Plan,
    manner: &Manner,
    wanted: Option<land::commit::Wanted>,
) -> Outcome {
    let out = &session.out;
    let merged = plan.merged().cloned();
    let mut landed = land::execute(repo, plan)?;
    let committed = wanted.map(|w| land::commit::execute(repo, &w, &landed));
    if let Some(Ok(done)) = &committed {
        landed.notes.extend(done.notes.iter().cloned());
        landed.commit = done.commit.clone();
    }
    landed.notes.iter().for_each(|n| out.warning(n));
    if manner.json {
        let mut json = landing::json(&landed.proposal, &landed.paths, &landed.notes, false, merged.as_ref());
        json["commit"] = landed.commit.as_ref().map(|c| c.as_str()).into();
        out.json(&json)?;
    } else {
        out.answer(&landing::landed(&landed))?;
        landing::next(&landed).iter().for_each(|hint| out.hint(hint));
    }
    // The change has landed; what is left to clear up is no failure of the apply.
    match ops::reclaim::after_apply(repo, &landed.tip, ops::now()) {
        Ok(notes) => notes.iter().for_each(|n| out.warning(n)),
        Err(e) => out.warning(&format!("the run's tree is still there: {e}")),
    }
    let _ = ops::prune::auto(repo);
    match committed.transpose()?.and_then(|done| land::commit::altered(&landed.proposal.name, &done)) {
        Some(altered) => Err(altered),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Undoes a landing, or says what that would do.
fn undo(session: &Session, repo: &Repo, args: &Args) -> Outcome {
    let run = args.run.as_deref().map(|word| Ledger::new(repo).resolve(word)).transpose()?;
    let plan = land::undo::plan(repo, run.as_ref().map(|tip| &tip.run))?;
    let out = &session.out;
    let said = if args.dry_run {
        landing::Undone::planned(&plan)
    } else {
        landing::Undone::done(land::undo::execute(repo, plan)?)
    };
    said.notes.iter().for_each(|n| out.warning(n));
    if args.json {
        out.json(&said.json())?
    } else {
        out.answer(&said.text())?
    }
    Ok(ExitCode::SUCCESS)
}
