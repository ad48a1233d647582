//! The choice, as a person makes it: at a real terminal, and refused everywhere else.

use crate::pty::Pty;
use crate::support::{Repo, Sandbox, both, eventually, set_mode};
use std::ffi::OsStr;
use std::path::Path;

const EDITS: &str = "echo four >>src/a && echo n >new && rm src/b";

/// `git agent WORDS` at a terminal, with a pager that shows everything at once.
fn tty(repo: &Repo<'_>, words: &str) -> Pty {
    tty_with(repo, words, &[])
}

fn tty_with(repo: &Repo<'_>, words: &str, env: &[(&str, &str)]) -> Pty {
    let mut command = repo.agent_command(words.split_ascii_whitespace());
    command.env("PAGER", "cat").envs(env.iter().copied());
    Pty::start(command)
}

/// Reviews at a terminal and gives one answer.
fn answer(repo: &Repo<'_>, run: &str, key: &str) -> crate::pty::Closed {
    let mut pty = tty(repo, &format!("review {run}"));
    pty.expect("?] ");
    pty.send(&format!("{key}\n"));
    pty.end()
}

fn status(repo: &Repo<'_>) -> Vec<String> {
    // The first line keeps its leading space.
    let said = repo.sandbox.run(&repo.dir, "git", ["status", "--porcelain", "-uall"]).ok();
    said.out().lines().map(str::to_owned).collect()
}

fn digest(repo: &Repo<'_>, run: &str) -> String {
    let review = repo.agent_args(["review", run, "--json"]).ok().json();
    review["digest"].as_str().unwrap().to_owned()
}

#[test]
fn r21_yes_lands_the_change_uncommitted() {
    both(|s| {
        let repo = s.repo();
        let head = repo.git("rev-parse HEAD");
        repo.spawn("--role developer --run one", EDITS).ok();
        let tree = repo.tree("one");
        let mut pty = tty(&repo, "review one");
        let shown = pty.expect("one: apply, discard, leave, view again, ? [a/d/l/v/?] ");
        for word in ["role      developer", "tier ", "policy", "digest    sha256:", "+four", "deleted file"] {
            assert!(shown.contains(word), "no '{word}' in\n{shown}");
        }
        pty.send("apply\n");
        let said = pty.end().with(0);
        assert!(said.contains("landed one"), "{said}");
        assert_eq!(status(&repo), [" M src/a", " D src/b", "?? new"]);
        assert_eq!(repo.read("src/a"), "one\ntwo\nthree\nfour\n");
        assert_eq!(repo.git("rev-parse HEAD"), head);
        assert_eq!(repo.git("diff --cached --name-only"), "");
        assert!(!tree.exists(), "the tree is still there");
        assert_eq!(repo.state("one"), "applied");
        assert_eq!(repo.kinds("one")[..5], ["spawn", "engine", "result", "approve", "apply"]);
        let log = repo.agent("log one").ok();
        assert!(log.out().contains("at the terminal"), "{}", log.out());
        // Nothing is left to decide.
        repo.agent("review one").with(1).refuses(&["does not wait", "applied"]);
        repo.agent("review one --approve").with(1).refuses(&["applied"]);
        repo.agent("review one --diff").ok();
        repo.agent("review").with(1).refuses(&["no run waits for a review"]);
    });
}

#[test]
fn r21_apply_at_a_terminal_is_the_review() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", EDITS).ok();
    let mut pty = tty(&repo, "apply one");
    pty.expect("?] ");
    pty.send("a\n");
    pty.end().with(0);
    assert_eq!(status(&repo), [" M src/a", " D src/b", "?? new"]);
}

#[test]
fn r21b_a_conflict_touches_nothing_and_records_nothing() {
    both(|s| {
        let repo = s.repo();
        repo.spawn("--role developer --run one", "sed -i s/two/TWO/ src/a; echo n >new").ok();
        repo.write("src/a", "one\n2\nthree\n");
        let (kinds, before) = (repo.kinds("one"), repo.fingerprint());
        let said = answer(&repo, "one", "a").with(3);
        assert!(said.contains("src/a"), "{said}");
        before.unchanged(&repo.fingerprint());
        assert_eq!(repo.kinds("one"), kinds);
        assert_eq!(repo.state("one"), "proposed");
        assert!(repo.tree("one").is_dir());
        assert!(said.contains("git agent checkout one"), "how to recover: {said}");
    });
}

