//! The two streams.

use crate::model::{Failure, Kind};
use crate::text::{Untrusted, json_safe};
use owo_colors::OwoColorize;
use std::io::{IsTerminal, Write};

/// Where answers and talk go, and whether they may be coloured.
#[derive(Debug)]
pub struct Out {
    color_answer: bool,
    color_talk: bool,
}

impl Default for Out {
    fn default() -> Self {
        // https://no-color.org: any value that is not empty counts.
        let allowed = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            && std::env::var_os("TERM").is_some_and(|t| t != "dumb");
        Self {
            color_answer: allowed && std::io::stdout().is_terminal(),
            color_talk: allowed && std::io::stderr().is_terminal(),
        }
    }
}

impl Out {
    /// Applies `--color`, `color.agent`, `color.ui` in this order; `None` leaves the terminal to decide.
    pub fn set_color(&mut self, wanted: Option<bool>) {
        if let Some(on) = wanted {
            self.color_answer = on;
            self.color_talk = on;
        }
    }

    /// Writes the answer and a line feed to stdout. A reader that went away is no error (`| head`).
    pub fn answer(&self, text: &str) -> Result<(), Failure> {
        self.raw(format!("{text}\n").as_bytes())
    }

    /// Writes bytes to stdout as they are.
    pub fn raw(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Failure::fatal("writing the answer failed").because(e))
            }
            _ => Ok(()),
        }
    }

    /// Writes one line of JSON to stdout, with escapes for what could steer a terminal.
    pub fn json(&self, value: &serde_json::Value) -> Result<(), Failure> {
        self.answer(&json_safe(&value.to_string()))
    }

    /// Writes a line to stderr.
    pub fn talk(&self, text: &str) {
        // Nobody is left to tell when stderr fails.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Writes a hint to stderr.
    pub fn hint(&self, text: &str) {
        let label = if self.color_talk { "hint:".yellow().to_string() } else { "hint:".into() };
        self.talk(&format!("{label} {}", Untrusted::new(text).multiline()));
    }

    /// Writes a warning to stderr.
    pub fn warning(&self, text: &str) {
        let label = if self.color_talk { "warning:".yellow().bold().to_string() } else { "warning:".into() };
        self.talk(&format!("{label} {}", Untrusted::new(text).multiline()));
    }

    /// Writes to stderr what nobody must overlook.
    pub fn danger(&self, text: &str) {
        let text = format!("warning: {}", Untrusted::new(text).multiline());
        self.talk(&if self.color_talk { text.red().bold().to_string() } else { text });
    }

    /// Shows a failure in git's voice.
    pub fn failure(&self, failure: &Failure) {
        let word = match failure.kind {
            Kind::No | Kind::Conflict | Kind::Consent => "error:",
            Kind::Cage | Kind::Exec(_) | Kind::Fatal => "fatal:",
            Kind::Usage => "usage:",
        };
        let label = if self.color_talk { word.red().bold().to_string() } else { word.into() };
        self.talk(&format!("{label} {}", Untrusted::new(&failure.to_string()).multiline()));
        for hint in &failure.hints {
            self.hint(hint);
        }
    }

    /// Emphasis on the answer stream.
    pub fn strong(&self, text: &str) -> String {
        if self.color_answer { text.bold().to_string() } else { text.to_owned() }
    }

    /// What deserves a second look.
    pub fn alarm(&self, text: &str) -> String {
        if self.color_answer { text.yellow().to_string() } else { text.to_owned() }
    }

    /// One line of a diff, already escaped.
    pub fn diff_line(&self, line: &str, header: bool) -> String {
        if !self.color_answer {
            return line.to_owned();
        }
        match line.as_bytes().first() {
            _ if header => line.bold().to_string(),
            Some(b'+') => line.green().to_string(),
            Some(b'-') => line.red().to_string(),
            Some(b'@') => line.cyan().to_string(),
            _ => line.to_owned(),
        }
    }

    /// A run state, coloured by what it asks of the person.
    pub fn state(&self, state: crate::model::RunState, width: usize) -> String {
        use crate::model::RunState as S;
        let word = format!("{:width$}", state.as_str());
        if !self.color_answer {
            return word;
        }
        match state {
            S::Running => word.cyan().to_string(),
            S::Proposed | S::Approved | S::Kept => word.green().to_string(),
            S::Interrupted | S::Failed => word.red().to_string(),
            S::Ready | S::Pruned | S::Applied | S::Landed | S::Rejected | S::Finished => {
                word.dimmed().to_string()
            }
        }
    }
}
