//! Path patterns: from the top level, `*` and `?` do not cross `/`, `**` does, `dir/` means everything below.
//! They compare bytes: case matters, and `é` composed and decomposed are two names, as they are to git.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

/// Longest pattern in bytes; keeps nested `{{{...}}}` from exhausting the stack of the pattern compiler.
const MAX_PATTERN: usize = 1024;

/// One pattern as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The pattern as it stands in the file.
    pub glob: String,
    /// Its line, from 1.
    pub line: u32,
}

/// Compiled patterns. The empty list matches nothing.
#[derive(Debug, Clone, Default)]
pub struct Globs {
    patterns: Vec<Pattern>,
    set: GlobSet,
}

impl Globs {
    /// Compiles patterns that [`check`] has accepted.
    pub(super) fn compile(patterns: Vec<Pattern>) -> Result<Self, (u32, String)> {
        let mut set = GlobSetBuilder::new();
        for p in &patterns {
            set.add(build(&p.glob).map_err(|why| (p.line, why))?);
        }
        let line = patterns.first().map_or(1, |p| p.line);
        let set = set.build().map_err(|e| (line, e.kind().to_string()))?;
        Ok(Self { patterns, set })
    }

    /// The first pattern that `path` matches. The path is relative to the top level, in git's spelling.
    pub fn matched(&self, path: &[u8]) -> Option<&Pattern> {
        let first = self.set.matches_candidate(&Candidate::from_bytes(path)).into_iter().min()?;
        self.patterns.get(first)
    }

    /// Whether any pattern matches; cheaper than [`Globs::matched`].
    pub fn is_match(&self, path: &[u8]) -> bool {
        self.set.is_match_candidate(&Candidate::from_bytes(path))
    }

    /// The patterns in the order of the file.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }
}

fn build(glob: &str) -> Result<globset::Glob, String> {
    let below;
    let whole = match glob.strip_suffix('/') {
        Some(dir) => {
            below = format!("{dir}/**");
            &below
        }
        None => glob,
    };
    GlobBuilder::new(whole)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|e| e.kind().to_string())
}

/// Whether `glob` can be a pattern; if not, why.
pub(super) fn check(glob: &str) -> Result<(), String> {
    if glob.len() > MAX_PATTERN {
        return Err(format!("a pattern is at most {MAX_PATTERN} bytes long"));
    }
    if glob.starts_with('!') {
        return Err("a pattern cannot be negated: use 'deny'".into());
    }
    relative(glob.strip_suffix('/').unwrap_or(glob))?;
    build(glob).map(drop)
}

/// Whether `path` stays below the top level when read from there.
pub(super) fn relative(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("it is empty".into());
    }
    if path.starts_with('/') {
        return Err("write it relative to the top level, without a leading '/'".into());
    }
    if path.contains('\0') {
        return Err("no path contains a NUL byte".into());
    }
    if path.split('/').any(|c| matches!(c, "" | "." | "..")) {
        return Err("'.', '..' and empty components never match: write the path from the top level".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(list: &[&str]) -> Globs {
        let patterns = list.iter().map(|g| Pattern { glob: (*g).into(), line: 1 }).collect();
        Globs::compile(patterns).unwrap()
    }

    #[test]
    fn stars_stay_inside_a_component() {
        let hit = |glob: &str, path: &[u8]| globs(&[glob]).matched(path).is_some();
        for (glob, path) in [
            ("*", "a"),
            ("src/**", "src/a/b"),
            ("src/", "src/a/b"),
            ("**/x", "x"),
            ("**/x", "a/b/x"),
            ("a/**/b", "a/b"),
            ("{a,b/c}", "b/c"),
            ("*.md", "é.md"),
            ("src/*", "src/.hidden"),
        ] {
            assert!(hit(glob, path.as_bytes()), "{glob} {path}");
        }
        for (glob, path) in [
            ("*", "a/b"),
            ("src/*", "src/a/b"),
            ("src/*", "src"),
            ("src/", "src"),
            ("src", "src/a"),
            ("?", "/"),
            ("a[!b]c", "a/c"),
            ("a[+-9]c", "a/c"),
            ("SRC/**", "src/a"),
            ("caf\u{e9}", "cafe\u{301}"),
            ("src/**", "xsrc/a"),
        ] {
            assert!(!hit(glob, path.as_bytes()), "{glob} {path}");
        }
        assert!(hit("src/*", b"src/\xff\n"), "names are bytes");
    }

    #[test]
    fn patterns_that_can_never_match_are_refused() {
        for bad in ["", "/", "/src", "./src", "a/../b", "a//b", "!x", "[", "{a", "a\0"] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        assert!(check(&"{".repeat(60_000)).is_err());
        assert!(check("src/").is_ok());
    }
}
