//! Tighter and looser. A tracked policy is a stranger's until the person has accepted it on this machine;
//! [`Policy::loosenings`] names everything in it that may not be in force before that. When in doubt a change
//! is looser: a false alarm costs one `policy trust`, a miss costs a machine.
//!
//! Every struct of a policy is taken apart field by field, without `..`: a new field does not compile until
//! somebody has said here which way it loosens.

mod approval;
mod role;

use super::{EngineRule, Globs, Isolation, Later, Located, Network, Policy, Retention, TaskText, Variable};
use crate::model::{Failure, Kind};
use crate::text::{Untrusted, quote_path, shell_quote};
use std::cmp::Ordering;
use std::fmt;

/// Which way a difference goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Allows more, or may.
    Looser,
    /// Allows less.
    Tighter,
    /// Neither: another name, another order.
    Other,
}

impl Direction {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Direction::Looser => "looser",
            Direction::Tighter => "tighter",
            Direction::Other => "other",
        }
    }
}

/// One thing in which a policy differs from the policy it was compared with. Safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Which way it goes.
    pub direction: Direction,
    /// The key, such as `engines.codex.command`.
    pub key: String,
    /// Its line, from 1; 0 for what differs by not being there.
    pub line: u32,
    /// What it does, in words that follow the key.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "{} {}", self.key, self.what)
    }
}

/// How many lines a refusal names; a stranger's file can have thousands.
const NAMED: usize = 20;

/// The refusal (exit status 4) of a policy that nobody has accepted, with one hint for each loosening and the
/// command that accepts. `name` is what the person knows the file by; `since_accepted`: the loosenings are
/// those since the last policy that was accepted.
pub fn needs_consent(name: &str, loosenings: &[Difference], since_accepted: bool) -> Failure {
    let name = Untrusted::new(name);
    let message = match (since_accepted, loosenings.is_empty()) {
        (false, _) => {
            format!("the policy {name} allows more than the built-in one, and nobody accepted it here")
        }
        (true, false) => {
            format!("the policy {name} allows more than the one that was accepted here")
        }
        (true, true) => format!(
            "the policy {name} is not the one that was accepted here, although nothing in it is looser"
        ),
    };
    let mut failure = Failure::new(Kind::Consent, message);
    for l in loosenings.iter().take(NAMED) {
        failure = failure.hint(l.to_string());
    }
    if loosenings.len() > NAMED {
        failure = failure.hint(format!("and {} more", loosenings.len() - NAMED));
    }
    failure.hint("look at it and accept it, or do not: git agent policy trust")
}

struct Found(Vec<Difference>);

use Direction::{Looser, Other, Tighter};

impl Found {
    fn add(&mut self, direction: Direction, key: &str, line: u32, what: impl AsRef<str>) {
        let what = Untrusted::new(what.as_ref()).to_string();
        self.0.push(Difference { direction, key: key.to_owned(), line, what });
    }

    fn looser(&mut self, key: &str, line: u32, what: impl AsRef<str>) {
        self.add(Looser, key, line, what);
    }

    fn tighter(&mut self, key: &str, line: u32, what: impl AsRef<str>) {
        self.add(Tighter, key, line, what);
    }

    /// A field whose values stand in one line: `Greater` is looser. Each side has its words.
    fn ranked(&mut self, key: &str, line: u32, now_to_old: Ordering, looser: &str, tighter: &str) {
        match now_to_old {
            Ordering::Greater => self.looser(key, line, looser),
            Ordering::Less => self.tighter(key, line, tighter),
            Ordering::Equal => {}
        }
    }

    /// A list as a set: what is new in it, and what is gone from it. `line` is for what is gone.
    fn set<T: PartialEq>(
        &mut self,
        key: &str,
        line: u32,
        (now, old): (&[Located<T>], &[Located<T>]),
        added: (Direction, impl Fn(&T) -> String),
        gone: (Direction, impl Fn(&T) -> String),
    ) {
        let has = |list: &[Located<T>], item: &T| list.iter().any(|l| l.value == *item);
        for item in old.iter().filter(|i| !has(now, &i.value)) {
            self.add(gone.0, key, line, gone.1(&item.value));
        }
        for item in now.iter().filter(|i| !has(old, &i.value)) {
            self.add(added.0, key, item.line, added.1(&item.value));
        }
    }

