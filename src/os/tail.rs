//! The end of what a program prints, whatever it prints: a child of ours reads the pipe and keeps the last bytes,
//! so that nothing fills a disk or a pipe while the program is waited for.

use super::process::{exit_now, fork, wait};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

/// The most that can be kept: what a pipe holds without a reader.
const MOST: usize = 16 << 10;

/// A reader at work.
#[derive(Debug)]
pub struct Tail {
    child: i32,
    kept: File,
}

impl Tail {
    /// Starts a reader that keeps the last `keep` bytes (at most 16 KiB), and the end to write to. It is done when
    /// all copies of that end are closed.
    pub fn start(keep: usize) -> io::Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (kept_read, kept_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let Some(child) = fork()? else {
            drop((write, kept_read));
            // A Ctrl-C at the terminal is for the program, whose last words are wanted.
            let _ = rustix::process::setpgid(None, None);
            let kept = last(&mut File::from(read), keep.min(MOST));
            let _ = File::from(kept_write).write_all(&kept);
            exit_now(0)
        };
        Ok((Self { child, kept: File::from(kept_read) }, write))
    }

    /// What was kept.
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        let mut kept = Vec::new();
        self.kept.read_to_end(&mut kept)?;
        wait(self.child)?;
        Ok(kept)
    }
}

fn last(from: &mut impl Read, keep: usize) -> Vec<u8> {
    let mut kept = Vec::with_capacity(keep + (64 << 10));
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 {
            break;
        }
        kept.extend_from_slice(&buffer[..n]);
        if kept.len() > keep {
            kept.drain(..kept.len() - keep);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept() {
        let (tail, write) = Tail::start(5).unwrap();
        let mut write = File::from(write);
        for _ in 0..50_000 {
            write.write_all(b"0123456789").unwrap();
        }
        write.write_all(b"abc").unwrap();
        drop(write);
        assert_eq!(tail.finish().unwrap(), b"89abc");
        let (tail, write) = Tail::start(5).unwrap();
        drop(write);
        assert_eq!(tail.finish().unwrap(), b"");
    }
}
