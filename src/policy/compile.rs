//! From what is written to what it means. Every rule that YAML's types cannot hold is checked here, with the
//! place of the value that breaks it.

use super::error::{File, Place, PolicyError};
use super::glob::{Globs, Pattern, check};
use super::parse;
use super::schema::{Entries, List, RawApproval, RawEngine, RawLimits, RawRole, RawSetup, Words};
use super::units::Scalar;
use super::{
    Approval, Command, EngineRule, Later, Located, Network, Policy, Retention, RoleRule, Setup, Variable,
};
use crate::model::{Digest, Role};
use serde_saphyr::{Location, Spanned};
use std::collections::BTreeMap;

/// The template of the run branch, unless the policy says otherwise.
const BRANCH: &str = "wt/{name}";
/// Their results must fit into one event of the ledger.
const MOST_CHECKS: usize = 32;
/// The patterns that count as agent branches, unless the policy says otherwise.
const AGENT_BRANCHES: [&str; 3] = ["wt/**", "agent/**", "worktree-agent-*"];

type Result<T> = std::result::Result<T, PolicyError>;

pub(super) fn policy(bytes: &[u8], name: &str) -> Result<Policy> {
    let root = parse::root(bytes, name)?;
    let text = std::str::from_utf8(bytes).expect("parse::root has checked it");
    let file = File { name, text };
    version(&file, root.version.as_ref())?;
    let mut lines = BTreeMap::new();
    let mut note = |key, at: Location| lines.insert(key, Place::from(at).line);
    let list_line = |l: &Option<List>| l.as_ref().map(|l| l.referenced);
    for (key, at) in [
        ("strip", list_line(&root.strip)),
        ("branch", root.branch.as_ref().map(|s| s.referenced)),
        ("agent_branches", list_line(&root.agent_branches)),
        ("owners", list_line(&root.owners)),
        ("risk", list_line(&root.risk)),
        ("tier", root.tier.as_ref().map(|s| s.referenced)),
        ("network", root.network.as_ref().map(|s| s.referenced)),
        ("pool", root.pool.as_ref().map(|s| s.referenced)),
    ] {
        if let Some(at) = at {
            note(key, at);
        }
    }
    let mut retention = Retention::default();
    if let Some(raw) = root.retention {
        if let Some(v) = raw.snapshots {
            note("retention.snapshots", v.referenced);
            retention.snapshots = file.read(&v, Scalar::span)?;
        }
        if let Some(v) = raw.keep_tree {
            note("retention.keep_tree", v.referenced);
            retention.keep_tree = file.read(&v, Scalar::flag)?;
        }
    }
    let mut task = super::TaskText::default();
    if let Some(v) = root.ledger.and_then(|l| l.task) {
        note("ledger.task", v.referenced);
        task = v.value;
    }

    let roles = match root.roles {
        Some(raw) => {
            let mut roles = BTreeMap::new();
            for (key, raw) in raw.0 {
                key.value.parse::<Role>().map_err(|e| file.error(key.referenced, e.to_string()))?;
                roles.insert(key.value.clone(), role(&file, key.referenced, raw)?);
            }
            roles
        }
        // A file that says nothing of roles keeps the built-in ones; its list is exact all the same.
        None => {
            let known = Policy::built_in().roles.iter();
            known.map(|(name, rule)| (name.clone(), rule.clone().without_lines())).collect()
        }
    };
    let engines = root.engines.map_or(Ok(BTreeMap::new()), |e| engines(&file, e))?;

    let agent_branches = match root.agent_branches {
        Some(list) => globs(&file, list)?,
        None => {
            let patterns = AGENT_BRANCHES.map(|g| Pattern { glob: g.into(), line: 0 }).to_vec();
            Globs::compile(patterns).expect("a test compiles them")
        }
    };
    let branch = match root.branch {
        Some(s) => {
            template(&s.value, &agent_branches).map_err(|why| file.error(s.referenced, why))?;
            s.value
        }
        None => BRANCH.to_owned(),
    };
    if agent_branches.matched(branch.replacen("{name}", "x", 1).as_bytes()).is_none() {
        let at = Place { line: lines.get("agent_branches").copied().unwrap_or(1), column: 1 };
        return Err(file.error(at, format!("the run branches '{branch}' match none of these patterns")));
    }

    let network = root.network.map_or(Ok(Network::Open), |n| network(&file, n))?;
    let later = Later {
        owners: root.owners.map_or(Ok(vec![]), |l| words(&file, l, principal))?,
        include: root.include.map_or(Ok(vec![]), |l| words(&file, l, inside))?,
        refs: root.refs.map_or(Ok(vec![]), |l| words(&file, l, ref_pattern))?,
        approval: root.approval.map_or(Ok(Approval::default()), |a| approval(&file, a))?,
        protect: protect(&file, root.protect)?,
        risk: root.risk.map_or(Ok(vec![]), |l| words(&file, l, check))?,
        retention,
        pool: root.pool.map_or(Ok(0), |n| ranged(&file, &n, 0, 16))?,
    };
    Ok(Policy {
        sha256: Digest::of(bytes),
        exact: true,
        roles,
        engines,
        strip: root.strip.map_or(Ok(Globs::default()), |l| globs(&file, l))?,
        branch,
        agent_branches,
        tier: root.tier.map_or_else(Default::default, |t| t.value),
        network,
        task,
        later,
        lines,
    })
}

