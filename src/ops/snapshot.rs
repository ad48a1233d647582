//! The snapshot: what is on disk in a run's tree, as a git tree. git does the work in a cage of its own (the
//! tree and its attributes are the agent's), on a copy of the index as it was right after checkout, so that
//! nothing the agent did to its own index, refs or configuration counts. See DESIGN notes in
//! `docs/decisions/0006-snapshot-from-disk.md`.

mod agent;
mod look;
mod modules;
mod names;

pub use names::refused_by_git;

use self::look::Tracked;
use self::names::leads_out;
use super::{Frozen, Open, confine, freeze, lfs, store};
use crate::git::{Bounds, Call, Place, Quarantine};
use crate::model::{Failure, Oid, Report};
use crate::os::cage::Cage;
use crate::os::{files, files::Dir, remove, walk};
use crate::policy::{Limits, RoleRule};
use crate::text::quote_path;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time of one step on what the agent wrote: its patterns may backtrack, its filters may wait.
const STEP: Duration = Duration::from_secs(600);
/// The same for what only the agent's own repository says and nothing depends on.
const ASIDE: Duration = Duration::from_secs(60);
/// Largest piece of memory that git may ask for at once on what the agent wrote.
const ALLOC_LIMIT: &str = "1g";

/// What was on disk, imported.
#[derive(Debug)]
pub struct OnDisk {
    /// The tree; all its objects are in the main repository.
    pub tree: Oid,
    /// What the tree cannot hold.
    pub report: Report,
    /// The agent's own last commit, when it made any and they could be kept.
    pub agent_head: Option<Oid>,
    /// Commits of submodules that only this run had: refs that keep them, by full name.
    pub kept: Vec<(String, Oid)>,
}

/// One snapshot being taken: the scratch folder and the cage that may write nothing else.
struct Shot<'a, 'r> {
    run: &'a Open<'r>,
    cage: Cage,
    tree: Dir,
    scratch: PathBuf,
}

/// Paths, as raw bytes relative to the tree.
type Paths = BTreeSet<Vec<u8>>;

/// Takes the snapshot of a frozen run.
pub fn take(run: &Open<'_>, frozen: &Frozen, rule: &RoleRule) -> Result<OnDisk, Failure> {
    let shot = Shot::set_up(run)?;
    let taken = shot.take(frozen, rule);
    let cleared = shot.clear();
    let taken = taken?;
    cleared?;
    Ok(taken)
}

impl<'a, 'r> Shot<'a, 'r> {
    fn set_up(run: &'a Open<'r>) -> Result<Self, Failure> {
        let scratch = run.layout.scratch();
        let fail = |e: std::io::Error| Failure::fatal("the snapshot could not be set up").because(e);
        clear(&scratch).map_err(fail)?;
        files::create_dir_for(&scratch, 0o755, run.identity()).map_err(fail)?;
        for folder in ["git", "git/objects", "git/refs", "git/info", "objects", "objects/pack"] {
            files::create_dir_for(&scratch.join(folder), 0o755, run.identity()).map_err(fail)?;
        }
        let mut config = store::config_text(run.repo.config()?, run.repo.hash(), &run.actor, false);
        config.push_str(&format!(
            "[core]\n\texcludesFile = \"{}\"\n[lfs]\n\tstorage = \"{}\"\n",
            scratch.join("git/info/excludes-user").display(),
            run.layout.store().join("lfs").display()
        ));
        files::write_new(&scratch.join("git/config"), config.as_bytes(), 0o644).map_err(fail)?;
        files::write_new(&scratch.join("git/HEAD"), b"ref: refs/heads/none\n", 0o644).map_err(fail)?;
        for name in ["exclude", "excludes-user", "attributes"] {
            let fixed = run.layout.fixed().join(store::flat(&format!("store/info/{name}")));
            let bytes = files::read_bounded(&fixed, 64 << 20).map_err(fail)?.unwrap_or_default();
            files::write_new(&scratch.join("git/info").join(name), &bytes, 0o644).map_err(fail)?;
        }
        let index = scratch.join("index");
        files::copy_keep_mtime(&run.layout.pristine_index(), &index).map_err(fail)?;
        files::give(&index, run.identity()).map_err(fail)?;
        let lfs = run.layout.store().join("lfs");
        let cage = confine::plumbing(run, &[scratch.clone(), lfs])?;
        let tree = Dir::open(&run.layout.tree()).map_err(fail)?;
        Ok(Self { run, cage, tree, scratch })
    }

