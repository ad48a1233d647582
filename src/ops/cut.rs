//! Cut: the effects of a spawn, in order. Folder claimed by name, branch and spawn event in one transaction,
//! store, tree, task, pristine index, and last the record that makes the run whole.

use super::confine;
use super::making::Making;
use super::spawn::Cut;
use super::store::{self, Recipe};
use super::{Layout, Open, base, include, setup};
use crate::git::{Call, Place, RefError, Repo, Transaction};
use crate::ledger::{Draft, Folder, Ledger, TASK};
use crate::model::{Body, Digest, Failure, Fingerprint, Isolation, Spawn};
use crate::os::files;
use crate::os::lock::Lock;
use crate::os::process::{self, Identity};
use crate::policy::TaskText;
use std::path::Path;

/// Cuts the run. Returns it locked, with what a person should know.
pub fn execute<'r>(
    repo: &'r Repo,
    plan: &Cut,
    making: &mut Making,
) -> Result<(Open<'r>, Vec<String>), Failure> {
    let (identity, user) = identity(plan)?;
    let mut folder = Folder {
        v: Folder::FORMAT,
        run: plan.run.clone(),
        repo: plan.home.id.clone(),
        name: plan.name.clone(),
        created: plan.now,
        uid: identity.map(|i| i.uid),
        tree: None,
        base: plan.base.clone(),
        isolation: plan.isolation,
        branch: plan.branch.clone(),
        task_path: plan.own_files.0.clone(),
        identity_path: plan.own_files.1.clone(),
        strip: plan.strip.clone(),
        port: plan.port,
    };
    let lock = claim(repo, plan, making, &folder)?;
    let ledger = Ledger::new(repo);
    let tip = publish(repo, &ledger, plan)?;
    // What the copy lacks is counted while the copy is made.
    let status = repo
        .work_tree()
        .filter(|_| !plan.local_base)
        .map(|top| {
            repo.call("status")
                .args(["--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty"])
                .current_dir(top)
                .start()
        })
        .transpose()?;
    let layout = plan.layout.clone();
    let mut unseen = vec![plan.own_files.0.as_str(), &plan.own_files.1];
    unseen.extend(plan.include.iter().map(String::as_str));
    let fixed = Recipe {
        repo,
        layout: &layout,
        branch: plan.branch.trim_start_matches("refs/heads/"),
        actor: &plan.actor,
        own_files: &unseen,
    }
    .fixed()?;
    let broken = |e: std::io::Error| Failure::fatal("the run's store could not be made").because(e);
    let branch = plan.branch.trim_start_matches("refs/heads/");
    store::create(layout.dir(), &fixed, &store::packed_refs(plan.refs.all.clone()), branch, identity)
        .map_err(broken)?;
    let mut run =
        Open { repo, ledger, tip, folder: folder.clone(), layout, lock, actor: plan.actor.clone(), user };
    annotated_tags(&run, plan)?;
    fill(&run, plan)?;
    own_files(&run, plan).map_err(|e| Failure::fatal("TASK.md could not be written").because(e))?;
    files::copy_keep_mtime(&run.layout.git_dir().join("index"), &run.layout.pristine_index())
        .map_err(broken)?;
    let made = files::lstat(&run.layout.tree()).map_err(broken)?.expect("made just above");
    folder.tree = Some((made.id.dev, made.id.ino));
    run.folder = folder;
    let mut notes = Vec::new();
    include::copy(&run, &run.layout.tree(), &plan.include)?;
    if plan.rule.setup.is_some() {
        setup::of_spawn(&run, &plan.rule)?;
        // It ran the project's own code, and that of its dependencies.
        notes.extend(super::freeze(&run)?.repaired);
        notes.extend(setup::touched(&run)?);
    }
    include::record(&run, &plan.include)?;
    // With the tree in its record the run is whole: from here on it is not withdrawn.
    run.folder.write(run.layout.dir())?;
    if let Some(status) = status
        && let Ok(bytes) = status.finish().and_then(crate::git::Answer::success)
    {
        lacking(base::lacking(&bytes), &mut notes);
    }
    Ok((run, notes))
}

/// As root the engine gets a user of its own, from the start: what it will own is made for it. Root of a user
/// namespace that has no other user keeps its number and loses all powers.
pub(super) fn identity(plan: &Cut) -> Result<(Option<Identity>, Option<Lock>), Failure> {
    if !process::can_become_others() {
        return Ok((None, None));
    }
    let seed = plan.run.millis() ^ u64::from(std::process::id());
    let (identity, claim) = process::pick_run_uid(seed).map_err(|e| {
        Failure::new(crate::model::Kind::Cage, "no user could be found for the engine to run as").because(e)
    })?;
    Ok((Some(identity), claim))
}

