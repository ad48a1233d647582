//! G: what a server with the gate takes and refuses, with real pushes to a real `git receive-pack`.

use crate::sign::ROLES;
use crate::support::*;
use std::path::PathBuf;

/// A server's repository with the gate, and a clone of somebody whose key may approve.
pub struct Server<'s> {
    pub s: &'s Sandbox,
    pub bare: PathBuf,
    pub dev: Repo<'s>,
}

pub const SIGNERS: [&str; 3] = ["tess@example.org tess", "bot@example.org bot", "old@example.org old"];
pub fn policy(more: &str) -> String {
    format!(
        "{ROLES}owners: [lead@example.org]\napproval:\n  signers: {{tess@example.org: person, ada@example.org: person, \
         lead@example.org: person, bot@example.org: agent}}\n{more}"
    )
}

impl<'s> Server<'s> {
    pub fn new(s: &'s Sandbox) -> Self {
        Self::with(s, &[], "")
    }

    pub fn with(s: &'s Sandbox, init: &[&str], more: &str) -> Self {
        let bare = s.dir().join("server.git");
        let mut args = vec!["init", "-q", "--bare"];
        args.extend(init);
        args.push(bare.to_str().unwrap());
        s.run(s.dir(), "git", args).ok();
        let dev = s.repo_with("dev", init);
        dev.git_args(["remote", "add", "origin", bare.to_str().unwrap()]);
        let mut signers = SIGNERS.to_vec();
        signers.extend(["ada@example.org ada", "lead@example.org lead"]);
        dev.signers(&signers, &policy(more));
        dev.git("push -q origin main");
        let server = Self { s, bare, dev };
        server.install().ok();
        s.signs_with("tess");
        server
    }

    pub fn install(&self) -> Ended {
        let root = self.s.dir().join("root_signers");
        std::fs::write(&root, format!("root@example.org {}\n", self.s.public("root"))).unwrap();
        let bare = self.bare.to_str().unwrap();
        self.dev.agent_args(["gate", "install", "--repo", bare, "--root-signers", root.to_str().unwrap()])
    }

    pub fn git(&self, words: &str) -> String {
        self.s.run(&self.bare, "git", words.split_ascii_whitespace()).ok().out().to_owned()
    }

    /// What the server's refs are, but for `HEAD`.
    pub fn refs(&self) -> String {
        self.git("for-each-ref")
    }

    pub fn push(&self, words: &str) -> Ended {
        let mut args = vec!["push", "-q", "origin"];
        args.extend(words.split_ascii_whitespace());
        self.s.run(&self.dev.dir, "git", args)
    }

    /// The push is refused with these words, and nothing on the server moved.
    #[track_caller]
    pub fn refuses(&self, words: &str, says: &[&str]) {
        let before = self.refs();
        let said = self.push(words).fails();
        said.says(&["remote: git-agent gate: refused refs/"]);
        let remote: Vec<&str> = said.err().lines().filter_map(|l| l.strip_prefix("remote: ")).collect();
        let text = remote.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        for word in says {
            assert!(text.contains(word), "nothing of '{word}':\n{}", said.err());
        }
        for line in said.err().lines().filter_map(|l| l.strip_prefix("remote: ")) {
            assert!(line.trim_end().chars().count() <= 120, "{line}");
        }
        assert_eq!(self.refs(), before);
    }

    /// A run with a result.
    pub fn proposed(&self, name: &str, script: &str) -> String {
        self.dev.spawn(&format!("--role developer --run {name}"), script).ok();
        self.run_ref(name)
    }

    /// The same, approved by tess.
    pub fn approved(&self, name: &str, script: &str) -> String {
        let run = self.proposed(name, script);
        self.s.signs_with("tess");
        self.dev.approves(name).ok();
        run
    }

    pub fn run_ref(&self, name: &str) -> String {
        format!("refs/agent-runs/{}", self.dev.show(name)["run"].as_str().unwrap())
    }

    /// A person's commit of what a run left: `trailers` is what the message ends with.
    pub fn commit_of(&self, name: &str, trailer: bool) -> String {
        let id = self.run_ref(name).rsplit('/').next().unwrap().to_owned();
        let message = if trailer { format!("Land it\n\nAgent-Run: {id}") } else { "Land it".to_owned() };
        self.dev.git_args(["commit", "-q", "-a", "-m", &message]);
        self.dev.git("rev-parse HEAD")
    }

    pub fn back(&self) {
        self.dev.git("reset -q --hard origin/main");
        self.dev.git("clean -qfd");
    }
}

/// Every kind of repository that this git can make.
pub fn formats(s: &Sandbox) -> Vec<Vec<&'static str>> {
    let mut all = vec![vec![], vec!["--object-format=sha256"]];
    if s.run(s.dir(), "git", ["init", "-q", "--ref-format=reftable", "probe"]).status() == 0 {
        all.push(vec!["--ref-format=reftable"]);
        all.push(vec!["--ref-format=reftable", "--object-format=sha256"]);
    }
    all
}

