//! Putting the gate into a repository and taking it out again. An existing hook is kept and called after ours.

use super::Law;
use crate::git::Repo;
use crate::ledger::signers::Signers;
use crate::model::{Failure, Kind};
use crate::os::files;
use crate::text::shell_quote;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The hooks that the gate has.
pub const HOOKS: [&str; 2] = ["pre-receive", "post-receive"];
/// By it our own hooks are known.
const MARK: &str = "# git-agent gate";
/// What a hook that was there before is called now.
const BEFORE: &str = ".before-git-agent";
const MAX_HOOK: u64 = 1 << 20;

/// What the administrator set, below `agent/gate/` of the repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    v: u64,
    /// Whether there are root signers; then their file must be there.
    root: bool,
}

fn at(common: &Path, name: &str) -> PathBuf {
    common.join("agent/gate").join(name)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    files::read_bounded(path, MAX_HOOK)
        .map_err(|e| Failure::fatal(format!("cannot read '{}'", path.display())).because(e))
}

impl Installed {
    /// A hook that runs without its record was copied here by hand, which is as good without root signers.
    pub(super) fn read(common: &Path) -> Result<Self, Failure> {
        let path = at(common, "installed");
        let Some(bytes) = read(&path)? else { return Ok(Self { v: 1, root: false }) };
        let read: Self = serde_json::from_slice(&bytes)
            .map_err(|e| Failure::fatal(format!("'{}' cannot be read", path.display())).because(e))?;
        if read.v != 1 {
            return Err(Failure::fatal(format!("'{}' has format version {}", path.display(), read.v))
                .hint("install a newer git-agent"));
        }
        Ok(read)
    }

    pub(super) fn root(&self, common: &Path) -> Result<Option<Signers>, Failure> {
        if !self.root {
            return Ok(None);
        }
        let path = at(common, "root_signers");
        let lost = || Failure::fatal(format!("the root signers '{}' are gone", path.display()));
        let text = read(&path)?.ok_or_else(lost)?;
        Signers::parse(&text, b"", None).map(Some)
    }
}

/// Where git looks for this repository's hooks.
fn hooks(repo: &Repo) -> Result<PathBuf, Failure> {
    // Our own calls set it for themselves.
    let written = |s: crate::git::Scope| s != crate::git::Scope::Command;
    let set = repo.config()?.iter().filter(|(s, k, _)| written(*s) && *k == "core.hookspath").last();
    match set.map(|(_, _, path)| path) {
        None => Ok(repo.common_dir().join("hooks")),
        Some(path) => Err(Failure::fatal(format!(
            "core.hooksPath is '{}': hooks there would be those of other repositories, too",
            crate::text::Untrusted::new(path)
        ))
        .hint(format!(
            "git -C {} config --unset core.hooksPath",
            shell_quote(&repo.common_dir().to_string_lossy())
        ))),
    }
}

fn is_ours(hook: &Path) -> Result<bool, Failure> {
    Ok(read(hook)?.is_some_and(|b| b.windows(MARK.len()).any(|w| w == MARK.as_bytes())))
}

/// What was done, a sentence each.
pub fn install(repo: &Repo, root_signers: Option<&Path>, program: &Path) -> Result<Vec<String>, Failure> {
    let cannot = |what: &str, path: &Path, e: std::io::Error| {
        Failure::fatal(format!("cannot {what} '{}'", path.display())).because(e)
    };
    let common = repo.common_dir();
    let dir = hooks(repo)?;
    let mut done = Vec::new();
    let mut installed = Installed::read(common)?;
    let tip = repo.head_branch()?.map(|b| repo.ref_tip(&b)).transpose()?.flatten();
    let has_signers = matches!(Law::at(repo, tip.as_ref())?, Law::Ready(a) if a.signers.is_some());
    if root_signers.is_none() && !installed.root && !has_signers {
        return Err(Failure::new(
            Kind::Consent,
            "nobody could ever approve here: the protected branch has no signers, and no root signers are named",
        )
        .hint("git agent gate install --root-signers FILE, with lines as in allowed_signers of ssh-keygen(1)"));
    }
    files::create_dirs(&at(common, ""), 0o755).map_err(|e| cannot("create", &at(common, ""), e))?;
    if let Some(file) = root_signers {
        let text =
            read(file)?.ok_or_else(|| Failure::fatal(format!("there is no file '{}'", file.display())))?;
        if Signers::parse(&text, b"", None)?.is_empty() {
            return Err(Failure::fatal(format!("'{}' names nobody", file.display())));
        }
        let to = at(common, "root_signers");
        files::write_atomic(&to, &text, 0o644).map_err(|e| cannot("write", &to, e))?;
        installed.root = true;
        done.push("root signers are set".into());
    }
    let record = serde_json::to_vec(&installed).map_err(|e| Failure::fatal(e.to_string()))?;
    let to = at(common, "installed");
    files::write_atomic(&to, &record, 0o644).map_err(|e| cannot("write", &to, e))?;
    files::create_dirs(&dir, 0o755).map_err(|e| cannot("create", &dir, e))?;
    // post-receive first: a gate that judges and never heals would be the worse half.
    for name in HOOKS.iter().rev() {
        let hook = dir.join(name);
        let there = files::lstat(&hook).map_err(|e| cannot("look at", &hook, e))?.is_some();
        if there && !is_ours(&hook)? {
            let kept = dir.join(format!("{name}{BEFORE}"));
            files::rename_noreplace(&hook, &kept).map_err(|e| cannot("keep", &hook, e))?;
            done.push(format!("{name} was there already and is called after the gate, as {name}{BEFORE}"));
        }
        let text = format!(
            "#!/bin/sh\n{MARK}: git-agent-gate(7); away with it: git agent gate uninstall\nexec {} gate {name}\n",
            shell_quote(&program.to_string_lossy())
        );
        files::write_atomic(&hook, text.as_bytes(), 0o755).map_err(|e| cannot("write", &hook, e))?;
    }
    done.push(format!("the gate stands in '{}'", dir.display()));
    Ok(done)
}

