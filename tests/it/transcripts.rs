//! `tests/transcripts/*.md`: documents that are tests. In a block marked `console` a line `$ COMMAND` is run by
//! a shell and the lines up to the next one are what it must say, standard output and error together, then
//! `[N]` where the exit status is not 0. `...` stands for anything: as a line for any number of lines, else
//! within its line. Ids, object ids, digests and times are compared as such. A line that ends in an answer to a
//! prompt (`? [a/d/l] a`) makes the command run at a terminal, and the answer is typed there.

use crate::pty::Pty;
use crate::support::{Mounted, Sandbox, run, set_mode};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
    status: i32,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for (n, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { line: n + 1, command: command.into(), expected: Vec::new(), status: 0 });
        } else if let Some(step) = steps.last_mut() {
            let status =
                line.strip_prefix('[').and_then(|l| l.strip_suffix(']')).and_then(|n| n.parse().ok());
            match status {
                Some(status) => step.status = status,
                None => match line.strip_prefix("> ") {
                    Some(more) if step.expected.is_empty() => {
                        step.command.push('\n');
                        step.command.push_str(more);
                    }
                    _ => step.expected.push(line.to_owned()),
                },
            }
        }
    }
    steps
}

/// The prompt and the answer in `x: discard, leave, ? [d/l/?] d`.
fn answer(line: &str) -> Option<(&str, &str)> {
    let at = line.find("? [")? + 3;
    let end = at + line[at..].find("] ")? + 2;
    (end < line.len()).then(|| line.split_at(end))
}

/// What differs from run to run by its kind.
fn normal(line: &str, home: &Path) -> String {
    let line = line.replace(&*home.to_string_lossy(), "/home/tess");
    let mut out = String::new();
    let mut rest = line.as_str();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (text, after) = rest.split_at(word.max(first.len_utf8()));
        let hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if text.len() == 26 && text.starts_with('0') {
            out.push_str("<id>");
        } else if hex && text.len() >= 7 {
            out.push_str(if text.len() == 64 && out.ends_with("sha256:") { "<digest>" } else { "<oid>" });
        } else {
            out.push_str(text);
        }
        rest = after;
    }
    out.trim_end().to_owned()
}

fn matches(want: &[String], have: &[String]) -> bool {
    match want.split_first() {
        None => have.is_empty(),
        Some((first, rest)) if first == "..." => (0..=have.len()).any(|n| matches(rest, &have[n..])),
        Some((first, rest)) => {
            have.split_first().is_some_and(|(h, more)| alike(first, h) && matches(rest, more))
        }
    }
}

fn alike(want: &str, have: &str) -> bool {
    let mut parts = want.split("...");
    let first = parts.next().unwrap();
    let Some(mut rest) = have.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn document(name: &str, s: &Sandbox, vars: &[(&str, &str)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let steps = steps(&text);
    assert!(!steps.is_empty(), "{name} holds no command");
    let home = s.dir().join("home").canonicalize().unwrap();
    let mut dir = home.clone();
    let mut wrong = String::new();
    for step in steps {
        let after = s.dir().join("cwd");
        std::fs::write(&after, "").unwrap();
        set_mode(&after, 0o666);
        let script = format!("{{ {}\n}}\ns=$?; pwd >'{}'; exit $s", step.command, after.display());
        let command = |script: &str| -> Command {
            let mut command = s.command(&dir, "sh");
            command.args(["-c", script]).env("PAGER", "cat").env("NO_COLOR", "1").env("TZ", "UTC");
            command.env_remove("XDG_STATE_HOME").envs(vars.iter().copied());
            command
        };
        let answers: Vec<(&str, &str)> = step.expected.iter().filter_map(|l| answer(l)).collect();
        let (status, said) = if answers.is_empty() {
            let ended = run(command(&format!("exec 2>&1\n{script}")), b"");
            let status = ended.status();
            (status, String::from_utf8_lossy(&ended.with(status).stdout).into_owned())
        } else {
            let mut pty = Pty::sized(command(&script), 50, 200);
            for (question, key) in &answers {
                pty.expect(&question[question.rfind('[').unwrap_or(0)..]);
                pty.send(&format!("{key}\n"));
            }
            let closed = pty.end();
            (closed.status, closed.text)
        };
        let moved = std::fs::read_to_string(&after).unwrap();
        if !moved.trim().is_empty() {
            dir = PathBuf::from(moved.trim_end_matches('\n'));
        }
        let lines = |text: Vec<&str>| -> Vec<String> {
            let mut lines: Vec<String> = text.into_iter().map(|l| normal(l, &home)).collect();
            while lines.last().is_some_and(String::is_empty) {
                lines.pop();
            }
            lines
        };
        let want = lines(step.expected.iter().map(String::as_str).collect());
        let have = lines(said.lines().collect());
        if status != step.status || !matches(&want, &have) {
            let _ = writeln!(
                wrong,
                "{name}:{}: $ {}\n-- wanted [{}]\n{}\n-- had [{status}]\n{}\n",
                step.line,
                step.command,
                step.status,
                want.join("\n"),
                have.join("\n")
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn first_run() {
    document("first-run.md", &Sandbox::new(), &[]);
    document("first-run.md", &Sandbox::as_user(), &[]);
}

#[test]
fn conflict() {
    document("conflict.md", &Sandbox::new(), &[]);
}

#[test]
fn bad_input() {
    document("bad-input.md", &Sandbox::as_user(), &[]);
}

#[test]
fn policy() {
    document("policy.md", &Sandbox::as_user(), &[]);
}

#[test]
fn disk_full() {
    let s = Sandbox::new();
    let small = s.dir().join("home/small");
    let _mounted = Mounted::tmpfs(&small, "size=1m,mode=0777");
    document("disk-full.md", &s, &[]);
}

#[test]
fn every_document_is_run() {
    let here = include_str!("transcripts.rs");
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(here.contains(&format!("\"{name}\"")), "{name} is not run");
    }
}

#[test]
fn dots_match_anything() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("a\n...\nb ... c"), &lines("a\nx\ny\nb 1 2 c")));
    assert!(!matches(&lines("a\n...\nb"), &lines("a\nx")));
    assert!(!alike("a...b", "ab c"));
    assert_eq!(answer("x: discard, leave, ? [d/l/?] d"), Some(("x: discard, leave, ? [d/l/?] ", "d")));
    assert_eq!(normal("at 82c5da2ae2 sha256:ab", Path::new("/x")), "at <oid> sha256:ab");
}
