//! Types that every floor speaks, and pure folds over them. No I/O.

pub mod approval;
mod digest;
mod event;
mod failure;
mod head;
mod name;
mod oid;
pub mod person;

pub use approval::Signer;
pub use digest::Digest;
pub use event::*;
pub use failure::{Failure, Kind};
pub use head::*;
pub use name::{BadName, Role, RunName};
pub use oid::{HashKind, Oid};

mod run_id;
mod tier;
pub use run_id::RunId;
pub use tier::Tier;
