//! Tighter and looser. A tracked policy is a stranger's until the person has accepted it on this machine;
//! [`Policy::loosenings`] names everything in it that may not be in force before that. When in doubt a change
//! is looser: a false alarm costs one `policy trust`, a miss costs a machine.

use super::{
    Approval, Globs, Isolation, LandingMode, Limits, Network, Policy, RoleKind, RoleRule, Setup, SignerRole,
    TaskText, kind_by_name,
};
use crate::model::{Failure, Kind};
use crate::text::{Untrusted, quote_path, shell_quote};
use std::collections::BTreeMap;
use std::fmt;

/// One thing in a policy that allows more than the policy it was compared with. Safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loosening {
    /// The key, such as `engines.codex.command`.
    pub key: String,
    /// Its line, from 1; 0 for what is looser by not being there.
    pub line: u32,
    /// What it does, in words that follow the key.
    pub what: String,
}

impl fmt::Display for Loosening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "{} {}", self.key, self.what)
    }
}

/// The refusal (exit status 4) of a policy that nobody has accepted, with one hint for each loosening.
/// `name` is what the person knows the file by.
pub fn needs_consent(name: &str, loosenings: &[Loosening]) -> Option<Failure> {
    if loosenings.is_empty() {
        return None;
    }
    let message = format!(
        "the policy {} allows more than the built-in one, and nobody accepted it",
        Untrusted::new(name)
    );
    Some(loosenings.iter().fold(Failure::new(Kind::Consent, message), |f, l| f.hint(l.to_string())))
}

struct Found(Vec<Loosening>);

impl Found {
    fn add(&mut self, key: impl Into<String>, line: u32, what: impl AsRef<str>) {
        let what = Untrusted::new(what.as_ref()).to_string();
        self.0.push(Loosening { key: key.into(), line, what });
    }
}

impl Policy {
    /// Everything in this policy that allows more than `base` does, in the order of the file. Empty: it may be
    /// in force without consent.
    pub fn loosenings(&self, base: &Policy) -> Vec<Loosening> {
        let mut found = Found(Vec::new());
        for (name, rule) in &self.roles {
            role(&mut found, name, rule, base);
        }
        self.engine_loosenings(base, &mut found);
        self.tree_loosenings(base, &mut found);
        self.later_loosenings(base, &mut found);
        found.0.sort_by_key(|l| l.line);
        found.0
    }

    fn engine_loosenings(&self, base: &Policy, found: &mut Found) {
        for (name, engine) in &self.engines {
            let before = base.engines.get(name);
            let key = |k: &str| format!("engines.{name}.{k}");
            if let Some(command) = &engine.command {
                let old = before.and_then(|b| b.command.as_ref()).map(|c| &c.value);
                if old != Some(&command.value) {
                    found.add(key("command"), command.line, names(&command.value));
                }
            }
            let was = before.map(|b| b.isolation).unwrap_or_default();
            if engine.isolation == Isolation::None && was != Isolation::None {
                found.add(key("isolation"), engine.isolation_line, SEES);
            }
            for variable in &engine.env {
                if !before.is_some_and(|b| b.env.iter().any(|v| v.value == variable.value)) {
                    found.add(key("env"), variable.line, format!("passes ${} to the engine", variable.value));
                }
            }
        }
    }

    fn tree_loosenings(&self, base: &Policy, found: &mut Found) {
        let line = |key: &str| self.lines.get(key).copied().unwrap_or(0);
        missing(found, "strip", line("strip"), &self.strip, &base.strip, "no longer hides");
        // Which branches count as an agent's decides what the gate asks of them, in both directions.
        missing(
            found,
            "agent_branches",
            line("agent_branches"),
            &self.agent_branches,
            &base.agent_branches,
            "no longer counts as an agent's:",
        );
        for p in self.agent_branches.patterns().iter().filter(|p| !base.agent_branches.has(&p.glob)) {
            let what = format!("also takes '{}' for an agent's", p.glob);
            found.add("agent_branches", p.line, what);
        }
        if self.tier < base.tier {
            let what = format!("accepts the tier {} below {}", self.tier.as_str(), base.tier.as_str());
            found.add("tier", line("tier"), what);
        }
        if wider(&self.network, &base.network) {
            found.add("network", line("network"), "lets engines reach more of the network");
        }
        if self.task == TaskText::Full && base.task == TaskText::Digest {
            found.add("ledger.task", line("ledger.task"), "writes the text of tasks into the ledger");
        }
    }

