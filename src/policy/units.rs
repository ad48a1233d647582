//! Scalars of the schema that YAML has no type for, and strict numbers: a quoted `"1"` is text, not a number.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;
use std::time::Duration;

/// A whole number, written without quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count(pub u64);

/// A number of bytes: a whole number, or one with `KiB`, `MiB` or `GiB`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes(pub u64);

/// A length of time: whole numbers with `s`, `m`, `h` or `d`, largest first (`1h30m`). Never a bare number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span(pub Duration);

/// `true` or `false`, without quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct TrueOrFalse;
        impl Visitor<'_> for TrueOrFalse {
            type Value = Flag;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true or false")
            }
            fn visit_bool<E: Error>(self, yes: bool) -> Result<Flag, E> {
                Ok(Flag(yes))
            }
        }
        d.deserialize_any(TrueOrFalse)
    }
}

struct Number<'a> {
    expected: &'static str,
    parse: &'a dyn Fn(&str) -> Option<u64>,
    bare: bool,
}

impl Visitor<'_> for Number<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<u64, E> {
        if self.bare { Ok(n) } else { Err(E::invalid_value(Unexpected::Unsigned(n), &self)) }
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<u64, E> {
        match u64::try_from(n) {
            Ok(n) => self.visit_u64(n),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(n), &self)),
        }
    }

    fn visit_str<E: Error>(self, s: &str) -> Result<u64, E> {
        (self.parse)(s).ok_or_else(|| E::invalid_value(Unexpected::Str(s), &self))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Number { expected: "a whole number", parse: &|_| None, bare: true }).map(Count)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let expected = "a number of bytes such as 65536, 64KiB, 100MiB or 2GiB";
        d.deserialize_any(Number { expected, parse: &bytes, bare: true }).map(Bytes)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let expected = "a length of time such as 90s, 30m, 2h, 1h30m or 30d";
        d.deserialize_any(Number { expected, parse: &seconds, bare: false })
            .map(|s| Span(Duration::from_secs(s)))
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
