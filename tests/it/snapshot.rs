//! S01-S10, S16, S17: the snapshot is what is on disk, path by path, and what it cannot hold is reported.
//! Then the same against an engine that wants it to hang, to die or to lie.

use crate::support::{Repo, Sandbox, both, eventually, walk};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Kind, executable or not, bytes or target.
type Content = (&'static str, bool, Vec<u8>);

/// Files and links of a folder, as a git tree could hold them.
fn contents(root: &Path, readable_to: Option<&Sandbox>) -> BTreeMap<PathBuf, Content> {
    let mut all = BTreeMap::new();
    for path in walk(root) {
        let below = path.strip_prefix(root).unwrap().to_owned();
        if below.components().any(|c| c.as_os_str() == ".git")
            || below.starts_with("TASK.md")
            || below.starts_with(".agent-identity")
        {
            continue;
        }
        // A path that is too long for anybody is in no snapshot either.
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        let mode = meta.permissions().mode();
        if readable_to.is_some_and(|s| s.is_user() && meta.is_file() && mode & 0o400 == 0) {
            continue;
        }
        if meta.is_file() {
            all.insert(below, ("file", mode & 0o100 != 0, std::fs::read(&path).unwrap()));
        } else if meta.is_symlink() {
            let target = std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
            all.insert(below, ("link", false, target));
        }
    }
    all
}

/// Extracts a run's snapshot and compares it with its tree; `but` are paths that the tree may have more.
#[track_caller]
pub fn exact(repo: &Repo<'_>, run: &str, but: &[&str]) {
    let snapshot = repo.show(run)["result"]["snapshot"].as_str().unwrap().to_owned();
    let out = repo.sandbox.dir().join(format!("extracted-{run}"));
    std::fs::create_dir(&out).unwrap();
    repo.sandbox.give(&out);
    let index = out.join("index");
    let git = |args: &[&str]| {
        let mut command = repo.sandbox.command(&repo.dir, "git");
        command.env("GIT_INDEX_FILE", &index).args(args);
        crate::support::run(command, b"").ok();
    };
    git(&["read-tree", &snapshot]);
    git(&["checkout-index", "-a", &format!("--prefix={}/tree/", out.display())]);
    let mut have = contents(&out.join("tree"), None);
    have.retain(|p, _| !but.iter().any(|b| p.starts_with(b)));
    let mut want = contents(&repo.tree(run), Some(repo.sandbox));
    want.retain(|p, _| {
        !but.iter().any(|b| p.starts_with(b)) && !p.as_os_str().as_bytes().ends_with(b"\xff.log")
    });
    for (path, content) in &want {
        let found = have.get(path);
        assert!(
            found == Some(content),
            "{}: on disk {} in the snapshot {}",
            path.display(),
            said(content),
            found.map_or("missing".into(), said)
        );
    }
    for path in have.keys() {
        assert!(want.contains_key(path), "{} is in the snapshot and not on disk", path.display());
    }
    repo.git("fsck --full --strict");
}

fn said((kind, exec, bytes): &Content) -> String {
    format!(
        "{kind} x={exec} {} bytes {:?}",
        bytes.len(),
        String::from_utf8_lossy(&bytes[..bytes.len().min(40)])
    )
}

/// A project in which there is something of every kind to change.
pub fn ground(sandbox: &Sandbox) -> Repo<'_> {
    let repo = sandbox.repo();
    for name in [
        "mod",
        "del",
        "ren",
        "plain",
        "tolink",
        "tofolder",
        "full",
        "bin",
        "crlf",
        "noeol",
        "same",
        "back",
        "hid1",
        "hid2",
        "staged1",
        "staged2",
        "cached1",
        "cached2",
        "willignore",
    ] {
        repo.write(name, format!("{name}\nsecond line\n"));
    }
    repo.write("empty", "");
    repo.write("dir/one", "1\n");
    repo.write("dir/two", "2\n");
    repo.write("dir/deep/three", "3\n");
    repo.write("gone/a", "a\n");
    repo.write("script", "#!/bin/sh\n");
    crate::support::set_mode(&repo.dir.join("script"), 0o755);
    std::os::unix::fs::symlink("mod", repo.dir.join("link")).unwrap();
    std::os::unix::fs::symlink("dir", repo.dir.join("dirlink")).unwrap();
    for link in ["link", "dirlink"] {
        sandbox.give(&repo.dir.join(link));
    }
    repo.write(".gitignore", "*.log\nbuild/\nignored\n");
    repo.commit("ground");
    repo
}

/// What the last result says that the snapshot cannot hold.
pub fn report(repo: &Repo<'_>, run: &str) -> serde_json::Value {
    let shown = repo.show(run);
    let last = shown["events"].as_array().unwrap().iter().rfind(|e| e["kind"] == "result").unwrap();
    last["body"]["report"].clone()
}

