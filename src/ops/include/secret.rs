//! Which files are taken for secrets. By name, and by what the first bytes say. Errs on the side of refusing: the
//! way out is one line of the person's own configuration.

/// How much of a file is looked at.
pub(super) const LOOK: u64 = 64 << 10;

/// Why a name is that of a secret.
pub(super) fn by_name(path: &str) -> Option<&'static str> {
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    let below =
        |folder: &str| path.starts_with(&format!("{folder}/")) || path.contains(&format!("/{folder}/"));
    let ends = |all: &[&str]| all.iter().any(|e| name.ends_with(e));
    if [".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".gcloud"].iter().any(|f| below(f)) {
        return Some("it lies among credentials");
    }
    let example = [".example", ".sample", ".template", ".tmpl", ".dist", ".defaults", ".schema"];
    if ends(&example) {
        return None;
    }
    if name == ".env" || name.starts_with(".env.") || name.ends_with(".env") || name == ".envrc" {
        return Some("files of this name hold secrets");
    }
    let keys = [
        ".pem",
        ".key",
        ".p8",
        ".p12",
        ".pfx",
        ".jks",
        ".keystore",
        ".kdbx",
        ".ppk",
        ".asc",
        ".gpg",
        ".age",
        ".tfstate",
        ".tfstate.backup",
        ".tfvars",
        ".ovpn",
        ".mobileprovision",
    ];
    if ends(&keys) {
        return Some("files with this ending hold keys");
    }
    let ssh = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss"];
    if name.starts_with("id_") && !name.ends_with(".pub") && ssh.iter().any(|n| name.starts_with(n)) {
        return Some("it is called like a private key");
    }
    let names = [
        ".netrc",
        "_netrc",
        ".git-credentials",
        ".pypirc",
        ".pgpass",
        ".my.cnf",
        ".htpasswd",
        ".vault-token",
        ".dockercfg",
        ".s3cfg",
        ".boto",
        ".terraformrc",
        "credentials",
        "credentials.json",
        "secrets.json",
        "secrets.yml",
        "secrets.yaml",
        "secrets.toml",
        "master.key",
        "kubeconfig",
        ".age-key",
    ];
    if names.contains(&name) || name.starts_with("service-account") || name.starts_with("service_account") {
        return Some("files of this name hold secrets");
    }
    None
}

/// Why a content is that of a secret, for names that may be harmless.
pub(super) fn by_content(path: &str, start: &[u8]) -> Option<&'static str> {
    let has = |needle: &[u8]| start.windows(needle.len()).any(|w| w == needle);
    if has(b"-----BEGIN ") && has(b"PRIVATE KEY-----") {
        return Some("it holds a private key");
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let token = [&b"_auth"[..], b"_password", b"npmAuth"];
    if matches!(name, ".npmrc" | ".yarnrc" | ".yarnrc.yml" | "bunfig.toml") && token.iter().any(|t| has(t)) {
        return Some("it holds a token");
    }
    if matches!(name, "pip.conf" | "nuget.config" | "settings.xml")
        && (has(b"password") || has(b"://"))
        && has(b"@")
    {
        return Some("it seems to hold a password");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_contents() {
        for secret in [
            ".env",
            "web/.ENV",
            ".env.local",
            "prod.env",
            "certs/x.pem",
            "id_rsa",
            "deploy/id_ed25519",
            ".netrc",
            ".git-credentials",
            ".aws/config",
            "x/.ssh/config",
            "terraform.tfvars",
            "config/master.key",
        ] {
            assert!(by_name(secret).is_some(), "{secret}");
        }
        for fine in [".env.example", ".env.sample", "fixtures/a.json", "id_rsa.pub", "environment", ".npmrc"]
        {
            assert!(by_name(fine).is_none(), "{fine}");
        }
        assert!(by_content("a.txt", b"x\n-----BEGIN OPENSSH PRIVATE KEY-----\n").is_some());
        assert!(by_content(".npmrc", b"//registry.example/:_authToken=x").is_some());
        assert!(by_content(".npmrc", b"save-exact=true").is_none());
    }
}
