//! Questions to the person at the controlling terminal. Never asked of a pipe; the default is to do nothing.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};

/// Whether a question can be asked: standard input and output are a terminal and it is ours.
pub fn possible() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && terminal().is_ok()
}

/// Asks and returns one line without its end; `None` at the end of input (Ctrl-D).
pub fn line(question: &str) -> io::Result<Option<String>> {
    let mut tty = terminal()?;
    write!(tty, "{question}")?;
    tty.flush()?;
    let mut line = String::new();
    match BufReader::new(&tty).read_line(&mut line)? {
        0 => {
            writeln!(tty)?;
            Ok(None)
        }
        _ => Ok(Some(line.trim().to_owned())),
    }
}

fn terminal() -> io::Result<std::fs::File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}
