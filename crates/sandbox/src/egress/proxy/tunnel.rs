//! Bytes in both directions until both have ended, and the clock that ends a connection on which nothing moves.
//!
//! A side that has finished sending may still listen: its end is passed on, and the other direction goes on.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use base::MutexExt as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::Client;
use crate::egress::counted::MeteredStream;

/// At most as many bytes of one direction are held.
const PIECE_BYTES: usize = 16 << 10;

/// When something last moved, in whichever direction: who downloads sends nothing for long.
#[derive(Debug)]
pub(super) struct Activity {
    last: Mutex<Instant>,
    idle: Duration,
}

/// Carries bytes until both directions have ended, one of them fails, or nothing moves for too long.
pub(super) async fn relay(client: Client, upstream: MeteredStream<TcpStream>, idle: Duration) -> io::Result<()> {
    let Client { mut reader, mut writer } = client;
    let (mut from_upstream, mut to_upstream) = tokio::io::split(upstream);
    let activity = Activity::new(idle);
    let both = async {
        tokio::try_join!(
            pump(&mut reader, &mut to_upstream, &activity),
            pump(&mut from_upstream, &mut writer, &activity)
        )
    };
    tokio::select! {
        done = both => done.map(drop),
        () = activity.lapse() => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Carries one direction to its end, and passes the end on.
async fn pump<R, W>(reader: &mut R, writer: &mut W, activity: &Activity) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let bytes = reader.read(&mut buffer).await?;
        activity.touch();
        match buffer.get(..bytes) {
            Some(piece) if !piece.is_empty() => activity.write_all(writer, piece).await?,
            _ => return writer.shutdown().await,
        }
    }
}

impl Activity {
    pub(super) fn new(idle: Duration) -> Self {
        Self { last: Mutex::new(Instant::now()), idle }
    }

    /// Something moved.
    pub(super) fn touch(&self) {
        *self.last.lock_unpoisoned() = Instant::now();
    }

    /// Ends when nothing has moved for the idle time.
    pub(super) async fn lapse(&self) {
        loop {
            let until = *self.last.lock_unpoisoned() + self.idle;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    /// Writes all, and takes note of every piece: a narrow bandwidth is slow, not idle.
    pub(super) async fn write_all<W: AsyncWrite + Unpin>(&self, writer: &mut W, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = writer.write(bytes).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.touch();
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}
