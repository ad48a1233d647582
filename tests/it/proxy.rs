//! The proxy of caged runs, against servers on 127.0.0.1 that the tests make themselves.

use git_agent::os::proxy::{Limits, serve_within};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// How long anything may take before a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

struct Proxy {
    at: SocketAddr,
    refused: Receiver<Vec<u8>>,
}

struct Sink(Sender<Vec<u8>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.send(bytes.to_vec());
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Proxy {
    fn start(hosts: &[String], limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (sender, refused) = channel();
        let hosts = hosts.to_vec();
        thread::spawn(move || serve_within(listener, &hosts, limits, Sink(sender)));
        Self { at, refused }
    }

    fn of(hosts: &[&str]) -> Self {
        Self::start(&hosts.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>(), Limits::default())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and reads the head of the answer; `None` when there is none.
    fn ask(&self, request: &[u8]) -> (TcpStream, Option<(u16, String)>) {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let answer = head(&mut stream);
        (stream, answer)
    }

    fn tunnel(&self, to: SocketAddr) -> TcpStream {
        let (stream, answer) = self.ask(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes());
        assert_eq!(answer.expect("an answer").0, 200);
        stream
    }

    /// The next recorded refusal.
    fn refusal(&self) -> Value {
        let line = self.refused.recv_timeout(PATIENCE).expect("a refusal");
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1, "one line a refusal");
        serde_json::from_slice(&line).unwrap()
    }
}

/// Reads one head byte by byte, so that nothing of the body is taken.
fn head(stream: &mut TcpStream) -> Option<(u16, String)> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => text.push(byte[0]),
            Ok(_) => break,
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset) => break,
            Err(e) => panic!("no answer: {e}"),
        }
    }
    let text = String::from_utf8(text).unwrap();
    let status = text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().unwrap();
    Some((status, text))
}

/// Whether the other side closes; fails when it does not in time.
fn ends(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(e) if e.kind() == ErrorKind::ConnectionReset => true,
        Err(e) => panic!("still open: {e}"),
    }
}

/// A server that sends back what it gets, and `.` after the other side's end.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let (mut from, mut to) = (stream.as_ref().unwrap(), stream.as_ref().unwrap());
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.write_all(b".");
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    at
}

/// A server that answers every request with the request itself.
fn web() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut text = Vec::new();
                let mut buffer = [0; 4096];
                let complete = |text: &[u8]| {
                    let Some(end) = text.windows(4).position(|w| w == b"\r\n\r\n") else { return false };
                    let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
                    let length =
                        head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse::<usize>().ok());
                    if head.contains("transfer-encoding: chunked") {
                        return text.ends_with(b"0\r\n\r\n");
                    }
                    text.len() >= end + 4 + length.unwrap_or(0)
                };
                while !complete(&text) {
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => return,
                        Ok(n) => text.extend_from_slice(&buffer[..n]),
                    }
                }
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nKeep-Alive: 5\r\nConnection: x-hop\r\nX-Hop: 1\r\nX-End: 2\r\n\r\n",
                    text.len()
                );
                let _ = stream.write_all(&[head.as_bytes(), &text].concat());
            });
        }
    });
    at
}

/// Reads an answer with a length.
fn body(stream: &mut TcpStream) -> (u16, String, String) {
    let (status, head) = head(stream).expect("an answer");
    let length = head.to_lowercase();
    let length = length.lines().find_map(|l| l.strip_prefix("content-length: ")).expect("a length");
    let mut text = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut text).unwrap();
    (status, head, String::from_utf8(text).unwrap())
}

