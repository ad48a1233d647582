//! The list of hosts, and the one form that a host is brought into before it is compared.

use super::address::is_public;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ports of an entry that names none.
const PORTS: [u16; 2] = [443, 80];
/// Longest name and longest label of the domain name system.
const NAME: usize = 253;
const LABEL: usize = 63;

/// An entry that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a host: write a name, '*.name' or an address, each with ':port' if need be")]
pub struct BadHost(pub String);

/// Why a request is refused. What the record and the answer say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Not HTTP as a proxy understands it.
    Malformed,
    /// Not a host in its plain form.
    Spelling,
    /// Not on the list.
    Unlisted,
    /// On the list, with other ports.
    Port,
    /// A listed name that leads to this machine, its network or nowhere public.
    Inside,
}

impl Why {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Spelling => "spelling",
            Self::Unlisted => "unlisted",
            Self::Port => "port",
            Self::Inside => "inside",
        }
    }

    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::Malformed => "this is a proxy: it takes CONNECT and http:// requests",
            Self::Spelling => "the host is not written in its plain form",
            Self::Unlisted => "this host is not on the run's list",
            Self::Port => "this host is on the run's list, but not with this port",
            Self::Inside => "this name leads to an address that is not on the public internet",
        }
    }
}

/// A host in its one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// Lower case, without a dot at the end.
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// From the host of a request. Every spelling that a resolver might take for an address and that is not
    /// the plain one (`127.1`, `0x7f000001`, `0177.0.0.1`, `2130706433`, zones) is an error, so that nothing
    /// is compared as a name and connected to as an address.
    pub(super) fn parse(text: &str) -> Result<Self, Why> {
        if let Some(rest) = text.strip_prefix('[') {
            let inside = rest.strip_suffix(']').ok_or(Why::Spelling)?;
            return inside.parse::<Ipv6Addr>().map(|a| Self::Address(a.into())).map_err(|_| Why::Spelling);
        }
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_suffix('.').unwrap_or(&lower);
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        let label = |l: &str| !l.is_empty() && l.len() <= LABEL && l.bytes().all(plain);
        if name.len() > NAME || !name.split('.').all(label) {
            return Err(Why::Spelling);
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        let number = last.bytes().all(|b| b.is_ascii_digit())
            || last.strip_prefix("0x").is_some_and(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        if number {
            return name.parse::<Ipv4Addr>().map(|a| Self::Address(a.into())).map_err(|_| Why::Spelling);
        }
        Ok(Self::Name(name.to_owned()))
    }
}

/// The hosts a run may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostList(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    pattern: Pattern,
    /// `None`: 443 and 80.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Host(Host),
    /// Everything below a name and not the name; kept with the dot in front.
    Below(String),
}

impl HostList {
    /// Reads entries: a name, `*.name` (everything below the name, not the name), or an address, each with
    /// `:port` where it is not 443 or 80. A name outside of ASCII is written in its `xn--` form.
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, BadHost> {
        let bad = |e: &str| BadHost(e.to_owned());
        entries
            .iter()
            .map(|e| entry(e.as_ref()).ok_or_else(|| bad(e.as_ref())))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether a request for this host and port may go on.
    pub(super) fn check(&self, host: &Host, port: u16) -> Result<(), Why> {
        let mut of_host = self.0.iter().filter(|e| e.names(host)).peekable();
        if of_host.peek().is_none() {
            return Err(Why::Unlisted);
        }
        if of_host.any(|e| e.allows(port)) { Ok(()) } else { Err(Why::Port) }
    }

    /// Whether a listed name may lead to this address: a public one, or one that the list names itself.
    pub(super) fn may_lead_to(&self, address: IpAddr, port: u16) -> bool {
        is_public(address) || self.check(&Host::Address(address), port).is_ok()
    }
}

impl Entry {
    fn names(&self, host: &Host) -> bool {
        match (&self.pattern, host) {
            (Pattern::Host(own), host) => own == host,
            (Pattern::Below(end), Host::Name(name)) => name.len() > end.len() && name.ends_with(end.as_str()),
            (Pattern::Below(_), Host::Address(_)) => false,
        }
    }

    fn allows(&self, port: u16) -> bool {
        self.port.map_or_else(|| PORTS.contains(&port), |p| p == port)
    }
}

fn entry(text: &str) -> Option<Entry> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(Entry { pattern: Pattern::Host(Host::Address(address.into())), port: None });
    }
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an address in brackets are not a port's.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port_number(port)?)),
        _ => (text, None),
    };
    let pattern = match host.strip_prefix("*.") {
        Some(name) => match Host::parse(name).ok()? {
            Host::Name(name) => Pattern::Below(format!(".{name}")),
            Host::Address(_) => return None,
        },
        None => Pattern::Host(Host::parse(host).ok()?),
    };
    Some(Entry { pattern, port })
}

