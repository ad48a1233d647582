//! Policies at random, by a fixed sequence, so that a failure names the seed that repeats it.

use std::fmt::Write as _;

pub(super) struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d);
        chance.below(2);
        chance
    }

    /// Knuth's MMIX.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 0
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Some of them, each at most once.
    fn some<'a>(&mut self, of: &[&'a str]) -> Vec<&'a str> {
        of.iter().copied().filter(|_| self.below(3) == 0).collect()
    }
}

pub(super) const ROLES: &[&str] = &["developer", "tester", "reviewer", "x-reviewer", "extra"];
pub(super) const PATTERNS: &[&str] =
    &["src/", "src/gen/", "\"*.md\"", "\"**/*.lock\"", "docs/", "\"{a,b}/x\"", "\"src/?\""];
pub(super) const ENGINES: &[&str] = &["codex", "claude-code", "own"];

fn list(all: &[&str]) -> String {
    format!("[{}]", all.join(", "))
}

/// A valid policy.
pub(super) fn policy(seed: u64) -> String {
    let mut c = Chance::new(seed);
    let mut text = String::from("version: 1\n");
    let mut key = |c: &mut Chance, line: String| {
        if c.yes() {
            text.push_str(&line);
            text.push('\n');
        }
    };
    let owners = c.some(&["a@b", "c@d"]);
    key(&mut c, format!("owners: {}", list(&owners)));
    let strip = c.some(PATTERNS);
    key(&mut c, format!("strip: {}", list(&strip)));
    let include = c.some(&[".env", "fixtures/big.bin"]);
    key(&mut c, format!("include: {}", list(&include)));
    let refs = c.some(&["\"refs/heads/*\"", "refs/tags/v1"]);
    key(&mut c, format!("refs: {}", list(&refs)));
    let tier = c.one(&["landlock", "namespaces", "full"]);
    key(&mut c, format!("tier: {tier}"));
    let network = network(&mut c);
    key(&mut c, format!("network: {network}"));
    let more = c.some(&["\"bot/*\"", "\"x-*\""]);
    let branches: Vec<&str> = ["wt/**"].into_iter().chain(more).collect();
    key(&mut c, format!("agent_branches: {}", list(&branches)));
    let protection = c.one(&["pusher", "signed", "approved"]);
    let branch = c.one(&["main", "\"release/*\""]);
    key(&mut c, format!("protect: {{{branch}: {protection}}}"));
    let risk = c.some(PATTERNS);
    key(&mut c, format!("risk: {}", list(&risk)));
    let (days, keep) = (1 + c.below(200), c.yes());
    key(&mut c, format!("retention: {{snapshots: {days}d, keep_tree: {keep}}}"));
    let pool = c.below(17);
    key(&mut c, format!("pool: {pool}"));
    let task = c.one(&["full", "digest"]);
    key(&mut c, format!("ledger: {{task: {task}}}"));
    let approval = approval(&mut c);
    key(&mut c, format!("approval: {{{approval}}}"));
    if c.yes() {
        text.push_str("engines:\n");
        let named = c.some(ENGINES);
        if named.is_empty() {
            text.push_str("  own: {}\n");
        }
        for name in named {
            let _ = writeln!(text, "  {name}: {{{}}}", engine(&mut c));
        }
    }
    if c.yes() {
        text.push_str("roles:\n");
        let mut named = c.some(ROLES);
        if named.is_empty() {
            named.push("developer");
        }
        for name in named {
            let _ = writeln!(text, "  {name}: {{{}}}", role(&mut c));
        }
    }
    text
}

fn network(c: &mut Chance) -> String {
    let hosts = c.some(&["a.example", "\"*.b.example\""]);
    match c.below(3) {
        0 => "open".into(),
        1 => "off".into(),
        _ if hosts.is_empty() => "{proxy: [a.example]}".into(),
        _ => format!("{{proxy: {}}}", list(&hosts)),
    }
}

fn approval(c: &mut Chance) -> String {
    let mut parts = vec![format!("count: {}", 1 + c.below(3))];
    if c.yes() {
        parts.push(format!("signed: {}", c.yes()));
    }
    parts.push(format!("two_person: {}", c.yes()));
    if c.yes() {
        parts.push(format!("expiry: {}h", 1 + c.below(48)));
    }
    parts.push(format!("mode: {}", c.one(&["carry", "exact"])));
    if c.yes() {
        let (a, b) = (c.one(&["person", "agent"]), c.one(&["person", "agent"]));
        parts.push(format!("signers: {{a@b: {a}, c@d: {b}}}"));
    }
    parts.join(", ")
}

fn engine(c: &mut Chance) -> String {
    let mut parts = Vec::new();
    if c.yes() {
        parts.push(format!("command: [{}]", c.one(&["./a", "b, --task, \"{task}\""])));
    }
    if c.yes() {
        parts.push(format!("isolation: {}", c.one(&["worktree", "none"])));
    }
    if c.yes() {
        parts.push(format!("decline_exit: {}", 1 + c.below(255)));
    }
    if c.yes() {
        let env = c.some(&["KEY", "TOKEN", "\"PORT={port}\""]);
        parts.push(format!("env: {}", list(&env)));
    }
    parts.join(", ")
}

fn role(c: &mut Chance) -> String {
    let mut parts = vec![format!("kind: {}", if c.below(4) == 0 { "reader" } else { "writer" })];
    if c.yes() {
        let (allow, deny) = (c.some(PATTERNS), c.some(PATTERNS));
        let allow = if allow.is_empty() { vec!["src/"] } else { allow };
        parts.push(match c.yes() {
            true => format!("paths: {{allow: {}, deny: {}}}", list(&allow), list(&deny)),
            false => format!("paths: {{deny: {}}}", list(&deny)),
        });
    }
    let engines = c.some(ENGINES);
    if c.below(3) == 0 {
        parts.push(format!("engines: {}", list(&engines)));
    }
    if c.below(3) == 0 {
        let env = c.some(&["TOKEN"]);
        let network = network(c);
        let own = if c.yes() { format!(", network: {network}") } else { String::new() };
        let wall = c.one(&["", ", wall: 50s", ", wall: 2h"]);
        parts.push(format!(
            "setup: {{run: [[{}]], env: {}{own}{wall}}}",
            c.one(&["npm, ci", "make"]),
            list(&env)
        ));
    }
    if c.below(3) == 0 {
        let env = c.some(&["KEY", "\"PORT={port}\"", "\"MODE=ci\""]);
        parts.push(format!("env: {}", list(&env)));
    }
    if c.below(3) == 0 {
        parts.push(format!("checks: {{unit: [{}]}}", c.one(&["npm, test", "make, test"])));
    }
    if c.below(3) == 0 {
        parts.push(format!("teardown: [[{}]]", c.one(&["./down", "make, clean"])));
    }
    if c.yes() {
        let mut limits = Vec::new();
        for (key, values) in [
            ("wall", ["1m", "2h", "3d"]),
            ("files", ["1", "100000", "100001"]),
            ("lines", ["1", "50", "100"]),
            ("bytes", ["1MiB", "4GiB", "5GiB"]),
            ("blob", ["1KiB", "2GiB", "3GiB"]),
        ] {
            if c.yes() {
                limits.push(format!("{key}: {}", c.one(&values)));
            }
        }
        parts.push(format!("limits: {{{}}}", limits.join(", ")));
    }
    parts.join(", ")
}
