//! R31, as far as a policy's checks go: run in the cage on a clean checkout of the snapshot, recorded, shown, and
//! without any power over the result.

use crate::support::{Repo, Sandbox, both, eventually, processes_of};
use serde_json::{Value, json};

const POLICY: &str = "version: 1
roles:
  developer:
    kind: writer
    setup: {run: [[sh, -c, 'mkdir deps && echo good >deps/answer']]}
    checks:
      unit: [sh, -c, 'echo testing; cat deps/answer; test \"$(cat deps/answer)\" = good && test -f made']
      lint: [sh, -c, 'printf \"bad \\033[31m line\\n\" >&2; exit 3']
      absent: [no-such-tool]
";

fn review(repo: &Repo, run: &str) -> Value {
    repo.agent_args(["review", run, "--json"]).ok().json()
}

fn check<'v>(review: &'v Value, name: &str) -> &'v Value {
    review["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {review}"))
}

#[test]
fn r31_checks_and_their_results() {
    both(|s| {
        let repo = s.repo();
        repo.write(".gitignore", "deps/\n");
        repo.trusted_policy(POLICY);
        let before = repo.fingerprint();
        let said = repo.spawn("--role developer --run x", "echo 1 >made").ok();
        said.says(&[
            "check unit passed",
            "check lint failed with status 3",
            "check absent: could not be run",
        ]);
        before.unchanged(&repo.fingerprint());
        assert_eq!(repo.changed("x"), ["A made"]);
        let seen = review(&repo, "x");
        let names: Vec<_> = seen["checks"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
        assert_eq!(names, [json!("setup"), json!("unit"), json!("lint"), json!("absent")]);
        assert_eq!(check(&seen, "unit")["passed"], true);
        assert_eq!(check(&seen, "unit")["tail"], "testing\ngood\n");
        assert_eq!(check(&seen, "lint")["ended"], json!({ "exit": 3 }));
        assert_eq!(check(&seen, "absent")["passed"], false);
        assert_eq!(check(&seen, "absent")["ended"], Value::Null);
        assert!(check(&seen, "absent")["tail"].as_str().unwrap().contains("no such program"));
        // In the ledger, and wherever a person looks.
        let result = &repo.show("x")["events"][2];
        assert_eq!(result["body"]["checks"][1]["name"], "unit");
        assert!(result["att"].as_array().unwrap().iter().any(|a| a["name"] == "check-lint"), "{result}");
        let shown = repo.agent("show x").ok();
        assert!(shown.out().contains("check lint failed with status 3"), "{}", shown.out());
        let page = repo.agent("review x --html").ok();
        let page = page.out();
        assert!(
            page.contains("check lint failed with status 3") && page.contains("bad \\x1b[31m line"),
            "{page}"
        );
        assert!(!page.contains('\u{1b}'));
    });
}

#[test]
fn r31_checks_see_the_snapshot_and_nothing_that_was_prepared_for_them() {
    both(|s| {
        let repo = s.repo();
        repo.write(".gitignore", "deps/\nlocal\n");
        repo.write("local", "mine\n");
        let outside = s.dir().join("outside");
        let unit = format!(
            "git status --porcelain; git log -1 --format=%s; cat local; test -e planted && echo planted; \
             test -e \"$HOME/.planted\" && echo home; test -e \"$XDG_CACHE_HOME/planted\" && echo cache; \
             echo x >>src/a; echo x >junk; echo x >{}; true",
            outside.display()
        );
        repo.git("add .gitignore");
        repo.only_policy(&format!(
            "version: 1\ninclude: [local]\nroles:\n  developer:\n    kind: writer\n    checks: {{unit: [sh, -c, {}]}}\n",
            json!(unit)
        ));
        let engine = "echo 1 >made; mkdir deps; echo x >deps/planted; echo theirs >local; \
                      echo x >\"$HOME/.planted\"; echo x >\"$XDG_CACHE_HOME/planted\"";
        repo.spawn("--role developer --run x", engine).ok();
        let seen = review(&repo, "x");
        let tail = check(&seen, "unit")["tail"].as_str().unwrap();
        let (seen_there, denied) = tail.trim_end().split_at(tail.find("sh: ").unwrap());
        assert_eq!(seen_there, "Snapshot of run x\nmine\n");
        // What a denial is called depends on the tier.
        let words = ["Permission denied", "Read-only file system"];
        assert!(words.iter().any(|w| denied.ends_with(w)) && denied.lines().count() == 1, "{denied}");
        assert!(!outside.exists());
        // What the check wrote is no part of anything.
        assert_eq!(repo.changed("x"), ["A made"]);
        let said = repo.agent("finish x --json").ok().json();
        assert_eq!(said["unchanged"], true, "{said}");
        let tree = repo.tree("x");
        let checks = tree.parent().unwrap().join("checks");
        assert_eq!(std::fs::read_dir(&checks).unwrap().count(), 1, "only the cache stays");
        // And no engine sees it.
        let script = format!("ls {0} || echo hidden", checks.display());
        let said = repo.spawn("--role developer --run x", &script).ok();
        assert_eq!(said.out(), "hidden");
    });
}

#[test]
fn r31_no_checks_where_nothing_is_claimed() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.write(".gitignore", "deps/\n");
    repo.trusted_policy(POLICY);
    let said = repo.spawn("--role developer --run declined", "echo 1 >made; exit 75").with(75);
    assert!(!said.err().contains("check "), "{}", said.err());
    assert_eq!(review(&repo, "declined")["checks"], json!([]));
    let said = repo.spawn("--role developer --run nothing", "true").ok();
    assert!(!said.err().contains("check "), "{}", said.err());
    // A failing setup is the answer of all of them.
    repo.trusted_policy(&POLICY.replace("mkdir deps &&", "test ! -e made && mkdir deps &&"));
    repo.spawn("--role developer --run x", "echo 1 >made").ok();
    let seen = review(&repo, "x");
    assert_eq!(check(&seen, "setup")["passed"], false);
    assert_eq!(check(&seen, "unit")["ended"], Value::Null);
    assert_eq!(check(&seen, "unit")["tail"], "not run: the setup failed");
    // A person who takes the result by hand gets them as well.
    repo.trusted_policy(POLICY);
    repo.agent("spawn --role developer --run hand").ok();
    repo.agent_args(["exec", "hand", "--", "sh", "-c", "echo 1 >made"]).ok();
    repo.agent("finish hand").ok().says(&["check unit passed"]);
}

