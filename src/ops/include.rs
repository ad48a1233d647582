//! Include: untracked or ignored files of the person's work tree that the policy copies into a run. `choose`
//! decides before anything is made; `copy` copies what it chose. Secrets are refused whatever the policy says
//! (docs/decisions/0011-what-a-run-gets.md).

mod secret;

use super::Open;
use crate::git::Repo;
use crate::model::{Failure, Kind, Listed, Oid};
use crate::os::files::{self, Dir};
use crate::policy::{Globs, Located, Policy};
use crate::text::{Untrusted, quote_path, shell_quote};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path;

/// The list that other worktree tools read: patterns as in gitignore(5), of ignored files.
pub const LIST: &str = ".worktreeinclude";
/// Most files that a policy may copy into a run.
const MOST: usize = 10_000;
/// Below `host/`: what was copied and how it was afterwards.
const RECORD: &str = "include.json";

/// What will be copied.
#[derive(Debug, Default)]
pub struct Chosen {
    /// Paths relative to the top level, sorted.
    pub files: Vec<String>,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// Chooses the files. `base` is what the run is cut from: what it holds is in the run already.
pub fn choose(repo: &Repo, policy: &Policy, head: &Oid, base: &Oid) -> Result<Chosen, Failure> {
    let mut chosen = Chosen::default();
    let entries: Vec<(&Located<String>, Globs)> = policy.include().collect();
    let listed = entries.iter().any(|(entry, _)| entry.value == LIST);
    if let Some(top) = repo.work_tree().filter(|_| !listed)
        && files::lstat(&top.join(LIST)).ok().flatten().is_some()
    {
        chosen.notes.push(format!("{LIST} is not followed: the policy's 'include' does not name it"));
    }
    if entries.is_empty() {
        return Ok(chosen);
    }
    let top = repo.work_tree().ok_or_else(|| {
        Failure::fatal("the policy's 'include' copies files of a work tree, and this repository is bare")
    })?;
    let tree = Dir::open(top)
        .map_err(|e| Failure::fatal(format!("'{}' cannot be read", top.display())).because(e))?;
    let look = Look { repo, top, tree, base: repo.objects()?.commit(base)?.tree };
    let mut found = BTreeSet::new();
    for (entry, globs) in &entries {
        if entry.value == LIST {
            look.listed(head, &mut found, &mut chosen.notes)?;
        } else if entry.value.contains(['*', '?', '[', '{', '\\']) || entry.value.ends_with('/') {
            look.pattern(entry, globs, &mut found, &mut chosen.notes)?;
        } else {
            look.literal(entry, &mut found)?;
        }
    }
    if found.len() > MOST {
        return Err(Failure::fatal(format!(
            "the policy's 'include' matches {} files, more than {MOST}",
            found.len()
        ))
        .hint("name fewer; what can be made again belongs into 'setup'"));
    }
    chosen.files = found.into_iter().collect();
    Ok(chosen)
}

struct Look<'r> {
    repo: &'r Repo,
    top: &'r Path,
    tree: Dir,
    base: Oid,
}

/// What lies at a path.
enum There {
    Nothing,
    File,
    Link,
    Folder,
    Other,
}