#[test]
fn g01_g14_an_agents_branch_comes_with_its_run_and_its_approval() {
    let probe = Sandbox::new();
    for init in formats(&probe) {
        let s = Sandbox::new();
        let g = Server::with(&s, &init, "");
        let run = g.proposed("r1", "echo two > src/b");
        g.refuses("wt/r1", &["no run of the ledger", "git agent push RUN", "agent-branch"]);
        g.refuses(&format!("--atomic wt/r1 {run}"), &["nobody has approved", "git agent review r1"]);
        // The run alone is a record, and harms nobody.
        g.push(&run).ok();
        g.refuses("wt/r1", &["nobody has approved"]);
        g.dev.approves("r1").ok();
        g.push(&format!("--atomic wt/r1 {run}")).ok();
        assert_eq!(g.git("rev-parse wt/r1"), g.dev.git("rev-parse wt/r1"));
        // G19: a person's ordinary branch is theirs.
        g.dev.git("checkout -q -b feature");
        g.dev.write("more", "by hand\n");
        g.dev.commit("by hand");
        g.push("feature feature:main").ok();
        // G23: the same answers without a server.
        g.dev.git("fetch -q origin");
        g.dev.agent("verify wt/r1").ok();
    }
}

#[test]
fn g02_g03_only_a_persons_signature_on_an_approval_counts() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let run = g.proposed("r1", "echo two > src/b");
    let push = format!("--atomic wt/r1 {run}");
    // What the own program refuses to write, an outsider writes by hand.
    for (what, key, namespace, says) in [
        ("unsigned", None, "", "no signature, and the policy"),
        ("an agent", Some("bot"), "git-agent-approval@v1", "never approves"),
        ("unknown", Some("stranger"), "git-agent-approval@v1", "not in"),
        ("no role", Some("old"), "git-agent-approval@v1", "nobody to the policy"),
        ("namespace", Some("tess"), "git", "made for 'git'"),
    ] {
        let before = g.dev.git(&format!("rev-parse {run}"));
        forge(&g, "r1", key, namespace, |_| ());
        assert_eq!(g.dev.state("r1"), "approved", "{what}");
        g.refuses(&push, &["r1", says]);
        g.dev.agent("verify wt/r1").with(4).says(&[says]);
        g.dev.git(&format!("update-ref {run} {before}"));
    }
    // A good signature over other bytes.
    let before = g.dev.git(&format!("rev-parse {run}"));
    forge(&g, "r1", Some("tess"), "other-bytes", |_| ());
    g.refuses(&push, &["not a signature of"]);
    g.dev.git(&format!("update-ref {run} {before}"));
    // Control.
    forge(&g, "r1", Some("tess"), "git-agent-approval@v1", |_| ());
    g.push(&push).ok();
}

/// Appends an approval as somebody with a text editor would: any key, any namespace, any content.
fn forge(
    g: &Server<'_>,
    run: &str,
    key: Option<&str>,
    namespace: &str,
    change: impl Fn(&mut git_agent::model::Approve),
) {
    use git_agent::ledger::{Draft, Ledger, Sign};
    use git_agent::model::*;
    let repo = git_agent::git::Repo::discover(&g.dev.dir).unwrap();
    let ledger = Ledger::new(&repo);
    let tip = ledger.resolve(run).unwrap();
    let chain = ledger.chain(&tip).unwrap();
    let bodies: Vec<&Body> = chain.known().map(|(_, e)| &e.body).collect();
    let Body::Spawn(spawn) = bodies[0] else { panic!() };
    let result =
        bodies.iter().rev().find_map(|b| if let Body::Result(r) = b { Some(r) } else { None }).unwrap();
    let mut approve = Approve {
        repo: spawn.repo.clone(),
        base: result.base.clone(),
        snapshot: result.snapshot.clone(),
        tree: result.tree.clone(),
        change: result.change,
        policy: spawn.policy.sha256,
        target: Some("refs/heads/main".into()),
        mode: Mode::Carry,
        how: if key.is_some() { How::Signed } else { How::Unattended },
        expires: None,
    };
    change(&mut approve);
    let draft = Draft {
        body: Body::Approve(approve),
        att: Vec::new(),
        evidence: Vec::new(),
        time: git_agent::ops::now(),
        actor: Actor { name: "Tess".into(), email: "tess@example.org".into() },
    };
    let path = key.map(|k| g.s.key(k));
    let sign = |bytes: &[u8]| {
        let other = namespace == "other-bytes";
        let (bytes, namespace) =
            if other { (&b"x"[..], "git-agent-approval@v1") } else { (bytes, namespace) };
        let key = git_agent::os::signing::SshKey::File(path.clone().unwrap().into_os_string());
        Ok(git_agent::os::signing::ssh_sign("ssh-keygen".as_ref(), &key, namespace, bytes).unwrap())
    };
    let sign: Option<&Sign<'_>> = if key.is_some() { Some(&sign) } else { None };
    ledger.append_signed(&tip.run, &draft, sign, |_| Ok(())).unwrap();
}

