//! Who may sign: `allowed_signers` and `revoked_signers` of one commit, read strictly, and what a signature is
//! worth by them. git and ssh-keygen fail open in several ways (an unknown key is a good signature without a
//! name, a missing revocation file only warns, an expired key passes when the date is old): principal,
//! namespace, time, revocation and the presence of the files are checked here.

use crate::git::{ObjectKind, Objects};
use crate::model::{Failure, Kind, Oid, Signer};
use crate::os::signing;
use crate::text::Untrusted;
use sha2::Digest as _;

/// OpenSSH's allowed signers, relative to the top level.
pub const ALLOWED: &str = ".git-agent/allowed_signers";
/// Keys that count no more: public keys one a line, or a KRL. Must be there wherever [`ALLOWED`] is.
pub const REVOKED: &str = ".git-agent/revoked_signers";
/// Armoured OpenPGP public keys of those who sign with gpg. Optional.
pub const OPENPGP: &str = ".git-agent/allowed_keys.asc";
/// Namespace of an approval's SSH signature.
pub const APPROVAL: &str = "git-agent-approval@v1";
/// Namespace of git's own signatures over commits.
pub const COMMIT: &str = "git";
/// Largest of these files in bytes.
const MAX_FILE: u64 = 1 << 20;

/// One line of `allowed_signers`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    principals: Vec<String>,
    namespaces: Option<Vec<String>>,
    after: Option<i64>,
    before: Option<i64>,
    key: Vec<u8>,
    text: String,
}

/// The signers of one commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signers {
    lines: Vec<Line>,
    revoked: Revoked,
    openpgp: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Revoked {
    /// Public key blobs.
    keys: Vec<Vec<u8>>,
    /// OpenPGP fingerprints, upper case.
    openpgp: Vec<String>,
    /// An OpenSSH key revocation list, for ssh-keygen alone to read.
    krl: Option<Vec<u8>>,
}

fn unreadable(what: &str, why: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Consent, format!("{what}: {why}")).hint("git agent trust signers check")
}

impl Signers {
    /// What a commit says about signers; `None` when it has no [`ALLOWED`]. A file that is missing, no plain
    /// file, or not what it should be is a refusal (exit status 4): nobody is let in by mistake.
    pub fn at(objects: &Objects, tree: &Oid) -> Result<Option<Self>, Failure> {
        let file = |path: &str| -> Result<Option<Vec<u8>>, Failure> {
            match objects.entry_at(tree, path)? {
                None => Ok(None),
                Some(e) if matches!(e.mode, 0o100_644 | 0o100_755) => {
                    Ok(Some(objects.expect(&e.oid, ObjectKind::Blob, MAX_FILE)?))
                }
                Some(_) => Err(unreadable(path, "it is not a plain file")),
            }
        };
        let (allowed, openpgp) = (file(ALLOWED)?, file(OPENPGP)?);
        if allowed.is_none() && openpgp.is_none() {
            return Ok(None);
        }
        let revoked = file(REVOKED)?
            .ok_or_else(|| unreadable(REVOKED, "it is missing; an empty one says that nobody is revoked"))?;
        Self::parse(&allowed.unwrap_or_default(), &revoked, openpgp).map(Some)
    }

