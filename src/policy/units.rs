//! Scalars whose meaning YAML leaves open, read strictly: a quoted `"1"` is text and no number, `yes` is text
//! and no boolean, and lengths of time and sizes carry their unit.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::time::Duration;

/// A scalar as YAML 1.2 resolves it. Judged later, where its place is known.
#[derive(Debug, Clone)]
pub(super) enum Scalar {
    Number(u64),
    Bool(bool),
    Text(String),
    /// What it is, for the error.
    Other(String),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a single value")
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(n))
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<Scalar, E> {
                Ok(u64::try_from(n).map_or_else(|_| Scalar::Other(n.to_string()), Scalar::Number))
            }
            fn visit_f64<E: Error>(self, n: f64) -> Result<Scalar, E> {
                Ok(Scalar::Other(format!("{n:?}")))
            }
            fn visit_bool<E: Error>(self, yes: bool) -> Result<Scalar, E> {
                Ok(Scalar::Bool(yes))
            }
            fn visit_str<E: Error>(self, s: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(s.to_owned()))
            }
            fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
                Ok(Scalar::Other("nothing".into()))
            }
        }
        d.deserialize_any(Any)
    }
}

impl Scalar {
    /// A whole number, without quotes.
    pub fn count(&self) -> Result<u64, String> {
        match self {
            Scalar::Number(n) => Ok(*n),
            other => Err(other.wanted("a whole number")),
        }
    }

    /// `true` or `false`, without quotes.
    pub fn flag(&self) -> Result<bool, String> {
        match self {
            Scalar::Bool(yes) => Ok(*yes),
            other => Err(other.wanted("true or false")),
        }
    }

    /// A number of bytes: a whole number, or one with `KiB`, `MiB` or `GiB`.
    pub fn bytes(&self) -> Result<u64, String> {
        let n = match self {
            Scalar::Number(n) => Some(*n),
            Scalar::Text(s) => bytes(s),
            _ => None,
        };
        n.ok_or_else(|| self.wanted("a number of bytes such as 65536, 64KiB, 100MiB or 2GiB"))
    }

    /// A length of time: whole numbers with `s`, `m`, `h` or `d`, largest first. Never a bare number.
    pub fn span(&self) -> Result<Duration, String> {
        let n = match self {
            Scalar::Text(s) => seconds(s),
            _ => None,
        };
        n.map(Duration::from_secs)
            .ok_or_else(|| self.wanted("a length of time such as 90s, 30m, 2h, 1h30m or 30d"))
    }

    fn wanted(&self, what: &str) -> String {
        match self {
            Scalar::Number(n) => format!("{what} is needed here, not {n}"),
            Scalar::Bool(yes) => format!("{what} is needed here, not {yes}"),
            Scalar::Text(s) => format!("{what} is needed here, not the text '{s}'"),
            Scalar::Other(s) => format!("{what} is needed here, not {s}"),
        }
    }
}

/// Digits only: `u64::from_str` would take a `+`.
fn digits(s: &str) -> Option<u64> {
    if s.is_empty() || !s.bytes().all(|b| b.is_ascii_digit()) { None } else { s.parse().ok() }
}

fn bytes(s: &str) -> Option<u64> {
    let (n, shift) = [("KiB", 10), ("MiB", 20), ("GiB", 30)]
        .iter()
        .find_map(|(unit, shift)| Some((s.strip_suffix(unit)?, *shift)))?;
    digits(n.trim_end())?.checked_mul(1 << shift)
}

fn seconds(s: &str) -> Option<u64> {
    let mut total = 0u64;
    let mut largest = u64::MAX;
    let mut rest = s;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let unit = match rest.as_bytes()[end] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            _ => return None,
        };
        if unit >= largest {
            return None;
        }
        largest = unit;
        total = total.checked_add(digits(&rest[..end])?.checked_mul(unit)?)?;
        rest = &rest[end + 1..];
    }
    (total > 0).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time() {
        for (s, n) in [("90s", 90), ("2h", 7200), ("1h30m", 5400), ("30d", 2_592_000)] {
            assert_eq!(seconds(s), Some(n), "{s}");
        }
        for s in ["", "2", "2x", "h", "30m1h", "1h1h", "-1h", "0s", "99999999999999999999d", "1 h", "1é"] {
            assert_eq!(seconds(s), None, "{s}");
        }
    }

    #[test]
    fn sizes() {
        for (s, n) in [("64KiB", 65_536), ("2GiB", 2 << 30), ("100 MiB", 100 << 20)] {
            assert_eq!(bytes(s), Some(n), "{s}");
        }
        for s in ["", "KiB", "64K", "64kb", "+1KiB", "1.5GiB", "99999999999999999GiB"] {
            assert_eq!(bytes(s), None, "{s}");
        }
    }
}
