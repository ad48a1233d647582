//! One push: every ref with its real old value, each by the rule for its name.

use super::change::unreadable;
use super::{Judge, Law, Pusher, Refusal, Runs, Trouble, Verdict};
use crate::git::{Repo, ServerRef};
use crate::ledger::signers::Signers;
use crate::ledger::{ARCHIVE, RUNS, change};
use crate::model::{Failure, Oid, RunId};
use crate::policy::Protection;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Refs that one push may change.
const MOST: usize = 5_000;
/// Names that never come from outside.
const LOCAL: [&str; 3] = ["refs/replace/", "refs/agent-local/", "refs/agent-remotes/"];
/// Beginnings that mean something; another spelling of one is refused.
const MEANINGS: [&str; 8] = [
    "refs/heads/",
    "refs/tags/",
    "refs/notes/",
    RUNS,
    ARCHIVE,
    "refs/replace/",
    "refs/agent-local/",
    "refs/agent-remotes/",
];
/// The derived index.
const NOTES: &str = "refs/notes/agent-runs";

/// One line of what a push wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The old value as the pusher says.
    pub old: Oid,
    /// The new one; null to delete.
    pub new: Oid,
    /// Full name of the ref.
    pub name: String,
}

/// Judges a whole push: nothing, or every refusal. An error means that it could not be judged, which refuses it
/// as well.
pub fn judge(
    repo: &Repo,
    commands: &[Command],
    pusher: &Pusher,
    root: Option<Signers>,
    now: i64,
) -> Result<Vec<Refusal>, Failure> {
    if commands.len() > MOST {
        return Err(Failure::fatal(format!("one push may change at most {MOST} refs")));
    }
    let all = repo.server_refs()?;
    let protected = repo.head_branch()?;
    let there: HashMap<&str, &ServerRef> = all.iter().map(|r| (r.name.as_str(), r)).collect();
    let tip = protected.as_deref().and_then(|p| there.get(p)).map(|r| &r.oid);
    let law = Law::at(repo, tip)?;
    let pusher_is_agent = pusher.is_agent(law.policy());
    let mut judge = Judge { repo, law, root, pusher_is_agent, runs: Runs::new(repo), protected, now };
    let mut refusals = Vec::new();
    let mut note = |name: &str, verdict: Verdict| match verdict {
        Ok(()) => Ok(true),
        Err(Trouble::Refused(r)) => {
            refusals.push(r.of(name));
            Ok(false)
        }
        Err(Trouble::Failed(e)) => Err(e),
    };
    let mut seen = HashSet::new();
    let mut real: Vec<(&Command, Option<&Oid>)> = Vec::new();
    let spellings = Spellings::of(&all, commands);
    for c in commands {
        let old = there.get(c.name.as_str());
        let fine = spellings.check(c).and_then(|()| plain(repo, c, old.copied(), &mut seen));
        if note(&c.name, fine)? {
            real.push((c, old.map(|r| &r.oid)));
        }
    }
    // Runs first: branches are judged by them.
    for (c, old) in real.iter().filter(|(c, _)| c.name.starts_with(RUNS)) {
        note(&c.name, run_ref(&mut judge, c, *old))?;
    }
    let mut ordinary = Ordinary::of(&judge, &all);
    let others: Vec<_> = real.iter().filter(|(c, _)| !c.name.starts_with(RUNS)).collect();
    let peoples = others.iter().map(|(c, _)| *c).filter(|c| {
        let agents = c.name.strip_prefix("refs/heads/").is_some_and(|s| judge.is_agent_name(s));
        !agents && !c.new.is_null() && judge.level(&c.name) == Protection::Pusher
    });
    let mut tips: Vec<Oid> = Vec::new();
    for c in peoples {
        tips.extend(judge.commit(&c.new)?);
    }
    let known = ordinary.known("", Protection::Pusher);
    ordinary.free = match judge.all_peoples(&tips.iter().collect::<Vec<_>>(), &known) {
        Ok(free) => free,
        Err(Trouble::Refused(_)) => false,
        Err(Trouble::Failed(e)) => return Err(e),
    };
    for (c, old) in others {
        note(&c.name, judge.other_ref(c, *old, &ordinary))?;
    }
    Ok(refusals)
}

