//! The operating system: files, locks, processes, and the cage around an engine. The only place that writes
//! files, removes them, or starts a program other than git. Owns descriptors, links, crash safety and every
//! `unsafe` block of the crate; knows nothing of git, ledger or policy.
// The banned calls are banned elsewhere so that they are made here.
#![allow(clippy::disallowed_methods)]

pub mod ancestry;
pub mod attempt;
pub mod background;
pub mod cage;
pub mod feed;
pub mod files;
pub mod hook;
pub mod lock;
pub mod place;
pub mod port;
pub mod process;
pub mod proxy;
pub mod remove;
pub mod signing;
pub mod tail;
pub mod viewer;
pub mod walk;

/// Fills `bytes` from the kernel's random source (`getrandom(2)`).
pub fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}
