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

/// Longest duration in seconds: ten years.
const LONGEST: u64 = 3650 * 86_400;

/// A length of time such as `90s`, `45m`, `2h`, `1h30m` or `1d`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("not a duration: '{text}' (write 90s, 45m, 2h, 1h30m or 1d)");
    // `parse` alone would take "+1".
    if text.bytes().all(|b| b.is_ascii_digit())
        && let Ok(seconds @ 1..=LONGEST) = text.parse()
    {
        return Ok(Duration::from_secs(seconds));
    }
    let (mut total, mut rest, mut last) = (0_u64, text, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let factor = match rest.as_bytes().get(digits) {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            Some(b'd') => 86_400,
            _ => return Err(bad()),
        };
        // From the largest unit down, each once: `30m1h` is a slip.
        if factor >= last {
            return Err(bad());
        }
        let n: u64 = rest[..digits].parse().map_err(|_| bad())?;
        total = n.checked_mul(factor).and_then(|n| total.checked_add(n)).ok_or_else(bad)?;
        (rest, last) = (&rest[digits + 1..], factor);
    }
    if total == 0 || total > LONGEST { Err(bad()) } else { Ok(Duration::from_secs(total)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("2h").unwrap().as_secs(), 7200);
        assert_eq!(parse_duration("90").unwrap().as_secs(), 90);
        assert_eq!(parse_duration("1d1h30m5s").unwrap().as_secs(), 91_805);
        for bad in [
            "",
            "h",
            "0",
            "0s",
            "-1s",
            "+1",
            "1w",
            "30m1h",
            "1h1h",
            "1h30",
            "\u{661}s",
            "99999999999999999999d",
        ] {
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
