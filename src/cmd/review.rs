//! `git agent review`: one exact diff with the context to judge it, and three choices.

use super::apply::Manner;
use super::{Command, Outcome, Session};
use crate::git::Repo;
use crate::ledger::Ledger;
use crate::model::{Digest, Failure, Kind};
use crate::ops::review::Review;
use crate::ops::{self, land, verdict};
use crate::os::files;
use crate::text::shell_quote;
use crate::ui::{html, json, pager, prompt, report, review as view};
use clap::{ArgMatches, Args as _};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "review",
    about: "Look at a run's change and decide on it",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// Run: name, branch, or prefix of its id; the only one that waits, when absent
    run: Option<String>,
    /// Only print the diff, as 'git apply' takes it
    #[arg(long, group = "what")]
    diff: bool,
    /// Only print which files change
    #[arg(long, group = "what")]
    stat: bool,
    /// Only print the review as JSON
    #[arg(long, group = "what")]
    json: bool,
    /// Only write the review as one self-contained page, to FILE or standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, group = "what")]
    html: Option<Option<PathBuf>>,
    /// Approve without being asked; lands nothing
    #[arg(long, group = "what")]
    approve: bool,
    /// Reject without being asked
    #[arg(long, group = "what")]
    reject: bool,
    /// Leave it for later without being asked
    #[arg(long, group = "what")]
    keep: bool,
    /// With --approve: the digest of the change, in full; needed without a terminal
    #[arg(long, value_name = "DIGEST", requires = "approve")]
    digest: Option<Digest>,
    /// With --reject: why
    #[arg(short = 'm', long = "message", value_name = "TEXT", requires = "reject")]
    message: Option<String>,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    if args.approve || args.reject || args.keep {
        // First: inside a run nothing else can be asked, and the answer to an agent is no.
        ops::person::require_person("decide on a run")?;
    }
    let repo = session.repo()?;
    let ledger = Ledger::new(&repo);
    let word = ops::review::choose(&ledger, args.run.as_deref())?;
    if args.reject {
        return super::discard::discard(session, &repo, &word, args.message.as_deref(), false);
    }
    let review = ops::review::read(&repo, ops::show::read(&ledger, &word)?)?;
    let out = &session.out;
    if args.json {
        out.json(&json::review(&review))?;
    } else if args.diff {
        print_diff(session, &ops::review::patch(&repo, &review.result)?)?;
    } else if let Some(file) = args.html {
        let page = html::page(&review, &ops::review::diff(&repo, &review.result)?);
        write_page(session, file, &page)?;
    } else if args.stat {
        let stat = ops::review::stat(&repo, &review.result)?;
        out.raw(crate::text::Untrusted::new(&stat).multiline().as_bytes())?;
    } else if args.approve {
        ops::review::waits(&review)?;
        let narrow = verdict::Narrow::default();
        super::approve::record(session, &repo, &review, args.digest, narrow)?;
    } else if args.keep {
        ops::review::waits(&review)?;
        ops::person::require_person("decide on a run")?;
        verdict::keep(&repo, &review, ops::now())?;
        out.talk(&report::kept(&review));
    } else {
        return ask(session, &repo, review, Manner::default());
    }
    Ok(ExitCode::SUCCESS)
}

/// Exact bytes for a pipe; on a terminal what could steer it is made visible.
fn print_diff(session: &Session, diff: &[u8]) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        session.out.raw(view::diff(&session.out, diff).as_bytes())
    } else {
        session.out.raw(diff)
    }
}

/// A page takes the place of an older one, never half of it.
fn write_page(session: &Session, file: Option<PathBuf>, page: &str) -> Result<(), Failure> {
    let Some(file) = file else { return session.out.raw(page.as_bytes()) };
    let shown = file.to_string_lossy().into_owned();
    files::write_atomic(&session.cwd.join(file), page.as_bytes(), 0o644)
        .map_err(|e| Failure::fatal(format!("the page could not be written to '{shown}'")).because(e))?;
    session.out.talk(&format!("wrote {}", shell_quote(&shown)));
    Ok(())
}

/// The review at the terminal. Also what `git agent apply` does with a run that nobody approved.
pub(super) fn ask(session: &Session, repo: &Repo, review: Review, manner: Manner) -> Outcome {
    let name = review.shown.head.name.clone();
    ops::review::waits(&review)?;
    if !prompt::possible() {
        return Err(Failure::new(
            Kind::Consent,
            format!("run '{name}' waits for a person, and there is no terminal"),
        )
        .hint(format!("only look: git agent review {name} --diff (or --stat, --json, --html)")));
    }
    ops::person::require_terminal("decide on a run")?;
    show(session, repo, &review)?;
    loop {
        let choices =
            if review.changes.is_empty() { "discard, leave" } else { "apply, discard, leave, view again" };
        let asked = prompt::line(&format!("{name}: {choices}, ? [{}] ", letters(&review)))
            .map_err(|e| Failure::fatal("the terminal cannot be asked").because(e))?;
        match asked.as_deref() {
            Some("a" | "apply") if !review.changes.is_empty() => {
                return apply(session, repo, &review, &manner);
            }
            Some("d" | "discard") => {
                return super::discard::discard(session, repo, name.as_str(), None, false);
            }
            Some("l" | "leave") => {
                verdict::keep(repo, &review, ops::now())?;
                session.out.talk(&report::kept(&review));
                return Ok(ExitCode::SUCCESS);
            }
            Some("v" | "view" | "view again") => show(session, repo, &review)?,
            // Nothing said, nothing done.
            None | Some("q" | "quit") => return Ok(ExitCode::from(Kind::No.exit_status())),
            Some(_) => session.out.talk(view::help(&review)),
        }
    }
}

fn letters(review: &Review) -> &'static str {
    if review.changes.is_empty() { "d/l/?" } else { "a/d/l/v/?" }
}

fn show(session: &Session, repo: &Repo, review: &Review) -> Result<(), Failure> {
    let mut text = view::header(&session.out, review);
    text.push('\n');
    if review.changes.is_empty() {
        text.push_str("The run changed nothing.\n");
    } else {
        text.push_str(&view::diff(&session.out, &ops::review::diff(repo, &review.result)?));
    }
    pager::show(&session.out, repo.config()?, &text)
}

/// Plans first: a conflict, or a no to what a merge made of it, leaves no approval behind.
fn apply(session: &Session, repo: &Repo, review: &Review, manner: &Manner) -> Outcome {
    let mut landing = land::plan_unapproved(repo, &review.shown, manner.merge)?;
    landing.claim(repo)?;
    if let Some(merged) = landing.merged() {
        let how = super::apply::look_again(session, repo, &review.shown.head.name, merged, None)?;
        landing = landing.accept(how);
    }
    verdict::approve(repo, review, &verdict::way(repo)?, verdict::Narrow::default(), ops::now())?;
    let shown = ops::show::read(&Ledger::new(repo), review.shown.tip.run.as_str())?;
    let plan = landing.approved(repo, &shown, ops::now())?;
    super::apply::land_approved(session, repo, &shown, plan, manner)
}
