//! Real kernel enforcement: every denied attempt succeeds without the cage.

use super::*;
use crate::os::files;
use crate::os::process::{self, Identity};
use std::io::{Read, Seek};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

static SEED: AtomicU64 = AtomicU64::new(0);

/// A run's folders and an outside that every user may write, so that only the cage can be in the way.
struct Bench {
    folder: tempfile::TempDir,
    identity: Option<Identity>,
    tier: Tier,
}

/// Does it in every tier that this machine holds, and says which it does not.
fn in_each_tier(test: impl Fn(Tier)) {
    for tier in [Tier::Landlock, Tier::Namespaces, Tier::Full] {
        match probe().lacks(tier) {
            None => test(tier),
            Some(lacks) => skipped(tier, &lacks),
        }
    }
}

#[allow(clippy::disallowed_macros)]
fn skipped(tier: Tier, lacks: &str) {
    eprintln!("tier {} is not tested: {lacks}", tier.as_str());
}

impl Bench {
    fn new(tier: Tier) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let identity = process::is_root().then(|| {
            let seed = u64::from(std::process::id()) * 64 + SEED.fetch_add(1, Ordering::Relaxed);
            process::pick_run_uid(seed).unwrap().0
        });
        let at = |name: &str| folder.path().join(name);
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        files::create_dir(&at("out"), 0o777).unwrap();
        files::write_new(&at("out/victim"), b"whole", 0o666).unwrap();
        files::create_dir(&at("home"), 0o755).unwrap();
        files::write_new(&at("home/secret"), b"secret", 0o644).unwrap();
        files::create_dir(&at("run"), 0o755).unwrap();
        for name in ["run/tree", "run/engine", "run/tmp", "run/cache", "run/engine/home"] {
            files::create_dir_for(&at(name), 0o700, identity).unwrap();
        }
        Self { folder, identity, tier }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        let dirs =
            RunDirs { engine: self.at("run/engine"), tmp: self.at("run/tmp"), cache: self.at("run/cache") };
        let mut env = environment(std::env::vars_os(), &process::current_user(), &dirs, &|p| p.exists());
        env.push(("OUT".into(), self.at("out").into()));
        env.push(("SECRET".into(), self.at("home/secret").into()));
        env
    }

    fn spec(&self) -> CageSpec {
        let wish = Wish {
            tier: self.tier,
            hidden: vec![self.at("home"), self.at("out")],
            write: ["run/tree", "run/engine", "run/tmp", "run/cache"].map(|n| self.at(n)).to_vec(),
            env: self.env(),
            cwd: self.at("run/tree"),
            identity: self.identity,
            ..Wish::default()
        };
        let home = process::current_user().home;
        let facts = Facts::gather(&wish, home.as_deref(), std::env::var_os("PATH").as_deref());
        CageSpec::build(&wish, &facts)
    }

    fn cage(&self) -> Cage {
        Cage::prepare(self.spec()).unwrap()
    }

    fn lock(&self) -> Lock {
        // A child that another thread has just forked may hold a copy of the last one's descriptor.
        eventually("the lock is free", || !Lock::is_held(&self.at("lock")).unwrap());
        Lock::acquire(&self.at("lock")).unwrap().unwrap()
    }

    /// Runs a bash script in the cage: outcome and everything it printed.
    fn inside(&self, script: &str) -> (crate::model::Ended, String) {
        self.inside_for(script, None)
    }

    fn inside_for(&self, script: &str, wall: Option<Duration>) -> (crate::model::Ended, String) {
        let mut printed = tempfile::tempfile().unwrap();
        let to = || Output::To(printed.try_clone().unwrap().into());
        let stdio = Stdio { input: Input::Null, output: to(), error: to() };
        let argv = ["bash", "-c", script].map(OsString::from);
        let outcome = self.cage().run(&argv, stdio, &self.lock(), wall).unwrap();
        let mut text = String::new();
        printed.rewind().unwrap();
        printed.read_to_string(&mut text).unwrap();
        (outcome.ended, text)
    }

    /// The same script without a cage.
    fn uncaged(&self, script: &str) -> std::process::Output {
        Command::new("bash")
            .args(["-c", script])
            .env_clear()
            .envs(self.env())
            .current_dir(self.at("run/tree"))
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap()
    }
}