/// Claims the run's folder: begun under a name of its own, with its record and its lock, then renamed.
pub(super) fn claim(repo: &Repo, plan: &Cut, making: &Making, folder: &Folder) -> Result<Lock, Failure> {
    let staging = making.staging();
    let fail = |e: std::io::Error| {
        Failure::fatal(format!("'{}' cannot be made", plan.layout.dir().display())).because(e)
    };
    files::create_dir(&staging, 0o700).map_err(fail)?;
    files::create_dir(&staging.join("host"), 0o700).map_err(fail)?;
    folder.write(&staging)?;
    let policy = staging.join("host/policy.yml");
    files::write_new(&policy, &plan.policy_text, 0o600).map_err(fail)?;
    if let Some(task) = &plan.task {
        files::write_new(&staging.join("host/task"), task, 0o600).map_err(fail)?;
    }
    // Whoever stands in the run's tree and calls us means this repository.
    let main = repo.main_folder().as_os_str().as_encoded_bytes();
    files::write_new(&staging.join("host/main"), main, 0o600).map_err(fail)?;
    let lock = Lock::acquire(&Layout::new(&staging).lock())
        .map_err(fail)?
        .ok_or_else(|| Failure::fatal("somebody holds the lock of a run that did not exist"))?;
    files::rename_noreplace(&staging, plan.layout.dir()).map_err(|e| {
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            Failure::fatal(format!("'{}' was taken a moment ago", plan.layout.dir().display()))
                .hint("run the same command again")
        } else {
            fail(e)
        }
    })?;
    Ok(lock)
}

/// Branch and spawn event, both or neither: two spawns cannot take one name.
pub(super) fn publish(repo: &Repo, ledger: &Ledger<'_>, plan: &Cut) -> Result<crate::ledger::Tip, Failure> {
    if let Some(tip) = &plan.continues {
        return go_on(repo, plan, tip);
    }
    let kept = plan.task.iter().filter(|_| plan.task_text == TaskText::Full);
    let hidden = plan.task.iter().filter(|_| plan.task_text == TaskText::Digest);
    let fingerprint = |t: &Vec<u8>| Fingerprint { size: t.len() as u64, sha256: Digest::of(t) };
    let draft = Draft {
        body: Body::Spawn(Spawn {
            repo: plan.home.id.clone(),
            name: plan.name.clone(),
            role: plan.role.clone(),
            cr: plan.cr.clone(),
            isolation: plan.isolation,
            write: plan.ground.iter().flat_map(|g| g.named()).collect(),
            branch: plan.branch.clone(),
            base: plan.base.clone(),
            target: plan.target.clone(),
            local_base: plan.local_base,
            policy: plan.policy.clone(),
            strip: plan.strip.clone(),
            include: include::listing(&plan.include),
            port: plan.port,
            task: hidden.map(fingerprint).next(),
        }),
        att: kept.map(|t| (TASK.to_owned(), t.clone())).collect(),
        evidence: plan.refs.pins.clone(),
        time: plan.now,
        actor: plan.actor.clone(),
    };
    let prepared = ledger.prepare_first(&plan.run, &draft)?;
    let branch = match plan.isolation {
        Isolation::Worktree => Transaction::new().create(&plan.branch, &plan.base),
        Isolation::Reader | Isolation::Off => Transaction::new(),
    };
    let transaction = prepared.join(branch);
    match transaction.commit(repo, "agent: spawn") {
        Ok(()) => Ok(prepared.into_tip()),
        Err(RefError::Moved { name, .. }) => Err(Failure::fatal(format!("{name} was created a moment ago"))
            .hint("run the same command again, or take another name with --run")),
        Err(e) => Err(e.into()),
    }
}

/// A run that goes on has its entry; only its branch may have gone with its last tree.
fn go_on(repo: &Repo, plan: &Cut, tip: &crate::ledger::Tip) -> Result<crate::ledger::Tip, Failure> {
    match repo.ref_tip(&plan.branch)? {
        Some(at) if at == plan.base => {}
        Some(_) => {
            return Err(Failure::fatal(format!("{} is not where the run left it", plan.branch))
                .hint("rename that branch with 'git branch -m', or take another name with --run"));
        }
        None => Transaction::new().create(&plan.branch, &plan.base).commit(repo, "agent: continue")?,
    }
    Ok(tip.clone())
}

