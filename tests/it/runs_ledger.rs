//! R43, R47, R49: events outlive housekeeping, newer writers and bad clocks.

use crate::support::{Mounted, Repo, Sandbox, gits};
use git_agent::git::Transaction;
use git_agent::ledger::{Draft, Ledger, runs};
use git_agent::model::{
    self, Actor, Body, Digest, Engine, Event, Isolation, Listed, Oid, PolicyInForce, RunId, Spawn,
};
use serde_json::{Value, json};

/// `list`, `show` and `log` without what belongs to one machine.
fn told(repo: &Repo, runs: &[&str]) -> Vec<Value> {
    let mut all = repo.runs();
    for run in runs {
        all.push(repo.show(run));
        all.push(repo.agent_args(["log", run, "--json"]).ok().json());
    }
    for value in &mut all {
        let map = value.as_object_mut().unwrap();
        map.remove("path");
        map.remove("live");
    }
    all
}

#[test]
fn r43_events_survive_housekeeping_and_travel() {
    for kind in [&[][..], &["--object-format=sha256"], &["--ref-format=reftable"]] {
        let newest = gits().into_iter().max_by_key(|(_, v)| *v).unwrap();
        assert!(newest.1 >= (2, 45), "this test needs a git of at least 2.45");
        let mut s = Sandbox::new();
        if kind == ["--ref-format=reftable"] {
            s = s.with_git(&newest.0);
        }
        let repo = s.repo_with("project", kind);
        repo.write("README", "uncommitted\n");
        let mut words: Vec<&str> =
            "spawn --role developer --run local --with-changes -m".split(' ').collect();
        words.extend([
            "the task",
            "--",
            "sh",
            "-c",
            "echo x >x; git add x; git commit -qm x; git rm -q x; git commit -qm gone",
        ]);
        repo.agent_args(words).ok();
        repo.git("commit -q -m second -a");
        repo.spawn("--role developer --run done", "echo y >y").ok();
        repo.agent("spawn --role tester --run ready").ok();
        let names = ["local", "done", "ready"];
        let before = told(&repo, &names);
        assert_eq!(before[3]["task"], json!("the task"));

        // Nothing but the ledger's own refs holds anything from here on.
        repo.git("branch -D wt/local wt/done wt/ready");
        repo.git("reset -q --hard");
        repo.git("reflog expire --all --expire=now --expire-unreachable=now");
        repo.git("repack -q -a -d -f");
        repo.git("prune --expire=now");
        repo.git("gc -q --prune=now");
        repo.git("fsck --strict --no-progress --no-dangling --connectivity-only");
        assert_eq!(told(&repo, &names), before);
        // And the runs go on.
        repo.spawn(
            "--role developer --run ready",
            "git log --oneline && git fsck --no-dangling && echo z >z",
        )
        .ok();
        repo.spawn("--role developer --run local", "git log --oneline && cat README").ok();
        let before = told(&repo, &names);

        let refs = "refs/agent-runs/*:refs/agent-runs/*";
        // Through the protocol: a plain copy of the object folder would bring everything.
        repo.git("clone -q --no-local . ../clone");
        let clone = repo.at("../clone");
        assert_eq!(clone.names(), [""; 0], "a plain clone brings no runs");
        clone.git_args(["fetch", "-q", "origin", refs]);
        assert_eq!(told(&clone, &names), before);
        repo.git("bundle create -q ../all.bundle --all");
        repo.git("clone -q ../all.bundle ../bundled");
        let bundled = repo.at("../bundled");
        bundled.git_args(["fetch", "-q", "origin", refs]);
        assert_eq!(told(&bundled, &names), before);
        bundled.git("fsck --strict --no-progress --no-dangling");
        // What is known and not here is refused by name; nothing of the other's is touched.
        clone.agent("path done").with(128).refuses(&["'done'", "on this machine"]);
        clone.agent("finish done").with(128).refuses(&["'done'", "on this machine"]);
        // The agent's own commits do not travel.
        let head = repo.git("for-each-ref --format=%(objectname) refs/agent-local/");
        assert_ne!(head, "", "void: the agent's commits were not kept");
        for oid in head.lines() {
            assert_ne!(
                clone.sandbox.run(&clone.dir, "git", ["cat-file", "-e", oid]).status(),
                0,
                "{oid} travelled"
            );
        }
    }
}