fn python(code: &str) -> String {
    format!("exec /usr/bin/python3 -c {}", crate::text::shell_quote(code))
}

fn denied(tier: Tier, name: &str, script: &str) {
    let name = &format!("{name} in {}", tier.as_str());
    let bench = Bench::new(tier);
    let (ended, text) = bench.inside(script);
    assert_ne!(ended, crate::model::Ended::Exit(0), "{name} was not denied: {text}");
    assert!(matches!(ended, crate::model::Ended::Exit(_)), "{name}: {ended:?} {text}");
    assert_eq!(std::fs::read(bench.at("out/victim")).unwrap(), b"whole", "{name}");
    assert_eq!(std::fs::read_dir(bench.at("out")).unwrap().count(), 1, "{name}");
    let control = Bench::new(tier);
    let done = control.uncaged(script);
    assert!(done.status.success(), "positive control of {name}: {done:?}");
}

#[test]
fn files_outside_cannot_be_written() {
    in_each_tier(|tier| {
        for (name, script) in [
            ("absolute path", "echo x > $OUT/new"),
            ("..", "echo x > ../../out/new"),
            ("link to a file", "ln -s $OUT/victim l && echo x > l"),
            ("link to a folder", "ln -s $OUT l && echo x > l/new"),
            ("dangling link", "ln -s $OUT/dangling l && echo x > l"),
            ("hard link", "ln $OUT/victim h && echo x > h"),
            ("rename out", "echo x > f && mv f $OUT/f && test -e $OUT/f"),
            ("/proc/self/root", "echo x > /proc/self/root$OUT/new"),
            ("/proc/self/cwd", "echo x > /proc/self/cwd/../../out/new"),
            ("unlink", "rm $OUT/victim"),
        ] {
            denied(tier, name, script);
        }
        denied(tier, "truncate", &python("import os; os.truncate(os.environ['OUT'] + '/victim', 0)"));
        denied(
            tier,
            "O_TMPFILE and linkat",
            &python(
                "import os, sys, ctypes; o = os.environ['OUT']; f = os.open(o, os.O_TMPFILE | os.O_RDWR, 0o600); \
             p = f'/proc/self/fd/{f}'; \
             sys.exit(ctypes.CDLL(None).linkat(-100, p.encode(), -100, (o + '/new').encode(), 0x400) != 0)",
            ),
        );
    });
}

#[test]
fn calls_around_the_path_rules_are_denied() {
    in_each_tier(|tier| {
        let libc = "import ctypes, sys; c = ctypes.CDLL(None, use_errno=True); ";
        denied(tier, "HOME", "cat $SECRET");
        denied(tier, "unshare", "unshare -U true");
        denied(tier, "ptrace", &python(&format!("{libc} sys.exit(c.ptrace(0, 0, 0, 0) != 0)")));
        if tier != Tier::Full {
            denied(tier, "AF_UNIX", &python("import socket; socket.socket(socket.AF_UNIX)"));
        }
        if process::is_root() {
            denied(tier, "chroot", &python(&format!("{libc} sys.exit(c.chroot(b'/') != 0)")));
        }
        // Without the cage these fail, but not with EPERM.
        let number = |code: &str| python(&format!("{libc} {code}; sys.exit(ctypes.get_errno() == 1)"));
        denied(
            tier,
            "TIOCSTI with high bits",
            &number("c.syscall(16, 0, ctypes.c_ulong(0x100005412), b'x')"),
        );
        denied(tier, "io_uring", &number("c.syscall(425, 0, 0)"));
        denied(tier, "MPTCP", &number("c.socket(2, 1, 262)"));
        denied(
            tier,
            "clone with namespaces",
            &python(&format!(
                "{libc} p = c.syscall(56, ctypes.c_ulong(0x10000000 | 17), 0, 0, 0, 0); \
         import os; p == 0 and os._exit(0); sys.exit(p < 0)"
            )),
        );
        let bench = Bench::new(tier);
        let pair = bench.inside(&python("import socket; socket.socketpair()"));
        assert_eq!(pair.0, crate::model::Ended::Exit(0), "{}", pair.1);
    });
}

