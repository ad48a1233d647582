//! `git agent spawn`: cut a run and start its engine in the cage.

use super::{Command, Outcome, Session};
use crate::model::{Ended, Failure};
use crate::ops::{self, spawn::Request};
use crate::policy::DECLINE_EXIT;
use crate::ui::{json, report, time};
use clap::{ArgMatches, Args as _};
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

pub(super) const COMMAND: Command = Command {
    name: "spawn",
    about: "Cut a run and start its engine in the cage",
    make: Args::augment_args,
    run,
};

#[derive(clap::Args)]
struct Args {
    /// Role of the run, as the policy names it; an existing run keeps its own
    #[arg(long, value_name = "ROLE", required_unless_present = "run")]
    role: Option<String>,
    /// Change request or ticket; names the run <role>-<cr>
    #[arg(long, value_name = "ID")]
    cr: Option<String>,
    /// Name of the run; an existing run of this name is used again
    #[arg(long, value_name = "NAME", conflicts_with = "cr")]
    run: Option<String>,
    /// Engine: claude-code, codex, gemini-cli, qwen-code, opencode, demo, or one of the policy
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Commit to cut from, instead of HEAD
    #[arg(long, value_name = "REV")]
    base: Option<String>,
    /// The task; given more than once, the texts are paragraphs
    #[arg(short = 'm', long = "message", value_name = "TEXT", conflicts_with = "task")]
    message: Vec<String>,
    /// File that holds the task; - is standard input
    #[arg(long, value_name = "FILE")]
    task: Option<PathBuf>,
    /// Cut from the work tree as it is, uncommitted and untracked files included
    #[arg(long)]
    with_changes: bool,
    /// With GIT_AGENT_ISOLATION=off: a path outside the tree that the run may write
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Return at once; the engine goes on in the background
    #[arg(long)]
    detach: bool,
    /// Print one line of JSON at the end; the engine's output goes to stderr
    #[arg(long)]
    json: bool,
    /// End the engine after this time (90s, 45m, 2h, 1d)
    #[arg(long, value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: Option<Duration>,
    /// The engine's command line
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let task = task(session, &args)?;
    let repo = session.repo()?;
    let role = match (&args.role, &args.run) {
        (Some(role), _) => role.clone(),
        (None, run) => ops::spawn::role_of(&repo, run.as_deref().unwrap_or_default())?,
    };
    let request = Request {
        role,
        cr: args.cr,
        run: args.run,
        engine: args.engine,
        base: args.base,
        task,
        with_changes: args.with_changes,
        write: args.write.iter().map(|p| session.cwd.join(p)).collect(),
        timeout: args.timeout,
        command: args.command,
    };
    let plan = ops::spawn::plan(&repo, &request, ops::fate()?)?;
    if let Some(text) = report::before(&plan) {
        session.out.talk(&text);
    }
    let mut ready = ops::spawn::execute(&repo, plan)?;
    for note in &ready.notes {
        session.out.warning(note);
    }
    session.out.talk(&report::cut(&ready));
    let engines = std::mem::take(&mut ready.engines);
    if engines.is_empty() {
        if args.json {
            session.out.json(&json::spawned(&ready, None))?;
        } else {
            session.out.answer(&ready.run.layout.tree().to_string_lossy())?;
            session.out.hint(&format!("git agent exec {} -- COMMAND", ready.run.folder.name));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let task = ready.task.take();
    for (n, engine) in engines.iter().enumerate() {
        let prepared = ops::supervise::prepare(&mut ready.run, engine, task.as_deref(), ops::now())?;
        for note in &prepared.notes {
            session.out.warning(note);
        }
        session.out.talk(&report::launch(engine, &prepared));
        if let Some(note) = report::confined(ready.run.isolation(), &prepared.report) {
            session.out.warning(note);
        }
        if let Some(danger) = report::uncaged(&prepared.report) {
            session.out.danger(danger);
        }
        if args.detach && n == 0 {
            if args.json {
                session.out.json(&json::spawned(&ready, None))?;
            } else {
                session.out.answer(ready.run.folder.name.as_str())?;
            }
            if ops::supervise::detach(&ready.run)? {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if ops::reader::is_one(&ready.run) {
            let (status, ended) = ops::supervise::read(&mut ready.run, prepared, args.json)?;
            session.out.talk(&report::read(&ready.run, ended));
            let declined = ended == Ended::Exit(engine.decline_exit.into());
            if let Some(next) = engines.get(n + 1).filter(|_| declined) {
                session.out.talk(&report::declined(engine, next));
                continue;
            }
            let status = if declined { DECLINE_EXIT } else { status };
            return read(session, &repo, ready, (status, ended), (args.json, args.detach));
        }
        let ended = ops::supervise::run(&mut ready.run, prepared, args.json)?;
        for note in &ended.finished.notes {
            session.out.warning(note);
        }
        session.out.talk(&report::finished(&ready.run, &ended.finished));
        if let Some(next) = engines.get(n + 1).filter(|_| ended.declined) {
            session.out.talk(&report::declined(engine, next));
            continue;
        }
        if args.json && !args.detach {
            session.out.json(&json::spawned(&ready, Some(&ended.finished)))?;
        }
        // At most daily, and no failure of the spawn's.
        let _ = ops::prune::auto(&repo);
        return Ok(ExitCode::from(ended.status));
    }
    Ok(ExitCode::SUCCESS)
}

/// A reader: nothing is proposed, and its folder goes at once, unless its output is there.
fn read(
    session: &Session,
    repo: &crate::git::Repo,
    ready: ops::spawn::Ready<'_>,
    (status, ended): (u8, Ended),
    (as_json, detached): (bool, bool),
) -> Outcome {
    if detached {
        return Ok(ExitCode::from(status));
    }
    if as_json {
        session.out.json(&json::read(&ready.run, ended))?;
    }
    // What is left to clear up is no failure of the reader's.
    match ops::reader::reclaim(ready.run, ops::now()) {
        Ok(reclaimed) => reclaimed.notes.iter().for_each(|n| session.out.warning(n)),
        Err(e) => session.out.warning(&format!("the run's folder is still there: {e}")),
    }
    let _ = ops::prune::auto(repo);
    Ok(ExitCode::from(status))
}

fn task(session: &Session, args: &Args) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = &args.task else {
        let text = args.message.join("\n\n");
        return Ok((!args.message.is_empty()).then(|| text.into_bytes()));
    };
    let named = |e: std::io::Error| {
        Failure::fatal(format!("task file '{}' cannot be read", path.display())).because(e)
    };
    let limit = crate::model::MAX_TASK as u64 + 1;
    let mut text = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().take(limit).read_to_end(&mut text).map_err(named)?;
    } else {
        let file = std::fs::File::open(session.cwd.join(path)).map_err(named)?;
        file.take(limit).read_to_end(&mut text).map_err(named)?;
    }
    Ok(Some(text))
}
