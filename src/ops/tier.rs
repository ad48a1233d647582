//! Which tier holds the next engine: what the machine can, at most what the person says (`agent.tier`), at
//! least what the policy says, and not less than last time without a word from the person.

use crate::git::Config;
use crate::model::{Failure, Kind};
use crate::os::cage::{Machine, Tier, probe};
use crate::os::files;
use crate::text::Untrusted;
use std::path::PathBuf;

/// A tier that may be used, and why it is not a better one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The tier.
    pub tier: Tier,
    /// One line, when it is not the best there is: what lacks, and how to raise it.
    pub below: Option<String>,
}

/// Decides, and refuses with exit status 97. `minimum` is the policy's.
pub fn choose(config: &Config, minimum: Tier) -> Result<Chosen, Failure> {
    let machine = probe();
    let said = match config.personal("agent.tier") {
        None => None,
        Some(word) => Some(Tier::named(word).ok_or_else(|| {
            Failure::fatal(format!("agent.tier is no tier: '{}'", Untrusted::new(word)))
                .hint("git config --global agent.tier full")
                .hint("the others are namespaces and landlock")
        })?),
    };
    let cap = said.unwrap_or(Tier::Full);
    let wanted = minimum.max(Tier::Landlock);
    let tier =
        machine.tier(cap).map_err(|e| raise(Failure::from(e), &machine, wanted.max(Tier::Landlock)))?;
    if tier < minimum {
        let text =
            format!("the policy asks for the tier {}: {}", minimum.as_str(), why(&machine, said, minimum));
        return Err(raise(Failure::new(Kind::Cage, text), &machine, minimum));
    }
    let last = last()?;
    if let Some(last) = last.filter(|last| tier < *last)
        && said != Some(tier)
    {
        let text = format!(
            "the tier is {}, and the last run on this machine had {}: {}",
            tier.as_str(),
            last.as_str(),
            why(&machine, said, last)
        );
        let accept = format!("to accept it: git config --global agent.tier {}", tier.as_str());
        return Err(raise(Failure::new(Kind::Cage, text), &machine, last).hint(accept));
    }
    let below = (tier < Tier::Full).then(|| {
        let mut line = format!("tier {} instead of full: {}", tier.as_str(), why(&machine, said, Tier::Full));
        if let Some(way) = machine.raise(Tier::Full).first() {
            line.push_str(&format!("; to raise it: {way}"));
        }
        line
    });
    Ok(Chosen { tier, below })
}

/// The tier for git on a run's data: Landlock where there is any, which is quicker to enter.
pub fn plumbing() -> Option<Tier> {
    [Tier::Landlock, Tier::Namespaces].into_iter().find(|tier| probe().lacks(*tier).is_none())
}

/// The refusal where there is neither.
pub fn none() -> Failure {
    let machine = probe();
    let lacks = machine.tier(Tier::Full).map_or_else(Failure::from, |_| Failure::fatal("no tier"));
    raise(lacks, &machine, Tier::Landlock)
}

/// Keeps the tier of an engine that starts, so that a lower one is noticed next time.
pub fn remember(tier: Tier) -> Result<(), Failure> {
    let path = record()?;
    let fail = |e: std::io::Error| Failure::fatal(format!("'{}' cannot be kept", path.display())).because(e);
    if last()? == Some(tier) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        files::create_dirs(folder, 0o700).map_err(fail)?;
    }
    files::write_atomic(&path, format!("{}\n", tier.as_str()).as_bytes(), 0o600).map_err(fail)
}

/// What the last engine on this machine had. A file that cannot be read is no excuse to go lower.
fn last() -> Result<Option<Tier>, Failure> {
    let path = record()?;
    let fail = |why: &str| {
        Failure::new(Kind::Cage, format!("'{}' {why}", path.display()))
            .hint("it holds the tier of the last run: remove it, if you know why it is so")
    };
    match files::read_bounded(&path, 64) {
        Ok(None) => Ok(None),
        Ok(Some(text)) => {
            let word = String::from_utf8_lossy(&text).trim().to_owned();
            Tier::named(&word).map(Some).ok_or_else(|| fail("names no tier"))
        }
        Err(e) => Err(fail("cannot be read").because(e)),
    }
}

/// One file a machine: a home folder may be on several.
fn record() -> Result<PathBuf, Failure> {
    let id = files::read_bounded(std::path::Path::new("/etc/machine-id"), 64).ok().flatten();
    let id = id.map(|id| String::from_utf8_lossy(&id).trim().to_owned()).filter(|id| !id.is_empty());
    let machine = id.unwrap_or_else(|| crate::os::process::current_user().host);
    let plain: String = machine.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
    Ok(crate::ledger::state_folder()?.join(format!(".tier-{plain}")))
}

fn why(machine: &Machine, said: Option<Tier>, tier: Tier) -> String {
    match said {
        Some(said) if said < tier => format!("agent.tier is {}", said.as_str()),
        _ => machine.lacks(tier).unwrap_or_else(|| "nothing lacks".into()),
    }
}

fn raise(failure: Failure, machine: &Machine, tier: Tier) -> Failure {
    machine.raise(tier).into_iter().fold(failure, |failure, line| failure.hint(line))
}