/// Appends an event commit with this content to a run, whatever it says.
fn force(repo: &Repo, id: &str, event: &Value) {
    let name = format!("refs/agent-runs/{id}");
    let text = event.to_string();
    let mut command = repo.sandbox.command(&repo.dir, "git");
    command.args(["hash-object", "-w", "--stdin"]);
    let blob = crate::support::run(command, text.as_bytes()).ok().out().to_owned();
    let mut command = repo.sandbox.command(&repo.dir, "git");
    command.arg("mktree");
    let tree = crate::support::run(command, format!("100644 blob {blob}\tevent.json\n").as_bytes())
        .ok()
        .out()
        .to_owned();
    let commit = repo.git_args(["commit-tree", &tree, "-p", &name, "-m", "agent: newer"]);
    repo.git_args(["update-ref", &name, &commit]);
}

/// The newest event of a run, as stored, and its digest.
fn newest(repo: &Repo, id: &str) -> (Value, String) {
    let mut command = repo.sandbox.command(&repo.dir, "git");
    command.args(["cat-file", "blob", &format!("refs/agent-runs/{id}:event.json")]);
    let bytes = crate::support::run(command, b"").ok().stdout;
    (serde_json::from_slice(&bytes).unwrap(), Digest::of(&bytes).to_string())
}

#[test]
fn r47_a_newer_event_is_shown_and_nothing_is_written_after_it() {
    for newer in ["kind", "version", "both"] {
        let s = Sandbox::new();
        let repo = s.repo();
        repo.spawn("--role developer --run old", "echo x >x").ok();
        repo.spawn("--role developer --run EG-1", "echo x >x").ok();
        let id = repo.show("EG-1")["run"].as_str().unwrap().to_owned();
        let (mut event, digest) = newest(&repo, &id);
        event["seq"] = json!(event["seq"].as_u64().unwrap() + 1);
        event["prev"] = json!(digest);
        if newer != "version" {
            event["kind"] = json!("sealed");
            event["body"] = json!({ "by": "somebody", "text": "\u{1b}[31mred" });
        }
        if newer != "kind" {
            event["v"] = json!(2);
            event["extra"] = json!({ "later": true });
        }
        force(&repo, &id, &event);
        let before = repo.git("for-each-ref refs/");

        let listing = repo.agent("list --json").ok().json();
        assert_eq!(listing["unknown"], json!([{ "run": id, "state": "unknown" }]), "{newer}");
        assert_eq!(listing["runs"].as_array().unwrap().len(), 1, "the other one is as ever");
        let text = repo.agent("list").ok();
        assert!(text.out().contains("unknown") && text.out().contains("old"), "{}", text.out());
        let log = repo.agent_args(["log", &id, "--json"]).ok().json();
        let kinds: Vec<&str> =
            log["events"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["spawn", "engine", "result", event["kind"].as_str().unwrap()]);
        assert_eq!(log["events"][3]["unknown"], json!(true));
        let log = repo.agent_args(["log", &id]).ok();
        assert!(log.out().contains("unknown") && !log.out().contains('\u{1b}'), "{}", log.out());

        for word in ["EG-1", &id] {
            for words in
                [&["finish", word][..], &["exec", word, "--", "true"], &["path", word], &["stop", word]]
            {
                repo.agent_args(words).with(128).refuses(&["newer"]);
            }
        }
        repo.spawn("--role developer --run EG-1", "echo evil >evil")
            .with(128)
            .refuses(&["does not know", "newer"]);
        assert_eq!(repo.git("for-each-ref refs/"), before, "nothing was written");
    }
}

#[test]
fn r47_a_ref_that_holds_no_event_is_named_and_harms_nobody() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run fine", "echo x >x").ok();
    repo.git("update-ref refs/agent-runs/01arz3ndektsv4rrffq69g5fav HEAD");
    repo.git("update-ref refs/agent-runs/nonsense HEAD");
    let listing = repo.agent("list --json").ok();
    listing.says(&["refs/agent-runs/nonsense", "refs/agent-runs/01arz3ndektsv4rrffq69g5fav"]);
    assert_eq!(listing.json()["broken"].as_array().unwrap().len(), 2);
    assert_eq!(listing.json()["runs"].as_array().unwrap().len(), 1);
    repo.spawn("--role developer --run fine", "echo y >y").ok();
    // A chain that was tampered with takes nothing any more.
    let id = repo.show("fine")["run"].as_str().unwrap().to_owned();
    let (mut event, digest) = newest(&repo, &id);
    event["seq"] = json!(event["seq"].as_u64().unwrap() + 1);
    event["prev"] = json!(digest.replace(|c: char| c.is_ascii_digit(), "0"));
    force(&repo, &id, &event);
    let before = repo.git("for-each-ref refs/");
    repo.agent("finish fine").with(128).refuses(&[]);
    repo.agent("log fine").with(128).refuses(&[]);
    assert_eq!(repo.git("for-each-ref refs/"), before);
}