#[test]
fn r22_discard_lands_nothing_and_keeps_the_snapshot() {
    both(|s| {
        let repo = s.repo();
        repo.spawn("--role developer --run one", EDITS).ok();
        let (tree, before) = (repo.tree("one"), repo.fingerprint());
        let snapshot = repo.show("one")["result"]["snapshot"].as_str().unwrap().to_owned();
        let said = answer(&repo, "one", "d").with(0);
        assert!(said.contains("discarded run one"), "{said}");
        before.unchanged(&repo.fingerprint());
        assert!(!tree.exists());
        assert_eq!(repo.show("one")["state"], "rejected");
        assert!(repo.kinds("one").contains(&"reject".to_owned()));
        repo.git("gc -q --prune=now");
        assert_eq!(repo.git(&format!("cat-file -t {snapshot}")), "commit");
        repo.agent("apply one").with(4).refuses(&["rejected"]);
    });
}

#[test]
fn r23_leave_keeps_tree_and_branch() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", EDITS).ok();
    let before = repo.fingerprint();
    let said = answer(&repo, "one", "l").with(0);
    assert!(said.contains("git agent checkout one"), "{said}");
    before.unchanged(&repo.fingerprint());
    assert_eq!(repo.state("one"), "kept");
    repo.agent("prune").ok();
    assert!(repo.tree("one").is_dir());
    assert!(repo.branches().contains(&"wt/one".to_owned()));
    assert_eq!(repo.state("one"), "kept");
    // And it can still be taken.
    answer(&repo, "one", "a").with(0);
    assert_eq!(repo.state("one"), "applied");
}

#[test]
fn r24_everything_is_in_the_one_diff() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.write("gone", "gone\n");
    repo.commit("more");
    let script = "echo committed >c && git add c && git commit -qm 'by the engine' &&
        echo staged >>src/a && git add src/a && echo unstaged >>src/b && echo untracked >u && git rm -q gone &&
        printf 'a\\0b' >binary && ln -s src/a link && echo x >x && chmod +x x";
    repo.spawn("--role developer --run one", script).ok();
    let changed = repo.changed("one");
    assert_eq!(
        changed,
        ["A binary", "A c", "D gone", "A link", "M src/a", "M src/b", "A u", "A x"],
        "{changed:?}"
    );
    let diff = repo.agent("review one --diff").ok();
    repo.sandbox.run(&repo.dir, "git", ["checkout", "-q", "-b", "try"]).ok();
    let mut apply = s.command(&repo.dir, "git");
    apply.args(["apply", "--index"]);
    crate::support::run(apply, &diff.stdout).ok();
    let snapshot = repo.show("one")["result"]["snapshot"].as_str().unwrap().to_owned();
    assert_eq!(repo.git("write-tree"), repo.git(&format!("rev-parse {snapshot}^{{tree}}")));
    let stat = repo.agent("review one --stat").ok();
    assert!(stat.out().contains("8 files changed"), "{}", stat.out());
    // For eyes the object ids are short.
    let page = repo.agent("review one --html").ok();
    assert!(diff.out().contains("index 0000000000000000000000000000000000000000.."));
    assert!(!page.out().contains("0000000000000000000000000000000000000000"));
}

#[test]
fn r25_an_empty_change_can_only_be_discarded_or_left() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", "true").ok();
    let mut pty = tty(&repo, "review one");
    let shown = pty.expect("one: discard, leave, ? [d/l/?] ");
    assert!(shown.contains("The run changed nothing."), "{shown}");
    pty.send("a\n");
    let again = pty.expect("[d/l/?] ");
    assert!(!again.contains("apply"), "{again}");
    pty.send("d\n");
    pty.end().with(0);
    assert_eq!(repo.show("one")["state"], "rejected");
}

