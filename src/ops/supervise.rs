//! Supervise: an engine in its cage, from the canaries to the result. Also what a person starts in a run's
//! tree (`exec`, `shell`), and how a run is stopped.

use super::engine::EnginePlan;
use super::finish::{Finished, Taking, finish};
use super::{Open, cage_show, commands, confine, login, reader, spawn, standing, switch, tier};
use crate::git::Repo;
use crate::ledger::{Draft, Ledger};
use crate::model::{Body, CageReport, Ended, Engine, Failure, Head, Phase};
use crate::os::cage::{Cage, CageError, Output, Stdio};
use crate::os::lock::Lock;
use crate::os::{background, process};
use crate::policy::DECLINE_EXIT;
use crate::text::Untrusted;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// How long `stop` waits for the snapshot after the engine was told to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// An engine that is recorded in the ledger and may start: the cage was probed and held.
#[derive(Debug)]
#[must_use = "the ledger says that an engine started"]
pub struct Prepared {
    /// What holds it.
    pub report: CageReport,
    /// Why nothing better holds it.
    pub below: Option<String>,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
    engine: EnginePlan,
    cage: Cage,
    command: Vec<OsString>,
    wall: Option<Duration>,
}

/// An engine that ended, and what it left.
#[derive(Debug)]
pub struct Ran {
    /// Exit status to pass on.
    pub status: u8,
    /// The snapshot.
    pub finished: Finished,
    /// Whether it declined: another engine may go on in the same tree.
    pub declined: bool,
}

/// Builds the cage, proves it with canaries, and appends the `engine` event.
pub fn prepare(
    run: &mut Open<'_>,
    engine: &EnginePlan,
    task: Option<&[u8]>,
    now: i64,
) -> Result<Prepared, Failure> {
    let placed = login::place(run, engine)?;
    let walled = switch::cage(run.repo.config()?)? != switch::Cage::Off;
    let mut variables = role_variables(run)?;
    variables.extend(engine.variables(run, walled));
    variables.extend(placed.env);
    let confine::Held { cage, chosen } = confine::engine(run, variables, engine.program_files())?;
    let report = confine::prove(run, &cage)?;
    cage_show::record(run, &cage, &report)?;
    if let Some(chosen) = &chosen {
        tier::remember(chosen.tier)?;
    }
    let task_file = run.task_file();
    let (command, shown) = engine.command(task, &task_file.to_string_lossy(), placed.words, walled);
    let body = Body::Engine(Engine {
        engine: engine.name.clone(),
        command: bounded(shown, 4096),
        cage: report.clone(),
    });
    let draft = Draft { body, att: Vec::new(), evidence: Vec::new(), time: now, actor: run.actor.clone() };
    run.tip = run.ledger.append(&run.folder.run, &draft, can_start)?;
    Ok(Prepared {
        report,
        below: chosen.and_then(|c| c.below),
        notes: placed.notes,
        engine: engine.clone(),
        cage,
        command,
        wall: engine.wall,
    })
}

/// The variables that the role gives to everything in the run.
fn role_variables(run: &Open<'_>) -> Result<Vec<(OsString, OsString)>, Failure> {
    Ok(commands::variables(run, &spawn::rule(run)?.variables()))
}

/// Whether an engine may work in a run as the ledger has it.
fn can_start(head: &Head) -> Result<(), Failure> {
    match head.phase {
        // What comes next is another result, and no word about an earlier one carries over to it.
        Phase::Ready
        | Phase::Engaged
        | Phase::Proposed
        | Phase::Approved
        | Phase::Kept
        | Phase::Applied
        | Phase::Finished
        | Phase::Failed => Ok(()),
        Phase::Rejected => Err(Failure::fatal(format!("run '{}' was rejected", head.name))
            .hint("cut a new one under another name")),
        Phase::Landed => Err(Failure::fatal(format!("run '{}' has landed", head.name))
            .hint("start another one: git agent spawn")),
        Phase::Pruned => Err(Failure::fatal(format!("run '{}' was pruned", head.name))),
    }
}

/// Starts the engine, waits, and takes the snapshot whatever the engine's fate. `quiet_stdout` sends the
/// engine's standard output to stderr, because stdout belongs to the JSON.
pub fn run(run: &mut Open<'_>, prepared: Prepared, quiet_stdout: bool) -> Result<Ran, Failure> {
    let (ended, seconds, failure) = start(run, &prepared, quiet_stdout);
    let declined = ended == Ended::Exit(prepared.engine.decline_exit.into());
    // Nobody claims that a tree somebody declined to finish is done.
    let taking = Taking { ended, seconds, declined, checks: !declined && failure.is_none() };
    let mut finished = finish(run, taking, super::now())?;
    if ended == Ended::Full {
        finished.notes.push("the engine was ended: it had nearly filled the disk".into());
    }
    let status = if declined { DECLINE_EXIT } else { status(ended) };
    match failure {
        Some(failure) => Err(failure),
        None => Ok(Ran { status, finished, declined }),
    }
}

