//! Run ids: lower-case ULIDs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A run id: a ULID in lower case, 26 characters of Crockford base 32. The first ten are time in
/// milliseconds, the rest chance. Source: the ULID specification.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// Builds an id from milliseconds since the epoch and 80 random bits (the low bits of `chance`).
    pub fn new(millis: u64, chance: u128) -> Self {
        Self(ulid::Ulid::from_parts(millis, chance).to_string().to_lowercase())
    }

    /// All 26 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last four characters, which name a run that nobody named.
    pub fn tail(&self) -> &str {
        &self.0[22..]
    }

    /// Milliseconds since the epoch at which the id was made.
    pub fn millis(&self) -> u64 {
        ulid::Ulid::from_string(&self.0).map(|u| u.timestamp_ms()).unwrap_or(0)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RunId {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let crockford = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'h' | b'j' | b'k' | b'm' | b'n' | b'p'..=b't' | b'v'..=b'z');
        if s.len() == 26 && s.as_bytes()[0] <= b'7' && s.bytes().all(crockford) {
            Ok(Self(s.to_owned()))
        } else {
            Err(format!("not a run id (26 characters, a lower-case ULID): {s:?}"))
        }
    }
}

impl TryFrom<String> for RunId {
    type Error = String;

    fn try_from(s: String) -> Result<Self, String> {
        s.parse()
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> String {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_round_trip() {
        let a = RunId::new(1_764_531_644_000, 7);
        let b = RunId::new(1_764_531_644_001, 0);
        assert!(a < b);
        assert_eq!(a.as_str().parse::<RunId>().unwrap(), a);
        assert_eq!(a.millis(), 1_764_531_644_000);
        assert!("01K".parse::<RunId>().is_err());
        assert!("../../../../../../../../../".parse::<RunId>().is_err());
    }
}
