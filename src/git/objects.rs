//! The object store behind one door: libgit2 where it can open the repository, else `git cat-file --batch`
//! and `git hash-object`. Objects are plain bytes here; both ways give the same bytes.

use super::{Call, Error, Place, Repo};
use crate::model::{Digest, HashKind, Oid};
use sha2::Digest as _;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Above this size a blob is hashed as a stream and never held in memory.
const STREAM_ABOVE: u64 = 8 << 20;

/// The four types of git objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// File content.
    Blob,
    /// A folder.
    Tree,
    /// A commit.
    Commit,
    /// An annotated tag.
    Tag,
}

impl ObjectKind {
    fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Blob => "blob",
            ObjectKind::Tree => "tree",
            ObjectKind::Commit => "commit",
            ObjectKind::Tag => "tag",
        }
    }

    fn parse(s: &str) -> Option<Self> {
        Some(match s {
            "blob" => ObjectKind::Blob,
            "tree" => ObjectKind::Tree,
            "commit" => ObjectKind::Commit,
            "tag" => ObjectKind::Tag,
            _ => return None,
        })
    }
}

/// Reads and writes objects of one repository.
pub struct Objects {
    hash: HashKind,
    place: Place,
    door: Door,
}

enum Door {
    Library(git2::Repository),
    /// Repositories libgit2 cannot open (sha256, reftable, new extensions) or must not write (shared modes).
    Executable(RefCell<Option<Batch>>),
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl Objects {
    pub(super) fn open(repo: &Repo, shared: bool) -> Self {
        // libgit2 is not told of a quarantine.
        let plain = repo.place().objects.is_none();
        let library = if repo.hash() == HashKind::Sha1 && !shared && plain {
            git2::Repository::open_bare(repo.common_dir()).ok()
        } else {
            None
        };
        let door = library.map_or_else(|| Door::Executable(RefCell::new(None)), Door::Library);
        Self { hash: repo.hash(), place: repo.place().clone(), door }
    }

    /// Type and size in bytes; `None` when the object does not exist.
    pub fn header(&self, oid: &Oid) -> Result<Option<(ObjectKind, u64)>, Error> {
        match &self.door {
            Door::Library(repo) => {
                let odb = repo.odb().map_err(Error::Store)?;
                match odb.read_header(git2_oid(oid)?) {
                    Ok((size, kind)) => Ok(kind_of(kind).map(|k| (k, size as u64))),
                    Err(e) if e.code() == git2::ErrorCode::NotFound => Ok(None),
                    Err(e) => Err(Error::Store(e)),
                }
            }
            Door::Executable(batch) => self.batch(batch, |b| b.header(oid)),
        }
    }

    /// An object's type and bytes; `None` when it does not exist. Refuses more than `max` bytes.
    pub fn read(&self, oid: &Oid, max: u64) -> Result<Option<(ObjectKind, Vec<u8>)>, Error> {
        match &self.door {
            Door::Library(repo) => {
                match self.header(oid)? {
                    None => return Ok(None),
                    Some((_, size)) if size > max => return Err(too_much(max)),
                    Some(_) => {}
                }
                let odb = repo.odb().map_err(Error::Store)?;
                let object = odb.read(git2_oid(oid)?).map_err(Error::Store)?;
                let kind = kind_of(object.kind()).ok_or_else(|| Error::Missing(oid.to_string()))?;
                Ok(Some((kind, object.data().to_vec())))
            }
            Door::Executable(batch) => self.batch(batch, |b| b.read(oid, max)),
        }
    }

    /// An object that must exist and be of `kind`.
    pub fn expect(&self, oid: &Oid, kind: ObjectKind, max: u64) -> Result<Vec<u8>, Error> {
        match self.read(oid, max)? {
            Some((found, bytes)) if found == kind => Ok(bytes),
            _ => Err(Error::Missing(oid.to_string())),
        }
    }

    /// A commit that must exist.
    pub fn commit(&self, oid: &Oid) -> Result<CommitData, Error> {
        let bytes = self.expect(oid, ObjectKind::Commit, 1 << 20)?;
        CommitData::parse(&bytes).ok_or_else(|| Error::Missing(oid.to_string()))
    }

    /// A tree that must exist.
    pub fn tree(&self, oid: &Oid) -> Result<Vec<TreeEntry>, Error> {
        if *oid == self.hash.empty_tree() {
            return Ok(Vec::new());
        }
        let bytes = self.expect(oid, ObjectKind::Tree, 64 << 20)?;
        parse_tree(&bytes, self.hash).ok_or_else(|| Error::Missing(oid.to_string()))
    }

    /// The entry at a `/`-separated path below a tree; `None` when there is none.
    pub fn entry_at(&self, tree: &Oid, path: &str) -> Result<Option<TreeEntry>, Error> {
        let mut tree = tree.clone();
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            let Some(entry) = self.tree(&tree)?.into_iter().find(|e| e.name == part.as_bytes()) else {
                return Ok(None);
            };
            if parts.peek().is_none() {
                return Ok(Some(entry));
            }
            if entry.mode != 0o040_000 {
                return Ok(None);
            }
            tree = entry.oid;
        }
        Ok(None)
    }

