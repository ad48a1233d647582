//! Object ids of either hash.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The hash a repository uses for object names (`extensions.objectFormat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashKind {
    /// 40 hexadecimal digits.
    Sha1,
    /// 64 hexadecimal digits.
    Sha256,
}

impl HashKind {
    /// Length of an object id in hexadecimal digits.
    pub fn hex_len(self) -> usize {
        match self {
            HashKind::Sha1 => 40,
            HashKind::Sha256 => 64,
        }
    }

    /// The id that means "no object" in git's plumbing.
    pub fn null(self) -> Oid {
        Oid("0".repeat(self.hex_len()))
    }

    /// git's own word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            HashKind::Sha1 => "sha1",
            HashKind::Sha256 => "sha256",
        }
    }

    /// The id of the empty tree, which git knows without storing it.
    pub fn empty_tree(self) -> Oid {
        Oid(match self {
            HashKind::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            HashKind::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        }
        .into())
    }
}

/// A full object id: 40 or 64 lower-case hexadecimal digits. Never abbreviated, never a ref name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    /// The hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first ten digits, for people.
    pub fn short(&self) -> &str {
        &self.0[..10]
    }

    /// Whether this is the all-zero id.
    pub fn is_null(&self) -> bool {
        self.0.bytes().all(|b| b == b'0')
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Oid {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if matches!(s.len(), 40 | 64) && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Self(s.to_owned()))
        } else {
            Err(format!("not a full object id: {s:?}"))
        }
    }
}

impl TryFrom<String> for Oid {
    type Error = String;

    fn try_from(s: String) -> Result<Self, String> {
        s.parse()
    }
}

impl From<Oid> for String {
    fn from(o: Oid) -> String {
        o.0
    }
}