    /// Reads the files' contents.
    pub fn parse(allowed: &[u8], revoked: &[u8], openpgp: Option<Vec<u8>>) -> Result<Self, Failure> {
        let text = std::str::from_utf8(allowed).map_err(|_| unreadable(ALLOWED, "it is not text"))?;
        let mut lines = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            lines.push(parse_line(line).map_err(|e| unreadable(ALLOWED, format!("line {}: {e}", n + 1)))?);
        }
        Ok(Self { lines, revoked: Revoked::parse(revoked)?, openpgp })
    }

    /// Principals, each once, in the order of the file; those of OpenPGP keys are not known without gpg.
    pub fn principals(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for name in self.lines.iter().flat_map(|l| &l.principals) {
            if !all.contains(&name.as_str()) {
                all.push(name);
            }
        }
        all
    }

    /// One row a line: principals, fingerprint, and why its key does not count now, if so.
    pub fn rows(&self, now: i64) -> Vec<(String, String, Option<String>)> {
        let row = |l: &Line| {
            let why =
                if self.revoked.keys.contains(&l.key) { Some("revoked".to_owned()) } else { l.outside(now) };
            (l.principals.join(","), fingerprint(&l.key), why)
        };
        self.lines.iter().map(row).collect()
    }

    /// Whether a key with this fingerprint is among them.
    pub fn has_key(&self, key: &str) -> bool {
        self.lines.iter().any(|l| fingerprint(&l.key) == key)
    }

    /// Whether nobody could sign at all.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.openpgp.is_none()
    }

    /// These and the others together; what either revokes is revoked.
    #[must_use]
    pub fn with(mut self, other: &Signers) -> Self {
        self.lines.extend(other.lines.iter().cloned());
        self.revoked.keys.extend(other.revoked.keys.iter().cloned());
        self.revoked.openpgp.extend(other.revoked.openpgp.iter().cloned());
        self.openpgp = self.openpgp.or_else(|| other.openpgp.clone());
        self
    }

    /// Who signed `bytes`, or why the signature does not count. `namespace` is for SSH; an OpenPGP signature
    /// has none, and binds by its content. `now`: seconds since the epoch; a signature has no time that
    /// its maker could not choose, so a key must be good now.
    pub fn verify(
        &self,
        namespace: &str,
        signature: &[u8],
        bytes: &[u8],
        now: i64,
    ) -> Result<Result<Signer, String>, Failure> {
        if signature.starts_with(b"-----BEGIN PGP SIGNATURE-----") {
            return self.verify_openpgp(signature, bytes);
        }
        let Some(parsed) = Sshsig::parse(signature) else {
            return Ok(Err("it is neither an SSH nor an OpenPGP signature".into()));
        };
        let print = fingerprint(&parsed.key);
        if parsed.namespace != namespace.as_bytes() {
            let found = Untrusted::new(&parsed.namespace).to_string();
            return Ok(Err(format!("it was made for '{found}' and not for '{namespace}'")));
        }
        if self.revoked.keys.contains(&parsed.key) {
            return Ok(Err(format!("its key {print} is revoked")));
        }
        let known: Vec<&Line> = self.lines.iter().filter(|l| l.key == parsed.key).collect();
        if known.is_empty() {
            return Ok(Err(format!("its key {print} is not in {ALLOWED}")));
        }
        let mut why = None;
        let good: Vec<&Line> = known
            .iter()
            .filter(|l| {
                let out = if l.takes(namespace) {
                    l.outside(now)
                } else {
                    Some(format!("not allowed for '{namespace}'"))
                };
                let ok = out.is_none();
                why = why.take().or(out);
                ok
            })
            .copied()
            .collect();
        let Some(first) = good.first() else {
            return Ok(Err(format!("its key {print} is {}", why.unwrap_or_default())));
        };
        let allowed: String =
            good.iter().map(|l| format!("{} {}\n", first.principals[0], l.bare())).collect();
        let made = signing::ssh_verify(
            &allowed,
            &first.principals[0],
            namespace,
            self.revoked.krl.as_deref(),
            signature,
            bytes,
        )
        .map_err(|e| Failure::fatal("ssh-keygen could not be asked about a signature").because(e))?;
        if !made {
            return Ok(Err(format!("it is not a signature of {print} over this, or the key is revoked")));
        }
        let mut names: Vec<String> = good.iter().flat_map(|l| l.principals.clone()).collect();
        names.dedup();
        Ok(Ok(Signer { names, key: print }))
    }

    fn verify_openpgp(&self, signature: &[u8], bytes: &[u8]) -> Result<Result<Signer, String>, Failure> {
        let Some(keys) = &self.openpgp else {
            return Ok(Err(format!("it is an OpenPGP signature, and there is no {OPENPGP}")));
        };
        let found = signing::gpg_verify(keys, signature, bytes)
            .map_err(|e| Failure::fatal("gpg could not be asked about a signature").because(e))?;
        let Some(by) = found else {
            return Ok(Err(format!("it is no good signature of a key in {OPENPGP}")));
        };
        if self.revoked.openpgp.contains(&by.fingerprint) {
            return Ok(Err(format!("its key openpgp:{} is revoked", by.fingerprint)));
        }
        let mail = by.user.rsplit_once('<').and_then(|(_, m)| m.strip_suffix('>')).unwrap_or(&by.user);
        Ok(Ok(Signer { names: vec![mail.to_owned()], key: format!("openpgp:{}", by.fingerprint) }))
    }
}