pub fn list(repo: &Repo<'_>, run: &str, key: &str) -> Vec<String> {
    let report = report(repo, run);
    report[key]["first"]
        .as_array()
        .map(|l| l.iter().map(|v| v.as_str().unwrap().to_owned()).collect())
        .unwrap_or_default()
}

pub fn notes(repo: &Repo<'_>, run: &str) -> String {
    let report = report(repo, run);
    format!("{} {}", report["repaired"], report["notes"])
}

const S01: &str = r"
echo changed >>mod; rm del; mv ren renamed; mv renamed dir/moved
chmod +x plain; chmod -x script
rm tolink; ln -s mod tolink; rm link; echo now a file >link
rm tofolder; mkdir tofolder; echo in >tofolder/inner; rm -r gone; echo a file >gone
rm -r dir/deep; ln -s ../mod dir/deep
: >full; echo filled >empty
head -c 3000000 /dev/urandom >bin; printf 'no end' >noeol; printf 'a\r\nb\r\n' >crlf
mkdir -p new/deeper/still; echo n >new/deeper/still/file; printf '\0\1\2' >new/binary
rm dirlink; mkdir dirlink; echo x >dirlink/x
";

#[test]
fn s01_every_kind_of_change() {
    both(|s| {
        let repo = ground(s);
        repo.spawn("--role developer --run r", S01).ok();
        exact(&repo, "r", &[]);
        // There and back again is no change.
        repo.spawn("--role developer --run back", "rm mod; ln -s x mod; rm mod; printf 'mod\nsecond line\n' >mod; rm -r dir; echo f >dir; rm dir; mkdir dir; echo 1 >dir/one; echo 2 >dir/two; mkdir dir/deep; echo 3 >dir/deep/three; chmod -x script; chmod +x script").ok();
        assert_eq!(repo.changed("back"), [""; 0]);
        exact(&repo, "back", &[]);
    });
}

const S02: &str = "ln -s nowhere dangling; ln -s /etc/passwd absolute; ln -s ../../../../etc out; mkdir -p s02; ln -s ../mod s02/fine; ln -s ../../x s02/out; ln -s / root; ln -s . self";

#[test]
fn s02_links_are_stored_as_links_and_flagged() {
    both(|s| {
        let repo = ground(s);
        repo.spawn("--role developer --run r", S02).ok();
        exact(&repo, "r", &[]);
        let links = list(&repo, "r", "links");
        for name in ["absolute -> /etc/passwd", "out -> ../../../../etc", "s02/out -> ../../x", "root -> /"] {
            assert!(links.iter().any(|l| l == name), "{name}: {links:?}");
        }
        assert_eq!(links.len(), 4, "{links:?}");
    });
}

const S03: &str = r"
echo intent >intent; git add -N intent
echo one >staged1; git add staged1; echo two >staged1
echo one >staged2; git add staged2; rm staged2
git rm -q --cached cached1
git rm -q --cached cached2; echo cached2 >>.gitignore
echo new >newstaged; git add newstaged; rm newstaged
";

#[test]
fn s03_the_index_does_not_count() {
    both(|s| {
        let repo = ground(s);
        repo.spawn("--role developer --run r", S03).ok();
        exact(&repo, "r", &[]);
        assert_eq!(repo.changed("r"), ["M .gitignore", "A intent", "M staged1", "D staged2"]);
    });
}

#[test]
fn s04_commits_resets_rebases_and_half_made_merges_do_not_count() {
    both(|s| {
        let repo = ground(s);
        let cases = [
            (
                "commits",
                "echo 1 >c1; git add c1; git commit -qm one; echo 2 >>c1; git commit -qam two; git commit -q --amend -m 'two amended'; echo 3 >loose",
                2,
            ),
            (
                "reset",
                "echo 1 >c1; git add c1; git commit -qm one; git reset -q --hard HEAD~1; echo 2 >c2",
                0,
            ),
            ("soft", "echo 1 >c1; git add c1; git commit -qm one; git reset -q --soft HEAD~1", 0),
            (
                "rebased",
                "git switch -qc side; echo s >s; git add s; git commit -qm s; git switch -q -; echo m >m; git add m; git commit -qm m; git rebase -q side",
                2,
            ),
            (
                "switched",
                "git switch -qc other; echo o >o; git add o; git commit -qm o; git switch -q --detach HEAD~1; echo d >d",
                0,
            ),
            (
                "merging",
                "git switch -qc side; echo s >mod; git commit -qam s; git switch -q -; echo m >mod; git commit -qam m; git merge side && exit 9; grep -q '<<<<' mod",
                1,
            ),
            (
                "rebasing",
                "git switch -qc side; echo s >mod; git commit -qam s; git switch -q -; echo m >mod; git commit -qam m; git rebase side && exit 9; test -d ../store/worktrees/tree/rebase-merge",
                1,
            ),
            ("stash", "echo x >>mod; echo u >u; git stash -q -u; echo y >>plain", 0),
            ("orphan", "git switch -q --orphan o; echo only >only; git add only; git commit -qm only", 1),
            (
                "bisecting",
                "git commit -q --allow-empty -m x; git bisect start HEAD HEAD~1 >/dev/null; echo b >b",
                1,
            ),
        ];
        for (name, script, commits) in cases {
            repo.spawn(&format!("--role developer --run {name}"), script).ok();
            exact(&repo, name, &[]);
            assert_eq!(list(&repo, name, "commits").len(), commits, "{name}");
        }
        let said = list(&repo, "commits", "commits");
        assert!(said[0].ends_with(" two amended") && said[1].ends_with(" one"), "{said:?}");
    });
}

