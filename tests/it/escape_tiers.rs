//! Which tier a machine gives, what happens when it gives less, and what must still work in each: CG, TM and WK
//! of `containment.md`. Machines that give less are made from this one: user namespaces used up, `/proc` covered,
//! Landlock answered with ENOSYS by a filter.

use crate::escape_rows::{TIERS, use_tier};
use crate::support::{Ended, Mounted, Repo, Sandbox, both, eventually, processes_of, run};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};

/// Python that makes the kernel say no to some calls, and goes on with what follows.
const DENY: &str = r#"
import ctypes, os, struct, sys
c = ctypes.CDLL(None, use_errno=True)
ld = lambda k: struct.pack("HBBI", 0x20, 0, 0, k)
eq = lambda k, t, f: struct.pack("HBBI", 0x15, t, f, k)
ret = lambda k: struct.pack("HBBI", 0x06, 0, 0, k)
NO = 0x00050000
code = b""
for what in sys.argv[1].split(","):
    if what == "landlock":
        code += b"".join(ld(0) + eq(n, 0, 1) + ret(NO | 38) for n in (444, 445, 446))
    if what == "namespaces":
        code += ld(0) + eq(272, 0, 1) + ret(NO | 1)
    if what == "seccomp":
        code += ld(0) + eq(157, 0, 3) + ld(16) + eq(22, 0, 1) + ret(NO | 22) + ld(0) + eq(317, 0, 1) + ret(NO | 38)
code += ret(0x7FFF0000)
buffer = ctypes.create_string_buffer(code, len(code))
class Program(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("p", ctypes.c_void_p)]
program = Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
assert c.prctl(38, 1, 0, 0, 0) == 0
assert c.prctl(22, 2, ctypes.byref(program)) == 0
os.execvp(sys.argv[2], sys.argv[2:])
"#;

/// `git agent WORDS` on a machine that lacks something.
fn without(repo: &Repo, what: &str, words: &[&str]) -> Ended {
    let mut command = repo.sandbox.command(&repo.dir, "/usr/bin/python3");
    command.args(["-c", DENY, what, "git-agent"]).args(words);
    run(command, b"")
}

/// One that is denied everywhere, and one that only a mount namespace denies to an ordinary user.
fn holds(repo: &Repo, tier: &str, launch: impl Fn(&str) -> Ended) {
    let script = format!("echo x >in; ! echo evil >{}/new", repo.dir.display());
    launch(&script).ok();
    assert!(!repo.dir.join("new").exists(), "{tier}");
}

fn tier_of(repo: &Repo, run: &str) -> String {
    let log = repo.agent_args(["log", run, "--json"]).ok().json();
    let events = log["events"].as_array().unwrap();
    let engine = events.iter().rev().find(|e| e["kind"] == "engine").unwrap();
    let cage = if engine["cage"].is_null() { &engine["body"]["cage"] } else { &engine["cage"] };
    assert!(cage["canaries"].as_array().unwrap().iter().all(|c| c["held"] == true), "{cage}");
    cage["tier"].as_str().unwrap_or_else(|| panic!("{engine}")).to_owned()
}

#[test]
fn cg01_tm02_what_is_left_holds_and_is_said() {
    both(|s| {
        for (lacks, tier) in [("namespaces", "landlock"), ("landlock", "namespaces")] {
            let repo = s.repo_with(lacks, &[]);
            let said =
                without(&repo, lacks, &["spawn", "--role", "developer", "--run", "r", "--", "true"]).ok();
            said.says(&[&format!("tier {tier} instead of full"), "to raise it: "]);
            assert_eq!(tier_of(&repo, "r"), tier);
            holds(&repo, tier, |script| without(&repo, lacks, &["exec", "r", "--", "sh", "-c", script]));
        }
        let repo = s.repo_with("nothing", &[]);
        for lacks in ["landlock,namespaces", "seccomp"] {
            let said =
                without(&repo, lacks, &["spawn", "--role", "developer", "--run", "r", "--", "touch", "x"]);
            said.with(97).refuses(&["the cage is not in force"]);
        }
        assert_eq!(repo.branches(), ["main"]);
    });
}