impl Look<'_> {
    fn literal(&self, entry: &Located<String>, found: &mut BTreeSet<String>) -> Result<(), Failure> {
        let path = &entry.value;
        if self.in_base(path)? {
            return Ok(());
        }
        let what = match self.there(path)? {
            There::File => {
                self.no_secret(entry, path)?;
                self.take(path.as_bytes(), found)?;
                return Ok(());
            }
            There::Nothing => "does not exist in your work tree",
            There::Link => "is a symbolic link or lies behind one, and none is followed",
            There::Folder => "is a folder",
            There::Other => "is not a file",
        };
        let failure = Failure::fatal(format!("{} {what}", named(entry)));
        Err(match self.there(path)? {
            There::Folder => failure.hint(format!("everything below it is '{path}/'")),
            There::Nothing => failure.hint("make it, or change the policy"),
            _ => failure,
        })
    }

    fn pattern(
        &self,
        entry: &Located<String>,
        globs: &Globs,
        found: &mut BTreeSet<String>,
        notes: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let mut any = false;
        for path in self.others(&literal_prefix(&entry.value))?.split(|b| *b == 0) {
            // A folder here is a repository of its own.
            if path.is_empty() || path.ends_with(b"/") || !globs.is_match(path) {
                continue;
            }
            let shown = quote_path(path).into_owned();
            let Ok(text) = std::str::from_utf8(path) else { return Err(no_name(&shown)) };
            match self.there(text)? {
                There::File if self.in_base(text)? => any = true,
                There::File => {
                    any = true;
                    self.no_secret(entry, text)?;
                    self.take(path, found)?;
                }
                There::Link => notes.push(format!("{shown} is a symbolic link and was not copied")),
                There::Nothing | There::Folder | There::Other => {}
            }
        }
        if any || self.base_has(globs)? {
            return Ok(());
        }
        Err(Failure::fatal(format!("{} matches no file of your work tree", named(entry)))
            .hint("make it, or change the policy"))
    }

    /// Files that the list names *and* that git ignores, as the tools that read it have it. The list is that of
    /// the commit whose policy is in force. A secret in it is passed over with a word: the list is made for
    /// tools that copy them.
    fn listed(
        &self,
        head: &Oid,
        found: &mut BTreeSet<String>,
        notes: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let objects = self.repo.objects()?;
        let entry = objects.entry_at(&objects.commit(head)?.tree, LIST)?;
        let Some(entry) = entry.filter(|e| matches!(e.mode, 0o100_644 | 0o100_755)) else {
            return Err(Failure::fatal(format!(
                "the policy's 'include' names {LIST}, which is not committed"
            ))
            .hint(format!("git add {LIST} && git commit")));
        };
        let text = objects.expect(&entry.oid, crate::git::ObjectKind::Blob, 1 << 20)?;
        let fail = |e: std::io::Error| Failure::fatal("no temporary file could be made").because(e);
        let scratch = tempfile::tempdir().map_err(fail)?;
        let list = scratch.path().join("list");
        files::write_new(&list, &text, 0o600).map_err(fail)?;
        let named = self.git("ls-files").args(["-o", "-i", "-z", "--exclude-from"]).arg(&list).output()?;
        if named.is_empty() {
            return Ok(());
        }
        // Exit status 1 is an answer: none of them is ignored.
        let ignored = self.git("check-ignore").args(["-z", "--stdin"]).input(named).run()?;
        for path in ignored.stdout.split(|b| *b == 0).filter(|p| !p.is_empty()) {
            let shown = quote_path(path).into_owned();
            let Ok(text) = std::str::from_utf8(path) else { return Err(no_name(&shown)) };
            match self.there(text)? {
                There::File if self.in_base(text)? => {}
                There::File => match self.secret(text)? {
                    Some(why) => {
                        let allow = allowing(text);
                        notes.push(format!("{shown} was not copied: {why} (to allow it: {allow})"));
                    }
                    None => self.take(path, found)?,
                },
                There::Link => notes.push(format!("{shown} is a symbolic link and was not copied")),
                There::Nothing | There::Folder | There::Other => {}
            }
        }
        Ok(())
    }

    fn git(&self, verb: &str) -> crate::git::Call {
        self.repo.call(verb).current_dir(self.top)
    }

    /// Untracked files, ignored ones included, below a folder.
    fn others(&self, below: &str) -> Result<Vec<u8>, Failure> {
        let call = self.git("ls-files").args(["-o", "-z", "--"]);
        let call = if below.is_empty() { call } else { call.arg(format!(":(literal){below}")) };
        Ok(call.output()?)
    }

    fn base_has(&self, globs: &Globs) -> Result<bool, Failure> {
        let args = ["-r", "-z", "--name-only", "--full-tree", self.base.as_str()];
        let all = self.repo.call("ls-tree").args(args).output()?;
        Ok(all.split(|b| *b == 0).any(|p| !p.is_empty() && globs.is_match(p)))
    }

    fn in_base(&self, path: &str) -> Result<bool, Failure> {
        Ok(self.repo.objects()?.entry_at(&self.base, path)?.is_some())
    }

    fn there(&self, path: &str) -> Result<There, Failure> {
        match self.tree.lstat_at(path.as_bytes()) {
            Ok(None) => Ok(There::Nothing),
            Ok(Some(m)) if m.is_file() => Ok(There::File),
            Ok(Some(m)) if m.is_symlink() => Ok(There::Link),
            Ok(Some(m)) if m.is_dir() => Ok(There::Folder),
            Ok(Some(_)) => Ok(There::Other),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP)) => Ok(There::Link),
            Err(e) => {
                Err(Failure::fatal(format!("'{}' cannot be looked at", Untrusted::new(path))).because(e))
            }
        }
    }

    fn take(&self, path: &[u8], found: &mut BTreeSet<String>) -> Result<(), Failure> {
        let shown = quote_path(path).into_owned();
        match std::str::from_utf8(path) {
            Ok(text) if !text.contains('\n') => {
                found.insert(text.to_owned());
                Ok(())
            }
            _ => Err(no_name(&shown)),
        }
    }

    fn no_secret(&self, entry: &Located<String>, path: &str) -> Result<(), Failure> {
        let Some(why) = self.secret(path)? else { return Ok(()) };
        let shown = quote_path(path.as_bytes()).into_owned();
        let message = if shown == entry.value { String::new() } else { format!(" ({shown})") };
        Err(Failure::new(Kind::Consent, format!("{}{message} is not copied into a run: {why}", named(entry)))
            .hint(format!("if the run may have it all the same: {}", allowing(path))))
    }

    /// Why a file must not be copied, unless the person's own configuration names it.
    fn secret(&self, path: &str) -> Result<Option<String>, Failure> {
        if self.repo.config()?.personal_all("agent.include").contains(&path) {
            return Ok(None);
        }
        if let Some(why) = secret::by_name(path) {
            return Ok(Some(why.into()));
        }
        let start = self
            .tree
            .read_start_at(path.as_bytes(), secret::LOOK)
            .map_err(|e| Failure::fatal(format!("'{}' cannot be read", Untrusted::new(path))).because(e))?;
        Ok(secret::by_content(path, &start.unwrap_or_default()).map(Into::into))
    }
}

