//! The one error type that reaches the person: what failed, why, what to do. [`Kind`] decides the exit status.

use std::error::Error;

/// What an error means to a caller. One function maps it to an exit status ([`Kind::exit_status`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The answer is no (1).
    No,
    /// A conflict, or an edited path without `--merge`; nothing changed (3).
    Conflict,
    /// Approval or consent is lacking (4).
    Consent,
    /// The cage is not in force (97).
    Cage,
    /// A program cannot be started in the cage (125, 126 or 127, as env(1) has it).
    Exec(u8),
    /// Something failed (128).
    Fatal,
    /// The command line is wrong (129).
    Usage,
}

impl Kind {
    /// Exit status as documented in `git-agent(1)`, section EXIT STATUS.
    pub fn exit_status(self) -> u8 {
        match self {
            Kind::No => 1,
            Kind::Conflict => 3,
            Kind::Consent => 4,
            Kind::Cage => 97,
            Kind::Exec(status) => status,
            Kind::Fatal => 128,
            Kind::Usage => 129,
        }
    }
}

/// A failure as shown: one sentence, the chain of causes, and hints that can be pasted.
#[derive(Debug)]
pub struct Failure {
    /// What it means to the caller.
    pub kind: Kind,
    /// What failed, then with what. No trailing full stop.
    pub message: String,
    /// The cause, if another error is one.
    pub cause: Option<Box<dyn Error + Send + Sync>>,
    /// Each a sentence or a command that can be pasted.
    pub hints: Vec<String>,
}

impl Failure {
    /// A failure of a given kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None, hints: Vec::new() }
    }

    /// Something failed: exit status 128.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::new(Kind::Fatal, message)
    }

    /// The command line is wrong: exit status 129.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Chains a cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        let mut cause = self.cause.as_deref().map(|e| e as &dyn Error);
        while let Some(e) = cause {
            write!(f, ": {e}")?;
            cause = e.source();
        }
        Ok(())
    }
}

impl Error for Failure {}