#[test]
fn g04_g05_g28_an_approval_is_for_one_change_of_one_run() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let (one, two) =
        (g.proposed("r1", "echo two > src/b"), g.proposed("r2", "echo two > src/b; echo > more"));
    let key = (Some("tess"), "git-agent-approval@v1");
    type Change = fn(&mut git_agent::model::Approve);
    let changes: [(&str, Change); 4] = [
        ("another repository", |a| a.repo = "0".repeat(32)),
        ("another change", |a| a.change = git_agent::model::Digest::of(b"x")),
        ("another change", |a| a.tree = a.base.clone()),
        ("has expired", |a| a.expires = Some(1_000_000_000)),
    ];
    for (says, change) in changes {
        let before = g.dev.git(&format!("rev-parse {one}"));
        forge(&g, "r1", key.0, key.1, change);
        g.refuses(&format!("--atomic wt/r1 {one}"), &[says]);
        g.dev.git(&format!("update-ref {one} {before}"));
    }
    // The same change, approved in another run.
    g.dev.approves("r2").ok();
    g.refuses(&format!("--atomic wt/r1 {one} {two}"), &["nobody has approved"]);
    let approval = g.dev.git(&format!("rev-parse {two}"));
    g.refuses(&format!("--atomic wt/r1 {approval}:{one}"), &["belongs to run"]);
    // The branch of one run with the commit of another.
    g.refuses(&format!("--atomic wt/r2:refs/heads/wt/r1 {one}"), &["not the latest result"]);
    // Amended after the yes: an older result is approved.
    g.dev.approves("r1").ok();
    g.dev.agent_args(["exec", "r1", "--", "sh", "-c", "echo three > src/b"]).ok();
    g.dev.agent("finish r1").ok();
    g.refuses(&format!("--atomic wt/r1 {one}"), &["only an older one"]);
}

#[test]
fn g07_g31_the_branch_is_one_commit_on_the_base_with_the_approved_tree() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let run = g.approved("r1", "echo two > src/b");
    let (base, snapshot) = (g.dev.git("rev-parse wt/r1^"), g.dev.git("rev-parse wt/r1"));
    let tree = format!("{snapshot}^{{tree}}");
    let make = |tree: &str, parents: &[&str]| {
        let mut args = vec!["commit-tree", "-m", "By hand", tree];
        parents.iter().for_each(|p| args.extend(["-p", p]));
        g.dev.git_args(args)
    };
    // Whose message, author, date and signature it has is free.
    g.dev.git_args(["-c", "user.name=Ada", "commit", "--allow-empty", "-q", "-m", "on main"]);
    let mine = make(&tree, &[&base]);
    let foreign = g.dev.git("rev-parse HEAD");
    for (what, commit) in [
        ("an extra parent", make(&tree, &[&base, &foreign])),
        ("another parent", make(&tree, &[&foreign])),
        ("a commit on top", make(&tree, &[&snapshot])),
        ("another tree", make("HEAD^{tree}", &[&base])),
        ("no parent", make(&tree, &[])),
    ] {
        g.refuses(&format!("--atomic {commit}:refs/heads/wt/r1 {run}"), &["not the latest result"]);
        let _ = what;
    }
    g.push(&format!("--atomic {mine}:refs/heads/wt/r1 {run}")).ok();
    // G08: moved away by force, or deleted with a lie.
    g.refuses(&format!("-f {foreign}:refs/heads/wt/r1"), &["not the latest result"]);
    g.push(":refs/heads/wt/r1").ok();
}

#[test]
fn g06_g20_g32_on_a_persons_branch_the_very_change_and_no_other_byte() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let run = g.approved("r1", "printf 'if x:\\n    a\\nb\\n' > src/b; chmod +x README; ln -s a src/l");
    g.push(&run).ok();
    let apply = || {
        g.back();
        g.dev.git("cherry-pick --no-commit wt/r1");
    };
    for (what, script) in [
        ("indentation", "printf 'if x:\\n    a\\n    b\\n' > src/b"),
        ("exec bit", "chmod -x README"),
        ("link", "ln -sfn b src/l"),
        ("more", "echo more > more"),
        ("less", "git checkout -q HEAD -- src/b"),
    ] {
        apply();
        g.s.sh(&g.dev.dir, script).ok();
        g.dev.git("add -A");
        g.commit_of("r1", true);
        g.refuses("HEAD:main", &["is not the change that run 'r1' proposes"]);
        g.dev.agent("verify origin/main..HEAD").with(1).says(&["is not the change"]);
        let _ = what;
    }
    // Squash: exactly the change, on a main that moved elsewhere.
    g.back();
    g.dev.write("elsewhere", "by hand\n");
    g.dev.commit("by hand");
    g.push("HEAD:main").ok();
    g.dev.git("fetch -q origin");
    apply();
    g.commit_of("r1", true);
    g.dev.agent("verify origin/main..HEAD").ok();
    // On another branch than it was approved for.
    g.refuses("HEAD:refs/heads/release", &["approved for refs/heads/main alone"]);
    g.push("HEAD:main").ok();
    // G12: taken out again, the same yes is used up.
    g.dev.git("fetch -q origin");
    g.dev.git("revert --no-edit HEAD");
    g.push("HEAD:main").ok();
    g.dev.git("fetch -q origin");
    apply();
    g.commit_of("r1", true);
    g.refuses("HEAD:main", &["has landed as"]);
}

