//! The order of what a role may do.

use super::{Found, Looser, Other, SEES, Tighter, names, networks};
use crate::policy::{Limits, Located, Policy, RoleKind, RoleRule, Setup, Variable, kind_by_name};
use std::collections::BTreeMap;

pub(super) fn compare(found: &mut Found, name: &str, rule: &RoleRule, base: &Policy) {
    let known = base.roles.get(name);
    // What the name means where no file declares it.
    let undeclared = RoleRule::undeclared(kind_by_name(name));
    let old = known.unwrap_or(&undeclared);
    let RoleRule {
        kind,
        allow,
        deny,
        engines,
        setup,
        checks,
        teardown,
        env,
        limits: now_limits,
        line,
        limit_lines,
        kind_line,
    } = rule;
    let line = line.unwrap_or(0);
    let kind_line = kind_line.unwrap_or(line);
    let key = |k: &str| format!("roles.{name}.{k}");

    if base.exact && known.is_none() {
        found.looser(&format!("roles.{name}"), line, "is a new role");
    }
    match (old.kind, kind) {
        (RoleKind::Writer, RoleKind::Reader) => found.looser(&key("kind"), kind_line, SEES),
        (RoleKind::Reader, RoleKind::Writer) => {
            found.looser(&key("kind"), kind_line, "may write, and was a reader");
        }
        _ => {}
    }
    let at = key("paths.allow");
    match (&old.allow, allow) {
        (None, None) => {}
        (None, Some(now)) => {
            for p in now.patterns() {
                found.tighter(&at, p.line, format!("may change only {}", p.glob));
            }
        }
        (Some(_), None) => found.looser(&at, line, "is gone: every path may be changed"),
        (Some(old), Some(now)) => {
            let words = ((Looser, "may change {}"), (Tighter, "may no longer change {}"));
            found.patterns(&at, line, (now, old), words.0, words.1);
        }
    }
    let words = ((Tighter, "refuses {}"), (Looser, "no longer refuses {}"));
    found.patterns(&key("paths.deny"), line, (deny, &old.deny), words.0, words.1);
    found.set(
        &key("engines"),
        line,
        (engines, &old.engines),
        (Looser, |e| format!("starts {e} without being asked to")),
        (Tighter, |e| format!("no longer starts {e} without being asked to")),
    );
    let order = |list: &[Located<String>]| list.iter().map(|e| e.value.clone()).collect::<Vec<_>>();
    let (now, was) = (order(engines), order(&old.engines));
    if now != was && now.len() == was.len() && now.iter().all(|e| was.contains(e)) {
        found.add(Other, &key("engines"), engines[0].line, "tries the same engines in another order");
    }
    setups(found, name, setup.as_ref(), old.setup.as_ref(), line);
    found.set(
        &key("checks"),
        line,
        (checks, &old.checks),
        (Looser, |c: &(String, Vec<String>)| names(&c.1)),
        (Tighter, |c| format!("no longer runs the check {}", c.0)),
    );
    found.set(
        &key("teardown"),
        line,
        (teardown, &old.teardown),
        (Looser, |c: &Vec<String>| names(c)),
        (Tighter, |c| format!("no longer runs {}", c.join(" "))),
    );
    found.set(
        &key("env"),
        line,
        (env, &old.env),
        (Looser, |v: &Variable| v.does("everything in the run")),
        (Tighter, |v| format!("no longer {}", v.does("everything in the run"))),
    );
    limits(found, name, (now_limits, limit_lines), &old.limits, line);
}

/// Commands in a row mean something only together, so a list that differs is compared as a whole.
fn setups(found: &mut Found, name: &str, now: Option<&Setup>, old: Option<&Setup>, role: u32) {
    let key = format!("roles.{name}.setup");
    let Some(now) = now else {
        if let Some(old) = old {
            found.tighter(&key, role, "is gone");
            for variable in &old.env {
                found.tighter(
                    &format!("{key}.env"),
                    role,
                    format!("no longer {}", variable.does("the setup")),
                );
            }
        }
        return;
    };
    let Setup { run, network, env, wall, line } = now;
    if old.is_none_or(|o| o.run != *run) {
        for command in run {
            found.looser(&key, *line, names(command));
        }
        if run.is_empty() {
            found.looser(&key, *line, "changes the setup");
        }
    }
    for variable in env.iter().filter(|v| old.is_none_or(|o| !o.env.contains(v))) {
        found.looser(&format!("{key}.env"), *line, variable.does("the setup"));
    }
    let Some(old) = old else { return };
    for variable in old.env.iter().filter(|v| !env.contains(v)) {
        found.tighter(&format!("{key}.env"), *line, format!("no longer {}", variable.does("the setup")));
    }
    let looser = format!("raises the limit of {} s", old.wall.as_secs());
    let tighter = format!("lowers the limit to {} s", wall.as_secs());
    found.ranked(&format!("{key}.wall"), *line, wall.cmp(&old.wall), &looser, &tighter);
    let at = format!("{key}.network");
    match (network, &old.network) {
        (Some(now), Some(old)) => networks(found, &at, *line, (now, old), "the setup"),
        (None, None) => {}
        // One of them follows the key `network`, whose own change is told there.
        _ => found.looser(&at, *line, "lets the setup reach another part of the network"),
    }
}

fn limits(
    found: &mut Found,
    role: &str,
    (now, lines): (&Limits, &BTreeMap<&'static str, u32>),
    old: &Limits,
    line: u32,
) {
    // No limit at all is the largest.
    let each = |l: &Limits| {
        let Limits { wall, files, lines, bytes, blob } = *l;
        let (wall, lines) = (wall.map_or(u64::MAX, |d| d.as_secs()), lines.unwrap_or(u64::MAX));
        [("wall", wall), ("files", files), ("lines", lines), ("bytes", bytes), ("blob", blob)]
    };
    for ((key, now), (_, old)) in each(now).into_iter().zip(each(old)) {
        let at = lines.get(key).copied().unwrap_or(line);
        let key = format!("roles.{role}.limits.{key}");
        let looser = format!("raises the limit of {old}");
        found.ranked(&key, at, now.cmp(&old), &looser, &format!("lowers the limit to {now}"));
    }
}
