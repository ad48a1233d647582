//! Against a model: random trees, edits of the person's and of a run's. What lands is what the model says, and a refusal
//! leaves the tree identical. And against git itself: what lands between two commits is what a checkout makes.

use crate::apply::approve;
use crate::support::*;
use std::collections::BTreeMap;

/// A small generator, so that a failure can be made again by its number.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Content and executable bit, by path.
type Model = BTreeMap<String, (String, bool)>;

const PATHS: [&str; 12] =
    ["a", "b", "c d", "dir/a", "dir/b", "dir/deep/c", "dir", "other/x", "other", "x/y/z", "x/y", "-n"];

/// Puts a file there unless it is in the way of another, or another of it.
fn put(model: &mut Model, path: &str, content: String, exec: bool) {
    let below = format!("{path}/");
    model.retain(|p, _| !p.starts_with(&below) && !path.starts_with(&format!("{p}/")));
    model.insert(path.into(), (content, exec));
}

fn edit(model: &mut Model, chance: &mut Chance, who: &str) {
    for n in 0..1 + chance.below(5) {
        let path = PATHS[chance.below(PATHS.len() as u64) as usize];
        match chance.below(4) {
            0 => drop(model.remove(path)),
            1 => {
                if let Some((_, exec)) = model.get_mut(path) {
                    *exec = !*exec;
                }
            }
            _ => put(model, path, format!("{who} {n} {}\n", chance.below(3)), chance.below(5) == 0),
        }
    }
}

fn script(from: &Model, to: &Model) -> String {
    let mut script = String::from("set -e\n");
    for path in from.keys().filter(|p| !to.contains_key(*p)) {
        script.push_str(&format!(
            "rm -- './{path}'; rmdir -p -- \"$(dirname './{path}')\" 2>/dev/null || true\n"
        ));
    }
    for (path, (content, exec)) in to.iter().filter(|(p, v)| from.get(*p) != Some(v)) {
        let mode = if *exec { "755" } else { "644" };
        script.push_str(&format!(
            "mkdir -p -- \"$(dirname './{path}')\"; printf '%s' '{content}' >'./{path}'; chmod {mode} './{path}'\n"
        ));
    }
    script + "true\n"
}

fn on_disk(repo: &Repo) -> Model {
    let mut model = Model::new();
    for path in walk(&repo.dir) {
        let name = path.strip_prefix(&repo.dir).unwrap().to_str().unwrap().to_owned();
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if !name.starts_with(".git") && meta.is_file() {
            use std::os::unix::fs::PermissionsExt;
            let exec = meta.permissions().mode() & 0o100 != 0;
            model.insert(name, (std::fs::read_to_string(&path).unwrap(), exec));
        }
    }
    model
}

/// `None`: refused. Else every path the run touched as in its result, every other as the person has it.
fn expected(base: &Model, run: &Model, person: &Model) -> Option<Model> {
    let mut result = person.clone();
    let touched: Vec<&String> =
        base.keys().chain(run.keys()).filter(|p| base.get(*p) != run.get(*p)).collect();
    for path in &touched {
        let (was, is, will) = (base.get(*path), person.get(*path), run.get(*path));
        if is != was && is != will {
            return None;
        }
        match will {
            Some(v) => drop(result.insert((*path).clone(), v.clone())),
            None => drop(result.remove(*path)),
        }
    }
    // A file where another needs a folder, or the other way round.
    let clash = result.keys().any(|p| result.keys().any(|q| q.starts_with(&format!("{p}/"))));
    (!clash).then_some(result)
}

fn against_the_model(from: u64, rounds: u64) {
    let (mut landed, mut refused) = (0, 0);
    for seed in from..from + rounds {
        let mut chance = Chance(seed);
        let sandbox = Sandbox::new();
        let repo = sandbox.empty_repo("project", &[]);
        let mut base = Model::new();
        for _ in 0..4 {
            edit(&mut base, &mut chance, "base");
        }
        sandbox.sh(&repo.dir, &script(&Model::new(), &base)).ok();
        repo.commit("base");
        let mut run = base.clone();
        edit(&mut run, &mut chance, "run");
        repo.spawn("--role developer --run r1", &script(&base, &run)).ok();
        if run == base {
            continue;
        }
        approve(&repo, "r1");
        let mut person = base.clone();
        if chance.below(3) > 0 {
            let who = if chance.below(4) == 0 { "run" } else { "person" };
            edit(&mut person, &mut chance, who);
        }
        sandbox.sh(&repo.dir, &script(&base, &person)).ok();
        assert_eq!(on_disk(&repo), person, "seed {seed}");
        let before = repo.fingerprint();
        let said = repo.agent("apply r1");
        match expected(&base, &run, &person) {
            Some(result) => {
                landed += 1;
                said.ok();
                assert_eq!(on_disk(&repo), result, "seed {seed}");
                if result != person {
                    repo.agent("apply --undo r1").ok();
                    before.unchanged(&repo.fingerprint());
                }
            }
            None => {
                refused += 1;
                assert_eq!(said.status(), 3, "seed {seed}: base {base:?} run {run:?} person {person:?}");
                before.unchanged(&repo.fingerprint());
            }
        }
    }
    eprintln!("model: {landed} landed and undone, {refused} refused");
}

#[test]
fn random_trees_land_as_the_model_says() {
    against_the_model(1, 24);
}

#[test]
#[ignore = "takes many minutes: tests/long.sh matrix"]
fn many_random_trees_land_as_the_model_says() {
    against_the_model(1_000, 400);
}

/// A generated history: from each commit to the next by an apply, and by a checkout.
#[test]
fn a_history_lands_as_git_would_check_it_out() {
    let sandbox = Sandbox::new();
    let repo = sandbox.empty_repo("project", &[]);
    let mut chance = Chance(7);
    let mut model = Model::new();
    put(&mut model, "a", "first\n".into(), false);
    sandbox.sh(&repo.dir, &script(&Model::new(), &model)).ok();
    let mut commits = vec![repo.commit("first")];
    for n in 0..8 {
        let before = model.clone();
        edit(&mut model, &mut chance, &format!("c{n}"));
        sandbox.sh(&repo.dir, &script(&before, &model)).ok();
        commits.push(repo.commit("next"));
    }
    let mut pairs = 0;
    for pair in commits.windows(2) {
        let [from, to] = pair else { unreachable!() };
        repo.git_args(["checkout", "-q", "--detach", from]);
        if repo.git_args(["diff", "--name-only", from, to]).is_empty() {
            continue;
        }
        let archive = sandbox.dir().join("next.tar");
        repo.git_args(["archive", "-o", archive.to_str().unwrap(), to]);
        let name = format!("r{pairs}");
        let wanted = {
            let out = sandbox.dir().join(format!("wanted{pairs}"));
            std::fs::create_dir(&out).unwrap();
            sandbox.run(&out, "tar", ["xf", archive.to_str().unwrap()]).ok();
            on_disk(&Repo { sandbox: &sandbox, dir: out })
        };
        repo.spawn(&format!("--role developer --run {name}"), &script(&on_disk(&repo), &wanted)).ok();
        approve(&repo, &name);
        repo.agent(&format!("apply {name}")).ok();
        assert_eq!(on_disk(&repo), wanted);
        // git agrees: with that commit's index there is no difference.
        repo.git_args(["update-ref", "--no-deref", "HEAD", to]);
        repo.git_args(["read-tree", to]);
        assert_eq!(repo.git("status --porcelain"), "");
        pairs += 1;
    }
    eprintln!("history: {pairs} pairs, 0 differences");
}
