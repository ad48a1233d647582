//! Rules about the source that a compiler does not know: imports go down, only `ui` speaks, only `os` is
//! unsafe, and nothing names the machine it was written on.

use std::path::{Path, PathBuf};

/// Floor of each module, from the bottom. `git` stands on `os`, and `ledger` on both.
const FLOORS: [(&str, u32); 10] = [
    ("text", 0),
    ("model", 1),
    ("os", 2),
    ("git", 3),
    ("ledger", 4),
    ("policy", 4),
    ("clients", 4),
    ("ops", 5),
    ("ui", 6),
    ("cmd", 7),
];

/// Packages in the lock file. Each is code that we answer for: raise the number with a reason in the commit.
const PACKAGES: usize = 120;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Source files with their text, comments and string literals blanked out.
fn sources() -> Vec<(PathBuf, String)> {
    let files = crate::support::walk(&top().join("src"));
    let rust = files.into_iter().filter(|p| p.extension().is_some_and(|e| e == "rs"));
    rust.map(|p| (p.strip_prefix(top()).unwrap().to_owned(), code(&std::fs::read_to_string(&p).unwrap())))
        .collect()
}

/// Rust without comments and with the insides of string literals gone; line structure kept.
fn code(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |n| n + 2)
        } else if rest.starts_with("r#\"") {
            rest.find("\"#").map_or(rest.len(), |n| n + 2)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\'") {
            3 + usize::from(rest.starts_with("'\\''"))
        } else if c == '"' {
            let mut escaped = false;
            let end = rest[1..].char_indices().find(|(_, c)| {
                let end = *c == '"' && !escaped;
                escaped = *c == '\\' && !escaped;
                end
            });
            end.map_or(rest.len(), |(n, _)| n + 2)
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out.extend(rest[..skip].chars().filter(|c| *c == '\n'));
        rest = &rest[skip..];
    }
    out
}

fn floor(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor)
}

/// The module a file belongs to; `None` for `lib.rs` and the binaries, which stand above all.
fn module(path: &Path) -> Option<String> {
    let first = path.strip_prefix("src").unwrap().components().next().unwrap();
    let name = first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
    (!matches!(name.as_str(), "lib" | "bin")).then_some(name)
}

/// Modules that a text names through `crate::`, with groups such as `crate::{git::Call, model}`.
fn named(text: &str) -> Vec<String> {
    let word = |s: &str| -> String { s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push(word(rest));
            continue;
        };
        let (mut depth, mut start) = (0, true);
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && !c.is_whitespace() => {
                    found.push(word(&group[i..]));
                    start = false;
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn imports_only_go_down() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let Some(module) = module(&path) else { continue };
        let own = floor(&module).unwrap_or_else(|| panic!("{}: '{module}' has no floor", path.display()));
        for other in named(&text).into_iter().filter(|o| *o != module) {
            match floor(&other) {
                Some(below) if below < own => {}
                Some(_) => wrong.push(format!("{}: {module} uses {other}", path.display())),
                // An item of lib.rs itself: there is none.
                None => wrong.push(format!("{}: crate::{other} is no module", path.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_check_of_imports_sees_what_it_should() {
    assert_eq!(named("use crate::{git::{Call, Place}, model};\ncrate::ui::Out"), ["git", "model", "ui"]);
    assert_eq!(code("a // crate::cmd\n\"crate::ui \\\" x\" b '\"' c"), "a \n b  c");
}

#[test]
fn only_ui_speaks() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let is_test = path.ends_with("tests.rs") || path.components().any(|c| c.as_os_str() == "tests");
        if module(&path).as_deref() == Some("ui") || is_test {
            continue;
        }
        for word in ["println!", "print!", "eprintln!", "eprint!", "dbg!", "todo!", "unimplemented!"] {
            let calls = text
                .match_indices(word)
                .filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
            wrong.extend(calls.map(|_| format!("{}: {word}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_os_is_unsafe_and_says_why() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let uses = text.match_indices("unsafe").filter(|(at, _)| {
            let plain = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
            plain(text[..*at].chars().next_back()) && plain(text[at + "unsafe".len()..].chars().next())
        });
        let uses = uses.count();
        if uses > 0 && module(&path).as_deref() != Some("os") {
            wrong.push(format!("{}: unsafe outside of os", path.display()));
        }
        let raw = std::fs::read_to_string(top().join(&path)).unwrap();
        let reasons = raw.matches("SAFETY:").count() + raw.matches("# Safety").count();
        if uses > reasons {
            wrong.push(format!("{}: {uses} unsafe, {reasons} reasons", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn dependencies_are_counted() {
    let lock = std::fs::read_to_string(top().join("Cargo.lock")).unwrap();
    let count = lock.lines().filter(|l| *l == "[[package]]").count();
    assert!(count <= PACKAGES, "{count} packages, {PACKAGES} were agreed on: see tests/it/floors.rs");
}

#[test]
fn no_tracked_file_names_the_machine_it_was_written_on() {
    // In two parts, so that this file does not find itself.
    let words = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("iss", "ue2"),
        concat!("filed by a ses", "sion"),
        concat!("../sha", "red/"),
        concat!("wt/te", "sts"),
    ];
    let said =
        std::process::Command::new("git").args(["ls-files", "-z"]).current_dir(top()).output().unwrap();
    assert!(said.status.success(), "needs the repository's own checkout");
    let mut wrong = Vec::new();
    for name in String::from_utf8(said.stdout).unwrap().split_terminator('\0') {
        let Ok(bytes) = std::fs::read(top().join(name)) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        for (number, line) in text.lines().enumerate() {
            wrong.extend(
                words.iter().filter(|w| line.contains(*w)).map(|w| format!("{name}:{}: {w}", number + 1)),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
