//! git-agent: runs of coding agents in kernel-caged worktrees, one exact diff, a human choice.
//!
//! The modules are floors; imports only go down (`tests/it/floors.rs` enforces it):
//!
//! | floor | module | owns |
//! |---|---|---|
//! | 6 | [`cmd`] | the command table and one file a command |
//! | 5 | [`ui`] | everything a person or a script reads |
//! | 4 | [`ops`] | what commands do: plan, then execute |
//! | 3 | [`ledger`], [`policy`], [`clients`] | events, policy, engine presets |
//! | 2 | [`git`], [`os`] | the only spawners and the only writers of files |
//! | 1 | [`model`] | types and pure folds |
//! | 0 | [`text`] | untrusted text, quoting, prefixes |

pub mod clients;
pub mod cmd;
pub mod git;
pub mod ledger;
pub mod model;
pub mod ops;
pub mod os;
pub mod policy;
pub mod text;
pub mod ui;
