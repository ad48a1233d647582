//! Rows of `containment.md` that depend on the tier: each is a script that succeeds when the attempt does. It is
//! run without us, where it must succeed, and as an engine in every tier that the machine holds, as an ordinary
//! user and as root. What a tier does not hold is asserted as open, so that a change is noticed.

use crate::support::{Ended, Repo, Running, Sandbox, both, eventually, run};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The tiers, weakest first.
pub const TIERS: [&str; 3] = ["landlock", "namespaces", "full"];

/// The person says the best tier to be used.
pub fn use_tier(s: &Sandbox, tier: &str) {
    let file = s.dir().join("home/.gitconfig");
    s.run(s.dir(), "git", ["config", "--file", file.to_str().unwrap(), "agent.tier", tier]).ok();
}

/// What an attempt does outside: services of the person's and files in a place that every tier shows.
const OUTSIDE: &str = r#"
import ctypes, os, pty, socket, sys, threading, time
seen, name = sys.argv[1], sys.argv[2]
def say(key, value): print(f"{key}={value}", flush=True)
s = socket.socket(socket.AF_UNIX); s.bind(seen + "/s.sock"); os.chmod(seen + "/s.sock", 0o777); s.listen(64)
a = socket.socket(socket.AF_UNIX); a.bind("\0" + name); a.listen(64); say("ABSTRACT", name)
t = socket.socket(); t.bind(("127.0.0.1", 0)); t.listen(64); say("TCP", t.getsockname()[1])
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0)); say("UDP", u.getsockname()[1])
def echo():
    while True:
        data, peer = u.recvfrom(10); u.sendto(data, peer)
threading.Thread(target=echo, daemon=True).start()
os.mkfifo(seen + "/fifo", 0o666); os.chmod(seen + "/fifo", 0o666); fifo = os.open(seen + "/fifo", os.O_RDWR)
master, slave = pty.openpty(); say("PTS", os.ttyname(slave))
c = ctypes.CDLL(None, use_errno=True)
key = os.getpid() + 0x60000000
shm = c.shmget(key, 4096, 0o1600); say("SHM", key)
mq = c.mq_open(f"/{name}".encode(), os.O_RDWR | os.O_CREAT, 0o600, None); say("MQ", f"/{name}")
say("PID", os.getpid()); say("UP", 1)
sys.stdin.read()
c.shmctl(shm, 0, None); c.mq_unlink(f"/{name}".encode())
"#;

struct Outside {
    vars: BTreeMap<String, String>,
    seen: PathBuf,
    running: Running,
}

impl Outside {
    fn start(s: &Sandbox) -> Self {
        let id = s.dir().file_name().unwrap().to_str().unwrap().to_owned();
        // Not below a folder that cages have for themselves, and not hidden.
        let seen = Path::new("/opt").join(&id);
        std::fs::create_dir_all(&seen).unwrap();
        std::fs::write(seen.join("file"), "whole").unwrap();
        std::fs::copy("/usr/bin/id", seen.join("suid")).unwrap();
        give(s, &seen);
        give(s, &seen.join("file"));
        crate::support::set_mode(&seen.join("suid"), 0o4755);
        let mut command = s.command(s.dir(), "/usr/bin/python3");
        command.args(["-c", OUTSIDE]).arg(&seen).arg(&id).env("SECRET", "hunter2");
        command.stdin(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut vars = BTreeMap::new();
        while let Some((key, value)) = lines.next().and_then(|l| l.unwrap().split_once('=').map(own)) {
            if key == "UP" {
                break;
            }
            vars.insert(key, value);
        }
        assert!(vars.contains_key("PID"), "the outside did not come up");
        Self { vars, seen, running: Running(Some(child)) }
    }
}

fn own((a, b): (&str, &str)) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

/// Also outside of the sandbox's folder.
fn give(s: &Sandbox, path: &Path) {
    if s.is_user() {
        std::os::unix::fs::chown(path, Some(crate::support::USER), Some(crate::support::USER)).unwrap();
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // At the end of its input it takes its queue and its memory away, which outlive a process.
        if let Some(child) = &mut self.running.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.seen);
    }
}

