//! The gate: what a server takes and what it refuses, re-derived from the pushed objects and judged by the policy
//! and the signers of the protected branch as it was before the push. `git agent verify` asks the same rules.

mod branch;
mod change;
pub mod hook;
pub mod install;
mod refs;
mod runs;
pub mod verify;

pub use refs::Command;

use super::authority::Authority;
use crate::git::Repo;
use crate::ledger::signers::Signers;
use crate::model::{Failure, Oid};
use crate::policy::{Policy, Protection, SignerRole};
use crate::text::Untrusted;
use runs::Runs;

/// Why a ref is refused. Three lines for a person: which ref, which rule, what would fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The ref, or what was asked about; escaped when shown.
    pub name: String,
    /// The rule, one word of git-agent-gate(7).
    pub rule: &'static str,
    /// What is wrong.
    pub why: String,
    /// What would fix it: a command or a sentence.
    pub remedy: String,
    /// Whether approvals are what lacks, and not that something is wrong.
    pub lacks: bool,
}

impl Refusal {
    fn new(rule: &'static str, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: String::new(), rule, why: why.into(), remedy: remedy.into(), lacks: false }
    }

    /// Approvals lack.
    fn lacks(rule: &'static str, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { lacks: true, ..Self::new(rule, why, remedy) }
    }

    fn of(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, why) = (Untrusted::new(&self.name), Untrusted::new(&self.why));
        write!(f, "{name}: {} ({})", why, self.rule)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "\nhint: {}", self.remedy) }
    }
}

/// Something was refused, or could not be judged, which is the same to a push.
#[derive(Debug)]
enum Trouble {
    Refused(Refusal),
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(e: Failure) -> Self {
        Self::Failed(e)
    }
}

impl From<crate::git::Error> for Trouble {
    fn from(e: crate::git::Error) -> Self {
        Self::Failed(e.into())
    }
}

impl From<Refusal> for Trouble {
    fn from(r: Refusal) -> Self {
        Self::Refused(r)
    }
}

type Verdict<T = ()> = Result<T, Trouble>;

/// Who pushes, as far as the transport says. Nobody known is a person: the transport let them in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pusher {
    /// Names by which forges and forced commands call them; untrusted.
    pub names: Vec<String>,
}

impl Pusher {
    /// Variables that say who pushes: a forced command's own, gitolite, GitLab, Gitea and Forgejo, GitHub
    /// Enterprise, a web server.
    pub const VARIABLES: [&str; 7] = [
        "AGENT_PUSHER",
        "GL_USER",
        "GL_USERNAME",
        "GITEA_PUSHER_NAME",
        "GITEA_PUSHER_EMAIL",
        "GITHUB_USER_LOGIN",
        "REMOTE_USER",
    ];

    /// Whether the policy calls one of the names an agent. A name can only take away here, so it does not
    /// matter who could set the variables.
    fn is_agent(&self, policy: &Policy) -> bool {
        self.names.iter().any(|n| is_agent(policy, n))
    }
}

fn is_agent(policy: &Policy, name: &str) -> bool {
    let roles = policy.approval().signers.iter().flatten();
    let mut agents = roles.filter(|(_, role)| **role == SignerRole::Agent);
    agents.any(|(principal, _)| principal.eq_ignore_ascii_case(name))
}

/// What everything is judged by.
#[derive(Debug)]
enum Law {
    /// Policy and signers, if there are any.
    Ready(Authority),
    /// The policy can be read; who signs cannot.
    Unsigned(Authority, String),
    /// The policy cannot be read.
    Unreadable(String),
}

impl Law {
    fn at(repo: &Repo, tip: Option<&Oid>) -> Result<Self, Failure> {
        let Some(tip) = tip else {
            let policy = Policy::built_in().clone();
            return Ok(Self::Ready(Authority { policy, own_policy: false, signers: None }));
        };
        let (policy, signers) = Authority::parts(repo, tip)?;
        Ok(match (policy, signers) {
            (Ok((policy, own_policy)), Ok(signers)) => Self::Ready(Authority { policy, own_policy, signers }),
            (Ok((policy, own_policy)), Err(e)) => {
                Self::Unsigned(Authority { policy, own_policy, signers: None }, e.to_string())
            }
            (Err(e), _) => Self::Unreadable(e.to_string()),
        })
    }

    fn policy(&self) -> &Policy {
        match self {
            Law::Ready(a) | Law::Unsigned(a, _) => &a.policy,
            Law::Unreadable(_) => Policy::built_in(),
        }
    }

    /// The signers that agents' work is judged by, or why there is no such work here.
    fn for_agents(&self) -> Verdict<&Authority> {
        let (why, remedy) = match self {
            Law::Ready(authority) if authority.signers.as_ref().is_some_and(|s| !s.is_empty()) => {
                return Ok(authority);
            }
            Law::Ready(_) => (
                "nobody may sign approvals yet".to_owned(),
                "git agent trust signers add ADDRESS KEY, then commit it, signed by a root signer, and push it",
            ),
            Law::Unsigned(_, why) | Law::Unreadable(why) => (
                format!("who may approve cannot be read: {why}"),
                "repair it on the protected branch; a root signer's commit may",
            ),
        };
        Err(Refusal::lacks("signers", why, remedy).into())
    }
}

/// Everything a verdict on refs or commits needs.
#[derive(Debug)]
struct Judge<'r> {
    repo: &'r Repo,
    law: Law,
    /// Signers that the server's administrator set; they may always repair policy and signers.
    root: Option<Signers>,
    pusher_is_agent: bool,
    runs: Runs<'r>,
    /// The branch whose policy is the law, full name.
    protected: Option<String>,
    now: i64,
}

impl Judge<'_> {
    fn level(&self, name: &str) -> Protection {
        match name.strip_prefix("refs/heads/") {
            Some(short) => self.law.policy().protection(short.as_bytes()),
            None => Protection::Pusher,
        }
    }
}