#[test]
fn g20_a_merge_is_judged_by_what_it_brings() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let run = g.approved("r1", "echo two > src/b");
    g.push(&format!("--atomic wt/r1 {run}")).ok();
    let merge = |extra: &str| {
        g.back();
        g.dev.write("elsewhere", "by hand\n");
        g.dev.commit("by hand");
        g.dev.git("merge -q --no-ff --no-commit wt/r1");
        g.s.sh(&g.dev.dir, extra).ok();
        g.dev.git("add -A");
        g.dev.git("commit -q -m merged");
    };
    // G07: a file that is in none of its parents.
    merge("echo evil > evil");
    g.refuses("HEAD:main", &["holds more than what it merges"]);
    merge("echo evil >> src/b");
    g.refuses("HEAD:main", &["holds more"]);
    merge(":");
    g.push("HEAD:main").ok();
    // An agent's work that nobody approved comes in by no merge.
    g.dev.git("fetch -q origin");
    g.back();
    let run = g.proposed("r2", "echo three > src/a");
    g.dev.git("merge -q --no-ff -m merged wt/r2");
    g.refuses(&format!("HEAD:main {run}"), &["nobody has approved"]);
}

#[test]
fn g09_g10_names_tags_and_the_law_itself() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let run = g.proposed("r1", "echo two > src/b");
    let main = g.dev.git("rev-parse main");
    for (spec, says) in [
        (format!("{main}:refs/replace/{main}"), "never leaves a machine"),
        (format!("{main}:refs/agent-local/x/head"), "never leaves a machine"),
        (format!("{main}:refs/stash"), "one level"),
        (format!("{main}:refs/heads/Main"), "in case alone"),
        (format!("{main}:refs/Heads/x"), "another spelling"),
        (format!("{main}:refs/Agent-Runs/x"), "another spelling"),
        (format!("{main}:refs/agent-runs/x"), "only runs live here"),
        (format!("{main}:{run}"), "ledger"),
        ("wt/r1:refs/heads/WT/r1".to_owned(), "no run of the ledger"),
        ("wt/r1:refs/tags/v1".to_owned(), "no run in the ledger"),
        ("wt/r1:refs/odd/place".to_owned(), "no run in the ledger"),
        ("wt/r1:refs/heads/feature".to_owned(), "no run in the ledger"),
        (":main".to_owned(), "not deleted"),
    ] {
        g.refuses(&spec, &[says]);
    }
    g.git("symbolic-ref refs/heads/alias refs/heads/main");
    g.refuses("wt/r1:alias", &["symbolic ref"]);
    g.git("symbolic-ref refs/heads/dangling refs/heads/wt/r1");
    g.refuses(&format!("{main}:refs/heads/dangling"), &["symbolic ref"]);
    g.git("symbolic-ref --delete refs/heads/alias");
    g.git("symbolic-ref --delete refs/heads/dangling");
    // The law: by its owner alone, signed, and travelling alone.
    let weaker = policy("").replace("bot@example.org: agent", "bot@example.org: person");
    let change = |key: Option<&str>, files: &[(&str, &str)]| {
        g.back();
        for (path, text) in files {
            g.dev.write(path, text);
        }
        g.dev.git("add -A");
        if let Some(key) = key {
            s.signs_with(key);
        }
        let sign = if key.is_some() { "-S" } else { "--no-gpg-sign" };
        g.dev.git_args(["commit", "-q", sign, "-m", "policy"]);
    };
    let file = ".git-agent/policy.yml";
    change(None, &[(file, &weaker)]);
    g.refuses("HEAD:main", &["not signed", "one of lead@example.org"]);
    change(Some("tess"), &[(file, &weaker)]);
    g.refuses("HEAD:main", &["does not own the policy"]);
    change(Some("lead"), &[(file, &weaker), ("src/b", "more\n")]);
    g.refuses("HEAD:main", &["together with src/b"]);
    change(Some("lead"), &[(file, "version: 1\nnonsense: 1\n")]);
    g.refuses("HEAD:main", &["cannot be read"]);
    change(Some("lead"), &[(".git-agent/allowed_signers", "rubbish\n")]);
    g.refuses("HEAD:main", &["cannot be read"]);
    // A signer added in the same push does not help it.
    change(Some("lead"), &[(file, &weaker)]);
    let law = g.dev.git("rev-parse HEAD");
    g.dev.git("reset -q --hard origin/main");
    forge(&g, "r1", Some("bot"), "git-agent-approval@v1", |_| ());
    g.refuses(&format!("--atomic {law}:main wt/r1 {run}"), &["never approves"]);
    g.push(&format!("{law}:main")).ok();
    // Back to an older one by force is a change, too.
    g.refuses(&format!("-f {law}~1:main"), &["older one"]);
    // The root signer repairs whatever it is.
    g.dev.git("fetch -q origin");
    change(Some("root"), &[(file, &policy(""))]);
    g.push("HEAD:main").ok();
}

