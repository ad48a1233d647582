//! Checks: the policy's commands on a result, so that a reviewer sees what they say. They run in a clean checkout
//! of the snapshot, with the role's setup, in a cage of their own, and nothing of it is shared with the engine:
//! neither what git ignores in the run's tree nor its HOME and caches could have been prepared for them
//! (docs/decisions/0012-checks-and-chains.md). What they leave is thrown away; only the cache stays.

use super::commands::{self, Hear, Stage, TAIL};
use super::confine::{self, Room};
use super::{Open, include, setup, store};
use crate::git::{Call, Place};
use crate::model::{Check, Ended, Failure, Oid};
use crate::os::cage::RunDirs;
use crate::os::files;
use crate::os::remove;
use crate::policy::RoleRule;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// How long one check may take.
const WALL: Duration = Duration::from_secs(30 * 60);
/// What the outputs of one result may take in the ledger together.
const ROOM: usize = 16 << 10;

/// How many characters of a command line are kept.
const COMMAND: usize = 256;

/// A check and the end of what it printed; untrusted bytes.
pub type Checked = (Check, Vec<u8>);

/// Runs a role's checks on a snapshot. Whatever keeps them from being run is their answer.
pub fn run(run: &Open<'_>, rule: &RoleRule, snapshot: &Oid) -> Vec<Checked> {
    if rule.checks.is_empty() {
        return Vec::new();
    }
    let clean = Clean::of(run);
    let mut done = match clean.all(rule, snapshot) {
        Ok(done) => done,
        Err(e) => missed(rule, 0, &format!("not run: {e}")),
    };
    if let Err(e) = clean.clear() {
        let last = done.last_mut().map(|(_, tail)| tail);
        last.into_iter().for_each(|t| t.extend_from_slice(format!("\nnot cleared up: {e}").as_bytes()));
    }
    let each = (ROOM / done.len().max(1)).min(TAIL);
    for (_, tail) in &mut done {
        tail.drain(..tail.len().saturating_sub(each));
    }
    done
}

/// The checks from one on that were not run, and why.
fn missed(rule: &RoleRule, from: usize, why: &str) -> Vec<Checked> {
    let each = |(name, words): &(String, Vec<String>)| {
        let (name, command) = (name.clone(), super::supervise::bounded(words.clone(), COMMAND));
        (Check { name, command, ended: None, ms: 0 }, why.as_bytes().to_vec())
    };
    rule.checks.iter().skip(from).map(|c| each(&c.value)).collect()
}

/// The folders of a run in which checks happen. No engine sees them.
struct Clean<'a, 'r> {
    run: &'a Open<'r>,
    dir: PathBuf,
}

/// What is made for every round and goes after it.
const PASSING: [&str; 4] = ["tree", "git", "home", "tmp"];

impl<'a, 'r> Clean<'a, 'r> {
    fn of(run: &'a Open<'r>) -> Self {
        Self { run, dir: run.layout.checks() }
    }

    fn all(&self, rule: &RoleRule, snapshot: &Oid) -> Result<Vec<Checked>, Failure> {
        self.check_out(snapshot)?;
        include::again(self.run, &self.dir.join("tree"))?;
        let mut done = Vec::new();
        let env = rule.variables();
        if let Some(setup) = &rule.setup {
            let went = setup::run(self.run, self.room(), setup, &env, Hear::Quietly)?;
            let command = went.failed.as_ref().map(|(words, _)| words).or(setup.run.last());
            let command = super::supervise::bounded(command.cloned().unwrap_or_default(), COMMAND);
            let ms = went.took.as_millis() as u64;
            done.push((Check { name: "setup".into(), command, ended: went.ended, ms }, went.tail));
            if went.failed.is_some() {
                done.extend(missed(rule, 0, "not run: the setup failed"));
                return Ok(done);
            }
        }
        let all: Vec<_> = rule.checks.iter().map(|c| &c.value.1).collect();
        let stage = Stage::set(self.run, self.room(), commands::variables(self.run, &env), &all)?;
        for (n, check) in rule.checks.iter().enumerate() {
            let (name, words) = &check.value;
            let ran = stage.run(words, WALL, Hear::Quietly)?;
            let ms = ran.took.as_millis() as u64;
            let command = super::supervise::bounded(words.clone(), COMMAND);
            done.push((Check { name: name.clone(), command, ended: ran.ended, ms }, ran.tail));
            if ran.ended == Some(Ended::Stopped) {
                done.extend(missed(rule, n + 1, "not run: stopped"));
                break;
            }
        }
        Ok(done)
    }

