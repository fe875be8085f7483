//! What the proxy says in its own name: short texts for whoever debugs the tool.

use std::borrow::Cow;

use crate::egress::gate::{EgressRefusal, GateOwner};

/// A status and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    text: Cow<'static, str>,
}

impl Answer {
    pub(super) const NOT_HTTP: Self = Self::new(400, "the request could not be read as HTTP");
    pub(super) const BAD_UPSTREAM: Self = Self::new(502, "the answer of the server could not be read");
    pub(super) const IDLE_UPSTREAM: Self = Self::new(504, "the server did not answer in time");

    pub(super) const fn new(status: u16, text: &'static str) -> Self {
        Self { status, text: Cow::Borrowed(text) }
    }

    /// The answer to a refusal of the gate, with what would have to be declared or granted. Without a scheme it is a tunnel, in
    /// which most speak TLS.
    pub(super) fn refusal(refused: &EgressRefusal, scheme: Option<&str>, owner: &GateOwner) -> Self {
        let status = match refused {
            EgressRefusal::NotAHost { .. } => 400,
            EgressRefusal::NotAllowed { .. }
            | EgressRefusal::ForbiddenAddress { .. }
            | EgressRefusal::OutsideNetworks { .. } => 403,
            EgressRefusal::Unresolvable { .. } | EgressRefusal::Unreachable { .. } => 502,
            EgressRefusal::TooMany => 503,
            EgressRefusal::TimedOut { .. } => 504,
        };
        let text = match refused {
            EgressRefusal::NotAllowed { host, port } => {
                let scheme = scheme.unwrap_or(if *port == 80 { "http" } else { "https" });
                match owner {
                    GateOwner::Tool => {
                        format!("{refused}; declare `network:{scheme}://{host}:{port}` in `required_permissions`")
                    }
                    GateOwner::Server(name) => format!(
                        "{refused}; `gantry server grant {name} --allow-host {}` lets it",
                        granted_host(scheme, host, *port)
                    ),
                }
            }
            EgressRefusal::NotAHost { .. }
            | EgressRefusal::ForbiddenAddress { .. }
            | EgressRefusal::OutsideNetworks { .. }
            | EgressRefusal::TooMany
            | EgressRefusal::Unresolvable { .. }
            | EgressRefusal::Unreachable { .. }
            | EgressRefusal::TimedOut { .. } => refused.to_string(),
        };
        Self { status, text: Cow::Owned(text) }
    }

    /// As it goes over the wire. `last` closes the connection; `bare` leaves the text out, as answers to `HEAD` must.
    pub(super) fn render(&self, last: bool, bare: bool) -> String {
        let (status, reason) = (self.status, reason(self.status));
        let body = format!("gantry: {}\n", self.text);
        let close = if last { "Connection: close\r\n" } else { "" };
        let mut text = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{close}\r\n",
            body.len()
        );
        if !bare {
            text.push_str(&body);
        }
        text
    }
}

/// A place as `--allow-host` takes it: a host alone is one by https.
fn granted_host(scheme: &str, host: &str, port: u16) -> String {
    match (scheme, port) {
        ("https", 443) if !host.starts_with('[') => host.to_owned(),
        ("http", 80) => format!("http://{host}"),
        _ => format!("{host}:{port}"),
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        403 => "Forbidden",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Bad Request",
    }
}
