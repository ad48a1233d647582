//! The record of refusals.

use super::hosts::Why;
use serde_json::json;
use std::cell::RefCell;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Characters of a host that are kept.
const HOST: usize = 300;

/// Writes one line of JSON for each refusal, up to a number of them: an engine that is refused in a loop must not
/// fill a disk.
pub(super) struct Refusals(RefCell<(Box<dyn Write>, usize)>);

impl Refusals {
    pub(super) fn new(sink: impl Write + 'static, most: usize) -> Self {
        Self(RefCell::new((Box::new(sink), most)))
    }

    pub(super) fn add(&self, method: &str, host: Option<&str>, port: Option<u16>, why: Why) {
        let (sink, left) = &mut *self.0.borrow_mut();
        let Some(now_left) = left.checked_sub(1) else { return };
        *left = now_left;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let host: Option<String> = host.map(|h| h.chars().take(HOST).collect());
        let method: String = method.chars().take(20).collect();
        let mut lines = format!(
            "{}\n",
            json!({ "time": time, "method": method, "host": host, "port": port, "why": why.as_str() })
        );
        if now_left == 0 {
            lines.push_str(&format!("{}\n", json!({ "time": time, "why": "more" })));
        }
        // Whoever reads may be gone; what is refused stays refused.
        let _ = sink.write_all(lines.as_bytes()).and_then(|()| sink.flush());
    }
}
