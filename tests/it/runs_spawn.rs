//! R01-R06, R08, R10, R11: a run is cut, used again, or refused with nothing left.

use crate::support::{Mounted, Repo, Sandbox, both, eventually, fingerprint, is_root, walk};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The folder of this repository's runs, once there is one.
fn root(repo: &Repo) -> Option<PathBuf> {
    let given = repo.git_args(["config", "--default", "", "--get", "agent.root"]);
    if !given.is_empty() {
        return Some(PathBuf::from(given));
    }
    repo.sandbox.roots().into_iter().next()
}

/// No branch, no event, no folder, no intent, no trash.
#[track_caller]
pub fn nothing_left(repo: &Repo) {
    assert!(!repo.branches().iter().any(|b| b.starts_with("wt/")), "{:?}", repo.branches());
    assert_eq!(repo.git("for-each-ref refs/agent-runs/ refs/agent-local/"), "");
    assert_eq!(repo.locks(), Vec::<std::path::PathBuf>::new());
    if let Some(root) = root(repo).filter(|r| r.exists()) {
        no_debris(&root);
    }
}

/// Of half-made and deleted runs nothing lies in a root.
#[track_caller]
pub fn no_debris(root: &Path) {
    for path in walk(root) {
        let inside = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        let debris =
            inside.starts_with(".new-") || inside.starts_with(".making/") || inside.starts_with(".trash/");
        assert!(!debris, "left behind: {}", path.display());
    }
}

#[test]
fn r01_a_run_in_a_clean_repository() {
    both(|s| {
        let repo = s.repo();
        let head = repo.git("rev-parse HEAD");
        let before = repo.fingerprint();

        let engine = "git status --porcelain && cat TASK.md && cat .agent-identity >identity.txt && \
                      test \"$GIT_AGENT_TASK\" -ef TASK.md && printf new >src/new && rm src/b";
        let mut words: Vec<&str> = "spawn --role ui-developer -m".split(' ').collect();
        words.extend(["make it new", "--", "sh", "-c", engine]);
        let said = repo.agent_args(words).ok();
        assert_eq!(said.out(), "make it new", "a clean status, then the task");

        let runs = repo.runs();
        assert_eq!(runs.len(), 1, "one ledger entry");
        let run = &runs[0];
        let id = run["run"].as_str().unwrap();
        assert_eq!(id.len(), 26);
        let name = format!("ui-developer-{}", &id[22..]);
        let want = json!({ "name": name, "role": "ui-developer", "state": "proposed", "live": false,
            "engine": "command", "base": head, "branch": format!("refs/heads/wt/{name}"), "files": 3 });
        for (key, value) in want.as_object().unwrap() {
            assert_eq!(run[key], *value, "{key}");
        }
        assert_eq!(repo.branches(), ["main", &format!("wt/{name}")]);
        assert_eq!(repo.kinds(&name), ["spawn", "engine", "result"]);
        assert_eq!(repo.changed(&name), ["A identity.txt", "D src/b", "A src/new"]);

        let tree = repo.tree(&name);
        assert!(tree.starts_with(s.state().join("git-agent")), "{}", tree.display());
        let identity: Value =
            serde_json::from_str(&std::fs::read_to_string(tree.join(".agent-identity")).unwrap()).unwrap();
        let want = json!({ "v": 1, "run": id, "name": name, "role": "ui-developer", "cr": null, "base": head,
            "engine": "command" });
        assert_eq!(identity, want);
        let snapshot = repo.git(&format!("rev-parse wt/{name}"));
        assert_eq!(repo.show(&name)["result"]["snapshot"], json!(snapshot));
        assert_eq!(
            repo.git(&format!("show {snapshot}:identity.txt")),
            serde_json::to_string_pretty(&identity).unwrap()
        );

        before.unchanged(&repo.fingerprint());
        assert_eq!(repo.locks(), Vec::<std::path::PathBuf>::new());
        // By each of its names.
        for word in [id, &id[..8], &format!("wt/{name}"), &format!("refs/heads/wt/{name}")] {
            assert_eq!(repo.show(word)["run"], json!(id), "{word}");
        }
    });
}

