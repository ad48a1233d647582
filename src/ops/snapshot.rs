//! The snapshot: what is on disk in a run's tree, as a git tree. git does the work in a cage of its own (the
//! tree and its attributes are the agent's), on a copy of the index as it was right after checkout, so that
//! nothing the agent did to its own index, refs or configuration counts. See DESIGN notes in
//! `docs/decisions/0006-snapshot-from-disk.md`.

use super::{Frozen, Open, confine, freeze, store};
use crate::git::{Answer, Bounds, Call, Place, Quarantine};
use crate::model::{Failure, Oid, Report};
use crate::os::cage::Cage;
use crate::os::{files, files::Dir, remove, walk};
use crate::policy::Limits;
use crate::text::{Untrusted, quote_path};
use std::collections::{BTreeSet, HashSet};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time of one step on what the agent wrote: its patterns may backtrack, its filters may wait.
const STEP: Duration = Duration::from_secs(600);
/// The same for what only the agent's own repository says and nothing depends on.
const ASIDE: Duration = Duration::from_secs(60);
/// The agent's own commits that are listed and kept.
const MOST_COMMITS: usize = 200;
/// Largest piece of memory that git may ask for at once on what the agent wrote.
const ALLOC_LIMIT: &str = "1g";
/// Bytes of the agent's own commits that are kept, unpacked.
const COMMITS_BYTES: u64 = 64 << 20;