#[test]
fn tm02_user_namespaces_used_up() {
    // Root of a user namespace in which no more can be made: with CAP_SYS_ADMIN, and without.
    let s = Sandbox::as_user();
    for (caps, tier) in
        [("", "full"), ("setpriv --bounding-set -sys_admin --inh-caps -sys_admin", "landlock")]
    {
        let repo = s.repo_with(tier, &[]);
        let file = s.dir().join("home/.gitconfig");
        // Less than the last time on this machine is another test's.
        s.run(s.dir(), "git", ["config", "--file", file.to_str().unwrap(), "agent.tier", tier]).ok();
        let inner = |words: &str| {
            let script =
                format!("echo 0 >/proc/sys/user/max_user_namespaces && exec {caps} git-agent {words}");
            s.run(&repo.dir, "unshare", ["-r", "sh", "-c", &script])
        };
        inner("spawn --role developer --run r -- true").ok();
        assert_eq!(tier_of(&repo, "r"), tier, "{caps}");
        holds(&repo, tier, |script| inner(&format!("exec r -- sh -c '{script}'")));
    }
    let repo = s.repo();
    s.run(s.dir(), "git", ["config", "--file", "home/.gitconfig", "--unset", "agent.tier"]).ok();
    s.repo_with("seen", &[]);
    let script = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -sys_admin --inh-caps \
                  -sys_admin env XDG_STATE_HOME=$PWD/../state2 git-agent spawn --role developer -- true";
    let said = s.run(&repo.dir, "unshare", ["-r", "sh", "-c", script]).ok();
    said.says(&["tier landlock instead of full", "to raise it: sudo sysctl user.max_user_namespaces="]);
}

#[test]
fn tm02_a_covered_proc() {
    // As in a container: the kernel gives an ordinary user no fresh /proc then; root still gets one.
    for (s, user, tier) in [
        (Sandbox::as_user(), "setpriv --reuid 4242 --regid 4242 --clear-groups", "landlock"),
        (Sandbox::new(), "", "full"),
    ] {
        let repo = s.repo();
        let inner = |words: &str| {
            let script = format!("mount --bind /dev/null /proc/kallsyms && exec {user} git-agent {words}");
            let mut command = s.command(&repo.dir, "unshare");
            std::os::unix::process::CommandExt::uid(&mut command, 0);
            std::os::unix::process::CommandExt::gid(&mut command, 0);
            command.args(["-m", "sh", "-c", &script]);
            run(command, b"")
        };
        let said = inner("spawn --role developer --run r -- true").ok();
        if tier == "landlock" {
            said.says(&[
                "tier landlock instead of full: a private /proc cannot be mounted",
                "systempaths=unconfined",
            ]);
        }
        assert_eq!(tier_of(&repo, "r"), tier);
        holds(&repo, tier, |script| inner(&format!("exec r -- sh -c '{script}'")));
    }
}

