//! What of a person's own client goes into a run: the login without its refresh token, settings, and what keeps
//! the client from asking what was answered long ago. Pure: bytes in, bytes out.

use serde_json::{Map, Value};

/// A folder of the person's: the variable that moves its parent, where that is below HOME otherwise, and what
/// comes below either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Such as `CODEX_HOME`.
    pub var: &'static str,
    /// Such as `.codex`.
    pub home: &'static str,
    /// Such as `opencode` below `.config`; empty for the place itself.
    pub below: &'static str,
}

/// Where a client keeps its things, on the person's side and in a run (`to`: below the run's `engine/`).
#[derive(Debug, Clone, Copy)]
pub struct Account {
    /// Settings of the person's.
    pub settings: Place,
    /// Where they go.
    pub settings_to: &'static str,
    /// Files and folders of them that are copied in. Never a file that holds a login.
    pub copied: &'static [&'static str],
    /// The folder of the login.
    pub login: Place,
    /// Where it goes.
    pub login_to: &'static str,
    /// The file that holds it, in both.
    pub file: &'static str,
    /// Makes what a run may hold from that file, at a time in seconds since the epoch.
    pub access: fn(&[u8], i64) -> Result<Access, Unusable>,
    /// A file beside the login that [`Account::seed`] looks at, and its place.
    pub state: Option<(Place, &'static str)>,
    /// What is put into the run besides.
    pub seed: fn(&Facts<'_>) -> Seed,
    /// The command line that logs in, after the program.
    pub sign_in: &'static [&'static str],
}

/// A login without its refresh token.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// The file's new content.
    pub bytes: Vec<u8>,
    /// When it ends, in seconds since the epoch, if it says so.
    pub expires: Option<i64>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Why a login file gives no login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// It is not what the client writes.
    Malformed,
    /// It holds no login.
    Empty,
}

/// Where a client has its login from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Variables.
    Variables,
    /// The login file.
    File,
    /// Neither: whatever its settings say.
    Settings,
}

/// What a seed is made from.
pub struct Facts<'a> {
    /// The run's working tree.
    pub tree: &'a str,
    /// Where the login comes from.
    pub login: Source,
    /// The caller's variables, as far as they pass.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The state file, if there is one.
    pub state: Option<Value>,
    /// A settings file as it was copied in.
    pub copied: &'a dyn Fn(&str) -> Option<Vec<u8>>,
}

/// What a client finds in a run besides settings and login.
#[derive(Default)]
pub struct Seed {
    /// Files below `engine/`; they replace copied ones.
    pub files: Vec<(String, Vec<u8>)>,
    /// Words after the program's name.
    pub words: Vec<String>,
}

impl Seed {
    /// Adds a file that holds `value`.
    pub fn json(mut self, path: &str, value: &Value) -> Self {
        self.files.push((path.to_owned(), format!("{value:#}\n").into_bytes()));
        self
    }
}

/// A JSON object from a file.
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, Unusable> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Unusable::Empty);
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        _ => Err(Unusable::Malformed),
    }
}

/// The named members, in a new object. An allow list: what a client adds one day stays outside.
pub fn pick(from: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    names.iter().filter_map(|n| Some(((*n).to_owned(), from.get(*n)?.clone()))).collect()
}

/// A non-empty text member.
pub fn text<'a>(from: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    from.get(name).and_then(Value::as_str).filter(|t| !t.is_empty())
}

/// A time in milliseconds, in seconds.
pub fn millis(from: &Map<String, Value>, name: &str) -> Option<i64> {
    from.get(name).and_then(Value::as_f64).map(|ms| (ms / 1000.0) as i64)
}

/// The login of Gemini CLI and of Qwen Code, which keep it in the same shape.
pub fn oauth_creds(bytes: &[u8], kept: &[&str]) -> Result<Access, Unusable> {
    let all = object(bytes)?;
    text(&all, "access_token").ok_or(Unusable::Empty)?;
    Ok(Access { bytes: written(pick(&all, kept)), expires: millis(&all, "expiry_date") })
}

/// The person's settings with ours over them, member by member. What is no object any client would refuse.
pub fn merged(settings: Option<Vec<u8>>, ours: Value) -> Value {
    let theirs = settings.and_then(|bytes| serde_json::from_slice(&without_comments(&bytes)).ok());
    let mut all = theirs.filter(Value::is_object).unwrap_or_else(|| Value::Object(Map::new()));
    lay_over(&mut all, ours);
    all
}

fn lay_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                lay_over(under.entry(name).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

/// JSON with comments, as these clients let people write it, without them.
fn without_comments(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    let mut quoted = false;
    while let Some(&byte) = text.get(at) {
        let rest = &text[at..];
        let skipped = match (quoted, rest) {
            (true, [b'\\', _, ..]) => {
                out.extend_from_slice(&rest[..2]);
                2
            }
            (false, [b'/', b'/', ..]) => rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
            (false, [b'/', b'*', more @ ..]) => {
                more.windows(2).position(|w| w == b"*/").map_or(rest.len(), |end| end + 4)
            }
            _ => {
                quoted ^= byte == b'"';
                out.push(byte);
                1
            }
        };
        at += skipped;
    }
    out
}

/// As a file's content.
pub fn written(map: Map<String, Value>) -> Vec<u8> {
    format!("{:#}\n", Value::Object(map)).into_bytes()
}
