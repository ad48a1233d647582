//! The containment problem: work of agents in a repository that belongs to no run.

use crate::git::Repo;
use crate::ledger::{Ledger, runs};
use crate::model::{Body, Failure, RunState};
use crate::ops::spawn;
use crate::os::files;
use crate::policy::Policy;
use serde::Serialize;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Folders in which clients make worktrees by themselves.
const CLIENT_FOLDERS: &[&str] = &[
    "/.claude/worktrees/",
    "/.codex/worktrees/",
    "/.cursor/worktrees/",
    "/.gemini/worktrees/",
    "/.qwen/worktrees/",
];
/// Branches that Claude Code makes for them, whatever the policy calls an agent's branch.
const CLIENT_BRANCHES: &[&str] = &["worktree-agent-"];

/// Something that is amiss, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// For programs: `client-worktrees`, `agent-branches`, `two-systems`, `no-identity`, `no-cr`, `hook`,
    /// `nested-sandbox`.
    pub kind: &'static str,
    /// One sentence.
    pub what: String,
    /// What to do.
    pub hint: Option<String>,
    /// What it is about.
    pub names: Vec<String>,
}

/// Looks at worktrees, branches and runs. Writes nothing.
pub fn look(repo: &Repo) -> Result<Vec<Finding>, Failure> {
    let ledger = Ledger::new(repo);
    let home = ledger.home_known()?;
    let listing = runs::list(&ledger, home.as_ref())?;
    let of_runs: BTreeSet<&str> = listing.runs.iter().map(|r| r.branch.as_str()).collect();
    let policy = match repo.commit_of("HEAD")? {
        // A policy that cannot be read is told by the commands that need it.
        Some(head) => spawn::in_force(repo, &head).map_or_else(|_| Policy::built_in().clone(), |(p, ..)| p),
        None => Policy::built_in().clone(),
    };
    let mut found = Vec::new();

    let worktrees = worktrees(repo)?;
    let of_client = |w: &&Worktree| {
        let path = w.path.to_string_lossy();
        CLIENT_FOLDERS.iter().any(|f| path.contains(f)) || w.branch.as_deref().is_some_and(is_client_branch)
    };
    let loose: Vec<&Worktree> = worktrees
        .iter()
        .filter(of_client)
        .filter(|w| w.branch.as_deref().is_none_or(|b| !of_runs.contains(format!("refs/heads/{b}").as_str())))
        .collect();
    if !loose.is_empty() {
        found.push(Finding {
            kind: "client-worktrees",
            what: format!(
                "{} of an agent client's own making that no run knows: what agents do there is in no ledger, and \
                 nothing holds them there",
                count(loose.len(), "worktree")
            ),
            hint: Some("git agent prune --adopt-client-worktrees --dry-run".to_owned()),
            names: loose.iter().map(|w| w.path.to_string_lossy().into_owned()).collect(),
        });
    }

    let branches = repo.branches()?;
    let agents = branches.iter().filter_map(|b| Some((b, b.name.strip_prefix("refs/heads/")?)));
    let agents: Vec<_> = agents
        .filter(|(b, short)| {
            (policy.is_agent_branch(short.as_bytes()) || is_client_branch(short))
                && !of_runs.contains(b.name.as_str())
        })
        .collect();
    if !agents.is_empty() {
        let unmerged = unmerged(repo)?;
        let alone: Vec<&str> =
            agents.iter().map(|(_, short)| *short).filter(|s| unmerged.contains(*s)).collect();
        let held = match alone.len() {
            0 => "all of them are merged into what is checked out".to_owned(),
            1 => "1 of them has commits that are not in what is checked out".to_owned(),
            n => format!("{n} of them have commits that are not in what is checked out"),
        };
        found.push(Finding {
            kind: "agent-branches",
            what: format!("{} with an agent's name and no run; {held}", count_es(agents.len())),
            hint: Some("look before you delete: git log --oneline --no-merges HEAD..BRANCH".to_owned()),
            names: agents.iter().map(|(_, short)| (*short).to_owned()).collect(),
        });
    }
    if !loose.is_empty() && !listing.runs.is_empty() {
        found.push(Finding {
            kind: "two-systems",
            what: "a client makes worktrees of its own beside the runs: the two do not know of each other"
                .to_owned(),
            hint: Some(
                "let agents work in runs only: git agent spawn --role developer --engine ENGINE -m TASK"
                    .to_owned(),
            ),
            names: Vec::new(),
        });
    }
    found.extend(identities(&ledger, &listing)?);
    Ok(found)
}

