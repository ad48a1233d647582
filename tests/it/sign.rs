//! Signed approvals: made and checked with the machine's own ssh-keygen and gpg.

use crate::support::*;
use std::path::PathBuf;

/// The last second of 2001: long over.
const OVER: &str = "valid-before=\"20020101Z\"";

impl Sandbox {
    /// A key pair of that name; the private half's path.
    pub fn key(&self, name: &str) -> PathBuf {
        let path = self.dir().join("home").join(name);
        if !path.exists() {
            let text = path.to_str().unwrap();
            self.run(self.dir(), "ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", text])
                .ok();
        }
        path
    }

    /// `type base64` of a key.
    pub fn public(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.key(name).with_extension("pub")).unwrap();
        text.split_ascii_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// From now on git signs with that key.
    pub fn signs_with(&self, name: &str) {
        let key = self.key(name);
        self.run(self.dir(), "git", ["config", "--global", "gpg.format", "ssh"]).ok();
        self.run(self.dir(), "git", ["config", "--global", "user.signingkey", key.to_str().unwrap()]).ok();
    }
}

impl Repo<'_> {
    /// Commits signers: each is `principal [options] key-name`. And a policy, if there is text.
    pub fn signers(&self, lines: &[&str], policy: &str) {
        let mut text = String::new();
        for line in lines {
            let (front, key) = line.rsplit_once(' ').unwrap();
            text.push_str(&format!("{front} {}\n", self.sandbox.public(key)));
        }
        self.write(".git-agent/allowed_signers", text);
        self.write(".git-agent/revoked_signers", "");
        if !policy.is_empty() {
            self.write(".git-agent/policy.yml", policy);
        }
        self.commit("signers");
    }

    /// The digest that a run proposes.
    pub fn change(&self, run: &str) -> String {
        let review = self.agent_args(["review", run, "--json"]).ok().json();
        review["digest"].as_str().unwrap().to_owned()
    }

    /// Approves as a script does: no terminal, the digest in full.
    pub fn approves(&self, run: &str) -> Ended {
        let change = self.change(run);
        self.agent_args(["approve", run, "--digest", &change])
    }
}

pub const ROLES: &str = "version: 1\nroles:\n  developer: {kind: writer}\n";

#[test]
fn a_committed_signer_makes_approvals_signed_and_others_worthless() {
    // As root only: ssh-keygen serves no user without a passwd entry.
    {
        let s = &Sandbox::new();
        let repo = s.repo();
        repo.signers(
            &["tess@example.org tess", "bot@example.org bot", "old@example.org old"],
            &format!("{ROLES}approval:\n  signers: {{tess@example.org: person, bot@example.org: agent}}\n"),
        );
        repo.spawn("--role developer --run r1", "echo two > src/b").ok();
        // Nobody could say whose an unsigned approval is.
        repo.approves("r1").with(4).refuses(&["signingkey"]);
        for (key, why) in
            [("bot", "agent"), ("old", "no role"), ("stranger", "not in .git-agent/allowed_signers")]
        {
            s.signs_with(key);
            repo.approves("r1").with(4).refuses(&["would not count", why]);
        }
        assert_eq!(repo.state("r1"), "proposed");
        repo.agent("apply r1").with(4);
        s.signs_with("tess");
        repo.agent("approve r1").with(4).refuses(&["digest in full"]);
        repo.approves("r1").ok();
        assert_eq!(repo.state("r1"), "approved");
        repo.agent("apply r1").ok();
        assert_eq!(repo.read("src/b"), "two\n");
    }
}

#[test]
fn a_revoked_approval_is_none_and_can_be_given_again() {
    // As root only: ssh-keygen serves no user without a passwd entry.
    {
        let s = &Sandbox::new();
        let repo = s.repo();
        repo.signers(&["tess@example.org tess"], "");
        s.signs_with("tess");
        repo.spawn("--role developer --run r1", "echo two > src/b").ok();
        repo.approves("r1").ok();
        repo.agent_args(["revoke", "r1", "-m", "a second thought"]).ok();
        assert_eq!(repo.state("r1"), "proposed");
        repo.agent("apply r1").with(4).refuses(&["taken back"]);
        repo.approves("r1").ok();
        repo.agent("apply r1").ok();
    }
}

#[test]
fn g21_two_persons_are_two_persons() {
    let s = Sandbox::new();
    let repo = s.repo();
    let policy = format!("{ROLES}approval: {{two_person: true, count: 2}}\n");
    repo.signers(
        &["tess@example.org tess", "ada@example.org ada", "ada@example.org ada2", "bob@example.org bob"],
        &policy,
    );
    repo.spawn("--role developer --run r1", "echo two > src/b").ok();
    s.signs_with("tess");
    repo.approves("r1").ok().says(&["may not land yet", "started the run"]);
    let as_somebody = |name: &str, key: &str| {
        s.signs_with(key);
        repo.git_args(["config", "user.email", name]);
        repo.approves("r1")
    };
    as_somebody("ada@example.org", "ada").ok().says(&["1 of 2"]);
    // Two keys of one person are one person.
    as_somebody("ada@example.org", "ada2").ok().says(&["1 of 2"]);
    repo.agent("apply r1").with(4).refuses(&["1 of 2 approvals"]);
    as_somebody("bob@example.org", "bob").ok();
    repo.agent("apply r1").ok();
    assert_eq!(repo.read("src/b"), "two\n");
}