#[test]
fn r26_without_a_terminal_nobody_is_asked() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", EDITS).ok();
    let (kinds, before) = (repo.kinds("one"), repo.fingerprint_but("config"));
    repo.agent("review one").with(4).refuses(&["no terminal", "hint: ", "--diff"]);
    repo.agent("apply one").with(4).refuses(&["nobody has approved", "git agent review one"]);
    let full = digest(&repo, "one");
    let approve = |more: &[&str], env: &[(&str, &str)]| {
        let mut words = vec!["review", "one", "--approve"];
        words.extend(more);
        let mut command = repo.agent_command(words);
        command.envs(env.iter().copied());
        crate::support::run(command, b"")
    };
    let given = ["--digest", full.as_str()];
    approve(&given, &[]).with(4).refuses(&["no terminal", "agent.approve"]);
    // Not the repository's word, and not the environment's.
    repo.git("config agent.approve unattended");
    approve(&given, &[]).with(4).refuses(&["no terminal"]);
    repo.git("config --unset agent.approve");
    approve(&given, &[("GIT_CONFIG_PARAMETERS", "'agent.approve'='unattended'")])
        .with(4)
        .refuses(&["no terminal"]);
    let count = [
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "agent.approve"),
        ("GIT_CONFIG_VALUE_0", "unattended"),
    ];
    approve(&given, &count).with(4).refuses(&["no terminal"]);
    repo.git("config --global agent.approve unattended");
    approve(&[], &[]).with(4).refuses(&["the digest in full", &full]);
    approve(&["--digest", &full[..20]], &[]).with(129).refuses(&["digest"]);
    let wrong = format!("sha256:{}", "0".repeat(64));
    approve(&["--digest", &wrong], &[]).with(4).refuses(&[&full]);
    approve(&given, &[("CLAUDECODE", "1")]).with(4).refuses(&["agent"]);
    assert_eq!(repo.kinds("one"), kinds);
    approve(&given, &[]).ok().says(&["approved run one", "unattended"]);
    before.unchanged(&repo.fingerprint_but("config"));
    for words in [
        "list",
        "show one",
        "log one",
        "review one --html",
        "list --json",
        "show one --json",
        "review one --json",
    ] {
        let said = repo.agent(words).ok();
        assert!(said.out().contains("unattended"), "{words}: {}", said.out());
    }
    let mut pty = tty(&repo, "review one");
    assert!(pty.expect("?] ").contains("unattended"));
    drop(pty);
    repo.agent_args(["apply", "one", "--digest", &wrong]).with(4).refuses(&["not as"]);
    repo.agent_args(["apply", "one", "--digest", &full]).ok();
    assert_eq!(status(&repo), [" M src/a", " D src/b", "?? new"]);
}

#[test]
fn r26b_an_agent_cannot_approve() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", EDITS).ok();
    let kinds = repo.kinds("one");
    for sign in ["CLAUDECODE", "AI_AGENT", "CODEX_SANDBOX", "GEMINI_CLI"] {
        for words in
            ["review one", "review one --approve", "review one --reject", "review one --keep", "discard one"]
        {
            let said = tty_with(&repo, words, &[(sign, "1")]).end().with(4);
            assert!(said.contains("an agent may not"), "{sign} {words}: {said}");
        }
    }
    // Looking is free.
    tty_with(&repo, "review one --diff", &[("CLAUDECODE", "1")]).end().with(0);
    // A terminal of its own making is not the person's.
    let mut command = s.command(&repo.dir, "script");
    command.args(["-qec", "git-agent review one --approve", "/dev/null"]).env("CLAUDECODE", "1");
    crate::support::run(command, b"").with(4);
    // A client among the ancestors.
    let client = s.dir().join("claude");
    std::fs::copy("/bin/sh", &client).unwrap();
    set_mode(&client, 0o755);
    let mut command = s.command(&repo.dir, client.as_os_str());
    command.args(["-c", "git-agent review one --approve; exit $?"]);
    let said = Pty::start(command).end().with(4);
    assert!(said.contains("claude"), "{said}");
    assert_eq!(repo.kinds("one"), kinds);
}

