//! Times and durations as people read and write them.

use chrono::{DateTime, Local, SecondsFormat, Utc};
use std::time::Duration;

/// Seconds since the epoch as RFC 3339 in UTC, for `--json`.
pub fn rfc3339(seconds: i64) -> String {
    DateTime::<Utc>::from_timestamp(seconds, 0)
        .map_or_else(|| seconds.to_string(), |t| t.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// Seconds since the epoch in local time.
pub fn local(seconds: i64) -> String {
    DateTime::<Utc>::from_timestamp(seconds, 0).map_or_else(
        || seconds.to_string(),
        |t| t.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S %z").to_string(),
    )
}

/// How long ago, in one unit, as `git branch` and `git log --date=relative` do.
pub fn ago(then: i64, now: i64) -> String {
    let s = now.saturating_sub(then);
    let (n, unit) = match s {
        i64::MIN..0 => return "in the future".into(),
        0..90 => (s, "second"),
        90..5400 => (s / 60, "minute"),
        5400..129_600 => (s / 3600, "hour"),
        _ => (s / 86_400, "day"),
    };
    format!("{n} {unit}{} ago", if n == 1 { "" } else { "s" })
}

/// A length of time such as `90s`, `45m`, `2h` or `1d`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("not a duration: '{text}' (write 90s, 45m, 2h or 1d)");
    let (digits, factor) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3600),
        Some(b'd') => (&text[..text.len() - 1], 86_400),
        _ => (text, 1),
    };
    let n: u64 = digits.parse().map_err(|_| bad())?;
    match n.checked_mul(factor) {
        Some(0) | None => Err(bad()),
        Some(s) => Ok(Duration::from_secs(s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("2h").unwrap().as_secs(), 7200);
        assert_eq!(parse_duration("90").unwrap().as_secs(), 90);
        for bad in ["", "h", "0", "-1s", "1w", "99999999999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ages() {
        assert_eq!(ago(100, 101), "1 second ago");
        assert_eq!(ago(0, 7200), "2 hours ago");
        assert_eq!(ago(10, 0), "in the future");
    }
}