    fn room(&self) -> Room {
        let at = |name: &str| self.dir.join(name);
        Room {
            cwd: at("tree"),
            dirs: RunDirs { engine: self.dir.clone(), tmp: at("tmp"), cache: at("cache") },
            write: PASSING.iter().chain(&["cache"]).map(|n| at(n)).collect(),
            read: Vec::new(),
            task: at("tree").join(&self.run.folder.task_path),
            pins: Vec::new(),
            network: None,
        }
    }

    /// A repository of its own with the snapshot as its HEAD, so that a check may ask git; objects are lent.
    fn check_out(&self, snapshot: &Oid) -> Result<(), Failure> {
        let run = self.run;
        let fail = |e: std::io::Error| Failure::fatal("a place for checks could not be made").because(e);
        self.clear()?;
        if files::lstat(&self.dir).map_err(fail)?.is_none() {
            files::create_dir(&self.dir, 0o755).map_err(fail)?;
            files::create_dir_for(&self.dir.join("cache"), 0o755, run.identity()).map_err(fail)?;
        }
        let folders = PASSING.iter().copied();
        let inside = ["git/objects", "git/objects/info", "git/objects/pack", "git/refs", "git/info"];
        for folder in folders.chain(inside) {
            files::create_dir_for(&self.dir.join(folder), 0o755, run.identity()).map_err(fail)?;
        }
        let git = self.dir.join("git");
        let mut config = store::config_text(run.repo.config()?, run.repo.hash(), &run.actor, false);
        let lfs = run.layout.store().join("lfs");
        config.push_str(&format!("[lfs]\n\tstorage = \"{}\"\n", lfs.display()));
        let pointer = [b"gitdir: ", git.as_os_str().as_bytes(), b"\n"].concat();
        for (path, bytes) in [
            ("git/config", config.into_bytes()),
            ("git/HEAD", format!("{snapshot}\n").into_bytes()),
            ("git/objects/info/alternates", store::alternates(run.repo)),
            ("tree/.git", pointer),
        ] {
            files::write_new(&self.dir.join(path), &bytes, 0o644).map_err(fail)?;
            files::give(&self.dir.join(path), run.identity()).map_err(fail)?;
        }
        let place =
            Place { git_dir: Some(git.clone()), work_tree: Some(self.dir.join("tree")), ..Place::default() };
        let cage = confine::plumbing(run, &[git, self.dir.join("tree"), lfs])?;
        let call = Call::with_settings("read-tree", &place, &["checkout.workers=0"]);
        let call = confine::caged(&cage, call.current_dir(&self.dir.join("tree")))?;
        call.args(["--reset", "-u", snapshot.as_str()]).output()?;
        Ok(())
    }

    fn clear(&self) -> Result<(), Failure> {
        let fail = |e: std::io::Error| Failure::fatal("what checks left could not be removed").because(e);
        if files::lstat(&self.dir).map_err(fail)?.is_none() {
            return Ok(());
        }
        let dir = files::open_dir_nofollow(&self.dir).map_err(fail)?;
        for name in PASSING {
            if files::lstat(&self.dir.join(name)).map_err(fail)?.is_some() {
                remove::tree(dir.as_fd(), OsStr::new(name)).map_err(fail)?;
            }
        }
        Ok(())
    }
}
