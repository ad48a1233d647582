//! What is to be done at each path, as a value that a journal can keep and that can be turned round.

use super::super::files::Meta;
use serde::{Deserialize, Serialize};

/// What is remembered of a file or folder, enough to know it again after a crash. Without the device: after a
/// restart of the machine it may have another number, and all that is moved is on one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification time: seconds since the epoch and nanoseconds.
    pub mtime: (i64, u32),
    /// File type and permission bits.
    pub mode: u32,
}

impl Known {
    /// Whether this look at a name saw the file untouched.
    pub fn is_untouched(&self, now: &Meta) -> bool {
        *self == Known::from(now)
    }
}

impl From<&Meta> for Known {
    fn from(m: &Meta) -> Self {
        Self { ino: m.id.ino, size: m.size, mtime: m.mtime, mode: m.mode }
    }
}

/// One change of names. `path` is relative to the tree, `slot` to the slot; both are raw bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Move {
    /// A file or link of the tree changes places with one in the slot.
    Exchange {
        /// Where in the tree.
        #[serde(with = "as_text")]
        path: Vec<u8>,
        /// Where in the slot; what was displaced is there afterwards.
        #[serde(with = "as_text")]
        slot: Vec<u8>,
        /// What comes.
        put: Known,
        /// What must be there and goes.
        was: Known,
    },
    /// A file or link comes to a name that is free.
    Put {
        /// Where in the tree.
        #[serde(with = "as_text")]
        path: Vec<u8>,
        /// Where it waits in the slot.
        #[serde(with = "as_text")]
        slot: Vec<u8>,
        /// What comes.
        put: Known,
    },
    /// A file or link goes into the slot.
    Take {
        /// Where in the tree.
        #[serde(with = "as_text")]
        path: Vec<u8>,
        /// Where in the slot; free.
        #[serde(with = "as_text")]
        slot: Vec<u8>,
        /// What must be there.
        was: Known,
    },
    /// An empty folder comes back from the slot.
    PutFolder {
        /// Where in the tree.
        #[serde(with = "as_text")]
        path: Vec<u8>,
        /// Where it waits in the slot.
        #[serde(with = "as_text")]
        slot: Vec<u8>,
        /// Its inode number.
        ino: u64,
    },
    /// A folder that is empty by now goes into the slot.
    TakeFolder {
        /// Where in the tree.
        #[serde(with = "as_text")]
        path: Vec<u8>,
        /// Where in the slot; free.
        #[serde(with = "as_text")]
        slot: Vec<u8>,
        /// Its inode number.
        ino: u64,
        /// Something else needs its name. If not, a folder that turns out not to be empty stays where it is.
        must: bool,
    },
    /// A folder is made.
    MakeFolder {
        /// Where in the tree.
        #[serde(with = "as_text")]
        path: Vec<u8>,
    },
}

impl Move {
    /// Where in the tree.
    pub fn path(&self) -> &[u8] {
        match self {
            Move::Exchange { path, .. }
            | Move::Put { path, .. }
            | Move::Take { path, .. }
            | Move::PutFolder { path, .. }
            | Move::TakeFolder { path, .. }
            | Move::MakeFolder { path } => path,
        }
    }

    /// The move that undoes this one once it is done. `made` is the inode number of a folder that was made,
    /// and `slot` a free name for it.
    pub fn inverse(self, made: Option<u64>, free: &str) -> Option<Move> {
        Some(match self {
            Move::Exchange { path, slot, put, was } => Move::Exchange { path, slot, put: was, was: put },
            Move::Put { path, slot, put } => Move::Take { path, slot, was: put },
            Move::Take { path, slot, was } => Move::Put { path, slot, put: was },
            Move::PutFolder { path, slot, ino } => Move::TakeFolder { path, slot, ino, must: false },
            Move::TakeFolder { path, slot, ino, .. } => Move::PutFolder { path, slot, ino },
            Move::MakeFolder { path } => {
                Move::TakeFolder { path, slot: free.as_bytes().to_vec(), ino: made?, must: false }
            }
        })
    }
}

/// Raw bytes as a JSON string: `%` and what is no UTF-8 as `%` and two digits.
pub mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes them.
    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(&chunk.valid().replace('%', "%25"));
            for byte in chunk.invalid() {
                text.push_str(&format!("%{byte:02x}"));
            }
        }
        to.serialize_str(&text)
    }

    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            if *first != b'%' {
                bytes.push(*first);
                rest = after;
                continue;
            }
            let byte = after.get(..2).and_then(|d| std::str::from_utf8(d).ok());
            let byte = byte.and_then(|d| u8::from_str_radix(d, 16).ok());
            bytes.push(byte.ok_or_else(|| D::Error::custom("a '%' without two digits"))?);
            rest = &after[2..];
        }
        Ok(bytes)
    }
}
