//! From what a person typed to a run.

use super::chain::{Tip, Tips};
use super::{Ledger, REMOTES, RUNS};
use crate::model::{Failure, RunId};
use crate::text::{Untrusted, nearest};

/// Shortest id prefix that is taken for one.
const SHORTEST: usize = 4;

impl Ledger<'_> {
    /// The run that `word` names: its name (of several over time the newest), its branch (`wt/x`, or the
    /// full name), or a unique prefix of its id.
    pub fn resolve(&self, word: &str) -> Result<Tip, Failure> {
        if let Ok(run) = word.parse::<RunId>()
            && let Some(tip) = self.tip(&run)?
        {
            return Ok(tip);
        }
        // Ours first: what a remote calls by the same name, newer or not, is another run.
        let own = choose(self.tips()?, word);
        if own.is_ok() || self.repo().refs(&[REMOTES])?.is_empty() {
            return own;
        }
        choose(self.all_tips()?, word)
    }
}

fn choose(all: Tips, word: &str) -> Result<Tip, Failure> {
    let Tips { mut tips, broken, .. } = all;
    let newest = |matches: &dyn Fn(&Tip) -> bool| {
        tips.iter()
            .enumerate()
            .filter(|(_, t)| matches(t))
            .max_by(|a, b| a.1.run.cmp(&b.1.run))
            .map(|(i, _)| i)
    };
    let branch = format!("refs/heads/{}", word.strip_prefix("refs/heads/").unwrap_or(word));
    let found = newest(&|t| t.event.envelope().name.is_some_and(|n| n.as_str() == word))
        .or_else(|| newest(&|t| t.head().is_some_and(|h| h.branch == branch)));
    if let Some(index) = found {
        return Ok(tips.swap_remove(index));
    }
    let prefix = word.strip_prefix(RUNS).unwrap_or(word).to_ascii_lowercase();
    if prefix.len() >= SHORTEST && prefix.bytes().all(|b| b.is_ascii_alphanumeric()) {
        let hits: Vec<usize> =
            (0..tips.len()).filter(|i| tips[*i].run.as_str().starts_with(&prefix)).collect();
        let bad: Vec<_> = broken
            .iter()
            .filter(|b| b.run.as_ref().is_some_and(|r| r.as_str().starts_with(&prefix)))
            .collect();
        match (&hits[..], &bad[..]) {
            ([one], []) => return Ok(tips.swap_remove(*one)),
            ([], [one]) => {
                return Err(Failure::fatal(format!("run '{}' cannot be read", one.name))
                    .because(one.why.clone())
                    .hint(format!("look at it with: git log -p {}", one.name)));
            }
            ([], []) => {}
            _ => {
                let mut names: Vec<String> =
                    hits.iter().map(|i| format!("{} ({})", tips[*i].label(), tips[*i].run)).collect();
                names.extend(bad.iter().map(|b| b.name.clone()));
                let more = names.len().saturating_sub(10);
                names.truncate(10);
                let list =
                    names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() };
                return Err(Failure::fatal(format!("'{prefix}' names more than one run: {list}"))
                    .hint("give the name, or more of the id"));
            }
        }
    }
    let names: Vec<String> = tips.iter().map(Tip::label).collect();
    let near = nearest(word, names.iter().map(String::as_str));
    let mut failure = Failure::fatal(format!("no run is called '{}'", Untrusted::new(word)));
    if !near.is_empty() {
        let mut near: Vec<_> = near.into_iter().map(str::to_owned).collect();
        near.dedup();
        failure = failure.hint(format!("did you mean: {}", near.join(", ")));
    }
    if !broken.is_empty() {
        let names: Vec<_> = broken.iter().take(3).map(|b| b.name.as_str()).collect();
        failure = failure.hint(format!("runs that cannot be read: {}", names.join(", ")));
    }
    Err(failure.hint("git agent list --all"))
}
