//! How policies look: in words and as JSON.

use super::time::{local, rfc3339};
use crate::ops::explain::{Checked, Compared, Explained, Text};
use crate::ops::init::{Found, Written};
use crate::ops::trust::{Candidate, Standing};
use crate::policy::{
    Decision, Difference, Judgement, Limits, Located, Network, Policy, PolicyError, RoleKind, RoleRule,
    Variable,
};
use crate::text::{Untrusted, shell_quote};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Answer of `policy check`.
pub fn checked(text: &Text, checked: &Checked) -> String {
    let mut said = format!("ok: {} ({})", Untrusted::new(&text.name), checked.policy.sha256());
    if !checked.looser.is_empty() {
        said.push_str("\nlooser than the built-in default, so in force only once it is accepted:");
        for l in &checked.looser {
            let _ = write!(said, "\n  {l}");
        }
    }
    said
}

/// The same as JSON, also of a file that is no policy.
pub fn checked_json(text: &Text, checked: Result<&Checked, &PolicyError>) -> Value {
    match checked {
        Ok(c) => json!({
            "v": 1,
            "file": text.name,
            "ok": true,
            "sha256": c.policy.sha256().to_string(),
            "looser": differences_json(&c.looser),
            "notes": c.notes,
        }),
        Err(e) => json!({
            "v": 1,
            "file": text.name,
            "ok": false,
            "error": { "line": e.line, "column": e.column, "message": e.message, "snippet": e.snippet },
        }),
    }
}

fn differences_json(all: &[Difference]) -> Value {
    let one = |d: &Difference| {
        let line = (d.line > 0).then_some(d.line);
        json!({ "direction": d.direction.as_str(), "key": d.key, "line": line, "what": d.what })
    };
    all.iter().map(one).collect()
}

/// Answer of `policy diff`.
pub fn compared(text: &Text, compared: &Compared) -> String {
    let mut said = String::new();
    let mut part = |title: String, all: &[Difference]| {
        if !said.is_empty() {
            said.push('\n');
        }
        said.push_str(&title);
        if all.is_empty() {
            said.push_str("\n  no difference");
        }
        for d in all {
            let _ = write!(said, "\n  {:7} {d}", d.direction.as_str());
        }
    };
    let name = Untrusted::new(&text.name);
    part(format!("{name} against the built-in default:"), &compared.built_in);
    if let Some((last, found)) = &compared.accepted {
        part(format!("{name} against the policy accepted on {}:", local(last.time)), found);
    }
    said
}

/// The same as JSON.
pub fn compared_json(text: &Text, policy: &Policy, compared: &Compared) -> Value {
    let accepted = compared.accepted.as_ref().map(|(last, found)| {
        json!({
            "time": rfc3339(last.time),
            "sha256": crate::model::Digest::of(last.policy.as_bytes()).to_string(),
            "differences": differences_json(found),
        })
    });
    json!({
        "v": 1,
        "file": text.name,
        "sha256": policy.sha256().to_string(),
        "built_in": differences_json(&compared.built_in),
        "accepted": accepted,
    })
}

/// Where a policy comes from and whether it is in force, in one line.
pub fn standing(candidate: &Candidate, standing: &Standing) -> String {
    let sha256 = candidate.policy.sha256();
    let state = match (&standing.accepted, standing.looser.is_empty()) {
        (_, true) => "in force".to_owned(),
        (Some(a), false) => format!("in force, accepted on {}", local(a.time)),
        (None, false) => "not in force: nobody accepted it here".to_owned(),
    };
    format!("the policy that counts is {} ({sha256}), {state}", candidate.name())
}

fn standing_json(candidate: &Candidate, standing: &Standing) -> Value {
    let in_force = candidate.in_force();
    json!({
        "source": in_force.source,
        "sha256": in_force.sha256.to_string(),
        "in_force": standing.in_force(),
        "accepted": standing.accepted.as_ref().map(|a| json!({ "time": rfc3339(a.time), "how": a.how })),
        "looser": differences_json(&standing.looser),
        "fresh": differences_json(&standing.fresh),
    })
}

/// Answer of `policy show --json`.
pub fn shown_json(candidate: &Candidate, standing: &Standing) -> Value {
    let mut value = standing_json(candidate, standing);
    value["v"] = json!(1);
    value["text"] = json!(String::from_utf8_lossy(&candidate.text));
    value
}

/// Answer of `policy trust --json`.
pub fn trusted_json(candidate: &Candidate, standing: &Standing) -> Value {
    let mut value = standing_json(candidate, standing);
    value["v"] = json!(1);
    value
}

/// What a person is asked to accept: only what is new.
pub fn question(candidate: &Candidate, standing: &Standing) -> String {
    let mut said = format!("{}\n", self::standing(candidate, standing));
    let since = match &standing.last {
        Some(last) => format!("the policy that you accepted on {}", local(last.time)),
        None => "the built-in default".into(),
    };
    if standing.fresh.is_empty() {
        let _ = write!(said, "It differs from {since}, and nothing in it is looser.");
        return said;
    }
    let _ = write!(said, "It is looser than {since} in this:");
    for l in &standing.fresh {
        let _ = write!(said, "\n  {l}");
    }
    said
}