/// Where an attempt succeeds in spite of us.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    Nowhere,
    /// In this tier, whoever runs it.
    In(&'static [&'static str]),
    /// In this tier, when it is an ordinary user: root's engine is somebody else.
    UserIn(&'static [&'static str]),
}

/// Who must succeed without a cage.
#[derive(Clone, Copy, PartialEq)]
enum Control {
    Both,
    Root,
    /// The cage is the only place where it makes sense.
    None,
}

struct Row(&'static str, Control, Open, &'static str);

const PY: &str =
    "import ctypes, os, socket, sys; c = ctypes.CDLL(None, use_errno=True); e = ctypes.get_errno\n";

/// Python after `py `, else sh.
const ROWS: &[Row] = &[
    Row(
        "fs12 open_by_handle_at",
        Control::Root,
        Open::Nowhere,
        "py
h = ctypes.create_string_buffer(136); ctypes.memmove(h, (128).to_bytes(4, 'little'), 4); m = ctypes.c_int()
assert c.name_to_handle_at(-100, (os.environ['SEEN'] + '/file').encode(), h, ctypes.byref(m), 0) == 0
d = os.open('/opt', os.O_RDONLY); f = c.open_by_handle_at(d, h, os.O_WRONLY); assert f >= 0",
    ),
    Row(
        "fs15 chmod",
        Control::Both,
        Open::UserIn(&["landlock"]),
        "chmod 0640 $SEEN/file && chmod 0644 $SEEN/file",
    ),
    Row("fs15 utimes", Control::Both, Open::UserIn(&["landlock"]), "touch -d 2001-01-01 $SEEN/file"),
    Row(
        "fs15 xattr",
        Control::Both,
        Open::UserIn(&["landlock"]),
        "py os.setxattr(os.environ['SEEN'] + '/file', 'user.x', b'evil')",
    ),
    Row(
        "fs15 inode flags",
        Control::Both,
        Open::UserIn(&["landlock"]),
        "py
import fcntl; f = os.open(os.environ['SEEN'] + '/file', os.O_RDONLY)
fcntl.ioctl(f, 0x40086602, (0x40).to_bytes(8, 'little'))",
    ),
    Row(
        "fs15 a fifo of another",
        Control::Both,
        Open::In(&["namespaces"]),
        "py os.write(os.open(os.environ['SEEN'] + '/fifo', os.O_WRONLY | os.O_NONBLOCK), b'evil')",
    ),
    Row(
        "fs25 rename above a pinned name",
        Control::None,
        Open::In(&["landlock"]),
        "g=$(git rev-parse --absolute-git-dir) && mv $g $g.x && mv $g.x $g",
    ),
    Row(
        "fs26 delete and recreate .git",
        Control::None,
        Open::In(&["landlock"]),
        "cp .git x && rm .git && mv x .git",
    ),
    Row(
        "gt15 forged .git",
        Control::None,
        Open::In(&["landlock"]),
        "cp .git x && echo 'gitdir: /evil' >.git && cat x >.git && rm x",
    ),
    Row(
        "gt16 forged commondir",
        Control::None,
        Open::In(&["landlock"]),
        "g=$(git rev-parse --absolute-git-dir) && cp $g/commondir x && echo /evil >$g/commondir && cat x >$g/commondir && rm x",
    ),
    Row(
        "gt16 forged gitdir",
        Control::None,
        Open::In(&["landlock"]),
        "g=$(git rev-parse --absolute-git-dir) && cp $g/gitdir x && cat x >$g/gitdir && rm x",
    ),
    Row("pr01 signal", Control::Both, Open::Nowhere, "kill -0 $PID"),
    Row(
        "pr01 pidfd",
        Control::Both,
        Open::Nowhere,
        "py import signal; signal.pidfd_send_signal(os.pidfd_open(int(os.environ['PID'])), 0)",
    ),
    Row("pr02 memory", Control::Both, Open::Nowhere, "py open('/proc/' + os.environ['PID'] + '/mem', 'rb')"),
    Row(
        "pr02 process_vm_readv",
        Control::None,
        Open::Nowhere,
        "py assert c.syscall(310, int(os.environ['PID']), 0, 0, 0, 0, 0) == 0",
    ),
    Row(
        "pr02 ptrace",
        Control::Both,
        Open::Nowhere,
        "py assert c.ptrace(16, int(os.environ['PID']), 0, 0) == 0; os.waitpid(int(os.environ['PID']), 0x40000000); c.ptrace(17, int(os.environ['PID']), 0, 0)",
    ),
    Row(
        "pr03 environment of another",
        Control::Both,
        Open::Nowhere,
        "tr '\\0' '\\n' </proc/$PID/environ | grep -q hunter2",
    ),
    Row("pr03 any process of the machine", Control::Both, Open::In(&["landlock"]), "test -e /proc/$PID"),
    Row("pr06 TIOCSTI", Control::Both, Open::Nowhere, "py c.ioctl(0, 0x5412, b'x'); assert e() != 1"),
    Row(
        "ip11 TIOCSTI with high bits",
        Control::Both,
        Open::Nowhere,
        "py c.syscall(16, 0, ctypes.c_ulong(0x100005412), b'x'); assert e() != 1",
    ),
    Row("pr06 TIOCLINUX", Control::Both, Open::Nowhere, "py c.ioctl(0, 0x541c, b'x'); assert e() != 1"),
    Row("pr08 set-user-id", Control::Both, Open::Nowhere, "test $($SEEN/suid -u) = 0"),
    Row("pr09 user namespace", Control::Both, Open::Nowhere, "unshare -Ur true"),
    Row(
        "pr09 by clone",
        Control::Both,
        Open::Nowhere,
        "py
p = c.syscall(56, ctypes.c_ulong(0x10000000 | 17), 0, 0, 0, 0)
p == 0 and os._exit(0)
assert p > 0",
    ),
    Row("pr09 mount", Control::Root, Open::Nowhere, "unshare -m mount -t tmpfs x /mnt"),
    Row(
        "pr09 unmount",
        Control::None,
        Open::Nowhere,
        "umount -l /tmp || umount -l /proc || mount -o remount,rw,bind /",
    ),
    Row("pr09 chroot", Control::Root, Open::Nowhere, "py assert c.chroot(b'/') == 0"),
    Row(
        "pr10 setns",
        Control::Root,
        Open::Nowhere,
        "py assert c.setns(os.open('/proc/self/ns/uts', os.O_RDONLY), 0) == 0",
    ),
    Row(
        "ip01 ip03 ip09 a socket with a path",
        Control::Both,
        Open::Nowhere,
        "py s = socket.socket(socket.AF_UNIX); s.connect(os.environ['SEEN'] + '/s.sock')",
    ),
    Row(
        "ip05 abstract socket",
        Control::Both,
        Open::Nowhere,
        "py s = socket.socket(socket.AF_UNIX); s.connect('\\0' + os.environ['ABSTRACT'])",
    ),
    Row(
        "ip07 System V shared memory",
        Control::Both,
        Open::UserIn(&["landlock"]),
        "py c.shmat.restype = ctypes.c_long; assert c.shmat(c.shmget(int(os.environ['SHM']), 0, 0), 0, 0) != -1",
    ),
    Row(
        "ip07 message queue",
        Control::Both,
        Open::Nowhere,
        "py assert c.mq_open(os.environ['MQ'].encode(), os.O_RDWR) >= 0",
    ),
    Row(
        "ip07 keyring",
        Control::Both,
        Open::Nowhere,
        "py c.syscall(248, b'user', b'x', b'y', 1, -2); assert e() != 1",
    ),
    Row("ip08 vsock", Control::Both, Open::Nowhere, "py c.socket(40, 1, 0); assert e() != 1"),
    Row(
        "ip10 write to another terminal",
        Control::Both,
        Open::Nowhere,
        "py os.write(os.open(os.environ['PTS'], os.O_WRONLY | os.O_NOCTTY), b'evil')",
    ),
    Row(
        "ip10 read from another terminal",
        Control::Both,
        Open::Nowhere,
        "py os.open(os.environ['PTS'], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)",
    ),
    Row(
        "nw01 open network",
        Control::Both,
        Open::In(&TIERS),
        "py socket.create_connection(('127.0.0.1', int(os.environ['TCP'])))",
    ),
    Row(
        "nw02 fast open",
        Control::Both,
        Open::Nowhere,
        "py s = socket.socket(); c.sendto(s.fileno(), b'x', 1, 0x20000000, 0, 0); assert e() != 1",
    ),
    Row("nw02 fast open by option", Control::Both, Open::Nowhere, "py socket.socket().setsockopt(6, 30, 1)"),
    Row("nw03 MPTCP", Control::Both, Open::Nowhere, "py c.socket(2, 1, 262); assert e() != 1"),
    Row("nw04 io_uring", Control::Both, Open::Nowhere, "py c.syscall(425, 0, 0); assert e() != 1"),
    Row("nw04 raw", Control::Root, Open::Nowhere, "py socket.socket(2, 3, 1)"),
    Row("nw04 packet", Control::Root, Open::Nowhere, "py socket.socket(17, 3, 0)"),
    Row("sc01 keys", Control::Both, Open::Nowhere, "cat $PERSON/.ssh/id"),
    Row("sc01 netrc", Control::Both, Open::Nowhere, "cat $PERSON/.netrc"),
    Row("sc05 another project", Control::Both, Open::Nowhere, "cat $PERSON/other/file"),
    Row("sc05 a client's folder", Control::Both, Open::Nowhere, "cat $PERSON/.claude/history"),
    Row("sc04 host", Control::None, Open::Nowhere, "cat ../host/lock"),
    Row("sc04 another run", Control::None, Open::Nowhere, "cat ../../other/tree/README"),
    Row(
        "cg04 core pattern",
        Control::Root,
        Open::Nowhere,
        "py os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
    ),
];

