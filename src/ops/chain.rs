//! Chains: where a role's engines go on when a run is taken up again.

use super::engine::EnginePlan;
use crate::ledger::{Ledger, Tip};
use crate::model::{Body, Failure};

/// Leaves of a chain what is still to be tried in an existing run: after an engine that declined the next one,
/// after one that was interrupted the same, else all of it.
pub fn resume(ledger: &Ledger<'_>, tip: &Tip, engines: &mut Vec<EnginePlan>) -> Result<(), Failure> {
    let chain = ledger.chain(tip)?;
    let mut last = None;
    for (_, event) in chain.known() {
        match &event.body {
            Body::Engine(e) => last = Some((e.engine.clone(), 0)),
            Body::Result(r) => last = last.and_then(|(name, _)| r.declined.then_some((name, 1))),
            Body::Abort(_) => last = None,
            _ => {}
        }
    }
    let at = last.and_then(|(name, step)| Some(engines.iter().position(|e| e.name == name)? + step));
    // The last one declined: from the beginning, since somebody asks again.
    if let Some(at) = at.filter(|at| *at < engines.len()) {
        engines.drain(..at);
    }
    Ok(())
}

/// The port that a run was given when it was cut.
pub fn port(ledger: &Ledger<'_>, tip: &Tip) -> Result<Option<u16>, Failure> {
    let chain = ledger.chain(tip)?;
    Ok(chain.known().find_map(|(_, e)| match &e.body {
        Body::Spawn(s) => s.port,
        _ => None,
    }))
}
