//! `git agent demo`: the whole loop in a throw-away repository, with the built-in engine. No model, no
//! network, no account.

use super::{Command, Outcome, Session, dispatch};
use crate::model::Failure;
use crate::ops;
use crate::text::{Untrusted, shell_quote};
use crate::ui::prompt;
use clap::{ArgMatches, Args as _};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) const COMMAND: Command = Command {
    name: "demo",
    about: "Watch one run go through, in a throw-away repository",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let _: Args = super::parsed(matches)?;
    let dir = ops::demo::make()?;
    session.out.talk(&format!("a repository to play with: {}", dir.display()));
    step(
        session,
        &dir,
        &["spawn", "--role", "developer", "--run", "demo", "--engine", "demo", "-m", ops::demo::TASK],
    )?;
    if prompt::possible() && ops::person::agent().is_none() {
        let status = step_whatever(session, &dir, &["review", "demo"]);
        let left = ops::demo::status(&dir)?;
        if !left.is_empty() {
            session.out.talk("\ngit status in your work tree now:");
            session.out.raw(Untrusted::new(&left).multiline().as_bytes())?;
        }
        farewell(session, &dir);
        return Ok(status);
    }
    // Nobody is there to choose: show what would be chosen from, and how.
    step(session, &dir, &["review", "demo", "--stat"])?;
    step(session, &dir, &["review", "demo", "--diff"])?;
    session.out.talk("\nNothing landed: the choice is a person's, at a terminal:");
    session.out.talk(&format!("  cd {} && git agent review demo", shell_quote(&dir.to_string_lossy())));
    farewell(session, &dir);
    Ok(ExitCode::SUCCESS)
}

fn step(session: &mut Session, dir: &std::path::Path, words: &[&str]) -> Result<(), Failure> {
    let status = step_whatever(session, dir, words);
    if status == ExitCode::SUCCESS {
        return Ok(());
    }
    Err(Failure::fatal(format!("the demo ended at: git agent {}", words[0])))
}

fn step_whatever(session: &mut Session, dir: &std::path::Path, words: &[&str]) -> ExitCode {
    let shown: Vec<_> = words.iter().map(|w| shell_quote(w)).collect();
    session.out.talk(&format!("\n$ git agent {}", shown.join(" ")));
    let mut there = Session { cwd: PathBuf::from(dir), out: crate::ui::Out::default() };
    dispatch(&mut there, words[0], words[1..].iter().map(OsString::from).collect())
}

fn farewell(session: &Session, dir: &std::path::Path) {
    let parent = dir.parent().unwrap_or(dir).to_string_lossy();
    session.out.talk(&format!(
        "\nLook around in it (git agent list, show, log); remove it with: rm -rf {}",
        shell_quote(&parent)
    ));
}