/// Answer of `policy explain`.
pub fn explained(e: &Explained) -> String {
    let line = e.rule.line.map_or_else(|| "no line declares it".into(), |l| format!("line {l}"));
    let mut said = format!("role {} ({line})", e.role);
    for (key, value) in rule(&e.candidate.policy, &e.rule) {
        let _ = write!(said, "\n{key:9} {value}");
    }
    for (path, judgement) in &e.paths {
        let _ = write!(said, "\n{}", judged(path, judgement));
    }
    said
}

fn judged(path: &str, judgement: &Judgement) -> String {
    match judgement {
        Judgement::Allowed(None) => format!("{path}: allowed, no rule limits the role's paths"),
        Judgement::Allowed(Some(p)) => {
            format!("{path}: allowed by paths.allow '{}' on line {}", Untrusted::new(&p.glob), p.line)
        }
        // The refusal names the path itself.
        Judgement::Refused(r) => format!("{r}").replacen(": ", ": denied, ", 1),
    }
}

/// Key and value of everything that holds for a role.
fn rule(policy: &Policy, rule: &RoleRule) -> Vec<(&'static str, String)> {
    let at = |line: Option<u32>| line.map_or_else(|| " (default)".into(), |l| format!(" (line {l})"));
    let mut all = vec![("kind", format!("{}{}", kind(rule.kind), at(rule.kind_line())))];
    let globs = |g: &crate::policy::Globs| {
        let each = g.patterns().iter().map(|p| format!("{} (line {})", Untrusted::new(&p.glob), p.line));
        each.collect::<Vec<_>>().join(", ")
    };
    if rule.kind == RoleKind::Writer {
        all.push(("allow", rule.allow.as_ref().map_or_else(|| "every path (default)".into(), globs)));
        if !rule.deny.is_empty() {
            all.push(("deny", globs(&rule.deny)));
        }
    }
    let engines: Vec<_> = rule.engines.iter().map(|e| format!("{} (line {})", e.value, e.line)).collect();
    let engines = if engines.is_empty() { "none unless asked for".into() } else { engines.join(", then ") };
    all.push(("engines", engines));
    for (key, value) in limits(&rule.limits) {
        all.push(("limit", format!("{key} {value}{}", at(rule.limit_line(key)))));
    }
    let words = |command: &[String]| {
        let words: Vec<_> = command.iter().map(|w| shell_quote(w)).collect();
        Untrusted::new(&words.join(" ")).to_string()
    };
    if let Some(setup) = &rule.setup {
        for command in &setup.run {
            all.push(("setup", format!("{} (line {})", words(command), setup.line)));
        }
        if let Some(own) = &setup.network {
            all.push(("setup", format!("network {} (line {})", network(own), setup.line)));
        }
    }
    for Located { value: (name, command), line } in &rule.checks {
        all.push(("check", format!("{name}: {} (line {line})", words(command))));
    }
    for command in &rule.teardown {
        all.push(("teardown", format!("{} (line {})", words(&command.value), command.line)));
    }
    all.push(("network", format!("{}{}", network(policy.network()), at(policy.line("network")))));
    all.push(("tier", format!("{} or more{}", policy.tier().as_str(), at(policy.line("tier")))));
    all
}

fn kind(kind: RoleKind) -> &'static str {
    match kind {
        RoleKind::Writer => "writer",
        RoleKind::Reader => "reader",
    }
}

fn network(network: &Network) -> String {
    match network {
        Network::Open => "open".into(),
        Network::Off => "off".into(),
        Network::Proxy(hosts) => format!("proxy: {}", hosts.join(", ")),
    }
}

