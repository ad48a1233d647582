//! The two switches that only a person has: without isolation, and without a cage. The cage's comes from the
//! caller's environment or from the person's own configuration, never from a repository or a policy, and an
//! agent cannot use it.

use super::person;
use crate::git::Config;
use crate::model::Failure;
use crate::text::Untrusted;

const CAGE: &str = "GIT_AGENT_CAGE";
const ISOLATION: &str = "GIT_AGENT_ISOLATION";

/// Whether there is a cage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cage {
    /// There is.
    On,
    /// The person switched it off.
    Off,
    /// The same, because a container around all of this is the wall.
    Outer,
}

impl Cage {
    /// What stands for the tier in ledger and messages; `None` when there is a cage.
    pub fn tier(self) -> Option<&'static str> {
        match self {
            Cage::On => None,
            Cage::Off => Some("none"),
            Cage::Outer => Some("outer"),
        }
    }
}

/// What the person wants: `GIT_AGENT_CAGE`, else `agent.cage` of system and global configuration. An agent that
/// asks for less is refused (exit status 4).
pub fn cage(config: &Config) -> Result<Cage, Failure> {
    let variable = value(CAGE)?;
    let (name, word) = match &variable {
        Some(word) => (CAGE, word.as_str()),
        None => ("agent.cage", config.personal("agent.cage").unwrap_or("on")),
    };
    let cage = match word {
        "on" => Cage::On,
        "off" => Cage::Off,
        "outer" => Cage::Outer,
        other => return Err(unknown(name, other, "on, off or outer")),
    };
    if cage != Cage::On {
        person::require_person("switch the cage off")?;
    }
    Ok(cage)
}

/// Whether the caller wants runs that work in the real tree instead of a copy (`GIT_AGENT_ISOLATION=off`).
pub fn isolation_is_off() -> Result<bool, Failure> {
    match value(ISOLATION)?.as_deref() {
        None | Some("on") => Ok(false),
        Some("off") => Ok(true),
        Some(other) => Err(unknown(ISOLATION, other, "on or off")),
    }
}

fn value(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|v| !v.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(other)) => {
            Err(unknown(name, &other.to_string_lossy(), "on or off"))
        }
    }
}

/// A word that is not understood never means less than the default, and is no reason to guess.
fn unknown(name: &str, word: &str, known: &str) -> Failure {
    Failure::usage(format!("{name} is '{}', which is none of: {known}", Untrusted::new(word)))
}
