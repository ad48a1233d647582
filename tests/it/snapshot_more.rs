//! S11 to S15: submodules, attributes, settings of the agent's, names that differ in case, many and large files.

use crate::snapshot::{exact, ground, list, notes};
use crate::support::*;

#[test]
fn s11_submodule_states_are_reported_and_new_commits_are_kept() {
    for (git, _) in gits() {
        let s = Sandbox::new().with_git(&git);
        let repo = ground(&s);
        let lib = s.repo_with("lib", &[]);
        for name in ["new", "dirty", "removed", "moved"] {
            repo.git_args(
                ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add"]
                    .into_iter()
                    .chain([lib.dir.to_str().unwrap(), name]),
            );
        }
        repo.commit("subs");
        let id = "-c user.name=n -c user.email=e";
        let script = format!(
            "git init -q new; cd new; echo n >n; git add n; git {id} commit -qm one; echo m >m; git add m; git {id} commit -qm two; cd ..
             git init -q dirty; cd dirty; echo n >n; git add n; git {id} commit -qm one; echo more >n; cd ..
             rm -rf removed; sed -i 's|/lib|/elsewhere|;t;' .gitmodules; echo x >>mod"
        );
        repo.spawn("--role developer --run r", &script).ok();
        let said = list(&repo, "r", "submodules");
        let about = |name: &str, words: &str| {
            assert!(
                said.iter().any(|l| l.starts_with(name) && l.contains(words)),
                "{name} {words}: {said:?}"
            );
        };
        about("new", "new commit");
        about("dirty", "with changes that are in the tree only");
        about("removed", "removed");
        about("moved", "its url is now");
        // The new commits are here, whole, and outlive the run's tree.
        repo.agent("discard r").ok();
        let refs = repo.git("for-each-ref --format=%(refname) refs/agent-local/");
        assert_eq!(refs.lines().filter(|l| l.contains("/sub/")).count(), 2, "{refs}");
        for name in refs.lines().filter(|l| l.contains("/sub/")) {
            assert_ne!(repo.git_args(["rev-list", "--objects", name]), "");
        }
        repo.git("fsck --full --strict");
    }
}

#[test]
fn s11_a_new_commit_that_cannot_be_kept_fails_the_snapshot_by_name() {
    let s = Sandbox::new();
    let repo = ground(&s);
    let lib = s.repo_with("lib", &[]);
    repo.git_args([
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        lib.dir.to_str().unwrap(),
        "sub",
    ]);
    repo.commit("sub");
    // The commit is there, a blob that it needs is not.
    let script =
        "git init -q sub; cd sub; echo n >n; git add n; git -c user.name=n -c user.email=e commit -qm one
        b=$(git rev-parse HEAD:n); rm -f .git/objects/$(echo $b | cut -c1-2)/$(echo $b | cut -c3-)";
    repo.spawn("--role developer --run r", script).with(128).says(&[
        "submodule sub",
        "would be lost with the run",
        "git agent finish r",
    ]);
    assert_eq!(repo.state("r"), "failed");
    assert!(repo.tree("r").join("sub/n").exists());
}

#[test]
fn s12_attributes_that_the_run_changed() {
    for (git, _) in gits() {
        let s = Sandbox::new().with_git(&git);
        let repo = ground(&s);
        let script = r#"
printf '*.crlf text eol=crlf\n*.u16 text working-tree-encoding=UTF-16LE\n*.id ident\n*.f filter=nobody\n*.nd -diff\n*.b binary\nmod text eol=crlf\n' >.gitattributes
printf 'a\r\nb\r\n' >x.crlf; printf 'h\000i\000\n\000' >x.u16; printf '$Id$\n' >x.id; echo f >x.f
printf 'no\000diff\n' >x.nd; printf 'bin\r\n' >x.b; printf 'mod\r\nsecond line\r\nthird\r\n' >mod
"#;
        repo.spawn("--role developer --run r", script).ok();
        let changed = repo.changed("r");
        for line in ["A .gitattributes", "A x.crlf", "A x.u16", "A x.f", "A x.nd", "A x.b", "M mod"] {
            assert!(changed.iter().any(|l| l == line), "{line}: {changed:?}");
        }
        // What a checkout of it makes is what was on disk (a checkout fills in the id, which nobody wrote).
        exact(&repo, "r", &["x.id"]);
        assert_eq!(repo.git("cat-file blob wt/r:mod"), "mod\nsecond line\nthird");
    }
}

#[test]
fn s13_what_the_agent_set_has_no_effect() {
    let s = Sandbox::new();
    let repo = ground(&s);
    let script = "d=$(git rev-parse --git-dir); c=$(git rev-parse --git-common-dir)
        for f in $d/info $c/info; do mkdir -p $f 2>/dev/null; echo '*' >$f/exclude; echo '* -text filter=x eol=crlf' >$f/attributes; done 2>/dev/null
        for kv in core.excludesFile=$PWD/all core.fileMode=false core.ignoreCase=true core.symlinks=false core.autocrlf=true status.showUntrackedFiles=no core.precomposeUnicode=true core.checkStat=minimal diff.ignoreSubmodules=all; do
          git config ${kv%%=*} ${kv#*=} 2>/dev/null; git config --worktree ${kv%%=*} ${kv#*=} 2>/dev/null; done
        echo '*' >.git-all; echo new >new; chmod +x plain; printf 'a\\r\\n' >crlf; rm del; ln -s mod newlink; echo changed >>mod; true";
    repo.spawn("--role developer --run r", script).ok();
    let mut changed = repo.changed("r");
    changed.sort();
    assert_eq!(changed, ["A .git-all", "A new", "A newlink", "D del", "M crlf", "M mod", "M plain"]);
    exact(&repo, "r", &[]);
}

#[test]
fn s14_names_that_differ_in_case_or_normalisation() {
    let s = Sandbox::new();
    let repo = ground(&s);
    let script = "mv mod MOD; echo upper >DEL; printf 'nfc\\n' >\"$(printf 'caf\\303\\251')\"; printf 'nfd\\n' >\"$(printf 'cafe\\314\\201')\"
        mv dir DIR; mkdir dir; echo both >dir/one";
    repo.spawn("--role developer --run r", script).ok();
    let changed = repo.changed("r");
    for line in ["A MOD", "D mod", "A DEL", "A DIR/one", "M dir/one"] {
        assert!(changed.iter().any(|l| l == line), "{line}: {changed:?}");
    }
    assert_eq!(changed.iter().filter(|l| l.contains("caf")).count(), 2, "{changed:?}");
    exact(&repo, "r", &[]);
    let _ = notes(&repo, "r");
}

/// A large file is shown by size and digest and never as lines.
#[test]
fn s15_a_large_file_is_shown_by_size_not_by_content() {
    let s = Sandbox::new();
    let repo = ground(&s);
    repo.spawn("--role developer --run r", "truncate -s 200M large; echo x >>mod").ok();
    let review = repo.agent("review r --json").ok();
    assert!(review.out().len() < 20_000, "{}", review.out().len());
    let stat = repo.agent("review r --stat").ok();
    assert!(stat.out().contains("209715200 bytes"), "{}", stat.out());
}
