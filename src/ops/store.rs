//! The run's private git directory: a bare repository that borrows the main one's objects, with one linked
//! work tree. What the cage must not change (config, HEAD, pointers) is rendered here, kept in `host/fixed`,
//! and put back by freeze. Why not `git worktree add`: `docs/decisions/0003-private-store.md`.

use super::Layout;
use crate::git::{Config, RefTip, Repo};
use crate::model::{Actor, Failure, HashKind, Oid};
use crate::os::files;
use crate::os::process::Identity;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Settings of the user's that a run's store repeats. The rest of the configuration stays outside.
const COPIED: &[&str] = &[
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.filemode",
    "core.bigfilethreshold",
];

/// A file of the store or the tree with the one content it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// Path below the run folder.
    pub path: &'static str,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Who owns it: the run (`true`) or the host. git wants the pointers of a work tree owned by whoever uses it.
    pub of_run: bool,
}

/// What a store is made from.
#[derive(Debug)]
pub struct Recipe<'a> {
    /// The main repository.
    pub repo: &'a Repo,
    /// Where the run lies.
    pub layout: &'a Layout,
    /// Short name of the run's branch.
    pub branch: &'a str,
    /// Identity for the run's commits.
    pub actor: &'a Actor,
    /// Paths in the tree that no one should see as untracked: ours, and those copied in.
    pub own_files: &'a [&'a str],
}

impl Recipe<'_> {
    /// The fixed files of the run.
    pub fn fixed(&self) -> Result<Vec<Fixed>, Failure> {
        let config = self.repo.config()?;
        let mut gitdir = self.layout.tree().join(".git").as_os_str().as_bytes().to_vec();
        gitdir.push(b'\n');
        let mut dot_git = b"gitdir: ".to_vec();
        dot_git.extend_from_slice(self.layout.git_dir().as_os_str().as_bytes());
        dot_git.push(b'\n');
        let fixed = |path, bytes, of_run| Fixed { path, bytes, of_run };
        let mut all = vec![
            fixed("store/config", self.config(config).into_bytes(), false),
            fixed("store/HEAD", format!("ref: refs/heads/{}\n", self.branch).into_bytes(), false),
            fixed(ALTERNATES, alternates(self.repo), true),
            fixed("store/worktrees/tree/commondir", b"../..\n".to_vec(), true),
            fixed("store/worktrees/tree/gitdir", gitdir, true),
            fixed("tree/.git", dot_git, true),
        ];
        all.extend(rules(self.repo, self.own_files)?.into_iter().map(|(p, bytes)| fixed(p, bytes, false)));
        if let Some(shallow) = files::read_bounded(&self.repo.common_dir().join("shallow"), 64 << 20)
            .map_err(|e| Failure::fatal("the repository's 'shallow' file cannot be read").because(e))?
        {
            all.push(fixed("store/shallow", shallow, false));
        }
        Ok(all)
    }

    fn config(&self, config: &Config) -> String {
        let excludes = self.layout.store().join("info/excludes-user");
        let mut text = config_text(config, self.repo.hash(), self.actor, true);
        section(&mut text, "core", None, &[("excludesFile", &excludes.to_string_lossy())]);
        // A tracking branch would have to be written into this file, which the cage keeps read-only.
        section(&mut text, "branch", None, &[("autoSetupMerge", "false")]);
        section(&mut text, "lfs", None, &[("storage", &self.layout.store().join("lfs").to_string_lossy())]);
        for (_, key, value) in config.iter() {
            let Some((name, "url")) = key.strip_prefix("remote.").and_then(|k| k.rsplit_once('.')) else {
                continue;
            };
            let fetch = format!("+refs/heads/*:refs/remotes/{name}/*");
            let fetch = config.get(&format!("remote.{name}.fetch")).unwrap_or(&fetch);
            section(&mut text, "remote", Some(name), &[("url", &without_user(value)), ("fetch", fetch)]);
        }
        text
    }
}

