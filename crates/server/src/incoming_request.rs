//! A request as handlers see it: who asks, from where, what for, in which trace.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams};
use contract::error::{ErrorCode, Refusal};
use contract::ids::TraceId;
use contract::trace_context::TraceContext;
use fair_places::FairPermit;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Version};
use kernel::Principal;
use policy::BearerSecret;
use ports::actor::Actor;
use ports::entropy::new_trace_id;

use crate::base_url::BaseUrl;
use crate::connections::OwnConnection;
use crate::door::Door;
use crate::problem::{RefusalResponse, RequestFacts};
use crate::query::QueryParameters;
use crate::requests::RequestPermit;

/// The one scheme that is understood; its case does not matter (RFC 9110 §11.1).
const SCHEME: &str = "bearer ";
/// How long a caller should wait whose tenant has its share of the connections.
const SHARE_RETRY_AFTER_MS: u64 = 1000;
/// The part of an IPv6 address that says whose it is.
const SUBSCRIBER_MASK: u128 = !0 << 64;

/// A request whose headers have been read.
#[derive(Debug)]
pub(crate) struct IncomingRequest {
    pub(crate) parts: Parts,
    pub(crate) body: Body,
    pub(crate) trace_id: TraceId,
    trace: TraceContext,
    source: Option<IpAddr>,
    /// Whoever asks, once recognised.
    caller: Option<Arc<Principal>>,
    /// None in tests that need no socket.
    pub(crate) connection: Option<OwnConnection>,
    /// Where the place of a request that is no call is put; `None`: it needs none (REQ-3).
    seat: Option<RequestPermit>,
}

/// The other end of a connection, left in each of its requests by the accept loop: the address for which it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerAddress(IpAddr);

/// What the caller shows to prove itself. Owns a share of it, so that it can travel with the work.
#[derive(Clone)]
pub(crate) struct CallerCredential {
    shown: Shown,
    source: Option<IpAddr>,
    pub(crate) trace_id: TraceId,
    /// The same trace, with what the caller has told of it.
    trace: TraceContext,
    /// The place of its request, if it has one: held for as long as the work goes on that was given this.
    _seat: Option<RequestPermit>,
}

#[derive(Clone)]
enum Shown {
    Nothing,
    /// The `authorization` header.
    Header(HeaderValue),
    /// A token that came in a body.
    Token(Arc<str>),
}

impl PeerAddress {
    /// The address.
    pub(crate) fn address(self) -> IpAddr {
        self.0
    }

    /// An IPv4 address that came in an IPv6 coat is still that address. Of an IPv6 address only the network counts: whoever
    /// has one address has 2^64 of them, and would be somebody else with each.
    pub(crate) fn of(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() & SUBSCRIBER_MASK).into()),
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

impl std::fmt::Debug for CallerCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({})", if matches!(self.shown, Shown::Nothing) { "none" } else { "…" })
    }
}

impl IncomingRequest {
    /// Takes a request apart. The caller's trace is continued if it has one.
    pub(crate) fn new(door: &Door, request: axum::extract::Request) -> Self {
        let (mut parts, body) = request.into_parts();
        let connection = parts.extensions.remove::<OwnConnection>();
        let fresh = || TraceContext::begun(new_trace_id(door.kernel().entropy()));
        let trace = continued_trace(&parts.headers).unwrap_or_else(fresh);
        let source = parts.extensions.get::<PeerAddress>().map(|PeerAddress(address)| *address);
        Self { parts, body, trace_id: trace.trace_id, trace, source, caller: None, connection, seat: None }
    }