#[test]
fn r01_without_an_engine_the_run_is_ready_and_its_path_the_answer() {
    let s = Sandbox::new();
    let repo = s.repo();
    let said = repo.agent("spawn --role developer --cr 42").ok();
    assert_eq!(said.out(), repo.tree("developer-42").to_str().unwrap());
    said.says(&["git agent exec developer-42"]);
    assert_eq!(repo.state("developer-42"), "ready");
    assert_eq!(repo.kinds("developer-42"), ["spawn"]);
    let tree = repo.tree("developer-42");
    assert_eq!(std::fs::read_to_string(tree.join("src/a")).unwrap(), "one\ntwo\nthree\n");
    let said = repo.agent_args(["exec", "developer-42", "--", "git", "status", "--porcelain"]).ok();
    assert_eq!(said.out(), "");
}

#[test]
fn r01_json_is_one_line_and_the_engines_output_is_talk() {
    let s = Sandbox::new();
    let repo = s.repo();
    let said = repo.spawn("--role developer --cr 7 --json", "echo loud; echo new >new; exit 3").with(3);
    let answer = said.json();
    said.says(&["loud"]);
    let head = repo.git("rev-parse HEAD");
    let want = json!({ "v": 1, "name": "developer-7", "base": head, "again": false, "state": "proposed", "files": 1,
        "ended": { "exit": 3 }, "branch": "refs/heads/wt/developer-7" });
    for (key, value) in want.as_object().unwrap() {
        assert_eq!(answer[key], *value, "{key}");
    }
    assert_eq!(answer["path"], json!(repo.tree("developer-7")));
    assert_eq!(answer["snapshot"], json!(repo.git("rev-parse wt/developer-7")));
    assert!(answer["change"].as_str().unwrap().starts_with("sha256:"), "{answer}");
    let lines = repo.agent("list --porcelain").ok();
    let fields: Vec<&str> = lines.out().split('\t').collect();
    assert_eq!(
        fields[1..6],
        ["developer-7", "proposed", "developer", "command", "refs/heads/wt/developer-7"]
    );
    assert_eq!(fields[6], answer["change"].as_str().unwrap());
    let z = repo.agent("list --porcelain -z").ok();
    assert_eq!(z.stdout, [lines.out().as_bytes(), b"\0"].concat());
}

#[test]
fn r01_the_demo_engine_needs_nothing() {
    both(|s| {
        let repo = s.repo();
        repo.agent("spawn --role developer --cr 1 --engine demo").ok();
        let changed = repo.changed("developer-1");
        assert_eq!(changed, ["M README", "A demo-notes.md"], "{changed:?}");
        let report = &repo.agent("finish developer-1 --json").ok().json()["report"];
        assert_eq!(report["commits"]["count"], 1, "the agent's own commit is listed: {report}");
        assert_eq!(repo.git("log --format=%s wt/developer-1 --max-count=1"), "Snapshot of run developer-1");
    });
}

#[test]
fn r02_the_same_name_again_is_the_same_run() {
    both(|s| {
        let repo = s.repo();
        repo.git("worktree add -q -b other ../linked");
        repo.spawn("--role developer --run EG-026", "echo 1 >>log").ok();
        let tree = repo.tree("EG-026");
        let linked = repo.at("../linked");
        for (from, line) in [(repo.at("src"), "2"), (linked.clone(), "3"), (linked.at("src"), "4")] {
            let said = from.spawn("--role developer --run EG-026", &format!("echo {line} >>log")).ok();
            said.says(&["using run EG-026"]);
            assert_eq!(from.tree("EG-026"), tree);
        }
        assert_eq!(std::fs::read_to_string(tree.join("log")).unwrap(), "1\n2\n3\n4\n");
        assert_eq!(repo.names(), ["EG-026"], "no second entry");
        assert_eq!(repo.branches(), ["main", "other", "wt/EG-026"], "no second branch");
        assert_eq!(repo.changed("EG-026"), ["A log"]);
        // From inside the run's own tree, by a person: the repository the run belongs to.
        assert_eq!(repo.at(&tree).names(), ["EG-026"]);
        // --cr names a run too.
        repo.agent("spawn --role developer --cr 5").ok();
        repo.agent("spawn --role developer --cr 5").ok().says(&["using run developer-5"]);
        assert_eq!(repo.names(), ["EG-026", "developer-5"]);
    });
}