impl Line {
    fn takes(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|all| all.iter().any(|n| n == namespace))
    }

    /// Why the key does not count at this time.
    fn outside(&self, now: i64) -> Option<String> {
        if self.after.is_some_and(|t| now < t) {
            return Some("not valid yet".into());
        }
        self.before.is_some_and(|t| now >= t).then(|| "not valid any more".into())
    }

    /// Key type and key, without options: those are checked here, against our own clock.
    fn bare(&self) -> &str {
        &self.text
    }
}

/// `principals [options] keytype base64 [comment]`, as ssh-keygen(1), ALLOWED SIGNERS. Stricter: a principal
/// is a name, not a pattern, because a signature must say who; certificate authorities are refused by name.
fn parse_line(line: &str) -> Result<Line, String> {
    let (principals, rest) = match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or("a quote is not closed")?,
        None => line.split_once([' ', '\t']).ok_or("it has no key")?,
    };
    let principals: Vec<String> = principals.split(',').map(str::to_owned).collect();
    if principals.iter().any(|p| p.is_empty() || p.contains(['*', '?', '!'])) {
        return Err("a principal must be one name and not a pattern".into());
    }
    let mut rest = rest.trim_start();
    let is_type = |word: &str| ["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"].iter().any(|t| word.starts_with(t));
    let mut parsed = Line {
        principals,
        namespaces: None,
        after: None,
        before: None,
        key: Vec::new(),
        text: String::new(),
    };
    if !is_type(rest) {
        let (options, after) = options(rest)?;
        rest = after.trim_start();
        for (name, value) in options {
            match (name.to_ascii_lowercase().as_str(), value) {
                ("namespaces", Some(v)) => {
                    let all: Vec<String> = v.split(',').map(str::to_owned).collect();
                    if all.iter().any(|n| n.contains(['*', '?', '!'])) {
                        return Err("a namespace must be one name and not a pattern".into());
                    }
                    parsed.namespaces = Some(all);
                }
                ("valid-after", Some(v)) => parsed.after = Some(time(&v)?),
                ("valid-before", Some(v)) => parsed.before = Some(time(&v)?),
                ("cert-authority", _) => return Err("certificate authorities are not supported".into()),
                (other, _) => return Err(format!("the option '{}' is not known", Untrusted::new(other))),
            }
        }
    }
    let mut words = rest.split_ascii_whitespace();
    let (Some(kind), Some(key)) = (words.next().filter(|w| is_type(w)), words.next()) else {
        return Err("it has no key".into());
    };
    parsed.key =
        base64(key.as_bytes()).filter(|k| named(k) == Some(kind.as_bytes())).ok_or("its key is broken")?;
    parsed.text = format!("{kind} {key}");
    Ok(parsed)
}

type Options = Vec<(String, Option<String>)>;

/// `name,name="value",...` up to the first blank outside of quotes.
fn options(text: &str) -> Result<(Options, &str), String> {
    let (mut found, mut word, mut value, mut quoted) = (Vec::new(), String::new(), None::<String>, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ' ' | '\t' if !quoted => {
                found.push((word, value));
                return Ok((found, &text[at..]));
            }
            ',' if !quoted => found.push((std::mem::take(&mut word), value.take())),
            '=' if !quoted && value.is_none() => value = Some(String::new()),
            c => value.as_mut().unwrap_or(&mut word).push(c),
        }
    }
    Err("it has no key".into())
}

/// `YYYYMMDD[HHMM[SS]]`, local time or with `Z` UTC; seconds since the epoch.
fn time(text: &str) -> Result<i64, String> {
    use chrono::TimeZone as _;
    let bad = || format!("'{}' is not a time", Untrusted::new(text));
    let (digits, utc) = match text.strip_suffix('Z') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    if !matches!(digits.len(), 8 | 12 | 14) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let whole = format!("{digits:0<14}");
    let plain = chrono::NaiveDateTime::parse_from_str(&whole, "%Y%m%d%H%M%S").map_err(|_| bad())?;
    if utc {
        return Ok(plain.and_utc().timestamp());
    }
    chrono::Local.from_local_datetime(&plain).earliest().map(|t| t.timestamp()).ok_or_else(bad)
}