/// A script, and the words that run it.
fn words(script: &str) -> Vec<String> {
    match script.strip_prefix("py") {
        Some(code) => vec!["/usr/bin/python3".into(), "-c".into(), format!("{PY}{}", code.trim_start())],
        None => vec!["sh".into(), "-c".into(), script.to_owned()],
    }
}

fn person(s: &Sandbox) -> PathBuf {
    let home = s.dir().join("home");
    for (folder, file) in [(".ssh", "id"), ("other", "file"), (".claude", "history"), ("", ".netrc")] {
        std::fs::create_dir_all(home.join(folder)).unwrap();
        std::fs::write(home.join(folder).join(file), "secret").unwrap();
    }
    s.give(&home);
    home
}

fn exec(repo: &Repo, outside: &Outside, script: &str) -> Ended {
    let mut args: Vec<String> = vec!["exec".into(), "r".into(), "--".into(), "env".into()];
    args.extend(vars(repo.sandbox, outside).into_iter().map(|(k, v)| format!("{k}={v}")));
    args.extend(words(script));
    repo.agent_args(args)
}

fn vars(s: &Sandbox, outside: &Outside) -> BTreeMap<String, String> {
    let mut vars = outside.vars.clone();
    vars.insert("SEEN".into(), outside.seen.display().to_string());
    vars.insert("PERSON".into(), s.dir().join("home").display().to_string());
    vars
}