impl File<'_> {
    fn read<T>(
        &self,
        value: &Spanned<Scalar>,
        how: fn(&Scalar) -> std::result::Result<T, String>,
    ) -> Result<T> {
        how(&value.value).map_err(|why| self.error(value.referenced, why))
    }
}

fn version(file: &File<'_>, version: Option<&Spanned<Scalar>>) -> Result<()> {
    let Some(v) = version else {
        return Err(file.error(Place::START, "the key 'version' is missing: write 'version: 1'"));
    };
    match file.read(v, Scalar::count)? {
        1 => Ok(()),
        n => Err(file.error(v.referenced, format!("this git-agent reads version 1 of the policy, not {n}"))),
    }
}

fn role(file: &File<'_>, at: Location, raw: RawRole) -> Result<RoleRule> {
    let Some(kind) = raw.kind else {
        return Err(file.error(at, "this role has no 'kind': write 'kind: writer' or 'kind: reader'"));
    };
    let mut rule = RoleRule::undeclared(kind.value);
    rule.line = Some(Place::from(at).line);
    rule.kind_line = Some(Place::from(kind.referenced).line);
    if let Some(paths) = raw.paths {
        if let Some(allow) = paths.allow {
            if allow.value.is_empty() {
                let message = "an empty 'allow' would allow no path: leave it out, or make it a reader";
                return Err(file.error(allow.referenced, message));
            }
            rule.allow = Some(globs(file, allow)?);
        }
        rule.deny = paths.deny.map_or(Ok(Globs::default()), |l| globs(file, l))?;
    }
    if let Some(list) = raw.engines {
        for (i, engine) in list.value.iter().enumerate() {
            if list.value[..i].iter().any(|e| e.value == engine.value) {
                let message = format!("the engine '{}' is twice in this chain", engine.value);
                return Err(file.error(engine.referenced, message));
            }
        }
        rule.engines = words(file, list, engine_name)?;
    }
    rule.setup = raw.setup.map(|s| setup(file, s)).transpose()?;
    for (name, raw) in raw.checks.map_or_else(Vec::new, |c| c.0) {
        engine_name(&name.value).map_err(|why| file.error(name.referenced, why))?;
        if name.value == "setup" {
            return Err(file.error(name.referenced, "'setup' is what the checks call the setup itself"));
        }
        if rule.checks.len() == MOST_CHECKS {
            return Err(file.error(name.referenced, format!("a role has at most {MOST_CHECKS} checks")));
        }
        let line = Place::from(name.referenced).line;
        rule.checks.push(Located { value: (name.value, command(file, raw)?.value), line });
    }
    for raw in raw.teardown.map_or_else(Vec::new, |t| t.value) {
        rule.teardown.push(command(file, raw)?);
    }
    rule.env = raw.env.map_or(Ok(vec![]), |l| variables(file, l))?;
    if let Some(raw) = raw.limits {
        limits(file, raw, &mut rule)?;
    }
    Ok(rule)
}

