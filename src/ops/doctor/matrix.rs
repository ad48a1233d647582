//! The attempts to get out, each made without the cage first, and what came of them.

use super::throwaway::{Held, Throwaway};
use crate::model::{CageReport, Failure, Kind as Failed};
use crate::os::attempt::{Account, Bystander, Print, WORD, World, print};
use crate::os::cage::{Input, Output, Stdio};
use crate::os::{cage, files};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long all attempts together may take in the cage.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// What an engine must be able to do.
    Work,
    /// Files outside.
    Files,
    /// The repository.
    Git,
    /// Secrets and other runs.
    Secrets,
    /// Other processes and privileges.
    Processes,
    /// Sockets, shared memory, terminals.
    Talk,
    /// The network.
    Network,
}

/// Where a row may be open without breaking a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Never,
    /// Without namespaces.
    Landlock,
    /// Without namespaces, where the person allows sockets.
    Sockets,
    /// Where neither a network of its own nor Landlock's scope (ABI 6) is there.
    Scope,
    /// While the run's network is the machine's.
    Network,
}

/// By what it is seen that an attempt succeeded.
#[derive(Debug, Clone, Copy)]
enum Sign {
    /// Its own folder has changed.
    Own,
    /// This path of the main repository has changed.
    Main(&'static str),
    /// This path of the run's folder has changed.
    Run(&'static str),
    /// By its own word: it was able to read, or to begin.
    Said,
    /// The bystander has ended.
    Ended,
    /// The terminal has heard.
    Heard,
    /// Shared memory is there.
    Shared,
    /// Something is left when everything should have ended.
    Survived,
}

struct Row {
    id: &'static str,
    attempt: &'static str,
    what: &'static str,
    kind: Kind,
    sign: Sign,
    open: Open,
}

const fn row(
    id: &'static str,
    attempt: &'static str,
    what: &'static str,
    kind: Kind,
    sign: Sign,
    open: Open,
) -> Row {
    Row { id, attempt, what, kind, sign, open }
}

const ROWS: &[Row] = &[
    row("FS24", "edit-inside", "edit, create, delete, link in the tree", Kind::Work, Sign::Said, Open::Never),
    row("GT12", "commit-inside", "commit in the tree", Kind::Work, Sign::Said, Open::Never),
    row("FS01", "write", "write and create files outside", Kind::Files, Sign::Own, Open::Never),
    row("FS02", "dots", "get out by ../", Kind::Files, Sign::Own, Open::Never),
    row("FS03", "prefix", "write beside a folder of a similar name", Kind::Files, Sign::Own, Open::Never),
    row("FS04", "link-file", "write through a link to a file", Kind::Files, Sign::Own, Open::Never),
    row("FS05", "link-folder", "create through a link to a folder", Kind::Files, Sign::Own, Open::Never),
    row("FS06", "link-dangling", "create through a link to nothing", Kind::Files, Sign::Own, Open::Never),
    row("FS08", "truncate", "empty a file", Kind::Files, Sign::Own, Open::Never),
    row("FS09", "hard-link", "write through a hard link", Kind::Files, Sign::Own, Open::Never),
    row("FS11", "proc-root", "get out by /proc", Kind::Files, Sign::Own, Open::Never),
    row("FS12", "reopen", "open again what was opened as a path", Kind::Files, Sign::Own, Open::Never),
    row("FS12", "tmpfile", "link a nameless file outside", Kind::Files, Sign::Own, Open::Never),
    row("FS13", "descriptors", "write to a file that was left open", Kind::Files, Sign::Own, Open::Never),
    row("FS15", "mode", "change the mode of files outside", Kind::Files, Sign::Own, Open::Landlock),
    row("FS15", "times", "change the times of files outside", Kind::Files, Sign::Own, Open::Landlock),
    row("FS22", "delete", "delete files outside", Kind::Files, Sign::Own, Open::Never),
    row("FS22", "rename", "replace files outside", Kind::Files, Sign::Own, Open::Never),
    row(
        "FS26",
        "pin-git",
        "replace the tree's .git while the run lives",
        Kind::Git,
        Sign::Run("tree/.git"),
        Open::Landlock,
    ),
    row("GT01", "git-reset", "git reset in the main checkout", Kind::Git, Sign::Main("README"), Open::Never),
    row("GT03", "git-ref", "move a branch", Kind::Git, Sign::Main(".git/refs/heads/target"), Open::Never),
    row("GT04", "git-hook", "plant a hook", Kind::Git, Sign::Main(".git/hooks"), Open::Never),
    row("GT05", "git-config", "change .git/config", Kind::Git, Sign::Main(".git/config"), Open::Never),
    row(
        "GT06",
        "git-commondir",
        "create .git/commondir",
        Kind::Git,
        Sign::Main(".git/commondir"),
        Open::Never,
    ),
    row(
        "GT08",
        "git-objects",
        "write into the object store",
        Kind::Git,
        Sign::Main(".git/objects/info"),
        Open::Never,
    ),
    row(
        "GT16",
        "pin-commondir",
        "replace the store's commondir while the run lives",
        Kind::Git,
        Sign::Run("store/worktrees/tree/commondir"),
        Open::Landlock,
    ),
    row("SC01", "secret", "read a file outside", Kind::Secrets, Sign::Said, Open::Never),
    row("SC02", "environment", "read tokens from the environment", Kind::Secrets, Sign::Said, Open::Never),
    row("SC04", "host", "read what the host keeps of the run", Kind::Secrets, Sign::Said, Open::Never),
    row("SC04", "sibling", "read another run's tree", Kind::Secrets, Sign::Said, Open::Never),
    row("PR01", "signal", "end another process", Kind::Processes, Sign::Ended, Open::Scope),
    row("PR02", "trace", "trace another process", Kind::Processes, Sign::Said, Open::Never),
    row("PR03", "environ-of", "read another process's environment", Kind::Processes, Sign::Said, Open::Never),
    row("PR05", "daemon", "outlive the run", Kind::Processes, Sign::Survived, Open::Never),
    row("PR08", "privileges", "gain rights through sudo or su", Kind::Processes, Sign::Said, Open::Never),
    row("PR09", "namespaces", "make namespaces and mounts", Kind::Processes, Sign::Said, Open::Never),
    row(
        "IP03",
        "socket",
        "reach a listening socket (agents, docker, D-Bus)",
        Kind::Talk,
        Sign::Said,
        Open::Sockets,
    ),
    row("IP05", "abstract-socket", "reach an abstract socket", Kind::Talk, Sign::Said, Open::Scope),
    row("IP07", "shared-memory", "leave System V shared memory", Kind::Talk, Sign::Shared, Open::Landlock),
    row("IP07", "keyring", "use the kernel's keyrings", Kind::Talk, Sign::Said, Open::Never),
    row("IP08", "vsock", "reach the hypervisor's sockets", Kind::Talk, Sign::Said, Open::Never),
    row("IP10", "terminal", "write to another terminal", Kind::Talk, Sign::Heard, Open::Never),
    row("PR06", "type-ahead", "type into a terminal", Kind::Talk, Sign::Said, Open::Never),
    row(
        "IP11",
        "type-ahead-high",
        "type into a terminal, spelled otherwise",
        Kind::Talk,
        Sign::Said,
        Open::Never,
    ),
    row("NW03", "mptcp", "use Multipath TCP", Kind::Network, Sign::Said, Open::Never),
    row("NW04", "io-uring", "use io_uring", Kind::Network, Sign::Said, Open::Never),
    row(
        "NW06",
        "loopback",
        "reach a service on this machine's loopback",
        Kind::Network,
        Sign::Said,
        Open::Network,
    ),
];

/// Rows that cannot be tried in seconds and that the tier does not hold.
const UNTRIED: &[(&str, &str, &str)] = &[
    (
        "landlock",
        "CG06",
        "end what was started when supervisor and cage-init are both killed by somebody outside",
    ),
    ("landlock", "PR11", "limit memory, where no cgroup is delegated"),
];

/// What came of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It succeeded without the cage and not in it; work that must be possible was possible.
    Held,
    /// It succeeded in the cage; work that must be possible was not.
    Open,
    /// It succeeds on this machine neither with nor without a cage.
    Void,
    /// It gave no answer.
    Unknown,
}

/// One row, for a reader.
#[derive(Debug, Clone, Serialize)]
pub struct RowReport {
    /// Number of the conformance case.
    pub id: &'static str,
    /// The attempt's name.
    pub attempt: &'static str,
    /// In plain words.
    pub what: &'static str,
    /// What it is about.
    pub kind: Kind,
    /// What came of it.
    pub verdict: Verdict,
    /// Whether this tier and network promise that it is held.
    pub promised: bool,
    /// What stopped it in the cage.
    pub why: String,
    /// What stopped it without a cage, where it is void.
    pub control: String,
}

impl RowReport {
    /// Whether a promise is broken here.
    pub fn broken(&self) -> bool {
        let fine = matches!(self.verdict, Verdict::Held | Verdict::Void);
        self.promised && !fine || self.kind == Kind::Work && self.verdict != Verdict::Held
    }
}

/// What was proved.
#[derive(Debug, Clone, Serialize)]
pub struct Proof {
    /// The tier in force.
    pub tier: String,
    /// The network.
    pub network: String,
    /// The canaries' word.
    pub canaries: Vec<crate::model::Canary>,
    /// Each attempt.
    pub rows: Vec<RowReport>,
    /// What the tier does not hold and was not tried: case and plain words.
    pub untried: Vec<(&'static str, &'static str)>,
}

impl Proof {
    /// Whether everything that is promised was held.
    pub fn holds(&self) -> bool {
        !self.rows.iter().any(RowReport::broken)
    }
}

/// Makes every attempt without the cage and in it.
pub fn prove(bench: &Throwaway, held: &Held<'_>) -> Result<Proof, Failure> {
    let fail = |e: std::io::Error| Failure::fatal("the attempts could not be set up").because(e);
    let free = free_run(bench).map_err(fail)?;
    let (free_world, mut free_others) =
        World::make(&bench.free_main(), &bench.dir().join("free-out"), &free).map_err(fail)?;
    let edited = |main: &Path| files::write_plain(&main.join("README"), b"Edited by the person.\n", 0o644);
    edited(&bench.free_main()).map_err(fail)?;
    let control = Stage::watch(&free_world);
    let answers = accounts(&free_world.attempt_freely().map_err(fail)?);
    let control = control.judge(answers, &mut free_others);
    drop(free_others);

    let run = held.run.layout.dir();
    neighbour(run).map_err(fail)?;
    let (world, mut others) = World::make(bench.main(), &bench.dir().join("out"), run).map_err(fail)?;
    edited(bench.main()).map_err(fail)?;
    let stage = Stage::watch(&world);
    let program = held.run.layout.tree().join("attempt-program");
    let own = std::fs::read("/proc/self/exe").map_err(fail)?;
    files::write_new(&program, &own, 0o755).map_err(fail)?;
    let answers = accounts(&in_cage(held, &program, &world)?);
    let caged = stage.judge(answers, &mut others);

    let CageReport { tier, network, canaries, .. } = held.report.clone();
    let facts = Facts {
        landlock_only: tier == "landlock",
        abi: cage::probe().landlock_abi,
        open_network: network == "open",
        sockets: held.cage.spec().unix_sockets,
        own_user: held.run.folder.uid.is_some(),
    };
    let rows = ROWS.iter().map(|row| row.report(&control, &caged, &facts)).collect();
    let untried = UNTRIED.iter().filter(|(t, ..)| *t == tier).map(|(_, id, what)| (*id, *what)).collect();
    Ok(Proof { tier, network, canaries, rows, untried })
}

fn in_cage(held: &Held<'_>, program: &Path, world: &World) -> Result<Vec<u8>, Failure> {
    let fail = |e: std::io::Error| Failure::fatal("the attempts could not be made in the cage").because(e);
    let text = serde_json::to_string(world).map_err(|e| fail(e.into()))?;
    let argv: Vec<OsString> = vec![program.into(), WORD.into(), "all".into(), text.into()];
    let answers = held.run.layout.host().join("attempts");
    let to = files::create_to_write(&answers).map_err(fail)?;
    let stdio = Stdio { input: Input::Null, output: Output::To(to), error: Output::Null };
    held.cage.run(&argv, stdio, &held.run.lock, Some(PATIENCE))?;
    let bytes = files::read_bounded(&answers, 1 << 20).map_err(fail)?.unwrap_or_default();
    if bytes.is_empty() {
        return Err(Failure::new(Failed::Cage, "nothing could be started in the cage")
            .hint("see what a shell there says: git agent spawn --role developer -- sh -c true"));
    }
    Ok(bytes)
}

/// A folder of a run's shape for what is tried without a cage.
fn free_run(bench: &Throwaway) -> std::io::Result<PathBuf> {
    let run = bench.dir().join("free-runs/doctor");
    files::create_dirs(&run.join("store/worktrees/tree"), 0o755)?;
    files::create_dir(&run.join("host"), 0o700)?;
    files::write_new(&run.join("host/policy.yml"), b"version: 1\n", 0o600)?;
    files::write_new(&run.join("store/worktrees/tree/commondir"), b"../..\n", 0o644)?;
    super::throwaway::repository(&run.join("tree"), &bench.dir().join("free-runs"))
        .map_err(|e| std::io::Error::other(e.to_string()))?;
    neighbour(&run)?;
    Ok(run)
}

fn neighbour(run: &Path) -> std::io::Result<()> {
    let tree = run.with_file_name("neighbour").join("tree");
    files::create_dirs(&tree, 0o755)?;
    files::write_new(&tree.join("file"), b"of another run\n", 0o644)
}

fn accounts(lines: &[u8]) -> BTreeMap<String, Account> {
    let lines = lines.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice::<Account>(l).ok());
    lines.map(|a| (a.attempt.clone(), a)).collect()
}

