//! A connection that is given up when nothing moves on it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Fails with `TimedOut` once neither direction has moved for the given time. Both ends of a tunnel are wrapped:
/// what moves on one moves on the other, and each watches where the other has been closed.
pub(super) struct Patient {
    stream: TcpStream,
    idle: Duration,
    end: Pin<Box<Sleep>>,
}

impl Patient {
    pub(super) fn new(stream: TcpStream, idle: Duration) -> Self {
        Self { stream, idle, end: Box::pin(sleep(idle)) }
    }

    fn watched<T>(
        &mut self,
        cx: &mut Context<'_>,
        step: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(result) = step(Pin::new(&mut self.stream), cx) {
            self.end.as_mut().reset(Instant::now() + self.idle);
            return Poll::Ready(result);
        }
        ready!(self.end.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.watched(cx, |stream, cx| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.watched(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