const S05: &str = r"
echo i >ignored; git add -f ignored
echo l >committed.log; git add -f committed.log; git commit -qm log; echo changed >>committed.log
mkdir build; echo o >build/forced; echo p >build/not; git add -f build/forced
echo willignore >>.gitignore; echo more >>willignore
echo plainlog >plain.log
";

#[test]
fn s05_ignored_and_forced() {
    both(|s| {
        let repo = ground(s);
        repo.spawn("--role developer --run r", S05).ok();
        exact(&repo, "r", &["plain.log", "build/not"]);
        assert!(list(&repo, "r", "ignored").contains(&"plain.log".to_owned()));
    });
}

const S06: &str = r"
git init -q nested1; echo a >nested1/a; mkdir nested1/sub; echo b >nested1/sub/b
git init -q nested2; (cd nested2; echo c >c; git add c; git -c user.name=n -c user.email=e commit -qm c; echo d >d); mkdir -p nested2/in; git init -q nested2/in; echo deep >nested2/in/deep
git init -q --bare bare.git
git worktree add -q inside; echo w >inside/w
";

#[test]
fn s06_repositories_inside() {
    both(|s| {
        let repo = ground(s);
        repo.spawn("--role developer --run r", S06).ok();
        exact(&repo, "r", &[]);
        let nested = list(&repo, "r", "nested");
        for name in ["nested1", "nested2", "nested2/in", "inside", "bare.git (bare)"] {
            assert!(nested.iter().any(|n| n == name), "{name}: {nested:?}");
        }
    });
}

const S07: &str = r"
git update-index --assume-unchanged hid1; echo x >>hid1
git update-index --skip-worktree hid2; echo y >>hid2; git update-index --assume-unchanged dir/one; rm dir/one
";

#[test]
fn s07_hidden_bits() {
    both(|s| {
        let repo = ground(s);
        repo.spawn("--role developer --run r", S07).ok();
        exact(&repo, "r", &[]);
        assert_eq!(repo.changed("r"), ["D dir/one", "M hid1", "M hid2"]);
    });
}

const S08: &str = "printf 'SAME\\nsecond line\\n' >same; printf 'BACK\\nsecond line\\n' >back; touch -d '2001-01-01 00:00:00' back";

#[test]
fn s08_same_size_same_second_and_time_set_back() {
    both(|s| {
        let repo = ground(s);
        repo.git("config core.checkStat minimal");
        repo.git("config core.trustctime false");
        repo.spawn("--role developer --run r", S08).ok();
        exact(&repo, "r", &[]);
        assert_eq!(repo.changed("r"), ["M back", "M same"]);
        // The time of the file as it was checked out, to the nanosecond.
        repo.spawn(
            "--role developer --run s",
            "touch -r same t; printf 'SAME\\nsecond line\\n' >same; touch -r t same; rm t",
        )
        .ok();
        exact(&repo, "s", &[]);
        assert_eq!(repo.changed("s"), ["M same"]);
    });
}

const S09: &str = r#"
/usr/bin/python3 - <<'END'
import os
names = [b'-dash', b'--', b'sp ace', b'tab\there', b'new\nline', b'quo"te', b"apo'", b'back\\slash', b'*[a]?', b':(glob)x', b':!x', b':', b'trail ', b'trail.', b'a => b', b'cr\r', b'\x01', '\N{PILE OF POO}'.encode(), 'e\u0301'.encode(), '\u00e9'.encode(), b'\xff\xfe', b'#hash', b'!bang', b'~', b'$x', b'a:b', b'COM1', b'{1,2}']
os.makedirs('odd', exist_ok=True)
for d in ['.', 'odd']:
    for n in names:
        with open(os.path.join(d.encode(), n), 'wb') as f: f.write(n)