/// The rules about ignoring and attributes that lie outside the tree: the repository's and the person's own.
/// git reads one global file of each kind; inside the cage they lie in the store.
pub fn rules(repo: &Repo, own_files: &[&str]) -> Result<[(&'static str, Vec<u8>); 3], Failure> {
    let config = repo.config()?;
    let mut exclude = read_text(&repo.common_dir().join("info/exclude"))?;
    line_end(&mut exclude);
    for own in own_files {
        exclude.extend_from_slice(format!("{}\n", super::include::exclude_line(own)).as_bytes());
    }
    let mut attributes = personal(config, "core.attributesfile", "attributes")?;
    line_end(&mut attributes);
    attributes.extend(read_text(&repo.common_dir().join("info/attributes"))?);
    Ok([
        ("store/info/exclude", exclude),
        ("store/info/excludes-user", personal(config, "core.excludesfile", "ignore")?),
        ("store/info/attributes", attributes),
    ])
}

/// The file that lends a store the objects of the main repository.
pub const ALTERNATES: &str = "store/objects/info/alternates";

/// Its content.
pub fn alternates(repo: &Repo) -> Vec<u8> {
    [repo.common_dir().join("objects").as_os_str().as_bytes(), b"\n"].concat()
}

/// The settings that a git directory made by us for this repository carries, for engine and snapshot alike.
pub fn config_text(config: &Config, hash: HashKind, actor: &Actor, bare: bool) -> String {
    let mut text = String::new();
    let version = if hash == HashKind::Sha1 { "0" } else { "1" };
    let bare = if bare { "true" } else { "false" };
    section(
        &mut text,
        "core",
        None,
        &[
            ("repositoryFormatVersion", version),
            ("bare", bare),
            ("logAllRefUpdates", "true"),
            ("trustCtime", "true"),
            ("checkStat", "default"),
        ],
    );
    if hash != HashKind::Sha1 {
        section(&mut text, "extensions", None, &[("objectFormat", hash.as_str())]);
    }
    section(&mut text, "gc", None, &[("auto", "0")]);
    section(&mut text, "maintenance", None, &[("auto", "false")]);
    section(&mut text, "user", None, &[("name", &actor.name), ("email", &actor.email)]);
    for key in COPIED {
        if let Some(value) = config.get(key) {
            section(&mut text, "core", None, &[(&key["core.".len()..], value)]);
        }
    }
    for (_, key, value) in config.iter() {
        let filter = key.starts_with("filter.");
        // `lfs.<url>.*` and `lfs.url` may carry user names and tokens.
        let lfs =
            key.starts_with("lfs.") && key != "lfs.storage" && !key.contains('@') && !value.contains('@');
        if !filter && !lfs {
            continue;
        }
        let Some((head, name)) = key.rsplit_once('.') else { continue };
        let (name_of_section, sub) = head.split_once('.').map_or((head, None), |(s, sub)| (s, Some(sub)));
        section(&mut text, name_of_section, sub, &[(name, value)]);
    }
    text
}

/// Appends a section in git's configuration syntax (git-config(1), "Syntax").
pub(super) fn section(text: &mut String, name: &str, sub: Option<&str>, pairs: &[(&str, &str)]) {
    let quote = |s: &str| s.replace('\\', "\\\\").replace('"', "\\\"");
    let _ = match sub {
        Some(sub) => writeln!(text, "[{name} \"{}\"]", quote(sub)),
        None => writeln!(text, "[{name}]"),
    };
    for (key, value) in pairs {
        let value = quote(value).replace('\n', "\\n").replace('\t', "\\t");
        let _ = writeln!(text, "\t{key} = \"{value}\"");
    }
}

/// A remote URL without the part that may hold a password.
pub(super) fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

/// The user's own file that a setting names, or the default below `$XDG_CONFIG_HOME/git`.
pub(super) fn personal(config: &Config, key: &str, default: &str) -> Result<Vec<u8>, Failure> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let path = match config.get(key) {
        Some(value) => match value.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => PathBuf::from(value),
        },
        None => std::env::var_os("XDG_CONFIG_HOME")
            .filter(|v| !v.is_empty())
            .map_or_else(|| home.join(".config"), PathBuf::from)
            .join("git")
            .join(default),
    };
    // A path we cannot resolve here (`%(prefix)/...`, a relative one) is as if it were absent.
    if path.is_absolute() { read_text(&path) } else { Ok(Vec::new()) }
}

