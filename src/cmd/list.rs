//! `git agent list`: the runs of this repository.

use super::{Command, Outcome, Session};
use crate::ledger::{Ledger, runs};
use crate::ops;
use crate::ui::{json, report};
use clap::{ArgMatches, Args as _};
use std::process::ExitCode;

pub(super) const COMMAND: Command =
    Command { name: "list", about: "List the runs of this repository", make: Args::augment_args, run };

#[derive(clap::Args)]
struct Args {
    /// Include pruned runs
    #[arg(long, short = 'a')]
    all: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "porcelain")]
    json: bool,
    /// Print one line a run for scripts: id, name, state, role, engine, branch, change, tab-separated
    #[arg(long)]
    porcelain: bool,
    /// With --porcelain, end lines with NUL
    #[arg(short = 'z', requires = "porcelain")]
    nul: bool,
}

fn run(session: &mut Session, matches: &ArgMatches) -> Outcome {
    let args: Args = super::parsed(matches)?;
    let repo = session.repo()?;
    let ledger = Ledger::new(&repo);
    let listing = runs::list(&ledger, ledger.home_to_read()?.as_ref())?;
    let out = &session.out;
    if args.json {
        out.json(&json::listing(&listing, args.all))?;
    } else if args.porcelain {
        out.raw(&report::porcelain(&listing, args.all, if args.nul { 0 } else { b'\n' }))?;
    } else {
        let text = report::listing(out, &listing, args.all, ops::now());
        if !text.is_empty() {
            out.answer(&text)?;
        }
    }
    for broken in &listing.broken {
        out.warning(&format!("{}: {}", broken.name, broken.why));
    }
    for orphan in listing.orphans.iter().filter(|o| !o.live) {
        out.warning(&format!("'{}' belongs to no run in the ledger", orphan.path.display()));
    }
    Ok(ExitCode::SUCCESS)
}