for n in names:
    os.makedirs(os.path.join(b'odd', b'd' + n)); open(os.path.join(b'odd', b'd' + n, n), 'wb').write(b'x')
os.makedirs(b'nested-odd/.git'); open(b'nested-odd/\xff\n', 'wb').write(b'y')
os.makedirs(b'build/\xfe'); open(b'build/\xfe/\xff', 'wb').write(b'y'); open(b'\xff.log', 'wb').write(b'z')
END
"#;

#[test]
fn s09_names() {
    both(|s| {
        let repo = ground(s);
        repo.spawn("--role developer --run r", S09).ok();
        exact(&repo, "r", &["build"]);
        assert!(list(&repo, "r", "ignored").len() == 2, "{:?}", list(&repo, "r", "ignored"));
    });
}

const S10: &str = "echo secret >locked; chmod 000 locked; mkfifo pipe; mkdir nothing; mkdir -p shut; echo s >shut/s; chmod 000 shut; rm mod; mkfifo mod; true";

#[test]
fn s10_what_a_tree_cannot_hold_is_reported() {
    both(|s| {
        let repo = ground(s);
        repo.spawn("--role developer --run r", S10).ok();
        // A socket, and as root a device, put there from outside: the cage does not let them be made.
        let tree = repo.tree("r");
        std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
        s.give(&tree.join("socket"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            tree.join("device"),
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::RUSR,
            rustix::fs::makedev(1, 5),
        )
        .unwrap();
        assert!(std::fs::symlink_metadata(tree.join("device")).unwrap().file_type().is_char_device());
        std::fs::write(tree.join("plain"), "so that there is something new").unwrap();
        repo.agent("finish r").ok();
        exact(&repo, "r", if s.is_user() { &["shut"] } else { &[] });
        assert_eq!(list(&repo, "r", "special"), ["device", "mod", "pipe", "socket"]);
        assert_eq!(list(&repo, "r", "empty"), ["nothing"]);
        assert_eq!(list(&repo, "r", "unreadable"), if s.is_user() { vec!["shut", "locked"] } else { vec![] });
        assert!(repo.changed("r").contains(&"D mod".to_owned()));
    });
}

#[test]
fn s16_the_digest_depends_on_the_change_alone() {
    let s = Sandbox::new();
    let repo = ground(&s);
    repo.write("py", "if x:\n    a()\n    b()\nc()\nc()\n");
    repo.write("bin2", [0_u8, 1, 2]);
    repo.write(".gitattributes", "bin2 -diff\n");
    repo.commit("more");
    let mut number = 0;
    let mut digest = |script: &str| {
        number += 1;
        let name = format!("r{number}");
        repo.spawn(&format!("--role developer --run {name}"), script).ok();
        repo.show(&name)["result"]["change"].as_str().unwrap().to_owned()
    };
    let one = "printf 'if x:\\n    a()\\n    b()\\nd()\\nc()\\nc()\\n' >py; mv mod moved";
    let same = digest(one);
    assert!(same.starts_with("sha256:"), "{same}");
    let settings = [
        "diff.algorithm histogram",
        "diff.context 0",
        "diff.noprefix true",
        "diff.mnemonicPrefix true",
        "diff.renames copies",
        "diff.interHunkContext 9",
        "diff.external false",
        "diff.ignoreSubmodules all",
        "core.quotePath false",
        "diff.indentHeuristic false",
        "diff.orderFile /dev/null",
        "diff.suppressBlankEmpty true",
        "core.whitespace cr-at-eol",
    ];
    for setting in settings {
        repo.git(&format!("config {setting}"));
    }
    assert_eq!(digest(one), same);
    let others = [
        "printf 'if x:\\n    a()\\n    b()\\n    d()\\nc()\\nc()\\n' >py; mv mod moved",
        "printf 'if x:\\n    a()\\n    b()\\nc()\\nd()\\nc()\\n' >py; mv mod moved",
        "printf 'if x:\\n    a()\\n    b()\\nd()\\nc()\\nc()\\n' >py; mv mod moved; chmod +x moved",
        "chmod +x plain",
        "ln -sf a link",
        "ln -sf b link",
        "printf '\\0\\1\\3' >bin2",
        "printf '\\0\\1\\4' >bin2",
        "true",
    ];
    let mut seen = vec![same];
    for script in others {
        let found = digest(script);
        assert!(!seen.contains(&found), "{script}");
        seen.push(found);
    }
}

#[test]
fn s17_the_patch_for_machines_goes_through_a_second_clone() {
    let s = Sandbox::new();
    let repo = ground(&s);
    repo.spawn("--role developer --run r", &[S01, S02, S03, S08, S09].concat()).ok();
    let shown = repo.show("r");
    let [base, snapshot] = [&shown["base"], &shown["result"]["snapshot"]].map(|v| v.as_str().unwrap());
    repo.git("config diff.noprefix true");
    repo.git("config diff.renames copies");
    let mut diff = s.command(&repo.dir, "git");
    diff.args([
        "diff-tree",
        "-r",
        "-p",
        "--binary",
        "--full-index",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        base,
        snapshot,
    ]);
    let patch = crate::support::run(diff, b"").ok().stdout;
    let clone = s.dir().join("second");
    s.run(s.dir(), "git", ["clone", "-q", repo.dir.to_str().unwrap(), clone.to_str().unwrap()]).ok();
    let second = repo.at(&clone);
    let mut apply = s.command(&clone, "git");
    apply.args(["apply", "--index", "--binary", "--whitespace=nowarn", "-"]);
    crate::support::run(apply, &patch).ok();
    assert_eq!(second.git("write-tree"), repo.git_args(["rev-parse", &format!("{snapshot}^{{tree}}")]));
}

#[test]
fn everything_at_once() {
    both(|s| {
        let repo = ground(s);
        let script = [S01, S02, S03, "\n", S07, S08, S09, S06, S05, S10].join("\n");
        repo.spawn("--role developer --run r", &script).ok();
        let shut: &[&str] = if s.is_user() { &["shut"] } else { &[] };
        // What is ignored in the work tree inside, too: its files are under the run's own rules.
        exact(
            &repo,
            "r",
            &[&["build", "plain.log", "inside/cached2", "inside/willignore"][..], shut].concat(),
        );
        // Deterministic: once more is the same commit and no event.
        let kinds = repo.kinds("r");
        repo.agent("finish r").ok();
        assert_eq!(repo.kinds("r"), kinds);
    });
}

#[test]
fn an_engine_that_ruins_its_own_plumbing() {
    both(|s| {
        let repo = ground(s);
        // The tiers with mounts deny half of this.
        repo.git("config --global agent.tier landlock");
        let cases = [
            ("index", "rm ../store/worktrees/tree/index"),
            ("badindex", "echo nonsense >../store/worktrees/tree/index"),
            ("zeroindex", "truncate -s 3G ../store/worktrees/tree/index"),
            ("head", "echo nonsense >../store/worktrees/tree/HEAD"),
            ("headlink", "ln -sf /etc/passwd ../store/worktrees/tree/HEAD"),
            ("headfifo", "rm ../store/worktrees/tree/HEAD; mkfifo ../store/worktrees/tree/HEAD"),
            ("nothing", "rm -rf ../store/worktrees/tree"),
            ("filehere", "rm -rf ../store/worktrees/tree; echo x >../store/worktrees/tree"),
            ("refs", "rm -rf ../store/refs/* ../store/packed/* ../store/objects/* ../store/logs/*"),
            ("dotgit", "rm .git"),
            (
                "dotgitfolder",
                "rm .git; git init -q; git add -A; git -c user.name=n -c user.email=e commit -qm mine",
            ),
            ("dotgitlocked", "rm .git; git init -q; chmod 555 .git"),
            ("dotgitlink", "rm .git; ln -s ../store .git"),
            ("dotgitfifo", "rm .git; mkfifo .git"),
            ("dotgitelse", "git init -q --bare ../tmp/evil; echo \"gitdir: $(cd ../tmp/evil; pwd)\" >.git"),
            ("worktree", "git config --file ../store/worktrees/tree/config.worktree core.worktree /etc"),
            ("alternates", "echo /somewhere/else >>../store/objects/info/alternates"),
            ("commondir", "echo /tmp >../store/worktrees/tree/commondir"),
            (
                "replace",
                "git replace HEAD $(git commit-tree -m r HEAD^{tree}); git commit -qam c --allow-empty",
            ),
            ("shallow", "git rev-parse HEAD >../store/worktrees/tree/shallow"),
            ("hardlink", "ln mod ../store/objects/mod; ln mod twin; ln .git tooth; echo x >>twin"),
            (
                "closed",
                "chmod 000 ../store/objects ../store/worktrees/tree ../store/refs; chmod 000 ../store ../host 2>/dev/null; chmod 000 . ../tmp ../engine; true",
            ),
            ("all", "rm -rf ./* ./.[!.]*"),
        ];
        for (name, script) in cases {
            repo.spawn(
                &format!("--role developer --run {name}"),
                &format!("echo kept >kept; echo more >>plain; {script}"),
            )
            .ok();
            exact(&repo, name, &[]);
            assert_eq!(repo.state(name), "proposed");
            // And somebody can go on.
            if !["refs", "all", "index", "badindex", "zeroindex", "nothing", "filehere"].contains(&name) {
                repo.agent_args(["exec", name, "--", "git", "status", "--short"]).ok();
            }
        }
        let said = notes(&repo, "closed");
        assert!(said.contains("'tree' was closed"), "{said}");
        repo.git("fsck --full --strict");
    });
}

#[test]
fn traps_for_git_in_the_tree() {
    both(|s| {
        let repo = ground(s);
        let traps = r"
mkdir -p a/.git/objects a/.git/refs; mkfifo a/.git/HEAD; echo a >a/file
mkdir -p b/.git/objects b/.git/refs; echo 'ref: refs/heads/x' >b/.git/HEAD; : >b/.git/commondir; echo b >b/file
mkdir -p c/.git/objects c/.git/refs; echo 'ref: refs/heads/x' >c/.git/HEAD; ln -s /dev/zero c/.git/commondir; echo c >c/file
mkdir d e; mkfifo d/.git; echo d >d/file; mkfifo e/HEAD; mkdir f; echo 'gitdir: ../e' >f/.git; echo f >f/file
mkdir g; ln -s /dev/zero g/.git; echo g >g/file
mkfifo g/.gitignore g/.gitattributes; mkdir -p h/i; mkfifo h/.gitignore h/i/.gitattributes; echo i >h/i/file
mkfifo dir/.gitattributes; echo x >dir/one; rm .gitignore; mkfifo .gitignore
mkdir j; ln -s /dev/zero j/.gitignore; ln -s /dev/zero j/.gitattributes; echo j >j/file; mkdir -p k/.gitignore k/.gitattributes; echo k >k/file; echo kk >k/.gitignore/x
mkdir l; echo '[x' >l/.gitmodules; ln -s l/.gitmodules .gitmodules; mkdir m; ln -s x m/.GITMODULES; ln -s x gitmod~1
mkdir .GIT; echo x >.GIT/config; echo y >GIT~1; echo z >'x\.git\y'; mkdir 'n\.git'; echo z >'n\.git/config'
mkdir TASK.md.d; mkdir -p o/TASK.md; echo t >o/TASK.md/x; echo t >h/TASK.md; echo t >.agent-identity.x; git init -q .agent; echo t >.agent/TASK.md
";
        repo.spawn("--role developer --run r", traps).ok();
        exact(&repo, "r", &[".gitmodules", "m", "gitmod~1", ".GIT", "GIT~1", "x\\.git\\y", "n\\.git"]);
        let said = notes(&repo, "r");
        for name in
            ["g/.gitignore", "h/i/.gitattributes", ".gitmodules is not included", "GIT~1 is not included"]
        {
            assert!(said.contains(name), "{name}: {said}");
        }
        let changed = repo.changed("r");
        assert!(
            changed.contains(&"A h/TASK.md".to_owned()) && changed.contains(&"A o/TASK.md/x".to_owned()),
            "{changed:?}"
        );
        // The same again over what was imported: nothing moves, nothing is new.
        repo.agent("finish r").ok();
    });
}

#[test]
fn our_own_files_are_never_in_the_diff() {
    let s = Sandbox::new();
    let repo = ground(&s);
    for (name, script) in [
        (
            "edited",
            "echo x >>TASK.md; echo y >.agent-identity; git add -f TASK.md .agent-identity; git commit -qm own",
        ),
        ("deleted", "rm TASK.md .agent-identity"),
        (
            "folders",
            "rm TASK.md .agent-identity; mkdir TASK.md .agent-identity; echo x >TASK.md/x; echo y >.agent-identity/y; git add -f TASK.md/x",
        ),
        ("links", "ln -sf /etc/passwd TASK.md; ln -sf /etc .agent-identity"),
        ("shown", "printf '!TASK.md\n!.agent-identity\n' >>.gitignore; git checkout -q .gitignore"),
    ] {
        repo.spawn(&format!("--role developer --run {name}"), script).ok();
        assert_eq!(repo.changed(name), [""; 0], "{name}");
        exact(&repo, name, &[]);
    }
    repo.write("TASK.md", "the project's own\n");
    repo.commit("task");
    repo.spawn(
        "--role developer --run tracked",
        "echo ours >>TASK.md; test -f .agent/TASK.md || exit 9; git init -q .agent; echo z >.agent/z",
    )
    .ok();
    assert_eq!(repo.changed("tracked"), ["A .agent/z", "M TASK.md"]);
}

#[test]
fn a_folder_becomes_a_link_to_the_outside() {
    both(|s| {
        let repo = ground(s);
        std::fs::create_dir(s.dir().join("outside")).unwrap();
        std::fs::write(s.dir().join("outside/one"), "secret").unwrap();
        s.give(&s.dir().join("outside"));
        let script = format!(
            "rm -r dir; ln -s {} dir; ln -s {} gitignored; ln -s /etc/passwd ignored",
            s.dir().join("outside").display(),
            s.dir().join("outside").display()
        );
        repo.spawn("--role developer --run r", &script).ok();
        exact(&repo, "r", &["ignored"]);
        let changed = repo.changed("r");
        assert!(
            changed.contains(&"A dir".to_owned()) && changed.contains(&"D dir/one".to_owned()),
            "{changed:?}"
        );
        assert!(
            !String::from_utf8_lossy(
                &s.run(&repo.dir, "git", ["cat-file", "--batch-all-objects", "--batch", "--unordered"])
                    .ok()
                    .stdout
            )
            .contains("secret")
        );
    });
}

#[test]
fn submodules_added_filled_trapped_and_replaced() {
    let s = Sandbox::new();
    let repo = ground(&s);
    let lib = s.repo_with("lib", &[]);
    for name in ["sub1", "sub2", "sub3", "sub4", "sub5"] {
        repo.git_args([
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            lib.dir.to_str().unwrap(),
            name,
        ]);
    }
    repo.commit("subs");
    repo.spawn("--role developer --run quiet", "echo x >>mod").ok();
    assert_eq!(repo.changed("quiet"), ["M mod"]);
    let script = r"
git init -q sub1; cd sub1; echo n >n; git add n; git -c user.name=n -c user.email=e commit -qm n; echo dirty >dirty; cd ..
echo plain >sub2/file; rmdir sub3
mkdir -p sub4/.git/objects sub4/.git/refs; mkfifo sub4/.git/HEAD
rmdir sub5; ln -s / sub5
git init -q new; (cd new; echo n >n; git add n; git -c user.name=n -c user.email=e commit -qm n); git -c protocol.file.allow=always submodule --quiet add ./new added 2>/dev/null || git clone -q new added
git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),mod2; mkdir mod2; echo in >mod2/in
git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),nowhere
";
    // A fifo there is waited for within bounds; too long for a test.
    let script = script.replace("; mkfifo sub4/.git/HEAD", "; ln -s /dev/null sub4/.git/HEAD");
    repo.spawn("--role developer --run r", &script).ok();
    let changed = repo.changed("r");
    for line in ["M sub1", "A sub2/file", "D sub2", "D sub3", "T sub5", "A added/n", "A new/n", "A mod2/in"] {
        assert!(changed.iter().any(|l| l == line), "{line}: {changed:?}");
    }
    assert!(
        !changed.iter().any(|l| l.contains("sub4") || l.ends_with("mod2") || l.contains("nowhere")),
        "{changed:?}"
    );
    let said = list(&repo, "r", "submodules");
    assert_eq!(said.len(), 6, "{said:?}");
}

