//! What a person reads when nothing lands: which paths, why, and how to go on.

use super::carry::{Left, Trouble};
use super::consent::Proposal;
use crate::model::{Failure, Kind};
use crate::os::place::Why;
use crate::text::quote_path;

/// Refused paths that are listed by name.
const LISTED: usize = 20;

/// Why a path cannot land.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    pub path: Vec<u8>,
    pub why: String,
}

impl Refused {
    pub fn new(path: &[u8], why: String) -> Self {
        Self { path: path.to_vec(), why }
    }
}

/// All paths that cannot land, by name, and how to go on by hand.
pub fn of(proposal: &Proposal, mut refused: Vec<Refused>) -> Failure {
    refused.sort();
    refused.dedup_by(|a, b| a.path == b.path);
    let n = refused.len();
    let mut text = format!(
        "{n} path{} of run '{}' cannot land here; nothing was changed",
        if n == 1 { "" } else { "s" },
        proposal.name
    );
    list(&mut text, &refused);
    by_hand(proposal, Failure::new(Kind::Conflict, text))
}

/// One path a line.
pub fn list(text: &mut String, refused: &[Refused]) {
    for r in refused.iter().take(LISTED) {
        text.push_str(&format!("\n  {}: {}", quote_path(&r.path), r.why));
    }
    if refused.len() > LISTED {
        text.push_str(&format!("\n  and {} more", refused.len() - LISTED));
    }
}

pub fn by_hand(proposal: &Proposal, failure: Failure) -> Failure {
    let Proposal { name, base, snapshot, .. } = proposal;
    failure
        .hint(format!("move or undo what is in the way, then: git agent apply {name}"))
        .hint(format!(
            "or merge it into what you edited: git agent apply --merge {name}; or by hand: git diff --binary {} {} | git apply -3",
            base.short(),
            snapshot.short()
        ))
        .hint(format!("the run in a work tree of its own: git agent checkout {name}"))
}

/// What stopped a landing under way.
pub fn trouble(proposal: &Proposal, trouble: Trouble) -> Failure {
    let name = &proposal.name;
    match trouble {
        Trouble::At { path, why, left } => {
            let cause = format!("{}: {why}", quote_path(&path));
            let failure = match (&why, left.sentences.is_empty()) {
                (_, false) => {
                    Failure::fatal(format!("run '{name}' did not land, and not everything is where it was"))
                }
                (Why::Changed | Why::NotEmpty, _) => {
                    Failure::new(Kind::Conflict, format!("run '{name}' did not land; nothing was changed"))
                        .hint(format!("look again: git agent apply {name} --dry-run"))
                }
                (Why::Io(_), _) => Failure::fatal(format!(
                    "run '{name}' could not land; what had landed was taken back, nothing was changed"
                )),
            };
            with_left(failure.because(cause), left)
        }
        Trouble::Failed { failure, left } if left.sentences.is_empty() => {
            failure.hint("what had landed was taken back; nothing was changed")
        }
        Trouble::Failed { failure, left } => with_left(failure, left),
    }
}

/// Adds what could not be taken back.
pub fn with_left(mut failure: Failure, left: Left) -> Failure {
    for sentence in left.sentences {
        failure = failure.hint(sentence);
    }
    if left.again { failure.hint("mend that, then: git agent recover") } else { failure }
}