#[test]
fn r31_a_check_that_never_ends_can_be_stopped_and_killed() {
    let s = Sandbox::new();
    let repo = s.repo();
    let go = s.dir().join("never");
    let hang = format!("echo before; : {}; sleep 600", go.display());
    repo.trusted_policy(&format!(
        "version: 1\nroles:\n  developer:\n    kind: writer\n    checks:\n      hang: [sh, -c, '{hang}']\n      after: [\"true\"]\n"
    ));
    let at_work = || !processes_of(&go).is_empty();
    let running = repo.start("--role developer --run x", "echo 1 >made");
    eventually("the check is at work", at_work);
    assert_eq!(repo.state("x"), "running");
    repo.agent("stop x").ok();
    running.end().ok();
    let seen = review(&repo, "x");
    assert_eq!(check(&seen, "hang")["ended"], "stopped");
    assert_eq!(check(&seen, "hang")["tail"], "before\n");
    assert_eq!(check(&seen, "after")["tail"], "not run: stopped");

    let running = repo.start("--role developer --run y", "echo 1 >made");
    eventually("the check is at work", at_work);
    running.signal(rustix::process::Signal::KILL);
    running.end().with(137);
    eventually("nothing is left", || !at_work());
    assert_eq!(repo.state("y"), "interrupted");
    repo.agent("discard y").ok();
}
