//! The published JSON Schema and what is really read are two descriptions of one thing: each key and each
//! word that one knows is known to the other, and whatever the parser takes, the schema takes.

use super::super::schema::{
    RawApproval, RawEngine, RawLedger, RawLimits, RawPaths, RawRetention, RawRole, RawSetup, Root,
};
use super::super::{BUILT_IN, SCHEMA};
use super::{bad, generate, parse};
use serde_json::Value;
use std::collections::BTreeSet;

fn published() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

/// The errors of a value under a schema. Every keyword but descriptions must be known here, so that none is
/// written and never checked.
fn errors(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let mut fail = |what: String| found.push(format!("{at}: {what}"));
    let mut nested: Vec<(Value, Value, String)> = Vec::new();
    for (keyword, rule) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "description" | "title" | "$schema" | "$defs" => {}
            "$ref" => {
                let target = root.pointer(rule.as_str().unwrap().trim_start_matches('#')).expect("a $ref");
                nested.push((target.clone(), value.clone(), at.into()));
            }
            "type" => {
                let good = match rule.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "boolean" => value.is_boolean(),
                    other => panic!("type {other}"),
                };
                if !good {
                    fail(format!("is no {rule}"));
                }
            }
            "const" if value != rule => fail(format!("is not {rule}")),
            "enum" if !rule.as_array().unwrap().contains(value) => fail(format!("is not of {rule}")),
            "const" | "enum" => {}
            "anyOf" => {
                let good = rule.as_array().unwrap().iter().any(|one| {
                    let mut inner = Vec::new();
                    errors(root, one, value, at, &mut inner);
                    inner.is_empty()
                });
                if !good {
                    fail("matches none of anyOf".into());
                }
            }
            "required" => {
                for key in
                    rule.as_array().unwrap().iter().filter(|k| value.get(k.as_str().unwrap()).is_none())
                {
                    fail(format!("lacks {key}"));
                }
            }
            "properties" | "propertyNames" | "additionalProperties" => {
                for (key, inner) in value.as_object().into_iter().flatten() {
                    let below = format!("{at}/{key}");
                    match keyword.as_str() {
                        "properties" => {
                            if let Some(schema) = rule.get(key) {
                                nested.push((schema.clone(), inner.clone(), below));
                            }
                        }
                        "propertyNames" => nested.push((rule.clone(), Value::from(key.as_str()), below)),
                        _ if schema.pointer("/properties").and_then(|p| p.get(key)).is_some() => {}
                        _ if *rule == Value::Bool(false) => fail(format!("has {key}")),
                        _ => nested.push((rule.clone(), inner.clone(), below)),
                    }
                }
            }
            "items" => {
                for (n, inner) in value.as_array().into_iter().flatten().enumerate() {
                    nested.push((rule.clone(), inner.clone(), format!("{at}/{n}")));
                }
            }
            "uniqueItems" => {
                let list = value.as_array().unwrap();
                if list.iter().map(Value::to_string).collect::<BTreeSet<_>>().len() < list.len() {
                    fail("has one twice".into());
                }
            }
            "minItems" | "minLength" | "minimum" | "maxLength" | "maximum" => {
                let number = match value {
                    Value::Array(list) => list.len() as u64,
                    Value::String(text) => text.chars().count() as u64,
                    other => other.as_u64().unwrap_or(0),
                };
                let bound = rule.as_u64().unwrap();
                if keyword.starts_with("min") && number < bound
                    || keyword.starts_with("max") && number > bound
                {
                    fail(format!("{keyword} is {bound}"));
                }
            }
            "pattern" => {
                let pattern = regex_automata::meta::Regex::new(rule.as_str().unwrap()).unwrap();
                if value.as_str().is_some_and(|text| !pattern.is_match(text)) {
                    fail(format!("is not like {rule}"));
                }
            }
            other => panic!("the schema uses '{other}', which this test does not know"),
        }
    }
    for (schema, value, at) in nested {
        errors(root, &schema, &value, &at, found);
    }
}

/// What the schema has against a policy; empty when it takes it.
fn complaints(text: &str) -> Vec<String> {
    // As editors read it: YAML 1.2, where `off` is a word.
    let value: Value = serde_saphyr::from_str_with_options(text, super::super::parse::options()).unwrap();
    let (root, mut found) = (published(), Vec::new());
    errors(&root, &root, &value, "", &mut found);
    found
}

