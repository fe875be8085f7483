//! The one rendering of every refusal: RFC 9457 problem details that carry the error envelope (DESIGN §3, ERR-002).
//!
//! Status, title and retryability come from the error table. The only status that differs from it is that of E3703: 499
//! is not a registered status, so REST answers 409 and keeps the code (ERR-003).
//!
//! Clients of OAuth wait for another form at the token endpoint (RFC 6749 §5.2); it is made here too, from the same refusal.
//!
//! Not here: what the refusal says (whoever refused), the other doors' renderings.

use axum::body::Body;
use contract::envelope::{ErrorResponse, ExecutionMetadata, InvocationStatus};
use contract::error::{ErrorCode, ErrorKind, Refusal};
use contract::ids::{InvocationId, TraceId};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use kernel::FailedCall;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::dress;
use crate::base_url::BaseUrl;

/// Where the page about a code is.
const PAGES: &str = "https://gantry.dev/errors/";
/// Where clients learn how to get a token (RFC 9728).
pub(crate) const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct RefusalResponse(Box<Parts>);

#[derive(Debug)]
struct Parts {
    refusal: Refusal,
    status: InvocationStatus,
    invocation_id: Option<InvocationId>,
    /// Times and usage of a call that failed.
    execution_metadata: Option<Box<ExecutionMetadata>>,
    checkpoint_ref: Option<String>,
    /// What the failed tool wrote, for a caller who may see it.
    output: Option<String>,
    /// The connection cannot be used any more, because part of the request was left unread.
    hang_up: bool,
    /// The word of RFC 6749 §5.2, where a client of OAuth waits for the answer.
    oauth: Option<&'static str>,
}

/// What the rendering must know about the request.
#[derive(Debug, Clone)]
pub(crate) struct RequestFacts {
    pub(crate) trace_id: TraceId,
    /// Was there an `Authorization` header? RFC 6750 wants no `error` in the challenge otherwise.
    pub(crate) showed_credential: bool,
    /// Where the caller has found this server.
    pub(crate) base: BaseUrl,
    /// Does the request have a body that a connection is closed over, if it is not read?
    pub(crate) has_body: bool,
    /// The path of the resource, where it has metadata of its own (RFC 9728 §3.1); else empty.
    pub(crate) resource: String,
}

/// A refusal in the form that clients of OAuth understand (RFC 6749 §5.2), with our code beside it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OauthError {
    /// `invalid_request`, `invalid_grant`, `invalid_scope`, `invalid_target`, `unsupported_grant_type`, `server_error` or
    /// `temporarily_unavailable`.
    error: &'static str,
    error_description: String,
    code: ErrorCode,
    #[schemars(with = "String")]
    trace_id: TraceId,
}

impl From<Refusal> for RefusalResponse {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.code.row().kind {
            ErrorKind::AuthorizationDenied | ErrorKind::ApprovalRequired => InvocationStatus::PermissionDenied,
            _ => InvocationStatus::Error,
        };
        Self(Box::new(Parts {
            refusal,
            status,
            invocation_id: None,
            execution_metadata: None,
            checkpoint_ref: None,
            output: None,
            hang_up: false,
            oauth: None,
        }))
    }
}

impl From<Box<FailedCall>> for RefusalResponse {
    fn from(failed: Box<FailedCall>) -> Self {
        let FailedCall { refusal, status, invocation_id, execution_metadata, checkpoint_ref, output, .. } = *failed;
        Self(Box::new(Parts {
            refusal,
            status,
            invocation_id: Some(invocation_id),
            execution_metadata,
            checkpoint_ref,
            output,
            hang_up: false,
            oauth: None,
        }))
    }
}

impl RefusalResponse {
    /// For a failure of ours whose cause strangers must not see; it has been logged.
    pub(crate) fn internal() -> Self {
        Refusal::new(ErrorCode::E3000, "something went wrong inside the server").into()
    }

    /// The connection is closed after this answer.
    pub(crate) fn and_hang_up(mut self) -> Self {
        self.0.hang_up = true;
        self
    }

    /// Told in the form of OAuth, under this word of RFC 6749 §5.2. The word that was given first stays.
    pub(crate) fn in_oauth(mut self, error: impl FnOnce(&Refusal) -> &'static str) -> Self {
        let Parts { refusal, oauth, .. } = &mut *self.0;
        oauth.get_or_insert_with(|| error(refusal));
        self
    }

    /// The row of the error table that it is of.
    pub(crate) fn code(&self) -> ErrorCode {
        self.0.refusal.code
    }

    /// The body of the answer.
    pub(crate) fn body(&self, trace_id: TraceId) -> ErrorResponse {
        let Parts { refusal, status, invocation_id, execution_metadata, checkpoint_ref, output, .. } = &*self.0;
        ErrorResponse {
            r#type: format!("{PAGES}{}", refusal.code),
            title: refusal.code.row().meaning,
            detail: refusal.message.clone(),
            error: refusal.envelope(trace_id, *invocation_id),
            invocation_id: *invocation_id,
            status: *status,
            execution_metadata: execution_metadata.as_deref().cloned(),
            checkpoint_ref: checkpoint_ref.clone(),
            output: output.clone(),
        }
    }

