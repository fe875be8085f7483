//! `[server]`: where the doors are and how much they let in.
//!
//! The limits themselves, with their ranges, belong to the `server` crate; this section only names them for people.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use server::ServerConfig;

use super::key::{Key, Kind};
use super::settings::{Problem, Settings};

/// Where to listen.
pub(crate) const LISTEN: Key = Key {
    section: "server",
    name: "listen",
    kind: Kind::Text,
    default: Some("127.0.0.1:7300"),
    unset: "",
    doc: "Address and port to listen on; port 0 picks a free one and prints it. Flag: `--listen`. Anything but a loopback \
          address needs `insecure_plaintext`, because this build has no TLS of its own.",
    since: "0.1",
};

/// Plain HTTP to the world.
pub(crate) const INSECURE_PLAINTEXT: Key = Key {
    section: "server",
    name: "insecure_plaintext",
    kind: Kind::Flag,
    default: Some("false"),
    unset: "",
    doc: "Allow a non-loopback address without TLS: tokens then cross the network in the clear, so put a TLS proxy in \
          front. Flag: `--insecure-plaintext`.",
    since: "0.1",
};

/// No doors for calls.
pub(crate) const WORKER_ONLY: Key = Key {
    section: "server",
    name: "worker_only",
    kind: Kind::Flag,
    default: Some("false"),
    unset: "",
    doc: "Take no calls: do jobs, deliver webhooks and keep the books beside other servers on the same PostgreSQL. Only \
          `/health…` and `/metrics` answer. Flag: `--worker-only`.",
    since: "0.1",
};

/// Metrics without a token.
const METRICS_PUBLIC: Key = Key {
    section: "server",
    name: "metrics_public",
    kind: Kind::Flag,
    default: None,
    unset: "true on a loopback address, false elsewhere",
    doc: "May `/metrics` be read without a token?",
    since: "0.1",
};

const CONNECTIONS_MAX: Key =
    limit("connections_max", 1..=1_000_000, "4096", "Open connections. At the limit new ones wait.");
const CALLS_MAX: Key = limit(
    "calls_max",
    1..=1_000_000,
    "1024",
    "Calls that run at the same time. At the limit: E3001 with `retry_after_ms`.",
);
const BODY_BYTES_MAX: Key =
    limit("body_bytes_max", 1024..=67_108_864, "1048576", "Bytes of one request body. At the limit: E3005.");
const HEADERS_MAX: Key = limit("headers_max", 8..=100, "64", "Header lines of one request. At the limit: E3004.");
const HEADER_BYTES_MAX: Key = limit(
    "header_bytes_max",
    4096..=262_144,
    "32768",
    "Bytes of request line and headers together. At the limit the connection is closed.",
);
const HEADER_READ_TIMEOUT_MS: Key = limit(
    "header_read_timeout_ms",
    10..=600_000,
    "10000",
    "Milliseconds for the headers of a request. At the limit the connection is closed.",
);
const BODY_READ_TIMEOUT_MS: Key =
    limit("body_read_timeout_ms", 10..=600_000, "30000", "Milliseconds for the whole body. At the limit: E3009.");
const IDLE_TIMEOUT_MS: Key =
    limit("idle_timeout_ms", 10..=3_600_000, "75000", "Milliseconds a connection may be idle between two requests.");
const DRAIN_TIMEOUT_MS: Key = limit(
    "drain_timeout_ms",
    0..=3_600_000,
    "30000",
    "Milliseconds that calls have to finish once shutdown began. At the limit they are aborted.",
);
const LAME_DUCK_MS: Key = limit(
    "lame_duck_ms",
    0..=600_000,
    "0",
    "Milliseconds between `/health/ready` turning 503 and the end of accepting, so that a load balancer can notice. Answers \
     meanwhile ask clients to connect anew. On Kubernetes longer than the readiness probe takes to fail: 6000.",
);

/// All keys of the section.
pub(super) const KEYS: &[&Key] = &[
    &LISTEN,
    &INSECURE_PLAINTEXT,
    &WORKER_ONLY,
    &METRICS_PUBLIC,
    &CONNECTIONS_MAX,
    &CALLS_MAX,
    &BODY_BYTES_MAX,
    &HEADERS_MAX,
    &HEADER_BYTES_MAX,
    &HEADER_READ_TIMEOUT_MS,
    &BODY_READ_TIMEOUT_MS,
    &IDLE_TIMEOUT_MS,
    &DRAIN_TIMEOUT_MS,
    &LAME_DUCK_MS,
];