fn limits(file: &File<'_>, raw: RawLimits, rule: &mut RoleRule) -> Result<()> {
    let limits = &mut rule.limits;
    let mut note = |key, v: &Spanned<Scalar>| {
        rule.limit_lines.insert(key, Place::from(v.referenced).line);
    };
    let positive = |v: &Spanned<Scalar>, how| match file.read(v, how)? {
        0 => Err(file.error(v.referenced, "a limit of 0 lets nothing through")),
        n => Ok(n),
    };
    if let Some(v) = raw.wall {
        note("wall", &v);
        limits.wall = Some(file.read(&v, Scalar::span)?);
    }
    if let Some(v) = raw.files {
        note("files", &v);
        limits.files = positive(&v, Scalar::count)?;
    }
    if let Some(v) = raw.lines {
        note("lines", &v);
        limits.lines = Some(positive(&v, Scalar::count)?);
    }
    if let Some(v) = raw.bytes {
        note("bytes", &v);
        limits.bytes = positive(&v, Scalar::bytes)?;
    }
    if let Some(v) = raw.blob {
        note("blob", &v);
        limits.blob = positive(&v, Scalar::bytes)?;
    }
    Ok(())
}

fn setup(file: &File<'_>, raw: Spanned<RawSetup>) -> Result<Setup> {
    let line = Place::from(raw.referenced).line;
    let Some(run) = raw.value.run else {
        return Err(file.error(raw.referenced, "'setup' has no 'run': list the commands there"));
    };
    let mut commands = Vec::new();
    for raw in run.value {
        commands.push(command(file, raw)?.value);
    }
    let network = raw.value.network.map(|n| network(file, n)).transpose()?;
    let env = raw.value.env.map_or(Ok(vec![]), |l| variables(file, l))?;
    let env = env.into_iter().map(|e| e.value).collect();
    let wall = raw.value.wall.map_or(Ok(Setup::WALL), |w| file.read(&w, Scalar::span))?;
    Ok(Setup { run: commands, network, env, wall, line })
}

fn engines(file: &File<'_>, raw: Entries<RawEngine>) -> Result<BTreeMap<String, EngineRule>> {
    let mut engines = BTreeMap::new();
    for (name, raw) in raw.0 {
        engine_name(&name.value).map_err(|why| file.error(name.referenced, why))?;
        let mut rule = EngineRule { isolation_line: Place::from(name.referenced).line, ..Default::default() };
        if let Some(isolation) = raw.isolation {
            rule.isolation = isolation.value;
            rule.isolation_line = Place::from(isolation.referenced).line;
        }
        rule.decline_exit = raw.decline_exit.map(|n| ranged(file, &n, 1, 255)).transpose()?;
        rule.env = raw.env.map_or(Ok(vec![]), |l| variables(file, l))?;
        if let Some(raw) = raw.command {
            let program = raw.value.first().map(|w| (w.value.contains("{task"), w.referenced));
            if let Some((true, at)) = program {
                return Err(file.error(at, "the program itself cannot come from the task"));
            }
            rule.command = Some(command(file, raw)?);
        }
        engines.insert(name.value, rule);
    }
    Ok(engines)
}

