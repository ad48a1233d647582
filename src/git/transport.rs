//! Fetching from and pushing to a remote, as the person's own git would. What the other side says goes straight to
//! the person; only porcelain output and exit statuses are read.

use super::{Call, Error, Repo};
use crate::model::Oid;
use std::process::Stdio;

/// What the remote must have for a ref to be moved; `None`: nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Full name at the remote.
    pub name: String,
    /// What it has now.
    pub old: Option<Oid>,
}

/// What became of one ref of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Full name at the remote.
    pub name: String,
    /// Whether it is there as pushed.
    pub done: bool,
}

impl Repo {
    /// The remotes by name.
    pub fn remotes(&self) -> Result<Vec<String>, Error> {
        Ok(self.call("remote").text()?.lines().map(str::to_owned).collect())
    }

    /// What a remote has of these patterns: name and id.
    pub fn remote_refs(&self, remote: &str, patterns: &[&str]) -> Result<Vec<(String, Oid)>, Error> {
        let args = ["--quiet", "--refs", "--", remote];
        let text = self.remote_call("ls-remote", &args, patterns)?.1;
        let line = |l: &str| {
            let (oid, name) = l.split_once('\t')?;
            Some((name.to_owned(), oid.parse().ok()?))
        };
        Ok(text.lines().filter_map(line).collect())
    }

    /// Brings refs; `false` when git said no, after it has told the person why. Nothing but these is brought,
    /// pruned or written, whatever is configured.
    pub fn fetch_refs(&self, remote: &str, specs: &[String]) -> Result<bool, Error> {
        let mut args =
            vec!["--quiet", "--no-tags", "--no-write-fetch-head", "--no-prune", "--no-recurse-submodules"];
        args.extend(["--no-auto-maintenance", "--refmap=", "--", remote]);
        let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
        Ok(self.remote_call("fetch", &args, &specs)?.0 == Some(0))
    }

    /// Pushes all of them or none. A lease lets its ref move other than forward, from that very value.
    pub fn push_refs(&self, remote: &str, specs: &[String], leases: &[Lease]) -> Result<Vec<Pushed>, Error> {
        let mut args = vec!["--porcelain".to_owned(), "--atomic".into(), "--no-follow-tags".into()];
        for lease in leases {
            let old = lease.old.as_ref().map(Oid::as_str).unwrap_or_default();
            args.push(format!("--force-with-lease={}:{old}", lease.name));
        }
        args.extend(["--".to_owned(), remote.to_owned()]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
        let (status, text) = self.remote_call("push", &args, &specs)?;
        let line = |l: &str| {
            let mut fields = l.split('\t');
            let (flag, refs) = (fields.next()?, fields.next()?);
            let name = refs.rsplit_once(':')?.1.to_owned();
            Some(Pushed { name, done: flag != "!" })
        };
        let pushed: Vec<Pushed> = text.lines().filter_map(line).collect();
        match status {
            Some(0 | 1) if !pushed.is_empty() => Ok(pushed),
            status => Err(Error::Failed { verb: "push".into(), status, stderr: String::new() }),
        }
    }

    fn remote_call(&self, verb: &str, args: &[&str], more: &[&str]) -> Result<(Option<i32>, String), Error> {
        let mut command = Call::to_remote(verb, self.place()).args(args).args(more).into_command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let output = command.output().map_err(Error::NoGit)?;
        let status = output.status.code();
        // The person has just read why: the remote is not there, or lets nobody in.
        if status.is_none_or(|s| s >= 128) {
            return Err(Error::Failed { verb: verb.into(), status, stderr: String::new() });
        }
        Ok((status, String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}