#[test]
fn signals_to_the_outside_are_denied() {
    in_each_tier(|tier| {
        let mut target = Command::new("sleep").arg("60").spawn().unwrap();
        denied(tier, "kill", &format!("kill -0 {}", target.id()));
        target.kill().unwrap();
        target.wait().unwrap();
    });
}

#[test]
#[allow(unsafe_code)]
fn no_descriptor_is_inherited() {
    in_each_tier(|tier| {
        let bench = Bench::new(tier);
        let victim = std::fs::File::options().append(true).open(bench.at("out/victim")).unwrap();
        // SAFETY: duplicates a descriptor without close-on-exec, which is what the test is about.
        let leaked = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&victim), libc::F_DUPFD, 300) };
        let script = format!("echo x >&{leaked}");
        assert_ne!(bench.inside(&script).0, crate::model::Ended::Exit(0));
        assert_eq!(std::fs::read(bench.at("out/victim")).unwrap(), b"whole");
        assert!(bench.uncaged(&script).status.success());
        // SAFETY: ours.
        unsafe { libc::close(leaked) };
    });
}

#[test]
fn work_goes_on_inside() {
    in_each_tier(|tier| {
        let bench = Bench::new(tier);
        let (ended, text) = bench.inside(
        "set -e; git init -q . && echo 1 > a && git add a && git -c user.name=n -c user.email=e commit -qm m
         git log --oneline; ln -s a b; chmod 700 a; mkdir -p d/e; mv a d/e/; cat <(echo sub)
         /usr/bin/python3 -c 'import tempfile; tempfile.NamedTemporaryFile()'
         python3 -c 'print(1)'; node -e 'require(\"fs\").writeFileSync(\"n\", \"1\")'; if command -v cargo; then cargo --version; fi
         echo x > /dev/null; head -c1 /dev/urandom > r; stat n",
    );
        assert_eq!(ended, crate::model::Ended::Exit(0), "{text}");
        let written = std::fs::metadata(bench.at("run/tree/n")).unwrap();
        if let Some(identity) = bench.identity {
            assert_eq!((written.uid(), written.gid()), (identity.uid, identity.gid));
        }
    });
}

