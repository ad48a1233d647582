//! Checkout: an ordinary work tree of a run's snapshot in the main repository, where remotes, editors and
//! forges' tools work. It is the user's: nothing of ours ever removes it.

use crate::git::{Call, Place, Repo};
use crate::ledger::Ledger;
use crate::model::{Failure, Oid, RunName};
use crate::os::files;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A work tree to be made.
#[derive(Debug)]
pub struct Plan {
    /// The run.
    pub name: RunName,
    /// Its latest snapshot.
    pub snapshot: Oid,
    /// Where.
    pub dir: PathBuf,
}

/// Decides where the latest snapshot of a run goes. `dir` is absolute; without one it is
/// `<main folder>.<name>` beside the main folder.
pub fn plan(repo: &Repo, word: &str, dir: Option<PathBuf>) -> Result<Plan, Failure> {
    let ledger = Ledger::new(repo);
    let tip = ledger.resolve(word)?;
    let head = tip.understood()?.head.clone();
    super::standing::nothing_to_land(&head)?;
    let Some(result) = head.result else {
        return Err(Failure::fatal(format!("run '{}' has no snapshot yet", head.name))
            .hint(format!("take one: git agent finish {}", head.name)));
    };
    let dir = dir.unwrap_or_else(|| beside(repo.main_folder(), &head.name));
    let shown = dir.display().to_string();
    let meta = files::lstat(&dir)
        .map_err(|e| Failure::fatal(format!("'{shown}' cannot be looked at")).because(e))?;
    let empty = || std::fs::read_dir(&dir).is_ok_and(|mut d| d.next().is_none());
    if meta.is_some_and(|m| !m.is_dir() || !empty()) {
        return Err(Failure::fatal(format!("'{shown}' exists already"))
            .hint(format!("name another folder: git agent checkout {} DIR", head.name)));
    }
    let root = ledger.home()?.root;
    if dir.starts_with(&root)
        || dir.parent().and_then(|p| std::fs::canonicalize(p).ok()).is_some_and(|p| p.starts_with(&root))
    {
        return Err(Failure::fatal(format!(
            "'{shown}' is inside the folder of runs, which belongs to prune"
        ))
        .hint(format!("name another folder: git agent checkout {} DIR", head.name)));
    }
    Ok(Plan { name: head.name, snapshot: result.snapshot, dir })
}

/// Makes it. No hook of the user's runs.
pub fn execute(repo: &Repo, plan: &Plan) -> Result<(), Failure> {
    // The common dir: wherever the caller stands, the work tree is one of the main repository.
    let place = Place { git_dir: Some(repo.common_dir().to_owned()), ..Place::default() };
    let folder = repo.common_dir();
    Call::new("worktree", &place)
        .args(["add", "--detach", "--quiet"])
        .arg("--")
        .arg(&plan.dir)
        .arg(plan.snapshot.as_str())
        .current_dir(folder)
        .output()?;
    Ok(())
}

fn beside(main: &Path, name: &RunName) -> PathBuf {
    let mut folder = match main.extension() {
        Some(e) if e == "git" => main.with_extension("").into_os_string(),
        _ => main.as_os_str().to_owned(),
    };
    folder.push(OsString::from(format!(".{name}")));
    folder.into()
}
