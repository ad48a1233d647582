//! `git agent checkout`: an ordinary work tree of a run's snapshot.

use super::{Command, Outcome, Session};
use crate::ops;
use clap::{ArgMatches, Args as _};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "checkout",
    about: "Make an ordinary work tree of a run's snapshot",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// Run: name, branch, or prefix of its id
    run: String,
    /// Where; beside the main work tree when absent
    dir: Option<PathBuf>,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.repo()?;
    let plan = ops::checkout::plan(&repo, &args.run, args.dir.map(|d| session.cwd.join(d)))?;
    ops::checkout::execute(&repo, &plan)?;
    session.out.talk(&format!("checked out {} of run {}", plan.snapshot.short(), plan.name));
    session.out.raw(&[plan.dir.as_os_str().as_bytes(), b"\n"].concat())?;
    session.out.hint("it is yours; when done with it: git worktree remove DIR");
    Ok(ExitCode::SUCCESS)
}