/// Takes our hooks away and puts back those that were there before.
pub fn uninstall(repo: &Repo) -> Result<Vec<String>, Failure> {
    let dir = hooks(repo)?;
    let cannot = |path: &Path, e: std::io::Error| {
        Failure::fatal(format!("cannot change '{}'", path.display())).because(e)
    };
    let mut done = Vec::new();
    for name in HOOKS {
        let (hook, kept) = (dir.join(name), dir.join(format!("{name}{BEFORE}")));
        if !is_ours(&hook)? {
            continue;
        }
        if files::lstat(&kept).map_err(|e| cannot(&kept, e))?.is_some() {
            files::rename(&kept, &hook).map_err(|e| cannot(&hook, e))?;
            done.push(format!("{name} is what it was before"));
        } else {
            files::remove_file(&hook).map_err(|e| cannot(&hook, e))?;
            done.push(format!("{name} is gone"));
        }
    }
    if done.is_empty() {
        return Err(Failure::new(Kind::No, "there is no gate here"));
    }
    Ok(done)
}

/// The hook that was there before ours, if there was one.
pub fn chained(name: &str) -> Option<PathBuf> {
    let git_dir = std::env::var_os("GIT_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let path = std::fs::canonicalize(git_dir).ok()?.join("hooks").join(format!("{name}{BEFORE}"));
    path.exists().then_some(path)
}

/// How a repository's gate is.
#[derive(Debug)]
pub struct Status {
    /// The hooks that call us.
    pub ours: Vec<&'static str>,
    /// Hooks that are called after ours.
    pub chained: Vec<&'static str>,
    /// Whether there are root signers.
    pub root: bool,
    /// How many keys may sign approvals; `None` when that cannot be read or there are no signers.
    pub signers: Option<usize>,
    /// The branch whose policy is the law, full name.
    pub protected: Option<String>,
    /// What is wrong, a sentence each.
    pub wrong: Vec<String>,
}

/// Looks; and heals what a push that died left undone.
pub fn status(repo: &Repo, now: i64) -> Result<Status, Failure> {
    let dir = hooks(repo)?;
    let installed = Installed::read(repo.common_dir())?;
    let mut wrong = Vec::new();
    let mut ours = Vec::new();
    for name in HOOKS {
        if is_ours(&dir.join(name))? {
            ours.push(name)
        } else {
            wrong.push(format!("{name} is not the gate's"))
        }
    }
    if let Err(e) = installed.root(repo.common_dir()) {
        wrong.push(e.to_string());
    }
    if !ours.is_empty() {
        wrong.extend(super::hook::heal(repo, &installed, None, now)?);
    }
    let protected = repo.head_branch()?;
    let tip = protected.as_deref().map(|b| repo.ref_tip(b)).transpose()?.flatten();
    let signers = match Law::at(repo, tip.as_ref())? {
        Law::Ready(a) => a.signers.map(|s| s.rows(now).len()),
        Law::Unsigned(_, why) | Law::Unreadable(why) => {
            wrong.push(why);
            None
        }
    };
    let chained = HOOKS.into_iter().filter(|n| dir.join(format!("{n}{BEFORE}")).exists()).collect();
    Ok(Status { ours, chained, root: installed.root, signers, protected, wrong })
}
