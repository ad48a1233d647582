//! A repository: where it is and what it is.

use super::{Call, Config, Error, Objects, Place, Scope};
use crate::model::{Failure, HashKind};
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How refs are stored (`extensions.refStorage`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefFormat {
    /// One file a ref, and `packed-refs`.
    Files,
    /// reftable, git 2.45 and later.
    Reftable,
}

/// A git version, major and minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

impl Version {
    /// The oldest git we work with (Debian 12).
    pub const FLOOR: Version = Version(2, 39);

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix("git version ")?.split('.');
        Some(Version(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

/// An existing repository, seen from one of its work trees (or from the bare repository itself).
#[derive(Debug)]
pub struct Repo {
    git_dir: PathBuf,
    common_dir: PathBuf,
    work_tree: Option<PathBuf>,
    hash: HashKind,
    place: Place,
    /// Whether `-c` settings of a git that called us count.
    steerable: bool,
    config: OnceCell<Config>,
    objects: OnceCell<Objects>,
    version: OnceCell<Version>,
}

impl Repo {
    /// Finds the repository a user means when standing in `start`, as git would: `GIT_DIR` and
    /// `GIT_WORK_TREE` of the caller count here and nowhere else.
    pub fn discover(start: &Path) -> Result<Self, Failure> {
        let call = Call::new("rev-parse", &Place::default())
            .inherit("GIT_DIR")
            .inherit("GIT_WORK_TREE")
            .inherit("GIT_COMMON_DIR")
            .inherit("GIT_CEILING_DIRECTORIES")
            .inherit("GIT_DISCOVERY_ACROSS_FILESYSTEM");
        let repo = Self::ask(call.current_dir(start)).map_err(|e| explain(start, e))?;
        let steered = std::env::var_os("GIT_DIR").is_some() && std::env::var_os("GIT_WORK_TREE").is_none();
        if steered && let Some(tree) = repo.own_work_tree() {
            // A hook or an alias exports GIT_DIR alone; git then takes the current folder for the work tree,
            // wrong in a sub-directory. The git dir knows better.
            return Self::ask(Call::new("rev-parse", &Place::default()).current_dir(&tree))
                .map_err(|e| explain(&tree, e));
        }
        Ok(repo)
    }

    /// The repository in exactly this folder, whatever the caller's environment names.
    pub fn at(dir: &Path) -> Result<Self, Failure> {
        Self::ask(Call::new("rev-parse", &Place::default()).current_dir(dir)).map_err(|e| explain(dir, e))
    }

    /// The repository with this git dir, whatever the environment or the folder above it says.
    pub fn at_git_dir(git_dir: &Path) -> Result<Self, Failure> {
        let git_dir = std::fs::canonicalize(git_dir)
            .map_err(|e| Failure::fatal(format!("cannot find '{}'", git_dir.display())).because(e))?;
        let place = Place { git_dir: Some(git_dir.clone()), ..Place::default() };
        let mut repo = Self::ask(Call::new("rev-parse", &place).current_dir(&git_dir))
            .map_err(|e| explain(&git_dir, e))?;
        repo.steerable = false;
        Ok(repo)
    }

    /// Reads objects from a quarantine, too. Nothing may be written afterwards.
    pub(super) fn look_into(&mut self, quarantine: PathBuf, objects: PathBuf) {
        self.place.objects = Some(quarantine);
        self.place.alternates = Some(objects);
        self.objects = OnceCell::new();
    }

    fn ask(call: Call) -> Result<Self, Error> {
        let answer = call
            .args(["--path-format=absolute", "--show-object-format", "--is-bare-repository", "--git-dir"])
            .args(["--git-common-dir", "--show-toplevel"])
            .start()?
            .finish_whatever()?;
        let bad = |what: &str| Error::Unreadable { verb: "rev-parse".into(), what: what.into() };
        // --show-toplevel comes last because it fails where there is no work tree; what came before stands.
        let mut lines = answer.stdout.split(|b| *b == b'\n');
        let hash = match lines.next() {
            Some(b"sha1") => HashKind::Sha1,
            Some(b"sha256") => HashKind::Sha256,
            Some(b"") | None => {
                return Err(Error::Failed {
                    verb: "rev-parse".into(),
                    status: answer.status,
                    stderr: answer.stderr,
                });
            }
            Some(_) => return Err(bad("an unknown object format")),
        };
        let _bare = lines.next().ok_or_else(|| bad("no bareness"))?;
        let path =
            |l: Option<&[u8]>| l.filter(|l| !l.is_empty()).map(|l| PathBuf::from(OsStr::from_bytes(l)));
        let git_dir = path(lines.next()).ok_or_else(|| bad("no git dir"))?;
        let common_dir = path(lines.next()).ok_or_else(|| bad("no common dir"))?;
        let work_tree = path(lines.next());
        // Answers are told apart by line; a folder whose name has a line feed would become two others.
        let whole = |p: &PathBuf| p.is_absolute();
        if ![&git_dir, &common_dir].into_iter().chain(&work_tree).all(whole) || lines.any(|l| !l.is_empty()) {
            return Err(bad("a path with a line feed"));
        }
        let place =
            Place { git_dir: Some(git_dir.clone()), work_tree: work_tree.clone(), ..Place::default() };
        Ok(Self {
            git_dir,
            common_dir,
            work_tree,
            hash,
            place,
            steerable: true,
            config: OnceCell::new(),
            objects: OnceCell::new(),
            version: OnceCell::new(),
        })
    }

    /// The work tree a git dir belongs to by its own records: the folder around `.git`, or what a linked
    /// work tree's `gitdir` file says.
    fn own_work_tree(&self) -> Option<PathBuf> {
        if self.git_dir.file_name() == Some(OsStr::new(".git")) {
            return self.git_dir.parent().map(Path::to_owned);
        }
        let recorded = std::fs::read(self.git_dir.join("gitdir")).ok()?;
        let recorded = recorded.strip_suffix(b"\n").unwrap_or(&recorded);
        self.git_dir.join(OsStr::from_bytes(recorded)).parent().map(Path::to_owned)
    }

    /// The git dir of the current work tree.
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// The git dir that all work trees share.
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// The work tree's top level; `None` in a bare repository or inside a git dir.
    pub fn work_tree(&self) -> Option<&Path> {
        self.work_tree.as_deref()
    }

    /// The folder people call by the project's name: the main work tree, else the bare repository.
    pub fn main_folder(&self) -> &Path {
        match self.common_dir.parent() {
            Some(parent) if self.common_dir.file_name() == Some(OsStr::new(".git")) => parent,
            _ => &self.common_dir,
        }
    }

    /// The object hash.
    pub fn hash(&self) -> HashKind {
        self.hash
    }

    /// Where calls for this repository work.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// How refs are stored.
    pub fn ref_format(&self) -> Result<RefFormat, Error> {
        let reftable = self.config()?.get("extensions.refstorage") == Some("reftable");
        Ok(if reftable { RefFormat::Reftable } else { RefFormat::Files })
    }

    /// The configuration, read once.
    pub fn config(&self) -> Result<&Config, Error> {
        if self.config.get().is_none() {
            let call = Call::new("config", &self.place);
            let call = if self.steerable { call.inherit("GIT_CONFIG_PARAMETERS") } else { call };
            let call = call.args(["--list", "-z", "--show-scope"]);
            let config = Config::parse(&call.output()?, &self.foreign_scopes())?;
            let _ = self.config.set(config);
        }
        Ok(self.config.get().expect("set just above"))
    }

    /// `GIT_CONFIG_GLOBAL` and `GIT_CONFIG_SYSTEM` may name any file. One inside the repository is the
    /// repository's word, not the person's. (Elsewhere it cannot be told from the person's: whoever sets
    /// our environment can set HOME as well.)
    fn foreign_scopes(&self) -> Vec<Scope> {
        let inside = |path: &Path| {
            let Ok(path) = std::fs::canonicalize(path) else { return false };
            let ours = [Some(self.common_dir()), Some(self.git_dir()), self.work_tree()];
            ours.into_iter()
                .flatten()
                .filter_map(|o| std::fs::canonicalize(o).ok())
                .any(|o| path.starts_with(o))
        };
        [("GIT_CONFIG_GLOBAL", Scope::Global), ("GIT_CONFIG_SYSTEM", Scope::System)]
            .into_iter()
            .filter(|(name, _)| std::env::var_os(name).is_some_and(|p| inside(Path::new(&p))))
            .map(|(_, scope)| scope)
            .collect()
    }

    /// The object store.
    pub fn objects(&self) -> Result<&Objects, Error> {
        if self.objects.get().is_none() {
            let shared = self.config()?.get("core.sharedrepository").is_some();
            let _ = self.objects.set(Objects::open(self, shared));
        }
        Ok(self.objects.get().expect("set just above"))
    }

    /// The version of the git we call.
    pub fn version(&self) -> Result<Version, Error> {
        if let Some(v) = self.version.get() {
            return Ok(*v);
        }
        let text = Call::new("version", &Place::default()).text()?;
        let version = Version::parse(&text)
            .ok_or_else(|| Error::Unreadable { verb: "version".into(), what: format!("{text:?}") })?;
        Ok(*self.version.get_or_init(|| version))
    }

    /// Refuses a git below [`Version::FLOOR`] by name.
    pub fn require_version(&self) -> Result<(), Failure> {
        let found = self.version()?;
        if found < Version::FLOOR {
            return Err(Failure::fatal(format!("git {}.{} is too old", found.0, found.1)).hint(format!(
                "install git {}.{} or later",
                Version::FLOOR.0,
                Version::FLOOR.1
            )));
        }
        Ok(())
    }
}

/// Turns "rev-parse failed" into what a person needs, by looking instead of reading git's English.
fn explain(start: &Path, error: Error) -> Failure {
    if matches!(error, Error::NoGit(_)) {
        return error.into();
    }
    let place = Place::default();
    let found = start.ancestors().find(|d| d.join(".git").exists());
    let version = Call::new("version", &place).text().ok().and_then(|t| Version::parse(&t));
    if let (Some(found), Some(version)) = (found, version) {
        let config = found.join(".git/config");
        let value = Call::new("config", &place)
            .arg("-f")
            .arg(&config)
            .args(["--get", "extensions.refstorage"])
            .text()
            .unwrap_or_default();
        if value == "reftable" && version < Version(2, 45) {
            return Failure::fatal(format!(
                "this repository stores its refs as reftable, which git {}.{} cannot read: '{}'",
                version.0,
                version.1,
                found.display()
            ))
            .hint("put git 2.45 or later first on PATH");
        }
        return Failure::fatal(format!("the repository at '{}' cannot be opened", found.display()))
            .because(error.to_string());
    }
    match version {
        Some(v) if v < Version::FLOOR => Failure::fatal(format!("git {}.{} is too old", v.0, v.1))
            .hint(format!("install git {}.{} or later", Version::FLOOR.0, Version::FLOOR.1)),
        _ if std::env::var_os("GIT_DIR").is_some() => {
            Failure::fatal("GIT_DIR names no git repository").because(error.to_string()).hint("unset GIT_DIR")
        }
        _ => Failure::fatal(format!("not a git repository (or any of its parents): '{}'", start.display()))
            .hint("run it inside a repository, or make one with 'git init'"),
    }
}