fn named(entry: &Located<String>) -> String {
    format!("include '{}' on line {} of the policy", Untrusted::new(&entry.value), entry.line)
}

fn allowing(path: &str) -> String {
    format!("git config --global --add agent.include {}", shell_quote(path))
}

fn no_name(shown: &str) -> Failure {
    Failure::fatal(format!("{shown} cannot be copied into a run: its name is not UTF-8 or has a line feed"))
}

/// The folders before the first component of a pattern that is one.
fn literal_prefix(pattern: &str) -> String {
    let whole = pattern.strip_suffix('/');
    let fixed = |c: &&str| !c.contains(['*', '?', '[', '{', '\\']);
    let parts: Vec<&str> = whole.unwrap_or(pattern).split('/').take_while(fixed).collect();
    parts.join("/")
}

/// As a line of an exclude file (gitignore(5)) that matches this one path.
pub fn exclude_line(path: &str) -> String {
    let mut line = String::from("/");
    for c in path.chars() {
        if matches!(c, '\\' | '*' | '?' | '[' | ' ') {
            line.push('\\');
        }
        line.push(c);
    }
    line
}

/// For the spawn event.
pub fn listing(files: &[String]) -> Listed {
    let mut list = Listed::default();
    for file in files {
        list.push(quote_path(file.as_bytes()));
    }
    list
}

