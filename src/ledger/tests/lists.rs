use super::super::runs::{Folder, list, shortest};
use super::*;
use crate::os::files;
use crate::os::lock::Lock;

fn folder(home: &Home, run: &RunId, name: &str, base: &Oid) -> PathBuf {
    let dir = home.root.join(name);
    files::create_dirs(&dir.join("host"), 0o700).unwrap();
    let record = Folder {
        v: Folder::FORMAT,
        run: run.clone(),
        repo: home.id.clone(),
        name: name.parse().unwrap(),
        created: 1,
        uid: None,
        tree: Some((1, 2)),
        base: base.clone(),
        isolation: Isolation::Worktree,
        branch: format!("refs/heads/wt/{name}"),
        task_path: "TASK.md".into(),
        identity_path: ".agent-identity".into(),
        strip: vec!["CLAUDE.md".into()],
        port: None,
    };
    record.write(&dir).unwrap();
    assert_eq!(Folder::read(&dir).unwrap(), Some(record));
    dir
}

#[test]
fn a_list_is_fold_plus_liveness() {
    let f = Fixture::new(&[]);
    let root = f.dir.path().join("runs");
    git(&f.path(), &["config", "agent.root", root.to_str().unwrap()]);
    let repo = Repo::discover(&f.path()).unwrap();
    let ledger = Ledger::new(&repo);
    let home = ledger.home().unwrap();

    let old = f.run(1, "one").run;
    f.append(&old, &draft(Body::Prune(Prune { reason: "old".into() }))).unwrap();
    let one = f.run(2, "one").run;
    f.append(&one, &engine("claude")).unwrap();
    let two = f.run(3, "two").run;
    f.append(&two, &engine("codex")).unwrap();
    f.append(&two, &f.result("x\n")).unwrap();
    let dir = folder(&home, &one, "one", &f.base);
    folder(&home, &two, "two", &f.base);
    let lost = folder(&home, &RunId::new(5, 5), "lost", &f.base);
    // Not ours, or not provably: passed over.
    let strange = folder(&Home { id: "f".repeat(32), ..home.clone() }, &RunId::new(6, 6), "strange", &f.base);
    files::create_dir(&home.root.join("empty"), 0o700).unwrap();
    files::symlink(&strange, &home.root.join("link")).unwrap();

    let states = |home: Option<&Home>| -> Vec<_> {
        list(&ledger, home)
            .unwrap()
            .runs
            .into_iter()
            .map(|r| (r.id, r.state, r.live, r.path.is_some()))
            .collect()
    };
    let lock = Lock::acquire(&Folder::lock_path(&dir)).unwrap().unwrap();
    assert_eq!(
        states(Some(&home)),
        [
            (two.clone(), RunState::Proposed, false, true),
            (one.clone(), RunState::Running, true, true),
            (old.clone(), RunState::Pruned, false, false),
        ]
    );
    drop(lock);
    assert_eq!(states(Some(&home))[1], (one.clone(), RunState::Interrupted, false, true));
    assert_eq!(states(None)[1], (one.clone(), RunState::Interrupted, false, false));

    // Between the spawn event and the record of its folder a run is at work already.
    files::remove_file(&Folder::path(&dir)).unwrap();
    assert_eq!(states(Some(&home))[1], (one.clone(), RunState::Interrupted, false, false));
    let lock = Lock::acquire(&Folder::lock_path(&dir)).unwrap().unwrap();
    assert_eq!(states(Some(&home))[1], (one.clone(), RunState::Running, true, false));
    assert_eq!(states(Some(&home))[2], (old, RunState::Pruned, false, false));
    drop(lock);

    let listing = list(&ledger, Some(&home)).unwrap();
    let paths: Vec<_> = listing.orphans.iter().map(|o| o.path.clone()).collect();
    assert_eq!(paths, [lost]);
    let line = &listing.runs[0];
    assert_eq!(
        (line.engine.as_deref(), line.files, line.tier.as_deref()),
        (Some("codex"), Some(1), Some("full"))
    );
    assert_eq!(ledger.resolve(&line.short).unwrap().run, two);
    assert!(line.change.is_some());

    // What a broken or an archived run may own is no orphan.
    git(&f.path(), &["update-ref", &Ledger::ref_name(&RunId::new(5, 5)), f.base.as_str()]);
    let listing = list(&ledger, Some(&home)).unwrap();
    assert!(listing.orphans.is_empty());
    assert_eq!(listing.broken.len(), 1);
}

#[test]
fn prefixes_are_unique_and_not_longer_than_needed() {
    let ids = [RunId::new(1, 1), RunId::new(1, 2), RunId::new(1 << 46, 0)];
    let lengths = shortest(&ids);
    assert_eq!(ids.iter().map(|i| lengths[i]).collect::<Vec<_>>(), [26, 26, 4]);
    assert!(shortest(&[]).is_empty());
}