#[test]
fn r27_a_running_run_is_not_judged() {
    let s = Sandbox::new();
    let repo = s.repo();
    let running = repo.start("--role developer --run one", "echo x >new; touch ready; exec sleep 300");
    eventually("the engine works", || {
        repo.agent_args(["path", "one"]).status() == 0 && repo.tree("one").join("ready").exists()
    });
    for words in ["", "--diff", "--stat", "--json", "--html", "--approve"] {
        repo.agent(&format!("review one {words}")).with(128).refuses(&["at work", "git agent stop one"]);
    }
    let said = tty(&repo, "review one").end().with(128);
    assert!(said.contains("at work"), "{said}");
    repo.agent("review").fails();
    repo.agent("stop one").ok();
    let _ = running.end().status();
    repo.agent("review one --diff").ok();
}

#[test]
fn r28_what_was_reviewed_is_what_lands() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", "echo reviewed >new").ok();
    let old = digest(&repo, "one");
    let said = tty(&repo, "review one --approve").end().with(0);
    assert!(said.contains("approved run one"), "{said}");
    let tree = repo.tree("one");
    std::fs::write(tree.join("new"), "changed afterwards\n").unwrap();
    std::fs::write(tree.join("more"), "more\n").unwrap();
    repo.agent("apply one").ok();
    assert_eq!(repo.read("new"), "reviewed\n");
    assert_eq!(status(&repo), ["?? new"]);

    repo.spawn("--role developer --run two", "echo reviewed >other").ok();
    tty(&repo, "review two --approve").end().with(0);
    let approved = digest(&repo, "two");
    assert_ne!(approved, old);
    std::fs::write(repo.tree("two").join("other"), "changed afterwards\n").unwrap();
    repo.agent("finish two").ok();
    assert_eq!(repo.state("two"), "proposed");
    repo.agent("apply two").with(4).refuses(&["nobody has approved"]);
    repo.agent_args(["apply", "two", "--digest", &approved]).with(4);
    assert_eq!(status(&repo), ["?? new"]);

    // A result that came while the person was reading.
    repo.spawn("--role developer --run three", "echo reviewed >third").ok();
    let mut pty = tty(&repo, "review three");
    pty.expect("?] ");
    std::fs::write(repo.tree("three").join("third"), "changed meanwhile\n").unwrap();
    repo.agent("finish three").ok();
    pty.send("a\n");
    let said = pty.end();
    assert_ne!(said.status, 0, "{}", said.text);
    assert_eq!(status(&repo), ["?? new"]);
    assert_eq!(repo.state("three"), "proposed");
}

/// Bytes that a terminal obeys, or that reorder text.
#[track_caller]
fn harmless(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let bad = |c: char| {
        (c.is_control() && !"\n\r\t".contains(c))
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c)
    };
    if let Some(at) = text.find(bad) {
        let around: String = text[at..].chars().take(60).collect();
        panic!("{what}: {around:?}");
    }
}

#[test]
fn r29_what_steers_a_terminal_is_shown_escaped() {
    let s = Sandbox::new();
    let repo = s.repo();
    let task = "do \u{1b}[31mred\u{1b}[0m \u{202e}drow\u{9b}2J <script>alert(1)</script>";
    let script = "printf 'c\\033[2Jd\\342\\200\\256e\\302\\2332J\\r<b>\\n' >src/a
        printf x >\"$(printf 'p\\033[31m\\342\\200\\256q\\nr')\"
        git add -A; git commit -qm \"$(printf 'm\\033]0;title\\007\\342\\200\\256')\"
        git config user.name x 2>/dev/null; :";
    let plain = [("NO_COLOR", "1")];
    let words = ["spawn", "--role", "developer", "--run", "one", "-m", task, "--", "sh", "-c", script];
    let mut command = repo.agent_command(words);
    command.envs(plain);
    harmless("spawn", Pty::start(command).end().with(0).as_bytes());
    for words in [
        "list",
        "show one",
        "log one",
        "review one --diff",
        "review one --stat",
        "review one --json",
        "review one --html",
        "show one --json",
        "log one --json",
        "list --json",
    ] {
        harmless(words, tty_with(&repo, words, &plain).end().with(0).as_bytes());
    }
    let mut pty = tty_with(&repo, "review one", &plain);
    let shown = pty.expect("?] ");
    harmless("review", shown.as_bytes());
    for word in ["c\\x1b[2Jd\\u{202e}e\\x9b2J\\r<b>", "m\\x1b]0;title\\x07", "do \\x1b[31mred", "+"] {
        assert!(shown.contains(word), "no {word:?} in {shown}");
    }
    pty.send("l\n");
    pty.end().with(0);
    // Into a pipe: the exact bytes for git apply; JSON says the same in its own escapes.
    let diff = repo.agent("review one --diff").ok();
    assert!(diff.stdout.contains(&0x1b));
    let json = repo.agent("review one --json").ok();
    harmless("review --json", &json.stdout);
    assert_eq!(json.json()["task"].as_str().unwrap().trim_end(), task);
    let page = repo.agent("review one --html").ok();
    harmless("review --html", &page.stdout);
    assert!(page.out().contains("&lt;script&gt;alert(1)"), "{}", page.out());
    assert!(!page.out().contains("<script") && !page.out().contains("<b>"));
    // As an applied change's own talk.
    harmless("apply", answer(&repo, "one", "a").text.replace('\u{1b}', "").as_bytes());
}

