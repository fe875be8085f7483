//! The one rendering of every refusal: RFC 9457 problem details that carry the error envelope (DESIGN §3, ERR-002).
//!
//! Status, title and retryability come from the error table. The only status that differs from it is that of E3703: 499
//! is not a registered status, so REST answers 409 and keeps the code (ERR-003).
//!
//! Not here: what the refusal says (whoever refused), the other doors' renderings.

use axum::body::Body;
use contract::envelope::{ErrorResponse, InvocationStatus};
use contract::error::{ErrorCode, ErrorKind, Refusal};
use contract::ids::{InvocationId, TraceId};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use kernel::Failed;

use crate::answer::dress;

/// Where the page about a code is.
const PAGES: &str = "https://gantry.dev/errors/";

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct Refused(Box<Parts>);

#[derive(Debug)]
struct Parts {
    refusal: Refusal,
    status: InvocationStatus,
    invocation_id: Option<InvocationId>,
    /// The connection cannot be used any more, because part of the request was left unread.
    hang_up: bool,
}

/// What the rendering must know about the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) trace_id: TraceId,
    /// Was there an `Authorization` header? RFC 6750 wants no `error` in the challenge otherwise.
    pub(crate) showed_credential: bool,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.code.row().kind {
            ErrorKind::AuthorizationDenied | ErrorKind::ApprovalRequired => InvocationStatus::PermissionDenied,
            _ => InvocationStatus::Error,
        };
        Self(Box::new(Parts { refusal, status, invocation_id: None, hang_up: false }))
    }
}

impl From<Box<Failed>> for Refused {
    fn from(failed: Box<Failed>) -> Self {
        let Failed { refusal, status, invocation_id, trace_id: _ } = *failed;
        Self(Box::new(Parts { refusal, status, invocation_id: Some(invocation_id), hang_up: false }))
    }
}

impl Refused {
    /// For a failure of ours whose cause strangers must not see; it has been logged.
    pub(crate) fn internal() -> Self {
        Refusal::new(ErrorCode::E3000, "something went wrong inside the server").into()
    }

    /// The connection is closed after this answer.
    pub(crate) fn and_hang_up(mut self) -> Self {
        self.0.hang_up = true;
        self
    }

    /// The body of the answer.
    pub(crate) fn body(&self, trace_id: TraceId) -> ErrorResponse {
        let Parts { refusal, status, invocation_id, .. } = &*self.0;
        ErrorResponse {
            r#type: format!("{PAGES}{}", refusal.code),
            title: refusal.code.row().meaning,
            detail: refusal.message.clone(),
            error: refusal.envelope(trace_id, *invocation_id),
            invocation_id: *invocation_id,
            status: *status,
        }
    }

    /// The response for the wire.
    pub(crate) fn into_response(self, asked: Asked) -> Response<Body> {
        let code = self.0.refusal.code;
        tracing::debug!(%code, trace_id = %asked.trace_id, "refused");
        let body = serde_json::to_vec(&self.body(asked.trace_id)).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = http_status(code);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        dress(headers, asked.trace_id);
        if let Some(pause_ms) = self.0.refusal.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(pause_ms.div_ceil(1000)));
        }
        if let Some(challenge) = challenge(code, asked.showed_credential) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if self.0.hang_up {
            headers.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The HTTP status of a code on this door.
pub(crate) fn http_status(code: ErrorCode) -> StatusCode {
    match code.http() {
        499 => StatusCode::CONFLICT,
        status => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// RFC 6750 §3.
fn challenge(code: ErrorCode, showed_credential: bool) -> Option<HeaderValue> {
    let text = match code {
        ErrorCode::E3201 | ErrorCode::E3202 | ErrorCode::E3203 if !showed_credential => "Bearer realm=\"gantry\"",
        ErrorCode::E3201 => {
            "Bearer realm=\"gantry\", error=\"invalid_token\", error_description=\"the token has expired\""
        }
        ErrorCode::E3202 => {
            "Bearer realm=\"gantry\", error=\"invalid_token\", error_description=\"the signature is not valid\""
        }
        ErrorCode::E3203 => {
            "Bearer realm=\"gantry\", error=\"invalid_token\", error_description=\"the token is malformed\""
        }
        _ => return None,
    };
    Some(HeaderValue::from_static(text))
}

/// The refusal of a path that leads nowhere.
pub(crate) fn no_such_endpoint(path: &str) -> Refused {
    let shown: String = path.chars().filter(|c| !c.is_control()).take(80).collect();
    Refusal::new(ErrorCode::E3008, format!("there is nothing at `{shown}`")).into()
}

/// The refusal of a method that a path does not know; the router adds the `allow` header.
pub(crate) fn method_not_allowed(method: &http::Method, path: &str) -> Refused {
    let shown: String = path.chars().filter(|c| !c.is_control()).take(80).collect();
    let word: String = method.as_str().chars().take(20).collect();
    Refusal::new(ErrorCode::E3007, format!("`{shown}` does not know the method `{word}`"))
        .hint(format!("use a method of the `{ALLOW}` header; /openapi.json lists them all"))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_answered_with_its_status_except_499() {
        for code in ErrorCode::ALL {
            let expected = if *code == ErrorCode::E3703 { 409 } else { code.http() };
            assert_eq!(http_status(*code).as_u16(), expected, "{code}");
        }
    }

    #[test]
    fn the_challenge_names_an_error_only_to_those_who_showed_a_token() {
        assert_eq!(challenge(ErrorCode::E3203, false).unwrap(), "Bearer realm=\"gantry\"");
        assert!(challenge(ErrorCode::E3201, true).unwrap().to_str().unwrap().contains("error=\"invalid_token\""));
        assert_eq!(challenge(ErrorCode::E3004, true), None);
        let unauthorised = ErrorCode::ALL.iter().filter(|code| code.http() == 401 && code.row().capability.is_built());
        for code in unauthorised {
            assert!(challenge(*code, true).is_some(), "{code}");
        }
    }
}
