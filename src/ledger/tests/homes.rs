use super::super::repository::Home;
use super::*;
use crate::os::files;

/// A repository whose state folder is given by `agent.root`, so that no test touches the person's own.
fn home(path: &Path) -> Result<Home, Failure> {
    let repo = Repo::discover(path).unwrap();
    Ledger::new(&repo).home()
}

fn with_root(f: &Fixture) -> PathBuf {
    let root = f.dir.path().join("state/runs");
    git(&f.path(), &["config", "agent.root", root.to_str().unwrap()]);
    root
}

fn copy(from: &Path, to: &Path) {
    files::create_dir(to, 0o755).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy(&path, &target);
        } else {
            files::copy_keep_mtime(&path, &target).unwrap();
        }
    }
}

#[test]
fn an_id_is_made_once_by_however_many() {
    let f = Fixture::new(&[]);
    let root = with_root(&f);
    let path = f.path();
    let ids: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..16).map(|_| scope.spawn(|| home(&path).unwrap().id)).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 32), "{ids:?}");
    let found = home(&path).unwrap();
    assert_eq!(found, Home { id: ids[0].clone(), root: root.clone(), notes: Vec::new() });
    assert_eq!(files::lstat(&root).unwrap().unwrap().mode & 0o777, 0o700);
    assert_eq!(files::read_bounded(&path.join(".git/agent/id"), 64).unwrap().unwrap().len(), 33);
}

#[test]
fn a_copy_gets_an_id_of_its_own_and_a_moved_one_keeps_it() {
    let f = Fixture::new(&[]);
    let root = with_root(&f);
    let first = home(&f.path()).unwrap();

    let other = f.dir.path().join("copy");
    copy(&f.path(), &other);
    let copied = home(&other).unwrap();
    assert_ne!(copied.id, first.id);
    assert!(copied.root.starts_with(root.join(".repositories")), "{copied:?}");
    assert!(copied.notes[0].contains("copy of"), "{copied:?}");
    assert_eq!(home(&other).unwrap(), Home { notes: Vec::new(), ..copied.clone() });
    assert_eq!(home(&f.path()).unwrap(), first, "the original is as before");

    let moved = f.dir.path().join("moved");
    files::rename(&f.path(), &moved).unwrap();
    let after = home(&moved).unwrap();
    assert_eq!((&after.id, &after.root), (&first.id, &first.root));
    assert!(after.notes[0].contains("moved"), "{after:?}");
    assert!(home(&moved).unwrap().notes.is_empty());

    // Moved across file systems: copied, and the original removed. It is certainly gone.
    let again = f.dir.path().join("again");
    copy(&moved, &again);
    remove(&moved);
    assert_eq!(home(&again).unwrap().id, first.id);

    // Somebody put another copy where the repository was, and moved that one aside.
    files::rename(&again, &f.dir.path().join("aside")).unwrap();
    copy(&f.dir.path().join("aside"), &again);
    let replaced = home(&again).unwrap();
    assert_ne!(replaced.id, first.id);
    assert_eq!(home(&f.dir.path().join("aside")).unwrap().id, first.id);
}

fn remove(path: &Path) {
    let parent = files::open_dir_nofollow(path.parent().unwrap()).unwrap();
    crate::os::remove::tree(std::os::fd::AsFd::as_fd(&parent), path.file_name().unwrap()).unwrap();
}

#[test]
fn sixteen_processes_in_a_fresh_copy_agree() {
    let f = Fixture::new(&[]);
    with_root(&f);
    let first = home(&f.path()).unwrap();
    let other = f.dir.path().join("copy");
    copy(&f.path(), &other);
    let ids: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..16).map(|_| scope.spawn(|| home(&other).unwrap().id)).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0] && *id != first.id), "{ids:?}");
}

#[test]
fn an_unmounted_original_is_not_gone() {
    let f = Fixture::new(&[]);
    let root = with_root(&f);
    let first = home(&f.path()).unwrap();
    let record = root.join(".repository");
    let text = String::from_utf8(files::read_bounded(&record, 4096).unwrap().unwrap()).unwrap();
    // As if it had lain on a disk that is not mounted now: nothing there, and another file system below.
    let dev = text.split("\"dev\":").nth(1).unwrap().split(',').next().unwrap();
    let text = text
        .replace(f.path().to_str().unwrap(), f.dir.path().join("gone/away").to_str().unwrap())
        .replace(&format!("\"dev\":{dev}"), "\"dev\":1")
        .replace("\"ino\":", "\"ino\":1");
    files::write_plain(&record, text.as_bytes(), 0o600).unwrap();
    let here = home(&f.path()).unwrap();
    assert_ne!(here.id, first.id);
    assert_eq!(here.notes.len(), 1);
}

#[test]
fn a_root_inside_the_repository_is_refused_by_name() {
    let f = Fixture::new(&[]);
    let path = f.path();
    for inside in [path.clone(), path.join("runs"), path.join(".git/runs"), path.join("../project/x")] {
        git(&path, &["config", "agent.root", inside.to_str().unwrap()]);
        let text = shown(home(&path).unwrap_err());
        assert!(text.contains("inside the repository") || text.contains("absolute"), "{text}");
    }
    files::symlink(&path, &f.dir.path().join("link")).unwrap();
    git(&path, &["config", "agent.root", f.dir.path().join("link/runs").to_str().unwrap()]);
    assert!(shown(home(&path).unwrap_err()).contains("inside the repository"));
    git(&path, &["config", "agent.root", "runs"]);
    assert!(shown(home(&path).unwrap_err()).contains("absolute"));
    // A folder with other things in it, open to others, is not taken over.
    let busy = f.dir.path().join("busy");
    files::create_dir(&busy, 0o755).unwrap();
    files::write_plain(&busy.join("x"), b"", 0o644).unwrap();
    git(&path, &["config", "agent.root", busy.to_str().unwrap()]);
    assert!(shown(home(&path).unwrap_err()).contains("other things"));
    assert_eq!(files::lstat(&busy).unwrap().unwrap().mode & 0o777, 0o755);
}

#[test]
fn bare_repositories_and_linked_work_trees_have_a_home() {
    let f = Fixture::new(&[]);
    git(f.dir.path(), &["clone", "-q", "--bare", "project", "bare.git"]);
    let bare = f.dir.path().join("bare.git");
    git(&bare, &["config", "agent.root", f.dir.path().join("bare-runs").to_str().unwrap()]);
    assert_eq!(home(&bare).unwrap().root, f.dir.path().join("bare-runs"));
    with_root(&f);
    git(&f.path(), &["worktree", "add", "-q", "../linked"]);
    assert_eq!(home(&f.path()).unwrap(), home(&f.dir.path().join("linked")).unwrap());
    files::write_plain(&f.path().join(".git/agent/id"), b"../../x\n", 0o644).unwrap();
    assert!(shown(home(&f.path()).unwrap_err()).contains("no repository id"));
}
