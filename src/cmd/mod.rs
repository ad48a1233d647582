//! The command table: one file a command.

/// Entry point of every binary. `fixed` is the command of the one-purpose binaries.
pub fn main(_fixed: Option<&str>) -> std::process::ExitCode {
    std::process::ExitCode::from(129)
}