#[test]
fn g11_the_files_and_the_time_decide_now() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.signers(&["tess@example.org tess"], "");
    s.signs_with("tess");
    repo.spawn("--role developer --run r1", "echo two > src/b").ok();
    repo.approves("r1").ok();
    repo.agent("apply --dry-run r1").ok();
    let tess = s.public("tess");
    let set = |allowed: Option<&str>, revoked: Option<&str>| {
        for (name, text) in [("allowed_signers", allowed), ("revoked_signers", revoked)] {
            let path = format!(".git-agent/{name}");
            match text {
                Some(text) => repo.write(&path, text),
                None => std::fs::remove_file(repo.dir.join(&path)).unwrap(),
            }
        }
        repo.commit("signers");
    };
    let line = format!("tess@example.org {tess}\n");
    for (allowed, revoked, why) in [
        (format!("tess@example.org {OVER} {tess}\n"), Some(""), "not valid any more"),
        (format!("tess@example.org valid-after=\"20900101Z\" {tess}\n"), Some(""), "not valid yet"),
        (format!("tess@example.org namespaces=\"git\" {tess}\n"), Some(""), "not allowed for"),
        (format!("*@example.org {tess}\n"), Some(""), "not a pattern"),
        (line.clone(), Some(tess.as_str()), "revoked"),
        (line.clone(), Some("a rubbish line\n"), "no public key"),
        (line.clone(), None, "it is missing"),
    ] {
        set(Some(&allowed), revoked);
        repo.agent("apply --dry-run r1").with(4).refuses(&[why]);
        repo.write(".git-agent/revoked_signers", "");
    }
    // Empty is an answer: nobody is revoked.
    set(Some(&line), Some(""));
    repo.agent("apply --dry-run r1").ok();
    // A KRL is read by ssh-keygen alone.
    let krl = s.dir().join("krl");
    s.run(
        s.dir(),
        "ssh-keygen",
        ["-q", "-k", "-f", krl.to_str().unwrap(), s.key("tess").with_extension("pub").to_str().unwrap()],
    )
    .ok();
    repo.write(".git-agent/revoked_signers", std::fs::read(&krl).unwrap());
    repo.commit("revoked");
    repo.agent("apply --dry-run r1").with(4).refuses(&["revoked"]);
}

#[test]
fn gpg_signs_as_git_signs() {
    let s = Sandbox::new();
    // Short: gpg's socket lies below it.
    let home = tempfile::tempdir_in("/tmp").unwrap();
    let mut s = s;
    s.vars.insert("GNUPGHOME".into(), home.path().into());
    let made = s.run(
        s.dir(),
        "gpg",
        [
            "--batch",
            "--quiet",
            "--passphrase",
            "",
            "--quick-generate-key",
            "Tess Tester <tess@example.org>",
            "ed25519",
            "sign",
            "never",
        ],
    );
    made.ok();
    let keys = s.run(s.dir(), "gpg", ["--armor", "--export", "tess@example.org"]).ok().stdout;
    let repo = s.repo();
    repo.write(".git-agent/allowed_keys.asc", keys);
    repo.write(".git-agent/revoked_signers", "");
    repo.commit("signers");
    repo.spawn("--role developer --run r1", "echo two > src/b").ok();
    repo.approves("r1").ok();
    repo.agent("apply --dry-run r1").ok();
    let prints = s.run(s.dir(), "gpg", ["--with-colons", "--list-keys"]).ok();
    let print =
        prints.out().lines().find_map(|l| l.strip_prefix("fpr:")).unwrap().trim_matches(':').to_owned();
    repo.write(".git-agent/revoked_signers", format!("openpgp:{print}\n"));
    repo.commit("revoked");
    repo.agent("apply --dry-run r1").with(4).refuses(&["revoked"]);
    s.run(s.dir(), "gpgconf", ["--kill", "all"]).ok();
}

#[test]
fn signers_are_listed_added_and_checked() {
    // As root only: ssh-keygen serves no user without a passwd entry.
    {
        let s = &Sandbox::new();
        let repo = s.repo();
        repo.agent("trust signers list").ok();
        s.signs_with("tess");
        let key = s.key("tess").with_extension("pub");
        repo.agent_args(["trust", "signers", "add", "tess@example.org", key.to_str().unwrap()])
            .ok()
            .says(&["nothing counts before it is committed"]);
        assert_eq!(repo.agent("trust signers list --json").ok().json()["signers"], serde_json::json!([]));
        repo.commit("signers");
        let listed = repo.agent("trust signers list --json").ok().json();
        assert_eq!(listed["signers"][0]["principals"][0], "tess@example.org");
        assert_eq!(listed["signed"], true);
        assert!(repo.agent("trust signers check").ok().out().contains("you sign as tess@example.org"));
        s.signs_with("stranger");
        assert!(repo.agent("trust signers check").with(1).out().contains("wrong: "));
        let mut agent =
            repo.agent_command(["trust", "signers", "add", "bot@example.org", key.to_str().unwrap()]);
        agent.env("CLAUDECODE", "1");
        run(agent, b"").with(4);
    }
}
