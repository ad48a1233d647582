//! What is wrong with a policy file, where, and how it looks there.

use crate::model::Failure;
use crate::text::Untrusted;
use serde_saphyr::Location;
use std::fmt::Write;

/// Widest piece of a source line in a snippet, in characters.
const WIDTH: usize = 100;

/// A policy that cannot be used. Everything in it is safe to show: the file is a stranger's until proven
/// otherwise, so its text has been escaped.
#[derive(Debug, thiserror::Error)]
#[error("{name}:{line}:{column}: {message}")]
pub struct PolicyError {
    /// The name the caller gave the file.
    pub name: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// One sentence without a final stop.
    pub message: String,
    /// The line with a caret below the place; several lines, no final line feed. Empty for a file that is
    /// no text or too large.
    pub snippet: String,
}

impl From<PolicyError> for Failure {
    fn from(e: PolicyError) -> Failure {
        let mut message = format!("cannot use this policy: {e}");
        if !e.snippet.is_empty() {
            let _ = write!(message, "\n{}", e.snippet);
        }
        Failure::fatal(message)
    }
}

/// A place in the file; lines and columns from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub line: u32,
    pub column: u32,
}

impl Place {
    pub const START: Place = Place { line: 1, column: 1 };
}

impl From<Location> for Place {
    fn from(l: Location) -> Place {
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).max(1);
        Place { line: narrow(l.line()), column: narrow(l.column()) }
    }
}

/// The file being read, to make errors that show it.
pub(super) struct File<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

impl File<'_> {
    pub fn error(&self, at: impl Into<Place>, message: impl AsRef<str>) -> PolicyError {
        let at = at.into();
        PolicyError {
            name: Untrusted::new(self.name).to_string(),
            line: at.line,
            column: at.column,
            message: Untrusted::new(message.as_ref()).to_string(),
            snippet: self.snippet(at),
        }
    }

    fn snippet(&self, at: Place) -> String {
        let number = at.line.to_string();
        let margin = " ".repeat(number.len());
        let line = self.text.lines().nth(at.line as usize - 1).unwrap_or("");
        let before = (at.column as usize - 1).min(line.chars().count());
        let skip = before.saturating_sub(WIDTH * 2 / 3);
        let shown = |from: usize, n: usize| {
            Untrusted::new(&line.chars().skip(from).take(n).collect::<String>()).to_string()
        };
        let dots = if skip > 0 { "..." } else { "" };
        let caret = dots.len() + shown(skip, before - skip).chars().count();
        format!(
            "{margin} |\n{number} | {dots}{}\n{margin} | {}^",
            shown(skip, WIDTH).trim_end(),
            " ".repeat(caret)
        )
    }
}