#[test]
fn r02_reuse_changes_no_base() {
    let s = Sandbox::new();
    let repo = s.repo();
    let base = repo.git("rev-parse HEAD");
    repo.agent("spawn --role developer --run x").ok();
    repo.write("README", "moved\n");
    repo.commit("second");
    repo.agent("spawn --role developer --run x --base HEAD").with(128).refuses(&["'x' exists already"]);
    repo.agent("spawn --role developer --run x --with-changes").with(128).refuses(&["'x' exists already"]);
    repo.spawn("--role developer --run x", "true").ok();
    assert_eq!(repo.show("x")["base"], json!(base));
    assert_eq!(repo.changed("x"), [""; 0]);
}

#[test]
fn r03_escalation_reuses_the_tree() {
    both(|s| {
        let repo = s.repo();
        repo.spawn("--role developer --run EG-1 --engine command", "echo tried >first; exit 75").with(75);
        assert_eq!(repo.state("EG-1"), "proposed");
        let tree = repo.tree("EG-1");
        repo.spawn("--role developer --run EG-1", "test -f first && echo done >second").ok();
        assert_eq!(repo.tree("EG-1"), tree, "one tree");
        assert_eq!(repo.changed("EG-1"), ["A first", "A second"], "one diff");
        assert_eq!(repo.kinds("EG-1"), ["spawn", "engine", "result", "engine", "result"]);
        let log = repo.agent("log EG-1 --json").ok().json();
        let commands: Vec<&Value> =
            log["events"].as_array().unwrap().iter().map(|e| &e["body"]["command"][2]).collect();
        assert_eq!(*commands[1], json!("echo tried >first; exit 75"), "both, in order");
        assert_eq!(*commands[3], json!("test -f first && echo done >second"));
        assert_eq!(repo.names(), ["EG-1"]);
    });
}

#[test]
fn r04_names_that_would_be_one_folder_or_branch() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.agent("spawn --role developer --run EG-1").ok();
    repo.agent("spawn --role developer --run eg-1").with(128).refuses(&["'EG-1' exists already", "eg-1"]);
    for bad in [
        "a/b", "eg-1/x", "..", ".x", "-x", "x.lock", "X.LOCK", "x.", "a..b", "\u{e9}", "e\u{301}", "a b",
        "a\n",
    ] {
        let run = format!("--run={bad}");
        let said = repo.agent_args(["spawn", "--role", "developer", &run]).with(129);
        said.refuses(&["run name"]);
        if !bad.starts_with('-') {
            repo.agent_args(["spawn", "--role", "developer", "--cr", &format!("{bad}/..")])
                .with(129)
                .refuses(&[]);
        }
    }
    repo.agent_args(["spawn", "--role", "a/b", "--run", "x"]).with(129).refuses(&["role"]);
    // A branch of the person's that differs in case only.
    repo.git("branch wt/Mine");
    repo.agent("spawn --role developer --run mine").with(128).refuses(&["wt/mine", "wt/Mine"]);
    repo.git("branch wt/taken");
    repo.agent("spawn --role developer --run taken").with(128).refuses(&["branch 'wt/taken' exists already"]);
    assert_eq!(repo.names(), ["EG-1"]);
    assert_eq!(repo.branches(), ["main", "wt/EG-1", "wt/Mine", "wt/taken"]);
    no_debris(&root(&repo).unwrap());
}

#[test]
fn r05_a_branch_that_makes_the_name_impossible() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.git("branch wt");
    repo.agent("spawn --role developer --run x").with(128).refuses(&["'wt/x'", "branch 'wt'"]);
    nothing_left(&repo);
    repo.git("branch -m wt wt/x/y");
    repo.agent("spawn --role developer --run x").with(128).refuses(&["'wt/x'", "branch 'wt/x/y'"]);
    repo.git("branch -D wt/x/y");
    repo.policy("version: 1\nbranch: agent/{name}\n");
    repo.git("branch agent");
    repo.agent("spawn --role developer --run x").with(128).refuses(&["'agent/x'", "branch 'agent'"]);
    nothing_left(&repo);
    repo.git("branch -D agent");
    repo.agent("spawn --role developer --run x").ok();
    assert_eq!(repo.branches(), ["agent/x", "main"]);
}

