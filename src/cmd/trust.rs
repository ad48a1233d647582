//! `git agent trust signers`: who may sign approvals, by what is committed; and the change that adds somebody.

use super::{Command, Outcome, Session};
use crate::ops::signers as trust;
use crate::ui::trust as view;
use clap::{ArgMatches, FromArgMatches as _, Subcommand as _};
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) const COMMAND: Command =
    Command { name: "trust", about: "Show or change who may sign approvals", make: augment, run };

#[derive(clap::Subcommand)]
enum What {
    /// People and agents that may sign
    #[command(subcommand)]
    Signers(Signers),
}

#[derive(clap::Subcommand)]
enum Signers {
    /// Who may sign, by the commit that is checked out
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write somebody's key into the work tree's files, for you to look at and commit
    Add {
        /// The principal: a mail address, as the policy's approval.signers names it
        principal: String,
        /// File with the public key
        key: PathBuf,
    },
    /// Whether the files are in order, and whether you could sign
    Check,
}

fn augment(command: clap::Command) -> clap::Command {
    What::augment_subcommands(command).subcommand_required(true)
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let What::Signers(what) =
        What::from_arg_matches(matches).map_err(|e| crate::model::Failure::usage(e.to_string()))?;
    let repo = session.repo()?;
    let out = &session.out;
    match what {
        Signers::List { json } => {
            let listed = trust::list(&repo, crate::ops::now())?;
            if json { out.json(&view::json(&listed))? } else { out.answer(&view::listed(&listed))? }
        }
        Signers::Add { principal, key } => {
            let added = trust::add(&repo, &principal, &session.cwd.join(key))?;
            out.talk(&view::added(&added));
        }
        Signers::Check => {
            let checked = trust::check(&repo, crate::ops::now())?;
            out.answer(&view::checked(&checked))?;
            if !checked.wrong.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