/// A world before the attempts.
struct Stage<'w> {
    world: &'w World,
    before: BTreeMap<&'static str, Print>,
}

/// What came of each attempt: whether it succeeded, and its account.
type Outcomes = BTreeMap<&'static str, (bool, Option<Account>)>;

impl<'w> Stage<'w> {
    fn watch(world: &'w World) -> Self {
        let before = ROWS.iter().filter_map(|r| Some((r.attempt, print(&place(r, world)?)))).collect();
        Self { world, before }
    }

    fn judge(self, mut accounts: BTreeMap<String, Account>, others: &mut Bystander) -> Outcomes {
        let survived = self.world.survived();
        let signalled = accounts.get("signal").is_some_and(|a| a.done);
        let (ended, heard, shared) = (others.ended(signalled), others.heard(), others.shared());
        let happened = |row: &Row, account: Option<&Account>| match row.sign {
            Sign::Said => account.is_some_and(|a| a.done),
            Sign::Ended => ended,
            Sign::Heard => heard,
            Sign::Shared => shared,
            Sign::Survived => survived,
            Sign::Own | Sign::Main(_) | Sign::Run(_) => {
                let now = place(row, self.world).map(|p| print(&p));
                self.before.get(row.attempt) != now.as_ref()
            }
        };
        let all = ROWS.iter().map(|row| {
            let account = accounts.remove(row.attempt);
            (row.attempt, (happened(row, account.as_ref()), account))
        });
        all.collect()
    }
}

