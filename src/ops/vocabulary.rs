//! Names that can stand on a command line, for completion. Reads, and knows less where reading fails.

use super::spawn::in_force;
use crate::clients::PRESETS;
use crate::git::Repo;
use crate::model::Failure;
use crate::policy::{Policy, RoleKind};
use std::collections::BTreeMap;

/// The policy in force, or the built-in one where there is none that may be used.
fn policy(repo: &Repo) -> Result<Policy, Failure> {
    let Some(head) = repo.commit_of("HEAD")? else { return Ok(Policy::built_in().clone()) };
    Ok(in_force(repo, &head).map_or_else(|_| Policy::built_in().clone(), |(policy, ..)| policy))
}

/// The roles that the policy declares, each with its kind.
pub fn roles(repo: &Repo) -> Result<Vec<(String, &'static str)>, Failure> {
    let kind = |kind| if kind == RoleKind::Reader { "reader" } else { "writer" };
    Ok(policy(repo)?.roles().map(|(name, rule)| (name.to_owned(), kind(rule.kind))).collect())
}

/// The engines that can be named, each with where it is known from.
pub fn engines(repo: &Repo) -> Result<Vec<(String, &'static str)>, Failure> {
    let mut all: BTreeMap<String, &'static str> =
        PRESETS.iter().map(|p| (p.name.to_owned(), "built in")).collect();
    all.extend(policy(repo)?.engines().map(|(name, _)| (name.to_owned(), "from the policy")));
    Ok(all.into_iter().collect())
}