/// A push by hand: what the client says about old values is up to it.
fn raw_push(g: &Server<'_>, commands: &[(&str, &str, &str)], tips: &[&str]) -> String {
    let line = |text: &str| format!("{:04x}{text}", text.len() + 4);
    let mut input = Vec::new();
    for (i, (old, new, name)) in commands.iter().enumerate() {
        let caps = if i == 0 { "\0report-status" } else { "" };
        input.extend_from_slice(line(&format!("{old} {new} {name}{caps}\n")).as_bytes());
    }
    input.extend_from_slice(b"0000");
    let mut pack = g.s.command(&g.dev.dir, "git");
    pack.args(["pack-objects", "--revs", "--stdout", "-q"]);
    let mut revs = tips.join("\n");
    revs.push('\n');
    input.extend(run(pack, revs.as_bytes()).ok().stdout);
    let mut receive = g.s.command(&g.bare, "git");
    receive.args(["receive-pack", g.bare.to_str().unwrap()]);
    let ended = run(receive, &input);
    let _ = ended.status();
    let said = ended.ok();
    format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr))
}

#[test]
fn g08_a_lie_about_an_old_value_helps_nobody() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let (one, two) = (g.approved("r1", "echo two > src/b"), g.proposed("r2", "echo three > src/b"));
    g.push(&format!("--atomic wt/r1 {one}")).ok();
    let null = "0".repeat(40);
    let [there, evil, main] = ["wt/r1", "wt/r2", "main"].map(|n| g.dev.git(&format!("rev-parse {n}")));
    g.push(&two).ok();
    let before = g.refs();
    for commands in [
        vec![(null.as_str(), evil.as_str(), "refs/heads/wt/r1")],
        vec![(evil.as_str(), null.as_str(), "refs/heads/wt/r1")],
        vec![
            (there.as_str(), there.as_str(), "refs/heads/wt/r1"),
            (there.as_str(), evil.as_str(), "refs/heads/wt/r1"),
        ],
        vec![(null.as_str(), main.as_str(), "refs/heads/x"), (null.as_str(), evil.as_str(), "refs/heads/x")],
        vec![(null.as_str(), evil.as_str(), "refs/heads/main")],
        vec![(null.as_str(), evil.as_str(), "HEAD")],
    ] {
        let said = raw_push(&g, &commands, &[&evil]);
        assert_eq!(g.refs(), before, "{commands:?}: {said}");
    }
    // Control: an honest one goes in.
    raw_push(&g, &[(&null, &main, "refs/heads/x")], &[&main]);
    assert_eq!(g.git("rev-parse x"), main);
}

#[test]
fn g12_g14_g22_a_branch_that_moved_without_its_run_is_healed_or_taken_back() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let one = g.approved("r1", "echo two > src/b");
    // The run's ref is locked on the server: a push that is not atomic moves the branch alone.
    let lock = g.bare.join(format!("{one}.lock"));
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    std::fs::write(&lock, "").unwrap();
    g.git("config core.filesRefLockTimeout 0");
    g.push(&format!("wt/r1 {one}")).fails().says(&["was taken back"]);
    assert!(!g.refs().contains("wt/r1"), "{}", g.refs());
    std::fs::remove_file(&lock).unwrap();
    g.push(&format!("--atomic wt/r1 {one}")).ok();

    // post-receive never came: the next push finds the journal. Here the run can be brought up.
    let two = g.approved("r2", "echo three > src/b");
    let hook = g.bare.join("hooks/post-receive");
    let text = std::fs::read(&hook).unwrap();
    std::fs::write(&hook, "#!/bin/sh\nkill -9 $$\n").unwrap();
    let _ = g.push(&format!("--atomic wt/r2 {two}")).status();
    let tip = g.git(&format!("rev-parse {two}"));
    g.git(&format!("update-ref -d {two}"));
    std::fs::write(&hook, &text).unwrap();
    assert!(g.bare.join("agent/gate/pending").read_dir().unwrap().next().is_some());
    g.push("main:refs/heads/x").ok();
    assert_eq!(g.git(&format!("rev-parse {two}")), tip);
    assert!(g.bare.join("agent/gate/pending").read_dir().unwrap().next().is_none());

    // A revoke that came in between wins.
    let three = g.approved("r3", "echo four > src/b");
    std::fs::write(&hook, "#!/bin/sh\nkill -9 $$\n").unwrap();
    let _ = g.push(&format!("--atomic wt/r3 {three}")).status();
    assert!(g.refs().contains("wt/r3"));
    std::fs::write(&hook, &text).unwrap();
    g.dev.agent("revoke r3").ok();
    let pending = g.bare.join("agent/gate/pending");
    let kept = pending.read_dir().unwrap().next().unwrap().unwrap().path();
    let journal = std::fs::read(&kept).unwrap();
    g.push(&three).ok();
    std::fs::write(&kept, journal).unwrap();
    let status = g.dev.agent_args(["gate", "status", "--repo", g.bare.to_str().unwrap()]);
    assert!(status.with(1).out().contains("was taken back"));
    assert!(!g.refs().contains("wt/r3"));
    // And a later yes than the revoke counts again, whoever was faster.
    g.dev.approves("r3").ok();
    g.push(&format!("--atomic wt/r3 {three}")).ok();
}