/// Runs that are not over and have lost their identity, or never had a change request.
fn identities(ledger: &Ledger<'_>, listing: &runs::Listing) -> Result<Vec<Finding>, Failure> {
    let (mut lost, mut nameless) = (Vec::new(), Vec::new());
    for line in &listing.runs {
        if matches!(
            line.state,
            RunState::Pruned | RunState::Applied | RunState::Rejected | RunState::Failed | RunState::Finished
        ) {
            continue;
        }
        // A run without a copy has no tree of its own for the file to stand in.
        if let Some(path) = line.path.as_ref().filter(|_| line.isolation.has_copy()) {
            let identity = runs::Folder::read(path)?.map(|f| path.join("tree").join(f.identity_path));
            if identity.is_some_and(|i| !matches!(files::lstat(&i), Ok(Some(m)) if m.is_file())) {
                lost.push(line.name.to_string());
            }
        }
        let Some(tip) = ledger.tip(&line.id)? else { continue };
        let chain = ledger.chain(&tip)?;
        let spawned = chain.known().find_map(|(_, e)| match &e.body {
            Body::Spawn(s) => Some(s.cr.is_some()),
            _ => None,
        });
        if spawned == Some(false) {
            nameless.push(line.name.to_string());
        }
    }
    let mut found = Vec::new();
    if !lost.is_empty() {
        found.push(Finding {
            kind: "no-identity",
            what: format!(
                "{} lost .agent-identity: programs in the tree cannot tell whose it is",
                count(lost.len(), "run")
            ),
            hint: Some("the ledger still knows: git agent show RUN".to_owned()),
            names: lost,
        });
    }
    if !nameless.is_empty() {
        found.push(Finding {
            kind: "no-cr",
            what: format!(
                "{} without a change request: nothing says what the work is for",
                count(nameless.len(), "run")
            ),
            hint: Some("name it when you spawn: git agent spawn --role ROLE --cr 42 ...".to_owned()),
            names: nameless,
        });
    }
    Ok(found)
}

fn is_client_branch(short: &str) -> bool {
    CLIENT_BRANCHES.iter().any(|p| short.starts_with(p))
}

struct Worktree {
    path: PathBuf,
    branch: Option<String>,
}

/// Linked worktrees, without the main one.
fn worktrees(repo: &Repo) -> Result<Vec<Worktree>, Failure> {
    let bytes = repo.call("worktree").args(["list", "--porcelain", "-z"]).output()?;
    let mut all: Vec<Worktree> = Vec::new();
    for line in bytes.split(|b| *b == 0) {
        if let Some(path) = line.strip_prefix(b"worktree ") {
            all.push(Worktree { path: PathBuf::from(std::ffi::OsStr::from_bytes(path)), branch: None });
        } else if let (Some(branch), Some(last)) = (line.strip_prefix(b"branch refs/heads/"), all.last_mut())
        {
            last.branch = Some(String::from_utf8_lossy(branch).into_owned());
        }
    }
    Ok(all.into_iter().skip(1).collect())
}

/// Short names of branches with commits that HEAD does not have.
fn unmerged(repo: &Repo) -> Result<BTreeSet<String>, Failure> {
    if repo.commit_of("HEAD")?.is_none() {
        return Ok(BTreeSet::new());
    }
    let call = repo.call("for-each-ref").args(["--no-merged=HEAD", "--format=%(refname)", "refs/heads/"]);
    let text = call.text()?;
    Ok(text.lines().filter_map(|l| l.strip_prefix("refs/heads/")).map(str::to_owned).collect())
}

fn count(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

fn count_es(n: usize) -> String {
    if n == 1 { "1 branch".to_owned() } else { format!("{n} branches") }
}
