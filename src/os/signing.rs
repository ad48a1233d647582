//! ssh-keygen and gpg: makes and checks detached signatures. Says only whether the mathematics hold and which
//! key did it; who that is and whether they may is decided above ([`crate::ledger::signers`]).

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a signing key is, as git's `user.signingkey` has it for SSH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshKey {
    /// A file with a private key, or with a public key whose private half an agent holds.
    File(OsString),
    /// A public key itself, `ssh-ed25519 AAAA...`; the private half is in an agent.
    Literal(String),
}

fn failed(program: &OsStr, said: &[u8]) -> io::Error {
    let said = String::from_utf8_lossy(&said[..said.len().min(600)]);
    io::Error::other(format!("{}: {}", program.to_string_lossy(), said.trim()))
}

/// Runs a program with input and takes its output; a person may be asked for a passphrase on the terminal.
fn run(mut command: Command, input: &[u8]) -> io::Result<std::process::Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        match pipe.write_all(input) {
            // It did not want to read on; its status says why.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
    }
    child.wait_with_output()
}

/// Signs `bytes` with ssh-keygen; the armoured SSHSIG.
pub fn ssh_sign(program: &OsStr, key: &SshKey, namespace: &str, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let scratch = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.args(["-Y", "sign", "-n", namespace, "-f"]);
    match key {
        SshKey::File(path) => command.arg(path),
        SshKey::Literal(text) => {
            let file = scratch.path().join("key.pub");
            super::files::write_plain(&file, format!("{text}\n").as_bytes(), 0o600)?;
            // -U: the private half is in an agent, never in a file.
            command.arg(file).arg("-U")
        }
    };
    let output = run(command, bytes)?;
    if !output.status.success() {
        return Err(failed(program, &output.stderr));
    }
    Ok(output.stdout)
}

/// Whether `signature` over `bytes` was made by a key of `allowed` (the text of an allowed-signers file with
/// the one principal `principal`) in this namespace. `revoked` is a list of public keys or a KRL.
pub fn ssh_verify(
    allowed: &str,
    principal: &str,
    namespace: &str,
    revoked: Option<&[u8]>,
    signature: &[u8],
    bytes: &[u8],
) -> io::Result<bool> {
    let scratch = tempfile::tempdir()?;
    let file = |name: &str, content: &[u8]| -> io::Result<std::path::PathBuf> {
        let path = scratch.path().join(name);
        super::files::write_plain(&path, content, 0o600)?;
        Ok(path)
    };
    let mut command = Command::new("ssh-keygen");
    command.args(["-Y", "verify", "-n", namespace, "-I", principal]);
    command.arg("-f").arg(file("allowed", allowed.as_bytes())?);
    command.arg("-s").arg(file("signature", signature)?);
    if let Some(revoked) = revoked {
        command.arg("-r").arg(file("revoked", revoked)?);
    }
    Ok(run(command, bytes)?.status.success())
}

/// Signs `bytes` with gpg; the armoured OpenPGP signature. `key` as `user.signingkey` has it, or who signs.
pub fn gpg_sign(program: &OsStr, key: &str, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut command = Command::new(program);
    command.args(["--status-fd=2", "-bsau", key]);
    let output = run(command, bytes)?;
    if !output.status.success() || output.stdout.is_empty() {
        return Err(failed(program, &output.stderr));
    }
    Ok(output.stdout)
}

/// Who made a good OpenPGP signature, as gpgv says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPgp {
    /// Fingerprint of the primary key, upper-case hexadecimal.
    pub fingerprint: String,
    /// The key's user id; written by whoever put the key into the keyring.
    pub user: String,
}

/// Checks an OpenPGP signature against an armoured keyring and nothing else: no keyring, trust or
/// configuration of this machine's user takes part. `None` when it is not good, whatever the reason: bad,
/// expired, revoked, an unknown key, more than one signature.
pub fn gpg_verify(keyring: &[u8], signature: &[u8], bytes: &[u8]) -> io::Result<Option<OpenPgp>> {
    let scratch = tempfile::tempdir()?;
    let at = |name: &str| scratch.path().join(name);
    super::files::write_plain(&at("keys.asc"), keyring, 0o600)?;
    super::files::write_plain(&at("signature"), signature, 0o600)?;
    super::files::write_plain(&at("data"), bytes, 0o600)?;
    let home = |command: &mut Command| {
        command
            .env("GNUPGHOME", scratch.path())
            .env("LC_ALL", "C")
            .args(["--homedir".as_ref(), scratch.path()]);
    };
    let mut dearmor = Command::new("gpg");
    home(&mut dearmor);
    dearmor.args(["--batch", "--no-autostart", "--quiet", "-o"]).arg(at("keys.gpg"));
    dearmor.arg("--dearmor").arg(at("keys.asc"));
    let output = run(dearmor, b"")?;
    if !output.status.success() {
        return Err(failed("gpg --dearmor".as_ref(), &output.stderr));
    }
    let mut command = Command::new("gpgv");
    home(&mut command);
    command.args(["--status-fd", "1", "--keyring"]).arg(at("keys.gpg"));
    command.arg(at("signature")).arg(at("data"));
    let output = run(command, b"")?;
    if !output.status.success() {
        return Ok(None);
    }
    Ok(status(&String::from_utf8_lossy(&output.stdout)))
}

/// gpg's status lines (doc/DETAILS): exactly one good and valid signature, and no line that speaks against it.
fn status(lines: &str) -> Option<OpenPgp> {
    let (mut good, mut valid) = (Vec::new(), Vec::new());
    for line in lines.lines().filter_map(|l| l.strip_prefix("[GNUPG:] ")) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "GOODSIG" => good.push(rest.split_once(' ').map_or("", |(_, user)| user).to_owned()),
            "VALIDSIG" => valid.push(rest.split(' ').nth(9).unwrap_or_default().to_owned()),
            "BADSIG" | "ERRSIG" | "EXPSIG" | "EXPKEYSIG" | "REVKEYSIG" | "NODATA" => return None,
            _ => {}
        }
    }
    match (&good[..], &valid[..]) {
        ([user], [fingerprint]) if fingerprint.len() >= 40 => {
            Some(OpenPgp { fingerprint: fingerprint.clone(), user: user.clone() })
        }
        _ => None,
    }
}

/// Whether this machine has the program that checks SSH signatures.
pub fn has_ssh_keygen() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|d| Path::new(&d).join("ssh-keygen").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_good_and_valid_signature_counts() {
        let good = "[GNUPG:] NEWSIG\n[GNUPG:] GOODSIG 0123 Ada <ada@example.org>\n";
        let valid = format!("[GNUPG:] VALIDSIG {0} 2026-01-01 1 0 4 0 22 8 00 {0}\n", "A".repeat(40));
        let found = status(&format!("{good}{valid}")).unwrap();
        assert_eq!((found.fingerprint.len(), found.user.as_str()), (40, "Ada <ada@example.org>"));
        for bad in [
            good.to_owned(),
            valid.clone(),
            format!("{good}{valid}{good}{valid}"),
            format!("{good}{valid}[GNUPG:] EXPKEYSIG 0123 Ada\n"),
            format!("{good}{valid}[GNUPG:] REVKEYSIG 0123 Ada\n"),
        ] {
            assert_eq!(status(&bad), None, "{bad}");
        }
    }
}
