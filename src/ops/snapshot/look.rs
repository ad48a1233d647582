//! What is on disk, looked at by us: git's own listing opens whatever looks like a repository.

use super::{Paths, Shot, freeze, listing, paths};
use crate::model::{Failure, Report};
use crate::os::{files::Dir, walk};
use crate::text::quote_path;
use std::collections::HashSet;
use std::os::fd::AsFd;

/// What the pristine index holds.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    pub(super) files: HashSet<Vec<u8>>,
    /// Folders above anything in the index.
    pub(super) folders: HashSet<Vec<u8>>,
    /// Submodules.
    pub(super) modules: Paths,
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

impl Shot<'_, '_> {
    /// What the pristine index holds. Submodules get a bit there that keeps git from looking into them: what
    /// lies there as a repository is the agent's, and git waits on a fifo named HEAD.
    pub(super) fn tracked(&self) -> Result<Tracked, Failure> {
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
    pub(super) fn look(
        &self,
        tracked: &Tracked,
        report: &mut Report,
    ) -> Result<(walk::Survey, Paths), Failure> {
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

    pub(super) fn has_repository(&self, folder: &[u8]) -> bool {
        self.tree.lstat_at(&[folder, b"/.git"].concat()).is_ok_and(|m| m.is_some())
    }

    /// git opens files of these names wherever they are, and waits for ever on a fifo.
    pub(super) fn unblock(&self, special: &[Vec<u8>], report: &mut Report) -> Result<(), Failure> {
        for path in special {
            let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default().to_ascii_lowercase();
            if name != b".gitignore" && name != b".gitattributes" {
                continue;
            }
            let fail = |e| {
                Failure::fatal(format!("{} is a special file and cannot be moved away", quote_path(path)))
                    .because(e)
            };
            if !self.run.isolation().has_copy() {
                // The person's tree: what stands there is theirs to move.
                return Err(Failure::fatal(format!(
                    "{} is a special file that git would wait on",
                    quote_path(path)
                ))
                .hint(format!(
                    "remove it: rm {}",
                    crate::text::shell_quote(&String::from_utf8_lossy(path))
                )));
            }
            let dir = Dir::open(self.run.layout.dir()).map_err(fail)?;
            freeze::displace(&self.run.layout, &dir, &[b"tree/", path.as_slice()].concat()).map_err(fail)?;
            report.notes.push(format!("{} was a special file and was moved away", quote_path(path)));
        }
        Ok(())
    }

    /// Those of these paths that the ignore rules match, whether or not anything tracks them.
    pub(super) fn ignored(&self, asked: &[Vec<u8>]) -> Result<Paths, Failure> {
        if asked.is_empty() {
            return Ok(Paths::new());
        }
        // Without the dot a name such as `:(glob)x` would be a pattern.
        let input = asked.iter().flat_map(|p| [b"./", p.as_slice(), b"\0"].concat()).collect();
        let answer = self.git("check-ignore")?.args(["-z", "--stdin", "--no-index"]).input(input).run()?;
        let answer = if answer.status == 1 { answer.stdout } else { answer.success()? };
        Ok(paths(&answer).into_iter().filter_map(|p| p.strip_prefix(b"./").map(<[u8]>::to_vec)).collect())
    }

    pub(super) fn is_of_ours(&self, path: &[u8]) -> bool {
        [&self.run.folder.task_path, &self.run.folder.identity_path].iter().any(|own| {
            path.strip_prefix(own.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }

    /// What became of the base's submodules. Returns those that have a repository of the agent's making.
    pub(super) fn submodules(
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
                // What it came to is told when the tree is written.
                with_repository.insert(path.clone());
            } else if candidates.iter().any(|c| c.starts_with(&[path.as_slice(), b"/"].concat())) {
                report.submodules.push(format!("{} (replaced by plain files)", quote_path(path)));
            }
        }
        Ok(with_repository)
    }

    /// Puts what a tree cannot hold into the report.
    pub(super) fn tell<'p>(
        &self,
        found: &walk::Survey,
        ignored: impl Iterator<Item = &'p Vec<u8>>,
        report: &mut Report,
    ) {
        // In the person's own tree most of these are the person's.
        let own = self.run.isolation().has_copy();
        for path in ignored.filter(|_| own) {
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
        found.empty.iter().filter(|_| own).for_each(|p| report.empty.push(quote_path(p)));
        found.unreadable.iter().for_each(|p| report.unreadable.push(quote_path(p)));
        found.nested.iter().for_each(|p| report.nested.push(quote_path(p)));
        for bare in &found.bare {
            report.nested.push(format!("{} (bare)", quote_path(bare)));
        }
    }
}
