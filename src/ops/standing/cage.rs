//! The cage of a run without a copy: the real tree and `.git` to read, and to write the run's own folders; with
//! isolation off also the tree, but for every `.git` in it, and what the person named.

use super::view::View;
use crate::model::{Failure, Isolation};
use crate::ops::{Open, confine};
use crate::os::cage::{RunDirs, Wish, environment};
use crate::os::files::{self, Dir};
use crate::os::{process, walk};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where build tools put what they make: not into the tree. Below the run's cache.
const CACHES: &[(&str, &str)] = &[
    ("CARGO_TARGET_DIR", "cargo-target"),
    ("PYTHONPYCACHEPREFIX", "pycache"),
    ("MYPY_CACHE_DIR", "mypy"),
    ("RUFF_CACHE_DIR", "ruff"),
    ("COVERAGE_FILE", "coverage"),
    ("HYPOTHESIS_STORAGE_DIRECTORY", "hypothesis"),
    ("TOX_WORK_DIR", "tox"),
    ("UV_PROJECT_ENVIRONMENT", "venv"),
    ("GOTMPDIR", "go-tmp"),
    ("GRADLE_USER_HOME", "gradle"),
    ("NUGET_PACKAGES", "nuget"),
    ("CCACHE_DIR", "ccache"),
    ("SCCACHE_DIR", "sccache"),
    ("ZIG_LOCAL_CACHE_DIR", "zig"),
    ("MIX_BUILD_ROOT", "mix"),
    ("TURBO_CACHE_DIR", "turbo"),
    ("BABEL_CACHE_PATH", "babel.json"),
];

/// The cage for an engine, or for what a person starts in such a run.
pub fn engine(
    run: &Open<'_>,
    variables: Vec<(OsString, OsString)>,
    programs: Vec<PathBuf>,
) -> Result<confine::Held, Failure> {
    let (repo, layout) = (run.repo, &run.layout);
    let config = repo.config()?;
    let top = layout.tree();
    let user = process::current_user();
    let view = View::of(repo, &top, &layout.view())?;

    let dirs = RunDirs { engine: layout.engine(), tmp: layout.tmp(), cache: layout.cache() };
    let mut env = environment(std::env::vars_os(), &user, &dirs, &|p| p.exists());
    if run.isolation() == Isolation::Reader {
        env.extend(CACHES.iter().map(|(name, folder)| (name.into(), layout.cache().join(folder).into())));
        let mut pytest = OsString::from("-o cache_dir=");
        pytest.push(layout.cache().join("pytest"));
        env.extend([("PYTHONDONTWRITEBYTECODE".into(), "1".into()), ("PYTEST_ADDOPTS".into(), pytest)]);
        let folder = layout.cache().join("go-tmp");
        // Go wants it to exist.
        if files::lstat(&folder).is_ok_and(|m| m.is_none()) {
            files::create_dir_for(&folder, 0o755, run.identity())
                .map_err(|e| Failure::fatal("the run's cache could not be made").because(e))?;
        }
    }
    // git would refresh the index for others to gain; nobody may.
    env.push(("GIT_OPTIONAL_LOCKS".into(), "0".into()));
    env.extend(view.env);
    env.extend(variables);
    env.extend([
        ("GIT_AGENT_RUN".into(), run.folder.run.as_str().into()),
        ("GIT_AGENT_NAME".into(), run.folder.name.as_str().into()),
        ("GIT_AGENT_TASK".into(), run.task_file().into()),
    ]);

    let mut read = confine::shown(repo)?;
    read.extend([top.clone(), repo.git_dir().to_owned(), repo.common_dir().to_owned()]);
    read.extend([run.task_file(), layout.view()]);
    read.extend(programs);
    read.extend(
        config.personal_all("agent.read").into_iter().map(|p| confine::in_home(p, user.home.as_deref())),
    );
    let mut hidden = confine::hidden(run);
    hidden.extend(view.hidden);
    let mut wish = Wish {
        hidden,
        read,
        write: vec![layout.engine(), layout.tmp(), layout.cache()],
        list: vec![top.clone(), repo.git_dir().to_owned(), repo.common_dir().to_owned()],
        env,
        cwd: here(&top),
        identity: run.identity(),
        unix_sockets: config.personal("agent.unixsockets") == Some("true"),
        ..Wish::default()
    };
    if run.isolation() == Isolation::Off {
        let fail = |e: std::io::Error| {
            Failure::fatal(format!("'{}' cannot be made writable", top.display())).because(e)
        };
        wish.identity = super::owner(&top).map_err(fail)?;
        wish.keep_root = process::is_root() && wish.identity.is_none();
        let mut open = named(&layout.host().join("write")).map_err(fail)?;
        open.push(top.clone());
        for folder in open.iter().filter(|f| f.is_dir()) {
            wish.protect.extend(repositories(folder).map_err(fail)?);
        }
        // Also where it does not exist, since git is pointed elsewhere by a variable.
        wish.protect.push(top.join(".git"));
        wish.protect.extend([repo.git_dir().to_owned(), repo.common_dir().to_owned()]);
        wish.protect.extend(view.steering);
        wish.write.extend(open);
    }
    confine::hold(run, wish)
}

/// Where the caller stands, if that is in the tree; else its top level.
fn here(top: &Path) -> PathBuf {
    std::env::current_dir().ok().filter(|c| c.starts_with(top)).unwrap_or_else(|| top.to_owned())
}

/// The `.git` of a folder, which replaced by another would be the engine's word to the person's own git, and every
/// repository below: the record of the tree knows it by its commit alone, so that nothing in it could be taken back.
fn repositories(top: &Path) -> std::io::Result<Vec<PathBuf>> {
    let dir = Dir::open(top)?;
    let found = walk::survey::<std::io::Error>(dir.as_fd(), &|_| false, &mut |_, folders| Ok(folders))?;
    let of = |folder: &Vec<u8>| top.join(OsStr::from_bytes(folder));
    let nested = found.nested.iter().map(of);
    let own = Some(top.join(".git")).filter(|p| files::lstat(p).is_ok_and(|m| m.is_some()));
    Ok(own.into_iter().chain(nested).chain(found.bare.iter().map(of)).collect())
}

/// What the person named with `--write`, as the host remembers it.
fn named(record: &Path) -> std::io::Result<Vec<PathBuf>> {
    let list = files::read_bounded(record, 1 << 20)?.unwrap_or_default();
    Ok(list.split(|b| *b == 0).filter(|p| !p.is_empty()).map(|p| OsStr::from_bytes(p).into()).collect())
}
