//! What a policy allows, spelled out one permission at a time over a small world and without a word from
//! `order`. The order is right when what it calls no loosening allows nothing more.

use super::super::*;
use super::{generate, good, role};
use std::collections::BTreeSet;

const PATHS: [&str; 12] = [
    "src/a",
    "src/gen/x",
    "src/gen/y.lock",
    "README.md",
    "docs/a/b.md",
    "docs/x.lock",
    "a/x",
    "b/x",
    "c/x",
    "x",
    "src/é",
    "Cargo.lock",
];
const BRANCHES: [&str; 6] = ["wt/a", "agent/a", "worktree-agent-1", "bot/x", "x-1", "main"];
const NUMBERS: [u64; 14] = [
    1,
    2,
    50,
    51,
    100,
    1024,
    100_000,
    100_001,
    1 << 20,
    2 << 30,
    (2 << 30) + 1,
    4 << 30,
    (4 << 30) + 1,
    u64::MAX,
];

/// Every permission as a sentence. More sentences, more allowed.
fn permissions(policy: &Policy) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let Policy {
        sha256: _,
        exact: _,
        roles: _,
        engines: _,
        strip,
        branch: _,
        agent_branches,
        tier,
        network,
        task,
        later,
        lines: _,
    } = policy;
    for name in generate::ROLES {
        let Ok(rule) = policy.role(&role(name)) else { continue };
        role_permissions(&mut all, name, &rule, network);
    }
    for name in generate::ENGINES {
        let engine = policy.engine(name).cloned().unwrap_or_default();
        let EngineRule { command, isolation, decline_exit: _, env, isolation_line: _ } = engine;
        // Without a word on it the known program of that name runs.
        all.insert(format!("{name} is {:?}", command.map(|c| c.value)));
        all.insert(match isolation {
            Isolation::None => format!("{name} sees the real tree"),
            Isolation::Worktree => format!("{name} writes"),
        });
        all.extend(env.iter().map(|v| format!("{name} has {}", v.value.entry())));
    }
    all.extend(PATHS.iter().filter(|p| !strip.is_match(p.as_bytes())).map(|p| format!("runs see {p}")));
    // The gate asks other things of an agent's branch than of a person's: neither is more.
    all.extend(BRANCHES.map(|b| format!("{b} is an agent's: {}", agent_branches.is_match(b.as_bytes()))));
    let tiers = [Tier::Landlock, Tier::Namespaces, Tier::Full];
    all.extend(tiers.iter().filter(|t| *t >= tier).map(|t| format!("runs on {}", t.as_str())));
    reaches(&mut all, "engines", network);
    if *task == TaskText::Full {
        all.insert("the ledger holds the task".into());
    }
    let Later { owners, include, refs, approval, protect, risk, retention, pool } = later;
    for who in ["a@b", "c@d", "e@f"] {
        if owners.is_empty() || owners.iter().any(|o| o.value == who) {
            all.insert(format!("{who} changes the policy"));
        }
    }
    all.extend(include.iter().map(|p| format!("runs have {}", p.value)));
    all.extend(refs.iter().map(|r| format!("runs have {}", r.value)));
    for branch in ["main", "release/*"] {
        let is = protect.iter().find(|p| p.value.0 == branch).map(|p| p.value.1).unwrap_or_default();
        let levels = [Protection::Pusher, Protection::Signed, Protection::Approved];
        all.extend(levels.iter().filter(|l| **l >= is).map(|l| format!("{branch} takes {l:?}")));
    }
    // Patterns as they are written: a path that two of them point out is pointed out once more often.
    let quiet = generate::PATTERNS.iter().filter(|p| !risk.iter().any(|r| r.value == p.trim_matches('"')));
    all.extend(quiet.map(|p| format!("{p} lands without a word")));
    let Retention { snapshots, keep_tree } = retention;
    all.extend(
        (0..400)
            .step_by(10)
            .filter(|d| Duration::from_secs(d * 86_400) >= *snapshots)
            .map(|d| format!("gone after {d}d")),
    );
    if !keep_tree {
        all.insert("trees go".into());
    }
    all.extend((0..=*pool).map(|n| format!("{n} trees")));
    approvals(&mut all, approval);
    all
}