#[test]
fn as_root_at_most_one_capability_is_left_and_no_way_back() {
    in_each_tier(|tier| {
        if !process::is_root() {
            return;
        }
        let bench = Bench::new(tier);
        let (_, text) = bench.inside("id -u; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
        let uid = bench.identity.unwrap().uid;
        assert!(text.starts_with(&format!("{uid}\n")), "{text}");
        // Where nothing needs it, also the capability to read is gone.
        let kept = if bench.spec().reads_all { "0000000000000004" } else { "0000000000000000" };
        assert_eq!(bench.spec().reads_all, tier == Tier::Landlock);
        for line in [
            &format!("CapInh:\t{kept}"),
            &format!("CapPrm:\t{kept}"),
            &format!("CapEff:\t{kept}"),
            "CapBnd:\t0000000000000000",
            &format!("CapAmb:\t{kept}"),
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        // With that capability a disk could be read, were it shown.
        let shown = |p: &PathBuf| p.starts_with("/dev") || Path::new("/dev").starts_with(p);
        assert!(tier != Tier::Landlock || !bench.spec().read.iter().any(shown));
        denied(tier, "shadow", "cat /etc/shadow");
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        denied(tier, "another's environment", &format!("cat /proc/{}/environ", other.id()));
        other.kill().unwrap();
        other.wait().unwrap();
        let stay = CageSpec { wish: Wish { identity: None, ..bench.spec().wish }, ..bench.spec() };
        assert!(matches!(Cage::prepare(stay), Err(CageError::NotInForce { .. })));
    });
}

#[test]
fn what_the_engine_leaves_running_is_dead() {
    in_each_tier(|tier| {
        let bench = Bench::new(tier);
        let marker = format!("{}.4711", 900_000 + u64::from(std::process::id()));
        let (ended, _) =
            bench.inside(&format!("(setsid bash -c 'setsid sleep {marker} & disown' &) ; sleep 0.3; exit 7"));
        assert_eq!(ended, crate::model::Ended::Exit(7));
        assert_eq!(running(&marker), 0);
        let begun = std::time::Instant::now();
        let wall = Duration::from_millis(300);
        let (ended, _) =
            bench.inside_for(&format!("trap '' TERM; sleep {marker}; sleep {marker}"), Some(wall));
        assert!(matches!(ended, crate::model::Ended::Timeout(_)), "{ended:?}");
        assert!(begun.elapsed() < Duration::from_secs(6));
        assert_eq!(running(&marker), 0);
        assert_eq!(bench.inside("kill -9 $$").0, crate::model::Ended::Signal(9));
    });
}

fn running(marker: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok());
    lines
        .filter(|l| {
            String::from_utf8_lossy(l).starts_with("sleep") && String::from_utf8_lossy(l).contains(marker)
        })
        .count()
}

fn eventually(what: &str, check: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !check() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_fork_bomb_ends() {
    in_each_tier(|tier| {
        let bench = Bench::new(tier);
        let mut spec = bench.spec();
        let users = if bench.identity.is_some() { 0 } else { 400 };
        spec.wish.limits.processes = Some(200 + users);
        let argv = ["bash", "-c", "f() { f | f & f; }; f 2>/dev/null"].map(OsString::from);
        let stdio = Stdio { input: Input::Null, output: Output::Null, error: Output::Null };
        let wall = Some(Duration::from_millis(200));
        let begun = std::time::Instant::now();
        Cage::prepare(spec).unwrap().run(&argv, stdio, &bench.lock(), wall).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20));
        if let Some(identity) = bench.identity {
            let left = std::fs::read_dir("/proc").unwrap().flatten();
            assert_eq!(left.filter(|e| e.metadata().is_ok_and(|m| m.uid() == identity.uid)).count(), 0);
        }
    });
}

#[test]
fn a_link_where_a_writable_folder_was_is_refused() {
    in_each_tier(|tier| {
        let bench = Bench::new(tier);
        std::fs::remove_dir(bench.at("run/cache")).unwrap();
        files::symlink(&bench.at("out"), &bench.at("run/cache")).unwrap();
        assert_eq!(Cage::prepare(bench.spec()).map(|_| ()).unwrap_err().exit_status(), 97);
    });
}

fn tier_of_helper() -> Tier {
    Tier::named(&std::env::var("GIT_AGENT_TEST_TIER").unwrap()).unwrap()
}

/// Not a test by itself: the supervisor that the next test kills.
#[test]
fn helper_supervisor() {
    let Some(marker) = std::env::var_os("GIT_AGENT_TEST_MARKER") else { return };
    let tier = tier_of_helper();
    let lock = PathBuf::from(std::env::var_os("GIT_AGENT_TEST_LOCK").unwrap());
    let bench = Bench::new(tier);
    let lock = Lock::acquire(&lock).unwrap().unwrap();
    let mut script = OsString::from("trap '' TERM HUP; (setsid sleep ");
    script.push(&marker);
    script.push(" &); sleep ");
    script.push(&marker);
    let argv = ["bash".into(), "-c".into(), script];
    let ended = bench.cage().run(&argv, Stdio { input: Input::Null, ..Stdio::default() }, &lock, None);
    let told = PathBuf::from(std::env::var_os("GIT_AGENT_TEST_LOCK").unwrap()).with_extension("told");
    files::write_new(&told, format!("{:?}", ended.unwrap().ended).as_bytes(), 0o644).unwrap();
}

