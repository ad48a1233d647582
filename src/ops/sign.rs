//! Signing as git signs: `gpg.format`, `user.signingkey` and the programs that git's own configuration names.

use crate::git::{Config, Repo};
use crate::model::{Failure, Kind};
use crate::os::process;
use crate::os::signing::{self, SshKey};
use std::ffi::OsString;

/// How the person signs.
#[derive(Debug, Clone)]
pub enum Key {
    /// With ssh-keygen.
    Ssh(OsString, SshKey),
    /// With gpg; key or address.
    OpenPgp(OsString, String),
}

impl Key {
    /// The person's key as git is configured, or what is missing (exit status 4).
    pub fn of(repo: &Repo, who: &str) -> Result<Self, Failure> {
        let config = repo.config()?;
        let lacks =
            |what: &str, hint: &str| Failure::new(Kind::Consent, what.to_owned()).hint(hint.to_owned());
        match config.get("gpg.format").unwrap_or("openpgp") {
            "ssh" => {
                let key = config.get("user.signingkey").filter(|k| !k.is_empty()).ok_or_else(|| {
                    lacks(
                        "there is no key to sign with: user.signingkey is not set",
                        "git config --global user.signingkey ~/.ssh/id_ed25519.pub",
                    )
                })?;
                Ok(Self::Ssh(program(config, &["gpg.ssh.program"], "ssh-keygen"), ssh_key(key)))
            }
            "openpgp" => {
                let key = config.get("user.signingkey").filter(|k| !k.is_empty());
                let program = program(config, &["gpg.openpgp.program", "gpg.program"], "gpg");
                Ok(Self::OpenPgp(program, key.map_or_else(|| who.to_owned(), str::to_owned)))
            }
            other => Err(lacks(
                &format!("gpg.format '{}' cannot sign an approval", crate::text::Untrusted::new(other)),
                "git config --global gpg.format ssh",
            )),
        }
    }

    /// Signs `bytes` as an approval. A passphrase, a PIN or a touch may be asked for.
    pub fn sign(&self, namespace: &str, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        let made = match self {
            Key::Ssh(program, key) => signing::ssh_sign(program, key, namespace, bytes),
            Key::OpenPgp(program, key) => signing::gpg_sign(program, key, bytes),
        };
        made.map_err(|e| {
            Failure::new(Kind::Consent, "the approval could not be signed")
                .because(e)
                .hint("how git signs: git config --get-regexp '^(gpg|user.signingkey)'")
        })
    }
}

fn program(config: &Config, keys: &[&str], default: &str) -> OsString {
    keys.iter().find_map(|k| config.get(k)).unwrap_or(default).into()
}

/// `key::ssh-ed25519 AAAA`, the key itself, or a file; as git reads it.
fn ssh_key(key: &str) -> SshKey {
    if let Some(literal) = key.strip_prefix("key::") {
        return SshKey::Literal(literal.to_owned());
    }
    if key.starts_with("ssh-") {
        return SshKey::Literal(key.to_owned());
    }
    let home = || process::current_user().home;
    match key.strip_prefix("~/").and_then(|rest| Some(home()?.join(rest))) {
        Some(path) => SshKey::File(path.into_os_string()),
        None => SshKey::File(key.into()),
    }
}