impl Revoked {
    fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        if bytes.starts_with(b"SSHKRL\n\0") {
            return Ok(Self { krl: Some(bytes.to_vec()), ..Self::default() });
        }
        let text =
            std::str::from_utf8(bytes).map_err(|_| unreadable(REVOKED, "it is neither text nor a KRL"))?;
        let mut all = Self::default();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(print) = line.strip_prefix("openpgp:") {
                all.openpgp.push(print.trim().to_ascii_uppercase());
                continue;
            }
            // A line as in allowed_signers is taken too: whoever moves it from there means its key.
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let key = words
                .windows(2)
                .find_map(|w| base64(w[1].as_bytes()).filter(|k| named(k) == Some(w[0].as_bytes())));
            let key =
                key.ok_or_else(|| unreadable(REVOKED, format!("line {} holds no public key", n + 1)))?;
            all.keys.push(key);
        }
        Ok(all)
    }
}

/// The parts of an SSHSIG that we judge (OpenSSH, PROTOCOL.sshsig).
struct Sshsig {
    key: Vec<u8>,
    namespace: Vec<u8>,
}

impl Sshsig {
    fn parse(armoured: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(armoured).ok()?.trim();
        let inner = text
            .strip_prefix("-----BEGIN SSH SIGNATURE-----")?
            .strip_suffix("-----END SSH SIGNATURE-----")?;
        let inner: Vec<u8> = inner.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let blob = base64(&inner)?;
        let rest = blob.strip_prefix(b"SSHSIG\0\0\0\x01")?;
        let (key, rest) = string(rest)?;
        let (namespace, _) = string(rest)?;
        Some(Self { key: key.to_vec(), namespace: namespace.to_vec() })
    }
}

/// A length and as many bytes, as SSH has it, and what follows.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    Some((bytes.get(4..4 + length)?, &bytes[4 + length..]))
}

/// The type that a key blob names itself.
fn named(key: &[u8]) -> Option<&[u8]> {
    string(key).map(|(kind, _)| kind)
}

/// `SHA256:` and the hash of a key in base64, as ssh-keygen shows it.
fn fingerprint(key: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let hash = sha2::Sha256::digest(key);
    let mut text = String::from("SHA256:");
    for three in hash.chunks(3) {
        let bits = (0..3).fold(0u32, |n, i| n << 8 | u32::from(three.get(i).copied().unwrap_or(0)));
        for i in 0..=three.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * i) & 63) as usize]));
        }
    }
    text
}

/// Standard base64 with its padding, without blanks; `None` for anything else.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|b| **b == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text[..text.len() - padding].chunks(4) {
        let mut bits = 0u32;
        for i in 0..4 {
            let digit = match four.get(i) {
                None => 0,
                Some(b @ b'A'..=b'Z') => b - b'A',
                Some(b @ b'a'..=b'z') => b - b'a' + 26,
                Some(b @ b'0'..=b'9') => b - b'0' + 52,
                Some(b'+') => 62,
                Some(b'/') => 63,
                Some(_) => return None,
            };
            bits = bits << 6 | u32::from(digit);
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";

    #[test]
    fn lines_are_read_strictly() {
        let line = parse_line(&format!(
            "a@x,b@x namespaces=\"git,git-agent-approval@v1\",valid-before=\"20200101Z\" {KEY} a comment"
        ))
        .unwrap();
        assert_eq!(line.principals, ["a@x", "b@x"]);
        assert!(line.takes(COMMIT) && line.takes(APPROVAL) && !line.takes("file"));
        assert_eq!(line.before, Some(1_577_836_800));
        assert_eq!(line.text, KEY);
        assert_eq!(fingerprint(&line.key), "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU");
        for bad in [
            "a@x".to_owned(),
            format!("*@x {KEY}"),
            format!("a@x cert-authority {KEY}"),
            format!("a@x namespaces=\"*\" {KEY}"),
            format!("a@x valid-before=\"soon\" {KEY}"),
            format!("a@x no-touch {KEY}"),
            "a@x ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl".to_owned(),
            "a@x ssh-ed25519 AAAA=AAA".to_owned(),
        ] {
            assert!(parse_line(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn revocations_are_keys_or_nothing() {
        assert_eq!(Revoked::parse(b"# nobody\n\n").unwrap(), Revoked::default());
        assert_eq!(Revoked::parse(format!("{KEY} lost\n").as_bytes()).unwrap().keys.len(), 1);
        assert_eq!(Revoked::parse(format!("a@x {KEY}\n").as_bytes()).unwrap().keys.len(), 1);
        assert!(Revoked::parse(b"a@x\n").is_err());
        assert!(Revoked::parse(b"\xff").is_err());
    }
}