    /// What the rendering of a refusal needs.
    pub(crate) fn asked(&self) -> RequestFacts {
        let headers = &self.parts.headers;
        RequestFacts {
            trace_id: self.trace_id,
            showed_credential: headers.contains_key(AUTHORIZATION),
            has_body: self.parts.version < Version::HTTP_2
                && (headers.contains_key(TRANSFER_ENCODING)
                    || headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0")),
            base: BaseUrl::of_request(&self.parts),
            resource: String::new(),
        }
    }

    /// The address it comes from, as far as it is known.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// What the caller shows to prove itself, which may be nothing.
    pub(crate) fn credential(&self) -> Result<CallerCredential, RefusalResponse> {
        let mut shown = self.parts.headers.get_all(AUTHORIZATION).iter();
        let header = shown.next();
        if shown.next().is_some() {
            // Two credentials are two answers to "who is it?".
            return Err(Refusal::new(ErrorCode::E3004, "the `authorization` header stands twice")
                .hint("send it once")
                .into());
        }
        let shown = header.map_or(Shown::Nothing, |header| Shown::Header(header.clone()));
        let (trace, seat) = (self.trace.clone(), self.seat.clone());
        Ok(CallerCredential { shown, source: self.source, trace_id: self.trace_id, trace, _seat: seat })
    }

    /// Does this request need a place before it is worked on?
    pub(crate) fn waits_for_place(&self) -> bool {
        self.seat.is_some()
    }

    /// From now on this request needs a place before it is worked on. Credentials that it hands out hold it.
    pub(crate) fn needs_place(&mut self) {
        self.seat = Some(Arc::default());
    }

    /// Takes the place that this request needs, unless it has it already or needs none.
    pub(crate) async fn take_place(&mut self, door: &Door, who: &CallerCredential) -> Result<(), Refusal> {
        let Some(seat) = self.seat.clone().filter(|seat| seat.get().is_none()) else { return Ok(()) };
        let caller = door.kernel().recognise(who.actor()).await?;
        // A request is one task: nobody else has put a place there meanwhile.
        let _first = seat.set(door.request_place(&caller).await?);
        Ok(())
    }

    /// Has whoever asks been recognised already?
    pub(crate) fn is_recognised(&self) -> bool {
        self.caller.is_some()
    }

    /// Whoever asks.
    pub(crate) async fn caller(&mut self, door: &Door, who: &CallerCredential) -> Result<Arc<Principal>, Refusal> {
        match &self.caller {
            Some(caller) => Ok(Arc::clone(caller)),
            None => self.recognise(door, who).await,
        }
    }

    /// Recognises whoever asks, and counts the connection for its tenant.
    pub(crate) async fn recognise(&mut self, door: &Door, who: &CallerCredential) -> Result<Arc<Principal>, Refusal> {
        let caller = door.kernel().recognise(who.actor()).await?;
        self.caller = Some(Arc::clone(&caller));
        let shown = self.connection.as_ref().map_or(Ok(()), |connection| connection.shows(caller.tenant()));
        shown.map(|()| caller).map_err(|error| {
            let refusal = Refusal::new(ErrorCode::E3001, error.to_string())
                .hint("nothing was run; use fewer connections, or try again when one of them is idle");
            Refusal { retry_after_ms: Some(SHARE_RETRY_AFTER_MS), ..refusal }
        })
    }

    /// A token that came in the body, as a credential.
    pub(crate) fn credential_of(&self, token: &str) -> CallerCredential {
        CallerCredential { trace: self.trace.clone(), ..CallerCredential::of_token(token, self.source, self.trace_id) }
    }

    /// The address under which the caller has found this server.
    pub(crate) fn base(&self) -> BaseUrl {
        BaseUrl::of_request(&self.parts)
    }

    /// The parameters in the query string; only `known` ones are accepted.
    pub(crate) fn query(&self, known: &'static [&'static str]) -> Result<QueryParameters, RefusalResponse> {
        Ok(QueryParameters::parse(self.parts.uri.query().unwrap_or_default(), known)?)
    }

