//! Variables of `env`: names that pass from the caller, and names with a value of their own. Decides which
//! names a policy may touch at all.

use crate::model::RunName;
use crate::text::Untrusted;

/// Stands for the run's port inside a value.
pub const PORT: &str = "{port}";
/// Stands for the run's name inside a value.
pub const NAME: &str = "{name}";

/// One entry: `NAME` passes the caller's value if there is one, `NAME=value` sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value, with `{port}` and `{name}` still in it. `None`: the caller's.
    pub value: Option<String>,
}

impl Variable {
    /// Reads an entry, or says why it cannot be one.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        check(name)?;
        if value.is_some_and(|v| v.contains('\0')) {
            return Err("a value cannot hold a NUL byte".into());
        }
        Ok(Self { name: name.to_owned(), value: value.map(str::to_owned) })
    }

    /// As it stands in a policy.
    pub fn entry(&self) -> String {
        match &self.value {
            None => self.name.clone(),
            Some(value) => format!("{}={value}", self.name),
        }
    }

    /// Whether its value asks for a port.
    pub fn wants_port(&self) -> bool {
        self.value.as_ref().is_some_and(|v| v.contains(PORT))
    }

    /// The value in a run; `None` when it is the caller's.
    pub fn fill(&self, run: &RunName, port: Option<u16>) -> Option<String> {
        let port = port.map(|p| p.to_string()).unwrap_or_default();
        self.value.as_ref().map(|v| v.replace(PORT, &port).replace(NAME, run.as_str()))
    }
}

impl Variable {
    /// What it does, for whoever is asked to accept it. `who` is whom it is for.
    pub fn does(&self, who: &str) -> String {
        match &self.value {
            None => format!("passes ${} to {who}", self.name),
            Some(value) => format!("sets ${} to '{}' for {who}", self.name, Untrusted::new(value)),
        }
    }
}

/// What a cage sets or drops whoever asks: it would hand over git, a key agent, or code into every program.
fn check(name: &str) -> Result<(), String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if name.is_empty() || !name.bytes().all(good) || name.as_bytes()[0].is_ascii_digit() {
        return Err(format!("'{name}' is not the name of a variable: write NAME or NAME=value"));
    }
    const NEVER: [&str; 27] = [
        "SSH_AUTH_SOCK",
        "SSH_AGENT_PID",
        "GPG_AGENT_INFO",
        "DBUS_SESSION_BUS_ADDRESS",
        "BASH_ENV",
        "ENV",
        "IFS",
        "SHELLOPTS",
        "PROMPT_COMMAND",
        "NODE_OPTIONS",
        "NODE_PATH",
        "PYTHONSTARTUP",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONUSERBASE",
        "PERL5OPT",
        "PERL5LIB",
        "PERL5DB",
        "RUBYOPT",
        "RUBYLIB",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "RUSTC_WRAPPER",
        "GCONV_PATH",
        "LOCPATH",
        "CLASSPATH",
    ];
    const OURS: [&str; 6] = ["PATH", "HOME", "SHELL", "TMPDIR", "TMP", "TEMP"];
    let prefixed = |all: &[&str]| all.iter().any(|p| name.starts_with(p));
    if prefixed(&["GIT_", "LD_", "DYLD_", "BASH_FUNC_"]) || NEVER.contains(&name) {
        return Err(format!("'{name}' never passes into a cage"));
    }
    if OURS.contains(&name) || prefixed(&["XDG_"]) {
        return Err(format!("'{name}' is the cage's own to set"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_values_and_what_never_passes() {
        let port = Variable::parse("PORT=80{port}/{name}/{port}").unwrap();
        assert!(port.wants_port());
        assert_eq!(port.fill(&"EG-1".parse().unwrap(), Some(21)).unwrap(), "8021/EG-1/21");
        assert_eq!(Variable::parse("KEY").unwrap().fill(&"x".parse().unwrap(), None), None);
        assert_eq!(Variable::parse("K=a=b").unwrap().value.as_deref(), Some("a=b"));
        for bad in [
            "",
            "=x",
            "1X",
            "A B",
            "A-B=1",
            "GIT_DIR",
            "GIT_DIR=x",
            "LD_PRELOAD=/x",
            "NODE_OPTIONS=--require=x",
            "PATH=/x",
            "HOME",
            "XDG_CONFIG_HOME=/x",
            "SSH_AUTH_SOCK",
            "BASH_ENV=x",
            "PYTHONPATH=.",
            "A=\0",
        ] {
            assert!(Variable::parse(bad).is_err(), "{bad:?}");
        }
    }
}
