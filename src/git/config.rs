//! The configuration as git sees it, read once, with the scope of every value.

use super::Error;

/// Where a value was set. Loosening and person-related settings count from `System` and `Global` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `/etc/gitconfig` or the like.
    System,
    /// The user's own file.
    Global,
    /// The repository's `config`.
    Local,
    /// The work tree's `config.worktree`.
    Worktree,
    /// `-c` or `GIT_CONFIG_*`.
    Command,
}

/// All values in order of increasing precedence.
#[derive(Debug, Clone, Default)]
pub struct Config(Vec<(Scope, String, String)>);

impl Config {
    /// Parses the answer of `git config --list -z --show-scope`.
    ///
    /// `foreign`: scopes whose file the environment moved into the repository itself; they count as the
    /// repository's own.
    pub(super) fn parse(bytes: &[u8], foreign: &[Scope]) -> Result<Self, Error> {
        let bad = |what: &str| Error::Unreadable { verb: "config".into(), what: what.into() };
        let mut parts = bytes.split(|b| *b == 0);
        let mut entries = Vec::new();
        while let Some(scope) = parts.next() {
            if scope.is_empty() {
                break;
            }
            let scope = match scope {
                b"system" => Scope::System,
                b"global" => Scope::Global,
                b"local" => Scope::Local,
                b"worktree" => Scope::Worktree,
                b"command" => Scope::Command,
                _ => return Err(bad("an unknown scope")),
            };
            let scope = if foreign.contains(&scope) { Scope::Local } else { scope };
            let pair = parts.next().ok_or_else(|| bad("a scope without a value"))?;
            let pair = String::from_utf8_lossy(pair);
            // A key without `=` means true, as git has it.
            let (key, value) = pair.split_once('\n').unwrap_or((&pair, "true"));
            entries.push((scope, key.to_owned(), value.to_owned()));
        }
        Ok(Self(entries))
    }

    /// The value in force. `key` in git's normal form: section and name in lower case.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(_, k, _)| k == key).map(|(_, _, v)| v.as_str())
    }

    /// The value from the person's own files (system and global) only.
    pub fn personal(&self, key: &str) -> Option<&str> {
        let own = |s: &Scope| matches!(s, Scope::System | Scope::Global);
        self.0.iter().rev().find(|(s, k, _)| own(s) && k == key).map(|(_, _, v)| v.as_str())
    }

    /// All values of a key from the person's own files, in order.
    pub fn personal_all(&self, key: &str) -> Vec<&str> {
        let own = |s: &Scope| matches!(s, Scope::System | Scope::Global);
        self.0.iter().filter(|(s, k, _)| own(s) && k == key).map(|(_, _, v)| v.as_str()).collect()
    }

    /// A boolean as git reads it; `default` when unset or not a boolean.
    pub fn flag(&self, key: &str, default: bool) -> bool {
        match self.get(key).map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "yes" | "on" | "1") => true,
            Some("false" | "no" | "off" | "0" | "") => false,
            _ => default,
        }
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Scope, &str, &str)> {
        self.0.iter().map(|(s, k, v)| (*s, k.as_str(), v.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_and_precedence() {
        let c =
            Config::parse(b"global\0user.name\nAda\0local\0user.name\nBob\0local\0core.bare\0", &[]).unwrap();
        assert_eq!(c.get("user.name"), Some("Bob"));
        assert_eq!(c.personal("user.name"), Some("Ada"));
        assert!(c.flag("core.bare", false));
        assert_eq!(c.get("x"), None);
        let c = Config::parse(b"global\0agent.approve\nunattended\0", &[Scope::Global]).unwrap();
        assert_eq!((c.personal("agent.approve"), c.get("agent.approve")), (None, Some("unattended")));
    }
}
