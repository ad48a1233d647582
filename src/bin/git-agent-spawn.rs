//! One line: the library does the work.

fn main() -> std::process::ExitCode {
    git_agent::cmd::main(Some("spawn"))
}