fn place(row: &Row, world: &World) -> Option<PathBuf> {
    match row.sign {
        Sign::Own => Some(world.out.join(row.attempt)),
        Sign::Main(path) => Some(world.main.join(path)),
        Sign::Run(path) => Some(world.run.join(path)),
        _ => None,
    }
}

struct Facts {
    landlock_only: bool,
    abi: u32,
    open_network: bool,
    sockets: bool,
    own_user: bool,
}

impl Row {
    fn promised(&self, facts: &Facts) -> bool {
        let may_be_open = match self.open {
            Open::Never => false,
            Open::Landlock => facts.landlock_only,
            Open::Sockets => facts.landlock_only && facts.sockets,
            // A user of its own cannot signal others; a filter that knows no sockets reaches none.
            Open::Scope if self.attempt == "signal" => {
                facts.landlock_only && facts.abi < 6 && !facts.own_user
            }
            Open::Scope => facts.open_network && facts.abi < 6 && (facts.sockets || !facts.landlock_only),
            Open::Network => facts.open_network,
        };
        !may_be_open
    }

    fn report(&self, control: &Outcomes, caged: &Outcomes, facts: &Facts) -> RowReport {
        let of = |outcomes: &Outcomes| outcomes.get(self.attempt).cloned().unwrap_or_default();
        let ((free, free_account), (held, account)) = (of(control), of(caged));
        let verdict = match (self.kind, free, held, &account) {
            (_, _, _, None) => Verdict::Unknown,
            (Kind::Work, _, true, _) => Verdict::Held,
            (Kind::Work, _, false, _) | (_, _, true, _) => Verdict::Open,
            (_, true, false, _) => Verdict::Held,
            (_, false, false, _) => Verdict::Void,
        };
        let why = |account: Option<Account>| account.map(|a| a.why).unwrap_or_default();
        RowReport {
            id: self.id,
            attempt: self.attempt,
            what: self.what,
            kind: self.kind,
            verdict,
            promised: self.promised(facts),
            control: if verdict == Verdict::Void { why(free_account) } else { String::new() },
            why: why(account),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attempt_has_a_row_and_every_row_an_attempt() {
        let mut rows: Vec<_> = ROWS.iter().map(|r| r.attempt).collect();
        let mut attempts: Vec<_> = crate::os::attempt::names().collect();
        rows.sort_unstable();
        attempts.sort_unstable();
        assert_eq!(rows, attempts);
    }

    #[test]
    fn a_verdict_needs_its_control() {
        let facts =
            Facts { landlock_only: true, abi: 7, open_network: true, sockets: false, own_user: false };
        let account = |done| Account { attempt: String::new(), done, why: "no".into() };
        let judge = |attempt: &str, free: Option<bool>, held: Option<bool>| {
            let row = ROWS.iter().find(|r| r.attempt == attempt).unwrap();
            let all = |o: Option<bool>| {
                o.map(|done| (row.attempt, (done, Some(account(done))))).into_iter().collect::<Outcomes>()
            };
            let report = row.report(&all(free), &all(held), &facts);
            (report.verdict, report.broken())
        };
        assert_eq!(judge("write", Some(true), Some(false)), (Verdict::Held, false));
        assert_eq!(judge("write", Some(true), Some(true)), (Verdict::Open, true));
        assert_eq!(judge("write", Some(false), Some(false)), (Verdict::Void, false));
        assert_eq!(judge("write", Some(true), None), (Verdict::Unknown, true));
        assert_eq!(judge("mode", Some(true), Some(true)), (Verdict::Open, false));
        assert_eq!(judge("edit-inside", Some(true), Some(false)), (Verdict::Open, true));
        assert_eq!(judge("edit-inside", Some(true), Some(true)), (Verdict::Held, false));
        assert_eq!(judge("edit-inside", Some(true), None), (Verdict::Unknown, true));
        assert_eq!(judge("loopback", Some(true), Some(true)), (Verdict::Open, false));
    }
}
