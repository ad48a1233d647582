//! The demo engine: a shell script that does what an agent does to a repository, without model or network.

/// The script, for `sh -c`, in the working tree. POSIX sh and git only; it reads the file that
/// `GIT_AGENT_TASK` names, else `TASK.md`.
///
/// It appends to the README or the first text file, creates `demo-notes.md`, commits those two as an agent
/// would, then edits again without committing. Only in the demo repository, which tracks a file
/// `.git-agent-demo`, it deletes the tracked `obsolete.txt`. Its exit status is 0, or that of the step that
/// failed.
pub const SCRIPT: &str = include_str!("demo.sh");

/// The tracked file that marks the demo repository, where the script may delete.
pub const MARKER: &str = ".git-agent-demo";

/// The tracked file of the demo repository that the script deletes.
pub const OBSOLETE: &str = "obsolete.txt";

/// The words that run the script.
pub fn command() -> [&'static str; 3] {
    ["sh", "-c", SCRIPT]
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test is the caller: it makes a repository and runs sh")]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Output};

    fn run(dir: &Path, program: &str, args: &[&str]) -> Output {
        Command::new(program)
            .args(args)
            .current_dir(dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", dir.join("no-home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LC_ALL", "C")
            .output()
            .unwrap()
    }

    fn git(dir: &Path, args: &[&str]) -> String {
        let out = run(dir, "git", args);
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn repository(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), &["init", "-q", "-b", "main"]);
        for (name, text) in files {
            if let Some(parent) = Path::new(name).parent() {
                fs::create_dir_all(dir.path().join(parent)).unwrap();
            }
            fs::write(dir.path().join(name), text).unwrap();
        }
        git(dir.path(), &["add", "-A"]);
        git(
            dir.path(),
            &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "base"],
        );
        dir
    }

    fn work(dir: &Path) -> String {
        let [sh, c, script] = command();
        let out = run(dir, sh, &[c, script]);
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(String::from_utf8_lossy(&out.stderr), "");
        text
    }

    /// What differs from the base, committed or not.
    fn change(dir: &Path, base: &str) -> Vec<String> {
        git(dir, &["add", "-A", "-N", "--", ".", ":!TASK.md"]);
        git(dir, &["diff", "--no-renames", "--name-status", base])
            .lines()
            .map(|l| l.replace('\t', " "))
            .collect()
    }

    #[test]
    fn the_script_is_posix_sh() {
        let dir = tempfile::tempdir().unwrap();
        for shell in ["sh", "dash", "bash"] {
            let Ok(out) = Command::new(shell).args(["-n", "-c", SCRIPT]).current_dir(dir.path()).output()
            else {
                continue;
            };
            assert!(out.status.success(), "{shell}: {}", String::from_utf8_lossy(&out.stderr));
        }
    }

    #[test]
    fn in_the_demo_repository_it_edits_creates_deletes_and_commits() {
        let dir =
            repository(&[(MARKER, ""), (OBSOLETE, "old\n"), ("README.md", "# Demo\n"), ("a.txt", "a\n")]);
        let base = git(dir.path(), &["rev-parse", "HEAD"]).trim().to_owned();
        fs::write(dir.path().join("TASK.md"), "\n# Tidy up\nmore\n").unwrap();
        let said = work(dir.path());
        assert!(said.contains("task: # Tidy up"), "{said}");
        assert_eq!(change(dir.path(), &base), ["M README.md", "A demo-notes.md", "D obsolete.txt"]);
        assert_eq!(git(dir.path(), &["rev-list", "--count", "HEAD"]), "2\n");
        assert_eq!(git(dir.path(), &["log", "-1", "--format=%an %s"]), "demo-engine Demo: note the task\n");
        assert!(!git(dir.path(), &["ls-tree", "-r", "--name-only", "HEAD"]).contains("TASK.md"));
        // Uncommitted work is there too: what counts is the disk, not the commits.
        assert!(!git(dir.path(), &["diff", "--name-only"]).is_empty());
        // A second run continues and does not fail.
        work(dir.path());
        assert_eq!(change(dir.path(), &base), ["M README.md", "A demo-notes.md", "D obsolete.txt"]);
    }

    #[test]
    fn elsewhere_it_deletes_nothing_and_takes_the_first_text_file() {
        let dir = repository(&[
            ("bin.dat", "\0\0"),
            ("src/it's \"a\" file.txt", "no final line feed"),
            (OBSOLETE, "old\n"),
        ]);
        let base = git(dir.path(), &["rev-parse", "HEAD"]).trim().to_owned();
        fs::write(dir.path().join("bystander"), "mine\n").unwrap();
        work(dir.path());
        assert_eq!(
            change(dir.path(), &base),
            ["A bystander", "A demo-notes.md", "M obsolete.txt"],
            "first in the order of git ls-files"
        );
        assert_eq!(fs::read(dir.path().join("bin.dat")).unwrap(), b"\0\0");
        assert!(!git(dir.path(), &["ls-tree", "-r", "--name-only", "HEAD"]).contains("bystander"));
    }

    #[test]
    fn a_repository_without_text_and_odd_names_are_no_obstacle() {
        let empty = repository(&[]);
        let base = git(empty.path(), &["rev-parse", "HEAD"]).trim().to_owned();
        work(empty.path());
        assert_eq!(change(empty.path(), &base), ["A demo-notes.md"]);
        let odd = repository(&[("-n \"x\"\n.txt", "no final line feed")]);
        work(odd.path());
        let text = fs::read_to_string(odd.path().join("-n \"x\"\n.txt")).unwrap_or_default();
        assert!(text.starts_with("no final line feed"), "{text}");
    }
}
