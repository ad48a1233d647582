//! Doctor: what holds on this machine, proved with a throw-away repository and run, and what goes on around runs
//! in the repository at hand. Reads the user's repository and settings, and never writes there.

mod clients;
mod containment;
mod engines;
mod machine;
mod matrix;
mod settings;
mod throwaway;
mod traits;

pub use clients::{HookFile, HookState};
pub use containment::Finding;
pub use engines::{EngineReport, Live};
pub use machine::{Machine, Missing, Port};
pub use matrix::{Kind, Proof, RowReport, Verdict};
pub use traits::{Trait, Traits};

use crate::git::Repo;
use crate::model::Failure;
use crate::ops::switch;
use serde::Serialize;

/// What the caller asks for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Only this engine.
    pub engine: Option<String>,
    /// Let each engine that is logged in do a small task.
    pub live: bool,
    /// List the repository's traits.
    pub traits: bool,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What the kernel offers.
    pub machine: Machine,
    /// The attempts; `None` where no cage is in force.
    pub cage: Option<Proof>,
    /// Why there is none.
    pub lacks: Option<String>,
    /// What the next tier needs.
    pub missing: Vec<Missing>,
    /// The agent clients.
    pub engines: Vec<EngineReport>,
    /// Files that configure hooks of clients.
    pub hooks: Vec<HookFile>,
    /// Ports on loopback that something listens on.
    pub ports: Vec<Port>,
    /// What is amiss around runs; also what needs no repository.
    pub findings: Vec<Finding>,
    /// What the repository is like.
    pub traits: Option<Traits>,
}

impl Report {
    /// Whether the promises of the machine's tier hold.
    pub fn holds(&self) -> bool {
        self.cage.as_ref().is_some_and(Proof::holds)
    }
}

/// A path as text, whatever its bytes.
fn lossy<S: serde::Serializer>(path: &std::path::Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// Looks, tries, and reports. `repo` is the repository the caller stands in, if any.
pub fn examine(repo: Option<&Repo>, request: &Request) -> Result<Report, Failure> {
    let presets = engines::chosen(request.engine.as_deref())?;
    if switch::isolation_is_off()? {
        return Err(Failure::fatal("doctor tries a run in a copy, and isolation is switched off")
            .hint("unset GIT_AGENT_ISOLATION"));
    }
    let machine = Machine::look();
    let bench = throwaway::Throwaway::make()?;
    let hooks = clients::look(repo, bench.dir());
    let (cage, lacks, engines) = match bench.run() {
        Ok(held) => {
            let proof = matrix::prove(&bench, &held)?;
            let engines = engines::look(&presets, Some((&held, proof.holds())), &hooks, request.live)?;
            (Some(proof), None, engines)
        }
        Err(failure) if failure.kind == crate::model::Kind::Cage => {
            let engines = engines::look(&presets, None, &hooks, false)?;
            (None, Some(failure.message), engines)
        }
        Err(failure) => return Err(failure),
    };
    let mut findings = settings::nested_sandboxes(repo);
    findings.extend(clients::findings(&hooks));
    if let Some(repo) = repo {
        findings.extend(containment::look(repo)?);
    }
    let traits = match (repo, request.traits) {
        (Some(repo), true) => Some(traits::look(repo)?),
        _ => None,
    };
    let missing = machine.missing(cage.as_ref().map(|c| c.tier.as_str()));
    Ok(Report {
        missing,
        cage,
        lacks,
        engines,
        hooks,
        ports: machine::loopback_ports(),
        findings,
        traits,
        machine,
    })
}