    fn clear(self) -> Result<(), Failure> {
        clear(&self.scratch)
            .map_err(|e| Failure::fatal("the snapshot's scratch could not be removed").because(e))
    }

    fn take(&self, frozen: &Frozen, rule: &RoleRule) -> Result<OnDisk, Failure> {
        let mut report = Report { repaired: frozen.repaired.clone(), ..Report::default() };
        let tracked = self.tracked()?;
        let (found, hidden) = self.look(&tracked, &mut report)?;
        // Only now, when nothing that git would wait on is left: it reads attributes of what it compares.
        let changed = self.git("diff-files")?.args(["-z", "--name-only", "--ignore-submodules=all"]);
        let changed = changed.start()?;
        let ignored = self.ignored(&found.files)?;
        let mut candidates = paths(&changed.finish()?.success()?);
        candidates.extend(found.files.iter().filter(|p| !ignored.contains(*p)).cloned());
        self.tell(&found, hidden.union(&ignored), &mut report);

        let (agent_head, forced) = self.agent_commits(frozen, &mut report)?;
        candidates.extend(forced);
        let stripped = self.stripped_again()?;
        candidates.extend(stripped.iter().cloned());
        let modules = self.submodules(&tracked, &mut candidates, &mut report)?;
        candidates.retain(|p| !self.is_of_ours(p));

        let (present, gone) = self.classify(candidates, &tracked, rule, &mut report)?;
        let base_tree = self.run.repo.objects()?.commit(&self.run.folder.base)?.tree;
        let shown: Paths = stripped.iter().chain(&tracked.modules).cloned().collect();
        let tree = self.write_tree(&shown, &present, &gone, &modules, &base_tree, &mut report)?;
        let kept = self.keep_modules(&modules, &base_tree, &tree, &mut report)?;
        self.module_urls(&base_tree, &tree, &mut report)?;
        if tree != base_tree {
            self.import(&tree, &rule.limits)?;
            lfs::bring_home(self.run, &base_tree, &tree, &mut report)?;
        }
        self.report_stripped(&stripped, &base_tree, &tree, &mut report)?;
        Ok(OnDisk { tree, report, agent_head, kept })
    }

    /// git on the tree, with the git dir that we wrote.
    fn git(&self, verb: &str) -> Result<Call, Failure> {
        let work_tree = self.run.layout.tree();
        let place = Place {
            git_dir: Some(self.scratch.join("git")),
            work_tree: Some(work_tree.clone()),
            index: Some(self.scratch.join("index")),
            objects: Some(self.scratch.join("objects")),
            // Not the store's: what the agent put there cannot stand in for what is on disk.
            alternates: Some(self.run.repo.common_dir().join("objects")),
        };
        // Line ends that do not survive a round trip are the person's to judge, not a reason to stop.
        let call = Call::with_settings(verb, &place, &["core.safecrlf=false"]).current_dir(&work_tree);
        confine::caged(&self.cage, call.env("GIT_ALLOC_LIMIT", ALLOC_LIMIT).within(STEP))
    }

    /// git as the agent's own: its index, its HEAD, its objects. Only in the cage, only for what it says.
    fn agents_git(&self, verb: &str) -> Result<Call, Failure> {
        let place = Place {
            git_dir: Some(self.run.layout.git_dir()),
            work_tree: Some(self.run.layout.tree()),
            ..Place::default()
        };
        let call = Call::new(verb, &place).current_dir(&self.run.layout.tree());
        confine::caged(&self.cage, call.env("GIT_ALLOC_LIMIT", ALLOC_LIMIT).within(ASIDE))
    }