#[test]
fn g13_g15_the_ledger_only_grows() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let run = g.approved("r1", "echo two > src/b");
    g.push(&format!("--atomic wt/r1 {run}")).ok();
    let tip = g.dev.git(&format!("rev-parse {run}"));
    let id = run.rsplit('/').next().unwrap();
    let blob = g.dev.git(&format!("rev-parse {tip}:event.json"));
    let rewritten = |from: &str, to: &str| {
        let text = g.dev.git(&format!("cat-file blob {tip}:event.json")).replace(from, to);
        let mut hash = s.command(&g.dev.dir, "git");
        hash.args(["hash-object", "-w", "--stdin"]);
        let oid = run_out(hash, text.as_bytes());
        let mut tree = s.command(&g.dev.dir, "git");
        tree.arg("mktree");
        let old = g.dev.git(&format!("ls-tree {tip}")).replace(&blob, &oid);
        let tree = run_out(tree, format!("{old}\n").as_bytes());
        g.dev.git_args(["commit-tree", "-m", "x", "-p", &format!("{tip}^"), &tree])
    };
    let older = g.dev.git(&format!("rev-parse {tip}^"));
    let other = rewritten("\"kind\"", " \"kind\"");
    let twice = rewritten("\"seq\":", "\"seq\":9,\"seq\":");
    let moved = rewritten("\"mode\":\"carry\"", "\"mode\":\"exact\"");
    let extra = {
        let main = g.dev.git("rev-parse main");
        let tree = format!("{tip}^{{tree}}");
        g.dev.git_args(["commit-tree", "-m", "x", "-p", &format!("{tip}^"), "-p", &main, &tree])
    };
    for (spec, says) in [
        (format!("-f {older}:{run}"), "take back events"),
        (format!("-f {other}:{run}"), "canonical"),
        (format!("-f {twice}:{run}"), "canonical"),
        (format!("-f {moved}:{run}"), "take back events"),
        (format!("-f {extra}:{run}"), "take back events"),
        (format!("-f {blob}:{run}"), "cannot be trusted"),
        (format!("-f {blob}:refs/agent-runs/{}", id.replace('0', "1")), "cannot be trusted"),
        (format!(":{run}"), "only grows"),
        // G15: what a stale clone would destroy.
        ("--mirror".to_owned(), "never leaves"),
        ("--prune +refs/*:refs/*".to_owned(), "only grows"),
    ] {
        if spec.starts_with("--prune") || spec == "--mirror" {
            let stale = s.dir().join("stale");
            let _ = std::fs::remove_dir_all(&stale);
            s.run(s.dir(), "git", ["clone", "-q", g.bare.to_str().unwrap(), stale.to_str().unwrap()]).ok();
            let before = g.refs();
            let mut args = vec!["push", "-q", "origin"];
            args.extend(spec.split(' '));
            s.run(&stale, "git", args).fails().says(&["only grows"]);
            assert_eq!(g.refs(), before);
            continue;
        }
        g.refuses(&spec, &[says]);
    }
    // An archive: new files and new lines, and nothing else.
    let archive = |files: &[(&str, &str)], parent: Option<&str>| {
        let mut lines = String::new();
        for (name, text) in files {
            let mut hash = s.command(&g.dev.dir, "git");
            hash.args(["hash-object", "-w", "--stdin"]);
            lines.push_str(&format!("100644 blob {}\t{name}\n", run_out(hash, text.as_bytes())));
        }
        let mut tree = s.command(&g.dev.dir, "git");
        tree.arg("mktree");
        let tree = run_out(tree, lines.as_bytes());
        let mut args = vec!["commit-tree", "-m", "x", &tree];
        parent.iter().for_each(|p| args.extend(["-p", p]));
        g.dev.git_args(args)
    };
    let name = "refs/agent-runs/archive/0001";
    let first = archive(&[("a", "one\n")], None);
    g.push(&format!("{first}:{name}")).ok();
    for (commit, says) in [
        (archive(&[("a", "two\n")], Some(&first)), "old line"),
        (archive(&[("b", "one\n")], Some(&first)), "is gone"),
        (archive(&[("a", "one\nmore\n")], None), "only grows"),
    ] {
        g.refuses(&format!("-f {commit}:{name}"), &[says]);
    }
    g.refuses(&format!(":{name}"), &["only grows"]);
    let more = archive(&[("a", "one\ntwo\n"), ("b", "x\n")], Some(&first));
    g.push(&format!("{more}:{name}")).ok();
}

fn run_out(command: std::process::Command, input: &[u8]) -> String {
    run(command, input).ok().out().to_owned()
}

