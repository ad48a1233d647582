//! R09, R16, R17: whatever the repository looks like and from wherever it is called.

use crate::runs_spawn::nothing_left;
use crate::support::{Repo, Sandbox, both, gits, walk};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The whole way: spawn, edit, commit inside, result; the real tree as before.
fn works(repo: &Repo, run: &str) {
    let before = repo.fingerprint();
    let engine =
        "test -z \"$(git status --porcelain)\" && echo x >>src/a && git commit -qam mine && echo y >new";
    repo.spawn(&format!("--role developer --run {run}"), engine).ok();
    assert_eq!(repo.changed(run), ["A new", "M src/a"]);
    assert_eq!(
        repo.git(&format!("rev-parse wt/{run}")),
        repo.show(run)["result"]["snapshot"].as_str().unwrap()
    );
    repo.git("fsck --no-progress --no-dangling");
    before.unchanged(&repo.fingerprint());
}

#[test]
fn r09_sha256() {
    both(|s| {
        let repo = s.repo_with("project", &["--object-format=sha256"]);
        works(&repo, "x");
        assert_eq!(repo.show("x")["base"].as_str().unwrap().len(), 64);
        assert_eq!(repo.agent("exec x -- git rev-parse HEAD").ok().out().len(), 64);
    });
}

#[test]
fn r09_reftable() {
    let gits = gits();
    let newest = gits.iter().max_by_key(|(_, v)| *v).unwrap();
    assert!(newest.1 >= (2, 45), "this test needs a git of at least 2.45 beside others; found {gits:?}");
    for format in ["sha1", "sha256"] {
        let s = Sandbox::new().with_git(&newest.0);
        let repo = s.repo_with("project", &["--ref-format=reftable", &format!("--object-format={format}")]);
        works(&repo, "x");
        repo.git("pack-refs --all");
        repo.spawn("--role developer --run x", "echo z >>new").ok();
        assert_eq!(repo.kinds("x"), ["spawn", "engine", "result", "engine", "result"]);
        repo.git("worktree add -q ../linked");
        works(&repo.at("../linked"), "y");
    }
    // A git that cannot read it: refused by name, nothing done.
    let s = Sandbox::new().with_git(&newest.0);
    let repo = s.repo_with("project", &["--ref-format=reftable"]);
    let before = repo.fingerprint();
    for (git, version) in gits.iter().filter(|(_, v)| *v < (2, 45)) {
        let mut command = repo.agent_command(["spawn", "--role", "developer", "--", "true"]);
        let path = command.get_envs().find(|(k, _)| *k == "PATH").unwrap().1.unwrap().to_owned();
        let mut first = git.parent().unwrap().as_os_str().to_owned();
        first.push(":");
        first.push(path);
        command.env("PATH", first);
        let said = crate::support::run(command, b"").with(128);
        said.refuses(&["reftable", &format!("git {}.{}", version.0, version.1), "2.45"]);
    }
    before.unchanged(&repo.fingerprint());
    nothing_left(&repo);
}

#[test]
fn r09_detached_head() {
    let s = Sandbox::new();
    let repo = s.repo();
    repo.git("switch -q --detach");
    works(&repo, "x");
    let log = repo.agent("log x --json").ok().json();
    assert!(log["events"][0]["body"].get("target").is_none(), "{log}");
    repo.git("switch -q main");
    repo.spawn("--role developer --run y", "true").ok();
    let log = repo.agent("log y --json").ok().json();
    assert_eq!(log["events"][0]["body"]["target"], json!("refs/heads/main"));
}

#[test]
fn r09_no_commits_yet() {
    let s = Sandbox::new();
    let repo = s.empty_repo("project", &[]);
    for options in ["", " --with-changes", " --base HEAD"] {
        repo.spawn(&format!("--role developer{options}"), "true")
            .with(128)
            .refuses(&["no commits yet", "git commit"]);
    }
    assert_eq!(repo.git("for-each-ref"), "");
    assert_eq!(repo.agent("list").ok().out(), "");
    // An orphan branch in a repository that has others.
    let repo = s.repo_with("other", &[]);
    repo.git("checkout -q --orphan fresh");
    repo.spawn("--role developer", "true").with(128).refuses(&["no commits yet"]);
    nothing_left(&repo);
}

