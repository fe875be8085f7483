//! Lines of a client over standard input and output, each of which is one message that is read strictly (`strict_message`).
//!
//! Writing is left to `rmcp`. Reading is not, because its reader keeps the last of two equal members.
//!
//! Invariants
//! - MSTDIO-1: a line is never longer than its bound, whatever comes; a longer one is dropped.
//! - MSTDIO-2: [`Transport::receive`] is dropped whenever something else is ready, and goes on where it was: what was read of a
//!   line, and an answer that is owed, are kept.

use std::io;

use contract::json::JsonLimits;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde::de::IgnoredAny;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader, Empty};

use super::strict_message::{self, UnreadableMessage};

/// Both directions of one client.
pub(super) struct StdioTransport<R, W: AsyncWrite> {
    lines: BufReader<R>,
    /// What has come of the line that is being read; nothing while a line is dropped that is too long.
    line: Vec<u8>,
    dropping: bool,
    /// The answer to a line that was no message (MSTDIO-2).
    owed: Option<ServerJsonRpcMessage>,
    limits: JsonLimits,
    writer: AsyncRwTransport<RoleServer, Empty, W>,
}

impl<R, W> StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(read: R, write: W, limits: JsonLimits) -> Self {
        let writer = AsyncRwTransport::new_server(tokio::io::empty(), write);
        Self { lines: BufReader::new(read), line: Vec::new(), dropping: false, owed: None, limits, writer }
    }

    /// The next whole line, without its end; `None` at the end of the input.
    async fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let available = self.lines.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let (piece, used) = match end {
                Some(end) => (available.get(..end).unwrap_or_default(), end + 1),
                None => (available, available.len()),
            };
            // MSTDIO-1.
            if !self.dropping && self.line.len().saturating_add(piece.len()) > self.limits.bytes_max {
                tracing::warn!(bytes_max = self.limits.bytes_max, "a line of the client is too long and was dropped");
                self.dropping = true;
                self.line = Vec::new();
            }
            if !self.dropping {
                self.line.extend_from_slice(piece);
            }
            self.lines.consume(used);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                if !std::mem::take(&mut self.dropping) {
                    return Ok(Some(line));
                }
            }
        }
    }

    /// The message of a line. `Err`: what is to be answered, if anything is.
    fn message(&self, line: &[u8]) -> Result<ClientJsonRpcMessage, Option<Box<UnreadableMessage>>> {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return Err(None);
        }
        let value = strict_message::read(line, &self.limits).map_err(|unreadable| {
            // What is no JSON at all may be anything, and answering it could go on for ever.
            serde_json::from_slice::<IgnoredAny>(line).is_ok().then_some(unreadable)
        })?;
        let id = value.get("id").cloned();
        serde_json::from_value(value).map_err(|error| {
            tracing::debug!(%error, "a line of the client is no message");
            // Nobody waits for the answer to a notification.
            let error = ErrorData::invalid_request("the line is no message of this protocol", None);
            id.map(|id| Box::new(UnreadableMessage { id, error }))
        })
    }
}

impl<R, W> Transport<RoleServer> for StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.writer.send(item)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if let Some(owed) = self.owed.clone() {
                self.writer.send(owed).await.ok()?;
                self.owed = None;
            }
            let line = match self.next_line().await {
                Ok(line) => line?,
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "the client cannot be read");
                    return None;
                }
            };
            match self.message(&line) {
                Ok(message) => return Some(message),
                Err(unreadable) => self.owed = unreadable.map(|unreadable| answer(*unreadable)),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.close().await
    }
}

fn answer(unreadable: UnreadableMessage) -> ServerJsonRpcMessage {
    let id = serde_json::from_value::<RequestId>(unreadable.id).ok();
    ServerJsonRpcMessage::error(unreadable.error, id)
}
