//! Text that somebody else wrote, made safe to show, and the small string rules everything shares.
//! Owns escaping, quoting and name comparison; knows nothing of git or the terminal.

use std::borrow::Cow;
use std::fmt;

/// Bytes that came from an agent, a repository or a peer. Its `Display` is the only way to show them:
/// control characters, invalid UTF-8 and bidirectional overrides appear as escapes.
///
/// ```
/// # use git_agent::text::Untrusted;
/// assert_eq!(Untrusted::new(b"a\x1b[31mb").to_string(), "a\\x1b[31mb");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Untrusted<'a>(&'a [u8]);

impl<'a> Untrusted<'a> {
    /// Wraps bytes of any origin and encoding.
    pub fn new<B: AsRef<[u8]> + ?Sized>(bytes: &'a B) -> Self {
        Self(bytes.as_ref())
    }

    fn write(&self, f: &mut impl fmt::Write, keep_layout: bool) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\n' | '\t' if keep_layout => f.write_char(c)?,
                    c if needs_escape(c) => write_escaped(f, c)?,
                    c => f.write_char(c)?,
                }
            }
            for b in chunk.invalid() {
                write!(f, "\\x{b:02x}")?;
            }
        }
        Ok(())
    }

    /// Like `Display`, but line feeds and tabs stay: for multi-line text such as a diff or a task.
    pub fn multiline(&self) -> String {
        let mut out = String::with_capacity(self.0.len());
        self.write(&mut out, true).expect("writing to a String cannot fail");
        out
    }
}

impl fmt::Display for Untrusted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, false)
    }
}

impl fmt::Debug for Untrusted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Control characters, line separators, and the invisible or reordering characters of "Trojan Source"
/// (CVE-2021-42574) and of tag and variation blocks.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

fn write_escaped(f: &mut impl fmt::Write, c: char) -> fmt::Result {
    match c {
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        c if (c as u32) < 0x100 => write!(f, "\\x{:02x}", c as u32),
        c => write!(f, "\\u{{{:04x}}}", c as u32),
    }
}

/// A path as git prints it with `core.quotePath=true`-like quoting: unchanged when it is plain printable
/// text, else in double quotes with C escapes. Injective, so it can stand in JSON for any path.
pub fn quote_path(path: &[u8]) -> Cow<'_, str> {
    if let Ok(s) = std::str::from_utf8(path)
        && !s.chars().any(|c| needs_escape(c) || c == '"' || c == '\\')
    {
        return Cow::Borrowed(s);
    }
    let mut out = String::from("\"");
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if needs_escape(c) => {
                    let mut buffer = [0; 4];
                    for b in c.encode_utf8(&mut buffer).bytes() {
                        out.push_str(&format!("\\{b:03o}"));
                    }
                }
                c => out.push(c),
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\{b:03o}"));
        }
    }
    out.push('"');
    Cow::Owned(out)
}

/// One argument as a POSIX shell would need it typed. For hints that can be pasted.
pub fn shell_quote(arg: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%_-+=:,./".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) {
        return Cow::Borrowed(arg);
    }
    Cow::Owned(format!("'{}'", arg.replace('\'', "'\\''")))
}

/// The words of `known` nearest to `word`, best first, at most three, none farther than a typing error.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let limit = (word.chars().count() / 3).max(2);
    let mut scored: Vec<_> = known
        .into_iter()
        .map(|k| (distance(&word.to_lowercase(), &k.to_lowercase()), k))
        .filter(|(d, k)| *d <= limit || k.contains(word))
        .collect();
    scored.sort();
    scored.into_iter().take(3).map(|(_, k)| k).collect()
}

/// Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// JSON without `//` and `/* */` comments outside of strings; what several clients allow in their settings.
pub fn strip_json_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let (mut string, mut escaped) = (false, false);
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            _ if string => {
                string = c != '"' || escaped;
                escaped = c == '\\' && !escaped;
                out.push(c);
            }
            ('/', Some('/')) => while chars.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) => {
                chars.next();
                let mut star = false;
                for c in chars.by_ref() {
                    if star && c == '/' {
                        break;
                    }
                    star = c == '*';
                }
                out.push(' ');
            }
            _ => {
                string = c == '"';
                out.push(c);
            }
        }
    }
    out
}

/// JSON text with the characters that JSON allows and a terminal obeys written as `\uXXXX`: the same value.
pub fn json_safe(json: &str) -> Cow<'_, str> {
    if !json.chars().any(needs_escape) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if needs_escape(c) {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|u| out.push_str(&format!("\\u{u:04x}")));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_strings_stay() {
        let text = "{ // one\n\"a\": \"// no \\\" /* no */\", /* two\n * */ \"b\": 1 }";
        assert_eq!(strip_json_comments(text), "{ \n\"a\": \"// no \\\" /* no */\",   \"b\": 1 }");
        assert_eq!(strip_json_comments("/* never closed"), " ");
        assert_eq!(strip_json_comments("1 / 2"), "1 / 2");
    }

    #[test]
    fn untrusted_shows_what_would_deceive() {
        let show = |b: &[u8]| Untrusted::new(b).to_string();
        assert_eq!(show(b"plain \xc3\xa9"), "plain é");
        assert_eq!(show(b"a\nb\tc\r"), "a\\nb\\tc\\r");
        assert_eq!(show("x\u{202e}y".as_bytes()), "x\\u{202e}y");
        assert_eq!(show("x\u{9b}31m".as_bytes()), "x\\x9b31m");
        assert_eq!(show(b"\xff"), "\\xff");
        assert_eq!(Untrusted::new(b"a\n\x07b").multiline(), "a\n\\x07b");
    }

    #[test]
    fn quoting_is_injective_on_awkward_names() {
        assert_eq!(quote_path(b"src/a.rs"), "src/a.rs");
        assert_eq!(quote_path(b"a\\n"), "\"a\\\\n\"");
        assert_eq!(quote_path(b"a\n"), "\"a\\n\"");
        assert_eq!(quote_path(b"\xff"), "\"\\377\"");
        assert_eq!(quote_path(b"\x01\""), "\"\\001\\\"\"");
    }

    #[test]
    fn json_stays_the_same_value() {
        assert_eq!(json_safe("{\"a\":\"b\"}"), "{\"a\":\"b\"}");
        assert_eq!(json_safe("\"\u{9b}\u{202e}\u{e0001}\""), "\"\\u009b\\u202e\\udb40\\udc01\"");
    }

    #[test]
    fn shell_quoting() {
        assert_eq!(shell_quote("a-b/c"), "a-b/c");
        assert_eq!(shell_quote("it's"), "'it'\\''s'");
        assert_eq!(shell_quote(""), "''");
    }

    #[test]
    fn nearest_names() {
        let known = ["developer", "ui-developer", "tester", "reviewer"];
        assert_eq!(nearest("develper", known), ["developer"]);
        assert_eq!(nearest("testr", known), ["tester"]);
        assert!(nearest("zzz", known).is_empty());
    }
}
