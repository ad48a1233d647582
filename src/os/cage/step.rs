//! What a child was doing when it failed, small enough for a pipe.

use std::io;

/// A step between fork and exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    Unshare,
    MapUser,
    Loopback,
    Listen,
    Fork,
    Show,
    ReadOnly,
    Hide,
    Devices,
    Terminals,
    Proc,
    Limits,
    User,
    Landlock,
    Seccomp,
    Parent,
}

const ALL: [(Step, &str); 16] = [
    (Step::Unshare, "namespaces cannot be made"),
    (Step::MapUser, "the user cannot be mapped into a user namespace"),
    (Step::Loopback, "the loopback device cannot be brought up"),
    (Step::Listen, "the proxy's socket cannot be made"),
    (Step::Fork, "no process can be started in a new namespace"),
    (Step::Show, "a folder cannot be bound"),
    (Step::ReadOnly, "mounts cannot be made read-only"),
    (Step::Hide, "a folder cannot be hidden"),
    (Step::Devices, "a private /dev cannot be made"),
    (Step::Terminals, "a private /dev/pts cannot be mounted"),
    (Step::Proc, "a private /proc cannot be mounted"),
    (Step::Limits, "limits cannot be set"),
    (Step::User, "the user cannot be changed"),
    (Step::Landlock, "Landlock cannot be entered"),
    (Step::Seccomp, "the system call filter cannot be installed"),
    (Step::Parent, "the process above ended"),
];

/// A step that failed, and the system's error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    step: u8,
    errno: i32,
}

impl Failed {
    /// For `map_err`.
    pub(super) fn at<E: Into<io::Error>>(step: Step) -> impl FnOnce(E) -> Self {
        move |e| Self { step: step as u8, errno: e.into().raw_os_error().unwrap_or(libc::EIO) }
    }

    /// As one number.
    pub(super) fn pack(self) -> i32 {
        i32::from(self.step) << 16 | (self.errno & 0xffff)
    }

    pub(super) fn unpack(number: i32) -> Self {
        Self { step: u8::try_from(number >> 16).unwrap_or(u8::MAX), errno: number & 0xffff }
    }

    pub(super) fn is(self, step: Step) -> bool {
        self.step == step as u8
    }
}

impl From<Failed> for io::Error {
    fn from(failed: Failed) -> Self {
        Self::from_raw_os_error(failed.errno)
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = ALL.iter().find(|(s, _)| *s as u8 == self.step);
        let what = known.map_or("the confinement could not be entered", |(_, text)| text);
        write!(f, "{what}: {}", io::Error::from_raw_os_error(self.errno))
    }
}