/// What is refused whatever it is.
fn plain(repo: &Repo, c: &Command, old: Option<&ServerRef>, seen: &mut HashSet<String>) -> Verdict {
    let refused = |why: &str, remedy: &str| Err(Refusal::new("name", why, remedy).into());
    if !seen.insert(c.name.clone()) {
        return refused("it is named twice in one push", "push it once");
    }
    let parts = c.name.split('/').count();
    if !c.name.starts_with("refs/") || parts < 3 {
        return refused("a name of one level belongs to git itself", "push to refs/heads/ or refs/tags/");
    }
    if let Some(local) = LOCAL.iter().find(|l| c.name.starts_with(**l)) {
        return refused(&format!("{local} never leaves a machine"), "push without --mirror");
    }
    let symbolic = match old {
        Some(old) => old.symbolic,
        None => repo.is_symbolic(&c.name)?,
    };
    if symbolic {
        return refused(
            "it is a symbolic ref on the server: pushing to it moves another ref",
            "push to that one",
        );
    }
    // git says the same a little later; here it keeps a lie from posing as a creation.
    let says = (!c.old.is_null()).then_some(&c.old);
    if says != old.map(|o| &o.oid) {
        return Err(Refusal::new(
            "old-value",
            "the server has another value than the push says",
            "git fetch, then push again",
        )
        .into());
    }
    Ok(())
}

/// Names that differ in nothing but the case of letters.
struct Spellings {
    lower: BTreeMap<String, HashSet<String>>,
}

impl Spellings {
    fn of(all: &[ServerRef], commands: &[Command]) -> Self {
        let mut lower: BTreeMap<String, HashSet<String>> = BTreeMap::new();
        // Only a new name can be a new spelling.
        let wanted: HashSet<String> = commands.iter().map(|c| c.name.to_lowercase()).collect();
        let names = all.iter().map(|r| &r.name).chain(commands.iter().map(|c| &c.name));
        for name in names {
            let small = name.to_lowercase();
            if wanted.contains(&small) {
                lower.entry(small).or_default().insert(name.clone());
            }
        }
        Self { lower }
    }

    fn check(&self, c: &Command) -> Verdict {
        if c.new.is_null() {
            return Ok(());
        }
        let small = c.name.to_lowercase();
        let other = self.lower.get(&small).and_then(|all| all.iter().find(|n| **n != c.name));
        if let Some(other) = other {
            return Err(Refusal::new(
                "name",
                format!("it differs from {other} in case alone"),
                "use one spelling",
            )
            .into());
        }
        let meaning = MEANINGS.iter().find(|m| small.starts_with(**m) && !c.name.starts_with(**m));
        match meaning {
            Some(m) => {
                Err(Refusal::new("name", format!("it is another spelling of {m}"), "use lower case").into())
            }
            None => Ok(()),
        }
    }
}

/// What the server has in branches and tags of people, with how well each is protected.
struct Ordinary<'a> {
    refs: Vec<(&'a str, &'a Oid, Protection)>,
    /// Whether nothing that the push brings to refs of the lowest level is an agent's.
    free: bool,
}

impl<'a> Ordinary<'a> {
    fn of(judge: &Judge<'_>, all: &'a [ServerRef]) -> Self {
        let is = |r: &&ServerRef| match r.name.strip_prefix("refs/heads/") {
            Some(short) => !judge.is_agent_name(short),
            None => r.name.starts_with("refs/tags/"),
        };
        let refs = all.iter().filter(is).map(|r| (r.name.as_str(), &r.oid, judge.level(&r.name)));
        Self { refs: refs.collect(), free: false }
    }

    /// What need not be judged again on a ref of this level: its own old value, and what a ref at least as
    /// well protected has.
    fn known(&self, name: &str, level: Protection) -> Vec<&'a Oid> {
        self.refs.iter().filter(|(n, _, l)| *n == name || *l >= level).map(|(_, oid, _)| *oid).collect()
    }
}

fn run_ref(judge: &mut Judge<'_>, c: &Command, old: Option<&Oid>) -> Verdict {
    if c.new.is_null() {
        return Err(Refusal::new(
            "ledger",
            "the ledger only grows: a run is not deleted",
            "push without --prune or --mirror",
        )
        .into());
    }
    if let Some(number) = c.name.strip_prefix(ARCHIVE) {
        if number.len() < 4 || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Refusal::new("name", "an archive is named by four digits or more", "").into());
        }
        return archive(judge.repo, old, &c.new);
    }
    let Ok(run) = c.name[RUNS.len()..].parse::<RunId>() else {
        return Err(Refusal::new("name", "only runs live here, named by their ids", "").into());
    };
    judge.runs.take(&run, old, &c.new)
}

