//! The only place that talks to git. The executable is the authority for the index, work trees, merges and
//! ref transactions; git2 reads and writes ledger objects where it can open the repository (see
//! `docs/decisions/0002-git-executable-and-git2.md`). No English text of git's is ever matched.
// This floor is one of the two that may start programs.
#![allow(clippy::disallowed_methods)]

mod call;
mod config;
mod objects;
mod received;
mod refs;
mod repo;
mod transfer;
mod transport;

pub use call::{Answer, Call, Place};
pub use config::{Config, Scope};
pub use objects::{CommitData, ObjectKind, Objects, TreeEntry, commit_bytes, parse_tree, tree_bytes};
pub use received::{NewCommit, ServerRef};
pub use refs::{Branch, RefError, RefTip, Transaction};
pub use repo::{RefFormat, Repo, Version};
pub use transfer::{Bounds, Quarantine, TransferError};
pub use transport::{Lease, Pushed};

use crate::model::Failure;
use crate::text::Untrusted;

/// A git call that did not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// git could not be started at all.
    #[error("git could not be started")]
    NoGit(#[source] std::io::Error),
    /// git failed (status 128 and up, or a status that is no answer for this verb).
    #[error("git {verb} failed{}{}", status_text(*.status), detail(.stderr))]
    Failed {
        /// The verb, such as `update-ref`.
        verb: String,
        /// Exit status; `None` when a signal ended it.
        status: Option<i32>,
        /// What it said, bounded; untrusted text.
        stderr: String,
    },
    /// Reading from or writing to git failed.
    #[error("talking to git {verb} failed")]
    Io {
        /// The verb.
        verb: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// git answered more than we take.
    #[error("git {verb} answered more than {limit} bytes")]
    TooMuch {
        /// The verb.
        verb: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// git took longer than it may.
    #[error("git {verb} took longer than {} s", .time.as_secs())]
    TooSlow {
        /// The verb.
        verb: String,
        /// The limit.
        time: std::time::Duration,
    },
    /// git answered something we cannot read.
    #[error("git {verb} answered something unexpected: {what}")]
    Unreadable {
        /// The verb.
        verb: String,
        /// What was expected or found.
        what: String,
    },
    /// libgit2 failed on a repository it had opened.
    #[error("the object store could not be read or written")]
    Store(#[source] git2::Error),
    /// An object that must exist does not.
    #[error("object {0} is missing or not what it should be")]
    Missing(String),
}

fn status_text(status: Option<i32>) -> String {
    status.map_or_else(|| " (killed by a signal)".into(), |s| format!(" (exit {s})"))
}

fn detail(stderr: &str) -> String {
    let text = stderr.trim();
    if text.is_empty() { String::new() } else { format!(": {}", Untrusted::new(text)) }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        match e {
            Error::NoGit(_) => {
                Failure::fatal("git was not found").because(e).hint("install git 2.39 or later")
            }
            e => Failure::fatal(e.to_string()),
        }
    }
}