    /// The content of the top-level file `name` of each commit, in order; an item that is missing, no file or
    /// larger than `max` is an error of its own. Through the executable the questions go out in batches,
    /// because one round trip a file costs more than the file.
    pub fn files_at(
        &self,
        commits: &[Oid],
        name: &str,
        max: u64,
    ) -> Result<Vec<Result<Vec<u8>, Error>>, Error> {
        match &self.door {
            Door::Library(repo) => Ok(commits
                .iter()
                .map(|commit| {
                    let missing = || Error::Missing(format!("{commit}:{name}"));
                    let commit = repo.find_commit(git2_oid(commit)?).map_err(|_| missing())?;
                    let tree = repo.find_tree(commit.tree_id()).map_err(|_| missing())?;
                    let entry = tree.get_name(name).ok_or_else(missing)?;
                    let oid: Oid = entry.id().to_string().parse().map_err(Error::Missing)?;
                    self.expect(&oid, ObjectKind::Blob, max)
                })
                .collect()),
            Door::Executable(batch) => self.batch(batch, |b| b.files_at(commits, name, max)),
        }
    }

    /// Stores an object and returns its id. Storing it twice is no error.
    pub fn write(&self, kind: ObjectKind, bytes: &[u8]) -> Result<Oid, Error> {
        match &self.door {
            Door::Library(repo) => {
                let odb = repo.odb().map_err(Error::Store)?;
                let git2_kind = match kind {
                    ObjectKind::Blob => git2::ObjectType::Blob,
                    ObjectKind::Tree => git2::ObjectType::Tree,
                    ObjectKind::Commit => git2::ObjectType::Commit,
                    ObjectKind::Tag => git2::ObjectType::Tag,
                };
                let oid = odb.write(git2_kind, bytes).map_err(Error::Store)?;
                oid.to_string().parse().map_err(Error::Missing)
            }
            // A running cat-file looks again for what it did not find, so it need not be started anew.
            Door::Executable(_) => {
                let text = Call::new("hash-object", &self.place)
                    .args(["-t", kind.as_str(), "-w", "--stdin"])
                    .input(bytes.to_vec())
                    .text()?;
                text.parse().map_err(|what| Error::Unreadable { verb: "hash-object".into(), what })
            }
        }
    }

    /// SHA-256 of a blob's content.
    pub fn blob_digest(&self, oid: &Oid) -> Result<Digest, Error> {
        match self.header(oid)? {
            Some((ObjectKind::Blob, size)) if size <= STREAM_ABOVE => {
                Ok(Digest::of(&self.expect(oid, ObjectKind::Blob, STREAM_ABOVE)?))
            }
            Some((ObjectKind::Blob, _)) => self.stream_digest(oid),
            _ => Err(Error::Missing(oid.to_string())),
        }
    }

    fn stream_digest(&self, oid: &Oid) -> Result<Digest, Error> {
        let io = |source| Error::Io { verb: "cat-file".into(), source };
        let mut command = Call::new("cat-file", &self.place).args(["blob", oid.as_str()]).into_command();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::NoGit)?;
        let mut out = child.stdout.take().expect("stdout was piped");
        let mut hash = sha2::Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match out.read(&mut buffer).map_err(io)? {
                0 => break,
                n => hash.update(&buffer[..n]),
            }
        }
        let status = child.wait().map_err(io)?;
        if !status.success() {
            return Err(Error::Missing(oid.to_string()));
        }
        Ok(Digest::from_bytes(hash.finalize().into()))
    }

    fn batch<T>(
        &self,
        slot: &RefCell<Option<Batch>>,
        ask: impl FnOnce(&mut Batch) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut slot = slot.borrow_mut();
        let batch = match &mut *slot {
            Some(batch) => batch,
            empty => empty.insert(Batch::start(&self.place)?),
        };
        let answer = ask(batch);
        if answer.is_err() {
            *slot = None;
        }
        answer
    }
}