#[test]
fn every_key_is_known_to_both() {
    let table = [
        ("", Root::KEYS),
        ("/$defs/role", RawRole::KEYS),
        ("/$defs/role/properties/paths", RawPaths::KEYS),
        ("/$defs/role/properties/setup", RawSetup::KEYS),
        ("/$defs/role/properties/limits", RawLimits::KEYS),
        ("/$defs/engine", RawEngine::KEYS),
        ("/$defs/approval", RawApproval::KEYS),
        ("/properties/retention", RawRetention::KEYS),
        ("/properties/ledger", RawLedger::KEYS),
        // A variant with a value and no struct of its own.
        ("/$defs/network/anyOf/1", &["proxy"]),
    ];
    let root = published();
    for (at, keys) in table {
        let object = root.pointer(at).unwrap_or_else(|| panic!("{at}"));
        let known: BTreeSet<&str> =
            object["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(known, keys.iter().copied().collect(), "{at}");
        assert_eq!(object["additionalProperties"], Value::Bool(false), "{at}: unknown keys are refused");
    }
    // And no object with keys is missing from the table.
    let mut queue = vec![(String::new(), root.clone())];
    while let Some((at, value)) = queue.pop() {
        if value.get("type") == Some(&Value::from("object")) && value.get("properties").is_some() {
            assert!(table.iter().any(|(t, _)| *t == at), "{at} is not compared with anything");
        }
        let children: Vec<(String, Value)> = match value {
            Value::Object(map) => map.into_iter().collect(),
            Value::Array(list) => list.into_iter().enumerate().map(|(n, v)| (n.to_string(), v)).collect(),
            _ => Vec::new(),
        };
        queue.extend(children.into_iter().map(|(key, v)| (format!("{at}/{key}"), v)));
    }
}

#[test]
fn every_word_is_known_to_both() {
    // The parser itself says which words it takes.
    for (at, wrong) in [
        ("/properties/tier", "version: 1\ntier: zz\n"),
        ("/properties/protect/additionalProperties", "version: 1\nprotect: {main: zz}\n"),
        ("/properties/ledger/properties/task", "version: 1\nledger: {task: zz}\n"),
        ("/$defs/role/properties/kind", "version: 1\nroles: {a: {kind: zz}}\n"),
        ("/$defs/engine/properties/isolation", "version: 1\nengines: {a: {isolation: zz}}\n"),
        ("/$defs/approval/properties/mode", "version: 1\napproval: {mode: zz}\n"),
        (
            "/$defs/approval/properties/signers/additionalProperties",
            "version: 1\napproval: {signers: {a: zz}}\n",
        ),
    ] {
        let said = bad(wrong);
        let list = said.split(" is not one of ").nth(1).unwrap_or_else(|| panic!("{said}"));
        let list: BTreeSet<&str> = list.split(';').next().unwrap().split(", ").collect();
        let root = published();
        let words = root.pointer(at).unwrap()["enum"].as_array().unwrap();
        assert_eq!(words.iter().map(|w| w.as_str().unwrap()).collect::<BTreeSet<_>>(), list, "{at}");
    }
    let said = bad("version: 1\nnetwork: zz\n");
    assert!(said.contains("is not one of open, proxy, off"), "{said}");
}

#[test]
fn what_the_parser_takes_the_schema_takes() {
    assert_eq!(complaints(BUILT_IN), [""; 0]);
    let mut taken = 0;
    for seed in 0..200 {
        let text = generate::policy(seed);
        assert!(parse(&text).is_ok(), "{}\n{text}", parse(&text).unwrap_err());
        assert_eq!(complaints(&text), [""; 0], "{text}");
        taken += 1;
    }
    assert_eq!(taken, 200);
}

#[test]
fn what_the_schema_is_for_it_refuses() {
    for text in [
        "version: 2\n",
        "roles: {}\n",
        "version: 1\nrole: {}\n",
        "version: 1\nroles: {a: {}}\n",
        "version: 1\nroles: {a: {kind: wirter}}\n",
        "version: 1\nroles: {a: {kind: writer, engine: [x]}}\n",
        "version: 1\nroles: {a: {kind: writer, engines: [x, x]}}\n",
        "version: 1\nroles: {a: {kind: writer, limits: {files: 0}}}\n",
        "version: 1\nroles: {a: {kind: writer, limits: {wall: 2}}}\n",
        "version: 1\nroles: {a: {kind: writer, limits: {wall: 30m1h}}}\n",
        "version: 1\nroles: {a: {kind: writer, paths: {allow: []}}}\n",
        "version: 1\nroles: {a: {kind: writer, paths: {deny: [/x]}}}\n",
        "version: 1\nroles: {a: {kind: writer, checks: {t: []}}}\n",
        "version: 1\nroles: {a: {kind: writer, setup: {}}}\n",
        "version: 1\nengines: {a: {decline_exit: 0}}\n",
        "version: 1\nengines: {a: {env: [\"A KEY\"]}}\n",
        "version: 1\nbranch: wt/x\n",
        "version: 1\nnetwork: {proxy: []}\n",
        "version: 1\nrefs: [main]\n",
        "version: 1\nstrip: x\n",
        "version: 1\npool: 17\n",
        "version: 1\napproval: {count: 0}\n",
    ] {
        assert!(parse(text).is_err(), "the parser takes it: {text}");
        assert!(!complaints(text).is_empty(), "the schema takes it: {text}");
    }
}
