//! `git agent policy`: look at a policy, and accept one.

use super::{Command, Outcome, Session};
use crate::model::{Digest, Failure, Kind};
use crate::ops::{self, explain, trust};
use crate::ui::{policy as view, prompt};
use clap::{ArgMatches, Args as _};
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "policy",
    about: "Check, explain, compare and accept the policy",
    make: |base| {
        let base = Args::augment_args(base).disable_help_subcommand(true);
        base.mut_subcommands(|verb| verb.arg(super::short_help()))
    },
    run,
};

#[derive(clap::Args)]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Say whether a file is a policy, and what in it needs consent
    Check {
        /// File; the work tree's policy, when absent
        file: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what a role may do, and which line says so
    Explain {
        /// Role
        #[arg(long, value_name = "ROLE")]
        role: String,
        /// Paths: may the role change them?
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say in what a policy is looser and tighter than the built-in default and than the one accepted last
    Diff {
        /// File; the work tree's policy, when absent
        file: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Accept the policy that counts, on this machine
    Trust {
        /// The policy that is meant, in full; needed without a terminal
        #[arg(long, value_name = "DIGEST")]
        digest: Option<Digest>,
        /// Take back what was accepted for this repository
        #[arg(long, conflicts_with = "digest")]
        revoke: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the policy that counts
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of policies, for editors
    Schema,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    match args.verb {
        Verb::Check { file, json } => check(session, file, json),
        Verb::Explain { role, paths, json } => {
            let repo = session.repo()?;
            let explained = explain::explain(&repo, &session.cwd, &role, &paths)?;
            session.out.talk(&view::standing(&explained.candidate, &explained.standing));
            match json {
                true => session.out.json(&view::explained_json(&explained))?,
                false => session.out.answer(&view::explained(&explained))?,
            }
            let denied =
                explained.paths.iter().any(|(_, j)| matches!(j, crate::policy::Judgement::Refused(_)));
            Ok(if denied { ExitCode::from(Kind::No.exit_status()) } else { ExitCode::SUCCESS })
        }
        Verb::Diff { file, json } => diff(session, file, json),
        Verb::Trust { revoke: true, json, .. } => {
            ops::person::require_person("take consent back")?;
            let gone = trust::Store::of(&session.repo()?)?.revoke()?;
            if json {
                session.out.json(&serde_json::json!({ "v": 1, "revoked": gone }))?;
            } else {
                session
                    .out
                    .talk(&format!("{gone} accepted policies of this repository do not count any more"));
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Trust { digest, json, .. } => accept(session, digest, json),
        Verb::Show { json } => {
            let repo = session.repo()?;
            let candidate = trust::candidate(&repo, repo.commit_of("HEAD")?.as_ref())?;
            let standing = trust::standing(&repo, &candidate.policy)?;
            if json {
                session.out.json(&view::shown_json(&candidate, &standing))?;
            } else {
                session.out.talk(&view::standing(&candidate, &standing));
                let text = crate::text::Untrusted::new(&candidate.text).multiline();
                session.out.raw(text.as_bytes())?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Schema => session.out.raw(crate::policy::SCHEMA.as_bytes()).map(|()| ExitCode::SUCCESS),
    }
}

/// A file that was named needs no repository.
fn text(session: &mut Session, file: Option<PathBuf>) -> Result<explain::Text, Failure> {
    match file {
        Some(file) => explain::named(&session.cwd, &file),
        None => explain::of_work_tree(&session.untidied()?),
    }
}

fn check(session: &mut Session, file: Option<PathBuf>, json: bool) -> Outcome {
    let text = text(session, file)?;
    let checked = explain::check(&text);
    if json {
        session.out.json(&view::checked_json(&text, checked.as_ref()))?;
    }
    match checked {
        Ok(checked) => {
            if !json {
                session.out.answer(&view::checked(&text, &checked))?;
                checked.notes.iter().for_each(|note| session.out.warning(note));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(_) if json => Ok(ExitCode::from(Kind::No.exit_status())),
        Err(e) => Err(Failure { kind: Kind::No, ..e.into() }),
    }
}

fn diff(session: &mut Session, file: Option<PathBuf>, json: bool) -> Outcome {
    // Outside of any repository nothing was accepted, and a named file can still be compared.
    let repo = if file.is_some() { session.repo().ok() } else { Some(session.repo()?) };
    let text = text(session, file)?;
    let policy = crate::policy::Policy::parse(&text.bytes, &text.name)?;
    let compared = explain::compare(repo.as_ref(), &policy)?;
    match json {
        true => session.out.json(&view::compared_json(&text, &policy, &compared))?,
        false => session.out.answer(&view::compared(&text, &compared))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn accept(session: &mut Session, digest: Option<Digest>, json: bool) -> Outcome {
    // First: inside a run nothing else can be asked, and the answer to an agent is no.
    ops::person::require_person("accept a policy")?;
    let repo = session.repo()?;
    let candidate = trust::candidate(&repo, repo.commit_of("HEAD")?.as_ref())?;
    let mut standing = trust::standing(&repo, &candidate.policy)?;
    let out = &session.out;
    if standing.in_force() {
        out.talk(&view::standing(&candidate, &standing));
    } else {
        out.talk(&view::question(&candidate, &standing));
        let how = match trust::how(&candidate, digest, !json && prompt::possible())? {
            Some(how) => how,
            None => {
                let said = prompt::line("accept this policy on this machine? [y/N] ")
                    .map_err(|e| Failure::fatal("the terminal cannot be asked").because(e))?;
                if !matches!(said.as_deref(), Some("y" | "yes")) {
                    return Ok(ExitCode::from(Kind::No.exit_status()));
                }
                trust::Given::Terminal
            }
        };
        trust::Store::of(&repo)?.accept(&candidate.text, how, ops::now())?;
        standing = trust::standing(&repo, &candidate.policy)?;
        out.talk(&view::standing(&candidate, &standing));
    }
    if json {
        out.json(&view::trusted_json(&candidate, &standing))?;
    }
    Ok(ExitCode::SUCCESS)
}
