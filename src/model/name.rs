//! Names of runs and roles. They become folders, branches and arguments, so they are narrow on purpose.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Why a word cannot be a name.
#[derive(Debug, thiserror::Error)]
#[error("{what} '{}' is not usable: {why}", crate::text::Untrusted::new(.name))]
pub struct BadName {
    what: &'static str,
    name: String,
    why: &'static str,
}

/// ASCII letters, digits, `.`, `_`, `-`; so that one name is one folder and one branch on every file
/// system (no case or Unicode twins hide in it but the case of letters, which spawn compares folded).
fn check(what: &'static str, name: &str, max: usize) -> Result<(), BadName> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > max {
        "it is too long"
    } else if !name.is_ascii() {
        "only ASCII letters, digits, '.', '_' and '-' are allowed"
    } else if name.contains('/') {
        "a slash would make it another folder and another branch"
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
        "only ASCII letters, digits, '.', '_' and '-' are allowed"
    } else if !name.as_bytes()[0].is_ascii_alphanumeric() {
        "it must start with a letter or a digit"
    } else if name.contains("..") || name.ends_with('.') || name.to_ascii_lowercase().ends_with(".lock") {
        "git does not allow '..', a final '.' or a final '.lock' in a branch name"
    } else {
        return Ok(());
    };
    Err(BadName { what, name: name.to_owned(), why })
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $what:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The name as written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $type {
            type Err = BadName;
            fn from_str(s: &str) -> Result<Self, BadName> {
                check($what, s, $max)?;
                Ok(Self(s.to_owned()))
            }
        }
        impl TryFrom<String> for $type {
            type Error = BadName;
            fn try_from(s: String) -> Result<Self, BadName> {
                s.parse()
            }
        }
        impl From<$type> for String {
            fn from(n: $type) -> String {
                n.0
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// The human name of a run, unique in a repository: `<role>-<cr>` or the caller's own.
    RunName, "run name", 100
);
name_type!(
    /// The name of a role, which the policy gives meaning to.
    Role, "role", 60
);

impl RunName {
    /// Whether two names would meet in one folder or branch on a file system that folds case.
    pub fn collides(&self, other: &RunName) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_be_another_folder_or_branch_are_refused() {
        for bad in [
            "", "a/b", "..", ".x", "-x", "x.lock", "x.LOCK", "x.", "a..b", "é", "e\u{301}", "a b", "a\n",
            "@{", "~",
        ] {
            assert!(bad.parse::<RunName>().is_err(), "{bad:?}");
        }
        for good in ["EG-026", "ui-developer-42", "a.b_c-1"] {
            assert!(good.parse::<RunName>().is_ok(), "{good:?}");
        }
        assert!("EG-1".parse::<RunName>().unwrap().collides(&"eg-1".parse().unwrap()));
    }
}
