//! Which engine a run gets and as what command line.

use crate::clients;
use crate::model::Failure;
use crate::policy::{Policy, RoleRule};
use crate::text::nearest;
use std::ffi::OsString;
use std::time::Duration;

/// An engine to start, before the run's folder is known.
#[derive(Debug, Clone)]
pub struct EnginePlan {
    /// Its name: a preset's, the policy's, or `command`.
    pub name: String,
    /// Its words; `{task}` and `{task_file}` are still to be filled in, unless the caller wrote the command.
    pub words: Vec<OsString>,
    /// Whether placeholders are filled in: not in a command that the caller wrote.
    pub template: bool,
    /// Names of the caller's variables that pass into the cage.
    pub env: Vec<String>,
    /// Wall clock limit.
    pub wall: Option<Duration>,
}

/// Chooses: the command after `--`, else `--engine`, else the first of the role's chain, else none.
pub fn choose(
    policy: &Policy,
    rule: &RoleRule,
    engine: Option<&str>,
    command: &[OsString],
    wall: Option<Duration>,
) -> Result<Option<EnginePlan>, Failure> {
    let wall = match (wall, rule.limits.wall) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let env = |name: &str| -> Vec<String> {
        policy.engine(name).map(|e| e.env.iter().map(|n| n.value.clone()).collect()).unwrap_or_default()
    };
    if !command.is_empty() {
        let name = engine.unwrap_or("command").to_owned();
        let env = env(&name);
        return Ok(Some(EnginePlan { name, words: command.to_vec(), template: false, env, wall }));
    }
    let Some(name) = engine.map(str::to_owned).or_else(|| rule.engines.first().map(|e| e.value.clone())) else {
        return Ok(None);
    };
    let own = policy.engine(&name).and_then(|e| e.command.as_ref()).map(|c| c.value.clone());
    let words = match own {
        Some(words) => words,
        None => preset(policy, &name)?,
    };
    let env = env(&name);
    let words = words.into_iter().map(OsString::from).collect();
    Ok(Some(EnginePlan { name, words, template: true, env, wall }))
}

fn preset(policy: &Policy, name: &str) -> Result<Vec<String>, Failure> {
    if let Some(words) = clients::command_line(name) {
        return Ok(words);
    }
    if name == "command" {
        return Err(Failure::usage("engine 'command' needs a command")
            .hint("write it after '--': git agent spawn --role developer -- make test"));
    }
    let known = clients::names().chain(policy.engines().map(|(n, _)| n));
    let near = nearest(name, known);
    let failure = Failure::fatal(format!("there is no engine '{}'", crate::text::Untrusted::new(name)));
    Err(if near.is_empty() {
        failure.hint(format!("known engines: {}", clients::names().collect::<Vec<_>>().join(", ")))
    } else {
        failure.hint(format!("did you mean {}?", near.join(" or ")))
    })
}

impl EnginePlan {
    /// The command line with the task filled in, and the form that the ledger keeps (where the task's text
    /// stays a placeholder).
    pub fn command(&self, task: Option<&[u8]>, task_file: &str) -> Result<(Vec<OsString>, Vec<String>), Failure> {
        let shown: Vec<String> = self.words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        if !self.template {
            return Ok((self.words.clone(), shown));
        }
        let mut words = Vec::with_capacity(shown.len());
        for word in &shown {
            let mut filled = word.replace("{task_file}", task_file);
            if filled.contains("{task}") {
                let task = task.filter(|t| !t.is_empty()).ok_or_else(|| {
                    Failure::usage(format!("engine '{}' needs a task", self.name))
                        .hint("say it with -m TEXT or --task FILE")
                })?;
                let text = std::str::from_utf8(task).map_err(|_| Failure::fatal("the task is not UTF-8"))?;
                filled = filled.replace("{task}", text);
            }
            words.push(filled.into());
        }
        Ok((words, shown))
    }
}

