//! Which addresses a name may lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address belongs to the public internet. What does not, is reached only where the list names it as
/// an address: this machine, its network, the metadata service of a cloud.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => v4(a),
        IpAddr::V6(a) => v6(a),
    }
}

fn v4(a: Ipv4Addr) -> bool {
    let [a0, b, c, _] = a.octets();
    let special = match (a0, b, c) {
        // "this network", among it 0.0.0.0, which Linux takes for loopback
        (0, _, _) => true,
        // shared between provider and customers (RFC 6598)
        (100, 64..=127, _) => true,
        // protocol assignments, and the relays of 6to4
        (192, 0, 0) | (192, 88, 99) => true,
        // benchmarks
        (198, 18..=19, _) => true,
        // reserved, broadcast among it
        (240..=255, _, _) => true,
        _ => false,
    };
    !(special
        || a.is_loopback()
        || a.is_private()
        || a.is_link_local()
        || a.is_multicast()
        || a.is_documentation())
}

fn v6(a: Ipv6Addr) -> bool {
    let s = a.segments();
    // NAT64 carries an IPv4 address; where there is IPv6 only, that is how the public internet is reached.
    if s[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        let [.., a, b, c, d] = a.octets();
        return v4(Ipv4Addr::new(a, b, c, d));
    }
    // All that is given out today. Leaves out loopback, unspecified, IPv4-mapped and -compatible, unique local
    // (fc00::/7), link-local (fe80::/10) and multicast (ff00::/8).
    let global = s[0] & 0xe000 == 0x2000;
    let special = match s {
        // protocol assignments: Teredo, benchmarks, ORCHID
        [0x2001, 0..=0x1ff, ..] => true,
        // documentation
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => true,
        // 6to4 carries any IPv4 address
        [0x2002, ..] => true,
        _ => false,
    };
    global && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "2001:4860:4860::8888",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for special in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(special.parse().unwrap()), "{special}");
        }
    }
}
