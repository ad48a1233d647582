//! Commands that a policy names, run in a room of a run: the one place where `setup`, `checks` and `teardown`
//! become processes. Knows how to run them, not when.

use super::confine::{self, Room};
use super::{Open, engine};
use crate::model::{Ended, Failure};
use crate::os::cage::{Cage, CageError, Input, Output, Stdio};
use crate::os::tail::Tail;
use crate::policy::Variable;
use crate::text::{Untrusted, shell_quote};
use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

/// How much of the end of an output is kept.
pub const TAIL: usize = 4096;

/// Where the output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hear {
    /// To our standard error, as it comes.
    Aloud,
    /// Nowhere; its end is kept.
    Quietly,
}

/// What became of one command.
#[derive(Debug)]
pub struct Ran {
    /// How it ended; `None` when it could not be started.
    pub ended: Option<Ended>,
    /// From start to end.
    pub took: Duration,
    /// The end of its output; untrusted bytes. Empty when it was heard aloud.
    pub tail: Vec<u8>,
}

/// A cage in which commands of one policy run.
#[derive(Debug)]
pub struct Stage<'a, 'r> {
    run: &'a Open<'r>,
    cage: Cage,
}

impl<'a, 'r> Stage<'a, 'r> {
    /// Builds the cage for some commands and proves it, since nothing runs in a cage that was not tried.
    pub fn set(
        run: &'a Open<'r>,
        room: Room,
        variables: Vec<(OsString, OsString)>,
        commands: &[&Vec<String>],
    ) -> Result<Self, Failure> {
        let programs = commands.iter().filter_map(|c| c.first());
        let programs = programs.flat_map(|p| engine::program_files(OsStr::new(p))).collect();
        let cage = confine::room(run, room, variables, programs)?.cage;
        confine::prove(run, &cage)?;
        Ok(Self { run, cage })
    }

    /// Runs one command to its end, which comes after `wall` at the latest. A program that is not there is an
    /// answer; a cage that does not hold is a failure.
    pub fn run(&self, words: &[String], wall: Duration, hear: Hear) -> Result<Ran, Failure> {
        let started = Instant::now();
        let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
        let broken = |e: std::io::Error| Failure::fatal("output could not be read").because(e);
        let (tail, stdio) = match hear {
            Hear::Aloud => {
                (None, Stdio { input: Input::Null, output: Output::Stderr, error: Output::Inherit })
            }
            Hear::Quietly => {
                let (tail, write) = Tail::start(TAIL).map_err(broken)?;
                let again = write.try_clone().map_err(broken)?;
                let stdio = Stdio { input: Input::Null, output: Output::To(write), error: Output::To(again) };
                (Some(tail), stdio)
            }
        };
        let outcome = self.cage.run(&argv, stdio, &self.run.lock, Some(wall));
        let mut tail = tail.map_or(Ok(Vec::new()), Tail::finish).map_err(broken)?;
        let ended = match outcome {
            Ok(outcome) => Some(outcome.ended),
            Err(e @ (CageError::NotFound | CageError::NotExecutable(_))) => {
                tail.extend_from_slice(format!("{}: {e}\n", shown(words)).as_bytes());
                None
            }
            Err(e) => return Err(e.into()),
        };
        Ok(Ran { ended, took: started.elapsed(), tail })
    }
}

/// A command as a person would type it. Safe to show.
pub fn shown(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|w| shell_quote(w)).collect();
    Untrusted::new(&words.join(" ")).to_string()
}

/// How a command ended, in words that follow it.
pub fn how(ended: Option<Ended>) -> String {
    match ended {
        Some(Ended::Exit(0)) => "passed".into(),
        Some(Ended::Exit(status)) => format!("failed with status {status}"),
        Some(Ended::Signal(signal)) => format!("was killed by signal {signal}"),
        Some(Ended::Timeout(seconds)) => format!("was ended after {seconds} s"),
        Some(Ended::Stopped) => "was stopped".into(),
        Some(Ended::Unseen) => "was lost".into(),
        Some(Ended::Full) => "was ended: the disk was nearly full".into(),
        None => "could not be started".into(),
    }
}

/// The variables of a policy as they are in this run. A name without a value passes what the caller has.
pub fn variables<'v>(
    run: &Open<'_>,
    list: impl IntoIterator<Item = &'v Variable>,
) -> Vec<(OsString, OsString)> {
    let (name, port) = (&run.folder.name, run.folder.port);
    let value = |v: &Variable| v.fill(name, port).map(OsString::from).or_else(|| std::env::var_os(&v.name));
    list.into_iter().filter_map(|v| Some((OsString::from(&v.name), value(v)?))).collect()
}