    /// Patterns as a set of texts: what they mean together is not compared, so another spelling is a change.
    fn patterns(
        &mut self,
        key: &str,
        line: u32,
        (now, old): (&Globs, &Globs),
        added: (Direction, &str),
        gone: (Direction, &str),
    ) {
        let lists = (listed(now), listed(old));
        let words = |what: &str| {
            let what = what.to_owned();
            move |glob: &String| what.replace("{}", glob)
        };
        self.set(key, line, (&lists.0, &lists.1), (added.0, words(added.1)), (gone.0, words(gone.1)));
    }
}

fn listed(globs: &Globs) -> Vec<Located<String>> {
    globs.patterns().iter().map(|p| Located { value: p.glob.clone(), line: p.line }).collect()
}

impl Policy {
    /// Everything in this policy that allows more than `base` does, in the order of the file. Empty: it may be
    /// in force without consent.
    pub fn loosenings(&self, base: &Policy) -> Vec<Difference> {
        self.differences(base).into_iter().filter(|d| d.direction == Looser).collect()
    }

    /// Everything in which this policy means something else than `base`, in the order of the file.
    pub fn differences(&self, base: &Policy) -> Vec<Difference> {
        let mut found = Found(Vec::new());
        let Policy {
            sha256: _,
            exact,
            roles,
            engines,
            strip,
            branch,
            agent_branches,
            tier,
            network,
            task,
            later,
            lines: _,
        } = self;
        let line = |key: &str| self.lines.get(key).copied().unwrap_or(0);

        match (exact, base.exact) {
            (true, false) => found.tighter("roles", 0, "is the whole list: no other name is taken"),
            (false, true) => found.looser("roles", 0, "takes any name"),
            _ => {}
        }
        for (name, rule) in roles {
            role::compare(&mut found, name, rule, base);
        }
        for name in base.roles.keys().filter(|n| *exact && !roles.contains_key(*n)) {
            found.tighter(&format!("roles.{name}"), 0, "is gone");
        }
        for (name, rule) in engines {
            engine(&mut found, name, rule, base.engines.get(name).unwrap_or(&EngineRule::default()));
        }
        for (name, rule) in base.engines.iter().filter(|(n, _)| !engines.contains_key(*n)) {
            engine(&mut found, name, &EngineRule::default(), rule);
        }

        let pair = (strip, &base.strip);
        found.patterns("strip", line("strip"), pair, (Tighter, "hides {}"), (Looser, "no longer hides {}"));
        if *branch != base.branch {
            found.add(Other, "branch", line("branch"), format!("names run branches {branch}"));
        }
        // Which branches count as an agent's decides what the gate asks of them, in both directions.
        let added = (Looser, "also takes '{}' for an agent's");
        let gone = (Looser, "no longer counts as an agent's: {}");
        let pair = (agent_branches, &base.agent_branches);
        found.patterns("agent_branches", line("agent_branches"), pair, added, gone);
        let (now, old) = (tier.as_str(), base.tier.as_str());
        let looser = format!("accepts the tier {now} below {old}");
        found.ranked("tier", line("tier"), base.tier.cmp(tier), &looser, &format!("asks for the tier {now}"));
        networks(&mut found, "network", line("network"), (network, &base.network), "engines");
        let rank = |t: &TaskText| *t == TaskText::Full;
        found.ranked(
            "ledger.task",
            line("ledger.task"),
            rank(task).cmp(&rank(&base.task)),
            "writes the text of tasks into the ledger",
            "keeps the text of tasks out of the ledger",
        );
        self.later_differences(later, &base.later, &mut found);
        found.0.sort_by_key(|d| d.line);
        found.0
    }