/// Everything in a tree that makes git start a program. Each leaves `marker`.
fn plant(s: &Sandbox, tree: &Path, marker: &Path) {
    let script = s.dir().join("evil");
    std::fs::write(
        &script,
        format!("#!/bin/sh\necho \"$0 $*\" >>'{}'\ncat 2>/dev/null\nexit 0\n", marker.display()),
    )
    .unwrap();
    set_mode(&script, 0o755);
    let evil = script.to_str().unwrap();
    std::fs::write(tree.join(".gitattributes"), "* filter=evil diff=evil merge=evil\n").unwrap();
    let config = format!(
        "[core]\n\tbare = false\n\tfsmonitor = {evil}\n\thooksPath = {dir}\n\tpager = {evil}\n[diff]\n\texternal = {evil}\n\
         [filter \"evil\"]\n\tclean = {evil}\n\tsmudge = {evil}\n\trequired = true\n\
         [diff \"evil\"]\n\ttextconv = {evil}\n\tcommand = {evil}\n[merge \"evil\"]\n\tdriver = {evil}\n",
        dir = s.dir().join("hooks").display()
    );
    std::fs::create_dir_all(s.dir().join("hooks")).unwrap();
    for hook in ["post-checkout", "post-index-change", "reference-transaction"] {
        std::fs::copy(&script, s.dir().join("hooks").join(hook)).unwrap();
        set_mode(&s.dir().join("hooks").join(hook), 0o755);
    }
    let git_dir = tree.join("../store/worktrees/tree").canonicalize().unwrap();
    std::fs::write(git_dir.join("config.worktree"), config).unwrap();
    let shared = git_dir.join("../../config");
    set_mode(&shared, 0o644);
    let mut text = std::fs::read_to_string(&shared).unwrap();
    text.push_str("[extensions]\n\tworktreeConfig = true\n");
    std::fs::write(&shared, text).unwrap();
}

#[test]
fn r30_nothing_planted_in_a_tree_is_run() {
    // As an ordinary user: to root git calls a run's tree somebody else's and does not even start.
    let s = Sandbox::as_user();
    let repo = s.repo();
    // The person's own text conversion must not run either, just because a run's attributes name it.
    let marker = s.dir().join("marker");
    let own = s.dir().join("own");
    std::fs::write(&own, format!("#!/bin/sh\necho own >>'{}'\ncat \"$1\"\n", marker.display())).unwrap();
    set_mode(&own, 0o755);
    repo.git_args([OsStr::new("config"), "--global".as_ref(), "diff.own.textconv".as_ref(), own.as_os_str()]);
    let edits = format!("{EDITS}; printf '* diff=own\\n' >.gitattributes");
    for run in ["one", "two", "three"] {
        repo.spawn(&format!("--role developer --run {run}"), &edits).ok();
        let tree = repo.tree(run);
        plant(&s, &tree, &marker);
        // The positive control: plain git in there does run it.
        let mut control = s.command(&tree, "sh");
        control.args(["-c", "touch README; git status; git diff"]);
        let _ = crate::support::run(control, b"").status();
        assert!(marker.exists(), "the bait does not work");
        std::fs::remove_file(&marker).unwrap();
    }
    let safe = |what: &str| {
        let ran = std::fs::read_to_string(&marker).unwrap_or_default();
        assert_eq!(ran, "", "{what} ran what was planted");
    };
    for words in [
        "list",
        "show one",
        "log one",
        "path one",
        "review one --diff",
        "review one --stat",
        "review one --json",
        "review one --html",
        "prune --dry-run",
        "prune",
    ] {
        repo.agent(words).ok();
        safe(words);
    }
    answer(&repo, "one", "a").with(0);
    safe("review and apply");
    answer(&repo, "two", "d").with(0);
    safe("discard");
    let dir = s.dir().join("look");
    repo.agent_args([OsStr::new("checkout"), "three".as_ref(), dir.as_os_str()]).ok();
    safe("checkout");
    answer(&repo, "three", "l").with(0);
    repo.agent("prune").ok();
    safe("prune at the end");
    assert_eq!(repo.read("src/a"), "one\ntwo\nthree\nfour\n");
}

