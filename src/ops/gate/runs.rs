//! The runs that a push is judged by: those it brings, then those that the server has.

use super::{Refusal, Verdict};
use crate::git::Repo;
use crate::ledger::{Chain, Ledger, Tip};
use crate::model::{Body, Digest, Failure, Oid, RunId};
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};

/// Runs by what a commit or a branch can say of them.
#[derive(Debug)]
pub(super) struct Runs<'r> {
    repo: &'r Repo,
    /// Checked already; they take the place of the server's.
    pushed: BTreeMap<RunId, Chain>,
    server: OnceCell<Vec<Tip>>,
}

impl<'r> Runs<'r> {
    pub(super) fn new(repo: &'r Repo) -> Self {
        Self { repo, pushed: BTreeMap::new(), server: OnceCell::new() }
    }

    fn server(&self) -> Result<&[Tip], Failure> {
        if self.server.get().is_none() {
            let mut tips = Ledger::new(self.repo).all_tips()?.tips;
            tips.retain(|t| !self.pushed.contains_key(&t.run));
            let _ = self.server.set(tips);
        }
        Ok(self.server.get().map_or(&[], Vec::as_slice))
    }

    /// Chains for which `fits` holds by their newest head: those of the push first, newest run first.
    fn find(&self, fits: impl Fn(&RunId, &crate::model::Head) -> bool) -> Result<Vec<Chain>, Failure> {
        let ours = self.pushed.iter().rev().filter(|(run, c)| c.head.as_ref().is_some_and(|h| fits(run, h)));
        let mut found: Vec<Chain> = ours.map(|(_, c)| c.clone()).collect();
        let ledger = Ledger::new(self.repo);
        for tip in self.server()?.iter().rev().filter(|t| t.head().is_some_and(|h| fits(&t.run, h))) {
            found.push(ledger.chain(tip)?);
        }
        Ok(found)
    }

    /// Runs whose branch this is.
    pub(super) fn of_branch(&self, name: &str) -> Result<Vec<Chain>, Failure> {
        // Most pushes bring branch and run together: nothing of the server's has to be read.
        let ours: Vec<Chain> = self
            .pushed
            .values()
            .rev()
            .filter(|c| c.head.as_ref().is_some_and(|h| h.branch == name))
            .cloned()
            .collect();
        if !ours.is_empty() {
            return Ok(ours);
        }
        self.find(|_, h| h.branch == name)
    }

    /// Runs that a commit with this difference may come from: those it names, else those that propose it.
    pub(super) fn of_change(&self, named: &[String], change: &Digest) -> Result<Vec<Chain>, Failure> {
        let is = |run: &RunId, h: &crate::model::Head| {
            named.iter().any(|n| n == run.as_str() || n == h.name.as_str())
        };
        if !named.is_empty() {
            return self.find(is);
        }
        self.find(|_, h| h.result.as_ref().is_some_and(|r| r.change == *change))
    }

    /// Checks a pushed run ref and keeps its chain. `old`: what the server has.
    pub(super) fn take(&mut self, run: &RunId, old: Option<&Oid>, new: &Oid) -> Verdict {
        let ledger = Ledger::new(self.repo);
        let broken = |e: Failure| {
            Refusal::new("ledger", e.to_string(), "git agent log RUN checks a run; only git-agent writes one")
        };
        let tip = ledger.tip_at(run, new).map_err(broken)?;
        let chain = ledger.chain(&tip).map_err(broken)?;
        if old.is_some_and(|old| !chain.events.iter().any(|(oid, _)| oid == old)) {
            return Err(Refusal::new(
                "ledger",
                "it would take back events that the server has",
                format!("git agent sync, then push again (run {run})"),
            )
            .into());
        }
        self.check_evidence(&chain)?;
        self.pushed.insert(run.clone(), chain);
        Ok(())
    }

    /// Parents keep objects alive and bring them along. Only what the events name may come: an agent's own
    /// commits may hold what it removed again.
    fn check_evidence(&self, chain: &Chain) -> Verdict {
        let objects = self.repo.objects()?;
        let mut named: HashSet<Oid> = HashSet::new();
        let events: HashSet<&Oid> = chain.events.iter().map(|(oid, _)| oid).collect();
        for (oid, event) in chain.known() {
            let parents = objects.commit(oid)?.parents;
            match &event.body {
                Body::Spawn(_) => {
                    named.extend(parents);
                    continue;
                }
                Body::Result(r) => named.extend([r.base.clone(), r.snapshot.clone()]),
                _ => {}
            }
            if let Some(more) = parents.iter().find(|p| !events.contains(p) && !named.contains(*p)) {
                return Err(Refusal::new(
                    "ledger",
                    format!("event {} brings commit {}, which no event names", event.seq, more.short()),
                    "only git-agent writes a run",
                )
                .into());
            }
        }
        Ok(())
    }
}
