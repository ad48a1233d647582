//! What a run's cage lets be seen and done: as its latest engine was started in it, else as it would be built now.

use super::{Open, confine, spawn, switch};
use crate::git::Repo;
use crate::model::{CageReport, Failure, RunName};
use crate::os::cage::{Cage, CageSpec};
use crate::os::files;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Largest record that is read.
const MOST: u64 = 4 << 20;

/// A run's cage, as plain data.
#[derive(Debug)]
pub struct Shown {
    /// The run.
    pub name: RunName,
    /// Whether an engine was started in it; else it is how the next would be.
    pub started: bool,
    /// The tier; `none` or `outer` where the person switched the cage off.
    pub tier: String,
    /// What the cage is made from.
    pub spec: Value,
}

/// Keeps what an engine is about to be started in. Nothing reads it but people, and it holds no login.
pub(super) fn record(run: &Open<'_>, cage: &Cage, report: &CageReport) -> Result<(), Failure> {
    let value = json!({ "v": 1, "tier": report.tier, "cage": plain(cage.spec())? });
    let path = record_of(run.layout.host());
    // Not synced: it is made again for the next engine, and what counts stands in the ledger.
    files::write_plain(&path, value.to_string().as_bytes(), 0o600)
        .map_err(|e| Failure::fatal(format!("'{}' cannot be written", path.display())).because(e))
}

fn record_of(host: PathBuf) -> PathBuf {
    host.join("cage.json")
}

/// Reads the record. Takes no lock unless no engine was started yet, so that a run at work can be looked at.
pub fn read(repo: &Repo, word: &str) -> Result<Shown, Failure> {
    let (tip, layout) = spawn::locate(repo, word)?;
    let name = tip.understood()?.head.name.clone();
    let path = record_of(layout.host());
    let fail = |why: String| Failure::fatal(format!("'{}' cannot be read", path.display())).because(why);
    if let Some(bytes) = files::read_bounded(&path, MOST).map_err(|e| fail(e.to_string()))? {
        let mut value: Value = serde_json::from_slice(&bytes).map_err(|e| fail(e.to_string()))?;
        let tier = value["tier"].as_str().unwrap_or("unknown").to_owned();
        return Ok(Shown { name, started: true, tier, spec: value["cage"].take() });
    }
    let run = Open::named(repo, word)?;
    let held = confine::engine(&run, Vec::new(), Vec::new())?;
    let tier = match (switch::cage(repo.config()?)?.tier(), &held.chosen) {
        (Some(switched_off), _) => switched_off.to_owned(),
        (None, chosen) => chosen.as_ref().map_or("none", |c| c.tier.as_str()).to_owned(),
    };
    Ok(Shown { name, started: false, tier, spec: plain(held.cage.spec())? })
}

fn plain(spec: &CageSpec) -> Result<Value, Failure> {
    let value = serde_json::to_value(spec)
        .map_err(|e| Failure::fatal("a path of the cage cannot be shown").because(e.to_string()))?;
    let mut value = readable(value);
    // What was asked for and what came of it are one list for a reader; what came of it counts.
    if let Some(map) = value.as_object_mut()
        && let Some(Value::Object(wish)) = map.remove("wish")
    {
        wish.into_iter().for_each(|(key, asked)| {
            map.entry(key).or_insert(asked);
        });
    }
    Ok(value)
}

/// Strings of the system's kind as text, and pairs of them as `NAME=value`, without the values of logins.
fn readable(value: Value) -> Value {
    match value {
        Value::Object(map) => match map.get("Unix").filter(|_| map.len() == 1).and_then(bytes) {
            Some(bytes) => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
            None => Value::Object(map.into_iter().map(|(k, v)| (k, readable(v))).collect()),
        },
        Value::Array(list) => {
            let of_system = |v: &Value| v.as_object().is_some_and(|m| m.len() == 1 && m.contains_key("Unix"));
            let pair = list.len() == 2 && list.iter().all(of_system);
            let list: Vec<Value> = list.into_iter().map(readable).collect();
            match list.as_slice() {
                [Value::String(name), Value::String(value)] if pair => {
                    Value::String(format!("{name}={}", if is_secret(name) { "(hidden)" } else { value }))
                }
                _ => Value::Array(list),
            }
        }
        other => other,
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH"].iter().any(|part| name.contains(part))
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_array()?.iter().map(|n| n.as_u64().and_then(|n| u8::try_from(n).ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::cage::Wish;

    #[test]
    fn names_and_values_are_text_and_logins_stay_hidden() {
        let env = vec![("A".into(), "b c".into()), ("X_API_KEY".into(), "k".into())];
        let value =
            plain(&CageSpec { wish: Wish { env, ..Wish::default() }, ..CageSpec::default() }).unwrap();
        assert_eq!(value["env"], json!(["A=b c", "X_API_KEY=(hidden)"]));
        assert_eq!(value["network"], "open");
    }
}
