//! System calls that no engine needs and that would reach around Landlock: a deny list, compiled to BPF
//! before the fork.

use super::CageError;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpArgLen::Qword, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// x32 calls have the same architecture value as x86_64 and this bit in their number.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
const IPPROTO_MPTCP: u64 = 262;
const TCP_FASTOPEN_CONNECT: libc::c_int = 30;
/// `open_tree_attr(2)`, not yet in libc. The number is the same on every architecture.
const SYS_OPEN_TREE_ATTR: i64 = 467;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filters, to be installed in this order. Other architectures than ours are killed.
pub(super) fn filters(unix_sockets: bool, internet: bool) -> Result<Vec<BpfProgram>, CageError> {
    let fail = |e: seccompiler::BackendError| CageError::NotInForce { lacks: format!("seccomp: {e}") };
    let denied = denied(unix_sockets, internet).map_err(fail)?;
    // ENOSYS, so that the C library falls back to clone(2), whose flags can be looked at.
    let absent = Rules::from([(libc::SYS_clone3, vec![])]);
    [(denied, libc::EPERM), (absent, libc::ENOSYS)]
        .into_iter()
        .map(|(rules, errno)| {
            let arch: TargetArch = std::env::consts::ARCH.try_into()?;
            let act = SeccompAction::Errno(errno as u32);
            SeccompFilter::new(with_x32(rules), SeccompAction::Allow, act, arch)?.try_into()
        })
        .collect::<Result<_, _>>()
        .map_err(fail)
}

fn denied(unix_sockets: bool, internet: bool) -> Result<Rules, seccompiler::BackendError> {
    let mut rules = Rules::new();
    for call in [
        // other processes
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_getfd,
        libc::SYS_process_madvise,
        libc::SYS_kcmp,
        // files past the path rules
        libc::SYS_open_by_handle_at,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        // mounts and namespaces
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        SYS_OPEN_TREE_ATTR,
        libc::SYS_chroot,
        libc::SYS_unshare,
        libc::SYS_setns,
        // keyrings, the kernel and the machine
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_reboot,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_quotactl_fd,
    ] {
        rules.insert(call, vec![]);
    }
    let equal = |arg, value| SeccompCondition::new(arg, Dword, SeccompCmpOp::Eq, value);
    let flag = |arg, bits: u64| SeccompCondition::new(arg, Qword, SeccompCmpOp::MaskedEq(bits), bits);
    let one = |condition: Result<SeccompCondition, _>| SeccompRule::new(vec![condition?]);

    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let clone = namespaces.into_iter().map(|f| one(flag(0, f as u64))).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_clone, clone);

    // The kernel looks at the low 32 bits of the request only, and so do we.
    #[allow(clippy::unnecessary_cast)] // the type differs between C libraries
    let typing = [libc::TIOCSTI as u64, libc::TIOCLINUX as u64];
    let ioctl = typing.into_iter().map(|r| one(equal(1, r & 0xffff_ffff))).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_ioctl, ioctl);

    let mut families = vec![
        libc::AF_VSOCK,
        libc::AF_PACKET,
        libc::AF_ALG,
        libc::AF_XDP,
        libc::AF_BLUETOOTH,
        libc::AF_CAN,
        libc::AF_KEY,
        libc::AF_RDS,
        libc::AF_TIPC,
    ];
    if !unix_sockets {
        families.push(libc::AF_UNIX);
    }
    if !internet {
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    let mut socket = families.into_iter().map(|f| one(equal(0, f as u64))).collect::<Result<Vec<_>, _>>()?;
    for family in [libc::AF_INET, libc::AF_INET6].into_iter().filter(|_| internet) {
        let raw = SeccompCondition::new(1, Dword, SeccompCmpOp::MaskedEq(0xf), libc::SOCK_RAW as u64)?;
        socket.push(SeccompRule::new(vec![equal(0, family as u64)?, raw])?);
    }
    socket.push(one(equal(2, IPPROTO_MPTCP))?);
    rules.insert(libc::SYS_socket, socket);

    // The same by an option of the socket.
    let option = |level: libc::c_int, name: libc::c_int| {
        SeccompRule::new(vec![equal(1, level as u64)?, equal(2, name as u64)?])
    };
    rules.insert(libc::SYS_setsockopt, vec![option(libc::IPPROTO_TCP, TCP_FASTOPEN_CONNECT)?]);

    // A connection made by sending is one that no rule about connect(2) sees.
    let fastopen = libc::MSG_FASTOPEN as u64;
    rules.insert(libc::SYS_sendto, vec![one(flag(3, fastopen))?]);
    rules.insert(libc::SYS_sendmsg, vec![one(flag(2, fastopen))?]);
    rules.insert(libc::SYS_sendmmsg, vec![one(flag(3, fastopen))?]);
    Ok(rules)
}

#[cfg(target_arch = "x86_64")]
fn with_x32(mut rules: Rules) -> Rules {
    // Calls that have a number of their own under x32.
    let own = [
        (libc::SYS_ioctl, 514),
        (libc::SYS_ptrace, 521),
        (libc::SYS_kexec_load, 528),
        (libc::SYS_process_vm_readv, 539),
        (libc::SYS_process_vm_writev, 540),
        (libc::SYS_sendmsg, 518),
        (libc::SYS_sendmmsg, 538),
        (libc::SYS_setsockopt, 541),
    ];
    let mut more = Rules::new();
    for (call, rule) in &rules {
        more.insert(call | X32, rule.clone());
        for (_, number) in own.iter().filter(|(native, _)| native == call) {
            more.insert(number | X32, rule.clone());
        }
    }
    rules.append(&mut more);
    rules
}

#[cfg(not(target_arch = "x86_64"))]
fn with_x32(rules: Rules) -> Rules {
    rules
}
