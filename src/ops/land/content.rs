//! What lands, byte for byte: trees and indexes of our own in a scratch folder, asked of git itself. The
//! repository, its index and its work tree are only read; objects made on the way live in the scratch.

use super::Operation;
use super::ground::Merged;
use super::ground::{Ground, Touched, folders};
use super::refusal::Refused;
use crate::git::{Call, Error, Place, Repo, commit_bytes};
use crate::ledger::change::{self, Change};
use crate::model::{Digest, Failure, Oid};
use crate::os::files;
use crate::os::place::Slot;
use crate::text::{Untrusted, quote_path};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Settings that would make a temporary index write elsewhere or mean something else.
const PLAIN_INDEX: &[&str] = &[
    "core.splitIndex=false",
    "core.untrackedCache=false",
    "index.sparse=false",
    "merge.renames=false",
    "merge.directoryRenames=false",
    "apply.whitespace=nowarn",
    "apply.ignoreWhitespace=no",
    "core.whitespace=",
];
/// Largest `.gitattributes` that git reads (100 MiB), and so do we.
const MAX_ATTRIBUTES: u64 = 100 << 20;

/// A folder with objects and indexes of our own, beside the repository's.
#[derive(Debug)]
pub(super) struct Scratch {
    dir: tempfile::TempDir,
    place: Place,
    top: PathBuf,
}

/// What lands, as trees in the scratch.
#[derive(Debug)]
pub(super) struct Content {
    /// HEAD with the real bytes of the touched paths.
    ours: Oid,
    /// The same after the change.
    result: Oid,
}

type Entry<'a> = (u32, &'a Oid, &'a Vec<u8>);

impl Scratch {
    pub fn new(repo: &Repo, ground: &Ground) -> Result<Self, Failure> {
        let fail = |e: std::io::Error| Failure::fatal("a scratch folder could not be made").because(e);
        let dir = tempfile::Builder::new().prefix("git-agent-apply-").tempdir().map_err(fail)?;
        for name in ["objects", "objects/pack", "objects/info", "void"] {
            files::create_dir(&dir.path().join(name), 0o700).map_err(fail)?;
        }
        // In a file, because the variable splits paths at colons.
        let mut lender = repo.common_dir().join("objects").into_os_string().into_encoded_bytes();
        lender.push(b'\n');
        files::write_new(&dir.path().join("objects/info/alternates"), &lender, 0o600).map_err(fail)?;
        let place = Place { objects: Some(dir.path().join("objects")), ..repo.place().clone() };
        Ok(Self { dir, place, top: ground.top().to_owned() })
    }

    /// git on the work tree with an index of ours.
    fn call(&self, verb: &str, index: &str) -> Call {
        let place = Place { index: Some(self.dir.path().join(index)), ..self.place.clone() };
        Call::with_settings(verb, &place, PLAIN_INDEX).current_dir(&self.top)
    }

    /// git on an empty work tree, so that attributes come from the index, and a command that a filter names
    /// by a relative path finds nothing.
    fn call_void(&self, verb: &str, index: &str) -> Call {
        let void = self.dir.path().join("void");
        let place = Place {
            index: Some(self.dir.path().join(index)),
            work_tree: Some(void.clone()),
            ..self.place.clone()
        };
        Call::with_settings(verb, &place, PLAIN_INDEX).current_dir(&void)
    }

