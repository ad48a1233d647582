//! What the machine offers, what a higher tier would need, and what listens on loopback.

use crate::os::cage::{self, Tier};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// What the kernel offers, and what stands in the way.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Landlock ABI, 0 without Landlock.
    pub landlock_abi: u32,
    /// Whether seccomp filters are there.
    pub seccomp: bool,
    /// Whether namespaces and the mounts in them can be made, tried.
    pub namespaces: bool,
    /// Whether this is uid 0.
    pub root: bool,
    /// Whether this process itself is in a sandbox already: a filter, or no new privileges.
    pub sandboxed: bool,
    /// The container we seem to be in.
    pub container: Option<String>,
}

/// One thing that a higher tier lacks, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The tier that would be reached.
    pub tier: &'static str,
    /// What is missing.
    pub what: String,
    /// What to do; a command where there is one.
    pub how: String,
}

/// A port on loopback that something listens on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its number.
    pub port: u16,
    /// The program, where that can be seen.
    pub program: Option<String>,
}

impl Machine {
    /// Asks the kernel.
    pub fn look() -> Self {
        let probed = cage::probe();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
        let container = if fs::exists("/.dockerenv").unwrap_or(false) {
            Some("docker".to_owned())
        } else if fs::exists("/run/.containerenv").unwrap_or(false) {
            Some("podman".to_owned())
        } else {
            None
        };
        Self {
            kernel: release.trim().to_owned(),
            landlock_abi: probed.landlock_abi,
            seccomp: probed.seccomp,
            namespaces: probed.lacks(Tier::Namespaces).is_none(),
            root: probed.euid0,
            sandboxed: field("NoNewPrivs:") == Some("1") || field("Seccomp:") == Some("2"),
            container,
        }
    }

    /// What the tiers above `tier` need that this machine lacks. Empty at the top.
    pub fn missing(&self, tier: Option<&str>) -> Vec<Missing> {
        let machine = cage::probe();
        let reached = tier.and_then(Tier::named);
        let above = [Tier::Landlock, Tier::Namespaces, Tier::Full].into_iter();
        let mut all: Vec<Missing> = above
            .filter(|t| reached.is_none_or(|r| *t > r))
            .filter_map(|t| {
                let how = machine.raise(t).join("; or ");
                machine.lacks(t).map(|what| Missing { tier: t.as_str(), what, how })
            })
            .collect();
        if self.sandboxed && reached != Some(Tier::Full) {
            all.push(Missing {
                tier: Tier::Full.as_str(),
                what: "this shell is itself in a sandbox, and a sandbox does not nest".to_owned(),
                how: "call git agent from a shell outside of it".to_owned(),
            });
        }
        all
    }
}

/// Ports of TCP sockets that listen on loopback or on every address.
pub fn loopback_ports() -> Vec<Port> {
    let mut inodes = BTreeMap::<u64, u16>::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        inodes.extend(listening(&fs::read_to_string(file).unwrap_or_default()));
    }
    let mut ports: BTreeMap<u16, Option<String>> = inodes.values().map(|port| (*port, None)).collect();
    for (inode, program) in owners() {
        if let Some(port) = inodes.get(&inode) {
            ports.insert(*port, Some(program));
        }
    }
    ports.into_iter().map(|(port, program)| Port { port, program }).collect()
}

/// Inode and port of each listening socket in a table of `/proc/net` that can be reached by loopback.
fn listening(table: &str) -> Vec<(u64, u16)> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, state, inode) = (*fields.get(1)?, *fields.get(3)?, *fields.get(9)?);
        let (address, port) = local.split_once(':')?;
        // Words of four bytes, each in the machine's own order.
        let v4 = |hex: &str| u32::from_str_radix(hex, 16).ok().map(u32::to_ne_bytes);
        let near = match address.len() {
            8 => matches!(v4(address)?, [127, ..] | [0, 0, 0, 0]),
            32 => {
                let words: Vec<[u8; 4]> = (0..4).filter_map(|n| v4(address.get(n * 8..n * 8 + 8)?)).collect();
                let bytes: [u8; 16] = words.concat().try_into().ok()?;
                let address = std::net::Ipv6Addr::from(bytes);
                let mapped = address.to_ipv4_mapped().is_some_and(|a| a.is_loopback() || a.is_unspecified());
                address.is_loopback() || address.is_unspecified() || mapped
            }
            _ => false,
        };
        // 0A is TCP_LISTEN.
        (state == "0A" && near).then_some((inode.parse().ok()?, u16::from_str_radix(port, 16).ok()?))
    };
    table.lines().skip(1).filter_map(line).collect()
}

/// Inodes of sockets, and the programs that have them, as far as we may see.
fn owners() -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let own = rustix::process::getuid().as_raw();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = process.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit());
        if !number || own != 0 && !process.metadata().is_ok_and(|m| m.uid() == own) {
            continue;
        }
        for fd in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let Ok(link) = fs::read_link(fd.path()) else { continue };
            let link = link.to_string_lossy();
            let inode = link.strip_prefix("socket:[").and_then(|l| l.strip_suffix(']'));
            if let Some(inode) = inode.and_then(|i| i.parse().ok()) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                found.push((inode, name.trim_end().to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_that_loopback_reaches() {
        if cfg!(target_endian = "big") {
            return;
        }
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let line = |local: &str, state: &str, inode: u32| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0 0 {inode} 1\n"
            )
        };
        let zeros = "0".repeat(32);
        let table = [
            head.to_owned(),
            line("0100007F:1538", "0A", 1),
            line("00000000:0016", "0A", 2),
            line("0100007F:1F90", "01", 3),
            line("0100000A:1F91", "0A", 4),
            line("00000000000000000000000001000000:1F92", "0A", 5),
            line(&format!("{zeros}:1F93"), "0A", 6),
            line("0000000000000000FFFF00000100007F:1F94", "0A", 7),
            line("000080FE00000000000000000000FE02:1F95", "0A", 8),
            "garbage\n".to_owned(),
        ];
        let found: Vec<u16> = listening(&table.concat()).into_iter().map(|(_, port)| port).collect();
        assert_eq!(found, [0x1538, 22, 0x1f92, 0x1f93, 0x1f94]);
    }
}
