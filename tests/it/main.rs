//! Integration tests: real repositories, real processes, the built executable. One binary.
//!
//! A test that carries a number (`r03_...`) is a case of the conformance lists. A test that needs something
//! the machine lacks fails; none is skipped in silence.

// Tests start programs and write files themselves: they play the person, not the product.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, missing_docs)]

mod pty;
mod support;

mod apply;
mod apply_after;
mod apply_ground;
mod apply_killed;
mod apply_model;
mod attacked;
mod checkout;
mod clients;
mod completion;
mod doctor;
mod escape;
mod escape_rows;
mod escape_tiers;
mod floors;
mod gate;
mod import;
mod packaged;
mod person;
mod policy_checks;
mod policy_command;
mod policy_consent;
mod policy_examples;
mod policy_init;
mod policy_life;
mod projects;
mod proxy;
mod prune;
mod readers;
mod review;
mod runs_control;
mod runs_crash;
mod runs_ledger;
mod runs_repository;
mod runs_spawn;
mod runs_unnoticed;
mod sign;
mod snapshot;
mod snapshot_more;
mod switches;
mod sync;
mod transcripts;
