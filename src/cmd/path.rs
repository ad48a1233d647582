//! `git agent path`: where a run's tree is.

use super::{Command, Outcome, Session};
use crate::ops;
use clap::{ArgMatches, Args as _};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

pub(super) const COMMAND: Command =
    Command { name: "path", about: "Print the path of a run's tree", make: Args::augment_args, run };

#[derive(clap::Args)]
struct Args {
    /// Run: name, branch, or prefix of its id
    run: String,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.repo()?;
    let (_, layout) = ops::spawn::locate(&repo, &args.run)?;
    let mut line = layout.tree().as_os_str().as_bytes().to_vec();
    line.push(b'\n');
    session.out.raw(&line)?;
    Ok(ExitCode::SUCCESS)
}
