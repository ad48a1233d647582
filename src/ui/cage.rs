//! What `git agent cage show` prints. Made from the serialised value, so that what is new there appears here.

use super::Out;
use crate::ops::cage_show::Shown;
use crate::text::Untrusted;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Keys that have better words than their own, in the order in which a person asks.
const WORDS: &[(&str, &str)] = &[
    ("write", "can write"),
    ("pins", "but not replace"),
    ("protect", "nor write"),
    ("read", "can read and run"),
    ("devices", "devices"),
    ("hidden", "hidden"),
    ("network", "network"),
    ("hosts", "hosts"),
    ("unix_sockets", "unix sockets"),
    ("identity", "runs as"),
    ("cwd", "starts in"),
    ("limits", "limits"),
    ("env", "environment"),
];

/// Answer of `cage show --json`.
pub fn json(shown: &Shown) -> Value {
    json!({
        "v": 1,
        "name": shown.name.as_str(),
        "started": shown.started,
        "tier": shown.tier,
        "cage": shown.spec,
    })
}

/// For a person: one heading a question, one line a path.
pub fn text(out: &Out, shown: &Shown) -> String {
    let when =
        if shown.started { "as its latest engine was started" } else { "as an engine would be started now" };
    let mut text = format!("{}, {when}\n", out.strong(&format!("cage of run {}", shown.name)));
    section(&mut text, "tier", std::slice::from_ref(&shown.tier));
    let Some(map) = shown.spec.as_object() else { return text };
    let known = WORDS.iter().filter_map(|(key, words)| Some((*words, map.get(*key)?)));
    let new = map.iter().filter(|(key, _)| *key != "tier" && WORDS.iter().all(|(known, _)| known != key));
    let new: Vec<_> = new.map(|(key, value)| (key.replace('_', " "), value)).collect();
    for (words, value) in known.chain(new.iter().map(|(k, v)| (k.as_str(), *v))) {
        let lines = lines(value);
        section(&mut text, words, if lines.is_empty() { NONE } else { &lines });
    }
    text.trim_end().to_owned()
}

const NONE: &[String] = &[];

/// Short answers beside their heading, long ones below it.
fn section(text: &mut String, words: &str, lines: &[String]) {
    match lines {
        [] => {
            let _ = writeln!(text, "  {words:17} -");
        }
        [one] if one.chars().count() < 60 => {
            let _ = writeln!(text, "  {words:17} {one}");
        }
        _ => {
            let _ = writeln!(text, "  {words}");
            for line in lines {
                let _ = writeln!(text, "    {line}");
            }
        }
    }
}

fn lines(value: &Value) -> Vec<String> {
    match value {
        Value::Null => vec!["as the caller".to_owned()],
        Value::Bool(yes) => vec![if *yes { "yes" } else { "no" }.to_owned()],
        Value::String(text) => vec![Untrusted::new(text).to_string()],
        Value::Array(list) => list.iter().flat_map(lines).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| {
                let key = key.replace('_', " ");
                match value {
                    Value::Null => format!("{key}: as the caller's"),
                    value => format!("{key}: {}", lines(value).join(", ")),
                }
            })
            .collect(),
        other => vec![other.to_string()],
    }
}