/// Not a test by itself: an engine on a terminal.
#[test]
fn helper_terminal() {
    let Some(lock) = std::env::var_os("GIT_AGENT_TEST_TERMINAL") else { return };
    let tier = tier_of_helper();
    let bench = Bench::new(tier);
    let lock = Lock::acquire(Path::new(&lock)).unwrap().unwrap();
    let script = "echo engine=$$; read line; echo heard=$line; sleep 60";
    let argv = ["bash", "-c", script].map(OsString::from);
    let outcome = bench.cage().run(&argv, Stdio::default(), &lock, None).unwrap();
    let text = format!("ended={:?}\n", outcome.ended);
    rustix::io::write(std::io::stdout(), text.as_bytes()).unwrap();
}

#[test]
fn the_engine_has_the_terminal_and_gives_it_back() {
    in_each_tier(|tier| {
        let t = tempfile::tempdir().unwrap();
        let driver = r#"
import os, pty, select, signal, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], '--exact', 'os::cage::tests::helper_terminal', '--nocapture'])
seen = b''
def until(word):
    global seen
    end = time.time() + 10
    while word not in seen:
        assert time.time() < end, (word, seen)
        if select.select([fd], [], [], 0.1)[0]:
            seen += os.read(fd, 4096)
until(b'engine=')
assert os.tcgetpgrp(fd) != pid, 'the engine is in the foreground'
os.write(fd, b'\x1a')
assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
assert os.tcgetpgrp(fd) == pid, 'the shell would get it back'
os.kill(pid, signal.SIGCONT)
time.sleep(0.3)
os.write(fd, b'hello\n')
until(b'heard=hello')
time.sleep(0.2)
os.write(fd, b'\x03')
until(b'ended=Signal(2)')
assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 0
"#;
        let done = Command::new("/usr/bin/python3")
            .args(["-c", driver])
            .arg(std::env::current_exe().unwrap())
            .env("GIT_AGENT_TEST_TERMINAL", t.path().join("lock"))
            .env("GIT_AGENT_TEST_TIER", tier.as_str())
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    });
}

/// A supervisor in a process of its own, whose engine ignores SIGTERM and has a daemon.
struct Supervisor {
    folder: tempfile::TempDir,
    marker: String,
    process: std::process::Child,
}

