//! What the attempts are made against, and how it is seen from outside that one succeeded.

use super::ipc::take_shared_memory;
use super::{TOKEN, WORD};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The targets, as the attempting program is told of them. All were made for this.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct World {
    /// A repository: the main checkout of the run.
    pub main: PathBuf,
    /// One folder an attempt, with a few files.
    pub out: PathBuf,
    /// The run's folder, or one of the same shape.
    pub run: PathBuf,
    /// A process whose environment holds the token.
    pub bystander: i32,
    /// A listening socket.
    pub socket: PathBuf,
    /// A listening socket without a file.
    pub abstract_name: String,
    /// A listening port of 127.0.0.1.
    pub port: u16,
    /// A terminal.
    pub terminal: PathBuf,
    /// A key of System V shared memory that is not in use.
    pub key: i32,
}

/// The living part of a stage: ends with the value.
#[derive(Debug)]
pub struct Bystander {
    child: Child,
    _socket: UnixListener,
    _abstract: UnixListener,
    _port: TcpListener,
    terminal: Terminal,
    _open: fs::File,
    key: i32,
}

impl World {
    /// Makes targets below `out`, which must not exist, and starts what must be alive.
    pub fn make(main: &Path, out: &Path, run: &Path) -> io::Result<(Self, Bystander)> {
        fs::create_dir(out)?;
        for name in super::names() {
            let own = out.join(name);
            fs::create_dir_all(own.join("dir"))?;
            fs::create_dir(own.join("dir-evil"))?;
            for file in ["file", "dir/file", "dir-evil/file", "open"] {
                fs::write(own.join(file), "nobody's business\n")?;
            }
            fs::write(own.join("secret"), TOKEN)?;
        }
        let mut bytes = [0; 8];
        crate::os::random(&mut bytes)?;
        let number = u64::from_ne_bytes(bytes);
        let key = (number as i32) & 0x7fff_ffff | 1;
        let abstract_name = format!("git-agent-doctor-{number:016x}");
        let socket = out.join("listening");
        let listening = UnixListener::bind(&socket)?;
        #[cfg(target_os = "linux")]
        let abstractly = {
            use std::os::linux::net::SocketAddrExt;
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?
        };
        let port = TcpListener::bind("127.0.0.1:0")?;
        let terminal = Terminal::open()?;
        let open = fs::OpenOptions::new().write(true).open(out.join("descriptors/open"))?;
        let child = Command::new("/proc/self/exe")
            .args([WORD, "stand"])
            .env_clear()
            .env("GIT_AGENT_DOCTOR_SECRET", TOKEN)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut bystander = Bystander {
            child,
            _socket: listening,
            _abstract: abstractly,
            _port: port,
            terminal,
            _open: open,
            key,
        };
        // From here on it can be traced by anybody who could without a restriction of the machine's.
        let mut ready = [0];
        bystander.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.read_exact(&mut ready)?;
        // Only now: the bystander is not the one that is to inherit it.
        rustix::io::fcntl_setfd(&bystander._open, rustix::io::FdFlags::empty())?;
        let world = Self {
            main: main.to_owned(),
            out: out.to_owned(),
            run: run.to_owned(),
            bystander: bystander.child.id() as i32,
            socket,
            abstract_name,
            port: bystander._port.local_addr()?.port(),
            terminal: bystander.terminal.path.clone(),
            key,
        };
        Ok((world, bystander))
    }

    /// Makes all attempts without a cage. What they say, a line of JSON each.
    pub fn attempt_freely(&self) -> io::Result<Vec<u8>> {
        let text = serde_json::to_string(self).map_err(io::Error::other)?;
        // The daemon of one attempt keeps no end of the pipe.
        let output = Command::new("/proc/self/exe")
            .args([WORD, "all", &text])
            .env("GIT_AGENT_DOCTOR_TOKEN", TOKEN)
            .current_dir(self.run.join("tree"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()?;
        Ok(output.stdout)
    }

    /// Whether a process of the stage's attempts is still there; it is asked to end.
    pub fn survived(&self) -> bool {
        let tree = self.run.join("tree");
        let alive = fs::File::open(tree.join("attempt-alive")).is_ok_and(|file| {
            rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
        });
        let _ = fs::write(tree.join("attempt-stop"), "");
        alive
    }
}

impl Bystander {
    /// Whether the process was ended by somebody. Who was told that a signal was sent may have to wait for its end.
    pub fn ended(&mut self, signalled: bool) -> bool {
        let until = Instant::now() + if signalled { Duration::from_secs(2) } else { Duration::ZERO };
        loop {
            let ended = !matches!(self.child.try_wait(), Ok(None));
            if ended || Instant::now() >= until {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether somebody wrote into the terminal.
    pub fn heard(&mut self) -> bool {
        self.terminal.heard()
    }

    /// Whether somebody left shared memory under the key.
    pub fn shared(&self) -> bool {
        take_shared_memory(self.key)
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        take_shared_memory(self.key);
    }
}

/// What the bystander does: lets itself be traced, says that it is there, and waits for the end of its input.
#[allow(unsafe_code)]
pub(super) fn stand() {
    // SAFETY: takes a restriction of the machine's (Yama) off this process, which holds nothing of worth.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    let _ = io::Write::write_all(&mut io::stdout(), b"+\n");
    let _ = io::stdin().read_to_end(&mut Vec::new());
}

/// A pseudo-terminal of our own.
#[derive(Debug)]
pub struct Terminal {
    /// Its other end.
    pub path: PathBuf,
    master: OwnedFd,
    _slave: Option<OwnedFd>,
}

impl Terminal {
    /// Opens one.
    #[allow(unsafe_code)]
    pub fn open() -> io::Result<Self> {
        // SAFETY: opens a descriptor, which is owned at once; the name is written into a buffer of the length
        // given and ends with a zero byte.
        let (master, name) = unsafe {
            let fd = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let master = OwnedFd::from_raw_fd(fd);
            let mut name = [0_u8; 128];
            if libc::grantpt(fd) != 0
                || libc::unlockpt(fd) != 0
                || libc::ptsname_r(fd, name.as_mut_ptr().cast(), name.len()) != 0
            {
                return Err(io::Error::last_os_error());
            }
            (master, name)
        };
        let end = name.iter().position(|b| *b == 0).unwrap_or_default();
        let path = PathBuf::from(OsStr::from_bytes(&name[..end]));
        rustix::io::ioctl_fionbio(&master, true)?;
        // Held open, so that what is written there stays to be read.
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let slave = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).ok();
        Ok(Self { path, master, _slave: slave })
    }

    fn heard(&self) -> bool {
        let mut buffer = [0; 256];
        rustix::io::read(&self.master, &mut buffer).is_ok_and(|n| n > 0)
    }
}

impl AsRawFd for Terminal {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.master.as_raw_fd()
    }
}

/// What stands at a path and below it: kind, mode, time, content.
pub type Print = BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)>;

/// Looks without following links.
pub fn print(path: &Path) -> Print {
    let mut all = Print::new();
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let content = if meta.is_file() {
            fs::read(&path).unwrap_or_default()
        } else if meta.is_symlink() {
            fs::read_link(&path).map(|l| l.into_os_string().into_encoded_bytes()).unwrap_or_default()
        } else {
            Vec::new()
        };
        if meta.is_dir() {
            pending.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        }
        all.insert(path, (meta.mode(), meta.mtime(), meta.mtime_nsec(), content));
    }
    all
}
