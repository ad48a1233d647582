//! What is shipped fits together: commands, help, manual pages, exit statuses, files.

use crate::support::Sandbox;
use git_agent::model::Kind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    let path = top().join("man").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A page as words: font changes and escapes of man(7) resolved.
fn plain(page: &str) -> String {
    let codes = ["\\fB", "\\fI", "\\fR", "\\fP", "\\&"];
    codes.iter().fold(page.to_owned(), |text, code| text.replace(code, "")).replace("\\-", "-")
}

/// The lines between `.SH NAME` and the next `.SH`.
fn section(page: &str, name: &str) -> String {
    let lines = page.lines().skip_while(|l| l.trim_matches('"') != format!(".SH {name}")).skip(1);
    lines.take_while(|l| !l.starts_with(".SH ")).collect::<Vec<_>>().join("\n")
}

/// The terms of a section's `.TP` lists.
fn terms(page: &str, name: &str) -> Vec<String> {
    let section = section(page, name);
    let lines: Vec<&str> = section.lines().collect();
    lines.windows(2).filter(|w| w[0] == ".TP").map(|w| plain(w[1])).collect()
}

/// Option words such as `--role` or `-m` in a text.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| c.is_whitespace() || "[]()|,".contains(c));
    let option = |w: &&str| w.starts_with('-') && w.trim_start_matches('-').starts_with(char::is_alphabetic);
    words.filter(option).map(|w| w.split('=').next().unwrap().to_owned()).collect()
}