#[test]
fn r06_sixteen_at_once() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.git("init -q --bare ../origin");
    repo.git("remote add origin ../origin");
    repo.git("push -q -u origin main");
    repo.git("remote set-head origin main");
    repo.git("config branch.autoSetupMerge always");
    repo.git("config branch.autoSetupRebase always");
    let before = repo.fingerprint();
    let all: Vec<_> = (0..16)
        .map(|n| match n % 4 {
            0 => repo.start("--role developer --base origin/main", "echo x >x"),
            1 => repo.start(&format!("--role tester --run T-{n} --base origin"), "echo x >x"),
            2 => repo.start(&format!("--role tester --cr {n} --base refs/remotes/origin/main"), "echo x >x"),
            _ => repo.start(&format!("--role developer --run D-{n}"), "echo x >x"),
        })
        .collect();
    for running in all {
        running.end().ok();
    }
    let runs = repo.runs();
    assert_eq!(runs.len(), 16);
    let mut want: Vec<String> = runs.iter().map(|r| format!("wt/{}", r["name"].as_str().unwrap())).collect();
    want.push("main".into());
    want.sort();
    assert_eq!(repo.branches(), want, "no stray branch");
    for run in &runs {
        assert_eq!((&run["state"], &run["files"]), (&json!("proposed"), &json!(1)));
    }
    before.unchanged(&repo.fingerprint());
    assert_eq!(repo.locks(), Vec::<std::path::PathBuf>::new());
    assert_eq!(s.roots().len(), 1, "one repository id");
    no_debris(&root(&repo).unwrap());
}

#[test]
fn r06_sixteen_for_one_name() {
    let s = Sandbox::new();
    let repo = s.repo();
    // The winner stays at work until everybody has tried.
    let wait = "echo x >>x; while ! test -e go; do sleep 0.02; done; rm go";
    let all: Vec<_> = (0..16).map(|_| repo.start("--role developer --run one", wait)).collect();
    let mut all: Vec<_> = all.into_iter().map(|mut r| (r.0.take().unwrap(), false)).collect();
    eventually("fifteen are refused", || {
        for (child, over) in all.iter_mut().filter(|(_, over)| !over) {
            *over = child.try_wait().unwrap().is_some();
        }
        all.iter().filter(|(_, over)| *over).count() == 15
    });
    std::fs::write(repo.tree("one").join("go"), "").unwrap();
    let mut fine = 0;
    for (child, _) in all {
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => fine += 1,
            Some(128) => {
                assert!(err.lines().any(|l| l.starts_with("fatal: ")) && err.contains("hint: "), "{err}")
            }
            status => panic!("{status:?}: {err}"),
        }
    }
    assert_eq!(fine, 1);
    assert_eq!(repo.names(), ["one"]);
    assert_eq!(repo.kinds("one"), ["spawn", "engine", "result"]);
    assert_eq!(std::fs::read_to_string(repo.tree("one").join("x")).unwrap(), "x\n");
    assert_eq!(repo.branches(), ["main", "wt/one"]);
    no_debris(&root(&repo).unwrap());
}

/// A repository whose runs go to `root`.
fn rooted<'s>(s: &'s Sandbox, root: &Path) -> Repo<'s> {
    let repo = s.repo();
    repo.git_args([Path::new("config"), Path::new("agent.root"), root]);
    repo
}

#[test]
fn r08_something_is_in_the_way() {
    both(|s| {
        let root = s.dir().join("runs");
        let repo = rooted(s, &root);
        repo.agent("spawn --role developer --run first").ok();
        let outside = s.dir().join("outside");
        for folder in [&outside, &root.join("full"), &root.join("empty")] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(root.join("full/precious"), "precious").unwrap();
        std::fs::write(root.join("file"), "precious").unwrap();
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("nowhere"), root.join("dangling")).unwrap();
        // A run's folder that somebody copied: it holds a record, but of another name.
        std::fs::create_dir_all(root.join("stolen/host")).unwrap();
        std::fs::copy(root.join("first/host/run.json"), root.join("stolen/host/run.json")).unwrap();
        s.give(&root);
        let kept = |path: &Path| !path.components().any(|c| c.as_os_str() == ".making");
        let before = fingerprint(&root, |p| p != root && kept(p));
        let tree = repo.fingerprint();
        for name in ["full", "empty", "file", "link", "dangling", "stolen"] {
            let path = root.join(name);
            repo.spawn(&format!("--role developer --run {name}"), "true").with(128).refuses(&[
                path.to_str().unwrap(),
                "is in the way",
                "hint: ",
            ]);
        }
        before.unchanged(&fingerprint(&root, |p| p != root && kept(p)));
        tree.unchanged(&repo.fingerprint());
        assert_eq!(walk(&outside).len(), 1);
        assert_eq!(repo.branches(), ["main", "wt/first"]);
        assert_eq!(repo.names(), ["first"]);
    });
}

