//! Names and links that a git tree cannot or should not hold. Pure.

/// Whether a symbolic link is absolute or leads out of the tree, by its text alone.
pub fn leads_out(path: &[u8], target: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return true;
    }
    let mut depth = path.iter().filter(|b| **b == b'/').count() as i64;
    for part in target.split(|b| *b == b'/') {
        depth += match part {
            b"" | b"." => 0,
            b".." => -1,
            _ => 1,
        };
        if depth < 0 {
            return true;
        }
    }
    false
}

/// Why git would refuse a path in its index: a component that is or, on other file systems, becomes `.git`,
/// or a link that becomes `.gitmodules`. Wider than git's own check (read-cache.c, `verify_path`) on purpose:
/// what git would refuse must not stop the whole snapshot.
pub fn refused_by_git(path: &[u8], is_link: bool) -> Option<&'static str> {
    for part in path.split(|b| matches!(b, b'/' | b'\\')) {
        // HFS+ ignores these characters; NTFS ignores trailing dots and spaces and knows streams.
        let text: String = String::from_utf8_lossy(part)
            .chars()
            .filter(|c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'))
            .flat_map(char::to_lowercase)
            .collect();
        let cut = text.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
        if matches!(cut, ".git" | "git~1") {
            return Some("a name that is '.git' on some file system");
        }
        let short = cut.split_once('~').is_some_and(|(name, number)| {
            cut.len() == 8
                && number.bytes().all(|b| b.is_ascii_digit())
                && (name == "gitmod" || "gi7eba".starts_with(name))
        });
        if is_link && (cut == ".gitmodules" || short) {
            return Some("a link that is '.gitmodules' on some file system");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_git_would_refuse() {
        for bad in [
            ".git/x",
            "a/.GIT/config",
            "git~1",
            "a/.git./x",
            ".g\u{200c}it",
            ".git::$INDEX_ALLOCATION/x",
            "x\\.git\\y",
        ] {
            assert!(refused_by_git(bad.as_bytes(), false).is_some(), "{bad}");
        }
        for good in [".gitignore", ".github/x", "git/x", "a.git", "..a", "x\\y"] {
            assert!(refused_by_git(good.as_bytes(), true).is_none(), "{good}");
        }
        for bad in [".gitmodules", "a/.GitModules ", "gitmod~1", "gi7eba~1"] {
            assert!(refused_by_git(bad.as_bytes(), true).is_some(), "{bad}");
            assert!(refused_by_git(bad.as_bytes(), false).is_none(), "{bad}");
        }
    }

    #[test]
    fn links_that_lead_out() {
        assert!(leads_out(b"a/l", b"../../x"));
        assert!(leads_out(b"l", b"/etc/passwd"));
        assert!(!leads_out(b"a/l", b"../x"));
        assert!(leads_out(b"l", b"a/../../x"));
    }
}