    fn later_differences(&self, now: &Later, old: &Later, found: &mut Found) {
        let line = |key: &str| self.lines.get(key).copied().unwrap_or(0);
        let Later { owners, include, refs, approval, protect, risk, retention, pool } = now;
        match (owners.is_empty(), old.owners.is_empty()) {
            (true, false) => found.looser("owners", line("owners"), "lets anybody change the policy"),
            (false, true) => found.tighter("owners", line("owners"), "says who may change the policy"),
            _ => found.set(
                "owners",
                line("owners"),
                (owners, &old.owners),
                (Looser, |o| format!("lets {o} change the policy")),
                (Tighter, |o| format!("no longer lets {o} change the policy")),
            ),
        }
        found.set(
            "include",
            line("include"),
            (include, &old.include),
            (Looser, |p| format!("copies {} into the run", quote_path(p.as_bytes()))),
            (Tighter, |p| format!("no longer copies {} into the run", quote_path(p.as_bytes()))),
        );
        found.set(
            "refs",
            line("refs"),
            (refs, &old.refs),
            (Looser, |r| format!("shows {r} to the engine")),
            (Tighter, |r| format!("no longer shows {r} to the engine")),
        );
        approval::compare(found, approval, &old.approval);
        approval::protection(found, protect, &old.protect);
        found.set(
            "risk",
            line("risk"),
            (risk, &old.risk),
            (Tighter, |p| format!("points out {p}")),
            (Looser, |p| format!("no longer points out {p}")),
        );
        let Retention { snapshots, keep_tree } = retention;
        found.ranked(
            "retention.snapshots",
            line("retention.snapshots"),
            old.retention.snapshots.cmp(snapshots),
            "deletes snapshots earlier",
            "keeps snapshots for longer",
        );
        found.ranked(
            "retention.keep_tree",
            line("retention.keep_tree"),
            old.retention.keep_tree.cmp(keep_tree),
            "deletes trees earlier",
            "keeps trees until they are pruned",
        );
        let trees = format!("keeps {pool} trees on disk");
        found.ranked("pool", line("pool"), pool.cmp(&old.pool), &trees, &trees);
    }
}

/// A reader works in the real tree, where untracked files are; a writer never sees them.
const SEES: &str = "reads your real working tree, untracked and ignored files included";

fn engine(found: &mut Found, name: &str, now: &EngineRule, old: &EngineRule) {
    let EngineRule { command, isolation, decline_exit, env, isolation_line } = now;
    let key = |k: &str| format!("engines.{name}.{k}");
    let words = |rule: &EngineRule| rule.command.as_ref().map(|c| c.value.clone());
    match command {
        Some(c) if words(old).as_ref() != Some(&c.value) => {
            found.looser(&key("command"), c.line, names(&c.value));
        }
        None if old.command.is_some() => {
            found.looser(&key("command"), 0, "is gone: the program that git-agent knows by this name runs");
        }
        _ => {}
    }
    match (old.isolation, *isolation) {
        (Isolation::Worktree, Isolation::None) => found.looser(&key("isolation"), *isolation_line, SEES),
        (Isolation::None, Isolation::Worktree) => {
            found.looser(&key("isolation"), *isolation_line, "may write, and was a reader");
        }
        _ => {}
    }
    if *decline_exit != old.decline_exit {
        let status = decline_exit.unwrap_or(super::DECLINE_EXIT);
        found.add(Other, &key("decline_exit"), *isolation_line, format!("is {status}"));
    }
    found.set(
        &key("env"),
        *isolation_line,
        (env, &old.env),
        (Looser, |v: &Variable| v.does("the engine")),
        (Tighter, |v| format!("no longer {}", v.does("the engine"))),
    );
}

fn networks(found: &mut Found, key: &str, line: u32, (now, old): (&Network, &Network), who: &str) {
    if now == old {
    } else if wider(now, old) {
        found.looser(key, line, format!("lets {who} reach more of the network"));
    } else {
        found.tighter(key, line, format!("lets {who} reach less of the network"));
    }
}

fn wider(now: &Network, old: &Network) -> bool {
    match (now, old) {
        (_, Network::Open) | (Network::Off, _) => false,
        (Network::Proxy(now), Network::Proxy(old)) => now.iter().any(|h| !old.contains(h)),
        _ => true,
    }
}

fn names(command: &[String]) -> String {
    let words: Vec<_> = command.iter().map(|w| shell_quote(w)).collect();
    format!("names a program: {}", words.join(" "))
}