#[test]
fn r08_a_root_that_cannot_be_one() {
    let s = Sandbox::new();
    let repo = s.repo();
    let refused = |root: &Path, words: &[&str]| {
        repo.git_args([Path::new("config"), Path::new("agent.root"), root]);
        repo.agent("spawn --role developer --run x").with(128).refuses(words);
        nothing_left(&repo);
    };
    for inside in ["runs", ".git/runs", "src/../runs"] {
        let path = repo.dir.join(inside);
        refused(
            &path,
            &["agent.root"].map(|w| if inside.contains("..") { w } else { "inside the repository" }),
        );
    }
    refused(Path::new("relative/runs"), &["absolute"]);
    let file = s.dir().join("file");
    std::fs::write(&file, "").unwrap();
    refused(&file, &[file.to_str().unwrap()]);
    refused(&file.join("below"), &[file.to_str().unwrap()]);
    let link = s.dir().join("link");
    std::os::unix::fs::symlink(&repo.dir, &link).unwrap();
    refused(&link.join("runs"), &["inside the repository"]);
    assert_eq!(repo.git("status --porcelain"), "", "nothing was made in the repository");
    assert!(!repo.dir.join(".git/runs").exists());
}

#[test]
fn r08_a_read_only_file_system() {
    assert!(is_root(), "this test mounts: run it as root");
    let s = Sandbox::new();
    let at = s.dir().join("mounted");
    let mounted = Mounted::tmpfs(&at, "size=16m,mode=0755");
    let repo = rooted(&s, &at.join("runs"));
    // After the repository has runs there, and before: nothing can be made in either case.
    repo.spawn("--role developer --run first", "true").ok();
    mounted.read_only();
    let tree = repo.fingerprint_but("config");
    repo.spawn("--role developer --run second", "true").with(128).refuses(&["Read-only file system"]);
    assert_eq!(repo.names(), ["first"], "and what is there can be read");
    assert_eq!(repo.branches(), ["main", "wt/first"]);
    repo.git_args([Path::new("config"), Path::new("agent.root"), &at.join("others")]);
    repo.spawn("--role developer --run third", "true").with(128).refuses(&["Read-only file system"]);
    assert_eq!(repo.branches(), ["main", "wt/first"]);
    repo.git_args([Path::new("config"), Path::new("agent.root"), &at.join("runs")]);
    tree.unchanged(&repo.fingerprint_but("config"));
}

#[test]
fn r08_a_full_file_system() {
    assert!(is_root(), "this test mounts: run it as root");
    // Full at the first byte, half way through the tree, and out of inodes.
    for (options, what) in [("size=4k", "bytes"), ("size=700k", "bytes"), ("size=64m,nr_inodes=90", "inodes")]
    {
        let s = Sandbox::new();
        let at = s.dir().join("mounted");
        let _mounted = Mounted::tmpfs(&at, &format!("{options},mode=0700"));
        let repo = s.repo();
        for n in 0..100 {
            repo.write(&format!("many/{n}"), vec![b'a' + (n % 26) as u8; 16 << 10]);
        }
        repo.commit("many");
        repo.git_args([Path::new("config"), Path::new("agent.root"), &at]);
        let tree = repo.fingerprint();
        let said = repo.spawn("--role developer --run x", "true").with(128);
        said.refuses(&[]);
        let words = ["No space left", "unable to write", "unable to create"];
        assert!(words.iter().any(|w| said.err().contains(w)), "{what}: {}", said.err());
        nothing_left(&repo);
        assert!(!at.join("x").exists(), "{options}");
        tree.unchanged(&repo.fingerprint());
        // With room the same name works.
        repo.git("config --unset agent.root");
        repo.spawn("--role developer --run x", "true").ok();
    }
}