#[test]
fn r55_a_follow_up_continues_from_what_was_applied() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", "echo four >>src/a; echo n >new").ok();
    answer(&repo, "one", "a").with(0);
    let run = repo.show("one")["run"].clone();
    repo.spawn("--role developer --run one", "echo five >>src/a; echo m >>new").ok();
    assert_eq!(repo.show("one")["run"], run, "the same run");
    let diff = repo.agent("review one --diff").ok();
    for (line, there) in [("+five", true), ("+m", true), ("+four", false), ("+n", false)] {
        assert_eq!(diff.out().lines().any(|l| l == line), there, "{line}:\n{}", diff.out());
    }
    answer(&repo, "one", "a").with(0);
    assert_eq!(repo.read("src/a"), "one\ntwo\nthree\nfour\nfive\n");
    assert_eq!(repo.read("new"), "n\nm\n");
    assert_eq!(repo.state("one"), "applied");
}

#[test]
fn ctrl_c_and_ctrl_d_decide_nothing() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", EDITS).ok();
    let (kinds, before) = (repo.kinds("one"), repo.fingerprint());
    for key in ["\u{3}", "\u{4}", "q\n"] {
        let mut pty = tty(&repo, "review one");
        let modes = pty.modes();
        pty.expect("?] ");
        pty.send(key);
        let same = |a: &rustix::termios::Termios, b: &rustix::termios::Termios| {
            a.local_modes == b.local_modes
                && a.input_modes == b.input_modes
                && a.output_modes == b.output_modes
        };
        assert!(same(&modes, &pty.modes()));
        let closed = pty.end();
        assert!([1, 130].contains(&closed.status), "{key:?}: {}\n{}", closed.status, closed.text);
    }
    before.unchanged(&repo.fingerprint());
    assert_eq!(repo.kinds("one"), kinds);
    // Help and an empty answer ask again.
    let mut pty = tty(&repo, "review one");
    pty.expect("?] ");
    pty.send("?\n");
    assert!(pty.expect("?] ").contains("a - apply"));
    pty.send("\n");
    pty.expect("?] ");
    pty.send("v\n");
    assert!(pty.expect("?] ").contains("+four"));
    pty.send("l\n");
    pty.end().with(0);
}

#[test]
fn a_pager_that_ends_early_or_is_interrupted_is_no_trouble() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", "seq 20000 >new").ok();
    for pager in ["head -n 1", "true", "false", "/nonexistent", ""] {
        let mut pty = tty_with(&repo, "review one", &[("PAGER", pager)]);
        pty.expect("?] ");
        pty.send("q\n");
        pty.end().with(1);
    }
    // Ctrl-C in the pager is the pager's.
    let pager = "trap 'echo stopped; seen=1' INT; echo reading; until [ \"$seen\" ]; do sleep 0.1; done; cat >/dev/null";
    let mut pty = tty_with(&repo, "review one", &[("GIT_PAGER", pager)]);
    pty.expect("reading");
    pty.send("\u{3}");
    pty.expect("?] ");
    pty.send("l\n");
    pty.end().with(0);
    // A repository does not choose the pager.
    repo.git("config core.pager false");
    let mut command = repo.agent_command(["review", "one"]);
    command.env("PAGER", "cat");
    let mut pty = Pty::start(command);
    pty.expect("+19999");
    drop(pty);
}

