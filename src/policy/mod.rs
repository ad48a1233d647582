//! The policy: one strict YAML file, compiled once, asked by everybody. Owns the schema, its defaults and
//! what counts as looser; does no I/O (the caller brings the bytes and says where they came from) and starts
//! nothing.

mod compile;
mod decide;
mod error;
mod glob;
mod order;
mod parse;
mod schema;
#[cfg(test)]
mod tests;
mod units;
mod variable;

pub use crate::model::Tier;
pub use decide::{Decision, Facts, Judgement, Lacking, Refusal, Word, decide};
pub use error::PolicyError;
pub use glob::{Globs, Pattern};
pub use order::{Difference, Direction, needs_consent};
pub use parse::MAX_POLICY;
pub use variable::Variable;

use crate::model::{Digest, Failure, Oid, Role, RunName};
use crate::text::nearest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Where a repository keeps its policy, relative to the top level.
pub const PATH: &str = ".git-agent/policy.yml";

/// The built-in policy: this project's top-level `policy.yml`, which is the annotated example too.
pub const BUILT_IN: &str = include_str!("../../policy.yml");

/// JSON Schema of a policy, for editors. A test keeps it in step with what is really read.
pub const SCHEMA: &str = include_str!("../../schema/policy.schema.json");

/// Where the policy in force came from. `Display` is the spelling of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// No policy file: the built-in default.
    BuiltIn,
    /// The commit whose [`PATH`] is in force.
    Commit(Oid),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::BuiltIn => f.write_str("built-in"),
            Source::Commit(oid) => oid.fmt(f),
        }
    }
}

/// What a role does to the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleKind {
    /// Works in a copy of its own.
    Writer,
    /// Sees the real working tree as it is and writes nothing.
    Reader,
}

/// Whether an engine works in the run's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// In the run's tree.
    #[default]
    Worktree,
    /// It edits nothing and runs as a reader.
    None,
}

/// What an engine reaches of the network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Everything.
    #[default]
    Open,
    /// These hosts, through a proxy.
    Proxy(Vec<String>),
    /// Nothing.
    Off,
}

/// On what a carried approval may land.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LandingMode {
    /// The same pre- and post-image of every touched path.
    #[default]
    Carry,
    /// The same tree on the same parent.
    Exact,
}

/// Who may push to a protected branch, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Any pusher that is no agent; an agent's commits need an approval.
    #[default]
    Pusher,
    /// Only commits or pushes with a signature.
    Signed,
    /// Only what was approved.
    Approved,
}

/// What a signing principal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignerRole {
    /// May approve.
    Person,
    /// May never approve.
    Agent,
}

/// What the ledger keeps of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskText {
    /// Its text, up to 16 KiB.
    #[default]
    Full,
    /// Only its SHA-256, for public repositories.
    Digest,
}

/// A value and the line it stands on, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its line.
    pub line: u32,
}

/// How much a run may take and leave. Over a limit the run fails and its tree is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time from the engine's start to its end. Read by `spawn`.
    pub wall: Option<Duration>,
    /// Changed paths. Read when the result is taken.
    pub files: u64,
    /// Added and removed lines of text. Read when the result is taken.
    pub lines: Option<u64>,
    /// Bytes of all new contents together. Read when the result is taken.
    pub bytes: u64,
    /// Largest new content in bytes, inclusive. Read when the result is taken.
    pub blob: u64,
}

impl Limits {
    /// The limits of a role that sets none.
    pub const BUILT_IN: Limits =
        Limits { wall: None, files: 100_000, lines: None, bytes: 4 << 30, blob: 2 << 30 };
}

/// A command as words; never a line for a shell.
pub type Command = Vec<String>;

/// What runs before the engine, in the tree and in the cage. Read by `spawn`, and before checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// The commands in order.
    pub run: Vec<Command>,
    /// Their own network setting.
    pub network: Option<Network>,
    /// Variables that they see beside the role's.
    pub env: Vec<Variable>,
    /// How long all of them together may take.
    pub wall: Duration,
    /// Its line.
    pub line: u32,
}

impl Setup {
    /// How long a setup may take that says nothing of it.
    pub const WALL: Duration = Duration::from_secs(30 * 60);
}