#[test]
fn tm02_root_without_cap_sys_admin() {
    let s = Sandbox::new();
    let repo = s.repo();
    let inner = |words: &[&str]| {
        let mut all = vec!["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "git-agent"];
        all.extend(words);
        s.run(&repo.dir, "setpriv", all)
    };
    inner(&[
        "spawn",
        "--role",
        "developer",
        "--run",
        "r",
        "--",
        "sh",
        "-c",
        "id -u >who; grep Cap /proc/self/status >>who",
    ])
    .ok();
    assert_eq!(tier_of(&repo, "r"), "full");
    let who = std::fs::read_to_string(repo.tree("r").join("who")).unwrap();
    assert!(!who.starts_with("0\n") && who.contains("CapEff:\t0000000000000000"), "{who}");
    holds(&repo, "full", |script| inner(&["exec", "r", "--", "sh", "-c", script]));
}

#[test]
fn cg03_root_is_not_kept() {
    let s = Sandbox::new();
    for tier in TIERS {
        use_tier(&s, tier);
        let repo = s.repo_with(tier, &[]);
        repo.spawn(
            "--role developer --run r",
            "id -u >who; grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status >>who",
        )
        .ok();
        let who = std::fs::read_to_string(repo.tree("r").join("who")).unwrap();
        let kept = if tier == "landlock" { "0000000000000004" } else { "0000000000000000" };
        assert!(!who.starts_with("0\n") && who.contains(&format!("CapEff:\t{kept}")), "{tier}: {who}");
        assert!(who.contains("CapBnd:\t0000000000000000"), "{tier}: {who}");
    }
}

#[test]
fn cg02_tm03_less_than_asked_for_is_refused() {
    both(|s| {
        let repo = s.repo();
        repo.policy("version: 1\ntier: full\n");
        use_tier(s, "namespaces");
        let said = repo.spawn("--role developer --run r", "touch x").with(97);
        said.refuses(&["the policy asks for the tier full: agent.tier is namespaces"]);
        assert_eq!(repo.branches(), ["main"]);
        without(&repo, "landlock", &["spawn", "--role", "developer", "--run", "r", "--", "true"]).with(97);

        let repo = s.repo_with("two", &[]);
        let home = s.dir().join("home/.gitconfig");
        let config = |words: &[&str]| {
            let mut all = vec!["config", "--file", home.to_str().unwrap()];
            all.extend(words);
            s.run(s.dir(), "git", all).ok();
        };
        config(&["--unset", "agent.tier"]);
        repo.spawn("--role developer --run r", "true").ok().says(&["tier full"]);
        let spawn = ["spawn", "--role", "developer", "--run", "r", "--", "touch", "evil"];
        let said = without(&repo, "namespaces", &spawn).with(97);
        said.refuses(&["the last run on this machine had full", "git config --global agent.tier landlock"]);
        without(&repo, "namespaces", &["exec", "r", "--", "true"]).with(97);
        assert!(!repo.tree("r").join("evil").exists());
        // A word in the repository is not the person's.
        repo.git("config agent.tier landlock");
        without(&repo, "namespaces", &spawn).with(97);
        config(&["agent.tier", "landlock"]);
        without(&repo, "namespaces", &["spawn", "--role", "developer", "--run", "r", "--", "true"]).ok();
        config(&["--unset", "agent.tier"]);
        without(&repo, "namespaces", &["spawn", "--role", "developer", "--run", "r", "--", "true"]).ok();
        // Better again; from then on less is refused again.
        repo.spawn("--role developer --run r", "true").ok().says(&["tier full"]);
        without(&repo, "namespaces", &spawn).with(97);
        config(&["agent.tier", "best"]);
        repo.spawn("--role developer --run r", "true").with(128).refuses(&["agent.tier is no tier: 'best'"]);
    });
}

#[test]
fn tm01_below_a_private_folder() {
    both(|s| {
        for base in ["/tmp", "/var/tmp", "/run", "/dev/shm"] {
            let top =
                Path::new(base).join(format!("{}.tm01", s.dir().file_name().unwrap().display())).join("deep");
            std::fs::create_dir_all(&top).unwrap();
            let _gone = Gone(top.parent().unwrap().to_owned());
            s.give(&top);
            owned(s, top.parent().unwrap());
            owned(s, &top);
            let from = s.repo_with(&format!("r{}", base.replace('/', "-")), &[]);
            s.run(s.dir(), "cp", ["-a", from.dir.to_str().unwrap(), top.join("repo").to_str().unwrap()]).ok();
            s.run(&top, "mkdir", ["home", "state"]).ok();
            let repo = Repo { sandbox: s, dir: top.join("repo") };
            let before = crate::support::fingerprint(&repo.dir, |p| !p.starts_with(repo.dir.join(".git")));
            for tier in TIERS {
                use_tier(s, tier);
                let script = format!(
                    "set -e; echo x >in; git add in; git commit -qm in; git log --oneline >log
                     ! echo evil >{top}/repo/new; ! echo evil >{top}/repo/README; ! echo evil >{top}/home/new
                     ! mkdir {top}/repo/d; ! echo evil >{top}/new; ! mv {top}/repo {top}/x; ! rm -rf {top}/repo/README || test -e {top}/repo/README -o {tier} != landlock",
                    top = top.display()
                );
                let mut command = repo.agent_command([
                    "spawn",
                    "--role",
                    "developer",
                    "--run",
                    tier,
                    "--",
                    "sh",
                    "-c",
                    &script,
                ]);
                command.env("HOME", top.join("home")).env("XDG_STATE_HOME", top.join("state"));
                run(command, b"").ok();
            }
            let after = crate::support::fingerprint(&repo.dir, |p| !p.starts_with(repo.dir.join(".git")));
            before.unchanged(&after);
            assert_eq!(std::fs::read_dir(top.join("home")).unwrap().count(), 0, "{base}");
        }
    });
}

fn owned(s: &Sandbox, path: &Path) {
    if s.is_user() {
        std::os::unix::fs::chown(path, Some(crate::support::USER), Some(crate::support::USER)).unwrap();
    }
}

struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Parent and name of a process.
fn stat(pid: i32) -> Option<(i32, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;
    Some((rest.split_ascii_whitespace().nth(1)?.parse().ok()?, name.to_owned()))
}

/// The process of a run that its supervisor started, directly or not.
fn below(supervisor: i32, name: &str) -> Option<i32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| {
        let Some((parent, own)) = stat(*pid) else { return false };
        own == name && (parent == supervisor || stat(parent).is_some_and(|(p, _)| p == supervisor))
    })
}

