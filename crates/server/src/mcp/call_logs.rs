//! Log messages of a call on the stream of that call, for clients that have sessions.
//!
//! Of the notifications of a session `rmcp` sends progress alone on the stream of the request that it is about, which it knows by
//! the progress token; all others go out on the stream of the session, which a client need not have open. So a log message of a call
//! passes the mechanics of the session as progress of its call, and is itself again at the session's edge. A request without a
//! progress token is given one there, of which its client hears nothing.
//!
//! Not here: which log messages a client hears (`rounds`), connections without sessions, which have one stream for everything.

#![expect(deprecated, reason = "newer revisions have no logging, but older clients ask for it and may have it")]

use std::sync::Arc;

use rmcp::model::{
    ClientJsonRpcMessage, Extensions, GetExtensions as _, GetMeta as _, LoggingMessageNotification,
    LoggingMessageNotificationParam, NumberOrString, ProgressNotification, ProgressNotificationParam, ProgressToken,
    ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;

/// The stream of a request within a session.
#[derive(Debug, Clone)]
struct RequestStream {
    /// By which the session knows it.
    token: ProgressToken,
    /// Did the client give it?
    is_clients: bool,
}

/// The log message within what passes as progress.
#[derive(Debug, Clone)]
struct Carried(LoggingMessageNotificationParam);

/// A message of a client on its way into its session.
pub(super) fn taken(mut message: ClientJsonRpcMessage) -> ClientJsonRpcMessage {
    if let ClientJsonRpcMessage::Request(request) = &mut message {
        let named = request.request.get_meta().get_progress_token();
        let is_clients = named.is_some();
        // No two requests of a session that run have one id.
        let token =
            named.unwrap_or_else(|| ProgressToken(NumberOrString::String(format!("gantry:{}", request.id).into())));
        if !is_clients {
            request.request.get_meta_mut().set_progress_token(token.clone());
        }
        request.request.extensions_mut().insert(RequestStream { token, is_clients });
    }
    message
}

/// A message out of a session, as its client is to see it.
pub(super) fn given(mut sent: ServerSseMessage) -> ServerSseMessage {
    if let Some(ServerJsonRpcMessage::Notification(message)) = sent.message.as_deref()
        && let ServerNotification::ProgressNotification(progress) = &message.notification
        && let Some(Carried(note)) = progress.extensions.get()
    {
        let note = ServerNotification::LoggingMessageNotification(LoggingMessageNotification::new(note.clone()));
        sent.message = Some(Arc::new(ServerJsonRpcMessage::notification(note)));
    }
    sent
}

/// Is the progress token of a request one that its client did not give?
pub(super) fn is_unasked(request: &Extensions) -> bool {
    request.get::<RequestStream>().is_some_and(|stream| !stream.is_clients)
}

/// A log message for the stream of a request; without a session, for the one stream there is.
pub(super) fn on_its_stream(request: &Extensions, note: LoggingMessageNotificationParam) -> ServerNotification {
    let Some(RequestStream { token, .. }) = request.get() else {
        return ServerNotification::LoggingMessageNotification(LoggingMessageNotification::new(note));
    };
    let mut progress = ProgressNotification::new(ProgressNotificationParam::new(token.clone(), 0.0));
    progress.extensions.insert(Carried(note));
    ServerNotification::ProgressNotification(progress)
}

#[cfg(test)]
mod tests {
    use rmcp::model::LoggingLevel;
    use serde_json::{Value, json};

    use super::*;

    fn call(meta: &Value) -> ClientJsonRpcMessage {
        let params = json!({ "name": "x", "_meta": meta });
        serde_json::from_value(json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params })).unwrap()
    }

    /// What a client sees of a log message about this request.
    fn seen(message: ClientJsonRpcMessage) -> (Value, Value) {
        let ClientJsonRpcMessage::Request(request) = message else { panic!("no request") };
        let note = LoggingMessageNotificationParam::new(LoggingLevel::Alert, json!(7));
        let sent = ServerJsonRpcMessage::notification(on_its_stream(request.request.extensions(), note));
        let seen = given(ServerSseMessage::new("1", sent.clone()));
        (serde_json::to_value(sent).unwrap(), serde_json::to_value(&*seen.message.unwrap()).unwrap())
    }

    #[test]
    fn a_log_message_passes_the_session_under_the_token_of_its_call_and_is_itself_for_the_client() {
        for (meta, token, is_unasked_for) in
            [(json!({}), json!("gantry:7"), true), (json!({ "progressToken": "mine" }), json!("mine"), false)]
        {
            let taken = taken(call(&meta));
            if let ClientJsonRpcMessage::Request(request) = &taken {
                assert_eq!(is_unasked(request.request.extensions()), is_unasked_for);
            }
            let (within, outside) = seen(taken);
            assert_eq!(within["params"]["progressToken"], token, "{within}");
            let told = json!({ "jsonrpc": "2.0", "method": "notifications/message",
                "params": { "level": "alert", "data": 7 } });
            assert_eq!(outside, told);
        }
        let (without_session, seen) = seen(call(&json!({})));
        assert_eq!((&without_session["method"], &without_session), (&json!("notifications/message"), &seen));
    }
}