impl Supervisor {
    fn start(tier: Tier, number: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let marker = format!("{}.{number}", 900_000 + u64::from(std::process::id()));
        let mut command = Command::new("/proc/self/exe");
        // The test binary has threads; only the one that supervises may take the signal.
        confine::before_exec(&mut command, || {
            std::mem::forget(terminal::Signals::block(&[libc::SIGTERM])?);
            Ok(())
        });
        let process = command
            .args(["--exact", "os::cage::tests::helper_supervisor", "--nocapture"])
            .env("GIT_AGENT_TEST_MARKER", &marker)
            .env("GIT_AGENT_TEST_TIER", tier.as_str())
            .env("GIT_AGENT_TEST_LOCK", folder.path().join("lock"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        eventually("the engine runs", || running(&marker) == 2);
        Self { folder, marker, process }
    }

    fn cage_init(&self) -> i32 {
        let parent = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after = stat.rsplit(')').next().unwrap_or_default().to_owned();
            after.split_ascii_whitespace().nth(1).and_then(|p| p.parse::<u32>().ok())
        };
        let is_init = |p: &u32| {
            std::fs::read_to_string(format!("/proc/{p}/comm")).is_ok_and(|c| c == "cage-init\n")
                && (parent(*p) == Some(self.process.id())
                    || parent(*p).and_then(parent) == Some(self.process.id()))
        };
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let found = pids.filter_map(|e| e.file_name().to_str()?.parse().ok()).find(is_init);
        found.unwrap() as i32
    }

    fn ends_clean(mut self) -> String {
        self.process.wait().unwrap();
        eventually("everything is dead", || running(&self.marker) == 0);
        let lock = self.folder.path().join("lock");
        eventually("the lock is free", || !Lock::is_held(&lock).unwrap());
        std::fs::read_to_string(lock.with_extension("told")).unwrap_or_default()
    }
}

#[test]
fn a_killed_supervisor_leaves_no_process_and_then_no_lock() {
    in_each_tier(|tier| {
        let mut supervisor = Supervisor::start(tier, 4712);
        supervisor.process.kill().unwrap();
        assert_eq!(supervisor.ends_clean(), "");
    });
}

#[test]
fn a_supervisor_that_is_asked_to_stop_stops_everything() {
    in_each_tier(|tier| {
        let supervisor = Supervisor::start(tier, 4713);
        let holder = Lock::holder(&supervisor.folder.path().join("lock")).unwrap().unwrap();
        assert_eq!(holder.pid, supervisor.process.id() as i32);
        assert!(process::signal_exact(holder.pid, holder.start, libc::SIGTERM).unwrap());
        assert_eq!(supervisor.ends_clean(), "Stopped");
    });
}

#[test]
fn a_killed_cage_init_takes_everything_with_it() {
    in_each_tier(|tier| {
        let supervisor = Supervisor::start(tier, 4714);
        let init = supervisor.cage_init();
        let start = process::start_time(init).unwrap().unwrap();
        assert!(process::signal_exact(init, start, libc::SIGKILL).unwrap());
        assert_eq!(supervisor.ends_clean(), "Unseen");
    });
}

#[test]
fn launch_failures_are_told_apart() {
    in_each_tier(|tier| {
        let bench = Bench::new(tier);
        files::write_new(&bench.at("out/program"), b"#!/bin/sh\n", 0o755).unwrap();
        files::write_new(&bench.at("out/data"), b"", 0o644).unwrap();
        let run = |program: PathBuf| {
            let stdio = Stdio { input: Input::Null, ..Stdio::default() };
            bench.cage().run(&[program.into()], stdio, &bench.lock(), None).unwrap_err().exit_status()
        };
        assert_eq!(run("no-such-program-here".into()), 127);
        assert_eq!(run(bench.at("out/data")), 126);
        assert_eq!(run(bench.at("out/program")), 126, "hidden");
        let spec = CageSpec { wish: Wish { cwd: bench.at("gone"), ..bench.spec().wish }, ..bench.spec() };
        let stdio = Stdio { input: Input::Null, ..Stdio::default() };
        let failed = Cage::prepare(spec).unwrap().run(&["true".into()], stdio, &bench.lock(), None);
        assert_eq!(failed.unwrap_err().exit_status(), 125);
    });
}

#[test]
fn canaries_tell_a_cage_from_none() {
    in_each_tier(|tier| {
        let bench = Bench::new(tier);
        let cage = bench.cage();
        let held =
            cage.canaries(&[("sibling", bench.at("out/victim")), ("new", bench.at("out/new"))]).unwrap();
        let asked = held.iter().filter(|c| ["sibling", "new"].contains(&c.name.as_str())).count();
        assert!(held.iter().all(|c| c.held) && asked == 2, "{held:?}");
        let open = cage.canaries(&[("own tree", bench.at("run/tree/f"))]).unwrap_err();
        assert_eq!(open.exit_status(), 97);
        assert!(!bench.at("run/tree/f").exists());
    });
}

#[test]
fn a_simple_child_is_confined_too() {
    in_each_tier(|tier| {
        let bench = Bench::new(tier);
        let run = |script: &str| {
            let mut command = Command::new("bash");
            command.args(["-c", script]);
            bench.cage().confine(&mut command).unwrap();
            command.output().unwrap()
        };
        assert!(run("echo 1 > f && test -z \"$GH_TOKEN\"").status.success());
        assert!(!run("echo 1 > $OUT/new").status.success());
        assert!(!bench.at("out/new").exists());
    });
}

#[test]
fn the_environment_is_an_allow_list() {
    let caller = [
        ("PATH", "/usr/bin:relative::/bin"),
        ("LANG", "C"),
        ("LC_ALL", "C"),
        ("GH_TOKEN", "s"),
        ("GIT_DIR", "/x"),
        ("SSH_AUTH_SOCK", "/s"),
        ("LD_PRELOAD", "/x"),
        ("BASH_ENV", "/x"),
        ("NODE_OPTIONS", "x"),
        ("ANTHROPIC_API_KEY", "s"),
        ("PYTHONPATH", "/x"),
        ("HOME", "/home/u"),
    ];
    let user =
        process::User { uid: 1, gid: 1, login: "u".into(), host: "h".into(), home: Some("/home/u".into()) };
    let dirs = RunDirs { engine: "/r/engine".into(), tmp: "/r/tmp".into(), cache: "/r/cache".into() };
    let caller = caller.iter().map(|(k, v)| (OsString::from(k), OsString::from(v)));
    let env = environment(caller, &user, &dirs, &|p| p == Path::new("/home/u/.rustup"));
    let get = |name: &str| env.iter().find(|(k, _)| k == name).map(|(_, v)| v.to_str().unwrap());
    assert_eq!(get("PATH"), Some("/usr/bin:/bin"));
    assert_eq!(get("HOME"), Some("/r/engine/home"));
    assert_eq!(get("RUSTUP_HOME"), Some("/home/u/.rustup"));
    assert_eq!(get("LC_ALL"), Some("C"));
    for gone in
        ["GH_TOKEN", "GIT_DIR", "SSH_AUTH_SOCK", "LD_PRELOAD", "BASH_ENV", "NODE_OPTIONS", "PYENV_ROOT"]
    {
        assert_eq!(get(gone), None, "{gone}");
    }
}

#[test]
fn the_allow_list_splits_what_is_above_something_hidden() {
    let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
    let facts = Facts {
        home: Some("/home/u".into()),
        hidden: paths(&["/home/u", "/w/main"]).into_iter().collect(),
        entries: [
            ("/", paths(&["/usr", "/home", "/w", "/etc"])),
            ("/home", paths(&["/home/u", "/home/v"])),
            ("/w", paths(&["/w/main", "/w/main2"])),
        ]
        .map(|(k, v)| (PathBuf::from(k), v))
        .into(),
        tools: paths(&["/home/u/.cargo/bin", "/usr/bin"]),
        read: paths(&["/w/main/.git/objects"]),
        ..Facts::default()
    };
    let spec = CageSpec::build(&Wish::default(), &facts);
    let expected = ["/etc", "/home/u/.cargo/bin", "/home/v", "/usr", "/w/main/.git/objects", "/w/main2"];
    assert_eq!(spec.read, paths(&expected));
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<CageSpec>(&json).unwrap(), spec);
}

