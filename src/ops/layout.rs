//! Where the parts of a run lie on disk. Pure paths; nothing here touches them.

use std::path::{Path, PathBuf};

/// One run's folder, `<root>/<name>/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    dir: PathBuf,
    /// The person's work tree, where the run works there instead of in a copy.
    work_tree: Option<PathBuf>,
}

impl Layout {
    /// The layout of a run folder.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), work_tree: None }
    }

    /// The same for a run that works in the person's tree.
    #[must_use]
    pub fn standing_in(self, work_tree: impl Into<PathBuf>) -> Self {
        Self { work_tree: Some(work_tree.into()), ..self }
    }

    /// The run folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The working tree: the run's copy, or the person's own where the run has none.
    pub fn tree(&self) -> PathBuf {
        self.work_tree.clone().unwrap_or_else(|| self.dir.join("tree"))
    }

    /// Where a run without a copy finds its task.
    pub fn task(&self) -> PathBuf {
        self.dir.join("TASK.md")
    }

    /// What a run without a copy sees in the place of the repository's configuration.
    pub fn view(&self) -> PathBuf {
        self.dir.join("view")
    }

    /// Where the person's work tree is, for a run without a copy.
    pub fn stand(&self) -> PathBuf {
        self.dir.join("host/stand")
    }

    /// The private git directory.
    pub fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// The git dir of the working tree inside the store.
    pub fn git_dir(&self) -> PathBuf {
        self.dir.join("store/worktrees/tree")
    }

    /// The engine's own state.
    pub fn engine(&self) -> PathBuf {
        self.dir.join("engine")
    }

    /// `TMPDIR` of the run.
    pub fn tmp(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// Caches of the run.
    pub fn cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    /// Work trees of the engine's own subagents.
    pub fn sub(&self) -> PathBuf {
        self.dir.join("sub")
    }

    /// What the cage never shows.
    pub fn host(&self) -> PathBuf {
        self.dir.join("host")
    }

    /// Held by whoever works in the run: the supervisor and the cage's init.
    pub fn lock(&self) -> PathBuf {
        self.dir.join("host/lock")
    }

    /// Copy of the index right after checkout, with its mtime.
    pub fn pristine_index(&self) -> PathBuf {
        self.dir.join("host/index")
    }

    /// What the store's fixed files must say; freeze compares and puts back.
    pub fn fixed(&self) -> PathBuf {
        self.dir.join("host/fixed")
    }

    /// What freeze moved out of the tree and did not dare to delete.
    pub fn displaced(&self) -> PathBuf {
        self.dir.join("host/displaced")
    }

    /// Output of a detached engine.
    pub fn log(&self) -> PathBuf {
        self.dir.join("host/engine.log")
    }

    /// The task as it was given, where engines cannot change it.
    pub fn given_task(&self) -> PathBuf {
        self.dir.join("host/task")
    }

    /// Where checks happen. No engine sees it.
    pub fn checks(&self) -> PathBuf {
        self.dir.join("checks")
    }

    /// Scratch of one snapshot: the only folder its cage may write.
    // Beside the tree on purpose: prune takes the time at which it went for the time of the last snapshot.
    pub fn scratch(&self) -> PathBuf {
        self.dir.join("snap")
    }
}