fn approval(file: &File<'_>, raw: RawApproval) -> Result<Approval> {
    let mut approval = Approval::default();
    let mut lines = BTreeMap::new();
    let mut note = |key, at: Location| lines.insert(key, Place::from(at).line);
    if let Some(v) = raw.count {
        note("count", v.referenced);
        approval.count = ranged(file, &v, 1, 16)?;
    }
    if let Some(v) = raw.signed {
        note("signed", v.referenced);
        approval.signed = Some(file.read(&v, Scalar::flag)?);
    }
    if let Some(v) = raw.two_person {
        note("two_person", v.referenced);
        approval.two_person = file.read(&v, Scalar::flag)?;
    }
    if let Some(v) = raw.expiry {
        note("expiry", v.referenced);
        approval.expiry = Some(file.read(&v, Scalar::span)?);
    }
    if let Some(v) = raw.mode {
        note("mode", v.referenced);
        approval.mode = v.value;
    }
    if let Some(raw) = raw.signers {
        let mut signers = BTreeMap::new();
        for (name, role) in raw.0 {
            principal(&name.value).map_err(|why| file.error(name.referenced, why))?;
            signers.insert(name.value, role.value);
        }
        approval.signers = Some(signers);
    }
    approval.lines = lines;
    Ok(approval)
}

fn protect(
    file: &File<'_>,
    raw: Option<Entries<Spanned<super::Protection>>>,
) -> Result<Vec<Located<(String, super::Protection)>>> {
    let mut protect = Vec::new();
    for (branch, protection) in raw.map_or_else(Vec::new, |r| r.0) {
        check(&branch.value).map_err(|why| file.error(branch.referenced, why))?;
        let line = Place::from(branch.referenced).line;
        protect.push(Located { value: (branch.value, protection.value), line });
    }
    Ok(protect)
}

fn network(file: &File<'_>, raw: Spanned<Network>) -> Result<Network> {
    if let Network::Proxy(hosts) = &raw.value {
        if hosts.is_empty() {
            return Err(file.error(raw.referenced, "'proxy' names no host: write 'off' if none is meant"));
        }
        if let Err(bad) = crate::os::proxy::HostList::parse(hosts) {
            return Err(file.error(raw.referenced, bad.to_string()));
        }
    }
    Ok(raw.value)
}

fn ranged(file: &File<'_>, n: &Spanned<Scalar>, low: u8, high: u8) -> Result<u8> {
    let found = file.read(n, Scalar::count)?;
    match u8::try_from(found) {
        Ok(small) if (low..=high).contains(&small) => Ok(small),
        _ => {
            Err(file
                .error(n.referenced, format!("a number from {low} to {high} is needed here, not {found}")))
        }
    }
}

/// The words of a command. Commands are lists: nothing is split or expanded, no shell is between.
fn command(file: &File<'_>, raw: Words) -> Result<Located<Command>> {
    if raw.value.first().is_none_or(|w| w.value.trim().is_empty()) {
        return Err(file.error(raw.referenced, "a command is a list of words that starts with a program"));
    }
    if let Some(bad) = raw.value.iter().find(|w| w.value.contains('\0')) {
        return Err(file.error(bad.referenced, "a word of a command cannot hold a NUL byte"));
    }
    let line = Place::from(raw.referenced).line;
    Ok(Located { value: raw.value.into_iter().map(|w| w.value).collect(), line })
}

fn globs(file: &File<'_>, list: List) -> Result<Globs> {
    let at = list.referenced;
    let patterns = words(file, list, check)?;
    let patterns = patterns.into_iter().map(|p| Pattern { glob: p.value, line: p.line }).collect();
    Globs::compile(patterns).map_err(|(line, why)| {
        let at = if line > 1 { Place { line, column: 1 } } else { Place::from(at) };
        file.error(at, why)
    })
}