fn role_permissions(all: &mut BTreeSet<String>, name: &str, rule: &RoleRule, inherited: &Network) {
    let RoleRule {
        kind,
        allow: _,
        deny: _,
        engines,
        setup,
        checks,
        teardown,
        env,
        limits,
        line: _,
        limit_lines: _,
        kind_line: _,
    } = rule;
    match kind {
        RoleKind::Reader => all.insert(format!("{name} sees the real tree")),
        RoleKind::Writer => all.insert(format!("{name} has a copy")),
    };
    let may = PATHS.iter().filter(|p| rule.breach(p.as_bytes()).is_none());
    all.extend(may.map(|p| format!("{name} changes {p}")));
    all.extend(engines.iter().map(|e| format!("{name} starts {}", e.value)));
    if let Some(Setup { run, network, env, wall, line: _ }) = setup {
        all.insert(format!("{name} prepares {run:?}"));
        all.extend(env.iter().map(|v| format!("{name} prepares with {}", v.entry())));
        all.extend(
            NUMBERS.iter().filter(|n| **n <= wall.as_secs()).map(|n| format!("{name} prepares {n} s")),
        );
        reaches(all, &format!("{name}'s setup"), network.as_ref().unwrap_or(inherited));
    }
    all.extend(env.iter().map(|v| format!("{name} has {}", v.value.entry())));
    all.extend(checks.iter().map(|c| format!("{name} checks {:?}", c.value)));
    all.extend(teardown.iter().map(|c| format!("{name} ends {:?}", c.value)));
    let Limits { wall, files, lines, bytes, blob } = *limits;
    let wall = wall.map_or(u64::MAX, |d| d.as_secs());
    for (key, limit) in [
        ("wall", wall),
        ("files", files),
        ("lines", lines.unwrap_or(u64::MAX)),
        ("bytes", bytes),
        ("blob", blob),
    ] {
        all.extend(NUMBERS.iter().filter(|n| **n <= limit).map(|n| format!("{name} {key} {n}")));
    }
}

fn reaches(all: &mut BTreeSet<String>, who: &str, network: &Network) {
    for host in ["a.example", "*.b.example", "c.example"] {
        let yes = match network {
            Network::Open => true,
            Network::Off => false,
            Network::Proxy(hosts) => hosts.iter().any(|h| h == host),
        };
        if yes {
            all.insert(format!("{who} reach {host}"));
        }
    }
}

/// Every small set of words, and whether it is enough.
fn approvals(all: &mut BTreeSet<String>, approval: &Approval) {
    let policy = Policy {
        later: Later { approval: approval.clone(), ..Later::default() },
        ..Policy::built_in().clone()
    };
    let role = role("developer");
    let people = ["a@b", "c@d", "e@f"];
    for (signers, signed, age) in
        [false, true].into_iter().flat_map(|s| [(s, false, 0), (s, true, 0), (s, true, 3600 * 30)])
    {
        for set in 0..8u32 {
            let words: Vec<Word<'_>> = (0..3)
                .filter(|n| set & (1 << n) != 0)
                .map(|n| Word { by: people[n], signed, time: 1_000_000 - age, expires: None })
                .collect();
            let facts =
                Facts { role: &role, paths: &[], started_by: "a@b", words: &words, signers, now: 1_000_000 };
            if decide(&policy, &facts) == Decision::Allow {
                all.insert(format!("lands with {set:b}, {signed}, {signers}, {age}"));
            }
        }
    }
    if approval.mode == LandingMode::Carry {
        all.insert("lands elsewhere".into());
    }
}

/// The property of the whole module: without consent nothing more is allowed.
fn subset(policy: &Policy, base: &Policy, what: &dyn Fn() -> String) -> bool {
    if !policy.loosenings(base).is_empty() {
        return false;
    }
    let (may, might) = (permissions(policy), permissions(base));
    let more: Vec<_> = may.difference(&might).collect();
    assert!(more.is_empty(), "no loosening was found, and yet: {more:#?}\n{}", what());
    true
}

#[test]
fn a_policy_without_loosenings_allows_nothing_more_than_the_default() {
    let tight = (0..1500)
        .filter(|seed| {
            let text = generate::policy(*seed);
            subset(&good(&text), Policy::built_in(), &|| format!("seed {seed}\n{text}"))
        })
        .count();
    // Or the property was never put to the test.
    assert!(tight >= 10, "only {tight} policies were tight");
}