    /// Stripped paths that exist again.
    fn stripped_again(&self) -> Result<Paths, Failure> {
        let mut again = Paths::new();
        for path in &self.run.folder.strip {
            let there = self.tree.lstat_at(path.as_bytes());
            if there.is_ok_and(|m| m.is_some()) {
                again.insert(path.clone().into_bytes());
            }
        }
        Ok(again)
    }

    fn report_stripped(
        &self,
        again: &Paths,
        base: &Oid,
        tree: &Oid,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let objects = self.run.repo.objects()?;
        for path in again {
            let path = String::from_utf8_lossy(path);
            if objects.entry_at(base, &path)? != objects.entry_at(tree, &path)? {
                report.stripped.push(quote_path(path.as_bytes()));
            }
        }
        Ok(())
    }

    /// Sorts candidates into what is on disk and what is gone; reports and drops what a tree cannot hold;
    /// enforces the limits.
    fn classify(
        &self,
        candidates: Paths,
        tracked: &Tracked,
        rule: &RoleRule,
        report: &mut Report,
    ) -> Result<(walk::Names, walk::Names), Failure> {
        let limits = &rule.limits;
        let (mut present, mut gone) = (Vec::new(), Vec::new());
        let mut bytes = 0_u64;
        for path in candidates {
            // Only the agent's own trees can name what no file can be called.
            if path.split(|b| *b == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
                continue;
            }
            // A parent that became a link means that the path itself is gone.
            let meta = match self.tree.lstat_at(&path) {
                Ok(meta) => meta,
                Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR | libc::EXDEV)) => None,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::ENAMETOOLONG)) => {
                    report.unreadable.push(quote_path(&path));
                    continue;
                }
                Err(e) => {
                    return Err(
                        Failure::fatal(format!("{} cannot be looked at", quote_path(&path))).because(e)
                    );
                }
            };
            if let Some(meta) = meta
                && !meta.is_dir()
                && let Some(why) = refused_by_git(&path, meta.is_symlink())
            {
                report.notes.push(format!("{} is not included: {why}", quote_path(&path)));
                continue;
            }
            match meta {
                Some(m) if m.is_symlink() => {
                    let target = self.tree.read_link_at(&path).ok().flatten().unwrap_or_default();
                    if leads_out(&path, &target) {
                        report.links.push(format!("{} -> {}", quote_path(&path), quote_path(&target)));
                    }
                    present.push(path);
                }
                Some(m) if m.is_file() => {
                    if m.mode & 0o400 == 0 && self.run.identity().is_none() && !crate::os::process::is_root()
                    {
                        report.unreadable.push(quote_path(&path));
                        continue;
                    }
                    if m.size > limits.blob {
                        return Err(over(&path, m.size, limits.blob, &rule.limit("blob")));
                    }
                    bytes = bytes.saturating_add(m.size);
                    present.push(path);
                }
                // A folder where a file was: its files are candidates of their own.
                _ if tracked.files.contains(&path) || tracked.modules.contains(&path) => gone.push(path),
                _ => {}
            }
        }
        if (present.len() + gone.len()) as u64 > limits.files {
            return Err(Failure::fatal(format!(
                "the run changed {} files, more than the limit of {} ({})",
                present.len() + gone.len(),
                limits.files,
                rule.limit("files")
            )));
        }
        if bytes > limits.bytes {
            return Err(Failure::fatal(format!(
                "the changed files hold {bytes} bytes, more than the limit of {} ({})",
                limits.bytes,
                rule.limit("bytes")
            )));
        }
        Ok((present, gone))
    }

    fn write_tree(
        &self,
        shown: &Paths,
        present: &[Vec<u8>],
        gone: &[Vec<u8>],
        modules: &Paths,
        base_tree: &Oid,
        report: &mut Report,
    ) -> Result<Oid, Failure> {
        if present.is_empty() && gone.is_empty() && modules.is_empty() {
            return Ok(base_tree.clone());
        }
        if !shown.is_empty() {
            let call = self.git("update-index")?.args(["--no-skip-worktree", "-z", "--stdin"]);
            call.input(listing(shown)).output()?;
        }
        if !gone.is_empty() {
            let call = self.git("update-index")?.args(["--force-remove", "-z", "--stdin"]);
            call.input(listing(gone)).output()?;
        }
        if !present.is_empty() {
            let call = self.git("update-index")?.args(["--add", "--replace", "-z", "--stdin"]);
            call.input(listing(present)).output()?;
        }
        for path in modules {
            let call = self.git("update-index")?.within(ASIDE).args(["-z", "--stdin"]);
            if call.input([path.as_slice(), b"\0"].concat()).output().is_err() {
                report.notes.push(format!(
                    "submodule {} could not be read and stays as it was in the base",
                    quote_path(path)
                ));
            }
        }
        let tree = self.git("write-tree")?.text()?;
        tree.parse().map_err(|e: String| Failure::fatal("git write-tree answered nonsense").because(e))
    }

    fn import(&self, tree: &Oid, limits: &Limits) -> Result<(), Failure> {
        // As a commit: against a tree alone git packs everything, because only commits have an edge.
        let commit = super::finish::snapshot_bytes(self.run, tree)?;
        let call = self.git("hash-object")?.args(["-t", "commit", "-w", "--stdin"]).input(commit);
        let commit: Oid = call.text()?.parse().map_err(Failure::fatal)?;
        let call = self.git("pack-objects")?.args(["--revs", "--thin", "--stdout", "-q"]);
        // Compression may add a little to data that does not compress; bases of deltas come along and count.
        let pack = limits.bytes.saturating_add(limits.bytes / 64).saturating_add(64 << 20);
        let contents = limits.bytes.saturating_mul(2).saturating_add(1 << 30);
        self.receive(call, &commit, &self.run.folder.base, pack, contents, STEP)
    }

    fn receive(
        &self,
        sender: Call,
        tip: &Oid,
        base: &Oid,
        pack: u64,
        contents: u64,
        time: Duration,
    ) -> Result<(), Failure> {
        let quarantine = Quarantine::new(self.run.repo, self.run.folder.run.as_str())?;
        let bounds = Bounds { pack, contents, time };
        quarantine.receive(sender, format!("{tip}\n^{base}\n").as_bytes(), bounds)?;
        quarantine.connected(&[tip], &[base], time)?;
        Ok(quarantine.release()?)
    }

    /// A history that has nothing to do with ours, whole.
    fn receive_whole(&self, sender: Call, tip: &Oid, most: u64, time: Duration) -> Result<(), Failure> {
        let quarantine = Quarantine::new(self.run.repo, self.run.folder.run.as_str())?;
        let bounds = Bounds { pack: most, contents: most.saturating_mul(4), time };
        quarantine.receive(sender, format!("{tip}\n").as_bytes(), bounds)?;
        quarantine.connected(&[tip], &[], time)?;
        Ok(quarantine.release()?)
    }
}

/// As `--stdin -z` wants paths.
fn listing<'p>(paths: impl IntoIterator<Item = &'p Vec<u8>>) -> Vec<u8> {
    paths.into_iter().flat_map(|p| [p.as_slice(), b"\0"].concat()).collect()
}

fn over(path: &[u8], size: u64, limit: u64, place: &str) -> Failure {
    let path = quote_path(path);
    Failure::fatal(format!("{path} is {size} bytes, more than the limit of {limit} ({place})"))
}

fn clear(scratch: &Path) -> std::io::Result<()> {
    match (files::lstat(scratch)?, scratch.parent(), scratch.file_name()) {
        (Some(_), Some(parent), Some(name)) => remove::tree(files::open_dir_nofollow(parent)?.as_fd(), name),
        _ => Ok(()),
    }
}

fn paths(bytes: &[u8]) -> Paths {
    bytes.split(|b| *b == 0).filter(|p| !p.is_empty()).map(<[u8]>::to_vec).collect()
}
