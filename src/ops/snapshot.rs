//! The snapshot: what is on disk in a run's tree, as a git tree. git does the work in a cage of its own (the
//! tree and its attributes are the agent's), on a copy of the index as it was right after checkout, so that
//! nothing the agent did to its own index, refs or configuration counts. See DESIGN notes in
//! `docs/decisions/0006-snapshot-from-disk.md`.

use super::{Frozen, Open, confine, store};
use crate::git::{Answer, Bounds, Call, Place, Quarantine};
use crate::model::{Failure, Oid, Report};
use crate::os::cage::Cage;
use crate::os::{files, files::Dir, remove, walk};
use crate::policy::Limits;
use crate::text::{Untrusted, quote_path};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Folders with their own repository that are looked into.
const MOST_NESTED: usize = 1000;
/// The agent's own commits that are listed and kept.
const MOST_COMMITS: usize = 200;
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
        // Side by side: each is bound by stat calls of its own.
        let changed =
            self.git("diff-files")?.args(["-z", "--name-only", "--ignore-submodules=dirty"]).start()?;
        let others = self.git("ls-files")?.args(["-o", "--exclude-standard", "-z"]).start()?;
        let ignored =
            self.git("ls-files")?.args(["-o", "-i", "--exclude-standard", "--directory", "-z"]).start()?;
        let changed = paths(&changed.finish()?.success()?);
        let others = paths(&others.finish()?.success()?);
        let ignored = paths(&ignored.finish()?.success()?);
        self.count_ignored(&ignored, &mut report)?;
        self.survey(&ignored, &mut report)?;

        let (mut candidates, nested): (Paths, Paths) = others.into_iter().partition(|p| !p.ends_with(b"/"));
        self.nested(nested, &mut candidates, &mut report)?;
        candidates.extend(changed);
        let agent_head = self.agent_commits(frozen, &mut candidates, &mut report)?;
        let stripped = self.stripped_again()?;
        candidates.extend(stripped.iter().cloned());
        for own in [&self.run.folder.task_path, &self.run.folder.identity_path] {
            candidates.remove(own.as_bytes());
        }

        let (present, gone) = self.classify(candidates, limits, &mut report)?;
        let base_tree = self.run.repo.objects()?.commit(&self.run.folder.base)?.tree;
        let tree = self.write_tree(&stripped, &present, &gone, &base_tree)?;
        if tree != base_tree {
            self.import(&tree, limits)?;
        }
        self.report_stripped(&stripped, &base_tree, &tree, &mut report)?;
        Ok(OnDisk { tree, report, agent_head })
    }

    /// git on the tree, with the git dir that we wrote.
    fn git(&self, verb: &str) -> Result<Call, Failure> {
        self.git_at(verb, &self.run.layout.tree(), &self.scratch.join("index"))
    }

    fn git_at(&self, verb: &str, work_tree: &Path, index: &Path) -> Result<Call, Failure> {
        let place = Place {
            git_dir: Some(self.scratch.join("git")),
            work_tree: Some(work_tree.to_owned()),
            index: Some(index.to_owned()),
            objects: Some(self.scratch.join("objects")),
            // Not the store's: what the agent put there cannot stand in for what is on disk.
            alternates: Some(self.run.repo.common_dir().join("objects").into_os_string()),
        };
        confine::caged(&self.cage, Call::new(verb, &place).current_dir(work_tree))
    }

    /// git as the agent's own: its index, its HEAD, its objects. Only in the cage, only for what it says.
    fn agents_git(&self, verb: &str) -> Result<Call, Failure> {
        let place = Place {
            git_dir: Some(self.run.layout.git_dir()),
            work_tree: Some(self.run.layout.tree()),
            ..Place::default()
        };
        confine::caged(&self.cage, Call::new(verb, &place).current_dir(&self.run.layout.tree()))
    }

    fn count_ignored(&self, ignored: &Paths, report: &mut Report) -> Result<(), Failure> {
        for path in ignored {
            if self.run.is_own(path) {
                continue;
            }
            report.ignored.push(quote_path(path));
            let path = path.strip_suffix(b"/").unwrap_or(path);
            if let Ok(Some(meta)) = self.tree.lstat_at(path)
                && meta.is_file()
            {
                report.ignored.bytes += meta.size;
            }
        }
        Ok(())
    }

    fn survey(&self, ignored: &Paths, report: &mut Report) -> Result<(), Failure> {
        let skip = |path: &[u8]| {
            ignored.contains(path) || {
                let mut folder = path.to_vec();
                folder.push(b'/');
                ignored.contains(&folder)
            }
        };
        let found = walk::survey(self.tree.as_fd(), &skip)
            .map_err(|e| Failure::fatal("the run's tree cannot be listed").because(e))?;
        found.special.iter().for_each(|p| report.special.push(quote_path(p)));
        found.empty.iter().for_each(|p| report.empty.push(quote_path(p)));
        found.unreadable.iter().for_each(|p| report.unreadable.push(quote_path(p)));
        found.nested.iter().for_each(|p| report.nested.push(quote_path(p)));
        for bare in &found.bare {
            report.nested.push(format!("{} (bare)", quote_path(bare)));
        }
        Ok(())
    }

    /// Files inside folders that have a repository of their own: plain files to us. Their own ignore rules
    /// and ours both count.
    fn nested(&self, folders: Paths, files: &mut Paths, report: &mut Report) -> Result<(), Failure> {
        let mut pending: Vec<Vec<u8>> = folders.into_iter().collect();
        let mut inside = Paths::new();
        let mut seen = 0;
        while let Some(folder) = pending.pop() {
            seen += 1;
            if seen > MOST_NESTED {
                report
                    .notes
                    .push(format!("more than {MOST_NESTED} nested repositories: the rest is not included"));
                break;
            }
            let work_tree = self.run.layout.tree().join(OsStr::from_bytes(&folder));
            let call = self.git_at("ls-files", &work_tree, &self.scratch.join("no-index"))?.args([
                "-o",
                "--exclude-standard",
                "-z",
            ]);
            let Ok(answer) = call.run().and_then(Answer::success) else {
                report.notes.push(format!("nested repository {} could not be listed", quote_path(&folder)));
                continue;
            };
            for path in paths(&answer) {
                let whole = [folder.as_slice(), path.as_slice()].concat();
                if whole.ends_with(b"/") {
                    pending.push(whole);
                } else {
                    inside.insert(whole);
                }
            }
        }
        if inside.is_empty() {
            return Ok(());
        }
        let asked: Vec<u8> = inside.iter().flat_map(|p| [p.as_slice(), b"\0"].concat()).collect();
        let answer = self.git("check-ignore")?.args(["-z", "--stdin", "--no-index"]).input(asked).run()?;
        let hidden = paths(&answer.stdout);
        files.extend(inside.difference(&hidden).cloned());
        Ok(())
    }

    /// What the agent committed, and ignored files that it forced into its index or its commits. A store
    /// that is not sound, or an index or a HEAD that git cannot read, is the agent's loss, not ours: the
    /// files on disk count all the same.
    fn agent_commits(
        &self,
        frozen: &Frozen,
        candidates: &mut Paths,
        report: &mut Report,
    ) -> Result<Option<Oid>, Failure> {
        if !frozen.sound {
            report
                .notes
                .push("the run's store was tampered with; the agent's own commits are not kept".into());
            return Ok(None);
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
            return Ok(None);
        };
        let commits: Vec<_> = log.split(|b| *b == 0).filter(|l| !l.is_empty()).collect();
        for line in &commits {
            report.commits.push(Untrusted::new(line).to_string());
        }
        let Some(head) =
            commits.first().and_then(|l| std::str::from_utf8(l.split(|b| *b == b' ').next()?).ok())
        else {
            return Ok(None);
        };
        let Ok(head) = head.parse::<Oid>() else { return Ok(None) };
        if let Ok(bytes) = self
            .agents_git("diff-tree")?
            .args(["-r", "-z", "--name-only", "--diff-filter=A", "--no-renames", base, head.as_str(), "--"])
            .output()
        {
            candidates.extend(paths(&bytes));
        }
        match self.keep_commits(&head) {
            Ok(()) => Ok(Some(head)),
            Err(e) => {
                report.notes.push(format!(
                    "the agent's own commits are not kept: {}",
                    Untrusted::new(&e.to_string())
                ));
                Ok(None)
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
        self.receive(call, head, base, COMMITS_BYTES)
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
        limits: &Limits,
        report: &mut Report,
    ) -> Result<(Vec<Vec<u8>>, Vec<Vec<u8>>), Failure> {
        let (mut present, mut gone) = (Vec::new(), Vec::new());
        let mut bytes = 0_u64;
        for path in candidates {
            if let Some(why) = refused_by_git(&path) {
                report.notes.push(format!("{} is not included: {why}", quote_path(&path)));
                continue;
            }
            // A parent that became a link means that the path itself is gone.
            let meta = match self.tree.lstat_at(&path) {
                Ok(meta) => meta,
                Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR | libc::EXDEV)) => None,
                Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                    report.unreadable.push(quote_path(&path));
                    continue;
                }
                Err(e) => {
                    return Err(
                        Failure::fatal(format!("{} cannot be looked at", quote_path(&path))).because(e)
                    );
                }
            };
            match meta {
                None => gone.push(path),
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
                // A folder where a file was: its files are candidates of their own. A submodule's folder is
                // update-index's business.
                Some(m) if m.is_dir() => {
                    if self.is_gitlink(&path)? {
                        present.push(path)
                    } else {
                        gone.push(path)
                    }
                }
                Some(_) => gone.push(path),
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

    fn is_gitlink(&self, path: &[u8]) -> Result<bool, Failure> {
        let text = String::from_utf8_lossy(path);
        let base = self.run.repo.objects()?.commit(&self.run.folder.base)?.tree;
        Ok(self.run.repo.objects()?.entry_at(&base, &text)?.is_some_and(|e| e.mode == 0o160_000))
    }

    fn write_tree(
        &self,
        stripped: &Paths,
        present: &[Vec<u8>],
        gone: &[Vec<u8>],
        base_tree: &Oid,
    ) -> Result<Oid, Failure> {
        if present.is_empty() && gone.is_empty() {
            return Ok(base_tree.clone());
        }
        let input = |paths: &mut dyn Iterator<Item = &Vec<u8>>| -> Vec<u8> {
            paths.flat_map(|p| [p.as_slice(), b"\0"].concat()).collect()
        };
        if !stripped.is_empty() {
            let call = self.git("update-index")?.args(["--no-skip-worktree", "-z", "--stdin"]);
            call.input(input(&mut stripped.iter())).output()?;
        }
        if !gone.is_empty() {
            let call = self.git("update-index")?.args(["--force-remove", "-z", "--stdin"]);
            call.input(input(&mut gone.iter())).output()?;
        }
        if !present.is_empty() {
            let call = self.git("update-index")?.args(["--add", "--replace", "-z", "--stdin"]);
            call.input(input(&mut present.iter())).output()?;
        }
        let tree = self.git("write-tree")?.text()?;
        tree.parse().map_err(|e: String| Failure::fatal("git write-tree answered nonsense").because(e))
    }

    fn import(&self, tree: &Oid, limits: &Limits) -> Result<(), Failure> {
        let call = self.git("pack-objects")?.args(["--revs", "--thin", "--stdout", "-q"]);
        // Compression may add a little to data that does not compress.
        let bound = limits.bytes.saturating_add(limits.bytes / 64).saturating_add(64 << 20);
        self.receive(call, tree, &self.run.folder.base, bound)
    }

    fn receive(&self, sender: Call, tip: &Oid, base: &Oid, bound: u64) -> Result<(), Failure> {
        let quarantine = Quarantine::new(self.run.repo, self.run.folder.run.as_str())?;
        let bounds = Bounds { pack: bound, time: Duration::from_secs(600) };
        quarantine.receive(sender, format!("{tip}\n^{base}\n").as_bytes(), bounds)?;
        quarantine.connected(&[tip], &[base])?;
        Ok(quarantine.release()?)
    }
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

/// Why git would refuse a path in its index: a component that is or, on other file systems, becomes `.git`.
/// Wider than git's own check on purpose: what git would refuse must not stop the whole snapshot.
pub(super) fn refused_by_git(path: &[u8]) -> Option<&'static str> {
    for part in path.split(|b| *b == b'/') {
        // HFS+ ignores these characters; NTFS ignores trailing dots and spaces and knows streams.
        let text: String = String::from_utf8_lossy(part)
            .chars()
            .filter(|c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'))
            .flat_map(char::to_lowercase)
            .collect();
        let cut = text.split([':', '\\']).next().unwrap_or_default().trim_end_matches(['.', ' ']);
        if matches!(cut, ".git" | "git~1") {
            return Some("a name that is '.git' on some file system");
        }
        if matches!(part, b"." | b"..") {
            return Some("a name with '.' or '..'");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_git_would_refuse() {
        for bad in
            [".git/x", "a/.GIT/config", "git~1", "a/.git./x", ".g\u{200c}it", ".git::$INDEX_ALLOCATION/x"]
        {
            assert!(refused_by_git(bad.as_bytes()).is_some(), "{bad}");
        }
        for good in [".gitignore", ".github/x", "git/x", "a.git", "..a", "x\\y"] {
            assert!(refused_by_git(good.as_bytes()).is_none(), "{good}");
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