#[test]
fn nor_one_without_loosenings_against_the_accepted_policy() {
    let mut tight = 0;
    for seed in 0..24 {
        let base_text = generate::policy(seed);
        let base = good(&base_text);
        assert_eq!(base.differences(&base), [], "{base_text}");
        // Policies that differ in a line or two: most pairs at random differ in everything.
        let lines: Vec<&str> = base_text.lines().collect();
        for gone in 1..lines.len() {
            let mut fewer = lines.clone();
            fewer.remove(gone);
            let Ok(policy) = super::parse(&fewer.join("\n")) else { continue };
            let show = || format!("seed {seed}, without line {gone}\n{base_text}");
            tight += usize::from(subset(&policy, &base, &show));
            // And the other way round: the line is what is new.
            tight += usize::from(subset(&base, &policy, &show));
        }
        for other in 0..10 {
            let text = generate::policy(1000 + seed * 20 + other);
            let swapped = text.lines().nth(1).map(|l| {
                let key = l.split(':').next().unwrap().to_owned() + ":";
                let kept = lines.iter().copied().filter(|b| !b.starts_with(&key));
                kept.take(1)
                    .chain([l])
                    .chain(lines.iter().copied().filter(|b| !b.starts_with(&key)).skip(1))
                    .collect::<Vec<_>>()
                    .join("\n")
            });
            let Some(policy) = swapped.as_deref().and_then(|t| super::parse(t).ok()) else { continue };
            let show =
                || format!("seed {seed}\n{base_text}\nagainst\n{}", swapped.as_deref().unwrap_or_default());
            tight += usize::from(subset(&policy, &base, &show));
        }
    }
    assert!(tight >= 100, "only {tight} pairs were tight");
}

#[test]
fn what_is_looser_one_way_is_tighter_the_other() {
    for seed in 0..150 {
        let (text, base) = (generate::policy(seed), generate::policy(seed + 5000));
        let (policy, base) = (good(&text), good(&base));
        let forth = policy.differences(&base);
        let back = base.differences(&policy);
        // A role that only one of them has is told whole in one direction.
        let whole: BTreeSet<String> = forth
            .iter()
            .chain(&back)
            .filter(|d| d.what == "is gone" && d.key.matches('.').count() == 1)
            .map(|d| format!("{}.", d.key))
            .collect();
        let keys = |all: &[Difference]| {
            let told = all.iter().filter(|d| !whole.iter().any(|w| format!("{}.", d.key).starts_with(w)));
            // And so is a setup.
            let one = |d: &Difference| d.key.split_inclusive(".setup").next().unwrap_or_default().to_owned();
            told.map(one).collect::<BTreeSet<_>>()
        };
        assert_eq!(keys(&forth), keys(&back), "seed {seed}");
        // In the order of the file, with lines that exist.
        assert!(forth.is_sorted_by_key(|d| d.line), "seed {seed}");
        assert!(forth.iter().all(|d| (d.line as usize) <= text.lines().count()), "seed {seed}");
    }
}

/// A pattern's meaning by a second, slower reading: component by component, without the compiler of `glob`.
fn plain_match(pattern: &[u8], path: &[u8]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        ([b'*', b'*', b'/', rest @ ..], _) => {
            plain_match(rest, path)
                || path
                    .iter()
                    .position(|b| *b == b'/')
                    .is_some_and(|at| plain_match(pattern, &path[at + 1..]))
        }
        ([b'*', b'*'], _) => !path.is_empty(),
        ([b'*', rest @ ..], _) => {
            plain_match(rest, path)
                || path.split_first().is_some_and(|(b, p)| *b != b'/' && plain_match(pattern, p))
        }
        ([b'?', rest @ ..], [b, path @ ..]) => *b != b'/' && plain_match(rest, path),
        ([a, rest @ ..], [b, path @ ..]) => a == b && plain_match(rest, path),
        _ => false,
    }
}

#[test]
fn p06_patterns_mean_what_their_second_reading_means() {
    let mut c = generate::Chance::new(6);
    let parts = ["a", "b", "*", "?", "a*", "*b", "**", "ab"];
    let names = ["a", "b", "ab", "ba", "aab", "A"];
    let mut hits = 0;
    for _ in 0..4000 {
        let pattern: Vec<&str> = (0..1 + c.below(3)).map(|_| parts[c.below(parts.len())]).collect();
        let path: Vec<&str> = (0..1 + c.below(3)).map(|_| names[c.below(names.len())]).collect();
        let dir = c.below(4) == 0 && pattern.last() != Some(&"**");
        let (pattern, path) = (pattern.join("/"), path.join("/"));
        let written = if dir { format!("{pattern}/") } else { pattern.clone() };
        let meant = if dir { format!("{pattern}/**") } else { pattern };
        let globs = Globs::compile(vec![Pattern { glob: written.clone(), line: 1 }]).unwrap();
        let hit = globs.is_match(path.as_bytes());
        assert_eq!(hit, plain_match(meant.as_bytes(), path.as_bytes()), "{written} {path}");
        assert_eq!(hit, globs.matched(path.as_bytes()).is_some());
        hits += usize::from(hit);
    }
    assert!(hits > 200, "{hits}");
}