#[test]
fn every_command_has_a_page_with_exactly_its_options() {
    let mut wrong = Vec::new();
    for (name, parser) in git_agent::cmd::table() {
        let page = page(&format!("git-agent-{name}.1"));
        let escaped = format!("{}", page.matches("\\-\\-").count());
        assert_ne!(escaped, "0", "git-agent-{name}.1: options are written with \\-");
        let mut real: BTreeSet<String> = ["-h", "--help"].map(str::to_owned).into();
        let mut parsers = vec![&parser];
        while let Some(parser) = parsers.pop() {
            for arg in parser.get_arguments() {
                real.extend(arg.get_long().map(|l| format!("--{l}")));
                real.extend(arg.get_short().map(|s| format!("-{s}")));
            }
            parsers.extend(parser.get_subcommands());
        }
        let documented: BTreeSet<String> = terms(&page, "OPTIONS").iter().flat_map(|t| options(t)).collect();
        let common: BTreeSet<String> = ["-h", "--help"].map(str::to_owned).into();
        // A page may leave -h and --help to git-agent(1).
        let missing: Vec<_> = real.difference(&documented).filter(|o| !common.contains(*o)).collect();
        let invented: Vec<_> = documented.difference(&real).collect();
        if !missing.is_empty() || !invented.is_empty() {
            wrong.push(format!("git-agent-{name}.1: lacks {missing:?}, invents {invented:?}"));
        }
        let synopsis = options(&plain(&section(&page, "SYNOPSIS")));
        let unknown: Vec<_> = synopsis.difference(&real).collect();
        if !unknown.is_empty() {
            wrong.push(format!("git-agent-{name}.1: SYNOPSIS invents {unknown:?}"));
        }
        let about = parser.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty(), "{name} has no line for the overview");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_belongs_to_something() {
    let commands: Vec<&str> = git_agent::cmd::table().map(|(name, _)| name).collect();
    let embedded: BTreeSet<&str> = git_agent::cmd::help::pages().map(|(name, _)| name).collect();
    for name in &commands {
        assert!(embedded.contains(name), "the page of {name} is not embedded");
    }
    for entry in std::fs::read_dir(top().join("man")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let (stem, number) = name.rsplit_once('.').unwrap();
        let of = stem.strip_prefix("git-agent").unwrap_or_else(|| panic!("{name}")).trim_start_matches('-');
        assert!(of.is_empty() || number != "1" || commands.contains(&of), "{name} documents no command");
        assert!(embedded.contains(of), "{name} is not embedded");
        let title = plain(&page(&name));
        let title =
            title.lines().find(|l| l.starts_with(".TH ")).unwrap_or_else(|| panic!("{name}: no title"));
        let want = format!(".TH {} {number} ", stem.to_uppercase());
        assert!(title.starts_with(&want), "{name}: {title}");
        assert!(title.contains(&format!("git-agent {}", env!("CARGO_PKG_VERSION"))), "{name}: {title}");
    }
}

#[test]
fn the_overview_lists_every_command_and_no_other() {
    let s = Sandbox::new();
    let said = s.run(s.dir(), "git-agent", ["-h"]).ok();
    let listed: Vec<&str> =
        said.out().lines().filter_map(|l| l.strip_prefix("   ")?.split_whitespace().next()).collect();
    let table: Vec<&str> = git_agent::cmd::table().map(|(name, _)| name).collect();
    assert_eq!(listed, table);
    // As git finds it: an executable called git-agent on PATH.
    assert_eq!(s.run(s.dir(), "git", ["agent", "-h"]).ok().out(), said.out());
    assert_eq!(s.run(s.dir(), "git-agent", ["help"]).ok().out(), said.out());
    let main = plain(&section(&page("git-agent.1"), "COMMANDS"));
    for name in table {
        assert!(main.contains(&format!("git-agent-{name}(1)")), "git-agent.1 does not list {name}");
        let short = s.run(s.dir(), "git-agent", [name, "-h"]).ok();
        assert!(short.out().contains("Usage: git agent"), "{name}: {}", short.out());
        let long = s.run(s.dir(), "git-agent", [name, "--help"]).ok();
        assert!(
            long.out().contains("SYNOPSIS") && long.out().contains("git agent"),
            "{name}: {}",
            long.out()
        );
        assert!(!long.out().contains("\\f"), "{name}: man(7) codes in the plain text");
    }
}

#[test]
fn no_command_and_wrong_ones() {
    let s = Sandbox::new();
    let said = s.run(s.dir(), "git-agent", [""; 0]).with(129);
    assert_eq!(said.out(), "");
    said.says(&["usage: git agent <command>"]);
    s.run(s.dir(), "git-agent", ["spwan"]).with(129).refuses(&["'spwan'", "did you mean 'spawn'"]);
    s.run(s.dir(), "git-agent", ["list", "--nonsense"]).with(129).refuses(&["--nonsense"]);
    s.run(s.dir(), "git-agent", ["list", "--json", "--porcelain"]).with(129).refuses(&["--porcelain"]);
    s.run(s.dir(), "git-agent", ["spawn", "--", "true"]).with(129).refuses(&["--role"]);
    // Outside of any repository.
    s.run(s.dir(), "git-agent", ["list"]).with(128).refuses(&["not a git repository"]);
    let version = s.run(s.dir(), "git-agent", ["--version"]).ok();
    assert_eq!(version.out(), format!("git-agent version {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn exit_statuses_are_documented() {
    let documented: BTreeSet<u8> = terms(&page("git-agent.1"), "EXIT STATUS")
        .iter()
        .flat_map(|t| t.split(", ").map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|t| t.parse().ok())
        .collect();
    // Without wildcard, so that a new kind has to be added here.
    let status = |kind: Kind| match kind {
        Kind::No => 1,
        Kind::Conflict => 3,
        Kind::Consent => 4,
        Kind::Cage => 97,
        Kind::Exec(status) => status,
        Kind::Fatal => 128,
        Kind::Usage => 129,
    };
    let kinds = [
        Kind::No,
        Kind::Conflict,
        Kind::Consent,
        Kind::Cage,
        Kind::Exec(126),
        Kind::Exec(127),
        Kind::Fatal,
        Kind::Usage,
    ];
    let mut real: BTreeSet<u8> = kinds.iter().map(|k| k.exit_status()).collect();
    for kind in kinds {
        assert_eq!(kind.exit_status(), status(kind));
    }
    // Done; the wall clock; an engine that could not be started.
    real.extend([0, 124, 125]);
    assert_eq!(documented, real);
}

#[test]
fn packaged_files_are_there_and_say_something() {
    for name in [
        "README.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "CONTRIBUTING.md",
        "policy.yml",
        "Cargo.lock",
        "deny.toml",
        "clippy.toml",
        "rustfmt.toml",
        "docs/ARCHITECTURE.md",
        "docs/threat-model.md",
        "docs/decisions/README.md",
        ".ci/run",
    ] {
        let size = std::fs::metadata(top().join(name)).unwrap_or_else(|e| panic!("{name}: {e}")).len();
        assert!(size > 0, "{name} is empty");
    }
    // Hooks are a few lines of shell that pass everything on.
    let hooks = top().join("hooks");
    let hooks: Vec<PathBuf> =
        std::fs::read_dir(hooks).map(|d| d.map(|e| e.unwrap().path()).collect()).unwrap_or_default();
    for hook in hooks.iter().filter(|h| h.extension().is_none_or(|e| e != "md")) {
        use std::os::unix::fs::PermissionsExt;
        let text = std::fs::read_to_string(hook).unwrap();
        assert!(text.starts_with("#!/bin/sh\n"), "{}", hook.display());
        let mode = std::fs::metadata(hook).unwrap().permissions().mode();
        assert_ne!(mode & 0o111, 0, "{} is not executable", hook.display());
    }
}

#[test]
fn decisions_are_numbered_and_listed() {
    let folder = top().join("docs/decisions");
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(number) = name.get(..4).and_then(|n| n.parse::<u32>().ok()) else { continue };
        numbers.push(number);
        assert!(index.contains(&name), "docs/decisions/README.md does not list {name}");
    }
    numbers.sort_unstable();
    // A number is used once; one that was taken and not needed stays free.
    assert!(numbers.windows(2).all(|n| n[0] < n[1]), "{numbers:?}");
}
