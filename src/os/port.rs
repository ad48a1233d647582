//! Whether a TCP port is free on this machine.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};

/// Whether nobody listens on `port`, on loopback or on all addresses. What cannot be asked (no IPv6) is free.
pub fn is_free(port: u16) -> bool {
    let taken =
        |tried: std::io::Result<TcpListener>| tried.is_err_and(|e| e.kind() == std::io::ErrorKind::AddrInUse);
    !taken(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
        && !taken(TcpListener::bind((Ipv4Addr::LOCALHOST, port)))
        && !taken(TcpListener::bind((Ipv6Addr::LOCALHOST, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_a_listener_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_free(port));
        drop(listener);
        assert!(is_free(port));
    }
}