#[test]
fn colours_are_ours_and_can_be_refused() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", EDITS).ok();
    let shown = |env: &[(&str, &str)]| {
        let mut pty = tty_with(&repo, "review one", env);
        pty.expect("?] ")
    };
    assert!(shown(&[]).contains("\u{1b}[32m+four"));
    assert!(!shown(&[("NO_COLOR", "1")]).contains('\u{1b}'));
    assert!(!shown(&[("TERM", "dumb")]).contains('\u{1b}'));
    repo.git("config color.ui never");
    assert!(!shown(&[]).contains('\u{1b}'));
    repo.git("config color.agent always");
    assert!(shown(&[]).contains('\u{1b}'));
    // 20 columns: nothing is cut or lost.
    let mut command = repo.agent_command(["review", "one"]);
    command.env("PAGER", "cat").env("NO_COLOR", "1");
    let mut pty = Pty::sized(command, 5, 20);
    assert!(pty.expect("?] ").contains("+four"));
    pty.send("l\n");
    pty.end().with(0);
}

#[test]
fn review_without_a_name() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.agent("review").with(1).refuses(&["no run waits", "git agent list --all"]);
    repo.spawn("--role developer --run one", EDITS).ok();
    let mut pty = tty(&repo, "review");
    pty.expect("one: apply");
    drop(pty);
    repo.agent("review --stat").ok();
    repo.spawn("--role developer --run two", EDITS).ok();
    repo.agent("review").with(129).refuses(&["2 runs wait", "one", "two", "git agent review"]);
    repo.agent("review three").fails().refuses(&["three"]);
    answer(&repo, "two", "d").with(0);
    repo.agent("review --diff").ok();
    // One thing at a time.
    repo.agent("review one --diff --stat").with(129).refuses(&["--stat"]);
}

#[test]
fn the_page_stands_alone() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.spawn("--role developer --run one", EDITS).ok();
    let said = repo.agent("review one --html=out.html").ok();
    assert_eq!(said.out(), "");
    let page = repo.read("out.html");
    assert_eq!(page.trim_end(), repo.agent("review one --html").ok().out());
    for word in [
        "<!doctype html>",
        "Content-Security-Policy",
        "default-src 'none'",
        "prefers-color-scheme",
        "+four",
        "sha256:",
    ] {
        assert!(page.contains(word), "no {word}");
    }
    for word in ["http:", "https:", "src=", "<script", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }
    repo.agent("review one --html=no/such/folder.html").with(128).refuses(&["no/such/folder.html"]);
}

#[test]
fn the_demo_goes_through_in_an_empty_home() {
    both(|s| {
        let tmp = s.dir().join("tmp");
        std::fs::create_dir(&tmp).unwrap();
        s.give(&tmp);
        let demo = || {
            let mut command = s.command(s.dir(), "git-agent");
            command.arg("demo").env("TMPDIR", &tmp).env("PAGER", "cat").env("NO_COLOR", "1");
            // Nobody told git a name.
            command.env("GIT_CONFIG_GLOBAL", "/dev/null");
            command
        };
        for (key, status, words) in [
            ("a", 0, &[" M README.md", " D obsolete.txt", "?? demo-notes.md", "landed demo"][..]),
            ("d", 0, &["discarded run demo"]),
            ("l", 0, &["left run demo"]),
            ("\u{4}", 1, &["remove it with: rm -rf"]),
        ] {
            let mut pty = Pty::start(demo());
            pty.expect("?] ");
            pty.send(&if status == 0 { format!("{key}\n") } else { key.into() });
            let said = pty.end().with(status);
            for word in words {
                assert!(said.contains(word), "{key}: no '{word}' in\n{said}");
            }
            assert_eq!(said.contains("git status in your work tree"), key == "a", "{said}");
        }
        let said = crate::support::run(demo(), b"").ok();
        said.says(&["Nothing landed", "git agent review demo"]);
        assert!(said.out().contains("obsolete.txt"), "{}", said.out());
    });
}