    fn add<'a>(&self, index: &str, entries: impl IntoIterator<Item = Entry<'a>>) -> Result<bool, Failure> {
        let mut input = Vec::new();
        for (mode, oid, path) in entries {
            // Mode 0 takes the path out.
            input.extend_from_slice(format!("{mode:06o} {oid} 0\t").as_bytes());
            input.extend_from_slice(path);
            input.push(0);
        }
        if input.is_empty() {
            return Ok(false);
        }
        let call = self.call("update-index", index);
        call.args(["--add", "--replace", "-z", "--index-info"]).input(input).output()?;
        Ok(true)
    }

    /// The paths whose real bytes, as git would hash them (filters, line ends, modes), are not these.
    pub fn differing<'a>(
        &self,
        index: &str,
        entries: impl IntoIterator<Item = Entry<'a>>,
    ) -> Result<BTreeSet<Vec<u8>>, Failure> {
        if !self.add(index, entries)? {
            return Ok(BTreeSet::new());
        }
        // Status 1 only says that something differs.
        let refreshed = self.call("update-index", index).args(["-q", "--refresh"]).run()?;
        if refreshed.status > 1 {
            refreshed.success()?;
        }
        let answer = self
            .call("diff-files", index)
            .args(["-z", "--name-only", "--ignore-submodules=none"])
            .output()?;
        Ok(answer.split(|b| *b == 0).filter(|p| !p.is_empty()).map(<[u8]>::to_vec).collect())
    }

    /// Which paths the sparse checkout would show; `None` when git cannot be asked.
    pub fn inside_sparse<'a>(
        &self,
        askable: bool,
        paths: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<BTreeSet<Vec<u8>>>, Failure> {
        let input: Vec<u8> = paths.flat_map(|p| [p, b"\0"].concat()).collect();
        if !askable || input.is_empty() {
            return Ok(if input.is_empty() { Some(BTreeSet::new()) } else { None });
        }
        let call = self.call("sparse-checkout", "none").args(["check-rules", "-z"]);
        let answer = call.input(input).output()?;
        Ok(Some(answer.split(|b| *b == 0).map(<[u8]>::to_vec).collect()))
    }

    fn tree(&self, index: &str) -> Result<Oid, Failure> {
        // What a partial clone lacks is not touched by the change.
        self.call("write-tree", index).arg("--missing-ok").text()?.parse().map_err(Failure::fatal)
    }

    /// Merges the change into HEAD with the real bytes of the touched paths. `None` with the refusals added
    /// when that is not exactly the change.
    ///
    /// Where the person edited a path and asked for it, the change is merged into the edit; what comes of that is
    /// set in `touched`.
    pub fn merge(
        &self,
        repo: &Repo,
        head: &Oid,
        base: &Oid,
        snapshot: &Oid,
        touched: &mut [Touched],
        refused: &mut Vec<Refused>,
    ) -> Result<Option<Content>, Failure> {
        let null = repo.hash().null();
        self.real(touched)?;
        self.call("read-tree", "ours").arg(head.as_str()).output()?;
        let side = |new: bool, t: &'_ Touched| -> (u32, Oid) {
            let c = &t.change;
            let merged = t.merged.as_ref().and_then(|m| if new { m.result.clone() } else { m.real.clone() });
            if let Some(entry) = merged {
                return entry;
            }
            let (mode, oid) = if new { (c.new_mode, &c.new) } else { (c.old_mode, &c.old) };
            if mode == 0 { (0, null.clone()) } else { (mode, oid.clone()) }
        };
        let real: Vec<_> = touched.iter().map(|t| (side(t.already, t), &t.change.path)).collect();
        self.add("ours", real.iter().map(|((mode, oid), path)| (*mode, oid, *path)))?;
        let ours = self.tree("ours")?;

        let time = repo.objects()?.commit(base)?.time;
        let who = "git-agent <apply@git-agent.invalid>";
        let commit = commit_bytes(&ours, std::slice::from_ref(base), who, time, "The working tree");
        let commit =
            self.call("hash-object", "none").args(["-t", "commit", "-w", "--stdin"]).input(commit).text()?;
        // From an empty folder without an index: no attribute of the run's names a merge driver.
        let answer = self
            .call_void("merge-tree", "none")
            .args(["--write-tree", "--name-only", "--no-messages", "-z"])
            .args([commit.as_str(), snapshot.as_str()])
            .run()?;
        let mut parts = answer.stdout.split(|b| *b == 0).filter(|p| !p.is_empty());
        let merged = parts.next().map(|p| String::from_utf8_lossy(p).into_owned()).unwrap_or_default();
        match answer.status {
            0 => {
                let merged: Oid = merged.parse().map_err(Failure::fatal)?;
                self.take_merged(&ours, &merged, touched)?;
                files::copy_keep_mtime(&self.dir.path().join("ours"), &self.dir.path().join("result"))
                    .map_err(|e| Failure::fatal("a temporary index could not be copied").because(e))?;
                let new: Vec<_> = touched.iter().map(|t| (side(true, t), &t.change.path)).collect();
                self.add("result", new.iter().map(|((mode, oid), path)| (*mode, oid, *path)))?;
                let result = self.tree("result")?;
                if merged == result {
                    return Ok(Some(Content { ours, result }));
                }
                let answer = self
                    .call("diff-tree", "none")
                    .args(["-r", "-z", "--name-only", "--no-renames"])
                    .args([result.as_str(), merged.as_str()])
                    .output()?;
                for path in answer.split(|b| *b == 0).filter(|p| !p.is_empty()) {
                    refused
                        .push(Refused::new(path, "would become something else by a merge with HEAD".into()));
                }
                Ok(None)
            }
            1 => {
                let edited: BTreeSet<&[u8]> =
                    touched.iter().filter(|t| t.merged.is_some()).map(|t| t.change.path.as_slice()).collect();
                let paths: BTreeSet<&[u8]> = parts.collect();
                refused.extend(paths.into_iter().map(|p| {
                    let with = if edited.contains(p) { "your edit" } else { "HEAD" };
                    Refused::new(p, format!("conflicts with {with}"))
                }));
                Ok(None)
            }
            _ => Err(answer.success().err().map_or_else(
                || Failure::fatal("git merge-tree answered something unexpected"),
                Failure::from,
            )),
        }
    }

    /// What is really on disk at the paths that are to be merged, as git would store it.
    fn real(&self, touched: &mut [Touched]) -> Result<(), Failure> {
        let mut of: BTreeMap<Vec<u8>, &mut Merged> =
            touched.iter_mut().filter_map(|t| Some((t.change.path.clone(), t.merged.as_mut()?))).collect();
        if of.is_empty() {
            return Ok(());
        }
        // With the base's entry in place, so that line ends are turned as git add would.
        let input: Vec<u8> = of.keys().flat_map(|p| [p.as_slice(), b"\0"].concat()).collect();
        self.call("update-index", "base").args(["-z", "--stdin"]).input(input).output()?;
        let listed = self.call("ls-files", "base").args(["-s", "-z"]).output()?;
        for line in listed.split(|b| *b == 0) {
            let Some(tab) = line.iter().position(|b| *b == b'\t') else { continue };
            let Some(merged) = of.get_mut(&line[tab + 1..]) else { continue };
            let words = String::from_utf8_lossy(&line[..tab]).into_owned();
            let mut words = words.split(' ');
            let mode = words.next().and_then(|m| u32::from_str_radix(m, 8).ok());
            let oid = words.next().and_then(|o| o.parse().ok());
            merged.real = mode.zip(oid);
        }
        Ok(())
    }

    /// What the merge made of the edited paths.
    fn take_merged(&self, ours: &Oid, merged: &Oid, touched: &mut [Touched]) -> Result<(), Failure> {
        if touched.iter().all(|t| t.merged.is_none()) {
            return Ok(());
        }
        let differences: BTreeMap<Vec<u8>, (u32, Oid)> =
            self.between(ours, merged)?.into_iter().map(|c| (c.path, (c.new_mode, c.new))).collect();
        for t in touched {
            if let Some(m) = &mut t.merged {
                m.result = differences.get(&t.change.path).cloned().or_else(|| m.real.clone());
                t.already = m.result == m.real;
            }
        }
        Ok(())
    }

    fn between(&self, from: &Oid, to: &Oid) -> Result<Vec<Change>, Failure> {
        let answer = self
            .call("diff-tree", "none")
            .args(["-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none"])
            .args([from.as_str(), to.as_str()])
            .output()?;
        change::parse(&answer).ok_or_else(|| Failure::fatal("git diff-tree answered something unexpected"))
    }

    /// The whole of what lands where something is merged: its digest, and the merged paths as a diff for eyes.
    pub fn second_look(&self, content: &Content, touched: &[Touched]) -> Result<(Digest, Vec<u8>), Failure> {
        let changes = self.between(&content.ours, &content.result)?;
        let digest = change::digest_with(&changes, |oid| {
            Ok(Digest::of(&self.call("cat-file", "none").args(["blob", oid.as_str()]).output()?))
        })?;
        let diff = self
            .call_void("diff-tree", "none")
            .env("GIT_LITERAL_PATHSPECS", "1")
            .args([
                "-r",
                "-p",
                "--full-index",
                "--no-renames",
                "--no-ext-diff",
                "--no-textconv",
                "--no-color",
            ])
            .args(["--src-prefix=a/", "--dst-prefix=b/", "-U3"])
            .args(["--end-of-options", content.ours.as_str(), content.result.as_str(), "--"])
            .args(
                touched
                    .iter()
                    .filter(|t| t.merged.is_some())
                    .map(|t| std::ffi::OsStr::from_bytes(&t.change.path)),
            )
            .output()?;
        Ok((digest, diff))
    }

    fn patch(&self, content: &Content, binary: bool) -> Result<Vec<u8>, Error> {
        self.call("diff-tree", "none")
            .args(["-r", "-p", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv"])
            .args(binary.then_some("--binary"))
            .args(["--ignore-submodules=none", "--no-relative", "--no-color", "-U3"])
            .args(["--src-prefix=a/", "--dst-prefix=b/"])
            .args(["--end-of-options", content.ours.as_str(), content.result.as_str(), "--"])
            .output()
    }

    /// git's own dry run. `Err` text of git's when it would not apply the same difference.
    pub fn agrees(&self, content: &Content) -> Result<Result<(), String>, Failure> {
        let patch = match self.patch(content, true) {
            // Without their bytes git finds both sides of a binary by name in the object store.
            Err(Error::TooMuch { .. }) => self.patch(content, false)?,
            other => other?,
        };
        if patch.is_empty() {
            return Ok(Ok(()));
        }
        let answer =
            self.call("apply", "none").args(["--check", "--whitespace=nowarn", "-p1"]).input(patch).run()?;
        Ok(if answer.status == 0 { Ok(()) } else { Err(answer.stderr.trim().to_owned()) })
    }

    /// Adds the attributes that stand in the work tree and nowhere else to the index of the result, as a
    /// checkout followed by `git status` would see them.
    pub fn attributes(&self, ground: &Ground, touched: &[Touched]) -> Result<(), Failure> {
        let mut places: BTreeSet<Vec<u8>> = BTreeSet::from([b".gitattributes".to_vec()]);
        for t in touched {
            places.extend(folders(&t.change.path).into_iter().map(|f| [&f[..], b"/.gitattributes"].concat()));
        }
        for t in touched {
            places.remove(&t.change.path);
        }
        for path in places {
            // A link is nothing to git here, and so is what cannot be read.
            if let Ok(Some(bytes)) = ground.tree().read_bounded_at(&path, MAX_ATTRIBUTES) {
                let oid = self.call("hash-object", "none").args(["-w", "--stdin"]).input(bytes).text()?;
                let oid: Oid = oid.parse().map_err(Failure::fatal)?;
                self.add("result", [(0o100_644, &oid, &path)])?;
            }
        }
        Ok(())
    }

    /// Returns the paths that go through LFS. Refuses paths that go through a filter whose program the tree itself could supply: only what the
    /// person's own configuration names by an absolute path or finds on PATH is started.
    pub fn filters(
        &self,
        repo: &Repo,
        touched: &[Touched],
        refused: &mut Vec<Refused>,
    ) -> Result<BTreeSet<Vec<u8>>, Failure> {
        let input = list(touched);
        let mut through_lfs = BTreeSet::new();
        if input.is_empty() {
            return Ok(through_lfs);
        }
        let call = self.call_void("check-attr", "result").args(["--cached", "-z", "--stdin", "filter"]);
        let answer = call.input(input).output()?;
        let words: Vec<&[u8]> = answer.split(|b| *b == 0).collect();
        let config = repo.config()?;
        let mut known: BTreeMap<&[u8], Option<&str>> = BTreeMap::new();
        for triple in words.chunks_exact(3) {
            let (path, name) = (triple[0], triple[2]);
            if name == b"lfs" {
                through_lfs.insert(path.to_vec());
            }
            let relative = known.entry(name).or_insert_with(|| {
                let name = String::from_utf8_lossy(name);
                ["process", "smudge"]
                    .iter()
                    .filter_map(|key| config.get(&format!("filter.{name}.{key}")))
                    .find(|command| is_relative(command))
            });
            if let Some(command) = relative {
                let why = format!(
                    "goes through the filter '{}', whose command is relative to the tree: '{}'",
                    Untrusted::new(name),
                    Untrusted::new(*command)
                );
                refused.push(Refused::new(path, why));
            }
        }
        Ok(through_lfs)
    }

    /// Writes the new files into the stage, as a checkout of the result would.
    pub fn stage(&self, touched: &[Touched], slot: &Slot) -> Result<(), Failure> {
        let input = list(touched);
        if input.is_empty() {
            return Ok(());
        }
        let mut prefix = std::ffi::OsString::from("--prefix=");
        prefix.push(slot.successors());
        prefix.push("/");
        let fail = || Failure::fatal("the new files could not be written; nothing was changed");
        let call = self.call_void("checkout-index", "result").arg(prefix).args(["-q", "-z", "--stdin"]);
        call.input(input).output().map_err(|e| fail().because(e))?;
        for t in touched.iter().filter(|t| lands(t)) {
            let path = &t.change.path;
            let made = slot.successor(path).map_err(|e| fail().because(e))?;
            if !made.is_some_and(|m| m.is_file() || (m.is_symlink() && t.change.new_mode == 0o120_000)) {
                return Err(fail().because(format!("git made no file for {}", quote_path(path))));
            }
        }
        Ok(())
    }

    /// Bytes that the new files need, before filters.
    pub fn bytes(repo: &Repo, touched: &[Touched]) -> Result<u64, Failure> {
        let objects = repo.objects()?;
        let mut total = 0_u64;
        for t in touched.iter().filter(|t| lands(t)) {
            let size = objects.header(&t.change.new)?.map_or(0, |(_, size)| size);
            // Each file takes whole blocks.
            total = total.saturating_add(size.div_ceil(4096).saturating_mul(4096));
        }
        Ok(total)
    }
}

fn lands(t: &Touched) -> bool {
    !t.already && t.operation() != Operation::Delete
}

fn list(touched: &[Touched]) -> Vec<u8> {
    touched.iter().filter(|t| lands(t)).flat_map(|t| [&t.change.path[..], b"\0"].concat()).collect()
}

/// Whether a filter's program is named by a path that depends on where it is started.
pub(super) fn is_relative(command: &str) -> bool {
    let command = command.trim_start();
    let program = match command.chars().next() {
        Some(quote @ ('"' | '\'')) => command[1..].split(quote).next().unwrap_or_default(),
        _ => command.split_whitespace().next().unwrap_or_default(),
    };
    program.contains('/') && !program.starts_with(['/', '~', '$'])
}

#[cfg(test)]
mod tests {
    use super::is_relative;

    #[test]
    fn relative_programs() {
        for bad in ["./tools/x", "tools/x %f", "'my tools/x' y", "../x"] {
            assert!(is_relative(bad), "{bad}");
        }
        for good in ["git-lfs smudge -- %f", "/usr/bin/x", "~/bin/x", "$HOME/x", "sed s/a/b/", "cat"] {
            assert!(!is_relative(good), "{good}");
        }
    }
}