fn port_number(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|p| digits && *p != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> HostList {
        HostList::parse(entries).unwrap()
    }

    fn ask(list: &HostList, host: &str, port: u16) -> Result<(), Why> {
        list.check(&Host::parse(host)?, port)
    }

    #[test]
    fn entries_that_are_none() {
        for bad in [
            "",
            ".",
            "*",
            "*.",
            "**.a",
            "a*.b",
            "*a.b",
            "a..b",
            ".a",
            "a b",
            "a/b",
            "http://a",
            "u@a",
            "a:",
            "a:0",
            "a:x",
            "a:+1",
            "a:65536",
            "a:1:2",
            "[::1",
            "::1]",
            "[::1]x",
            "[fe80::1%eth0]",
            "127.1",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "2130706433",
            "*.127.0.0.1",
            "*.[::1]",
            "bücher.example",
            "a\0b",
            "a\n",
        ] {
            assert_eq!(HostList::parse(&[bad]), Err(BadHost(bad.to_owned())), "{bad:?}");
        }
    }

    #[test]
    fn a_name_is_compared_in_one_form() {
        let l = list(&["Example.ORG", "other.example:8443", "xn--bcher-kva.example"]);
        for same in ["example.org", "EXAMPLE.org", "example.org."] {
            assert_eq!(ask(&l, same, 443), Ok(()), "{same}");
            assert_eq!(ask(&l, same, 80), Ok(()), "{same}");
            assert_eq!(ask(&l, same, 22), Err(Why::Port), "{same}");
        }
        assert_eq!(ask(&l, "other.example", 8443), Ok(()));
        assert_eq!(ask(&l, "other.example", 443), Err(Why::Port));
        assert_eq!(ask(&l, "XN--Bcher-KVA.example", 443), Ok(()));
        for other in
            ["example.org.evil.example", "notexample.org", "a.example.org", "example", "org", "example-org"]
        {
            assert_eq!(ask(&l, other, 443), Err(Why::Unlisted), "{other}");
        }
        for odd in [
            "example.org..",
            ".example.org",
            "example..org",
            "example.org\0.evil.example",
            "example.org\0",
            "exa mple.org",
            "example.org/",
            "example.org#",
            "example.org?",
            "user@example.org",
            "example.org:443",
            "example.org%00",
            "ｅxample.org",
            "example。org",
            "",
            ".",
        ] {
            assert_eq!(ask(&l, odd, 443), Err(Why::Spelling), "{odd:?}");
        }
    }

    #[test]
    fn a_star_is_what_is_below_and_nothing_else() {
        let l = list(&["*.example.org"]);
        for below in ["a.example.org", "a.b.example.org", "A.EXAMPLE.ORG."] {
            assert_eq!(ask(&l, below, 443), Ok(()), "{below}");
        }
        for other in ["example.org", "aexample.org", "a.example.org.evil", "a.example.orgs"] {
            assert_eq!(ask(&l, other, 443), Err(Why::Unlisted), "{other}");
        }
        assert_eq!(ask(&l, ".example.org", 443), Err(Why::Spelling));
        assert_eq!(ask(&l, "*.example.org", 443), Err(Why::Spelling));
    }

    #[test]
    fn an_address_is_reached_only_where_it_is_listed_as_itself() {
        let names = list(&["example.org", "localhost", "*.local"]);
        for address in
            ["127.0.0.1", "169.254.169.254", "8.8.8.8", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.1."]
        {
            assert_eq!(ask(&names, address, 80), Err(Why::Unlisted), "{address}");
        }
        let l = list(&["127.0.0.1:8080", "[::1]:8080", "2001:db8::1"]);
        assert_eq!(ask(&l, "127.0.0.1", 8080), Ok(()));
        assert_eq!(ask(&l, "127.0.0.1", 80), Err(Why::Port));
        assert_eq!(ask(&l, "[0:0:0:0:0:0:0:1]", 8080), Ok(()), "the same address");
        assert_eq!(ask(&l, "[2001:DB8::1]", 443), Ok(()));
        assert_eq!(ask(&l, "[::ffff:127.0.0.1]", 8080), Err(Why::Unlisted), "another address");
        assert_eq!(ask(&l, "127.0.0.2", 8080), Err(Why::Unlisted));
        assert_eq!(ask(&l, "localhost", 8080), Err(Why::Unlisted));
        for odd in [
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "017700000001",
            "127.0.0.01",
            "127.0.0.0x1",
            "127.0.0.1.1",
            "256.0.0.1",
            "[127.0.0.1]",
            "::1",
            "[::1%lo]",
            "[::1%25lo]",
            "[::1",
            "[]",
            "0x",
            "1.0x",
        ] {
            assert_eq!(ask(&l, odd, 8080), Err(Why::Spelling), "{odd}");
        }
    }

    #[test]
    fn a_name_leads_to_public_addresses_and_to_those_that_are_listed() {
        let l = list(&["example.org:8080", "127.0.0.1:8080"]);
        let to = |a: &str, port| l.may_lead_to(a.parse().unwrap(), port);
        assert!(to("8.8.8.8", 8080));
        assert!(to("127.0.0.1", 8080));
        assert!(!to("127.0.0.1", 80));
        assert!(!to("127.0.0.2", 8080));
        assert!(!to("::ffff:127.0.0.1", 8080));
        assert!(!to("10.0.0.1", 8080));
    }
}