fn too_much(max: u64) -> Error {
    Error::TooMuch { verb: "cat-file".into(), limit: usize::try_from(max).unwrap_or(usize::MAX) }
}

fn git2_oid(oid: &Oid) -> Result<git2::Oid, Error> {
    git2::Oid::from_str(oid.as_str()).map_err(Error::Store)
}

fn kind_of(kind: git2::ObjectType) -> Option<ObjectKind> {
    Some(match kind {
        git2::ObjectType::Blob => ObjectKind::Blob,
        git2::ObjectType::Tree => ObjectKind::Tree,
        git2::ObjectType::Commit => ObjectKind::Commit,
        git2::ObjectType::Tag => ObjectKind::Tag,
        _ => return None,
    })
}

/// A conversation with `git cat-file --batch-command` (git 2.36).
struct Batch {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Batch {
    fn start(place: &Place) -> Result<Self, Error> {
        let mut command = Call::new("cat-file", place).arg("--batch-command").into_command();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::NoGit)?;
        let input = child.stdin.take().expect("stdin was piped");
        let output = BufReader::new(child.stdout.take().expect("stdout was piped"));
        Ok(Self { child, input, output })
    }

    fn ask(&mut self, verb: &str, oid: &Oid) -> Result<Option<(ObjectKind, u64)>, Error> {
        let io = |source| Error::Io { verb: "cat-file".into(), source };
        writeln!(self.input, "{verb} {oid}").map_err(io)?;
        self.input.flush().map_err(io)?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(io)?;
        // `<oid> missing` or `<oid> <type> <size>`: both are documented formats, not messages.
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "missing"] => Ok(None),
            [_, kind, size] => match (ObjectKind::parse(kind), size.parse()) {
                (Some(kind), Ok(size)) => Ok(Some((kind, size))),
                _ => Err(Error::Unreadable { verb: "cat-file".into(), what: line }),
            },
            _ => Err(Error::Unreadable { verb: "cat-file".into(), what: line }),
        }
    }

    /// Asks many questions; `answer` gets each reply in order and must read what follows it. What is sent at
    /// once fits into a pipe, so that git can never wait for us while we wait for it.
    fn ask_many(
        &mut self,
        verb: &str,
        names: &[String],
        mut answer: impl FnMut(usize, Option<(Oid, ObjectKind, u64)>, &mut dyn Read) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        let io = |source| Error::Io { verb: "cat-file".into(), source };
        for (c, chunk) in names.chunks(32).enumerate() {
            let questions: String = chunk.iter().map(|name| format!("{verb} {name}\n")).collect();
            self.input.write_all(questions.as_bytes()).map_err(io)?;
            self.input.flush().map_err(io)?;
            for i in 0..chunk.len() {
                let mut line = String::new();
                self.output.read_line(&mut line).map_err(io)?;
                let words: Vec<&str> = line.split_whitespace().collect();
                let found = match words[..] {
                    [oid, kind, size] => match (oid.parse(), ObjectKind::parse(kind), size.parse()) {
                        (Ok(oid), Some(kind), Ok(size)) => Some((oid, kind, size)),
                        _ => return Err(Error::Unreadable { verb: "cat-file".into(), what: line }),
                    },
                    // `<name> missing`, and whatever else has neither type nor size.
                    [_, _] => None,
                    _ => return Err(Error::Unreadable { verb: "cat-file".into(), what: line }),
                };
                answer(c * 32 + i, found, &mut self.output).map_err(io)?;
            }
        }
        Ok(())
    }

    fn files_at(
        &mut self,
        commits: &[Oid],
        name: &str,
        max: u64,
    ) -> Result<Vec<Result<Vec<u8>, Error>>, Error> {
        let names: Vec<String> = commits.iter().map(|c| format!("{c}:{name}")).collect();
        let mut files: Vec<_> = names.iter().map(|n| Err(Error::Missing(n.clone()))).collect();
        let (mut wanted, mut places) = (Vec::new(), Vec::new());
        self.ask_many("info", &names, |i, found, _| {
            match found {
                Some((_, ObjectKind::Blob, size)) if size > max => files[i] = Err(too_much(max)),
                Some((oid, ObjectKind::Blob, _)) => {
                    wanted.push(oid.to_string());
                    places.push(i);
                }
                _ => {}
            }
            Ok(())
        })?;
        self.ask_many("contents", &wanted, |i, found, rest| {
            if let Some((_, _, size)) = found {
                let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX - 1) + 1];
                rest.read_exact(&mut bytes)?;
                bytes.pop();
                files[places[i]] = Ok(bytes);
            }
            Ok(())
        })?;
        Ok(files)
    }

    fn header(&mut self, oid: &Oid) -> Result<Option<(ObjectKind, u64)>, Error> {
        self.ask("info", oid)
    }

    fn read(&mut self, oid: &Oid, max: u64) -> Result<Option<(ObjectKind, Vec<u8>)>, Error> {
        let Some((kind, size)) = self.ask("contents", oid)? else { return Ok(None) };
        if size > max {
            // The content is on its way; the error ends this process and with it the pipe.
            return Err(too_much(max));
        }
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| too_much(max))? + 1];
        self.output.read_exact(&mut bytes).map_err(|source| Error::Io { verb: "cat-file".into(), source })?;
        bytes.pop();
        Ok(Some((kind, bytes)))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The parts of a commit we use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitData {
    /// Its tree.
    pub tree: Oid,
    /// Its parents in order.
    pub parents: Vec<Oid>,
    /// Committer time, seconds since the epoch.
    pub time: i64,
    /// Everything after the header; untrusted bytes.
    pub message: Vec<u8>,
}

