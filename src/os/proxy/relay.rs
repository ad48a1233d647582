//! One connection of the engine: what it asks for, whether it may, and the way there and back.

use super::Limits;
use super::hosts::{Host, HostList, Why};
use super::log::Refusals;
use super::patient::Patient;
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// Addresses of one name that are tried.
const ADDRESSES: usize = 8;
/// Header lines of one head.
const HEADERS: usize = 128;

type Body = Either<Incoming, Full<Bytes>>;

/// What every connection shares.
pub(super) struct Relay {
    hosts: HostList,
    limits: Limits,
    refused: Refusals,
}

/// Where a request wants to go.
struct Target {
    host: Host,
    port: u16,
}

/// Why a request got no answer from where it wanted to go.
enum Failed {
    Refused(Why),
    /// The list allows it, and it cannot be reached.
    Unreachable(io::Error),
}

impl From<Why> for Failed {
    fn from(why: Why) -> Self {
        Self::Refused(why)
    }
}

impl Relay {
    pub(super) fn new(hosts: HostList, limits: Limits, refused: Refusals) -> Self {
        Self { hosts, limits, refused }
    }

    /// Serves one connection. `slot` is given back when it and the tunnel it became have ended.
    pub(super) async fn connection(self: Rc<Self>, stream: TcpStream, slot: OwnedSemaphorePermit) {
        let _ = stream.set_nodelay(true);
        let slot = Rc::new(slot);
        let service = service_fn(|request| {
            let (relay, slot) = (Rc::clone(&self), Rc::clone(&slot));
            async move { Ok::<_, Infallible>(relay.answer(request, slot).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_buf_size(self.limits.head_bytes)
            .max_headers(HEADERS)
            .serve_connection(TokioIo::new(Patient::new(stream, self.limits.idle)), service)
            .with_upgrades()
            .await;
        if served.is_err_and(|e| e.is_parse()) {
            self.refused.add("", None, None, Why::Malformed);
        }
    }

    async fn answer(&self, request: Request<Incoming>, slot: Rc<OwnedSemaphorePermit>) -> Response<Body> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let result = if method == Method::CONNECT {
            self.tunnel(request, slot).await
        } else {
            self.forward(request).await
        };
        result.unwrap_or_else(|failed| match failed {
            Failed::Refused(why) => {
                self.refused.add(method.as_str(), uri.host(), uri.port_u16(), why);
                let status =
                    if why == Why::Malformed { StatusCode::BAD_REQUEST } else { StatusCode::FORBIDDEN };
                say(status, &format!("git agent: {}\n", why.sentence()))
            }
            Failed::Unreachable(e) => {
                let status = match e.kind() {
                    io::ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                    _ => StatusCode::BAD_GATEWAY,
                };
                say(status, &format!("git agent: {e}\n"))
            }
        })
    }

    /// `CONNECT host:port`: bytes both ways until one side or both have enough.
    async fn tunnel(
        &self,
        request: Request<Incoming>,
        slot: Rc<OwnedSemaphorePermit>,
    ) -> Result<Response<Body>, Failed> {
        let uri = request.uri();
        if uri.scheme().is_some() || uri.path_and_query().is_some() || uri.port_u16().is_none() {
            return Err(Why::Malformed.into());
        }
        let mut there = self.connect(&target(uri, 0)?).await?;
        tokio::task::spawn_local(async move {
            if let Ok(here) = hyper::upgrade::on(request).await {
                // It ends when both directions are closed, one fails, or nothing has moved for too long.
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(here), &mut there).await;
            }
            drop(slot);
        });
        Ok(Response::new(Either::Right(Full::default())))
    }

    /// `GET http://host/path`: one request to one server, without what concerns only the way to the proxy.
    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Failed> {
        if request.uri().scheme() != Some(&Scheme::HTTP) {
            return Err(Why::Malformed.into());
        }
        let target = target(request.uri(), 80)?;
        let there = self.connect(&target).await?;
        let authority = request.uri().authority().map(|a| a.as_str()).unwrap_or_default();
        // The server must hear of the host that was checked and of no other.
        let host = HeaderValue::from_str(authority).map_err(|_| Why::Malformed)?;
        let path = request.uri().path_and_query().map_or("/", |p| p.as_str());
        let path: Uri = path.parse().map_err(|_| Why::Malformed)?;
        *request.uri_mut() = path;
        strip(request.headers_mut());
        request.headers_mut().insert(header::HOST, host);
        let failed = |e: hyper::Error| {
            let kind = if e.is_timeout() { io::ErrorKind::TimedOut } else { io::ErrorKind::Other };
            Failed::Unreachable(io::Error::new(kind, e))
        };
        let (mut sender, way) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(self.limits.head_bytes)
            .max_headers(HEADERS)
            .handshake(TokioIo::new(there))
            .await
            .map_err(failed)?;
        // It ends with the answer: nobody else holds the other end.
        tokio::task::spawn_local(way);
        let mut response = sender.send_request(request).await.map_err(failed)?;
        strip(response.headers_mut());
        Ok(response.map(Either::Left))
    }

    /// Checks, resolves once, checks what came out, and connects to exactly that.
    async fn connect(&self, target: &Target) -> Result<Patient, Failed> {
        self.hosts.check(&target.host, target.port)?;
        let addresses: Vec<SocketAddr> = match &target.host {
            Host::Address(address) => vec![(*address, target.port).into()],
            Host::Name(name) => {
                let resolving = tokio::net::lookup_host((name.as_str(), target.port));
                let found = timeout(self.limits.connect, resolving)
                    .await
                    .map_err(|_| Failed::Unreachable(io::ErrorKind::TimedOut.into()))?
                    .map_err(Failed::Unreachable)?;
                let may = |a: &IpAddr| self.hosts.may_lead_to(*a, target.port);
                let found: Vec<_> = found.filter(|a| may(&a.ip())).take(ADDRESSES).collect();
                if found.is_empty() {
                    return Err(Why::Inside.into());
                }
                found
            }
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match timeout(self.limits.connect, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(Patient::new(stream, self.limits.idle));
                }
                Ok(Err(e)) => last = e,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(Failed::Unreachable(last))
    }
}

fn target(uri: &Uri, port: u16) -> Result<Target, Why> {
    let authority = uri.authority().ok_or(Why::Malformed)?;
    // A name before an @ looks like the host and is not.
    if authority.as_str().contains('@') {
        return Err(Why::Spelling);
    }
    let given = authority.as_str().len() > authority.host().len();
    let port = match (given, authority.port_u16()) {
        (_, Some(port)) if port != 0 => port,
        (false, None) if port != 0 => port,
        _ => return Err(Why::Malformed),
    };
    Ok(Target { host: Host::parse(authority.host())?, port })
}

/// Takes away what is between two neighbours only (RFC 9110, 7.6.1).
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(|n| n.trim().parse().ok())
        // Nobody may talk us out of these: they say where a message ends and whose it is.
        .filter(|n| !matches!(*n, header::CONTENT_LENGTH | header::HOST))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [header::CONNECTION, header::PROXY_AUTHORIZATION, header::PROXY_AUTHENTICATE, header::TE] {
        headers.remove(name);
    }
    for name in [header::TRAILER, header::TRANSFER_ENCODING, header::UPGRADE] {
        headers.remove(name);
    }
    for name in ["proxy-connection", "keep-alive"] {
        headers.remove(name);
    }
}

fn say(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::from(text.to_owned())));
    *response.status_mut() = status;
    response
}
