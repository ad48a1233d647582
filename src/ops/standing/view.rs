//! What a run without a copy sees of the repository's configuration. `.git/config` may hold passwords: in URLs,
//! in `http.*.extraHeader`, in a credential helper. A file that holds nothing but what is known to be harmless
//! is shown as it is. Else it is hidden, and git is pointed (`GIT_COMMON_DIR`) at a folder with a cleaned copy
//! beside links to everything else; HEAD, index and refs stay the real ones.

use crate::git::{Call, Config, Place, Repo, Scope};
use crate::model::{Actor, Failure};
use crate::ops::store::{personal, section, without_user};
use crate::os::files;
use crate::os::process::Identity;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Sections that hold nothing secret but, in a URL, a user.
const SECTIONS: &[&str] = &[
    "add",
    "advice",
    "agent",
    "am",
    "apply",
    "author",
    "blame",
    "branch",
    "checkout",
    "clean",
    "clone",
    "color",
    "column",
    "commit",
    "committer",
    "core",
    "diff",
    "extensions",
    "feature",
    "fetch",
    "filter",
    "fmt-merge-msg",
    "format",
    "gc",
    "grep",
    "gui",
    "help",
    "i18n",
    "index",
    "init",
    "interactive",
    "lfs",
    "log",
    "maintenance",
    "merge",
    "mergetool",
    "notes",
    "pack",
    "protocol",
    "pull",
    "push",
    "rebase",
    "receive",
    "remote",
    "rerere",
    "reset",
    "revert",
    "sequence",
    "showbranch",
    "stash",
    "status",
    "submodule",
    "switch",
    "tag",
    "transfer",
    "trailer",
    "uploadarchive",
    "uploadpack",
    "url",
    "user",
    "versionsort",
    "worktree",
];
/// Settings that start programs, or that git would write for.
const PROGRAMS: &[&str] = &[
    "core.hookspath",
    "core.fsmonitor",
    "core.sshcommand",
    "core.askpass",
    "core.gitproxy",
    "core.alternaterefscommand",
];
/// What git itself keeps in a git directory, but for its configuration. Anything else there is not shown: it may be
/// a file with passwords, and git inside does not miss it.
const OF_GIT: &[&str] = &[
    "branches",
    "commondir",
    "description",
    "gitdir",
    "index",
    "info",
    "lfs",
    "locked",
    "logs",
    "modules",
    "objects",
    "packed-refs",
    "rebase-apply",
    "rebase-merge",
    "refs",
    "reftable",
    "rr-cache",
    "sequencer",
    "shallow",
    "worktrees",
];
/// Entries of a git directory that are not shown with a cleaned configuration.
const LEFT_OUT: &[&str] = &["config", "config.worktree"];
/// Configuration files of submodules and other work trees that are looked at.
const MOST_FILES: usize = 500;
/// How deep included files may include others (git's own limit).
const MOST_INCLUDES: usize = 10;

/// What stays hidden, and where git looks instead.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Files with secrets.
    pub hidden: Vec<PathBuf>,
    /// Files in the tree that the person's own git reads its configuration or its hooks from: whoever writes them
    /// writes what git does next.
    pub steering: Vec<PathBuf>,
    /// Variables for the engine.
    pub env: Vec<(OsString, OsString)>,
}

impl View {
    /// Looks at every configuration file below the git directory, and makes `folder` where a cleaned copy is
    /// needed.
    pub fn of(repo: &Repo, top: &Path, folder: &Path) -> Result<Self, Failure> {
        let mut view = Self::default();
        let (git_dir, common) = (repo.git_dir(), repo.common_dir());
        let own = [common.join("config"), common.join("config.worktree"), git_dir.join("config.worktree")];
        let mut clean = true;
        for folder in [git_dir, common] {
            view.hidden.extend(foreign(folder));
        }
        for file in &own {
            clean &= view.look(repo, file, 0)?;
        }
        view.steering.extend(steering(repo, top)?);
        view.steering.retain(|p| p.starts_with(top) && p != top);
        let mut others = Vec::new();
        below(&common.join("worktrees"), "config.worktree", &mut others);
        below(&common.join("modules"), "config", &mut others);
        if others.len() >= MOST_FILES {
            // More than anyone looks at.
            view.hidden.extend([common.join("worktrees"), common.join("modules")]);
        }
        for file in others.iter().filter(|f| !own.contains(f)) {
            view.look(repo, file, 0)?;
        }
        if clean {
            return Ok(view);
        }
        let fail = |e: std::io::Error| {
            Failure::fatal("a copy of the repository's configuration could not be made").because(e)
        };
        make(repo, folder).map_err(fail)?;
        view.env = vec![
            ("GIT_DIR".into(), git_dir.into()),
            ("GIT_COMMON_DIR".into(), folder.into()),
            ("GIT_WORK_TREE".into(), top.into()),
        ];
        Ok(view)
    }