/// What a role may do.
#[derive(Debug, Clone)]
pub struct RoleRule {
    /// Writer or reader. Read by `spawn`.
    pub kind: RoleKind,
    /// Paths it may change; `None` is every path. Read when the result is taken.
    pub allow: Option<Globs>,
    /// Paths it may not change, whatever `allow` says. Read when the result is taken.
    pub deny: Globs,
    /// Engines to try in order, when the command line names none. Read by `spawn`.
    pub engines: Vec<Located<String>>,
    /// What runs before the engine. Read by `spawn`.
    pub setup: Option<Setup>,
    /// Named commands whose results the reviewer sees. Read when the result is taken.
    pub checks: Vec<Located<(String, Command)>>,
    /// What runs before the tree goes. Read by `apply`, `discard` and `prune`.
    pub teardown: Vec<Located<Command>>,
    /// Variables of everything that runs in a tree of this role.
    pub env: Vec<Located<Variable>>,
    /// Read by `spawn` and when the result is taken.
    pub limits: Limits,
    /// Line of the role in the file; `None` for a name that no file declares.
    pub line: Option<u32>,
    limit_lines: BTreeMap<&'static str, u32>,
    kind_line: Option<u32>,
}

impl RoleRule {
    fn undeclared(kind: RoleKind) -> Self {
        Self {
            kind,
            allow: None,
            deny: Globs::default(),
            engines: Vec::new(),
            setup: None,
            checks: Vec::new(),
            teardown: Vec::new(),
            env: Vec::new(),
            limits: Limits::BUILT_IN,
            line: None,
            limit_lines: BTreeMap::new(),
            kind_line: None,
        }
    }

    /// Variables of everything that runs in a tree of this role.
    pub fn variables(&self) -> Vec<Variable> {
        self.env.iter().map(|v| v.value.clone()).collect()
    }

    /// Where a limit is from, in words that follow the sentence that names it.
    pub fn limit(&self, key: &'static str) -> String {
        match self.limit_lines.get(key) {
            Some(line) => format!("limits.{key} on line {line} of the policy"),
            None => format!("limits.{key}, built in"),
        }
    }

    /// The same rule where no line of the file at hand says it.
    fn without_lines(self) -> Self {
        Self { line: None, kind_line: None, limit_lines: BTreeMap::new(), ..self }
    }

    /// Line of `kind`, where a file says it.
    pub fn kind_line(&self) -> Option<u32> {
        self.kind_line
    }

    /// Line of a limit (`wall`, `files`, `lines`, `bytes`, `blob`), where a file sets it.
    pub fn limit_line(&self, key: &str) -> Option<u32> {
        self.limit_lines.get(key).copied()
    }
}

/// What the file says about an engine. An entry without `command` adds to the preset of that name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineRule {
    /// The command's words; `{task}` and `{task_file}` inside them are filled in. Read by `spawn`.
    pub command: Option<Located<Command>>,
    /// Read by `spawn`.
    pub isolation: Isolation,
    /// The exit status that hands the tree to the next engine. `None`: [`DECLINE_EXIT`]. Read by `spawn`.
    pub decline_exit: Option<u8>,
    /// Variables of this engine. Read by `spawn`.
    pub env: Vec<Located<Variable>>,
    isolation_line: u32,
}

/// The exit status of an engine that declines, unless the policy says otherwise.
pub const DECLINE_EXIT: u8 = 75;

/// Who approves, how. Read by `approve`, `apply`, `verify` and the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Approvals needed.
    pub count: u8,
    /// `None`: signed exactly where the policy's commit holds `allowed_signers`.
    pub signed: Option<bool>,
    /// The approver must not be the one who spawned.
    pub two_person: bool,
    /// An approval's life. `None`: it does not expire.
    pub expiry: Option<Duration>,
    /// On what it may land.
    pub mode: LandingMode,
    /// What principals of `allowed_signers` are; one that is not listed is nobody. `None`: each is a person
    /// who may approve.
    pub signers: Option<BTreeMap<String, SignerRole>>,
    lines: BTreeMap<&'static str, u32>,
}

impl Default for Approval {
    fn default() -> Self {
        let (signed, expiry, signers, lines) = (None, None, None, BTreeMap::new());
        Self { count: 1, signed, two_person: false, expiry, mode: LandingMode::Carry, signers, lines }
    }
}

