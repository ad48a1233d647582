//! The ledger: every run is a chain of event commits on `refs/agent-runs/<ulid>`. Owns reading, checking and
//! appending of events, names of runs, the change digest, the repository's identity and the list of runs.
//! Decides nothing about what may happen to a run, and starts no engine. The format is normative in
//! `git-agent-ledger(7)`.

mod append;
mod chain;
pub mod change;
mod join;
mod names;
pub mod notes;
pub mod repository;
pub mod runs;
pub mod signers;
#[cfg(test)]
pub(crate) mod tests;

pub use append::{Draft, Prepared, Sign};
pub use chain::{Broken, Chain, Fault, Signed, Tip, Tips};
pub use join::Joined;
pub use repository::{Home, state_folder};
pub use runs::{Folder, Listing, Orphan, RunLine};

use crate::git::Repo;
use crate::model::RunId;

/// Live runs are `refs/agent-runs/<ulid>`.
pub const RUNS: &str = "refs/agent-runs/";
/// Below it are archived runs, folded; not runs themselves.
pub const ARCHIVE: &str = "refs/agent-runs/archive/";
/// What remotes have of runs: `refs/agent-remotes/<remote>/runs/<ulid>`. Never our own word.
pub const REMOTES: &str = "refs/agent-remotes/";
/// The event in an event commit's tree.
pub const EVENT_FILE: &str = "event.json";
/// Its detached signature.
pub const SIGNATURE_FILE: &str = "event.sig";
/// The folder of attachments.
pub const ATTACHMENTS: &str = "att";
/// The attachment that holds the task.
pub const TASK: &str = "task";
/// Events a reader takes at most: [`crate::model::MAX_EVENTS`] and as many closing ones.
pub const LIMIT_EVENTS: u64 = 2 * crate::model::MAX_EVENTS;
/// Bytes a reader takes at most: [`crate::model::MAX_RUN`] and as many of closing events.
pub const LIMIT_BYTES: u64 = 2 * crate::model::MAX_RUN;
/// Largest signature in bytes.
pub const MAX_SIGNATURE: u64 = 16 * 1024;

/// The ledger of one repository.
#[derive(Debug, Clone, Copy)]
pub struct Ledger<'r> {
    repo: &'r Repo,
}

impl<'r> Ledger<'r> {
    /// The ledger of `repo`. Reads nothing yet.
    pub fn new(repo: &'r Repo) -> Self {
        Self { repo }
    }

    /// The repository.
    pub fn repo(&self) -> &'r Repo {
        self.repo
    }

    /// Full name of a run's ref.
    pub fn ref_name(run: &RunId) -> String {
        format!("{RUNS}{run}")
    }
}

/// Who acts: `user.name` and `user.email` as git has them, else `<login>` and `<login>@<host>`. Never fails.
pub fn actor(config: &crate::git::Config) -> crate::model::Actor {
    let set = |key| config.get(key).map(plain).filter(|v: &String| !v.is_empty());
    let (name, email) = (set("user.name"), set("user.email"));
    if let (Some(name), Some(email)) = (&name, &email) {
        return crate::model::Actor { name: name.clone(), email: email.clone() };
    }
    let user = crate::os::process::current_user();
    let or = |value: Option<String>, other: String| {
        value.or_else(|| Some(plain(&other)).filter(|v| !v.is_empty())).unwrap_or_else(|| "unknown".into())
    };
    crate::model::Actor {
        name: or(name, user.login.clone()),
        email: or(email, format!("{}@{}", user.login, user.host)),
    }
}

/// A name or address that can stand in a commit header: without what ends one there, at most 200 characters.
fn plain(text: &str) -> String {
    let kept: String =
        text.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).take(200).collect();
    kept.trim().to_owned()
}