fn limits(limits: &Limits) -> [(&'static str, String); 5] {
    let Limits { wall, files, lines, bytes, blob } = *limits;
    let none = || "none".to_owned();
    [
        ("wall", wall.map_or_else(none, |d| format!("{} s", d.as_secs()))),
        ("files", files.to_string()),
        ("lines", lines.map_or_else(none, |n| n.to_string())),
        ("bytes", bytes.to_string()),
        ("blob", blob.to_string()),
    ]
}

/// The same as JSON.
pub fn explained_json(e: &Explained) -> Value {
    let paths: Vec<Value> = e
        .paths
        .iter()
        .map(|(path, judgement)| match judgement {
            Judgement::Allowed(p) => json!({
                "path": path,
                "allowed": true,
                "rule": p.as_ref().map(|_| "paths.allow"),
                "pattern": p.as_ref().map(|p| &p.glob),
                "line": p.as_ref().map(|p| p.line),
            }),
            Judgement::Refused(r) => json!({
                "path": path,
                "allowed": false,
                "rule": r.rule,
                "pattern": r.pattern,
                "line": (r.line > 0).then_some(r.line),
            }),
        })
        .collect();
    json!({
        "v": 1,
        "role": e.role.as_str(),
        "line": e.rule.line,
        "policy": standing_json(&e.candidate, &e.standing),
        "holds": rule_json(&e.candidate.policy, &e.rule),
        "paths": paths,
    })
}

fn variables(list: &[Variable]) -> Vec<String> {
    list.iter().map(Variable::entry).collect()
}

fn rule_json(policy: &Policy, rule: &RoleRule) -> Value {
    let globs = |g: &crate::policy::Globs| {
        let each = g.patterns().iter().map(|p| json!({ "pattern": p.glob, "line": p.line }));
        each.collect::<Vec<_>>()
    };
    let Limits { wall, files, lines, bytes, blob } = rule.limits;
    let checks =
        rule.checks.iter().map(|c| json!({ "name": c.value.0, "command": c.value.1, "line": c.line }));
    let setup = rule.setup.as_ref().map(|s| {
        let own = s.network.as_ref().map(network);
        json!({ "run": s.run, "env": variables(&s.env), "network": own, "line": s.line })
    });
    json!({
        "kind": kind(rule.kind),
        "env": variables(&rule.variables()),
        "allow": rule.allow.as_ref().map(globs),
        "deny": globs(&rule.deny),
        "engines": rule.engines.iter().map(|e| json!({ "name": e.value, "line": e.line })).collect::<Vec<_>>(),
        "limits": {
            "wall": wall.map(|d| d.as_secs()), "files": files, "lines": lines, "bytes": bytes, "blob": blob,
        },
        "setup": setup,
        "checks": checks.collect::<Vec<_>>(),
        "teardown": rule.teardown.iter().map(|t| &t.value).collect::<Vec<_>>(),
        "network": network(policy.network()),
        "tier": policy.tier().as_str(),
    })
}

/// What the policy allowed a run, in a few words for the review.
pub fn allows(rule: &RoleRule) -> String {
    let list = |g: &crate::policy::Globs| {
        let each: Vec<_> = g.patterns().iter().map(|p| p.glob.as_str()).collect();
        Untrusted::new(&each.join(", ")).to_string()
    };
    let mut said = kind(rule.kind).to_owned();
    if rule.kind == RoleKind::Writer {
        match &rule.allow {
            Some(allow) => said.push_str(&format!(" of {}", list(allow))),
            None => said.push_str(" of every path"),
        }
        if !rule.deny.is_empty() {
            said.push_str(&format!(" but {}", list(&rule.deny)));
        }
    }
    let _ = write!(said, "; at most {} files", rule.limits.files);
    if let Some(lines) = rule.limits.lines {
        let _ = write!(said, ", {lines} lines");
    }
    said
}

/// What the policy says about a result.
pub fn decision_json(decision: Option<&Decision>) -> Value {
    match decision {
        None => Value::Null,
        Some(Decision::Allow) => json!({ "decision": "allow" }),
        Some(Decision::Wait(lacking)) => {
            let lacking: Vec<String> = lacking.iter().map(ToString::to_string).collect();
            json!({ "decision": "wait", "lacking": lacking })
        }
        Some(Decision::Refuse(refusals)) => {
            let each = refusals.iter().map(|r| {
                let line = (r.line > 0).then_some(r.line);
                json!({ "rule": r.rule, "path": r.path, "pattern": r.pattern, "line": line })
            });
            json!({ "decision": "refuse", "refusals": each.collect::<Vec<_>>() })
        }
    }
}

/// What `init` found in a project.
pub fn found(found: &Found) -> String {
    let words = |command: &[String]| command.iter().map(|w| shell_quote(w)).collect::<Vec<_>>().join(" ");
    let mut said = String::from("found in this project:");
    for (command, by) in &found.setup {
        let _ = write!(said, "\n  setup     {} ({by})", words(command));
    }
    for (name, command, by) in &found.checks {
        let _ = write!(said, "\n  check     {name}: {} ({by})", words(command));
    }
    if !found.strip.is_empty() {
        let _ = write!(said, "\n  strip     {} (an orchestrator's files)", found.strip.join(", "));
    }
    if found.setup.is_empty() && found.checks.is_empty() && found.strip.is_empty() {
        said.push_str(" no lock file, no test command, no orchestrator");
    }
    said
}

/// Answer of `init --json`; `written` is `None` where a policy was there already.
pub fn initialised_json(found: &Found, written: Option<&Written>, looser: &[Difference]) -> Value {
    let setup = found.setup.iter().map(|(c, by)| json!({ "command": c, "because": by }));
    let checks = found.checks.iter().map(|(n, c, by)| json!({ "name": n, "command": c, "because": by }));
    json!({
        "v": 1,
        "written": written.map(|w| w.paths.clone()).unwrap_or_default(),
        "sha256": written.map(|w| w.sha256.to_string()),
        "looser": differences_json(looser),
        "setup": setup.collect::<Vec<_>>(),
        "checks": checks.collect::<Vec<_>>(),
        "strip": found.strip,
    })
}
