//! Sessions of older clients that go on at another instance: translating their ids, beginning them again, and ending them
//! everywhere.
//!
//! What moves is what an id says (`session_ids`). What an instance has of a session besides stays where it is: watched
//! resources, the level of log messages, events that a stream has not delivered, questions to the client that are open. A
//! client that loses those sees what it would see after its server was restarted.
//!
//! Invariants
//! - HANDON-1: a session that was ended (`DELETE`) is not begun again, as far as the shared state reaches: with one that is
//!   this instance's own, only this instance knows. If nobody can say, it is not begun again.
//! - HANDON-2: one beginning at a time, and each has a place (MSESS-2).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use ports::shared_state::ReplaceMode;
use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore, SessionStoreError};
use serde_json::{Value, json};

use super::McpVisit;
use super::front::{self, BATCHING, SESSION_ID};
use super::session_ids::{LIFETIME, SessionIdContent, SessionIds};
use super::sessions::SessionOwner;
use crate::door::Door;
use crate::problem::RefusalResponse;

/// How long a request waits for others to begin their sessions, and for its own to begin.
const BEGINNING_MAX: Duration = Duration::from_secs(10);

/// Gives what an id says to whoever begins the session again.
#[derive(Debug)]
pub(super) struct Known(Option<SessionState>);

#[async_trait]
impl SessionStore for Known {
    async fn load(&self, _: &str) -> Result<Option<SessionState>, SessionStoreError> {
        Ok(self.0.clone())
    }

    async fn store(&self, _: &str, _: &SessionState) -> Result<(), SessionStoreError> {
        Ok(())
    }

    async fn delete(&self, _: &str) -> Result<(), SessionStoreError> {
        Ok(())
    }
}

/// The name inside this instance of the session that a request speaks of. The session is there afterwards, or the request is
/// refused, or it is one that ends the session.
pub(super) async fn find(
    door: &Arc<Door>,
    parts: &mut Parts,
    text: String,
    visit: &McpVisit,
    owner: &SessionOwner,
) -> Result<String, RefusalResponse> {
    let sessions = &door.mcp().sessions;
    let opened = door.mcp().session_ids().filter(|_| SessionIds::is_one(&text));
    let Some(ids) = opened else {
        return if sessions.is_of(&text, owner) { Ok(text) } else { Err(front::no_session()) };
    };
    let carried = ids.open(&text, door.kernel().clock().now().0, owner).ok_or_else(front::no_session)?;
    let inside = HeaderValue::from_str(&carried.id).map_err(|_| front::no_session())?;
    let here = sessions.is_of(&carried.id, owner);
    match was_ended(door, &carried.id).await {
        Some(true) => {
            sessions.end(&carried.id).await;
            return Err(front::no_session());
        }
        // A session proves nothing, so one that is here may go on while nobody can say.
        None if !here => return Err(front::no_session()),
        Some(false) | None => {}
    }
    parts.headers.insert(SESSION_ID, inside);
    if parts.method == Method::DELETE {
        note_end(door, &carried.id).await;
    } else if !here {
        begin_again(door, parts, &carried, visit, owner).await?;
    }
    Ok(carried.id)
}

/// Gives a new session an id that other instances understand, if there can be others.
pub(super) fn outside_id(door: &Door, id: &str, params: &Value, owner: &SessionOwner) -> Option<HeaderValue> {
    let text = door.mcp().session_ids()?.close(id, door.kernel().clock().now().0, params, owner)?;
    HeaderValue::from_str(&text).ok()
}

/// Was it ended, here or elsewhere? `None`: nobody can say.
async fn was_ended(door: &Door, id: &str) -> Option<bool> {
    match door.shared_state() {
        Some(shared) => shared.get(&ended_key(id)).await.ok().map(|found| found.is_some()),
        None => Some(false),
    }
}

async fn note_end(door: &Door, id: &str) {
    let Some(shared) = door.shared_state() else { return };
    if let Err(error) = shared.put(&ended_key(id), b"1", LIFETIME, ReplaceMode::Always).await {
        tracing::warn!(%error, "the end of an MCP session could not be told to other instances");
    }
}

fn ended_key(id: &str) -> String {
    format!("mcp_ended:{id}")
}

/// HANDON-2. A `ping` in the client's name makes `rmcp` begin the session; the request itself then finds it.
async fn begin_again(
    door: &Arc<Door>,
    parts: &Parts,
    carried: &SessionIdContent,
    visit: &McpVisit,
    owner: &SessionOwner,
) -> Result<(), RefusalResponse> {
    let sessions = &door.mcp().sessions;
    let beginning = async {
        let _turn = sessions.turn().await;
        if sessions.is_of(&carried.id, owner) {
            return Ok(());
        }
        let place = sessions.place(visit.caller.caller()).map_err(|why| front::no_place(why, "have a session"))?;
        let params = serde_json::from_value(carried.params.clone()).map_err(|_| front::no_session())?;
        let mut visit = visit.clone();
        visit.as_task = false;
        let _first = visit.seen.set(door.mcp().listing(door.kernel(), &visit).fingerprint);
        let known = Arc::new(Known(Some(SessionState::new(params))));
        let service = front::service_knowing(door, &visit, known);
        let ping = json!({ "jsonrpc": "2.0", "id": "begin-again", "method": "ping" }).to_string();
        let request = front::without_token(posting(parts, carried), visit, Bytes::from(ping));
        let response = service.handle(request).await.map(Body::new);
        if response.status() != StatusCode::OK {
            sessions.end(&carried.id).await;
            return Err(front::no_session());
        }
        let batches = carried.params.get("protocolVersion").and_then(Value::as_str) == Some(BATCHING);
        sessions.belongs(&carried.id, owner.clone(), place, batches).await;
        Ok(())
    };
    tokio::time::timeout(BEGINNING_MAX, beginning).await.unwrap_or_else(|_| Err(front::no_session()))
}

/// The head of a request like this one that posts a message.
fn posting(parts: &Parts, carried: &SessionIdContent) -> Parts {
    let mut request = http::Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = parts.uri.clone();
    let headers = request.headers_mut();
    headers.insert(http::header::ACCEPT, HeaderValue::from_static(front::BOTH));
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for name in [http::header::HOST, front::PROTOCOL_VERSION] {
        if let Some(value) = parts.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    if let Ok(id) = HeaderValue::from_str(&carried.id) {
        headers.insert(SESSION_ID, id);
    }
    request.into_parts().0
}