fn uncaged(s: &Sandbox, outside: &Outside, script: &str) -> Ended {
    let words = words(script);
    let mut command = s.command(s.dir(), &words[0]);
    command.args(&words[1..]).envs(vars(s, outside));
    run(command, b"")
}

#[test]
fn each_row_succeeds_without_us() {
    both(|s| {
        person(s);
        let outside = Outside::start(s);
        for Row(name, control, _, script) in ROWS {
            if *control == Control::Both || *control == Control::Root && !s.is_user() {
                let ended = uncaged(s, &outside, script);
                assert_eq!(ended.status(), 0, "{name}: {}", ended.fails().err());
            }
        }
    });
}

#[test]
fn each_row_is_denied_or_known_to_be_open() {
    both(|s| {
        person(s);
        let outside = Outside::start(s);
        let repo = s.repo();
        repo.agent("spawn --role developer --run other").ok();
        repo.agent("spawn --role developer --run r").ok();
        let mut wrong = Vec::new();
        for tier in TIERS {
            use_tier(s, tier);
            for Row(name, _, open, script) in ROWS {
                let open = match open {
                    Open::Nowhere => false,
                    Open::In(tiers) => tiers.contains(&tier),
                    Open::UserIn(tiers) => tiers.contains(&tier) && s.is_user(),
                };
                let ended = exec(&repo, &outside, script);
                // 125 to 127 and 97 are ours: the attempt was not made.
                let status = ended.status();
                let made = !(125..128).contains(&status) && status != 97;
                if !made || (status == 0) != open {
                    let said = ended.with(status).err().to_owned();
                    wrong.push(format!("{tier}, {name}: status {status}, open {open}: {said}"));
                }
            }
        }
        assert!(
            wrong.is_empty(),
            "as {}:\n{}",
            if s.is_user() { "a user" } else { "root" },
            wrong.join("\n")
        );
        assert_eq!(std::fs::read_to_string(outside.seen.join("file")).unwrap(), "whole");
    });
}

