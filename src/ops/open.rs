//! A run that exists on this machine, with its lock held: the only handle through which its tree is touched.

use super::{Layout, store};
use crate::git::Repo;
use crate::ledger::{self, Folder, Home, Ledger, Tip};
use crate::model::{Actor, Failure, Isolation};
use crate::os::ancestry;
use crate::os::files;
use crate::os::lock::Lock;
use crate::os::process::{self, Claim, Identity};
use crate::text::Untrusted;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A run of ours, locked.
#[derive(Debug)]
pub struct Open<'r> {
    /// The main repository.
    pub repo: &'r Repo,
    /// Its ledger.
    pub ledger: Ledger<'r>,
    /// Its newest event when it was opened or last appended to.
    pub tip: Tip,
    /// The host's record.
    pub folder: Folder,
    /// Where it lies.
    pub layout: Layout,
    /// Held until the handle goes.
    pub lock: Lock,
    /// Who acts.
    pub actor: Actor,
    /// Keeps the run's user from every other live run, where the run has a user of its own.
    pub user: Option<Lock>,
}

impl<'r> Open<'r> {
    /// Opens a run by name, branch or id prefix.
    pub fn named(repo: &'r Repo, word: &str) -> Result<Self, Failure> {
        let ledger = Ledger::new(repo);
        let tip = ledger.resolve(word)?;
        let home = ledger.home()?;
        Self::of(repo, &home, tip)
    }

    /// Opens the run of a ledger entry.
    pub fn of(repo: &'r Repo, home: &Home, tip: Tip) -> Result<Self, Failure> {
        let ledger = Ledger::new(repo);
        let (layout, folder) = find(home, &tip)?;
        let lock = Lock::acquire(&layout.lock()).map_err(|e| {
            Failure::fatal(format!("the lock of run '{}' cannot be taken", folder.name)).because(e)
        })?;
        let Some(lock) = lock else { return Err(at_work(&folder)) };
        follow(repo, &layout)?;
        // When supervisor and cage-init were both killed, the engine may have outlived them.
        let ended = ancestry::end_leftovers(tip.run.as_str(), layout.dir(), folder.uid).map_err(|e| {
            Failure::fatal(format!("what is left of run '{}' cannot be ended", folder.name)).because(e)
        })?;
        if !ended {
            return Err(Failure::fatal(format!("a process of run '{}' does not end", folder.name)));
        }
        // Somebody may have appended between reading the tip and taking the lock.
        let tip = ledger
            .tip(&tip.run)?
            .ok_or_else(|| Failure::fatal(format!("there is no run '{}' any more", folder.name)))?;
        tip.understood()?;
        let actor = ledger::actor(repo.config()?);
        let user = user(&folder)?;
        Ok(Self { repo, ledger, tip, folder, layout, lock, actor, user })
    }

    /// A run of ours whose lock the caller holds already.
    pub(super) fn with(
        repo: &'r Repo,
        layout: Layout,
        folder: Folder,
        lock: Lock,
        tip: Tip,
    ) -> Result<Self, Failure> {
        let actor = ledger::actor(repo.config()?);
        let user = user(&folder)?;
        Ok(Self { repo, ledger: Ledger::new(repo), tip, folder, layout, lock, actor, user })
    }

    /// The user the run's processes are, where it is not the person's own.
    pub fn identity(&self) -> Option<Identity> {
        self.folder.uid.map(|uid| Identity { uid, gid: uid })
    }

    /// Where the run works.
    pub fn isolation(&self) -> Isolation {
        self.folder.isolation
    }

    /// The file that holds the task.
    pub fn task_file(&self) -> PathBuf {
        match self.folder.isolation {
            Isolation::Worktree => self.layout.tree().join(&self.folder.task_path),
            Isolation::Reader | Isolation::Off => self.layout.task(),
        }
    }

    /// Who owns a fixed file or folder of the run.
    pub fn owner_of(&self, path: &str) -> Option<Identity> {
        let of_run = ["tree", "store/objects", "store/refs", "store/logs", "store/worktrees", "store/packed"];
        of_run.iter().any(|p| path.starts_with(p)).then(|| self.identity()).flatten()
    }

    /// Whether a path of the tree is one of the two files we put there.
    pub fn is_own(&self, path: &[u8]) -> bool {
        path == self.folder.task_path.as_bytes() || path == self.folder.identity_path.as_bytes()
    }
}

/// A repository that was moved since the run was cut: what the host remembers of its place follows, and
/// freeze brings it into the store.
fn follow(repo: &Repo, layout: &Layout) -> Result<(), Failure> {
    let record = layout.host().join("main");
    let fail =
        |e: std::io::Error| Failure::fatal(format!("'{}' cannot be kept", record.display())).because(e);
    let here = repo.main_folder().as_os_str().as_encoded_bytes();
    if files::read_bounded(&record, 4096).map_err(fail)?.as_deref() == Some(here) {
        return Ok(());
    }
    let alternates = layout.fixed().join(store::flat(store::ALTERNATES));
    // A run without a copy has no store.
    if files::lstat(&alternates).map_err(fail)?.is_some() {
        files::write_atomic(&alternates, &store::alternates(repo), 0o600).map_err(fail)?;
    }
    files::write_atomic(&record, here, 0o600).map_err(fail)
}

/// How long a run waits for another one that happens to have the same user.
const PATIENCE: Duration = Duration::from_secs(20);

fn user(folder: &Folder) -> Result<Option<Lock>, Failure> {
    let Some(uid) = folder.uid else { return Ok(None) };
    let until = Instant::now() + PATIENCE;
    loop {
        let claim = process::claim(Identity { uid, gid: uid }).map_err(|e| {
            Failure::fatal(format!("user {uid} of run '{}' cannot be claimed", folder.name)).because(e)
        })?;
        match claim {
            Claim::Ours(lock) => return Ok(lock),
            Claim::Taken if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Claim::Taken => {
                return Err(Failure::fatal(format!(
                    "run '{}' has user {uid}, as which another run is at work",
                    folder.name
                ))
                .hint("try again when that one is done: git agent list"));
            }
        }
    }
}

/// The folder of a run on this machine.
pub fn find(home: &Home, tip: &Tip) -> Result<(Layout, Folder), Failure> {
    let head = &tip.understood()?.head;
    let layout = Layout::new(home.root.join(head.name.as_str()));
    // What cannot be opened is told by whoever reads it.
    let _ = super::freeze::reach(&layout);
    match Folder::read(layout.dir())? {
        Some(folder) if folder.run == tip.run => match folder.isolation {
            Isolation::Worktree => Ok((layout, folder)),
            Isolation::Reader | Isolation::Off => Ok((super::standing::layout(layout)?, folder)),
        },
        _ => Err(Failure::fatal(format!("run '{}' has no folder on this machine", head.name))
            .hint(format!("what the ledger knows: git agent show {}", head.name))),
    }
}

/// The refusal while somebody works in a run.
pub fn at_work(folder: &Folder) -> Failure {
    Failure::fatal(format!("run '{}' is at work", Untrusted::new(folder.name.as_str())))
        .hint(format!("wait for it, or end it: git agent stop {}", folder.name))
}
