//! How much a cage holds: the word that policy, machine, ledger and messages share.

use serde::{Deserialize, Serialize};

/// How much is held, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Landlock, seccomp and subreaper.
    #[default]
    Landlock,
    /// Namespaces and seccomp.
    Namespaces,
    /// Namespaces, Landlock and seccomp.
    Full,
}

impl Tier {
    /// The name in policy, ledger and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Landlock => "landlock",
            Tier::Namespaces => "namespaces",
            Tier::Full => "full",
        }
    }

    /// From that name.
    pub fn named(name: &str) -> Option<Self> {
        [Tier::Landlock, Tier::Namespaces, Tier::Full].into_iter().find(|t| t.as_str() == name)
    }
}