/// Rows that only hold without a network.
const OFF: &[(&str, &str)] = &[
    ("nw01 connect", "py socket.create_connection(('127.0.0.1', int(os.environ['TCP'])), 5)"),
    ("nw01 by the shell", "bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$TCP"),
    (
        "nw04 UDP",
        "py
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
s.sendto(b'x', ('127.0.0.1', int(os.environ['UDP']))); s.recv(9)",
    ),
    ("ip05 abstract", "py s = socket.socket(socket.AF_UNIX); s.connect('\\0' + os.environ['ABSTRACT'])"),
];

#[test]
fn nw01_to_nw06_without_a_network() {
    both(|s| {
        let outside = Outside::start(s);
        for (name, script) in OFF {
            let ended = uncaged(s, &outside, script);
            assert_eq!(ended.status(), 0, "{name}: {}", ended.fails().err());
        }
        let repo = s.repo();
        repo.policy("version: 1\nnetwork: off\n");
        repo.agent("spawn --role developer --run r").ok();
        for tier in TIERS {
            use_tier(s, tier);
            for (name, script) in OFF {
                let status = exec(&repo, &outside, script).status();
                assert!(
                    status != 0 && status != 97 && !(125..128).contains(&status),
                    "{tier}, {name}: {status}"
                );
            }
            // Its own loopback device is there where there is a network namespace.
            let own = "py s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); socket.create_connection(s.getsockname(), 5)";
            assert_eq!(exec(&repo, &outside, own).status() == 0, tier != "landlock", "{tier}");
        }
        let said = repo.spawn("--role developer --run n", "true").ok();
        said.says(&["network off"]);
    });
}

#[test]
fn nw05_nw06_through_the_proxy_only() {
    both(|s| {
        let outside = Outside::start(s);
        let repo = s.repo();
        repo.policy("version: 1\nnetwork: {proxy: [listed.example]}\n");
        repo.agent("spawn --role developer --run r").ok();
        for tier in ["namespaces", "full"] {
            use_tier(s, tier);
            let status = exec(&repo, &outside, OFF[0].1).status();
            assert!(status != 0 && status != 97, "{tier}: {status}");
            let ask = "py
from urllib.parse import urlparse
p = urlparse(os.environ['HTTPS_PROXY']); s = socket.create_connection((p.hostname, p.port), 20)
s.sendall(b'CONNECT unlisted.example:443 HTTP/1.1\\r\\nHost: unlisted.example:443\\r\\n\\r\\n')
answer = s.recv(100); assert answer.startswith(b'HTTP/1.1 403'), answer";
            exec(&repo, &outside, ask).ok();
        }
        let log = std::fs::read_to_string(repo.tree("r").join("../host/refused.jsonl")).unwrap();
        assert!(log.lines().count() == 2 && log.contains("unlisted.example"), "{log}");
        use_tier(s, "landlock");
        repo.agent_args(["exec", "r", "--", "true"]).with(97).refuses(&["proxy"]);
        eventually("no proxy is left", || crate::support::processes_of(&repo.tree("r")).is_empty());
    });
}