    /// Hides a file that is not clean, and what it includes. A file that cannot be read is not clean.
    fn look(&mut self, repo: &Repo, file: &Path, depth: usize) -> Result<bool, Failure> {
        let found = files::lstat(file)
            .map_err(|e| Failure::fatal(format!("'{}' cannot be looked at", file.display())).because(e))?;
        if found.is_none() {
            return Ok(true);
        }
        let place = Place { git_dir: Some(repo.git_dir().to_owned()), ..Place::default() };
        let listed = Call::new("config", &place).args(["--list", "-z", "-f"]).arg(file).run()?;
        let text = if listed.status == 0 { listed.stdout } else { b"unreadable.file\n\0".to_vec() };
        let mut clean = true;
        for entry in text.split(|b| *b == 0).filter(|e| !e.is_empty()) {
            let entry = String::from_utf8_lossy(entry);
            let (key, value) = entry.split_once('\n').unwrap_or((&entry, "true"));
            clean &= cleaned(key, value).as_deref() == Some(value);
            if key.starts_with("include") && key.ends_with(".path") {
                let path = file.parent().unwrap_or(Path::new("/")).join(in_home(value));
                if depth < MOST_INCLUDES {
                    self.look(repo, &path, depth + 1)?;
                }
                // Also one that is not there yet.
                self.steering.push(normal(&path));
            }
        }
        // What is tracked can be read from the objects, too.
        if !clean && !is_tracked(repo, file)? {
            self.hidden.push(normal(file));
        }
        Ok(clean)
    }
}

/// Whether a file is one of the work tree that git tracks.
fn is_tracked(repo: &Repo, file: &Path) -> Result<bool, Failure> {
    let file = normal(file);
    let Some(top) =
        repo.work_tree().filter(|top| file.starts_with(top) && !file.starts_with(repo.common_dir()))
    else {
        return Ok(false);
    };
    let asked = repo.call("ls-files").args(["-z", "--error-unmatch", "--"]).arg(&file).current_dir(top);
    Ok(asked.ask()?)
}

/// A path as a setting has it.
fn in_home(path: &str) -> PathBuf {
    let home = || std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    path.strip_prefix("~/").map_or_else(|| path.into(), |rest| home().join(rest))
}

/// Without `.` and `..`: the file may not exist.
fn normal(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                whole.pop();
            }
            std::path::Component::CurDir => {}
            part => whole.push(part),
        }
    }
    std::fs::canonicalize(&whole).unwrap_or(whole)
}

/// Entries of a git directory that git did not make.
fn foreign(git_dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(git_dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        // HEAD, ORIG_HEAD, MERGE_MSG, AUTO_MERGE and their like.
        let upper = text.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        let known = upper || OF_GIT.contains(&&*text) || text.starts_with("sharedindex.");
        if !known && !text.starts_with("config") {
            found.push(entry.path());
        }
    }
    found
}

/// Where in the tree git reads what it does: configuration of every scope, and hooks.
fn steering(repo: &Repo, top: &Path) -> Result<Vec<PathBuf>, Failure> {
    let listed = repo.call("config").args(["--list", "-z", "--show-origin", "--name-only"]).current_dir(top);
    let listed = listed.output()?;
    let origins = listed.split(|b| *b == 0).filter_map(|p| p.strip_prefix(b"file:"));
    let mut found: Vec<PathBuf> = origins.map(|p| normal(&top.join(OsStr::from_bytes(p)))).collect();
    // Our own calls say /dev/null.
    let hooks = repo.config()?.iter().filter(|(s, key, _)| *s != Scope::Command && *key == "core.hookspath");
    found.extend(hooks.map(|(.., hooks)| normal(&top.join(in_home(hooks)))));
    Ok(found)
}

/// The value that may be seen; `None` when nothing of the entry may. `key` in git's normal form.
fn cleaned(key: &str, value: &str) -> Option<String> {
    let section = key.split('.').next().unwrap_or_default();
    let header = ["http.", "credential.", "include"].iter().any(|s| key.starts_with(s));
    if header || !SECTIONS.contains(&section) || PROGRAMS.contains(&key) {
        return None;
    }
    // `url.<base>.insteadOf`, `branch.<url>.*`, `lfs.<url>.*` carry a URL in the key; `!` starts a shell.
    if without_user(key) != key || section == "lfs" && (key.contains('@') || value.contains('@')) {
        return None;
    }
    // More than one URL, or one with something before it.
    let alone = value.matches("://").count() < 2 && !value.contains([' ', '\t']);
    match without_user(value) {
        same if same == value => Some(same),
        other if alone => Some(other),
        _ => None,
    }
}