#[test]
fn nw05_a_host_is_refused_in_every_form_but_the_listed_one() {
    let there = echo();
    let port = there.port();
    let proxy = Proxy::of(&[&format!("127.0.0.1:{port}"), "example.org", "*.example.net", "192.0.2.7"]);
    // Positive control: the listed form gets through, so that what follows is refused for its form.
    let mut tunnel = proxy.tunnel(there);
    tunnel.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    tunnel.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");

    let table: &[(&str, &str)] = &[
        // Not on the list.
        ("evil.example:443", "unlisted"),
        ("example.org.evil.example:443", "unlisted"),
        ("notexample.org:443", "unlisted"),
        ("sub.example.org:443", "unlisted"),
        ("example.net:443", "unlisted"),
        ("example.net.:443", "unlisted"),
        ("aexample.net:443", "unlisted"),
        ("localhost:443", "unlisted"),
        ("LOCALHOST.:443", "unlisted"),
        ("127.0.0.2:443", "unlisted"),
        ("0.0.0.0:443", "unlisted"),
        ("169.254.169.254:80", "unlisted"),
        ("[::1]:443", "unlisted"),
        ("[::]:443", "unlisted"),
        ("[::ffff:127.0.0.1]:443", "unlisted"),
        ("[::ffff:7f00:1]:443", "unlisted"),
        ("[::ffff:192.0.2.7]:443", "unlisted"),
        ("[64:ff9b::7f00:1]:443", "unlisted"),
        ("[fe80::1]:443", "unlisted"),
        // Listed with other ports.
        ("example.org:22", "port"),
        ("EXAMPLE.ORG.:8443", "port"),
        ("a.example.net:8080", "port"),
        ("127.0.0.1:443", "port"),
        ("192.0.2.7:22", "port"),
        // No plain form of anything.
        ("127.1:443", "spelling"),
        ("2130706433:443", "spelling"),
        ("0x7f000001:443", "spelling"),
        ("0x7f.0x0.0x0.0x1:443", "spelling"),
        ("0177.0.0.1:443", "spelling"),
        ("127.0.0.1.1:443", "spelling"),
        ("127.0.0.01:443", "spelling"),
        ("[fe80::1%25eth0]:443", "spelling"),
        ("example.org@evil.example:443", "spelling"),
        ("evil.example@example.org:443", "spelling"),
        ("example.org..:443", "spelling"),
        (".example.net:443", "spelling"),
        ("*.example.net:443", "spelling"),
        // No host and port.
        ("example.org", "malformed"),
        ("example.org:", "malformed"),
        ("example.org:0", "malformed"),
        ("https://example.org", "malformed"),
        ("http://example.org:443/", "malformed"),
    ];
    for (target, why) in table {
        let (_, answer) =
            proxy.ask(format!("CONNECT {target} HTTP/1.1\r\nHost: example.org\r\n\r\n").as_bytes());
        let status = if *why == "malformed" { 400 } else { 403 };
        assert_eq!(answer.map(|a| a.0), Some(status), "{target}");
        let refusal = proxy.refusal();
        assert_eq!(
            (refusal["method"].as_str(), refusal["why"].as_str()),
            (Some("CONNECT"), Some(*why)),
            "{target}"
        );
    }
    // What is no request at all: the library says so, and nothing of it is looked at.
    let raw: &[&[u8]] = &[
        b"CONNECT example.org\0.evil.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT example.org\0:443 HTTP/1.1\r\n\r\n",
        b"CONNECT ex\xc3\xa4mple.org:443 HTTP/1.1\r\n\r\n",
        b"CONNECT example.org%00.evil.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT example.org%2eevil.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT example.org :443 HTTP/1.1\r\n\r\n",
        b"CONNECT example.org:443\r\nHost: x HTTP/1.1\r\n\r\n",
        b"CONNECT example.org:99999 HTTP/1.1\r\n\r\n",
        b"CONNECT [::1:443 HTTP/1.1\r\n\r\n",
        b"CONNECT ::1:443 HTTP/1.1\r\n\r\n",
        b"GET http://example.org\0.evil.example/ HTTP/1.1\r\n\r\n",
    ];
    for request in raw {
        let (mut stream, answer) = proxy.ask(request);
        let shown = String::from_utf8_lossy(request).into_owned();
        assert!(answer.is_none_or(|a| a.0 == 400), "{shown:?}");
        assert!(matches!(proxy.refusal()["why"].as_str(), Some("malformed" | "spelling")), "{shown:?}");
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(ends(&mut stream));
    }
    // The same by plain http.
    for (url, status, why) in [
        ("http://evil.example/", 403, "unlisted"),
        ("http://127.0.0.1/", 403, "port"),
        ("http://example.org@evil.example/", 403, "spelling"),
        ("http://2130706433/", 403, "spelling"),
        ("http://[::ffff:127.0.0.1]/", 403, "unlisted"),
        ("https://example.org/", 400, "malformed"),
        ("ftp://example.org/", 400, "malformed"),
        ("/", 400, "malformed"),
        ("*", 400, "malformed"),
    ] {
        let request = format!("GET {url} HTTP/1.1\r\nHost: example.org\r\n\r\n");
        let (_, answer) = proxy.ask(request.as_bytes());
        assert_eq!(answer.map(|a| a.0), Some(status), "{url}");
        assert_eq!(proxy.refusal()["why"], why, "{url}");
    }
}

