//! The signers of this repository: listed, checked, and added to in the work tree, never silently and never in
//! a commit of ours.

use super::authority::Authority;
use super::person;
use super::sign::Key;
use crate::git::Repo;
use crate::ledger::{self, signers};
use crate::model::approval::Standing;
use crate::model::{Failure, Kind};
use crate::os::files;
use std::path::{Path, PathBuf};

/// One key that may sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Principals; untrusted text.
    pub principals: String,
    /// `SHA256:...`.
    pub key: String,
    /// `person`, `agent` or `nobody`.
    pub standing: Standing,
    /// Why the key does not count now.
    pub out: Option<String>,
}

/// Who may sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// SSH keys, in the order of the file.
    pub rows: Vec<Row>,
    /// Whether the commit has signers at all.
    pub any: bool,
    /// Whether approvals must be signed.
    pub signed: bool,
}

/// Who may sign by the commit that is checked out.
pub fn list(repo: &Repo, now: i64) -> Result<Listed, Failure> {
    let authority = Authority::here(repo)?;
    let signed = authority.rules().signed;
    let Some(signers) = &authority.signers else {
        return Ok(Listed { rows: Vec::new(), any: false, signed });
    };
    let row = |(principals, key, out): (String, String, Option<String>)| {
        let names: Vec<String> = principals.split(',').map(str::to_owned).collect();
        Row { standing: authority.standing(&names), principals, key, out }
    };
    Ok(Listed { rows: signers.rows(now).into_iter().map(row).collect(), any: true, signed })
}

/// What is in order and what is not.
#[derive(Debug, Default)]
pub struct Checked {
    /// Facts, one sentence each.
    pub fine: Vec<String>,
    /// What is wrong, one sentence each.
    pub wrong: Vec<String>,
}

/// Reads the files as whoever judges an approval does, and signs something with the person's key.
pub fn check(repo: &Repo, now: i64) -> Result<Checked, Failure> {
    let mut checked = Checked::default();
    let authority = match Authority::here(repo) {
        Ok(authority) => authority,
        Err(e) => {
            checked.wrong.push(e.to_string());
            return Ok(checked);
        }
    };
    let Some(signers) = &authority.signers else {
        checked.fine.push(format!("no {} is committed: approvals are not signed", signers::ALLOWED));
        if authority.rules().signed {
            checked.wrong.push("the policy asks for signed approvals, and nobody may sign".into());
        }
        return Ok(checked);
    };
    let people = signers.rows(now).into_iter().filter(|(p, _, out)| {
        let names: Vec<String> = p.split(',').map(str::to_owned).collect();
        out.is_none() && authority.standing(&names) == Standing::Person
    });
    let people = people.count();
    checked.fine.push(format!("{people} of {} keys belong to people and count now", signers.rows(now).len()));
    if people < usize::from(authority.rules().count) {
        checked.wrong.push(format!("{} approvals are asked for", authority.rules().count));
    }
    if person::agent().is_some() {
        return Ok(checked);
    }
    let actor = ledger::actor(repo.config()?);
    let tried = Key::of(repo, &format!("{} <{}>", actor.name, actor.email))
        .and_then(|key| key.sign(signers::APPROVAL, b"git agent trust signers check"));
    match tried {
        Err(e) => checked.wrong.push(e.to_string()),
        Ok(signature) => {
            match signers.verify(signers::APPROVAL, &signature, b"git agent trust signers check", now)? {
                Err(why) => checked.wrong.push(format!("your own signature does not count: {why}")),
                Ok(signer) if authority.standing(&signer.names) == Standing::Person => {
                    checked.fine.push(format!("you sign as {} with {}", signer.names[0], signer.key));
                }
                Ok(signer) => {
                    checked.wrong.push(format!("you sign as {}, who may not approve", signer.names[0]))
                }
            }
        }
    }
    Ok(checked)
}

/// What was written, for a person to look at and commit.
#[derive(Debug)]
pub struct Added {
    /// The files, from the top level.
    pub files: Vec<&'static str>,
    /// The line.
    pub line: String,
}

/// Adds a key to the work tree's [`signers::ALLOWED`] and makes [`signers::REVOKED`] if there is none. Nothing
/// is committed: who may approve changes when a person commits it.
pub fn add(repo: &Repo, principal: &str, key: &Path) -> Result<Added, Failure> {
    person::require_person("change who may sign")?;
    let top = repo.work_tree().ok_or_else(|| Failure::fatal("this needs a work tree, and there is none"))?;
    let read = |path: &Path| {
        files::read_bounded(path, 1 << 20)
            .map_err(|e| Failure::fatal(format!("cannot read '{}'", path.display())).because(e))
    };
    let text = read(key)?.ok_or_else(|| Failure::fatal(format!("there is no file '{}'", key.display())))?;
    let text = String::from_utf8_lossy(&text);
    let words: Vec<&str> = text.lines().next().unwrap_or_default().split_ascii_whitespace().collect();
    let [kind, blob, ..] = words[..] else {
        return Err(Failure::fatal(format!("'{}' holds no SSH public key", key.display()))
            .hint("name the file that ends in .pub"));
    };
    if principal.contains([' ', '\t', '"', ',', '\n']) {
        return Err(Failure::usage("a principal is one word without quotes or commas"));
    }
    let line = format!("{principal} namespaces=\"{},{}\" {kind} {blob}", signers::APPROVAL, signers::COMMIT);
    let allowed = top.join(signers::ALLOWED);
    let mut all = read(&allowed)?.unwrap_or_default();
    if !all.is_empty() && !all.ends_with(b"\n") {
        all.push(b'\n');
    }
    all.extend_from_slice(format!("{line}\n").as_bytes());
    let revoked = top.join(signers::REVOKED);
    let old = read(&revoked)?;
    let new = old.clone().unwrap_or_else(|| b"# Public keys that count no more, one a line.\n".to_vec());
    // What nobody could read afterwards is not written.
    signers::Signers::parse(&all, &new, None)
        .map_err(|e| Failure::new(Kind::Fatal, format!("the key was not added: {e}")))?;
    let write = |path: &PathBuf, bytes: &[u8]| {
        files::create_dirs(path.parent().unwrap_or(top), 0o755)
            .and_then(|()| files::write_atomic(path, bytes, 0o644))
            .map_err(|e| Failure::fatal(format!("cannot write '{}'", path.display())).because(e))
    };
    let mut written = vec![signers::ALLOWED];
    if old.is_none() {
        write(&revoked, &new)?;
        written.push(signers::REVOKED);
    }
    write(&allowed, &all)?;
    Ok(Added { files: written, line })
}