    /// The response for the wire.
    pub(crate) fn into_response(self, asked: &RequestFacts) -> Response<Body> {
        let code = self.0.refusal.code;
        // Only what is behind it: the words of the refusal itself may be a tool's, or quote what the caller sent; so may those of a
        // refusal that stands behind it.
        let behind = std::error::Error::source(&self.0.refusal).filter(|error| !error.is::<Refusal>());
        tracing::debug!(%code, trace_id = %asked.trace_id, behind, "refused");
        let (media, body) = match self.0.oauth {
            None => ("application/problem+json", serde_json::to_vec(&self.body(asked.trace_id))),
            Some(error) => ("application/json", serde_json::to_vec(&self.oauth_body(error, asked.trace_id))),
        };
        let mut response = Response::new(Body::from(body.unwrap_or_default()));
        let status = http_status(code);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        dress(headers, asked.trace_id);
        if let Some(pause_ms) = self.0.refusal.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(pause_ms.div_ceil(1000)));
        }
        let showed_credential = asked.showed_credential || self.0.oauth.is_some();
        if let Some(challenge) = challenge(code, showed_credential, &asked.base, &asked.resource) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        // Who asks is judged before the body has come; what is left of it ends the connection, so that is said.
        if self.0.hang_up || (asked.has_body && status == StatusCode::UNAUTHORIZED) {
            headers.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl RefusalResponse {
    fn oauth_body(&self, error: &'static str, trace_id: TraceId) -> OauthError {
        let refusal = &self.0.refusal;
        let said = format!("{}: {}", refusal.message, refusal.resolution());
        // RFC 6749 has no other characters in a description.
        let error_description = said
            .chars()
            .map(|c| match c {
                '"' => '\'',
                '\\' => '/',
                ' '..='~' => c,
                _ => '.',
            })
            .collect();
        OauthError { error, error_description, code: refusal.code, trace_id }
    }
}

/// The HTTP status of a code on this door.
pub(crate) fn http_status(code: ErrorCode) -> StatusCode {
    match code.http() {
        499 => StatusCode::CONFLICT,
        status => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// RFC 6750 §3, with the way to the metadata of RFC 9728 §5.1.
fn challenge(code: ErrorCode, showed_credential: bool, base: &BaseUrl, resource: &str) -> Option<HeaderValue> {
    let why = match code {
        ErrorCode::E3201 => "the token has expired or was revoked",
        ErrorCode::E3202 => "the signature is not valid",
        ErrorCode::E3203 => "the token is malformed",
        _ => return None,
    };
    let mut text = String::from("Bearer realm=\"gantry\"");
    if showed_credential {
        text += &format!(", error=\"invalid_token\", error_description=\"{why}\"");
    }
    if let Some(base) = base.text() {
        text += &format!(", resource_metadata=\"{base}{RESOURCE_METADATA}{resource}\"");
    }
    HeaderValue::try_from(text).ok()
}

/// The refusal of a request that came by a name or from a page that is not known here.
pub(crate) fn wrong_way(header: &str, key: &str) -> RefusalResponse {
    Refusal::new(ErrorCode::E3206, format!("requests with this `{header}` header are not answered here"))
        .hint(format!("call the server by its own name, or ask the operator to add it to `{key}`"))
        .into()
}

/// The refusal of a path that leads nowhere.
pub(crate) fn no_such_endpoint(path: &str) -> RefusalResponse {
    let shown: String = path.chars().filter(|c| !c.is_control()).take(80).collect();
    Refusal::new(ErrorCode::E3008, format!("there is nothing at `{shown}`")).into()
}

/// The refusal of a method that a path does not know; the router adds the `allow` header.
pub(crate) fn method_not_allowed(method: &http::Method, path: &str) -> RefusalResponse {
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
        let mut headers = http::HeaderMap::new();
        let nowhere = BaseUrl::of(&headers);
        headers.insert(http::header::HOST, HeaderValue::from_static("g:1"));
        let somewhere = BaseUrl::of(&headers);
        assert_eq!(challenge(ErrorCode::E3203, false, &nowhere, "").unwrap(), "Bearer realm=\"gantry\"");
        assert_eq!(
            challenge(ErrorCode::E3203, false, &somewhere, "").unwrap(),
            "Bearer realm=\"gantry\", resource_metadata=\"http://g:1/.well-known/oauth-protected-resource\""
        );
        let expired = challenge(ErrorCode::E3201, true, &nowhere, "").unwrap();
        assert!(expired.to_str().unwrap().contains("error=\"invalid_token\""));
        assert_eq!(challenge(ErrorCode::E3004, true, &nowhere, ""), None);
        let unauthorised =
            ErrorCode::ALL.iter().filter(|code| code.http() == 401 && code.row().capability.is_answered());
        // E3603 is about credentials of this server's own, at another: no token of the caller's helps.
        for code in unauthorised.filter(|code| **code != ErrorCode::E3603) {
            assert!(challenge(*code, true, &nowhere, "").is_some(), "{code}");
        }
    }
}