#[test]
fn trees_and_indexes_that_no_checkout_could_make() {
    let s = Sandbox::new();
    let repo = ground(&s);
    let script = r#"
/usr/bin/python3 - <<'END'
import subprocess
def git(*a, i=b''): return subprocess.run(['git', *a], input=i, stdout=subprocess.PIPE, check=True).stdout.strip().decode()
blob = git('hash-object', '-w', '--stdin', i=b'evil\n')
def tree(*entries):
    raw = b''.join(m + b' ' + n + b'\0' + bytes.fromhex(o) for m, n, o in entries)
    return git('hash-object', '-t', 'tree', '-w', '--stdin', '--literally', i=raw)
names = [b'..', b'.', b'.git', b'', b'/etc/passwd', b'a/../../x', b'dir//one', b'src', b'dir/one', b'x' * 5000, b'\xff', b'mod\n']
inner = tree((b'100644', b'config', blob))
t = tree(*[(b'100644', n, blob) for n in names], (b'40000', b'..', inner), (b'40000', b'.git', inner), (b'160000', b'plain', git('rev-parse', 'HEAD')))
c = git('commit-tree', '-p', 'HEAD', '-m', 'evil', t)
git('update-ref', 'HEAD', c)
END
echo kept >kept
"#;
    repo.spawn("--role developer --run r", script).ok();
    assert_eq!(repo.changed("r"), ["A kept"]);
    exact(&repo, "r", &[]);
}

