//! Looking at policies: whether a file is one, what a role may do and by which line, and which way a policy
//! differs from others. Changes nothing.

use super::trust::{self, Accepted, Candidate, Standing, Store};
use crate::clients;
use crate::git::Repo;
use crate::model::{Failure, Role};
use crate::os::files;
use crate::policy::{Difference, Judgement, MAX_POLICY, PATH, Policy, PolicyError, RoleRule};
use crate::text::{Untrusted, quote_path};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A policy file's bytes, and what the person knows it by.
#[derive(Debug)]
pub struct Text {
    /// As the person named it.
    pub name: String,
    /// Its bytes; more than [`MAX_POLICY`] only as a sign that it is too large.
    pub bytes: Vec<u8>,
}

/// Reads a file that the person named.
pub fn named(cwd: &Path, file: &Path) -> Result<Text, Failure> {
    let name = file.to_string_lossy().into_owned();
    let cannot =
        |e| Failure::fatal(format!("the policy '{}' cannot be read", Untrusted::new(&name))).because(e);
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(cwd.join(file)).map_err(cannot)?;
    opened.take(MAX_POLICY as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(Text { name, bytes })
}

/// Reads the work tree's file.
pub fn of_work_tree(repo: &Repo) -> Result<Text, Failure> {
    let top = repo.work_tree().ok_or_else(|| {
        Failure::fatal("there is no work tree here to read a policy from")
            .hint("name a file: git agent policy check FILE")
    })?;
    let found = files::read_bounded(&top.join(PATH), 1 << 20)
        .map_err(|e| Failure::fatal(format!("the policy '{PATH}' cannot be read")).because(e))?;
    let bytes = found.ok_or_else(|| {
        Failure::fatal(format!("there is no {PATH} in this work tree; the built-in default is in force"))
            .hint("write one: git agent init")
    })?;
    Ok(Text { name: PATH.into(), bytes })
}

/// A policy file that was looked at.
#[derive(Debug)]
pub struct Checked {
    /// Compiled.
    pub policy: Policy,
    /// What needs consent.
    pub looser: Vec<Difference>,
    /// What is no error and will not do what it seems to: one sentence each.
    pub notes: Vec<String>,
}

/// Compiles a policy and looks for what it asks in vain.
pub fn check(text: &Text) -> Result<Checked, PolicyError> {
    let policy = Policy::parse(&text.bytes, &text.name)?;
    let mut notes = Vec::new();
    for (name, rule) in policy.roles() {
        for engine in &rule.engines {
            if policy.engine(&engine.value).is_none_or(|e| e.command.is_none())
                && clients::known(&engine.value).is_none()
            {
                let (line, engine) = (engine.line, &engine.value);
                notes.push(format!("line {line}: roles.{name}.engines names '{engine}', which nobody knows"));
            }
        }
    }
    let mut unsupported: Vec<&str> = policy
        .roles()
        .filter_map(|(name, _)| name.parse::<Role>().ok())
        .flat_map(|role| policy.unsupported(&role))
        .collect();
    unsupported.sort_unstable();
    unsupported.dedup();
    if !unsupported.is_empty() {
        notes.push(format!("this version does not enforce yet: {}", unsupported.join(", ")));
    }
    Ok(Checked { looser: policy.loosenings(Policy::built_in()), policy, notes })
}

/// A policy compared with those that matter to the person.
#[derive(Debug)]
pub struct Compared {
    /// With the built-in default.
    pub built_in: Vec<Difference>,
    /// With the one that was accepted last on this machine, if one was.
    pub accepted: Option<(Accepted, Vec<Difference>)>,
}

/// Compares a policy. Without a repository nothing was accepted.
pub fn compare(repo: Option<&Repo>, policy: &Policy) -> Result<Compared, Failure> {
    let last = match repo {
        Some(repo) => Store::of(repo)?.last()?,
        None => None,
    };
    let accepted = last.and_then(|last| {
        let old = Policy::parse(last.policy.as_bytes(), PATH).ok()?;
        let found = policy.differences(&old);
        Some((last, found))
    });
    Ok(Compared { built_in: policy.differences(Policy::built_in()), accepted })
}

/// What a role may do under the policy that counts.
#[derive(Debug)]
pub struct Explained {
    /// The role.
    pub role: Role,
    /// Its rule.
    pub rule: RoleRule,
    /// The policy.
    pub candidate: Candidate,
    /// Whether that is in force.
    pub standing: Standing,
    /// The paths asked about, quoted, each with the answer.
    pub paths: Vec<(String, Judgement)>,
}

/// Explains a role. Paths are relative to `cwd`, as git's are; they need not exist.
pub fn explain(repo: &Repo, cwd: &Path, role: &str, paths: &[PathBuf]) -> Result<Explained, Failure> {
    let role: Role = role.parse().map_err(|e: crate::model::BadName| Failure::usage(e.to_string()))?;
    let candidate = trust::candidate(repo, repo.commit_of("HEAD")?.as_ref())?;
    let standing = trust::standing(repo, &candidate.policy)?;
    let rule = candidate.policy.role(&role).map_err(Failure::from)?;
    let mut judged = Vec::new();
    for path in paths {
        let inside = below(repo, cwd, path)?;
        judged.push((quote_path(&inside).into_owned(), rule.judge(&inside)));
    }
    Ok(Explained { role, rule, candidate, standing, paths: judged })
}

/// A path as the policy sees it: relative to the top level. Names only, no link is followed.
fn below(repo: &Repo, cwd: &Path, path: &Path) -> Result<Vec<u8>, Failure> {
    let top = repo.work_tree();
    let real = |p: &Path| std::fs::canonicalize(p).unwrap_or_else(|_| p.to_owned());
    let outside = || {
        let shown = Untrusted::new(path.as_os_str().as_bytes());
        Failure::usage(format!("'{shown}' is outside the work tree"))
    };
    let whole = real(cwd).join(path);
    let mut parts: Vec<&OsStr> = Vec::new();
    for part in whole.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir => drop(parts.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let plain: PathBuf = std::iter::once(OsStr::new("/")).chain(parts).collect();
    // Without a work tree there is nothing that a path could be relative to but the top level.
    let inside = match top {
        Some(top) => plain.strip_prefix(real(top)).map_err(|_| outside())?,
        None => path,
    };
    if inside.as_os_str().is_empty() {
        return Err(outside());
    }
    Ok(inside.as_os_str().as_bytes().to_vec())
}