/// Annotated tags are objects that no commit parent can protect: the store gets its own copy of them.
fn annotated_tags(run: &Open<'_>, plan: &Cut) -> Result<(), Failure> {
    let tags: Vec<u8> = plan
        .refs
        .all
        .iter()
        .filter(|(_, p)| p.is_some())
        .flat_map(|(t, _)| format!("{}\n", t.oid).into_bytes())
        .collect();
    if tags.is_empty() {
        return Ok(());
    }
    let pack = run.repo.call("pack-objects").args(["--stdout", "-q"]).input(tags).output()?;
    let place = Place {
        git_dir: Some(run.layout.store()),
        objects: Some(run.layout.store().join("objects")),
        ..Place::default()
    };
    let cage = confine::plumbing(run, &[run.layout.store().join("objects")])?;
    confine::caged(&cage, Call::new("unpack-objects", &place).arg("-q"))?.input(pack).output()?;
    Ok(())
}

/// Checks the base out. In the cage and as the run's user: what a filter or a strange name could do, it does
/// there. Stripped paths are in the index, with skip-worktree, and not on disk.
fn fill(run: &Open<'_>, plan: &Cut) -> Result<(), Failure> {
    let place =
        Place { git_dir: Some(run.layout.git_dir()), work_tree: Some(run.layout.tree()), ..Place::default() };
    let cage = confine::plumbing(run, &[run.layout.tree(), run.layout.store()])?;
    let git = |verb: &str| -> Result<Call, Failure> {
        // Workers pay above a few hundred files, where git's own threshold puts them.
        let call = Call::with_settings(verb, &place, &["checkout.workers=0"]);
        confine::caged(&cage, call.current_dir(&run.layout.tree()))
    };
    let read_tree = git("read-tree")?;
    if plan.strip.is_empty() {
        read_tree.args(["--reset", "-u", plan.base.as_str()]).output()?;
        return Ok(());
    }
    read_tree.arg(plan.base.as_str()).output()?;
    let paths = plan.strip.iter().flat_map(|p| format!("{p}\0").into_bytes()).collect();
    git("update-index")?.args(["--skip-worktree", "-z", "--stdin"]).input(paths).output()?;
    git("checkout-index")?.args(["-a", "-u", "-q"]).output()?;
    Ok(())
}

fn own_files(run: &Open<'_>, plan: &Cut) -> std::io::Result<()> {
    let identity = serde_json::json!({
        "v": 1,
        "run": plan.run.as_str(),
        "name": plan.name.as_str(),
        "role": plan.role.as_str(),
        "cr": plan.cr,
        "base": plan.base.as_str(),
        "engine": plan.engines.first().map(|e| e.name.as_str()),
    });
    let tree = files::Dir::open(&run.layout.tree())?;
    let task = task_text(plan);
    for (path, bytes) in
        [(&plan.own_files.0, task.as_slice()), (&plan.own_files.1, format!("{identity:#}\n").as_bytes())]
    {
        if let Some(folder) = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty()) {
            let folder = folder.as_os_str().as_encoded_bytes();
            if tree.lstat_at(folder)?.is_none() {
                tree.create_dir_at(folder, 0o755)?;
                files::give(
                    &run.layout.tree().join(Path::new(path).parent().unwrap_or(Path::new(""))),
                    run.identity(),
                )?;
            }
        }
        tree.write_new_at(path.as_bytes(), bytes, 0o644)?;
        files::give(&run.layout.tree().join(path), run.identity())?;
    }
    Ok(())
}

pub(super) fn task_text(plan: &Cut) -> Vec<u8> {
    match &plan.task {
        Some(task) if task.ends_with(b"\n") => task.clone(),
        Some(task) => [task.as_slice(), b"\n"].concat(),
        None => b"No task was given.\n".to_vec(),
    }
}

fn lacking((modified, untracked): (usize, usize), notes: &mut Vec<String>) {
    let what = match (modified, untracked) {
        (0, 0) => return,
        (m, 0) => format!("{m} modified"),
        (0, u) => format!("{u} untracked"),
        (m, u) => format!("{m} modified, {u} untracked"),
    };
    notes.push(format!("{what} files of your tree are not in this run; --with-changes would include them"));
}