    fn later_loosenings(&self, base: &Policy, found: &mut Found) {
        let line = |key: &str| self.lines.get(key).copied().unwrap_or(0);
        let (later, old) = (&self.later, &base.later);
        for path in later.include.iter().filter(|p| !old.include.iter().any(|o| o.value == p.value)) {
            let what = format!("copies {} into the run", quote_path(path.value.as_bytes()));
            found.add("include", path.line, what);
        }
        for name in later.refs.iter().filter(|r| !old.refs.iter().any(|o| o.value == r.value)) {
            found.add("refs", name.line, format!("shows {} to the engine", name.value));
        }
        for owner in later.owners.iter().filter(|o| !old.owners.iter().any(|b| b.value == o.value)) {
            if !old.owners.is_empty() {
                found.add("owners", owner.line, format!("lets {} change the policy", owner.value));
            }
        }
        if later.owners.is_empty() && !old.owners.is_empty() {
            found.add("owners", line("owners"), "lets anybody change the policy");
        }
        approval(found, &later.approval, &old.approval);
        for p in &old.protect {
            let (branch, was) = &p.value;
            let now = later.protect.iter().find(|n| n.value.0 == *branch);
            if now.map(|n| n.value.1).unwrap_or_default() < *was {
                found.add(format!("protect.{branch}"), now.map_or(0, |n| n.line), "is protected less");
            }
        }
        for p in old.risk.iter().filter(|p| !later.risk.iter().any(|n| n.value == p.value)) {
            found.add("risk", line("risk"), format!("no longer points out {}", p.value));
        }
        if later.retention.snapshots < old.retention.snapshots {
            found.add("retention.snapshots", line("retention.snapshots"), "deletes snapshots earlier");
        }
        if old.retention.keep_tree && !later.retention.keep_tree {
            found.add("retention.keep_tree", line("retention.keep_tree"), "deletes trees earlier");
        }
        if later.pool > old.pool {
            found.add("pool", line("pool"), format!("keeps {} trees on disk", later.pool));
        }
    }
}

/// A reader works in the real tree, where untracked files are; a writer never sees them.
const SEES: &str = "reads your real working tree, untracked and ignored files included";