/// What was on disk, imported.
#[derive(Debug)]
pub struct OnDisk {
    /// The tree; all its objects are in the main repository.
    pub tree: Oid,
    /// What the tree cannot hold.
    pub report: Report,
    /// The agent's own last commit, when it made any and they could be kept.
    pub agent_head: Option<Oid>,
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
pub fn take(run: &Open<'_>, frozen: &Frozen, limits: &Limits) -> Result<OnDisk, Failure> {
    let shot = Shot::set_up(run)?;
    let taken = shot.take(frozen, limits);
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

    fn take(&self, frozen: &Frozen, limits: &Limits) -> Result<OnDisk, Failure> {
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

        let (present, gone) = self.classify(candidates, &tracked, limits, &mut report)?;
        let base_tree = self.run.repo.objects()?.commit(&self.run.folder.base)?.tree;
        let shown: Paths = stripped.iter().chain(&tracked.modules).cloned().collect();
        let tree = self.write_tree(&shown, &present, &gone, &modules, &base_tree, &mut report)?;
        if tree != base_tree {
            self.import(&tree, limits)?;
        }
        self.report_stripped(&stripped, &base_tree, &tree, &mut report)?;
        Ok(OnDisk { tree, report, agent_head })
    }

    /// What the pristine index holds. Submodules get a bit there that keeps git from looking into them: what
    /// lies there as a repository is the agent's, and git waits on a fifo named HEAD.
    fn tracked(&self) -> Result<Tracked, Failure> {
        let mut tracked = Tracked::default();
        let listed = self.git("ls-files")?.args(["-s", "-z"]).output()?;
        for line in listed.split(|b| *b == 0).filter(|l| !l.is_empty()) {
            let Some(tab) = line.iter().position(|b| *b == b'\t') else { continue };
            let path = &line[tab + 1..];
            let mut above = path;
            while let Some(end) = above.iter().rposition(|b| *b == b'/') {
                above = &above[..end];
                if !tracked.folders.insert(above.to_vec()) {
                    break;
                }
            }
            if line.starts_with(b"160000 ") {
                tracked.modules.insert(path.to_vec());
            } else {
                tracked.files.insert(path.to_vec());
            }
        }
        if !tracked.modules.is_empty() {
            let call = self.git("update-index")?.args(["--skip-worktree", "-z", "--stdin"]);
            call.input(listing(&tracked.modules)).output()?;
        }
        Ok(tracked)
    }

    /// Everything on disk that the index does not hold, and what is hidden by an ignored folder. We list and
    /// git only matches patterns: its own listing opens what looks like a repository, and can be made to
    /// wait, to die or to read without end there.
    fn look(&self, tracked: &Tracked, report: &mut Report) -> Result<(walk::Survey, Paths), Failure> {
        let (mut hidden, mut moved) = (Paths::new(), 0);
        let found = walk::survey::<Looked>(
            self.tree.as_fd(),
            &|path| !tracked.files.contains(path),
            &mut |found, folders| {
                self.unblock(&found.special[moved..], report)?;
                moved = found.special.len();
                let (known, new): (Vec<_>, Vec<_>) =
                    folders.into_iter().partition(|f| tracked.folders.contains(f));
                let ignored = self.ignored(&new)?;
                let mut enter = known;
                for folder in new {
                    if ignored.contains(&folder) {
                        hidden.insert([folder.as_slice(), b"/"].concat());
                    } else if !(tracked.modules.contains(&folder) && self.has_repository(&folder)) {
                        enter.push(folder);
                    }
                }
                Ok(enter)
            },
        );
        let found = found.map_err(|e| match e {
            Looked::Io(e) => Failure::fatal("the run's tree cannot be listed").because(e),
            Looked::Failed(failure) => failure,
        })?;
        Ok((found, hidden))
    }

    fn has_repository(&self, folder: &[u8]) -> bool {
        self.tree.lstat_at(&[folder, b"/.git"].concat()).is_ok_and(|m| m.is_some())
    }

    /// git opens files of these names wherever they are, and waits for ever on a fifo.
    fn unblock(&self, special: &[Vec<u8>], report: &mut Report) -> Result<(), Failure> {
        for path in special {
            let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default().to_ascii_lowercase();
            if name != b".gitignore" && name != b".gitattributes" {
                continue;
            }
            let fail = |e| {
                Failure::fatal(format!("{} is a special file and cannot be moved away", quote_path(path)))
                    .because(e)
            };
            let dir = Dir::open(self.run.layout.dir()).map_err(fail)?;
            freeze::displace(&self.run.layout, &dir, &[b"tree/", path.as_slice()].concat()).map_err(fail)?;
            report.notes.push(format!("{} was a special file and was moved away", quote_path(path)));
        }
        Ok(())
    }

    /// Those of these paths that the ignore rules match, whether or not anything tracks them.
    fn ignored(&self, asked: &[Vec<u8>]) -> Result<Paths, Failure> {
        if asked.is_empty() {
            return Ok(Paths::new());
        }
        // Without the dot a name such as `:(glob)x` would be a pattern.
        let input = asked.iter().flat_map(|p| [b"./", p.as_slice(), b"\0"].concat()).collect();
        let answer = self.git("check-ignore")?.args(["-z", "--stdin", "--no-index"]).input(input).run()?;
        let answer = if answer.status == 1 { answer.stdout } else { answer.success()? };
        Ok(paths(&answer).into_iter().filter_map(|p| p.strip_prefix(b"./").map(<[u8]>::to_vec)).collect())
    }

    fn is_of_ours(&self, path: &[u8]) -> bool {
        [&self.run.folder.task_path, &self.run.folder.identity_path].iter().any(|own| {
            path.strip_prefix(own.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }

    /// What became of the base's submodules. Returns those that have a repository of the agent's making.
    fn submodules(
        &self,
        tracked: &Tracked,
        candidates: &mut Paths,
        report: &mut Report,
    ) -> Result<Paths, Failure> {
        let mut with_repository = Paths::new();
        for path in &tracked.modules {
            let meta = self.tree.lstat_at(path).ok().flatten();
            if !meta.is_some_and(|m| m.is_dir()) {
                candidates.insert(path.clone());
                report.submodules.push(format!("{} (removed)", quote_path(path)));
            } else if self.has_repository(path) {
                with_repository.insert(path.clone());
                report.submodules.push(format!(
                    "{} (has a repository: its files and new commits are in the tree only)",
                    quote_path(path)
                ));
            } else if candidates.iter().any(|c| c.starts_with(&[path.as_slice(), b"/"].concat())) {
                report.submodules.push(format!("{} (replaced by plain files)", quote_path(path)));
            }
        }
        Ok(with_repository)
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

    /// Puts what a tree cannot hold into the report.
    fn tell<'p>(
        &self,
        found: &walk::Survey,
        ignored: impl Iterator<Item = &'p Vec<u8>>,
        report: &mut Report,
    ) {
        for path in ignored {
            if self.run.is_own(path) {
                continue;
            }
            report.ignored.push(quote_path(path));
            if let Ok(Some(meta)) = self.tree.lstat_at(path)
                && meta.is_file()
            {
                report.ignored.bytes += meta.size;
            }
        }
        found.special.iter().for_each(|p| report.special.push(quote_path(p)));
        found.empty.iter().for_each(|p| report.empty.push(quote_path(p)));
        found.unreadable.iter().for_each(|p| report.unreadable.push(quote_path(p)));
        found.nested.iter().for_each(|p| report.nested.push(quote_path(p)));
        for bare in &found.bare {
            report.nested.push(format!("{} (bare)", quote_path(bare)));
        }
    }

    /// What the agent committed, and ignored files that it forced into its index or its commits. A store
    /// that is not sound, or an index or a HEAD that git cannot read, is the agent's loss, not ours: the
    /// files on disk count all the same.
    fn agent_commits(&self, frozen: &Frozen, report: &mut Report) -> Result<(Option<Oid>, Paths), Failure> {
        let mut candidates = Paths::new();
        if !frozen.sound {
            report
                .notes
                .push("the run's store was tampered with; the agent's own commits are not kept".into());
            return Ok((None, candidates));
        }
        let base = self.run.folder.base.as_str();
        let added = self
            .agents_git("diff-index")?
            .args([
                "--cached",
                "--name-only",
                "-z",
                "--diff-filter=A",
                "--no-renames",
                "--ignore-submodules",
                base,
            ])
            .start()?;
        let log = self
            .agents_git("log")?
            .args(["-z", "--no-color", "--no-show-signature", "--format=%H %s", "--encoding=UTF-8"])
            .args([&format!("--max-count={MOST_COMMITS}"), "HEAD", "--not", base, "--"])
            .limit(1 << 20)
            .start()?;
        match added.finish().and_then(Answer::success) {
            Ok(bytes) => candidates.extend(paths(&bytes)),
            Err(_) => report.notes.push("the run's own index could not be read".into()),
        }
        let Ok(log) = log.finish().and_then(Answer::success) else {
            report.notes.push("the agent's own commits could not be read".into());
            return Ok((None, candidates));
        };
        let commits: Vec<_> = log.split(|b| *b == 0).filter(|l| !l.is_empty()).collect();
        for line in &commits {
            report.commits.push(Untrusted::new(line).to_string());
        }
        let Some(head) =
            commits.first().and_then(|l| std::str::from_utf8(l.split(|b| *b == b' ').next()?).ok())
        else {
            return Ok((None, candidates));
        };
        let Ok(head) = head.parse::<Oid>() else { return Ok((None, candidates)) };
        if let Ok(bytes) = self
            .agents_git("diff-tree")?
            .args(["-r", "-z", "--name-only", "--diff-filter=A", "--no-renames", base, head.as_str(), "--"])
            .output()
        {
            candidates.extend(paths(&bytes));
        }
        match self.keep_commits(&head) {
            Ok(()) => Ok((Some(head), candidates)),
            Err(e) => {
                report.notes.push(format!(
                    "the agent's own commits are not kept: {}",
                    Untrusted::new(&e.to_string())
                ));
                Ok((None, candidates))
            }
        }
    }

    /// Brings the agent's commits home, for `refs/agent-local`: capped, checked, never needed.
    fn keep_commits(&self, head: &Oid) -> Result<(), Failure> {
        let base = &self.run.folder.base;
        let objects = self
            .agents_git("rev-list")?
            .args(["--objects", "--no-object-names", head.as_str(), "--not", base.as_str()])
            .limit(16 << 20)
            .output()?;
        let sizes = self
            .agents_git("cat-file")?
            .args(["--batch-check=%(objectsize)"])
            .input(objects)
            .limit(16 << 20)
            .text()?;
        let total: u64 =
            sizes.lines().map(|l| l.parse::<u64>().unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
        if total > COMMITS_BYTES {
            return Err(Failure::fatal(format!("they hold more than {COMMITS_BYTES} bytes")));
        }
        let call = self.agents_git("pack-objects")?.args(["--revs", "--thin", "--stdout", "-q"]);
        // Bases of deltas come along and count.
        self.receive(call, head, base, COMMITS_BYTES, COMMITS_BYTES * 4, ASIDE)
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
        limits: &Limits,
        report: &mut Report,
    ) -> Result<(walk::Names, walk::Names), Failure> {
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
                        return Err(over(&path, m.size, limits.blob));
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
                "the run changed {} files, more than the limit of {}",
                present.len() + gone.len(),
                limits.files
            )));
        }
        if bytes > limits.bytes {
            return Err(Failure::fatal(format!(
                "the changed files hold {bytes} bytes, more than the limit of {}",
                limits.bytes
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
        let call = self.git("pack-objects")?.args(["--revs", "--thin", "--stdout", "-q"]);
        // Compression may add a little to data that does not compress; bases of deltas come along and count.
        let pack = limits.bytes.saturating_add(limits.bytes / 64).saturating_add(64 << 20);
        let contents = limits.bytes.saturating_mul(2).saturating_add(1 << 30);
        self.receive(call, tree, &self.run.folder.base, pack, contents, STEP)
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
}

/// What the pristine index holds.
#[derive(Debug, Default)]
struct Tracked {
    files: HashSet<Vec<u8>>,
    /// Folders above anything in the index.
    folders: HashSet<Vec<u8>>,
    /// Submodules.
    modules: Paths,
}

/// Why looking at the tree ended.
enum Looked {
    Io(std::io::Error),
    Failed(Failure),
}

impl From<std::io::Error> for Looked {
    fn from(e: std::io::Error) -> Self {
        Self::Io(e)
    }
}

impl From<Failure> for Looked {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// As `--stdin -z` wants paths.
fn listing<'p>(paths: impl IntoIterator<Item = &'p Vec<u8>>) -> Vec<u8> {
    paths.into_iter().flat_map(|p| [p.as_slice(), b"\0"].concat()).collect()
}

fn over(path: &[u8], size: u64, limit: u64) -> Failure {
    Failure::fatal(format!("{} is {size} bytes, more than the limit of {limit}", quote_path(path)))
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

/// Whether a symbolic link is absolute or leads out of the tree, by its text alone.
fn leads_out(path: &[u8], target: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return true;
    }
    let mut depth = path.iter().filter(|b| **b == b'/').count() as i64;
    for part in target.split(|b| *b == b'/') {
        depth += match part {
            b"" | b"." => 0,
            b".." => -1,
            _ => 1,
        };
        if depth < 0 {
            return true;
        }
    }
    false
}

/// Why git would refuse a path in its index: a component that is or, on other file systems, becomes `.git`,
/// or a link that becomes `.gitmodules`. Wider than git's own check (read-cache.c, `verify_path`) on purpose:
/// what git would refuse must not stop the whole snapshot.
pub(super) fn refused_by_git(path: &[u8], is_link: bool) -> Option<&'static str> {
    for part in path.split(|b| matches!(b, b'/' | b'\\')) {
        // HFS+ ignores these characters; NTFS ignores trailing dots and spaces and knows streams.
        let text: String = String::from_utf8_lossy(part)
            .chars()
            .filter(|c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'))
            .flat_map(char::to_lowercase)
            .collect();
        let cut = text.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
        if matches!(cut, ".git" | "git~1") {
            return Some("a name that is '.git' on some file system");
        }
        let short = cut.split_once('~').is_some_and(|(name, number)| {
            cut.len() == 8
                && number.bytes().all(|b| b.is_ascii_digit())
                && (name == "gitmod" || "gi7eba".starts_with(name))
        });
        if is_link && (cut == ".gitmodules" || short) {
            return Some("a link that is '.gitmodules' on some file system");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_git_would_refuse() {
        for bad in [
            ".git/x",
            "a/.GIT/config",
            "git~1",
            "a/.git./x",
            ".g\u{200c}it",
            ".git::$INDEX_ALLOCATION/x",
            "x\\.git\\y",
        ] {
            assert!(refused_by_git(bad.as_bytes(), false).is_some(), "{bad}");
        }
        for good in [".gitignore", ".github/x", "git/x", "a.git", "..a", "x\\y"] {
            assert!(refused_by_git(good.as_bytes(), true).is_none(), "{good}");
        }
        for bad in [".gitmodules", "a/.GitModules ", "gitmod~1", "gi7eba~1"] {
            assert!(refused_by_git(bad.as_bytes(), true).is_some(), "{bad}");
            assert!(refused_by_git(bad.as_bytes(), false).is_none(), "{bad}");
        }
    }

    #[test]
    fn links_that_lead_out() {
        assert!(leads_out(b"a/l", b"../../x"));
        assert!(leads_out(b"l", b"/etc/passwd"));
        assert!(!leads_out(b"a/l", b"../x"));
        assert!(leads_out(b"l", b"a/../../x"));
    }
}
