//! The file that `init` writes. Every word in it is ours.

use super::Found;
use crate::policy::Command;
use std::fmt::Write as _;

const HEAD: &str = "\
# yaml-language-server: $schema=policy.schema.json
#
# The policy of git-agent: what each role may do with this repository. Every key is described in
# git-agent-policy(5) ('git agent help policy.yml').
#
# Only the committed file counts: commit it. Whoever clones this repository accepts once, on their own machine,
# what in it is looser than the built-in default: 'git agent policy trust'. What only tightens needs no consent.
# After an edit: 'git agent policy check' and 'git agent policy diff'.

version: 1

# A writer works in a copy of the repository (its own worktree); what it leaves is one diff. A reader sees your
# real working tree as it is, uncommitted and untracked files included, and may write nothing there.
#
# Two carve-outs, on purpose:
#
# (1) reviewers are readers, because a pristine copy of HEAD turns a review into a confident verdict about a tree
# nobody works on;
#
# (2) runs that need untracked fixtures or an environment outside git use `include`, `--with-changes` or the off
# switch (GIT_AGENT_ISOLATION=off).
#
# The list is exact: another name is refused.

roles:
";

const TAIL: &str = "
# More keys, each with its default:

# include: []                       # untracked files to copy in, such as [.env.example]
# refs: []                          # more refs for the run, such as [\"refs/heads/release/*\"]
# branch: wt/{name}
# tier: landlock                    # the least that a machine must hold: landlock, namespaces, full
# network: open                     # open, off, or {proxy: [registry.example.org]}
# risk: []                          # paths that a review points out, such as [.github/workflows/]
# ledger:
#   task: full                      # digest keeps the text of tasks out of the ledger
";

/// The policy for what was found.
pub(super) fn policy(found: &Found) -> String {
    let mut text = HEAD.to_owned();
    for (role, works) in [
        ("developer", true),
        ("ui-developer", true),
        ("backend-developer", true),
        ("tester", true),
        ("docs-writer", false),
    ] {
        let _ = writeln!(text, "  {role}:\n    kind: writer");
        if works {
            rest(&mut text, found);
        }
        if role == "developer" {
            text.push_str(
                "    # paths:                        # patterns from the top level; deny beats allow\n    \
                 #   allow: [src/, \"docs/*.md\"]\n    #   deny: [src/generated/]\n    \
                 # engines: [claude-code, codex]   # tried in this order\n    \
                 # limits: {wall: 2h, files: 500}\n",
            );
        }
    }
    text.push_str("  reviewer:\n    kind: reader\n\n");
    if found.strip.is_empty() {
        text.push_str(
            "# Tracked files that a run does not see, such as an orchestrator's own [.claude/]; hidden from \
             view, not kept secret.\nstrip: []\n",
        );
    } else {
        text.push_str(
            "# An orchestrator's own files: a run does not see them and they are not shown as deleted. They are \
             hidden from\n# view, not kept secret.\nstrip:\n",
        );
        for pattern in &found.strip {
            let _ = writeln!(text, "  - {pattern}");
        }
    }
    text.push_str(TAIL);
    text
}

fn rest(text: &mut String, found: &Found) {
    if !found.setup.is_empty() {
        text.push_str("    setup:\n      run:\n");
        for (command, by) in &found.setup {
            let _ = writeln!(text, "        - {:<40} # {by}", list(command));
        }
    }
    if !found.checks.is_empty() {
        text.push_str("    checks:\n");
        for (name, command, by) in &found.checks {
            let _ = writeln!(text, "      {:<42} # {by}", format!("{name}: {}", list(command)));
        }
    }
}

/// A flow sequence; words that YAML would read as something else are quoted.
fn list(command: &Command) -> String {
    let plain = |w: &str| {
        w.starts_with(|c: char| c.is_ascii_alphabetic() || c == '.' || c == '/')
            && w.bytes().all(|b| b.is_ascii_alphanumeric() || b"./_-".contains(&b))
    };
    let option = |w: &str| w.strip_prefix("--").is_some_and(plain);
    let word = |w: &String| if plain(w) || option(w) { w.clone() } else { format!("\"{w}\"") };
    format!("[{}]", command.iter().map(word).collect::<Vec<_>>().join(", "))
}