#[test]
fn limits_fail_the_run_keep_the_tree_and_can_be_mended() {
    let s = Sandbox::new();
    let repo = ground(&s);
    let said = repo.spawn("--role developer --run r", "echo x >kept; truncate -s 3G sparse").with(128);
    said.says(&["sparse", "limit", "git agent finish r"]);
    assert_eq!(repo.state("r"), "failed");
    assert!(repo.tree("r").join("kept").exists());
    std::fs::remove_file(repo.tree("r").join("sparse")).unwrap();
    repo.agent("finish r").ok();
    assert_eq!(repo.changed("r"), ["A kept"]);
    exact(&repo, "r", &[]);
    // Ignored, it costs nothing.
    repo.spawn("--role developer --run i", "mkdir build; truncate -s 3G build/sparse; echo x >kept").ok();
    assert_eq!(repo.changed("i"), ["A kept"]);
}

#[test]
fn deep_unreadable_and_many() {
    both(|s| {
        let repo = ground(s);
        let script = r#"
/usr/bin/python3 - <<'END'
import os
here = os.getcwd()
name = 'd' * 250
for i in range(15): os.mkdir(name); os.chdir(name)
open('near', 'w').write('near'); 
for i in range(10): os.mkdir(name); os.chdir(name)
open('far', 'w').write('far')
os.chdir(here)
os.mkdir('build')
for i in range(1100): os.makedirs('links/%d' % i); os.symlink('x', 'links/%d/.gitattributes' % i)
for i in range(1000): open('build/%d' % i, 'w').close()
for i in range(1100): os.makedirs('nests/%d/.git/objects' % i); os.mkdir('nests/%d/.git/refs' % i); open('nests/%d/.git/HEAD' % i, 'w').write('ref: refs/heads/x\n'); open('nests/%d/f' % i, 'w').write(str(i))
END
mkdir -p closed/in; echo c >closed/in/c; chmod 000 closed; mkdir half; echo h >half/h; chmod 444 half
"#;
        let started = std::time::Instant::now();
        repo.spawn("--role developer --run r", script).ok();
        assert!(started.elapsed().as_secs() < 300, "{:?}", started.elapsed());
        let mut but = vec!["build"];
        let deep = "d".repeat(250);
        but.push(&deep);
        if s.is_user() {
            but.extend(["closed", "half"]);
        }
        exact(&repo, "r", &but);
        let near = format!("A {}near", format!("{deep}/").repeat(15));
        assert!(repo.changed("r").contains(&near));
        assert!(!list(&repo, "r", "unreadable").is_empty());
        assert_eq!(report(&repo, "r")["nested"]["count"], 1100);
    });
}