fn read_text(path: &Path) -> Result<Vec<u8>, Failure> {
    // A link is fine here: dotfile managers make them, and the file is the user's own.
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match files::read_bounded(&real, 4 << 20) {
        Ok(bytes) => Ok(bytes.unwrap_or_default()),
        Err(e) => Err(Failure::fatal(format!("'{}' cannot be read", path.display())).because(e)),
    }
}

fn line_end(bytes: &mut Vec<u8>) {
    if bytes.last().is_some_and(|b| *b != b'\n') {
        bytes.push(b'\n');
    }
}

/// The refs a store starts with, as one packed-refs file (git-pack-refs(1)). `peeled` gives the commit of an
/// annotated tag.
pub fn packed_refs(mut refs: Vec<(RefTip, Option<Oid>)>) -> Vec<u8> {
    refs.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    refs.dedup_by(|a, b| a.0.name == b.0.name);
    let mut text = String::from("# pack-refs with: peeled fully-peeled sorted \n");
    for (tip, peeled) in refs {
        let _ = writeln!(text, "{} {}", tip.oid, tip.name);
        if let Some(peeled) = peeled {
            let _ = writeln!(text, "^{peeled}");
        }
    }
    text.into_bytes()
}

/// Folders of a run that its engine owns, relative to the run folder, parents first.
pub const RUN_FOLDERS: &[&str] = &[
    "tree",
    "engine",
    "engine/home",
    "tmp",
    "cache",
    "sub",
    "store/objects",
    "store/objects/info",
    "store/objects/pack",
    "store/refs",
    "store/refs/heads",
    "store/refs/tags",
    "store/packed",
    "store/logs",
    "store/lfs",
    "store/worktrees",
    "store/worktrees/tree",
];

/// Makes the folders and fixed files of a run in `dir` (which may still have its temporary name). Folders
/// are made for `owner`; what the cage must not change stays the host's.
pub fn create(
    dir: &Path,
    fixed: &[Fixed],
    packed: &[u8],
    branch: &str,
    owner: Option<Identity>,
) -> std::io::Result<()> {
    files::create_dir(&dir.join("store"), 0o755)?;
    files::create_dir(&dir.join("store/info"), 0o755)?;
    for folder in RUN_FOLDERS {
        files::create_dir_for(&dir.join(folder), 0o755, owner)?;
    }
    files::create_dirs(&dir.join("host/fixed"), 0o700)?;
    for file in fixed {
        files::write_new(&dir.join(file.path), &file.bytes, 0o644)?;
        files::write_new(&dir.join("host/fixed").join(flat(file.path)), &file.bytes, 0o600)?;
        if file.of_run {
            files::give(&dir.join(file.path), owner)?;
        }
    }
    for (path, bytes) in [
        ("store/packed/packed-refs", packed),
        ("store/worktrees/tree/HEAD", format!("ref: refs/heads/{branch}\n").as_bytes()),
    ] {
        files::write_new(&dir.join(path), bytes, 0o644)?;
        files::give(&dir.join(path), owner)?;
    }
    // `branch -D` and `tag -d` rewrite packed-refs through a lock file beside it: it needs a writable folder.
    files::symlink(Path::new("packed/packed-refs"), &dir.join("store/packed-refs"))
}

/// Name of a fixed file's reference copy in `host/fixed`.
pub fn flat(path: &str) -> String {
    path.replace('/', "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_info_never_reaches_a_run() {
        assert_eq!(without_user("https://u:p@h.example/x"), "https://h.example/x");
        assert_eq!(without_user("https://h.example/a@b"), "https://h.example/a@b");
        assert_eq!(without_user("git@h.example:x"), "git@h.example:x");
        assert_eq!(without_user("https://u:p@x@h/"), "https://h/");
    }

    #[test]
    fn sections_survive_awkward_values() {
        let mut text = String::new();
        section(&mut text, "filter", Some("a\"b"), &[("clean", "x \"y\" \\ # z")]);
        assert_eq!(text, "[filter \"a\\\"b\"]\n\tclean = \"x \\\"y\\\" \\\\ # z\"\n");
    }
}