const fn limit(name: &'static str, range: RangeInclusive<u64>, default: &'static str, doc: &'static str) -> Key {
    Key { section: "server", name, kind: Kind::Integer(range), default: Some(default), unset: "", doc, since: "0.1" }
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct ServerSection {
    pub(crate) listen: SocketAddr,
    pub(crate) insecure_plaintext: bool,
    pub(crate) limits: ServerConfig,
}

impl ServerSection {
    pub(super) fn read(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Self> {
        let listen = settings.text(&LISTEN).unwrap_or_default();
        let Some(listen) = address(listen) else {
            problems.push(Problem::new(
                LISTEN.title(),
                format!("`{listen}` is not an address and port; write for example 127.0.0.1:7300 or [::1]:7300"),
            ));
            return None;
        };
        let insecure_plaintext = settings.flag(&INSECURE_PLAINTEXT);
        let section = Self { listen, insecure_plaintext, limits: limits(settings) };
        section.validate(problems);
        Some(section)
    }

    /// DESIGN §3: nothing but loopback without TLS, unless somebody says that they mean it.
    fn validate(&self, problems: &mut Vec<Problem>) {
        if !self.listen.ip().is_loopback() && !self.insecure_plaintext {
            problems.push(Problem::new(
                LISTEN.title(),
                format!(
                    "{} can be reached from other machines, and this build has no TLS: put a TLS proxy in front and say \
                     --insecure-plaintext, or listen on 127.0.0.1",
                    self.listen
                ),
            ));
        }
        if let Err(error) = self.limits.validate() {
            problems.push(Problem::new("[server]", error.to_string()));
        }
    }
}

fn limits(settings: &Settings) -> ServerConfig {
    let size = |key| usize::try_from(settings.integer(key)).unwrap_or(usize::MAX);
    ServerConfig {
        connections_max: size(&CONNECTIONS_MAX),
        calls_max: size(&CALLS_MAX),
        body_bytes_max: size(&BODY_BYTES_MAX),
        headers_max: size(&HEADERS_MAX),
        header_bytes_max: size(&HEADER_BYTES_MAX),
        header_read_timeout_ms: settings.integer(&HEADER_READ_TIMEOUT_MS),
        body_read_timeout_ms: settings.integer(&BODY_READ_TIMEOUT_MS),
        idle_timeout_ms: settings.integer(&IDLE_TIMEOUT_MS),
        drain_timeout_ms: settings.integer(&DRAIN_TIMEOUT_MS),
        lame_duck_ms: settings.integer(&LAME_DUCK_MS),
        probes_only: settings.flag(&WORKER_ONLY),
        metrics_public: settings.get(&METRICS_PUBLIC).map(|_| settings.flag(&METRICS_PUBLIC)),
    }
}

/// `IP:PORT`, or `localhost:PORT`. Other names are not looked up: what a name stands for can change.
fn address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?));
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_literally() {
        for (text, expected) in [
            ("127.0.0.1:7300", Some("127.0.0.1:7300")),
            ("localhost:0", Some("127.0.0.1:0")),
            ("[::1]:80", Some("[::1]:80")),
            ("7300", None),
            (":7300", None),
            ("example.com:80", None),
            ("127.0.0.1:70000", None),
        ] {
            assert_eq!(address(text).map(|a| a.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn other_machines_are_let_in_only_by_an_explicit_word() {
        for (listen, insecure_plaintext, fine) in [
            ("127.0.0.1:1", false, true),
            ("127.9.9.9:1", false, true),
            ("[::1]:1", false, true),
            ("0.0.0.0:1", false, false),
            ("192.168.1.1:1", false, false),
            ("[::]:1", false, false),
            ("0.0.0.0:1", true, true),
        ] {
            let mut problems = Vec::new();
            let limits = ServerConfig::default();
            ServerSection { listen: listen.parse().unwrap(), insecure_plaintext, limits }.validate(&mut problems);
            assert_eq!(problems.is_empty(), fine, "{listen}");
        }
    }

    #[test]
    fn defaults_here_are_the_defaults_of_the_server() {
        let settings = Settings::gather(None, &std::collections::BTreeMap::new(), Vec::new()).unwrap();
        assert_eq!(limits(&settings), ServerConfig::default());
    }
}