/// Starts the engine of a reader and waits. There is no snapshot: it wrote nothing.
pub fn read(run: &mut Open<'_>, prepared: Prepared, quiet_stdout: bool) -> Result<(u8, Ended), Failure> {
    let (ended, seconds, failure) = start(run, &prepared, quiet_stdout);
    reader::close(run, ended, seconds, super::now())?;
    failure.map_or_else(|| Ok((status(ended), ended)), Err)
}

fn start(run: &Open<'_>, prepared: &Prepared, quiet_stdout: bool) -> (Ended, u64, Option<Failure>) {
    let started = Instant::now();
    let outcome = prepared.cage.run(&prepared.command, stdio(quiet_stdout), &run.lock, prepared.wall);
    let seconds = started.elapsed().as_secs();
    login::remove(run, &prepared.engine);
    match outcome {
        Ok(outcome) => (outcome.ended, seconds, None),
        // The engine never ran; the run still ends with what is on disk.
        Err(e) => (Ended::Unseen, seconds, Some(not_started(e, &prepared.command))),
    }
}

fn stdio(quiet_stdout: bool) -> Stdio {
    Stdio { output: if quiet_stdout { Output::Stderr } else { Output::Inherit }, ..Stdio::default() }
}

/// The status that spawn passes on.
fn status(ended: Ended) -> u8 {
    match ended {
        Ended::Exit(status) => u8::try_from(status & 0xff).unwrap_or(255),
        Ended::Signal(signal) => u8::try_from(128 + signal).unwrap_or(255),
        Ended::Timeout(_) => 124,
        Ended::Stopped => 143,
        Ended::Unseen | Ended::Full => 125,
    }
}

/// Goes on in the background. `true` in the caller's process, which is done; `false` in the supervisor.
pub fn detach(run: &Open<'_>) -> Result<bool, Failure> {
    background::detach(&run.layout.log(), &run.lock)
        .map_err(|e| Failure::fatal("the supervisor could not go into the background").because(e))
}

/// What stands for the tier where the person switched the cage off.
pub fn without_cage(repo: &Repo) -> Result<Option<&'static str>, Failure> {
    Ok(switch::cage(repo.config()?)?.tier())
}

/// A command of the person's in the run's tree. No event: what it changes is in the next snapshot.
pub fn exec(run: &Open<'_>, command: &[OsString]) -> Result<u8, Failure> {
    // A folder of PATH that the cage does not show would make "not found" a "permission denied".
    command.first().map_or(Ok(()), |program| super::engine::present(program))?;
    standing::still_open(&run.tip.understood()?.head)?;
    super::freeze(run)?;
    let programs = command.first().map(|p| super::engine::program_files(p)).unwrap_or_default();
    let confine::Held { cage, .. } = confine::engine(run, role_variables(run)?, programs)?;
    confine::prove(run, &cage)?;
    let outcome = cage.run(command, stdio(false), &run.lock, None).map_err(|e| not_started(e, command))?;
    Ok(status(outcome.ended))
}

/// Says which program it was.
fn not_started(e: CageError, command: &[OsString]) -> Failure {
    let program =
        command.first().map(|p| Untrusted::new(p.as_encoded_bytes()).to_string()).unwrap_or_default();
    let failure = Failure::from(e);
    Failure { message: format!("{}: '{program}'", failure.message), ..failure }
}

/// Ends a run's engine through its supervisor, which then takes the snapshot. Returns one sentence.
pub fn stop(repo: &Repo, word: &str) -> Result<String, Failure> {
    let (tip, layout) = spawn::locate(repo, word)?;
    let name = tip.understood()?.head.name.clone();
    let io = |e: std::io::Error| Failure::fatal(format!("run '{name}' could not be stopped")).because(e);
    let Some(holder) = Lock::holder(&layout.lock()).map_err(io)? else {
        let hint = format!("git agent finish {name}");
        return match tip.understood()?.head.phase {
            Phase::Engaged => Err(Failure::new(
                crate::model::Kind::No,
                format!("run '{name}' is not at work: it was interrupted"),
            )
            .hint(hint)),
            _ => Err(Failure::new(crate::model::Kind::No, format!("run '{name}' is not at work"))),
        };
    };
    process::signal_exact(holder.pid, holder.start, libc::SIGTERM).map_err(io)?;
    let until = Instant::now() + PATIENCE;
    while Lock::is_held(&layout.lock()).map_err(io)? {
        if Instant::now() > until {
            return Err(Failure::fatal(format!("run '{name}' is still ending (process {})", holder.pid)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let state = Ledger::new(repo).tip(&tip.run)?.and_then(|t| t.head().map(|h| h.phase.with_liveness(false)));
    Ok(format!("stopped run {name}{}", state.map_or_else(String::new, |s| format!(": {}", s.as_str()))))
}

/// A command line as the ledger keeps it: enough to recognise it, never enough to burst an event.
pub(super) fn bounded(words: Vec<String>, mut room: usize) -> Vec<String> {
    let mut kept = Vec::new();
    for word in words {
        let cut: String = word.chars().take(room.min(1000)).collect();
        room = room.saturating_sub(cut.len() + 1);
        kept.push(if cut.len() < word.len() { format!("{cut}...") } else { cut });
        if room == 0 {
            break;
        }
    }
    kept
}