/// How long things stay. Read by `prune`, `apply` and `discard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Ledger and snapshot of a terminal run.
    pub snapshots: Duration,
    /// Keep the tree after apply and discard, until prune.
    pub keep_tree: bool,
}

impl Default for Retention {
    fn default() -> Self {
        Self { snapshots: Duration::from_secs(90 * 86_400), keep_tree: false }
    }
}

/// A compiled policy.
#[derive(Debug, Clone)]
pub struct Policy {
    sha256: Digest,
    /// Whether the list of roles is all there is. The built-in policy also knows names by their ending.
    exact: bool,
    roles: BTreeMap<String, RoleRule>,
    engines: BTreeMap<String, EngineRule>,
    strip: Globs,
    branch: String,
    agent_branches: Globs,
    tier: Tier,
    network: Network,
    task: TaskText,
    later: Later,
    /// Line of each top-level key that is present.
    lines: BTreeMap<&'static str, u32>,
}

/// What this version reads but does not enforce yet. [`Policy::unsupported`] names what is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Later {
    /// Principals who may change the policy. Read by the gate.
    pub owners: Vec<Located<String>>,
    /// Untracked or ignored files to copy into a run. Read by `spawn`.
    pub include: Vec<Located<String>>,
    /// Patterns of further refs that a run's store carries. Read by `spawn`.
    pub refs: Vec<Located<String>>,
    /// Read by `approve` and the gate.
    pub approval: Approval,
    /// Protection by pattern of branches; the strictest that matches holds, and all others are
    /// [`Protection::Pusher`]. Read by the gate.
    pub protect: Vec<Located<(String, Protection)>>,
    /// Patterns of paths that a review points out. Read by `review`.
    pub risk: Vec<Located<String>>,
    /// Read by `prune`.
    pub retention: Retention,
    /// Trees kept warm. Read by `spawn`, once it can.
    pub pool: u8,
}