/// Prints the launch time: `cargo test --release launch_time -- --nocapture --ignored`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_macros)]
fn launch_time() {
    in_each_tier(|tier| {
        let bench = Bench::new(tier);
        let stdio = || Stdio { input: Input::Null, ..Stdio::default() };
        let time = |work: &dyn Fn()| {
            let mut all: Vec<_> = (0..30)
                .map(|_| {
                    let begun = std::time::Instant::now();
                    work();
                    begun.elapsed()
                })
                .collect();
            all.sort();
            all[15]
        };
        let lock = bench.lock();
        let cage = bench.cage();
        let targets = [("a", bench.at("out/victim"))];
        println!("facts and spec {:?}, {} read rules", time(&|| drop(bench.spec())), bench.spec().read.len());
        let spec = bench.spec();
        println!("prepare {:?}", time(&|| drop(Cage::prepare(spec.clone()).unwrap())));
        println!("canaries {:?}", time(&|| drop(cage.canaries(&targets).unwrap())));
        println!(
            "run true {:?}",
            time(&|| {
                let _ = cage.run(&["/bin/true".into()], stdio(), &lock, None).unwrap();
            })
        );
        println!(
            "bare true {:?}",
            time(&|| {
                let _ = Command::new("/bin/true").status().unwrap();
            })
        );
    });
}
