//! Readers: runs that look at the person's tree and write nothing there. What is left of one is its entry in
//! the ledger and its exit status; its folder goes as soon as nobody needs it.

use super::Open;
use super::reclaim::{self, Reclaimed};
use crate::ledger::Draft;
use crate::model::{Body, End, Ended, Failure, Isolation, Kind, Phase};

/// Records that a reader's engine ended.
pub fn close(run: &mut Open<'_>, ended: Ended, seconds: u64, now: i64) -> Result<(), Failure> {
    let draft = Draft {
        body: Body::End(End { ended, seconds }),
        att: Vec::new(),
        evidence: Vec::new(),
        time: now,
        actor: run.actor.clone(),
    };
    let tip = run.ledger.append(&run.folder.run, &draft, |head| match head.phase {
        Phase::Engaged => Ok(()),
        _ => Err(Failure::new(Kind::No, format!("no engine of run '{}' waits for its end", head.name))
            .hint(format!("what is known of it: git agent show {}", head.name))),
    })?;
    run.tip = tip;
    Ok(())
}

/// Whether a run is a reader's.
pub fn is_one(run: &Open<'_>) -> bool {
    run.isolation() == Isolation::Reader
}

/// Takes the folder of a reader away.
pub fn reclaim(run: Open<'_>, now: i64) -> Result<Reclaimed, Failure> {
    reclaim::reclaim(run, false, now)
}
