//! The decision on one result. Facts in, decision out: no clock, no repository, no file.

use super::{Pattern, Policy, RoleKind, RoleRule, UnknownRole};
use crate::model::Role;
use crate::text::{Untrusted, quote_path};
use std::fmt;

/// What is known about a result.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The run's role.
    pub role: &'a Role,
    /// Every path that it changes, relative to the top level, in git's bytes.
    pub paths: &'a [&'a [u8]],
    /// Who started the run: the address of the spawn event's actor.
    pub started_by: &'a str,
    /// What people said about this very result.
    pub words: &'a [Word<'a>],
    /// Whether the policy's commit holds `allowed_signers`.
    pub signers: bool,
    /// Seconds since the epoch.
    pub now: i64,
}

/// One person's approval.
#[derive(Debug, Clone, Copy)]
pub struct Word<'a> {
    /// Whose: the address of the event's actor, or the principal of a good signature.
    pub by: &'a str,
    /// Whether a good signature says so.
    pub signed: bool,
    /// When, in seconds since the epoch.
    pub time: i64,
    /// When it ends by its own words.
    pub expires: Option<i64>,
}

/// What follows from the facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may land.
    Allow,
    /// It may land once this is there.
    Wait(Vec<Lacking>),
    /// It may not, whatever anybody says.
    Refuse(Vec<Refusal>),
}

/// What an approval still needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lacking {
    /// Approvals that count, and how many the policy asks for.
    Approvals {
        /// That count.
        have: u8,
        /// That are needed.
        need: u8,
    },
    /// Words were said that do not count, with the reason.
    Uncounted(String),
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lacking::Approvals { have, need: 1 } => {
                debug_assert_eq!(*have, 0);
                f.write_str("an approval")
            }
            Lacking::Approvals { have, need } => write!(f, "approvals: {have} of {need}"),
            Lacking::Uncounted(why) => f.write_str(why),
        }
    }
}

/// A rule that forbids a result. Safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The key below the role: `kind`, `paths.allow` or `paths.deny`; or `roles`, when there is no such role.
    pub rule: &'static str,
    /// The path, quoted so that it can be shown; empty when no path is the reason.
    pub path: String,
    /// The pattern that refuses it; `None` when no allowing pattern matches.
    pub pattern: Option<String>,
    /// Line in the policy; 0 when no line says it.
    pub line: u32,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { rule, path, pattern, line } = self;
        match (*rule, pattern) {
            ("roles", _) => return f.write_str("the policy does not know the role"),
            ("kind", _) => write!(f, "{path}: a reader changes nothing")?,
            (_, Some(p)) => write!(f, "{path}: {rule} '{}'", Untrusted::new(p))?,
            (_, None) => write!(f, "{path}: not in {rule}")?,
        }
        if *line > 0 { write!(f, " on line {line} of the policy") } else { Ok(()) }
    }
}

/// Whether a role may change one path, and which rule says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It may: by this pattern of `paths.allow`, or because no rule limits the role.
    Allowed(Option<Pattern>),
    /// It may not.
    Refused(Refusal),
}

impl RoleRule {
    /// Whether the role may change `path` (relative to the top level, git's bytes). A reader may change
    /// nothing; `deny` beats `allow`.
    pub fn judge(&self, path: &[u8]) -> Judgement {
        let refused = |rule, pattern: Option<&Pattern>, line: Option<u32>| {
            let (path, pattern) = (quote_path(path).into_owned(), pattern.map(|p| p.glob.clone()));
            Judgement::Refused(Refusal { rule, path, pattern, line: line.unwrap_or(0) })
        };
        if self.kind == RoleKind::Reader {
            return refused("kind", None, self.kind_line);
        }
        if let Some(p) = self.deny.matched(path) {
            return refused("paths.deny", Some(p), Some(p.line));
        }
        let Some(allow) = &self.allow else { return Judgement::Allowed(None) };
        match allow.matched(path) {
            Some(p) => Judgement::Allowed(Some(p.clone())),
            None => refused("paths.allow", None, allow.patterns().first().map(|p| p.line)),
        }
    }

    /// The rule that keeps the role from changing `path`, if one does.
    pub fn breach(&self, path: &[u8]) -> Option<Refusal> {
        match self.judge(path) {
            Judgement::Allowed(_) => None,
            Judgement::Refused(refusal) => Some(refusal),
        }
    }
}

/// Whether a result may land. Total: whatever the facts are, there is one answer.
pub fn decide(policy: &Policy, facts: &Facts<'_>) -> Decision {
    let rule = match policy.role(facts.role) {
        Ok(rule) => rule,
        Err(UnknownRole { role, .. }) => {
            let path = role.to_string();
            return Decision::Refuse(vec![Refusal { rule: "roles", path, pattern: None, line: 0 }]);
        }
    };
    let refusals: Vec<Refusal> = facts.paths.iter().filter_map(|p| rule.breach(p)).collect();
    if !refusals.is_empty() {
        return Decision::Refuse(refusals);
    }
    let lacking = lacking(policy, facts);
    if lacking.is_empty() { Decision::Allow } else { Decision::Wait(lacking) }
}

fn lacking(policy: &Policy, facts: &Facts<'_>) -> Vec<Lacking> {
    let asked = &policy.later.approval;
    let signed = asked.signed.unwrap_or(facts.signers);
    let life = asked.expiry.map(|d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
    let mut counted: Vec<&str> = Vec::new();
    let mut uncounted = Vec::new();
    for word in facts.words {
        let by = Untrusted::new(word.by);
        let why = if word.expires.is_some_and(|at| at <= facts.now)
            || life.is_some_and(|l| word.time.saturating_add(l) <= facts.now)
        {
            format!("the approval of {by} has expired")
        } else if signed && !word.signed {
            format!("the approval of {by} is not signed")
        } else if asked.two_person && word.by == facts.started_by {
            format!("{by} started the run, and two people are asked for")
        } else if asked.signers.as_ref().is_some_and(|s| s.get(word.by) != Some(&super::SignerRole::Person)) {
            format!("{by} is nobody who may approve")
        } else {
            if !counted.contains(&word.by) {
                counted.push(word.by);
            }
            continue;
        };
        uncounted.push(Lacking::Uncounted(why));
    }
    let have = u8::try_from(counted.len()).unwrap_or(u8::MAX);
    if have >= asked.count {
        return Vec::new();
    }
    let mut all = vec![Lacking::Approvals { have, need: asked.count }];
    all.extend(uncounted);
    all
}
