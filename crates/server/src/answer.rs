//! A good answer on its way out. What goes wrong is a `RefusalResponse` and is rendered by `problem`.

use axum::body::Body;
use bytes::Bytes;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TraceId;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::problem::RefusalResponse;

/// What a handler gives back.
pub(crate) type Handled = Result<HttpAnswer, RefusalResponse>;

/// The header that carries the trace id out.
const X_TRACE_ID: HeaderName = HeaderName::from_static("x-trace-id");

/// A status, a body, and sometimes more headers.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    status: StatusCode,
    content_type: HeaderValue,
    body: Body,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl HttpAnswer {
    /// 200 with a JSON body.
    pub(crate) fn json(value: &impl Serialize) -> Handled {
        Self::json_with(StatusCode::OK, value)
    }

    /// JSON under another status.
    pub(crate) fn json_with(status: StatusCode, value: &impl Serialize) -> Handled {
        let body = serde_json::to_vec(value).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "an answer could not be written as JSON");
            Refusal::new(ErrorCode::E3000, "the answer could not be written").caused_by(error)
        })?;
        Ok(Self::of(status, HeaderValue::from_static("application/json"), Body::from(body)))
    }

    /// 200 with a body of any type.
    pub(crate) fn plain(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self::of(StatusCode::OK, HeaderValue::from_static(content_type), Body::from(body.into()))
    }

    /// 200 with a body that goes on.
    pub(crate) fn stream(content_type: &'static str, body: Body) -> Self {
        Self::of(StatusCode::OK, HeaderValue::from_static(content_type), body)
    }

    /// 204, without a body.
    pub(crate) fn nothing() -> Self {
        Self::of(StatusCode::NO_CONTENT, HeaderValue::from_static("application/json"), Body::empty())
    }

    /// Another place to look.
    pub(crate) fn see_other(place: &'static str) -> Self {
        Self::of(StatusCode::SEE_OTHER, HeaderValue::from_static("text/plain"), Body::empty())
            .header(http::header::LOCATION, HeaderValue::from_static(place))
    }

    /// With one more header.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    fn of(status: StatusCode, content_type: HeaderValue, body: Body) -> Self {
        Self { status, content_type, body, headers: Vec::new() }
    }

    /// The response for the wire.
    pub(crate) fn into_response(self, trace_id: TraceId) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if self.status != StatusCode::NO_CONTENT {
            headers.insert(CONTENT_TYPE, self.content_type);
        }
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        dress(headers, trace_id);
        response
    }
}

/// The headers that every answer has, good or bad.
pub(crate) fn dress(headers: &mut http::HeaderMap, trace_id: TraceId) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Answers depend on the token, and some are secrets; a page that may be kept has said so already.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(trace_id.to_string())) {
        headers.insert(X_TRACE_ID, value);
    }
}