/// CG06, PR05 and the kills of WK02: each process of the chain, and two at once.
#[test]
fn cg06_pr05_kill_9_of_each_process_of_the_chain() {
    both(|s| {
        for tier in ["namespaces", "full"] {
            use_tier(s, tier);
            for (n, victims) in [
                &["supervisor"][..],
                &["cage-init"],
                &["cage-outer"],
                &["cage-init", "supervisor"],
                &["supervisor", "cage-outer"],
            ]
            .iter()
            .enumerate()
            {
                let repo = s.repo_with(&format!("{tier}{n}"), &[]);
                let name = &format!("{tier}{n}");
                let script = "(setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' &) ; echo up >up; sleep 1000";
                let engine = repo.start(&format!("--role developer --run {name}"), script);
                let supervisor = engine.pid();
                eventually("the engine is up", || crate::runs_control::written(&repo, name, "up"));
                let pids: Vec<i32> = victims
                    .iter()
                    .map(|v| if *v == "supervisor" { supervisor } else { below(supervisor, v).expect(v) })
                    .collect();
                for pid in pids {
                    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
                }
                let _ = engine.end().status();
                let tree = repo.tree(name);
                eventually("no process is left", || processes_of(&tree).is_empty());
                // The lock is free with the last of them, whoever died first.
                repo.agent_args(["finish", name]).ok();
                assert_eq!(repo.state(name), "proposed", "{tier} {victims:?}");
            }
        }
    });
}

