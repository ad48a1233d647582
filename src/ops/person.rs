//! What only a person may do: the refusal when an agent is at the keyboard.

use crate::model::person::{self, AgentSign};
use crate::model::{Failure, Kind};
use crate::os::ancestry;

/// The sign that an agent started this process, if there is one.
pub fn agent() -> Option<AgentSign> {
    let names: Vec<String> = std::env::vars_os().map(|(k, _)| k.to_string_lossy().into_owned()).collect();
    person::agent(names.iter().map(String::as_str), &ancestry::ancestors())
}

/// Refuses (exit status 4) when an agent is at work. `what` is a thing to do: `discard run 'x'`.
pub fn require_person(what: &str) -> Result<(), Failure> {
    match agent() {
        None => Ok(()),
        Some(sign) => Err(Failure::new(Kind::Consent, format!("an agent may not {what}: {sign}"))
            .hint("a person does this, from a terminal that no agent client started")),
    }
}

/// Refuses (exit status 4) unless a person sits at the controlling terminal of this process.
pub fn require_terminal(what: &str) -> Result<(), Failure> {
    require_person(what)?;
    if ancestry::has_controlling_terminal() {
        return Ok(());
    }
    Err(Failure::new(Kind::Consent, format!("only a person at a terminal may {what}, and there is none"))
        .hint("run it in a terminal"))
}