#[test]
fn attributes_of_the_run_that_make_a_conversion_fail() {
    let s = Sandbox::new();
    let repo = ground(&s);
    let said = repo
        .spawn(
            "--role developer --run r",
            "echo '* working-tree-encoding=UTF-16' >.gitattributes; echo x >>mod",
        )
        .with(128);
    said.says(&["git agent finish r"]);
    assert_eq!(repo.state("r"), "failed");
    std::fs::remove_file(repo.tree("r").join(".gitattributes")).unwrap();
    repo.agent("finish r").ok();
    exact(&repo, "r", &[]);
}

#[test]
fn fs23_a_tree_that_is_not_the_one_we_made_is_refused() {
    both(|s| {
        let repo = ground(s);
        for (name, swap) in [("link", true), ("other", false)] {
            repo.agent_args(["spawn", "--role", "developer", "--run", name]).ok();
            let tree = repo.tree(name);
            let aside = tree.with_file_name("aside");
            std::fs::rename(&tree, &aside).unwrap();
            if swap {
                std::os::unix::fs::symlink(&repo.dir, &tree).unwrap();
            } else {
                std::fs::create_dir(&tree).unwrap();
            }
            s.give(&tree);
            let before = repo.fingerprint();
            for words in [
                vec!["finish", name],
                vec!["exec", name, "--", "true"],
                vec!["spawn", "--role", "developer", "--run", name, "--", "true"],
            ] {
                repo.agent_args(&words).fails().refuses(&["not the folder that spawn made"]);
            }
            before.unchanged(&repo.fingerprint());
            if swap {
                std::fs::remove_file(&tree).unwrap();
            } else {
                std::fs::remove_dir(&tree).unwrap();
            }
            std::fs::rename(&aside, &tree).unwrap();
            repo.agent_args(["finish", name]).ok();
        }
    });
}

#[test]
fn a_store_of_special_files_never_blocks() {
    both(|s| {
        let repo = ground(s);
        repo.spawn("--role developer --run r", "echo x >kept; cd ../store; mkfifo objects/pack/pack-x.idx objects/pack/pack-x.pack objects/info/packs refs/heads/fifo packed/packed-refs.lock worktrees/tree/MERGE_HEAD; ln -s /dev/zero objects/info/commit-graph; ln -s / objects/aa").ok();
        exact(&repo, "r", &[]);
        assert!(notes(&repo, "r").contains("special file"), "{}", notes(&repo, "r"));
        eventually("nothing is left", || crate::support::processes_of(&repo.tree("r")).is_empty());
    });
}
