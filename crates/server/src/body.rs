//! Request bodies: bounded in size and time, read once. All are JSON, except that the token endpoint of OAuth takes forms.
//!
//! The order is chosen so that strangers cost little: whoever is not recognised has nothing read; a length beyond the limit is
//! refused before the first byte.
//!
//! Not here: the JSON grammar and its limits (`contract::json`), what members mean (`members`).

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use contract::error::{ErrorCode, Refusal};
use contract::json;
use futures_util::FutureExt as _;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::connections::OwnConnection;
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};
use crate::members::typed;
use crate::problem::RefusalResponse;

/// A body that has been read.
#[derive(Debug)]
pub(crate) struct JsonBody {
    pub(crate) value: Value,
    /// The text it came from, for better error messages.
    text: Bytes,
    limits: json::JsonLimits,
}

impl JsonBody {
    /// What it says, as a request of this type.
    pub(crate) fn typed<T: DeserializeOwned>(mut self) -> Result<T, Refusal> {
        let value = self.value.take();
        typed(value, "", || self.again())
    }

    /// The value once more, after the first was used up.
    pub(crate) fn again(&self) -> Value {
        json::read(&self.text, &self.limits).unwrap_or(Value::Null)
    }
}

impl IncomingRequest {
    /// The body as JSON; `None` if it is empty.
    pub(crate) async fn json_if_any(
        &mut self,
        door: &Door,
        who: &CallerCredential,
    ) -> Result<Option<JsonBody>, RefusalResponse> {
        let text = self.json_text(door, who).await?;
        if text.is_empty() {
            return Ok(None);
        }
        let limits = door.json_limits();
        let value = json::read(&text, &limits).map_err(|error| not_json(&error))?;
        Ok(Some(JsonBody { value, text, limits }))
    }

    /// The text of a body that is announced as JSON. Nobody's body is read: whoever has not been recognised yet is now.
    pub(crate) async fn json_text(&mut self, door: &Door, who: &CallerCredential) -> Result<Bytes, RefusalResponse> {
        if !self.is_recognised() {
            self.recognise(door, who).await?;
        }
        if self.body.size_hint().exact() != Some(0) {
            json_is_announced(&self.parts.headers)?;
        }
        let text = self.bytes(door, door.config().body_bytes_max).await?;
        // Only now: whoever sends slowly must hold nothing that others wait for (REQ-2).
        if self.waits_for_place() {
            // Boxed, so that calls, which need none, do not carry the room.
            Box::pin(self.take_place(door, who)).await?;
        }
        Ok(text)
    }

    /// The body as it came, within limits of size and time.
    pub(crate) async fn bytes(&mut self, door: &Door, bytes_max: usize) -> Result<Bytes, RefusalResponse> {
        not_encoded(&self.parts.headers)?;
        let announced = self.body.size_hint();
        if usize::try_from(announced.lower()).map_or(true, |bytes| bytes > bytes_max) {
            return Err(too_large(bytes_max).and_hang_up());
        }
        let mut reading = std::pin::pin!(read(&mut self.body, announced.exact(), bytes_max));
        // Most bodies are there already.
        if let Some(whole) = reading.as_mut().now_or_never() {
            return whole;
        }
        let _awaited = self.connection.as_ref().map(OwnConnection::awaits_body);
        tokio::time::timeout(door.config().body_read_timeout(), reading)
            .await
            .map_err(|_| too_slow(door).and_hang_up())?
    }

    /// The body as JSON.
    pub(crate) async fn json(&mut self, door: &Door, who: &CallerCredential) -> Result<JsonBody, RefusalResponse> {
        let body = self.json_if_any(door, who).await?;
        body.ok_or_else(|| not_json(&json::JsonError::Empty))
    }
}

async fn read(body: &mut Body, announced: Option<u64>, bytes_max: usize) -> Result<Bytes, RefusalResponse> {
    let Some(first) = next_data(body).await? else { return Ok(Bytes::new()) };
    if first.len() > bytes_max {
        return Err(too_large(bytes_max).and_hang_up());
    }
    // Most bodies come in one piece and are not copied.
    if body.is_end_stream() {
        return Ok(first);
    }
    let room = announced.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(first.len()).min(bytes_max);
    let mut whole = BytesMut::with_capacity(room);
    whole.extend_from_slice(&first);
    while let Some(piece) = next_data(body).await? {
        if whole.len().saturating_add(piece.len()) > bytes_max {
            return Err(too_large(bytes_max).and_hang_up());
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// The next piece of data; trailers are of no interest.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, RefusalResponse> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(broken_off)?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Is the body a form, as browsers and clients of OAuth send it? Otherwise it must be JSON.
pub(crate) fn is_form(headers: &HeaderMap) -> Result<bool, RefusalResponse> {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Ok(true);
    }
    json_is_announced(headers).map(|()| false)
}

/// Bodies are read as they are: one that is compressed would be refused for what it is not.
fn not_encoded(headers: &HeaderMap) -> Result<(), RefusalResponse> {
    let codings = headers.get_all(CONTENT_ENCODING).iter().map(|value| value.to_str().unwrap_or("?"));
    let mut codings = codings.flat_map(|value| value.split(',')).map(str::trim);
    let Some(coding) = codings.find(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity")) else {
        return Ok(());
    };
    let shown: String = coding.chars().take(80).collect();
    let refusal =
        Refusal::new(ErrorCode::E3006, format!("bodies with the content-encoding `{shown}` are not understood"))
            .hint("send the body as it is, without `content-encoding`");
    Err(RefusalResponse::from(refusal).and_hang_up())
}

/// `application/json` or `…+json`; the only charset is UTF-8.
fn json_is_announced(headers: &HeaderMap) -> Result<(), RefusalResponse> {
    let given = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    if given.is_some_and(is_json) {
        return Ok(());
    }
    let message = match given {
        None => "the request has no content-type".to_owned(),
        Some(other) => format!("bodies of type `{}` are not understood", other.chars().take(80).collect::<String>()),
    };
    Err(RefusalResponse::from(Refusal::new(ErrorCode::E3006, message)).and_hang_up())
}

fn is_json(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default().to_ascii_lowercase();
    let json = media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"));
    json && parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
            value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    })
}

pub(crate) fn not_json(error: &json::JsonError) -> RefusalResponse {
    let refusal = Refusal::new(ErrorCode::E3004, format!("the body is not acceptable: {error}"));
    match error.position() {
        Some(at) => refusal.details(json!({ "line": at.line, "column": at.column })),
        None => refusal,
    }
    .into()
}

fn too_large(bytes_max: usize) -> RefusalResponse {
    Refusal::new(ErrorCode::E3005, format!("the body is larger than {bytes_max} bytes"))
        .details(json!({ "bytes_max": bytes_max }))
        .into()
}

fn too_slow(door: &Door) -> RefusalResponse {
    let within = door.config().body_read_timeout_ms;
    Refusal::new(ErrorCode::E3009, format!("the body did not arrive within {within} ms")).into()
}

fn broken_off(error: axum::Error) -> RefusalResponse {
    let refusal = Refusal::new(ErrorCode::E3004, "the body broke off or its framing is wrong")
        .hint("send the whole body")
        .caused_by(error);
    RefusalResponse::from(refusal).and_hang_up()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognised_by_its_media_type() {
        for (content_type, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json;charset=\"utf-8\"", true),
            ("application/merge-patch+json", true),
            ("application/json; charset=latin1", false),
            ("text/json", false),
            ("text/plain", false),
            ("application/jsonp", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            assert_eq!(is_json(content_type), expected, "{content_type}");
        }
    }
}