#[test]
fn r09_a_linked_worktree() {
    both(|s| {
        let repo = s.repo();
        repo.write("README", "further\n");
        repo.git("worktree add -q -b topic ../linked");
        let linked = repo.at("../linked");
        linked.write("README", "of the topic\n");
        let head = linked.commit("topic");
        let main = repo.fingerprint();
        works(&linked, "x");
        assert_eq!(repo.show("x")["base"], json!(head), "the linked worktree's HEAD");
        main.unchanged(&repo.fingerprint());
        assert_eq!(
            repo.git("worktree list --porcelain").matches("worktree ").count(),
            2,
            "no run is registered"
        );
        // Removed while the run lives on.
        repo.git("worktree remove --force ../linked");
        repo.spawn("--role developer --run x", "cat README").ok();
    });
}

#[test]
fn r09_a_sub_directory() {
    let s = Sandbox::new();
    let repo = s.repo();
    let top = repo.clone();
    let below = repo.at("src");
    let before = top.fingerprint();
    let said = below.spawn("--role developer --run x", "pwd; echo z >z; echo q >src/a").ok();
    assert_eq!(Path::new(said.out()), top.tree("x"), "the engine starts at the top");
    assert_eq!(top.changed("x"), ["M src/a", "A z"]);
    before.unchanged(&top.fingerprint());
    // The count of what the copy lacks is of the whole tree.
    top.write("README", "changed\n");
    below.spawn("--role developer --run y", "true").ok().says(&["1 modified"]);
    below.spawn("--role developer --run z --with-changes", "true").ok();
    assert_eq!(top.git("diff-tree -r --name-only HEAD wt/z"), "README");
    // From inside .git nothing sensible is meant; from a bare one there is no tree to start in.
    repo.at(".git").agent("list").ok();
}