#[test]
fn g16_g17_what_the_pusher_sets_grants_nothing_and_what_fails_refuses() {
    let mut s = Sandbox::new();
    s.vars.insert("LANG".into(), "C.UTF-8".into());
    let g = Server::new(&s);
    let run = g.proposed("r1", "echo two > src/b");
    let push = |vars: &[(&str, &str)]| {
        let before = g.refs();
        let mut command = s.command(&g.dev.dir, "git");
        command.args(["push", "-q", "-o", "agent=approved", "origin", "wt/r1"]).args([&run]);
        command.envs(vars.iter().copied());
        let said = crate::support::run(command, b"").fails();
        assert_eq!(g.refs(), before);
        said.err().to_owned()
    };
    g.git("config receive.advertisePushOptions true");
    let evil = g.dev.dir.join(".git/objects");
    for vars in [
        vec![
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "gpg.ssh.program"),
            ("GIT_CONFIG_VALUE_0", "true"),
        ],
        vec![
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "core.hooksPath"),
            ("GIT_CONFIG_VALUE_0", "hooks"),
        ],
        vec![("AGENT_PUSHER", "tess@example.org")],
    ] {
        assert!(push(&vars).contains("nobody has approved"), "{vars:?}");
    }
    // A quarantine that is not this repository's: git-receive-pack with another object directory.
    let mut receive = s.command(&g.bare, g.bare.join("hooks/pre-receive").to_str().unwrap());
    receive.env("GIT_DIR", ".").env("GIT_QUARANTINE_PATH", &evil);
    let null = "0".repeat(40);
    let main = g.dev.git("rev-parse main");
    let line = format!("{null} {main} refs/heads/x\n");
    crate::support::run(receive, line.as_bytes()).fails().says(&["own quarantine"]);
    // A ref in a pushed replacement changes nothing: objects are read as they are.
    // G17: a gate that dies refuses.
    let hook = g.bare.join("hooks/pre-receive");
    let text = std::fs::read_to_string(&hook).unwrap();
    for broken in [
        "#!/bin/sh\nkill -9 $$\n".to_owned(),
        text.replace("exec '", "exec '/nowhere").replace("exec /", "exec /nowhere/"),
        text.replace("exec ", "ulimit -v 20000; exec "),
        text.replace("gate pre-receive", "gate pre-receive </dev/full"),
    ] {
        std::fs::write(&hook, &broken).unwrap();
        let before = g.refs();
        g.push("main:refs/heads/x").fails();
        assert_eq!(g.refs(), before, "{broken}");
    }
    std::fs::write(&hook, &text).unwrap();
    // The record of the installation says root signers, and they are gone.
    std::fs::rename(g.bare.join("agent/gate/root_signers"), g.bare.join("agent/gate/moved")).unwrap();
    g.push("main:refs/heads/x").fails().says(&["root signers"]);
    std::fs::rename(g.bare.join("agent/gate/moved"), g.bare.join("agent/gate/root_signers")).unwrap();
    g.push("main:refs/heads/x").ok();
}

#[test]
fn g18_g19_g29_people_are_not_held_up_and_agents_are() {
    let s = Sandbox::new();
    let g = Server::with(&s, &[], "protect: {release: signed, strict: approved}\n");
    let many: Vec<String> = (0..500).map(|n| format!("main:refs/heads/many/{n}")).collect();
    g.push(&many.join(" ")).ok();
    g.dev.write("by-hand", "x\n");
    g.dev.git("checkout -q main");
    g.dev.commit("by hand");
    g.push("main").ok();
    // The same push by an agent's account.
    let as_bot = |words: &str| {
        let mut command = s.command(&g.dev.dir, "git");
        command.args(["push", "-q", "origin"]).args(words.split(' ')).env("GL_USER", "bot@example.org");
        run(command, b"")
    };
    g.dev.commit("by the agent's account");
    as_bot("main").fails().says(&["no run in the ledger", "needs an approval"]);
    // G29: among a person's commits one that says it is an agent's.
    g.dev.git_args(["commit", "-q", "--allow-empty", "-m", "x\n\nAgent-run: 01arz3ndektsv4rrffq69g5fav"]);
    g.refuses("main", &["no run in the ledger proposes it"]);
    g.back();
    g.dev.git_args(["-c", "user.email=bot@example.org", "commit", "-q", "--allow-empty", "-m", "x"]);
    g.refuses("main", &["needs an approval"]);
    // Stricter branches.
    g.back();
    g.dev.git_args(["commit", "-q", "--no-gpg-sign", "--allow-empty", "-m", "unsigned"]);
    g.refuses("HEAD:refs/heads/release", &["no person's signature", "commit --amend"]);
    g.refuses("HEAD:refs/heads/strict", &["no run in the ledger"]);
    g.back();
}