/// Copies the chosen files into a tree of the run. Blocks are shared where the file system can.
pub fn copy(run: &Open<'_>, tree: &Path, files: &[String]) -> Result<(), Failure> {
    let Some(top) = run.repo.work_tree().filter(|_| !files.is_empty()) else { return Ok(()) };
    let broken = |path: &str| {
        let path = Untrusted::new(path).to_string();
        move |e: std::io::Error| {
            Failure::fatal(format!("'{path}' could not be copied into the run")).because(e)
        }
    };
    let from = Dir::open(top).map_err(broken(""))?;
    let to = Dir::open(tree).map_err(broken(""))?;
    for path in files {
        let fail = broken(path);
        let mut at = 0;
        while let Some(slash) = path[at..].find('/') {
            let folder = &path[..at + slash];
            if to.lstat_at(folder.as_bytes()).map_err(&fail)?.is_none() {
                to.create_dir_at(folder.as_bytes(), 0o755).map_err(&fail)?;
                files::give(&tree.join(folder), run.identity()).map_err(&fail)?;
            }
            at += slash + 1;
        }
        to.copy_new_at(path.as_bytes(), &from, path.as_bytes()).map_err(&fail)?;
        files::give(&tree.join(path), run.identity()).map_err(&fail)?;
    }
    Ok(())
}

/// Writes down how the copies are once the run is ready: from then on a change is the agent's.
pub fn record(run: &Open<'_>, files: &[String]) -> Result<(), Failure> {
    if files.is_empty() {
        return Ok(());
    }
    let fail = |e: std::io::Error| Failure::fatal("what was copied could not be recorded").because(e);
    let tree = Dir::open(&run.layout.tree()).map_err(fail)?;
    let times: Vec<_> =
        files.iter().map(|f| (f, files::status_time(tree.as_fd(), f.as_bytes()).ok().flatten())).collect();
    let text = serde_json::to_vec(&times).map_err(|e| Failure::fatal(e.to_string()))?;
    files::write_atomic(&run.layout.host().join(RECORD), &text, 0o600).map_err(fail)
}

/// A path, and when its status changed last.
type Time = (String, Option<(i64, u32)>);

/// What was copied into the run.
fn recorded(run: &Open<'_>) -> Vec<Time> {
    let text = files::read_bounded(&run.layout.host().join(RECORD), 16 << 20).ok().flatten();
    text.and_then(|t| serde_json::from_slice(&t).ok()).unwrap_or_default()
}

/// The same copies for another tree of the run, where nothing has that name and the person still has the file.
pub fn again(run: &Open<'_>, tree: &Path) -> Result<(), Failure> {
    let Some(top) = run.repo.work_tree() else { return Ok(()) };
    let is =
        |folder: &Path, f: &str| files::lstat(&folder.join(f)).ok().flatten().is_some_and(|m| m.is_file());
    let wanted = recorded(run).into_iter().map(|(f, _)| f).filter(|f| is(top, f) && !is(tree, f));
    copy(run, tree, &wanted.collect::<Vec<_>>())
}

/// Copies that are not any more as the run got them: the difference does not hold them.
pub fn changed(run: &Open<'_>) -> Vec<String> {
    let times = recorded(run);
    if times.is_empty() {
        return Vec::new();
    }
    let Ok(tree) = Dir::open(&run.layout.tree()) else { return Vec::new() };
    let now = |f: &str| files::status_time(tree.as_fd(), f.as_bytes()).ok().flatten();
    times.into_iter().filter(|(f, then)| now(f) != *then).map(|(f, _)| f).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_a_fixed_part_and_paths_a_line() {
        for (pattern, prefix) in
            [("a/b/*.c", "a/b"), ("**/x", ""), ("fixtures/", "fixtures"), ("a/{b,c}/d", "a"), ("*", "")]
        {
            assert_eq!(literal_prefix(pattern), prefix, "{pattern}");
        }
        assert_eq!(exclude_line("a b/[x]*?\\y"), "/a\\ b/\\[x]\\*\\?\\\\y");
    }
}