#[test]
fn r09_other_shapes_work_or_are_refused_by_name() {
    type Shape = fn(&Repo) -> PathBuf;
    let shapes: &[(&str, Shape)] = &[
        ("index v4", |r| {
            r.git("update-index --index-version 4");
            r.dir.clone()
        }),
        ("split index", |r| {
            r.git("update-index --split-index");
            r.write("more", "");
            r.commit("more");
            r.dir.clone()
        }),
        ("untracked cache", |r| {
            r.git("update-index --untracked-cache");
            r.git("status");
            r.dir.clone()
        }),
        ("sparse", |r| {
            r.git("sparse-checkout set --cone src");
            r.dir.clone()
        }),
        ("sparse index", |r| {
            r.git("sparse-checkout set --cone --sparse-index src");
            r.dir.clone()
        }),
        ("shallow", |r| {
            r.write("README", "2\n");
            r.commit("second");
            r.git_args(["clone", "-q", "--depth=1", &format!("file://{}", r.dir.display()), "../shape"]);
            r.dir.join("../shape")
        }),
        ("bare", |r| {
            r.git("clone -q --bare . ../shape.git");
            r.dir.join("../shape.git")
        }),
        ("separate git dir", |r| {
            r.git("init -q --separate-git-dir ../elsewhere.git");
            r.dir.clone()
        }),
        ("submodule", |r| {
            let s = r.sandbox;
            let outer = s.repo_with("outer", &[]);
            outer.git_args(["submodule", "--quiet", "add", r.dir.to_str().unwrap(), "sub"]);
            outer.commit("submodule");
            outer.dir.join("sub")
        }),
        ("alternates", |r| {
            r.git("clone -q --shared . ../shape");
            r.dir.join("../shape")
        }),
        ("packed and commit graph", |r| {
            r.git("gc -q");
            r.git("commit-graph write --reachable");
            r.git("multi-pack-index write");
            r.dir.clone()
        }),
        ("a name with spaces and quotes", |r| {
            let to = r.sandbox.dir().join("a 'b\" $(c) \u{e9}\\");
            std::fs::rename(&r.dir, &to).unwrap();
            to
        }),
    ];
    let report: Vec<String> = std::thread::scope(|scope| {
        let all = shapes.iter().map(|(name, make)| {
            scope.spawn(move || {
                let s = Sandbox::new();
                let repo = s.repo();
                let dir = make(&repo);
                let repo = Repo { sandbox: &s, dir: dir.canonicalize().unwrap() };
                let before = repo.fingerprint();
                let mut command =
                    repo.agent_command(["spawn", "--role", "developer", "--run", "x", "--", "sh", "-c"]);
                command.arg("test -z \"$(git status --porcelain)\" && echo x >>src/a && echo y >new");
                let ended = crate::support::run(command, b"");
                if ended.status() == 0 {
                    assert_eq!(repo.changed("x"), ["A new", "M src/a"], "{name}");
                } else {
                    ended.with(128).refuses(&[]);
                    nothing_left(&repo);
                    before.unchanged(&repo.fingerprint());
                    return format!("{name}: refused");
                }
                before.unchanged(&repo.fingerprint());
                format!("{name}: works")
            })
        });
        let all: Vec<_> = all.collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    // Which of the two it is belongs to what we promise.
    let want: Vec<String> = shapes.iter().map(|(name, _)| format!("{name}: works")).collect();
    assert_eq!(report, want);
}

#[test]
fn r09_a_path_with_a_line_feed_is_refused_by_name() {
    let s = Sandbox::new();
    for name in ["a\nb", "\n", "end\n", "a\n/b"] {
        let repo = s.repo_with(name, &[]);
        repo.spawn("--role developer", "true").with(128).refuses(&["line feed"]);
        assert_eq!(repo.git("for-each-ref --format=%(refname)"), "refs/heads/main");
        assert!(!repo.dir.join(".git/agent").exists());
    }
}

#[test]
fn r16_from_a_hook_or_an_alias() {
    let s = Sandbox::new();
    let repo = s.repo();
    let decoy = s.repo_with("decoy", &[]);
    let config = repo.read(".git/config");
    let linked = repo.at("../linked");
    repo.git("worktree add -q -b topic ../linked");

    // A hook has GIT_DIR and GIT_INDEX_FILE of the commit that is being made.
    let seen = s.dir().join("seen");
    let hook = format!(
        "#!/bin/sh\nenv | grep ^GIT_ >{0}\ngit agent spawn --role developer --run \"$(cat {0}.name)\" -- sh -c \
         'git rev-parse --show-toplevel; env | grep ^GIT_DIR; git config core.bare; echo x >x' >{0}.out 2>&1\n",
        seen.display()
    );
    repo.write(".git/hooks/pre-commit", hook);
    crate::support::set_mode(&repo.dir.join(".git/hooks/pre-commit"), 0o755);
    for (from, run) in [(repo.clone(), "h1"), (repo.at("src"), "h2"), (linked.clone(), "h3")] {
        std::fs::write(format!("{}.name", seen.display()), run).unwrap();
        from.git_args(["commit", "-q", "--allow-empty", "-a", "-m", run]);
        let environment = std::fs::read_to_string(&seen).unwrap();
        assert!(environment.contains("GIT_INDEX_FILE="), "void: the hook saw no index\n{environment}");
        let out = std::fs::read_to_string(format!("{}.out", seen.display())).unwrap();
        assert!(out.contains(repo.tree(run).to_str().unwrap()), "{out}");
        assert!(!out.contains("GIT_DIR="), "{out}");
        assert_eq!(repo.changed(run), ["A x"]);
    }
    // An alias exports GIT_DIR in a linked worktree, and runs at the top.
    std::fs::remove_file(repo.dir.join(".git/hooks/pre-commit")).unwrap();
    let alias =
        "alias.go=!env | grep -c ^GIT_ >&2; git agent spawn --role developer --cr alias -- sh -c 'echo y >y'";
    linked.at("src").git_args(["-c", alias, "go"]);
    assert_eq!(repo.changed("developer-alias"), ["A y"]);
    // A bad word in the environment harms nobody: index, work tree, objects of another repository.
    let vars = [
        ("GIT_INDEX_FILE", decoy.dir.join(".git/index")),
        ("GIT_OBJECT_DIRECTORY", decoy.dir.join(".git/objects")),
        ("GIT_ALTERNATE_OBJECT_DIRECTORIES", decoy.dir.join(".git/objects")),
        ("GIT_NAMESPACE", "evil".into()),
        ("GIT_CONFIG", decoy.dir.join(".git/config")),
        ("GIT_QUARANTINE_PATH", decoy.dir.clone()),
        ("GIT_PREFIX", "src/".into()),
        ("GIT_EXTERNAL_DIFF", "false".into()),
        ("GIT_TEMPLATE_DIR", decoy.dir.clone()),
    ];
    let other = decoy.fingerprint();
    let mut command = repo.agent_command(["spawn", "--role", "developer", "--run", "env", "--", "sh", "-c"]);
    command.arg("env | grep ^GIT_ | grep -v ^GIT_AGENT_; echo z >z").envs(vars);
    let said = crate::support::run(command, b"").ok();
    assert!(!said.out().contains("decoy"), "{}", said.out());
    assert_eq!(repo.changed("env"), ["A z"]);
    other.unchanged(&decoy.fingerprint());
    assert_eq!(walk(&decoy.dir.join(".git/agent")).len(), 1, "nothing was made there");
    // GIT_DIR that the person really means.
    let mut command = decoy.agent_command(["spawn", "--role", "developer", "--run", "meant", "--", "true"]);
    command.env("GIT_DIR", repo.dir.join(".git"));
    crate::support::run(command, b"").ok();
    assert_eq!(repo.state("meant"), "proposed");
    other.unchanged(&decoy.fingerprint());

    assert_eq!(repo.read(".git/config"), config, "the shared configuration is as it was");
    assert_eq!(repo.git("config core.bare"), "false");
}

#[test]
fn r17_the_users_hooks_do_not_run() {
    for own in [false, true] {
        let s = Sandbox::new();
        let repo = s.repo();
        let marker = s.dir().join("ran");
        let script = format!("#!/bin/sh\necho \"$0 $@\" >>{}\n", marker.display());
        let folder = if own { "../hooks" } else { ".git/hooks" };
        for hook in [
            "post-checkout",
            "post-index-change",
            "reference-transaction",
            "pre-commit",
            "post-commit",
            "post-merge",
            "pre-auto-gc",
            "post-rewrite",
            "fsmonitor",
            "sendemail-validate",
        ] {
            repo.write(&format!("{folder}/{hook}"), &script);
            crate::support::set_mode(&repo.dir.join(folder).join(hook), 0o755);
        }
        if own {
            repo.git_args([Path::new("config"), Path::new("core.hooksPath"), &s.dir().join("hooks")]);
        }
        repo.git_args([
            Path::new("config"),
            Path::new("core.fsmonitor"),
            &repo.dir.join(folder).join("fsmonitor"),
        ]);
        // The control: with git alone they run.
        repo.git("worktree add -q ../linked");
        let ran = std::fs::read_to_string(&marker).unwrap();
        for hook in ["post-checkout", "reference-transaction"] {
            assert!(ran.contains(hook), "void: {hook} did not run\n{ran}");
        }
        std::fs::remove_file(&marker).unwrap();
        repo.write("README", "changed\n");
        repo.spawn("--role developer --run x --with-changes", "echo x >x; git add x; git commit -qm x").ok();
        repo.agent("spawn --role developer --run y").ok();
        repo.agent("finish x").ok();
        repo.agent("list").ok();
        let ran = std::fs::read_to_string(&marker).unwrap_or_default();
        assert_eq!(ran, "", "hooks ran");
    }
}

#[test]
fn r18_content_that_a_filter_makes() {
    both(|s| {
        let repo = s.repo();
        s.run(s.dir(), "git", ["lfs", "install", "--skip-repo"]).ok();
        repo.write(".gitattributes", "*.big filter=lfs diff=lfs merge=lfs -text\n");
        repo.write("one.big", "content that lfs keeps\n");
        repo.commit("large");
        assert!(repo.git("show HEAD:one.big").starts_with("version https://git-lfs"));
        // Present: as in any checkout, with nowhere to download from.
        repo.spawn("--role developer --run here", "cat one.big; echo more >>one.big; echo x >two.big").ok();
        assert_eq!(repo.changed("here"), ["M one.big", "A two.big"].map(String::from));
        assert!(repo.git("show wt/here:two.big").starts_with("version https://git-lfs"));
        let seen = repo.spawn("--role developer --run seen", "cat one.big").ok();
        assert_eq!(seen.out(), "content that lfs keeps");

        // Absent: the spawn fails by the filter's word, and nothing is left.
        std::fs::rename(repo.dir.join(".git/lfs"), s.dir().join("away")).unwrap();
        let known = (repo.branches(), repo.names(), repo.git("for-each-ref refs/agent-runs/"));
        let as_before = || {
            assert_eq!((repo.branches(), repo.names(), repo.git("for-each-ref refs/agent-runs/")), known);
            crate::runs_spawn::no_debris(&s.state());
            assert!(!walk(&s.state()).iter().any(|p| p.ends_with("gone") || p.ends_with("broken")));
        };
        repo.spawn("--role developer --run gone", "true").fails();
        as_before();
        // git-lfs makes its folder again.
        let _ = std::fs::remove_dir_all(repo.dir.join(".git/lfs"));
        std::fs::rename(s.dir().join("away"), repo.dir.join(".git/lfs")).unwrap();

        // A filter of the person's that fails and is required.
        repo.git("config --global filter.broken.smudge false");
        repo.git("config --global filter.broken.clean cat");
        repo.git("config --global filter.broken.required true");
        repo.write(".gitattributes", "*.big filter=lfs diff=lfs merge=lfs -text\nREADME filter=broken\n");
        repo.commit("filtered");
        repo.spawn("--role developer --run broken", "true").fails().refuses(&["README"]);
        as_before();
    });
}