#[test]
fn g25_g30_installed_uninstalled_and_the_first_pushes() {
    let s = Sandbox::new();
    let bare = s.dir().join("server.git");
    s.run(s.dir(), "git", ["init", "-q", "--bare", bare.to_str().unwrap()]).ok();
    std::fs::write(
        bare.join("hooks/pre-receive"),
        "#!/bin/sh\ncat > seen\n! grep -q refs/heads/never seen\n",
    )
    .unwrap();
    set_mode(&bare.join("hooks/pre-receive"), 0o755);
    let dev = s.repo_with("dev", &[]);
    dev.git_args(["remote", "add", "origin", bare.to_str().unwrap()]);
    let gate = |words: &str| dev.agent_args(words.split(' ').chain(["--repo", bare.to_str().unwrap()]));
    gate("gate status").with(1);
    gate("gate install").with(4).refuses(&["--root-signers"]);
    let g = Server { s: &s, bare: bare.clone(), dev: dev.clone() };
    g.install().ok().says(&["is called after the gate"]);
    let mut agent = dev.agent_command(["gate", "uninstall", "--repo", bare.to_str().unwrap()]);
    agent.env("CLAUDECODE", "1");
    run(agent, b"").with(4);
    // Everything ordinary passes, and the other hook still has its word.
    g.push("main").ok();
    g.push("main:refs/heads/never").fails();
    // Nobody may approve yet.
    dev.git("fetch -q origin");
    s.signs_with("tess");
    let run = g.proposed("r1", "echo two > src/b");
    g.refuses(&format!("--atomic wt/r1 {run}"), &["nobody may sign approvals yet", "root signer"]);
    // Only the root signer says who may.
    dev.signers(&["tess@example.org tess"], "");
    g.refuses("main", &["not signed", "a root signer"]);
    s.signs_with("tess");
    dev.git("commit -q --amend --no-edit -S");
    g.refuses("main", &["root signer"]);
    s.signs_with("root");
    dev.git("commit -q --amend --no-edit -S");
    g.push("main").ok();
    s.signs_with("tess");
    dev.approves("r1").ok();
    g.push(&format!("--atomic wt/r1 {run}")).ok();
    let status = gate("gate status --json").ok().json();
    assert_eq!((&status["signers"], &status["root"]), (&1.into(), &true.into()));
    // Who may approve cannot be read any more: agents' work stops, people's does not.
    gate("gate uninstall").ok();
    assert!(std::fs::read_to_string(bare.join("hooks/pre-receive")).unwrap().contains("cat > seen"));
    std::fs::remove_file(dev.dir.join(".git-agent/revoked_signers")).unwrap();
    dev.commit("lost");
    g.push("main").ok();
    g.install().ok();
    let two = g.proposed("r2", "echo three > src/b");
    g.refuses(&format!("--atomic wt/r2 {two}"), &["cannot be read", "it is missing"]);
    g.push("main:refs/heads/ordinary").ok();
    // Nor can the policy be read: only the root signer's repair goes in.
    gate("gate uninstall").ok();
    dev.write(".git-agent/revoked_signers", "");
    dev.write(".git-agent/policy.yml", "nonsense\n");
    dev.commit("nonsense");
    g.push("main").ok();
    g.install().ok();
    g.refuses("main:refs/heads/other", &["the policy in force cannot be read"]);
    std::fs::remove_file(dev.dir.join(".git-agent/policy.yml")).unwrap();
    dev.git("add -A");
    s.signs_with("tess");
    dev.git("commit -q -S -m repair");
    g.refuses("main", &["policy"]);
    s.signs_with("root");
    dev.git("commit -q --amend --no-edit -S");
    g.push("main").ok();
    g.push("main:refs/heads/other").ok();
}

#[test]
fn g24_over_ssh_the_refusal_reaches_the_client() {
    let s = Sandbox::new();
    let g = Server::new(&s);
    let home = s.dir().join("sshd");
    std::fs::create_dir(&home).unwrap();
    set_mode(&home, 0o700);
    let public = s.key("login").with_extension("pub");
    std::fs::copy(&public, home.join("authorized")).unwrap();
    set_mode(&home.join("authorized"), 0o600);
    let config = format!(
        "HostKey {0}\nAuthorizedKeysFile {1}/authorized\nStrictModes no\nUsePAM no\nPidFile none\n\
         PermitRootLogin yes\nAcceptEnv GIT_* AGENT_*\nPermitUserEnvironment no\nSetEnv PATH={2}\n",
        s.key("host").display(),
        home.display(),
        std::env::var("PATH").unwrap()
    );
    std::fs::write(home.join("config"), config).unwrap();
    // One connection over a pipe: no port, no daemon that could be left behind.
    std::fs::create_dir_all("/run/sshd").unwrap();
    let proxy = format!("/usr/sbin/sshd -i -f {}/config", home.display());
    let ssh = format!(
        "ssh -i {} -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
         -o SendEnv=GIT_CONFIG_* -o SendEnv=GIT_OBJECT_DIRECTORY -o ProxyCommand='{proxy}'",
        s.key("login").display()
    );
    let run = g.proposed("r1", "echo two > src/b");
    let push = |vars: &[(&str, &str)]| {
        let mut command = s.command(&g.dev.dir, "git");
        command.args(["push", "-q", "--atomic", &format!("root@server:{}", g.bare.display()), "wt/r1", &run]);
        command.env("GIT_SSH_COMMAND", &ssh).envs(vars.iter().copied());
        crate::support::run(command, b"")
    };
    push(&[])
        .fails()
        .says(&["remote: git-agent gate: refused refs/heads/wt/r1", "remote:   hint: git agent review r1"]);
    // G16: through a server that lets its callers set everything of git's.
    let elsewhere = s.dir().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let before = g.refs();
    push(&[("GIT_OBJECT_DIRECTORY", elsewhere.to_str().unwrap())]).fails();
    push(&[("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "gpg.format"), ("GIT_CONFIG_VALUE_0", "ssh")])
        .fails();
    assert_eq!(g.refs(), before);
    g.dev.approves("r1").ok();
    push(&[]).ok();
    assert!(g.refs().contains("wt/r1"));
}