fn words(
    file: &File<'_>,
    list: List,
    check: fn(&str) -> std::result::Result<(), String>,
) -> Result<Vec<Located<String>>> {
    let each = |w: Spanned<String>| {
        check(&w.value).map_err(|why| file.error(w.referenced, why))?;
        Ok(Located { line: Place::from(w.referenced).line, value: w.value })
    };
    list.value.into_iter().map(each).collect()
}

fn variables(file: &File<'_>, list: List) -> Result<Vec<Located<Variable>>> {
    let each = |w: Spanned<String>| {
        let value = Variable::parse(&w.value).map_err(|why| file.error(w.referenced, why))?;
        Ok(Located { line: Place::from(w.referenced).line, value })
    };
    list.value.into_iter().map(each).collect()
}

fn engine_name(name: &str) -> std::result::Result<(), String> {
    name.parse::<Role>().map(drop).map_err(|_| {
        format!("'{name}' is not a name: ASCII letters, digits, '.', '_' and '-', a letter or digit first")
    })
}

fn principal(name: &str) -> std::result::Result<(), String> {
    if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control() || "*?!,".contains(c)) {
        return Err(format!("'{name}' is not one principal: no spaces, commas, '!' or patterns"));
    }
    Ok(())
}

fn inside(path: &str) -> std::result::Result<(), String> {
    check(path)?;
    if path.split('/').any(|c| c.eq_ignore_ascii_case(".git")) {
        return Err("nothing of a '.git' is ever copied".into());
    }
    Ok(())
}

fn ref_pattern(name: &str) -> std::result::Result<(), String> {
    if !name.starts_with("refs/") {
        return Err("write a full ref pattern, such as 'refs/heads/release/*'".into());
    }
    if name.starts_with("refs/agent-") {
        return Err("a run never sees the ledger's own refs".into());
    }
    check(name)
}

/// The template of the run branch: one `{name}`, and a valid branch for every run name.
fn template(template: &str, agent: &Globs) -> std::result::Result<(), String> {
    if template.matches("{name}").count() != 1 {
        return Err("the branch needs '{name}' exactly once, such as 'wt/{name}'".into());
    }
    if template.starts_with("refs/") {
        return Err("write the branch without 'refs/heads/'".into());
    }
    if template.len() > 100 {
        return Err("it is too long".into());
    }
    let branch = template.replacen("{name}", "x", 1);
    if !is_branch(&branch) {
        return Err("git would not take this as the name of a branch".into());
    }
    // A run's branch that the gate takes for a person's would need no approval.
    if agent.matched(branch.as_bytes()).is_none() {
        let patterns: Vec<_> = agent.patterns().iter().map(|p| p.glob.as_str()).collect();
        return Err(format!("it matches none of the agent branches ({})", patterns.join(", ")));
    }
    Ok(())
}

/// The rules of git-check-ref-format(1) with `--branch`.
fn is_branch(name: &str) -> bool {
    let component =
        |c: &str| !c.is_empty() && !c.starts_with('.') && !c.to_ascii_lowercase().ends_with(".lock");
    !name.starts_with('-')
        && !name.ends_with('.')
        && !matches!(name, "@" | "HEAD")
        && !name.contains("..")
        && !name.contains("@{")
        && !name.bytes().any(|b| b <= b' ' || b == 0x7f || b"~^:?*[\\{}".contains(&b))
        && name.split('/').all(component)
}

#[cfg(test)]
mod tests {
    use super::is_branch;

    #[test]
    fn branches_as_git_takes_them() {
        for good in ["wt/x", "x", "a/b/c", "é/x", "a@b"] {
            assert!(is_branch(good), "{good}");
        }
        for bad in [
            "", "/x", "x/", "a//b", ".x", "a/.x", "x.lock", "x.lock/y", "x..y", "x.", "-x", "@", "HEAD",
            "a b", "a@{b", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", "a\\b", "a\x7f", "a\n",
        ] {
            assert!(!is_branch(bad), "{bad:?}");
        }
    }
}