/// Configuration files of one name, some levels down, following no link.
fn below(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
    let mut pending = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = pending.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let part = entry.file_name();
            if kind.is_dir() && depth < 8 && part != "objects" && part != "refs" && part != "logs" {
                pending.push((entry.path(), depth + 1));
            } else if part == name && found.len() < MOST_FILES {
                found.push(entry.path());
            }
        }
    }
}

/// The folder that stands for the common git directory.
fn make(repo: &Repo, folder: &Path) -> std::io::Result<()> {
    if files::lstat(folder)?.is_none() {
        files::create_dir(folder, 0o755)?;
    }
    let config = repo.config().map_err(std::io::Error::other)?;
    files::write_atomic(&folder.join("config"), text(config).as_bytes(), 0o644)?;
    let foreign = foreign(repo.common_dir());
    for entry in std::fs::read_dir(repo.common_dir())? {
        let name = entry?.file_name();
        let link = folder.join(&name);
        let path = repo.common_dir().join(&name);
        let hidden = LEFT_OUT.iter().any(|l| name == *l) || foreign.contains(&path);
        if !hidden && files::lstat(&link)?.is_none() {
            files::symlink(&repo.common_dir().join(&name), &link)?;
        }
    }
    Ok(())
}

/// The repository's configuration, as far as it may be seen, in git's syntax. Includes are resolved.
fn text(config: &Config) -> String {
    let mut text = String::new();
    for (_, key, value) in config.iter().filter(|(s, ..)| matches!(s, Scope::Local | Scope::Worktree)) {
        // What was the work tree's own is in this file now.
        let Some(value) = cleaned(key, value).filter(|_| key != "extensions.worktreeconfig") else {
            continue;
        };
        let Some((head, name)) = key.rsplit_once('.') else { continue };
        let (main, sub) = head.split_once('.').map_or((head, None), |(main, sub)| (main, Some(sub)));
        section(&mut text, main, sub, &[(name, &value)]);
    }
    text
}

/// The configuration in the engine's own home: who commits, in repositories of its tests too, and the person's
/// ignore rules.
pub(super) fn home(repo: &Repo, actor: &Actor, home: &Path, owner: Option<Identity>) -> std::io::Result<()> {
    let mut text = String::new();
    section(&mut text, "user", None, &[("name", &actor.name), ("email", &actor.email)]);
    // The tree belongs to the person, and the engine may be another user.
    section(&mut text, "safe", None, &[("directory", "*")]);
    section(&mut text, "core", None, &[("fsmonitor", "false")]);
    section(&mut text, "gc", None, &[("auto", "0")]);
    section(&mut text, "maintenance", None, &[("auto", "false")]);
    let config = repo.config().map_err(std::io::Error::other)?;
    let ignore = personal(config, "core.excludesfile", "ignore").map_err(std::io::Error::other)?;
    for folder in [home.join(".config"), home.join(".config/git")] {
        files::create_dir_for(&folder, 0o755, owner)?;
    }
    for (file, bytes) in [(".gitconfig", text.as_bytes()), (".config/git/ignore", &ignore)] {
        files::write_new(&home.join(file), bytes, 0o644)?;
        files::give(&home.join(file), owner)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::cleaned;

    #[test]
    fn only_what_is_known_to_be_harmless_is_seen() {
        for (key, value, seen) in [
            ("core.bare", "false", Some("false")),
            ("remote.origin.url", "git@h.example:x", Some("git@h.example:x")),
            ("remote.origin.url", "https://u:p@h.example/x", Some("https://h.example/x")),
            (
                "remote.origin.fetch",
                "+refs/heads/*:refs/remotes/origin/*",
                Some("+refs/heads/*:refs/remotes/origin/*"),
            ),
            ("branch.main.merge", "refs/heads/main", Some("refs/heads/main")),
            ("http.https://h.example/.extraheader", "AUTHORIZATION: basic x", None),
            ("credential.helper", "!echo password=x", None),
            ("core.sshcommand", "ssh -i key", None),
            ("core.hookspath", ".husky", None),
            ("url.https://u:p@h.example/.insteadof", "h:", None),
            ("github.token", "x", None),
            ("alias.x", "!curl https://u:p@h.example/", None),
            ("remote.origin.proxy", "http://u:p@h.example", Some("http://h.example")),
            ("merge.x.driver", "run https://u:p@h.example/ %A", None),
            ("include.path", "more", None),
            ("includeif.gitdir:x.path", "more", None),
        ] {
            assert_eq!(cleaned(key, value).as_deref(), seen, "{key}");
        }
    }
}