fn role(found: &mut Found, name: &str, rule: &RoleRule, base: &Policy) {
    let known = base.roles.get(name);
    let undeclared = RoleRule::undeclared(kind_by_name(name));
    let old = known.unwrap_or(&undeclared);
    let key = |k: &str| format!("roles.{name}.{k}");
    let line = rule.line.unwrap_or(0);
    let kind_line = rule.kind_line.unwrap_or(line);
    if base.exact && known.is_none() {
        found.add(format!("roles.{name}"), line, "is a new role");
    }
    match (old.kind, rule.kind) {
        (RoleKind::Writer, RoleKind::Reader) => found.add(key("kind"), kind_line, SEES),
        (RoleKind::Reader, RoleKind::Writer) => {
            found.add(key("kind"), kind_line, "may write, and was a reader");
        }
        _ => {}
    }
    if let Some(allowed) = &old.allow {
        match &rule.allow {
            None => found.add(key("paths.allow"), line, "is gone: every path may be changed"),
            Some(now) => {
                for p in now.patterns().iter().filter(|p| !allowed.has(&p.glob)) {
                    found.add(key("paths.allow"), p.line, format!("may change {}", p.glob));
                }
            }
        }
    }
    missing(found, &key("paths.deny"), line, &rule.deny, &old.deny, "no longer refuses");
    for engine in &rule.engines {
        if !old.engines.iter().any(|e| e.value == engine.value) {
            let what = format!("starts {} without being asked to", engine.value);
            found.add(key("engines"), engine.line, what);
        }
    }
    let same = |s: &Setup| {
        old.setup.as_ref().is_some_and(|o| (&o.run, &o.network, &o.env) == (&s.run, &s.network, &s.env))
    };
    if let Some(setup) = rule.setup.as_ref().filter(|s| !same(s)) {
        for command in &setup.run {
            found.add(key("setup"), setup.line, names(command));
        }
        for variable in &setup.env {
            found.add(key("setup.env"), setup.line, format!("passes ${variable} to the setup"));
        }
        if setup.run.is_empty() && setup.env.is_empty() {
            found.add(key("setup"), setup.line, "changes the setup");
        }
    }
    for check in rule.checks.iter().filter(|c| !old.checks.iter().any(|o| o.value == c.value)) {
        found.add(key("checks"), check.line, names(&check.value.1));
    }
    for command in rule.teardown.iter().filter(|c| !old.teardown.iter().any(|o| o.value == c.value)) {
        found.add(key("teardown"), command.line, names(&command.value));
    }
    limits(found, name, &rule.limits, &rule.limit_lines, &old.limits, line);
}

fn limits(
    found: &mut Found,
    role: &str,
    now: &Limits,
    lines: &BTreeMap<&'static str, u32>,
    old: &Limits,
    line: u32,
) {
    // No limit at all is the largest.
    let wall = |l: &Limits| l.wall.map_or(u64::MAX, |d| d.as_secs());
    for (key, now, old) in [
        ("wall", wall(now), wall(old)),
        ("files", now.files, old.files),
        ("lines", now.lines.unwrap_or(u64::MAX), old.lines.unwrap_or(u64::MAX)),
        ("bytes", now.bytes, old.bytes),
        ("blob", now.blob, old.blob),
    ] {
        if now > old {
            let at = lines.get(key).copied().unwrap_or(line);
            found.add(format!("roles.{role}.limits.{key}"), at, format!("raises the limit of {old}"));
        }
    }
}

fn approval(found: &mut Found, now: &Approval, old: &Approval) {
    let line = |key: &str| now.lines.get(key).copied().unwrap_or(0);
    if now.count < old.count {
        found.add(
            "approval.count",
            line("count"),
            format!("asks for {} approvals, not {}", now.count, old.count),
        );
    }
    // The default signs where the policy's commit has signers: `false` may switch that off.
    if now.signed != old.signed && now.signed != Some(true) {
        found.add("approval.signed", line("signed"), "takes approvals without a signature");
    }
    if old.two_person && !now.two_person {
        found.add("approval.two_person", line("two_person"), "lets people approve their own runs");
    }
    let life = |a: &Approval| a.expiry.map_or(u64::MAX, |d| d.as_secs());
    if life(now) > life(old) {
        found.add("approval.expiry", line("expiry"), "keeps approvals valid for longer");
    }
    if old.mode == LandingMode::Exact && now.mode == LandingMode::Carry {
        found.add("approval.mode", line("mode"), "lets an approved change land on another parent");
    }
    if let Some(before) = &old.signers {
        let person = |s: &BTreeMap<String, SignerRole>, p: &str| s.get(p) == Some(&SignerRole::Person);
        match &now.signers {
            None => found.add("approval.signers", 0, "is gone: every allowed signer may approve"),
            Some(after) => {
                for p in after.keys().filter(|p| person(after, p) && !person(before, p)) {
                    found.add("approval.signers", 0, format!("lets {p} approve"));
                }
            }
        }
    }
}

fn missing(found: &mut Found, key: &str, line: u32, now: &Globs, old: &Globs, what: &str) {
    for p in old.patterns().iter().filter(|p| !now.has(&p.glob)) {
        found.add(key, line, format!("{what} {}", p.glob));
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