#[test]
fn pr11_what_fills_up_is_bounded() {
    both(|s| {
        let small = s.dir().join("small");
        let mounted = Mounted::tmpfs(&small, "size=64m,mode=777");
        for tier in TIERS {
            use_tier(s, tier);
            let repo = s.repo_with(tier, &[]);
            repo.git_args(["config", "agent.root", small.join(tier).to_str().unwrap()]);
            let script = "i=0; while :; do dd if=/dev/zero of=f$i bs=64k count=16 status=none; i=$((i+1)); sleep 0.05; done";
            let said = repo.spawn("--role developer --run r", script).with(125);
            said.says(&["it had nearly filled the disk"]);
            assert!(crate::support::walk(&small).len() > 3);
            repo.agent("discard r").ok();
            if tier == "landlock" {
                continue;
            }
            let script =
                "ulimit -u; df -k --output=size /tmp /dev/shm | grep -v blocks; head -1 /proc/meminfo";
            let said = repo
                .agent_args(["spawn", "--role", "developer", "--run", "t", "--", "bash", "-c", script])
                .ok();
            let numbers: Vec<u64> =
                said.out().split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect();
            assert_eq!(numbers[0], 8192);
            assert!(numbers[1] <= numbers[3] / 4 && numbers[2] <= numbers[3] / 4, "{numbers:?}");
            repo.agent("discard t").ok();
        }
        drop(mounted);
    });
}

/// Quick parts of WK01: what runs in tiers with namespaces, and what of it the landlock tier cannot.
const WORK: &[(&str, bool, &str)] = &[
    (
        "multiprocessing",
        false,
        r#"TMPDIR=/tmp /usr/bin/python3 -c '
import multiprocessing as m
def f(x): return x * x
if __name__ == "__main__":
    with m.Pool(2) as p: assert p.map(f, range(9))[8] == 64
    q = m.Queue(); p = m.Process(target=q.put, args=(1,)); p.start(); assert q.get(timeout=30) == 1; p.join()
    with m.Manager() as g: assert g.list([1])[0] == 1
'"#,
    ),
    (
        "shared memory",
        false,
        r#"/usr/bin/python3 -c '
from multiprocessing import shared_memory as s
m = s.SharedMemory(create=True, size=4096); m.buf[0] = 1; m.close(); m.unlink()'"#,
    ),
    (
        "a socket with a path",
        false,
        r#"node -e '
const net = require("net"), s = net.createServer(c => c.end("x")).listen("./s.sock", () =>
  net.connect("./s.sock").on("data", () => { s.close(); process.exitCode = 0; }))'"#,
    ),
    ("a terminal", false, "script -qec 'test -t 0 && tty' /dev/null | grep -q /dev/pts/"),
    ("the own terminal", true, "test ! -t 0"),
    ("temporary folders", false, "echo x >/tmp/a && echo x >/var/tmp/a && echo x >/dev/shm/a && cat /tmp/a"),
    ("TMPDIR", true, "f=$(mktemp) && echo x >$f"),
    (
        "loopback",
        true,
        r#"/usr/bin/python3 -c '
import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); socket.create_connection(s.getsockname(), 9)'"#,
    ),
    (
        "what is in /proc",
        true,
        "grep -q . /proc/cpuinfo && grep -q . /proc/meminfo && cat /proc/self/status /proc/sys/kernel/osrelease",
    ),
    ("devices", true, "head -c 9 /dev/urandom >/dev/null && echo x >&2"),
    ("names", true, "getent passwd root && getent hosts localhost"),
];

#[test]
fn wk01_work_inside() {
    both(|s| {
        let repo = s.repo();
        repo.agent("spawn --role developer --run r").ok();
        for tier in TIERS {
            use_tier(s, tier);
            for (name, everywhere, script) in WORK {
                let ended = repo.agent_args(["exec", "r", "--", "sh", "-c", script]);
                // Without sockets with a path (namespaces and an open network) not all of it works.
                let sockets = ["multiprocessing", "a socket with a path"].contains(name);
                let works = *everywhere || tier == "full" || tier == "namespaces" && !sockets;
                let status = ended.status();
                assert_eq!(status == 0, works, "{tier}, {name}: {}", ended.with(status).err());
            }
        }
        let said = repo.agent("finish r").ok();
        assert!(!said.err().contains("panicked"));
    });
}
