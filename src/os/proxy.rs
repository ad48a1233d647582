//! The network of a caged run, where the policy says `proxy`: an HTTP proxy with a list of hosts.
//!
//! The cage has nothing but a loopback of its own, and this proxy's socket is the only thing that listens on
//! it from outside. It runs outside the cage, in a process of its own, takes `CONNECT host:port` and plain
//! `http://` requests, and connects to what the list names. Everything it reads comes from the engine, so all
//! of it is hostile: names are brought into one form before they are compared, the address that was checked is
//! the address that is connected to, and every wait has an end. hyper reads the HTTP.
//!
//! What it does not do: it does not look into TLS. Whoever shares an address with a listed host and answers for
//! other names there (a content network) can be reached under those names too.

mod address;
mod hosts;
mod log;
mod patient;
mod relay;

pub use hosts::{BadHost, HostList};

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Bounds of what one engine can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; more wait to be accepted.
    pub connections: usize,
    /// Bytes of a request's or a response's head; at least 8192.
    pub head_bytes: usize,
    /// Until the head of the next request is complete.
    pub head: Duration,
    /// Until a connection on which nothing moves is closed.
    pub idle: Duration,
    /// For each address that is tried.
    pub connect: Duration,
    /// Refusals that are recorded; later ones are refused as well, and the record says that there were more.
    pub refusals: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            head_bytes: 32 << 10,
            head: Duration::from_secs(30),
            // A model may think for minutes before the first byte of its answer.
            idle: Duration::from_secs(15 * 60),
            connect: Duration::from_secs(15),
            refusals: 1000,
        }
    }
}

/// Serves until the process ends; returns only what makes that impossible. `hosts` are entries as
/// [`HostList::parse`] reads them. `refused` gets one line of JSON for each refusal:
/// `{"time":SECONDS,"method":...,"host":...,"port":...,"why":...}`.
pub fn serve(
    listener: TcpListener,
    hosts: &[String],
    refused: impl Write + 'static,
) -> io::Result<Infallible> {
    serve_within(listener, hosts, Limits::default(), refused)
}

/// The same with other bounds.
pub fn serve_within(
    listener: TcpListener,
    hosts: &[String],
    limits: Limits,
    refused: impl Write + 'static,
) -> io::Result<Infallible> {
    let hosts = HostList::parse(hosts).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    listener.set_nonblocking(true)?;
    // The threads are for name resolution; a slow name server must not hold up everything else.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(16).build()?;
    let relay = Rc::new(relay::Relay::new(hosts, limits, log::Refusals::new(refused, limits.refusals)));
    tokio::task::LocalSet::new().block_on(&runtime, accept(listener, relay, limits))
}

async fn accept(listener: TcpListener, relay: Rc<relay::Relay>, limits: Limits) -> io::Result<Infallible> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(limits.connections));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::task::spawn_local(Rc::clone(&relay).connection(stream, slot));
            }
            // The listener itself is gone or was never one.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK)) => {
                return Err(e);
            }
            // One connection that was given up, or no descriptor left for it: others will end.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What programs inside the cage need to be told. Not every program asks; what does not ask reaches nothing.
pub fn variables(proxy: SocketAddr) -> Vec<(OsString, OsString)> {
    let url = format!("http://{proxy}");
    // Servers that the engine starts itself are on the cage's own loopback.
    let direct = "localhost,127.0.0.1,::1";
    let mut all: Vec<(OsString, OsString)> = Vec::new();
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        all.extend([name.to_owned(), name.to_uppercase()].map(|k| (k.into(), (&url).into())));
    }
    all.extend(["no_proxy", "NO_PROXY"].map(|k| (k.into(), direct.into())));
    // Node.js 24 and later asks only when told to.
    all.push(("NODE_USE_ENV_PROXY".into(), "1".into()));
    all
}