    /// The values of the placeholders in the path, in their order.
    pub(crate) async fn path_values<const N: usize>(&mut self) -> Result<[String; N], RefusalResponse> {
        let malformed =
            || RefusalResponse::from(Refusal::new(ErrorCode::E3004, "the path is not valid UTF-8 after decoding"));
        let params = RawPathParams::from_request_parts(&mut self.parts, &()).await.map_err(|_| malformed())?;
        let values: Vec<String> = params.iter().map(|(_, value)| value.to_owned()).collect();
        values.try_into().map_err(|_| malformed())
    }
}

impl CallerCredential {
    /// A token that was not shown in a request.
    pub(crate) fn of_token(token: &str, source: Option<IpAddr>, trace_id: TraceId) -> Self {
        Self { shown: Shown::Token(token.into()), source, trace_id, trace: TraceContext::begun(trace_id), _seat: None }
    }

    /// The same, holding this place for as long as it is there.
    pub(crate) fn holding(&self, place: FairPermit) -> Self {
        Self { _seat: Some(Arc::new(OnceLock::from(place))), ..self.clone() }
    }

    /// The same in another trace.
    pub(crate) fn in_trace(&self, trace_id: TraceId) -> Self {
        Self { trace_id, trace: TraceContext::begun(trace_id), ..self.clone() }
    }

    /// What the caller has told of its trace.
    pub(crate) fn trace(&self) -> &TraceContext {
        &self.trace
    }

    /// The caller, as the kernel wants it.
    pub(crate) fn actor(&self) -> Actor<'_> {
        Actor { credential: self.secret(), source: self.source, trace_id: self.trace_id }
    }

    /// The token. `None` if there is no header or it has another scheme.
    pub(crate) fn secret(&self) -> Option<BearerSecret<'_>> {
        // A header that is not text is shown as an empty token: it is malformed, not missing.
        let text = match &self.shown {
            Shown::Nothing => return None,
            Shown::Token(token) => return Some(BearerSecret(token)),
            Shown::Header(header) => header.to_str().unwrap_or(SCHEME),
        };
        let (scheme, token) = text.split_at_checked(SCHEME.len())?;
        scheme.eq_ignore_ascii_case(SCHEME).then(|| BearerSecret(token.trim()))
    }

    /// Where the caller is.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Was anything shown, a token or not?
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.shown, Shown::Nothing)
    }
}

/// The caller's trace, if its headers name exactly one.
fn continued_trace(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all("traceparent").iter();
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    // What is not text is not of the standard, and one bad part spoils the whole.
    let states = headers.get_all("tracestate").iter().map(|state| state.to_str().unwrap_or("="));
    TraceContext::read(parent, states)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_one_ipv6_network_are_counted_together_and_those_of_ipv4_one_by_one() {
        let peer = |address: &str| PeerAddress::of(SocketAddr::new(address.parse().unwrap(), 1)).address();
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_ne!(peer("::ffff:192.0.2.1"), peer("::ffff:192.0.2.2"));
    }

    #[test]
    fn the_scheme_is_recognised_in_any_case_and_others_are_not() {
        let trace_id = TraceId::from_bytes([1; 16]);
        for (header, expected) in [
            ("Bearer abc", Some("abc")),
            ("bEARER   abc ", Some("abc")),
            ("Bearer", None),
            ("Bearer ", Some("")),
            ("Basic YTpi", None),
            ("abc", None),
        ] {
            let credential = CallerCredential {
                shown: Shown::Header(HeaderValue::from_static(header)),
                ..CallerCredential::of_token("", None, trace_id)
            };
            assert_eq!(credential.secret().map(|BearerSecret(text)| text), expected, "{header}");
            assert_eq!(format!("{credential:?}"), "Credential(…)");
        }
        let opaque = HeaderValue::from_bytes(b"Bearer \xff").unwrap();
        let opaque =
            CallerCredential { shown: Shown::Header(opaque), ..CallerCredential::of_token("", None, trace_id) };
        assert_eq!(opaque.secret().map(|BearerSecret(text)| text), Some(""));
    }
}
