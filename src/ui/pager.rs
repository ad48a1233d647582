//! Long answers on a terminal go through the person's pager, as git's do.

use super::Out;
use crate::git::Config;
use crate::model::Failure;
use crate::os::viewer;
use std::io::IsTerminal;

/// Shows text: through the pager on a terminal, else as it is.
pub fn show(out: &Out, config: &Config, text: &str) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        let pager = command(config);
        if !pager.is_empty()
            && pager != "cat"
            && viewer::page(&pager, text.as_bytes()).is_ok_and(|shown| shown)
        {
            return Ok(());
        }
    }
    out.raw(text.as_bytes())
}

/// `GIT_PAGER`, `core.pager`, `PAGER`, `less` (git-var(1)). A repository's own configuration may not name a
/// program for us to start; the person's may.
fn command(config: &Config) -> String {
    let env = |name: &str| std::env::var(name).ok();
    env("GIT_PAGER")
        .or_else(|| config.personal("core.pager").map(str::to_owned))
        .or_else(|| env("PAGER"))
        .unwrap_or_else(|| "less".into())
        .trim()
        .to_owned()
}