#[test]
fn r10_a_base_is_pinned_as_an_object() {
    let s = Sandbox::new();
    let repo = s.repo();
    let first = repo.git("rev-parse HEAD");
    repo.git_args(["tag", "-a", "v1", "-m", "annotated"]);
    repo.git("tag light");
    repo.git("tag -a -m nested v1-again v1");
    repo.write("src/a", "two\n");
    let second = repo.commit("second");
    repo.git("branch topic HEAD~1");
    repo.git("clone -q --bare . ../origin");
    repo.git("remote add origin ../origin");
    repo.git("fetch -q origin");
    repo.write("src/a", "three\n");
    let third = repo.commit("third");
    let cases = [
        ("topic", &first),
        ("v1", &first),
        ("v1-again", &first),
        ("light", &first),
        ("refs/tags/v1", &first),
        ("v1^{commit}", &first),
        (&first[..8], &first),
        ("HEAD~2", &first),
        ("HEAD^", &second),
        ("origin/main", &second),
        ("@", &third),
        (":/seco", &second),
    ];
    for (n, (base, want)) in cases.iter().enumerate() {
        repo.agent_args(["spawn", "--role", "developer", "--run", &format!("b{n}"), "--base", base]).ok();
        assert_eq!(repo.show(&format!("b{n}"))["base"], json!(want), "{base}");
        assert_eq!(repo.git(&format!("rev-parse wt/b{n}")), **want, "{base}");
    }
    assert_eq!(std::fs::read_to_string(repo.tree("b0").join("src/a")).unwrap(), "one\ntwo\nthree\n");

    // A base that moves later, or vanishes, changes nothing.
    repo.git("branch -f topic main");
    repo.git("tag -d v1 light v1-again");
    repo.git("update-ref -d refs/remotes/origin/main");
    repo.spawn("--role developer --run b0", "echo 1 >new; git log --format=%s").ok();
    assert_eq!(repo.show("b0")["base"], json!(first));
    assert_eq!(repo.changed("b0"), ["A new"]);

    let tree = repo.git("rev-parse HEAD^{tree}");
    for bad in ["nonsense", "HEAD:README", tree.as_str(), "--all", "-q", "", "HEAD..topic", "HEAD\ntopic"] {
        let said =
            repo.agent_args(["spawn", "--role", "developer", "--run", "bad", &format!("--base={bad}")]);
        said.fails().refuses(&[]);
    }
    assert!(!repo.branches().contains(&"wt/bad".to_owned()));
}

#[test]
fn r11_stripped_paths_are_out_of_sight() {
    both(|s| {
        let repo = s.repo();
        repo.write("CLAUDE.md", "be kind\n");
        repo.write(".claude/settings.json", "{}\n");
        repo.write(".claude/deep/er", "x\n");
        repo.write("src/CLAUDE.md", "not this one\n");
        repo.policy("version: 1\nstrip: [CLAUDE.md, .claude/]\n");

        let engine = "test ! -e CLAUDE.md && test ! -e .claude && test -e src/CLAUDE.md && git status --porcelain && \
                      git diff HEAD && git diff --cached && echo x >>src/a && git commit -qam mine";
        let said = repo.spawn("--role developer --run hidden", engine).ok();
        assert_eq!(said.out(), "", "not shown as deleted");
        assert_eq!(repo.changed("hidden"), ["M src/a"]);
        assert!(repo.agent("finish hidden --json").ok().json()["report"].get("stripped").is_none());

        // git brings them back: no change, no warning.
        repo.spawn(
            "--role developer --run hidden",
            "git checkout -q HEAD~1 -- CLAUDE.md .claude; git reset -q --hard HEAD",
        )
        .ok();
        assert_eq!(repo.changed("hidden"), ["M src/a"]);

        // The agent writes one: in the diff, and pointed out.
        let engine = "mkdir -p .claude && echo '{\"hooks\":1}' >.claude/settings.json && printf 'be kind\\n' >CLAUDE.md";
        let said = repo.spawn("--role developer --run written --json", engine).ok();
        assert_eq!(said.json()["report"]["stripped"]["first"], json!([".claude/settings.json"]));
        said.says(&["stripped paths written again", ".claude/settings.json"]);
        assert_eq!(repo.changed("written"), ["M .claude/settings.json"]);
        repo.agent("show written").ok();
        // Deleting what one does not see is no change.
        repo.spawn("--role developer --run gone", "git rm -rq --cached .claude CLAUDE.md; rm -rf .claude")
            .ok();
        assert_eq!(repo.changed("gone"), [""; 0]);
    });
}
