//! Bodies: taken apart as their head says and put together again, never passed through unread.
//!
//! Trailers and extensions of chunks are read within bounds and left out.

use base::SaturatingFrom as _;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};

use super::tunnel::Activity;

/// How the length of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    None,
    Length(u64),
    Chunked,
    /// The connection ends with it; responses only.
    UntilEnd,
}

/// Which side ended a copy before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// It ended early, or what it sent was not a body.
    Source,
    Sink,
}

/// Longest line with the size of a chunk, extensions included.
const SIZE_LINE_BYTES_MAX: usize = 256;

/// Longest trailers, all lines together.
const TRAILER_BYTES_MAX: usize = 8 << 10;

/// Digits of the largest chunk; more would not fit into a length.
const SIZE_DIGITS_MAX: usize = 15;

/// Copies one body. With `chunked` it is written in chunks, otherwise as it is.
pub(super) async fn copy<R, W>(
    reader: &mut R,
    writer: &mut W,
    body: Body,
    chunked: bool,
    activity: &Activity,
) -> Result<(), Broken>
where
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut copy = Copy { reader, writer, chunked, activity };
    match body {
        Body::None => return Ok(()),
        Body::Length(length) => copy.pieces(length).await?,
        Body::UntilEnd => while copy.piece(u64::MAX).await? > 0 {},
        Body::Chunked => {
            while let Some(size) = copy.chunk_size().await? {
                copy.pieces(size).await?;
                if !copy.line(SIZE_LINE_BYTES_MAX).await?.is_empty() {
                    return Err(Broken::Source);
                }
            }
        }
    }
    if chunked {
        copy.write(b"0\r\n\r\n").await?;
    }
    Ok(())
}

struct Copy<'c, R, W> {
    reader: &'c mut R,
    writer: &'c mut W,
    chunked: bool,
    activity: &'c Activity,
}

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin> Copy<'_, R, W> {
    /// Copies exactly so many bytes.
    async fn pieces(&mut self, mut left: u64) -> Result<(), Broken> {
        while left > 0 {
            match self.piece(left).await? {
                0 => return Err(Broken::Source),
                moved => left = left.saturating_sub(moved),
            }
        }
        Ok(())
    }

    /// Copies what there is, at most so many bytes; 0 at the end.
    async fn piece(&mut self, most: u64) -> Result<u64, Broken> {
        let there = self.reader.fill_buf().await.map_err(|_| Broken::Source)?;
        let most = usize::saturating_from(most);
        let piece = there.get(..most).unwrap_or(there);
        let moved = piece.len();
        self.activity.touch();
        if moved > 0 {
            if self.chunked {
                let size = format!("{moved:x}\r\n");
                self.activity.write_all(self.writer, size.as_bytes()).await.map_err(|_| Broken::Sink)?;
            }
            self.activity.write_all(self.writer, piece).await.map_err(|_| Broken::Sink)?;
            if self.chunked {
                self.activity.write_all(self.writer, b"\r\n").await.map_err(|_| Broken::Sink)?;
            }
            self.reader.consume(moved);
        }
        // Nobody's pieces are kept waiting in a buffer of ours.
        self.writer.flush().await.map_err(|_| Broken::Sink)?;
        Ok(moved as u64)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.activity.write_all(self.writer, bytes).await.map_err(|_| Broken::Sink)
    }

    /// The size of the next chunk; `None` behind the last one and its trailers.
    async fn chunk_size(&mut self) -> Result<Option<u64>, Broken> {
        let line = self.line(SIZE_LINE_BYTES_MAX).await?;
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
        let plain = (1..=SIZE_DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        let size = std::str::from_utf8(digits).ok().filter(|_| plain);
        match size.and_then(|size| u64::from_str_radix(size, 16).ok()).ok_or(Broken::Source)? {
            0 => {
                let mut left = TRAILER_BYTES_MAX;
                loop {
                    match self.line(left).await?.len() {
                        0 => return Ok(None),
                        bytes => left = left.saturating_sub(bytes),
                    }
                }
            }
            size => Ok(Some(size)),
        }
    }

    /// A line without its end, which is a carriage return and a line feed and nothing else.
    async fn line(&mut self, bytes_max: usize) -> Result<Vec<u8>, Broken> {
        let mut line = Vec::new();
        loop {
            let byte = *self.reader.fill_buf().await.ok().and_then(|b| b.first()).ok_or(Broken::Source)?;
            self.reader.consume(1);
            self.activity.touch();
            match (line.last(), byte) {
                (Some(b'\r'), b'\n') => {
                    line.pop();
                    return Ok(line);
                }
                (Some(b'\r'), _) | (_, b'\n') => return Err(Broken::Source),
                _ if line.len() > bytes_max => return Err(Broken::Source),
                _ => line.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn copied(source: &[u8], body: Body, chunked: bool) -> (Result<(), Broken>, String, usize) {
        let (mut reader, mut written) = (source, Vec::new());
        let activity = Activity::new(Duration::from_secs(1));
        let result = copy(&mut reader, &mut written, body, chunked, &activity).await;
        (result, String::from_utf8(written).unwrap(), reader.len())
    }

    #[tokio::test]
    async fn bodies_are_framed_anew_and_nothing_behind_them_is_touched() {
        for (source, body, chunked, expected, left) in [
            ("abcdef", Body::None, false, "", 6),
            ("abcdef", Body::Length(4), false, "abcd", 2),
            ("abcdef", Body::Length(0), false, "", 6),
            ("abcdef", Body::UntilEnd, false, "abcdef", 0),
            ("abcdef", Body::UntilEnd, true, "6\r\nabcdef\r\n0\r\n\r\n", 0),
            ("3\r\nabc\r\n0\r\n\r\nGET", Body::Chunked, false, "abc", 3),
            (
                "3;x=y\r\nabc\r\n0A \r\n0123456789\r\n000\r\nT: x\r\n\r\nGET",
                Body::Chunked,
                true,
                "3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n",
                3,
            ),
            ("0\r\n\r\n", Body::Chunked, true, "0\r\n\r\n", 0),
        ] {
            assert_eq!(copied(source.as_bytes(), body, chunked).await, (Ok(()), expected.to_owned(), left), "{source}");
        }
    }

    #[tokio::test]
    async fn what_is_not_a_body_breaks_the_copy() {
        let (long_line, long_trailer) =
            (format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(300)), format!("0\r\n{}\r\n", "T: x\r\n".repeat(3000)));
        for (source, body) in [
            ("abc", Body::Length(4)),
            ("", Body::Chunked),
            ("3\r\nab", Body::Chunked),
            ("3\r\nabc\r\n", Body::Chunked),
            ("3\nabc\n0\n\n", Body::Chunked),
            ("3\r\nabcd\r\n0\r\n\r\n", Body::Chunked),
            ("-3\r\nabc\r\n0\r\n\r\n", Body::Chunked),
            ("+3\r\nabc\r\n0\r\n\r\n", Body::Chunked),
            ("0x3\r\nabc\r\n0\r\n\r\n", Body::Chunked),
            (" 3\r\nabc\r\n0\r\n\r\n", Body::Chunked),
            ("\r\nabc\r\n0\r\n\r\n", Body::Chunked),
            ("fffffffffffffffff\r\nabc\r\n0\r\n\r\n", Body::Chunked),
            ("3\r\nabc\r\n0\r\nT: x", Body::Chunked),
            (&long_line, Body::Chunked),
            (&long_trailer, Body::Chunked),
        ] {
            assert_eq!(copied(source.as_bytes(), body, true).await.0, Err(Broken::Source), "{source}");
        }
    }
}