#[test]
fn nw06_a_listed_name_does_not_lead_to_this_machine() {
    let there = echo();
    let port = there.port();
    // Positive control: a service of the host, and anybody on the host reaches it.
    TcpStream::connect(("localhost", port)).unwrap();
    let by_name = Proxy::of(&[&format!("localhost:{port}"), &format!("*.localhost:{port}")]);
    for request in [
        format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n"),
        format!("CONNECT LocalHost.:{port} HTTP/1.1\r\n\r\n"),
        format!("GET http://localhost:{port}/ HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ] {
        let (_, answer) = by_name.ask(request.as_bytes());
        // A machine whose resolver knows no `localhost.` does not get there either.
        assert!(answer.as_ref().is_some_and(|a| [403, 502].contains(&a.0)), "{request:?}: {answer:?}");
        if answer.is_some_and(|a| a.0 == 403) {
            let refusal = by_name.refusal();
            assert_eq!((&refusal["why"], &refusal["port"]), (&"inside".into(), &port.into()), "{request:?}");
        }
    }
    let (_, answer) = by_name.ask(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes());
    assert_eq!(answer.map(|a| a.0), Some(403));
    assert_eq!(by_name.refusal()["why"], "unlisted");
    let (_, answer) = by_name.ask(b"GET http://169.254.169.254/latest/meta-data/ HTTP/1.1\r\n\r\n");
    assert_eq!(answer.map(|a| a.0), Some(403));
    let refusal = by_name.refusal();
    assert_eq!((&refusal["host"], &refusal["why"]), (&"169.254.169.254".into(), &"unlisted".into()));
    assert!(refusal["time"].as_u64().is_some_and(|t| t > 0));
    // Whoever lists the address means it, by name as well.
    let listed = Proxy::of(&[&format!("localhost:{port}"), &format!("127.0.0.1:{port}")]);
    let (_, answer) = listed.ask(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n").as_bytes());
    assert_eq!(answer.map(|a| a.0), Some(200));
}

#[test]
fn a_tunnel_carries_both_ways_and_each_way_ends_by_itself() {
    let there = echo();
    let proxy = Proxy::of(&[&there.to_string()]);
    let mut tunnel = proxy.tunnel(there);
    let sent: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
    let (mut writer, bytes) = (tunnel.try_clone().unwrap(), sent.clone());
    let writing = thread::spawn(move || {
        writer.write_all(&bytes).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut heard = Vec::new();
    tunnel.read_to_end(&mut heard).unwrap();
    writing.join().unwrap();
    // The dot is what the server says after our end.
    assert!(heard == [sent.as_slice(), b"."].concat());
    // What comes in one packet with the request is the tunnel's too.
    let (mut stream, answer) = proxy.ask(format!("CONNECT {there} HTTP/1.1\r\n\r\nearly").as_bytes());
    assert_eq!(answer.unwrap().0, 200);
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"early");
}

#[test]
fn a_plain_request_reaches_the_server_as_its_own() {
    let there = web();
    let proxy = Proxy::of(&[&there.to_string()]);
    let mut stream = proxy.connect();
    let ask = format!(
        "GET http://{there}/a%20b?c=d HTTP/1.1\r\nHost: evil.example\r\nProxy-Connection: keep-alive\r\n\
         Proxy-Authorization: Basic c2VjcmV0\r\nConnection: keep-alive, X-Mine, Host\r\nX-Mine: 1\r\nX-Other: 2\r\n\
         Upgrade: h2c\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).unwrap();
    let (status, head, text) = body(&mut stream);
    assert_eq!(status, 200);
    let seen = text.to_lowercase();
    assert!(seen.starts_with("get /a%20b?c=d http/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("host: {there}\r\n")) && seen.contains("x-other: 2\r\n"), "{seen}");
    for hop in ["evil.example", "proxy-", "c2vjcmv0", "x-mine", "upgrade", "connection"] {
        assert!(!seen.contains(hop), "{hop}: {seen}");
    }
    let head = head.to_lowercase();
    assert!(
        head.contains("x-end: 2") && !head.contains("x-hop") && !head.contains("keep-alive: 5"),
        "{head}"
    );
    // The same connection takes the next request, and judges it anew.
    let post = format!(
        "POST http://{there} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    );
    stream.write_all(post.as_bytes()).unwrap();
    let (status, _, text) = body(&mut stream);
    assert_eq!(status, 200);
    assert!(text.starts_with("POST / HTTP/1.1\r\n") && text.contains("abc"), "{text}");
    stream.write_all(b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(body(&mut stream).0, 403);
    assert_eq!(proxy.refusal()["host"], "evil.example");
}

#[test]
fn a_server_that_is_not_there_is_no_refusal() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::of(&[&gone.to_string(), "no-such-host.invalid"]);
    let (_, answer) = proxy.ask(format!("CONNECT {gone} HTTP/1.1\r\n\r\n").as_bytes());
    assert_eq!(answer.unwrap().0, 502);
    let (_, answer) = proxy.ask(b"CONNECT no-such-host.invalid:443 HTTP/1.1\r\n\r\n");
    assert!([502, 504].contains(&answer.unwrap().0));
    assert!(proxy.refused.try_recv().is_err());
}

#[test]
fn what_is_no_http_ends_the_connection_and_nothing_else() {
    let there = echo();
    let proxy = Proxy::of(&[&there.to_string()]);
    let long = format!("GET http://{there}/ HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET http://{there}/ HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(1000));
    let url = format!("GET http://{there}/{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let smuggled =
        format!("POST http://{there}/ HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello");
    let requests: Vec<&[u8]> = vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"CONNECT  HTTP/1.1\r\n\r\n",
        b"CONNECT x:443 HTTP/9.9\r\n\r\n",
        long.as_bytes(),
        many.as_bytes(),
        url.as_bytes(),
        smuggled.as_bytes(),
    ];
    for request in requests {
        let mut stream = proxy.connect();
        // It may be closed before all of it was taken.
        let _ = stream.write_all(request);
        let answer = head(&mut stream);
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        assert!(answer.as_ref().is_none_or(|a| (400..500).contains(&a.0)), "{shown:?}: {answer:?}");
        let _ = stream.shutdown(Shutdown::Write);
        assert!(ends(&mut stream), "{shown:?}");
        assert_eq!(proxy.refusal()["why"], "malformed", "{shown:?}");
    }
    drop(proxy.tunnel(there));
}

#[test]
fn nobody_holds_a_place_for_ever() {
    let there = echo();
    let limits = Limits {
        connections: 2,
        head: Duration::from_millis(300),
        idle: Duration::from_millis(600),
        ..Limits::default()
    };
    let proxy = Proxy::start(&[there.to_string()], limits);
    // Both places: one says nothing, one says its request letter by letter.
    let mut silent = proxy.connect();
    let mut slow = proxy.connect();
    let mut letters = slow.try_clone().unwrap();
    let talking = thread::spawn(move || {
        for letter in b"GET http://x/ HTTP/1.1\r\nX-A: ".iter().chain([b'a'; 100_000].iter()) {
            if letters.write_all(&[*letter]).is_err() {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    });
    // The third waits until a place is free, and gets it.
    let mut third = proxy.tunnel(there);
    assert!(ends(&mut silent));
    assert!(ends(&mut slow));
    assert!(talking.join().unwrap(), "cut off in the middle of a head");
    // A tunnel on which nothing moves is closed, on both sides.
    assert!(ends(&mut third));
    // So is one whose engine has closed its half and whose server never says anything.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(&[mute.local_addr().unwrap().to_string()], limits);
    let half = proxy.tunnel(mute.local_addr().unwrap());
    half.shutdown(Shutdown::Write).unwrap();
    let (mut server, _) = mute.accept().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(ends(&mut server));
    assert!(ends(&mut { half }));
    // And a request whose server never answers.
    let (_, answer) =
        proxy.ask(format!("GET http://{} HTTP/1.1\r\n\r\n", mute.local_addr().unwrap()).as_bytes());
    assert!(answer.is_none_or(|a| [502, 504].contains(&a.0)));
}

#[test]
fn a_hundred_tunnels_at_a_time() {
    let there = echo();
    let proxy = Arc::new(Proxy::of(&[&there.to_string()]).at);
    let open = Arc::new(Barrier::new(100));
    let clients: Vec<_> = (0..100_u32)
        .map(|n| {
            let (at, open) = (*proxy, Arc::clone(&open));
            thread::spawn(move || {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(format!("CONNECT {there} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
                assert_eq!(head(&mut stream).unwrap().0, 200);
                open.wait();
                let mine = vec![n as u8; 20_000];
                let mut writer = stream.try_clone().unwrap();
                let sent = mine.clone();
                let writing = thread::spawn(move || writer.write_all(&sent).unwrap());
                let mut heard = vec![0; mine.len()];
                stream.read_exact(&mut heard).unwrap();
                writing.join().unwrap();
                assert!(heard == mine);
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn refusals_do_not_fill_a_disk() {
    let proxy = Proxy::start(&["example.org".to_owned()], Limits { refusals: 3, ..Limits::default() });
    let name = "a".repeat(60);
    let long = [name.as_str(); 100].join(".");
    for _ in 0..10 {
        let (_, answer) = proxy.ask(format!("CONNECT {long}:443 HTTP/1.1\r\n\r\n").as_bytes());
        assert_eq!(answer.unwrap().0, 403);
    }
    let lines: Vec<u8> = proxy.refused.try_iter().flatten().collect();
    let lines: Vec<Value> =
        String::from_utf8(lines).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 4, "three and the word that there were more");
    assert!(lines[0]["host"].as_str().unwrap().len() <= 300);
    assert_eq!(lines[3]["why"], "more");
}

#[test]
fn a_list_that_cannot_be_read_serves_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let failed = git_agent::os::proxy::serve(listener, &["a b".to_owned()], std::io::sink()).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::InvalidInput);
    assert!(failed.to_string().contains("'a b' is not a host"), "{failed}");
}

#[test]
fn programs_are_told_where_the_proxy_is() {
    let vars = git_agent::os::proxy::variables("127.0.0.1:3128".parse().unwrap());
    let get = |name: &str| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.to_str().unwrap());
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
        assert_eq!(get(name), Some("http://127.0.0.1:3128"));
    }
    for name in ["no_proxy", "NO_PROXY"] {
        assert_eq!(get(name), Some("localhost,127.0.0.1,::1"));
    }
}