/// Archived lines stay as they are; new ones come behind them, and new files beside them.
fn archive(repo: &Repo, old: Option<&Oid>, new: &Oid) -> Verdict {
    use crate::git::ObjectKind::Blob;
    const MOST_BYTES: u64 = 64 << 20;
    let empty = repo.hash().empty_tree();
    let objects = repo.objects()?;
    objects.commit(new)?;
    if let Some(old) = old
        && !repo.is_ancestor(old, new)?
    {
        return Err(Refusal::new("ledger", "an archive only grows", "git agent sync, then push again").into());
    }
    for entry in change::entries(repo, old.unwrap_or(&empty), new)? {
        let changed = |what: &str| {
            let path = crate::text::quote_path(&entry.path).into_owned();
            Refusal::new("ledger", format!("the archive's {path} {what}"), "an archive only grows")
        };
        if entry.new_mode != 0o100_644 {
            return Err(changed("is gone or no plain file").into());
        }
        if entry.is_added() {
            continue;
        }
        let was = objects.expect(&entry.old, Blob, MOST_BYTES)?;
        let is = objects.expect(&entry.new, Blob, MOST_BYTES)?;
        if !is.starts_with(&was) || !(was.is_empty() || was.ends_with(b"\n")) {
            return Err(changed("changes an old line").into());
        }
    }
    Ok(())
}

impl Judge<'_> {
    /// Whether a branch counts as an agent's, however it is spelled.
    fn is_agent_name(&self, short: &str) -> bool {
        let policy = self.law.policy();
        policy.is_agent_branch(short.as_bytes()) || policy.is_agent_branch(short.to_lowercase().as_bytes())
    }

    fn other_ref(&self, c: &Command, old: Option<&Oid>, ordinary: &Ordinary<'_>) -> Verdict {
        let level = self.level(&c.name);
        if c.new.is_null() {
            return self.deletion(&c.name, level);
        }
        if c.name == NOTES {
            return match old {
                Some(old) if !self.repo.is_ancestor(old, &c.new)? => {
                    Err(Refusal::new("notes", "it would lose notes", "git agent fetch, then push again")
                        .into())
                }
                _ => Ok(()),
            };
        }
        if let Some(short) = c.name.strip_prefix("refs/heads/")
            && self.is_agent_name(short)
        {
            return self.agent_branch(&c.name, &c.new, &ordinary.known(&c.name, Protection::Pusher));
        }
        if self.protected.as_deref() == Some(c.name.as_str()) {
            self.policy_change(old, &c.new)?;
        } else if let Law::Unreadable(why) = &self.law {
            return Err(unreadable(why).into());
        }
        match self.commit(&c.new)? {
            Some(_) if ordinary.free && level == Protection::Pusher => Ok(()),
            Some(commit) => {
                let mut known = ordinary.known(&c.name, level);
                if old.is_none() {
                    // A new branch may start where the protected one is, however well it is protected itself.
                    let start = |(n, _, _): &&(&str, &Oid, _)| self.protected.as_deref() == Some(*n);
                    known.extend(ordinary.refs.iter().find(start).map(|(_, oid, _)| *oid));
                }
                self.commits(&c.name, &commit, &known, level)
            }
            None if c.name.starts_with("refs/heads/") => {
                Err(Refusal::new("name", "a branch names a commit", "").into())
            }
            None => Ok(()),
        }
    }

    /// The commit that an object is or a tag leads to.
    fn commit(&self, oid: &Oid) -> Result<Option<Oid>, Failure> {
        use crate::git::ObjectKind;
        match self.repo.objects()?.header(oid)? {
            Some((ObjectKind::Commit, _)) => Ok(Some(oid.clone())),
            _ => Ok(self.repo.commit_of(oid.as_str())?),
        }
    }

    fn deletion(&self, name: &str, level: Protection) -> Verdict {
        if self.protected.as_deref() == Some(name) || level > Protection::Pusher {
            return Err(Refusal::new("protect", "a protected branch is not deleted", "").into());
        }
        if name == NOTES {
            return Err(Refusal::new(
                "notes",
                "the index of landed runs is not deleted",
                "push without --prune",
            )
            .into());
        }
        Ok(())
    }
}