#[test]
fn r49_order_comes_from_the_chain_and_not_from_a_clock() {
    let s = Sandbox::new();
    let told: Vec<Vec<String>> = ["first", "second"]
        .iter()
        .map(|name| {
            // The same history twice: the same order, the same object ids.
            let repo = s.empty_repo(name, &[]);
            repo.git_args([
                "-c",
                "user.name=T",
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                "x",
                "--date=@1 +0000",
            ]);
            clockwork(&repo)
        })
        .collect();
    assert_eq!(told[0], told[1]);
}

/// Two runs of one millisecond whose events go back and stand still in time.
fn clockwork(repo: &Repo) -> Vec<String> {
    let base: Oid = repo.git("rev-parse HEAD").parse().unwrap();
    // The base differs by its committer's time; only what is asserted is returned.
    let opened = git_agent::git::Repo::discover(&repo.dir).unwrap();
    let ledger = Ledger::new(&opened);
    let actor = Actor { name: "T".into(), email: "t@example.org".into() };
    let draft =
        |body, time| Draft { body, att: Vec::new(), evidence: Vec::new(), time, actor: actor.clone() };
    let times = [1_000_000, 1_000_000, 999_000, -5, 1_000_000, i64::from(i32::MAX) * 4];
    let mut ids = Vec::new();
    for (n, name) in [(2, "b"), (1, "a"), (3, "c")] {
        let run = RunId::new(1_764_531_644_000, n);
        let spawn = Body::Spawn(Spawn {
            isolation: Isolation::Worktree,
            write: Vec::new(),
            repo: "0".repeat(32),
            name: name.parse().unwrap(),
            role: "developer".parse().unwrap(),
            cr: None,
            branch: format!("refs/heads/wt/{name}"),
            base: base.clone(),
            target: None,
            local_base: false,
            policy: PolicyInForce { source: "built-in".into(), sha256: Digest::of(b"") },
            strip: Vec::new(),
            include: Listed::default(),
            port: None,
            task: None,
        });
        let first = ledger.prepare_first(&run, &draft(spawn, times[0])).unwrap();
        first.join(Transaction::new()).commit(&opened, "test").unwrap();
        for (i, time) in times.iter().enumerate().skip(1) {
            let cage =
                model::CageReport { tier: "landlock".into(), network: "open".into(), canaries: Vec::new() };
            let body = Body::Engine(Engine { engine: format!("e{i}"), command: vec!["true".into()], cage });
            ledger.append(&run, &draft(body, *time), |_| Ok(())).unwrap();
        }
        ids.push(run);
    }
    for run in &ids {
        let tip = ledger.tip(run).unwrap().unwrap();
        let chain = ledger.chain(&tip).unwrap();
        let events: Vec<&Event> = chain.known().map(|(_, e)| e).collect();
        assert_eq!(events.iter().map(|e| e.time).collect::<Vec<_>>(), times);
        assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(tip.head().unwrap().engine.as_deref(), Some("e5"), "the last in the chain is the latest");
    }
    // Equal milliseconds: by the rest of the id, newest first; and each run of the program says the same.
    let listed: Vec<String> =
        runs::list(&ledger, None).unwrap().runs.iter().map(|r| r.name.to_string()).collect();
    assert_eq!(listed, ["c", "b", "a"]);
    for _ in 0..3 {
        let names: Vec<Value> = repo.agent("list --json").ok().json()["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["name"].clone())
            .collect();
        assert_eq!(names, ["c", "b", "a"]);
    }
    let log = repo.agent("log a --json").ok().json();
    let said: Vec<String> =
        log["events"].as_array().unwrap().iter().map(|e| e["body"]["engine"].to_string()).collect();
    assert_eq!(said[1..], ["\"e1\"", "\"e2\"", "\"e3\"", "\"e4\"", "\"e5\""]);
    said
}

#[test]
fn r43_a_clone_that_cannot_be_written_can_be_read() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run r", "echo x >x").ok();
    let at = s.dir().join("mounted");
    let mounted = Mounted::tmpfs(&at, "size=16m,mode=0755");
    let clone = at.join("clone");
    s.run(s.dir(), "git", ["clone".as_ref(), "-q".as_ref(), repo.dir.as_os_str(), clone.as_os_str()]).ok();
    s.run(&clone, "git", ["fetch", "-q", "origin", "+refs/agent-runs/*:refs/agent-runs/*"]).ok();
    mounted.read_only();
    for words in ["list --json", "show r", "log r", "review r --stat", "review r --diff", "review r --json"] {
        let said = s.run(&clone, "git-agent", words.split(' ')).ok();
        assert!(!said.stdout.is_empty(), "{words}");
    }
    s.run(&clone, "git-agent", ["spawn", "--role", "developer", "--run", "no", "--", "true"])
        .with(128)
        .refuses(&["Read-only file system"]);
}
