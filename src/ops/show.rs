//! Everything that is known about one run, read in one go for `show` and `log`.

use super::Layout;
use crate::ledger::{Chain, Ledger, TASK, Tip};
use crate::model::{Body, Failure, Head, RunState};
use crate::os::lock::Lock;

/// A run as the ledger and this machine know it.
#[derive(Debug)]
pub struct Shown {
    /// Its newest event.
    pub tip: Tip,
    /// All of them, checked.
    pub chain: Chain,
    /// The fold.
    pub head: Head,
    /// Fold plus liveness.
    pub state: RunState,
    /// Its folder on this machine, if it has one.
    pub layout: Option<Layout>,
    /// The task text, if the ledger keeps it; untrusted bytes.
    pub task: Option<Vec<u8>>,
}

/// Reads and checks a run by name, branch or id prefix.
pub fn read(ledger: &Ledger<'_>, word: &str) -> Result<Shown, Failure> {
    let tip = ledger.resolve(word)?;
    let chain = ledger.chain(&tip)?;
    // After an event that we do not know the fold is lost; the last one we know is the most that can be said.
    let known = || chain.known().next_back().map(|(_, event)| event.head.clone());
    let head = match chain.head.clone().or_else(known) {
        Some(head) => head,
        None => tip.understood()?.head.clone(),
    };
    let home = ledger.home_to_read()?;
    let layout = home.and_then(|home| super::open::find(&home, &tip).ok()).map(|(layout, _)| layout);
    let live = layout.as_ref().is_some_and(|l| Lock::is_held(&l.lock()).unwrap_or(true));
    let mut task = None;
    if let Some((commit, event)) = chain.known().next()
        && matches!(event.body, Body::Spawn(_))
    {
        task = ledger.attachment(commit, event, TASK)?;
    }
    Ok(Shown { state: head.phase.with_liveness(live), tip, chain, head, layout, task })
}
