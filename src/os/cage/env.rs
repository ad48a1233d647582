//! The environment of a cage.

use crate::os::process::User;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders of a run that the environment points at. They must be below a writable folder of the cage.
#[derive(Debug, Clone)]
pub struct RunDirs {
    /// The engine's own state; its `home` is HOME.
    pub engine: PathBuf,
    /// TMPDIR.
    pub tmp: PathBuf,
    /// Caches.
    pub cache: PathBuf,
}

/// The environment of a cage: an allow list over the caller's, and our own values. Tokens, sockets, `GIT_*`,
/// `LD_*`, `BASH_ENV`, `NODE_OPTIONS` and whatever comes up next are gone because they are not on the list.
/// `exists` tells whether a folder below the user's home exists. Pure but for that question.
pub fn environment(
    caller: impl Iterator<Item = (OsString, OsString)>,
    user: &User,
    dirs: &RunDirs,
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<(OsString, OsString)> {
    let mut env = BTreeMap::<OsString, OsString>::new();
    for (name, value) in caller {
        let Some(text) = name.to_str() else { continue };
        if text == "PATH" {
            let absolute = std::env::split_paths(&value).filter(|p| p.is_absolute());
            if let Ok(joined) = std::env::join_paths(absolute) {
                env.insert(name, joined);
            }
        } else if PASSED.contains(&text) || text.starts_with("LC_") {
            env.insert(name, value);
        }
    }
    let mut set = |name: &str, value: PathBuf| {
        env.insert(name.into(), value.into());
    };
    let home = dirs.engine.join("home");
    set("XDG_CONFIG_HOME", home.join(".config"));
    set("XDG_DATA_HOME", home.join(".local/share"));
    set("XDG_STATE_HOME", home.join(".local/state"));
    set("HOME", home);
    set("XDG_CACHE_HOME", dirs.cache.clone());
    for name in ["TMPDIR", "TMP", "TEMP"] {
        set(name, dirs.tmp.clone());
    }
    set("npm_config_cache", dirs.cache.join("npm"));
    set("PIP_CACHE_DIR", dirs.cache.join("pip"));
    set("UV_CACHE_DIR", dirs.cache.join("uv"));
    set("GOPATH", dirs.cache.join("go"));
    set("GOCACHE", dirs.cache.join("go-build"));
    set("CARGO_HOME", dirs.cache.join("cargo"));
    if let Some(real_home) = &user.home {
        for (name, folder) in [
            ("RUSTUP_HOME", ".rustup"),
            ("PYENV_ROOT", ".pyenv"),
            ("NVM_DIR", ".nvm"),
            ("VOLTA_HOME", ".volta"),
            ("MISE_DATA_DIR", ".local/share/mise"),
            ("UV_PYTHON_INSTALL_DIR", ".local/share/uv/python"),
        ] {
            let folder = real_home.join(folder);
            if exists(&folder) {
                set(name, folder);
            }
        }
    }
    env.entry("PATH".into()).or_insert_with(|| "/usr/local/bin:/usr/bin:/bin".into());
    env.into_iter().collect()
}

/// Names that pass. None of them can hold a secret or make a program load code.
const PASSED: &[&str] =
    &["USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ", "NO_COLOR", "CI"];
