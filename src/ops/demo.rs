//! The demo's throw-away repository: small, honest, and made for the built-in demo engine.

use crate::clients::demo::{MARKER, OBSOLETE};
use crate::git::{Call, Place};
use crate::model::Failure;
use crate::os::files;
use std::path::{Path, PathBuf};

/// What the demo engine is asked for.
pub const TASK: &str =
    "Tidy the greeting: say hello to everybody, write down how to run it, drop what is obsolete.";

const FILES: &[(&str, &str)] = &[
    ("README.md", "# greeting\n\nSays hello.\n"),
    ("greet.sh", "#!/bin/sh\n# Says hello to the first argument.\nname=${1:-world}\necho \"hello $name\"\n"),
    (OBSOLETE, "Nobody has needed this since the first version.\n"),
    (MARKER, "This repository was made by 'git agent demo'. Delete it whenever you like.\n"),
];

/// Makes the repository in a new folder below the temporary folder, with one commit, and returns its path.
pub fn make() -> Result<PathBuf, Failure> {
    if std::env::var_os("GIT_DIR").is_some() {
        return Err(Failure::fatal("GIT_DIR is set, and every command would go to that repository")
            .hint("unset GIT_DIR"));
    }
    let fail = |e: std::io::Error| Failure::fatal("the demo's folder could not be made").because(e);
    let parent = tempfile::Builder::new().prefix("git-agent-demo-").tempdir().map_err(fail)?.keep();
    let dir = parent.join("greeting");
    files::create_dir(&dir, 0o755).map_err(fail)?;
    for (name, text) in FILES {
        let mode = if name.ends_with(".sh") { 0o755 } else { 0o644 };
        files::write_new(&dir.join(name), text.as_bytes(), mode).map_err(fail)?;
    }
    git(&dir, "init", &["-q", "-b", "main"])?;
    git(&dir, "add", &["-A"])?;
    git(&dir, "commit", &["-q", "-m", "A greeting"])?;
    // Beside the repository, so that one 'rm -rf' leaves nothing behind.
    git(&dir, "config", &["agent.root", &parent.join("runs").to_string_lossy()])?;
    Ok(dir)
}

/// What git says about the work tree, for the end of the demo. Untrusted bytes.
pub fn status(dir: &Path) -> Result<Vec<u8>, Failure> {
    Ok(Call::new("status", &Place::default()).args(["--short"]).current_dir(dir).output()?)
}

fn git(dir: &Path, verb: &str, args: &[&str]) -> Result<(), Failure> {
    // A fresh HOME has no identity, and a signing key of the person's has no business here.
    let settings = ["user.name=Demo", "user.email=demo@git-agent.invalid", "commit.gpgSign=false"];
    Call::with_settings(verb, &Place::default(), &settings).args(args).current_dir(dir).output()?;
    Ok(())
}