impl Policy {
    /// The built-in policy.
    pub fn built_in() -> &'static Policy {
        static POLICY: std::sync::LazyLock<Policy> = std::sync::LazyLock::new(|| {
            let policy =
                Policy::parse(BUILT_IN.as_bytes(), "policy.yml").expect("a test parses the built-in policy");
            Policy { exact: false, ..policy }
        });
        &POLICY
    }

    /// Reads and compiles a policy file. `name` is what errors call it.
    pub fn parse(bytes: &[u8], name: &str) -> Result<Policy, PolicyError> {
        compile::policy(bytes, name)
    }

    /// SHA-256 of the file's bytes.
    pub fn sha256(&self) -> Digest {
        self.sha256
    }

    /// What `role` may do. A file's list is exact; with the built-in policy a name that is `reviewer` or ends in
    /// `-reviewer` is a reader and any other a writer.
    pub fn role(&self, role: &Role) -> Result<RoleRule, UnknownRole> {
        if let Some(rule) = self.roles.get(role.as_str()) {
            return Ok(rule.clone());
        }
        if !self.exact {
            return Ok(RoleRule::undeclared(kind_by_name(role.as_str())));
        }
        let known: Vec<_> = self.roles.keys().cloned().collect();
        let near = nearest(role.as_str(), known.iter().map(String::as_str));
        Err(UnknownRole { role: role.clone(), near: near.into_iter().map(Into::into).collect(), known })
    }

    /// The declared roles, by name.
    pub fn roles(&self) -> impl Iterator<Item = (&str, &RoleRule)> {
        self.roles.iter().map(|(name, rule)| (name.as_str(), rule))
    }

    /// What the file says about an engine; `None` leaves it to the presets.
    pub fn engine(&self, name: &str) -> Option<&EngineRule> {
        self.engines.get(name)
    }

    /// The engines that the file declares, by name.
    pub fn engines(&self) -> impl Iterator<Item = (&str, &EngineRule)> {
        self.engines.iter().map(|(name, rule)| (name.as_str(), rule))
    }

    /// The limits of a role, built-in where the role sets none.
    pub fn limits(&self, role: &Role) -> Result<Limits, UnknownRole> {
        self.role(role).map(|r| r.limits)
    }

    /// Short name of the branch of a run, without `refs/heads/`.
    pub fn branch(&self, name: &RunName) -> String {
        self.branch.replacen("{name}", name.as_str(), 1)
    }

    /// Whether a branch (short name) counts as an agent's.
    pub fn is_agent_branch(&self, short: &[u8]) -> bool {
        self.agent_branches.is_match(short)
    }

    /// Whether a tracked path is hidden from the run's tree.
    pub fn strips(&self, path: &[u8]) -> bool {
        self.strip.is_match(path)
    }

    /// The patterns of `strip`; empty means that nothing is hidden and no path needs asking about.
    pub fn strip(&self) -> &Globs {
        &self.strip
    }

    /// The weakest tier that the policy accepts.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// What engines reach of the network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// What the ledger keeps of a task. Read by `spawn`.
    pub fn task_text(&self) -> TaskText {
        self.task
    }

    /// Line of a top-level key that the file sets.
    pub fn line(&self, key: &str) -> Option<u32> {
        self.lines.get(key).copied()
    }

    /// What is asked of approvals.
    pub fn approval(&self) -> &Approval {
        &self.later.approval
    }

    /// Principals who may change the policy; none named: every signer who may approve.
    pub fn owners(&self) -> &[Located<String>] {
        &self.later.owners
    }

    /// How a branch (short name) is protected: the strictest of all that match.
    pub fn protection(&self, short: &[u8]) -> Protection {
        let matches = |glob: &str| {
            // Checked when the file was read; one that cannot be compiled protects everything.
            Globs::compile(vec![Pattern { glob: glob.to_owned(), line: 0 }])
                .map_or(true, |g| g.is_match(short))
        };
        let found = self.later.protect.iter().filter(|p| matches(&p.value.0)).map(|p| p.value.1);
        found.max().unwrap_or_default()
    }

    /// What no rule of a role or an engine says.
    pub fn later(&self) -> &Later {
        &self.later
    }

    /// What `include` lists, each entry as written and as a pattern.
    pub fn include(&self) -> impl Iterator<Item = (&Located<String>, Globs)> {
        self.later.include.iter().map(|p| (p, compiled(std::slice::from_ref(p))))
    }

    /// The patterns of further refs that a run's store carries.
    pub fn refs(&self) -> Globs {
        compiled(&self.later.refs)
    }

    /// The patterns of paths that a review points out.
    pub fn risk(&self) -> Globs {
        compiled(&self.later.risk)
    }

    /// Whether a variable of anything in this policy asks for the run's port.
    pub fn wants_port(&self) -> bool {
        let engines = self.engines.values().flat_map(|e| &e.env);
        let roles = self.roles.values().flat_map(|r| &r.env);
        let setups = self.roles.values().filter_map(|r| r.setup.as_ref()).flat_map(|s| &s.env);
        engines.chain(roles).map(|v| &v.value).chain(setups).any(Variable::wants_port)
    }

    /// Keys that this policy uses for `role` and this version does not enforce yet. A caller that would have
    /// to enforce one refuses by name, so that nothing is silently ignored.
    pub fn unsupported(&self, _role: &Role) -> Vec<&'static str> {
        let later = &self.later;
        let used = |key: &'static str, yes: bool| yes.then_some(key);
        [used("pool", later.pool != 0)].into_iter().flatten().collect()
    }
}

/// Patterns that were checked when the file was read.
fn compiled(list: &[Located<String>]) -> Globs {
    let patterns = list.iter().map(|p| Pattern { glob: p.value.clone(), line: p.line }).collect();
    Globs::compile(patterns).unwrap_or_default()
}

/// The kind that a name has where no file declares it.
fn kind_by_name(role: &str) -> RoleKind {
    if role == "reviewer" || role.ends_with("-reviewer") { RoleKind::Reader } else { RoleKind::Writer }
}

/// A role that the policy file does not declare.
#[derive(Debug, thiserror::Error)]
#[error("the policy has no role '{role}'")]
pub struct UnknownRole {
    /// The name asked for.
    pub role: Role,
    /// Declared names that are close to it, best first.
    pub near: Vec<String>,
    /// All declared names.
    pub known: Vec<String>,
}

impl From<UnknownRole> for Failure {
    fn from(e: UnknownRole) -> Failure {
        let hint = match e.near.as_slice() {
            [] => format!("it has: {}", e.known.join(", ")),
            near => format!("did you mean: {}", near.join(", ")),
        };
        Failure::fatal(e.to_string()).hint(hint)
    }
}
