//! MCP over standard input and output: one client, which has started us, and the token we were given for it.
//!
//! The messages are the same and go the same way; there is no front, because there is no network.

use std::net::IpAddr;
use std::sync::Arc;

use rmcp::service::{QuitReason, serve_server_with_ct};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::handler::{From, McpHandler};
use super::stdio_transport::StdioTransport;
use crate::door::Door;
use crate::incoming_request::CallerCredential;

/// Why a client could not be served.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// It did not begin as clients begin.
    #[error("the client did not begin a conversation: {0}")]
    NotBegun(String),
    /// The service broke off.
    #[error("the conversation broke off: {0}")]
    BrokenOff(String),
}

/// Serves one client until it closes its side or `ended` is cancelled. Calls that still run a moment later are cancelled; all
/// are recorded when this returns.
pub async fn serve_stdio<R, W>(
    door: Arc<Door>,
    token: &str,
    toolset: Option<&str>,
    streams: (R, W),
    ended: CancellationToken,
) -> Result<(), StdioError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let trace_id = ports::entropy::new_trace_id(door.kernel().entropy());
    let who = CallerCredential::of_token(token, None::<IpAddr>, trace_id);
    let handler = McpHandler::new(Arc::clone(&door), From::Stdio { who, toolset: toolset.map(Arc::from) });
    let transport = StdioTransport::new(streams.0, streams.1, door.json_limits());
    let service = match serve_server_with_ct(handler, transport, ended).await {
        Ok(service) => service,
        Err(
            rmcp::service::ServerInitializeError::ConnectionClosed(_) | rmcp::service::ServerInitializeError::Cancelled,
        ) => {
            return Ok(());
        }
        Err(error) => return Err(StdioError::NotBegun(error.to_string())),
    };
    let quit = service.waiting().await;
    door.mcp().end();
    door.orphans().wait().await;
    match quit {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(StdioError::BrokenOff(error.to_string())),
        Ok(_) => Ok(()),
    }
}