impl CommitData {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(2).position(|w| w == b"\n\n").unwrap_or(bytes.len());
        let header = String::from_utf8_lossy(&bytes[..end]);
        let mut tree = None;
        let mut parents = Vec::new();
        let mut time = 0;
        for line in header.lines() {
            if let Some(v) = line.strip_prefix("tree ") {
                tree = tree.or(v.parse().ok());
            } else if let Some(v) = line.strip_prefix("parent ") {
                parents.push(v.parse().ok()?);
            } else if let Some(v) = line.strip_prefix("committer ") {
                time = v.rsplit(' ').nth(1).and_then(|t| t.parse().ok()).unwrap_or(0);
            }
        }
        let message = bytes.get(end + 2..).unwrap_or_default().to_vec();
        Some(Self { tree: tree?, parents, time, message })
    }
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Mode as git stores it, such as 0o100644.
    pub mode: u32,
    /// One path component; untrusted bytes.
    pub name: Vec<u8>,
    /// What it names.
    pub oid: Oid,
}

/// Reads a tree object.
pub fn parse_tree(mut bytes: &[u8], hash: HashKind) -> Option<Vec<TreeEntry>> {
    let raw = hash.hex_len() / 2;
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|b| *b == b' ')?;
        let nul = bytes.iter().position(|b| *b == 0)?;
        let mode = u32::from_str_radix(std::str::from_utf8(&bytes[..space]).ok()?, 8).ok()?;
        let name = bytes.get(space + 1..nul)?.to_vec();
        let oid = crate::text::hex(bytes.get(nul + 1..nul + 1 + raw)?).parse().ok()?;
        entries.push(TreeEntry { mode, name, oid });
        bytes = &bytes[nul + 1 + raw..];
    }
    Some(entries)
}

/// A tree object's bytes. Entries are sorted as git wants them (folders as if they ended in `/`).
pub fn tree_bytes(mut entries: Vec<TreeEntry>) -> Vec<u8> {
    let key = |e: &TreeEntry| {
        let mut k = e.name.clone();
        if e.mode == 0o040_000 {
            k.push(b'/');
        }
        k
    };
    entries.sort_by_key(key);
    let mut bytes = Vec::new();
    for e in entries {
        bytes.extend_from_slice(format!("{:o} ", e.mode).as_bytes());
        bytes.extend_from_slice(&e.name);
        bytes.push(0);
        let hex = e.oid.as_str();
        bytes.extend((0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap_or(0)));
    }
    bytes
}

/// A commit object's bytes. `who` is `Name <mail>`; the same for author and committer, in UTC.
pub fn commit_bytes(tree: &Oid, parents: &[Oid], who: &str, time: i64, message: &str) -> Vec<u8> {
    let mut text = format!("tree {tree}\n");
    for p in parents {
        text.push_str(&format!("parent {p}\n"));
    }
    text.push_str(&format!("author {who} {time} +0000\ncommitter {who} {time} +0000\n\n{message}\n"));
    text.into_bytes()
}
