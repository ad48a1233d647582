//! The gate's verdict without a gate: commits of a clone, judged as a push of them would be.

use super::{Judge, Law, Refusal, Runs, Trouble};
use crate::git::Repo;
use crate::model::{Failure, Oid};
use crate::text::Untrusted;

/// What was asked.
#[derive(Debug)]
pub struct Question<'q> {
    /// A commit, a range `A..B`, or an agent's branch.
    pub what: &'q str,
    /// The branch that it is to land on, short or full; else what `HEAD` of `origin`, else the branch that is
    /// checked out, names.
    pub target: Option<&'q str>,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// The branch that was assumed, full name.
    pub target: String,
    /// The commit whose policy and signers were the law; `None`: the built-in policy.
    pub law: Option<Oid>,
    /// The commit that was judged.
    pub tip: Oid,
    /// How many commits are new to the law's commit.
    pub commits: usize,
    /// Why not.
    pub refusals: Vec<Refusal>,
}

/// Judges. Of a range the left side is what the server has; of a single commit its first parent.
pub fn verify(repo: &Repo, question: &Question<'_>, now: i64) -> Result<Found, Failure> {
    let no = |word: &str| {
        Failure::fatal(format!("'{}' names no commit", Untrusted::new(word)))
            .hint("a commit, or a range as git has it: origin/main..HEAD")
    };
    let commit = |word: &str| repo.commit_of(word)?.ok_or_else(|| no(word));
    let (old, new) = match question.what.split_once("..") {
        Some((old, new)) => {
            if new.starts_with('.') {
                return Err(Failure::usage("a range has two dots: what the server has, and what comes"));
            }
            let or_head = |w: &str| if w.is_empty() { "HEAD".to_owned() } else { w.to_owned() };
            (Some(commit(&or_head(old))?), commit(&or_head(new))?)
        }
        None => {
            let new = commit(question.what)?;
            (repo.objects()?.commit(&new)?.parents.first().cloned(), new)
        }
    };
    let target = target(repo, question.target)?;
    let law = Law::at(repo, old.as_ref())?;
    let judge = Judge {
        repo,
        law,
        root: None,
        pusher_is_agent: false,
        runs: Runs::new(repo),
        protected: Some(target.clone()),
        now,
    };
    let known: Vec<&Oid> = old.iter().collect();
    let branch = agent_branch(&judge, question.what);
    let verdict = match &branch {
        Some(branch) => judge.agent_branch(branch, &new, &known),
        None => judge
            .policy_change(old.as_ref(), &new)
            .and_then(|()| judge.commits(&target, &new, &known, judge.level(&target))),
    };
    let refusals = match verdict {
        Ok(()) => Vec::new(),
        Err(Trouble::Refused(r)) => vec![r.of(branch.as_deref().unwrap_or(&target))],
        Err(Trouble::Failed(e)) => return Err(e),
    };
    let commits = repo.new_commits(&[&new], &known)?.len();
    Ok(Found { target, law: old, tip: new, commits, refusals })
}

/// The agent's branch that is meant, if one is: `wt/x`, or the same of a remote.
fn agent_branch(judge: &Judge<'_>, what: &str) -> Option<String> {
    let what = what.rsplit("..").next().unwrap_or(what);
    let short = what.strip_prefix("refs/heads/").unwrap_or(what);
    let of_remote = || what.strip_prefix("refs/remotes/").unwrap_or(what).split_once('/').map(|(_, b)| b);
    let is = |s: &&str| judge.law.policy().is_agent_branch(s.as_bytes());
    Some(short).filter(is).or_else(|| of_remote().filter(is)).map(|s| format!("refs/heads/{s}"))
}

fn target(repo: &Repo, given: Option<&str>) -> Result<String, Failure> {
    if let Some(given) = given {
        return Ok(if given.starts_with("refs/") { given.to_owned() } else { format!("refs/heads/{given}") });
    }
    let of_origin = repo.branches()?.into_iter().find(|b| b.name == "refs/remotes/origin/HEAD");
    let named = of_origin
        .and_then(|b| b.symref)
        .and_then(|s| Some(format!("refs/heads/{}", s.strip_prefix("refs/remotes/origin/")?)));
    match named {
        Some(target) => Ok(target),
        None => repo.head_branch()?.ok_or_else(|| {
            Failure::usage("no branch is checked out: say where the commits are to land")
                .hint("git agent verify RANGE --target main")
        }),
    }
}
