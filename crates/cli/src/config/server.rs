//! `[server]`: where the doors are and how much they let in.
//!
//! TLS is on when `tls_cert` and `tls_key` are set. The limits themselves, with their ranges, belong to the `server` crate; this section only names them for people.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use base::SaturatingFrom as _;
use server::ServerConfig;

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};
use crate::tls_files::TlsFiles;

/// Where to listen.
pub(crate) const LISTEN: ConfigKey = ConfigKey {
    section: "server",
    name: "listen",
    kind: KeyKind::Text,
    default: Some("127.0.0.1:7300"),
    unset: "",
    doc: "Address and port to listen on; port 0 picks a free one and prints it. Flag: `--listen`. Anything but a loopback \
          address needs TLS (`tls_cert` and `tls_key`), or `insecure_plaintext`.",
    since: "0.1",
};

/// The certificate.
pub(crate) const TLS_CERT: ConfigKey = tls(
    "tls_cert",
    "the doors speak in the clear",
    "PEM file with the server's certificate, followed by those that lead to its authority. With `tls_key` the doors speak TLS \
     (1.2 and 1.3) and nothing else. The files are read again when they change, and on SIGHUP; a pair that cannot be used leaves \
     the former one in force and is told in the log and by `gantry_tls_certificate_reloads_total`. Flag: `--tls-cert`.",
);

/// Its private key.
pub(crate) const TLS_KEY: ConfigKey = tls(
    "tls_key",
    "needed when `tls_cert` is set",
    "PEM file with the private key of that certificate (PKCS #8, PKCS #1 or SEC 1, without a passphrase). A file that every \
     user of the machine can read is refused. Flag: `--tls-key`.",
);

/// Whose certificates clients must show.
pub(crate) const TLS_CLIENT_CA: ConfigKey = tls(
    "tls_client_ca",
    "clients need no certificate",
    "PEM file with authorities: every client, probes included, must show a certificate of one of them before it can say anything; \
     its token decides about its rights as ever. Flag: `--tls-client-ca`.",
);

/// Plain HTTP to the world.
pub(crate) const INSECURE_PLAINTEXT: ConfigKey = ConfigKey {
    section: "server",
    name: "insecure_plaintext",
    kind: KeyKind::Flag,
    default: Some("false"),
    unset: "",
    doc: "Allow a non-loopback address without TLS: tokens then cross the network in the clear, so put a TLS proxy in \
          front. Flag: `--insecure-plaintext`.",
    since: "0.1",
};

/// No doors for calls.
pub(crate) const WORKER_ONLY: ConfigKey = ConfigKey {
    section: "server",
    name: "worker_only",
    kind: KeyKind::Flag,
    default: Some("false"),
    unset: "",
    doc: "Take no calls: do jobs, deliver webhooks and keep the books beside other servers on the same PostgreSQL. Only \
          `/health…` and `/metrics` answer. Flag: `--worker-only`.",
    since: "0.1",
};

/// Metrics without a token.
const METRICS_PUBLIC: ConfigKey = ConfigKey {
    section: "server",
    name: "metrics_public",
    kind: KeyKind::Flag,
    default: None,
    unset: "true on a loopback address for requests to a name of the machine itself, false elsewhere",
    doc: "May `/metrics` be read without a token? Otherwise only by a token of the home tenant that may look at the use of \
          others (admin, operator, auditor): the numbers are those of every tenant.",
    since: "0.1",
};

const ALLOWED_HOSTS: ConfigKey = ConfigKey {
    section: "server",
    name: "allowed_hosts",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "Names under which clients find this server, besides the loopback ones; in lower case and without port. A server on a \
          loopback address answers to loopback names and these only, so that a page in a browser cannot reach it by a name of its \
          own (DNS rebinding); a proxy in front that hands its own name on must be named here. Elsewhere every name is fine until \
          there is one here. Another name, or none: E3206. Probes (`/health/live`, `/health/ready`) are answered under any.",
    since: "0.1",
};

const CONNECTIONS_MAX: ConfigKey = limit(
    "connections_max",
    1..=1_000_000,
    "4096",
    "Open connections. At the limit an idle one makes room for the next: first those that have shown no good token, of the \
     address that has most. If every connection has a request under way, new ones wait. Connections without a good token \
     hold half of them, and a quarter from one address, before their idle ones are closed.",
);
const CALLS_MAX: ConfigKey = limit(
    "calls_max",
    1..=1_000_000,
    "1024",
    "Calls that run at the same time. Tenants share them: one alone holds at most three quarters, and within a tenant its \
     agents share again. Further calls wait for their turn, within their own time.",
);
const CALLS_WAITING_MAX: ConfigKey = limit(
    "calls_waiting_max",
    0..=1_000_000,
    "1024",
    "Calls that wait for their turn, of one tenant three quarters. At the limit, or when the time of a call is over: E3001 \
     with `retry_after_ms`.",
);
const REQUESTS_MAX: ConfigKey = limit(
    "requests_max",
    1..=100_000,
    "32",
    "Requests other than calls that are worked on at the same time: searches, listings, audit queries, registrations and other \
     changes. Tenants share them: one alone holds at most three quarters, and within a tenant its agents share again. \
     Further ones wait for their turn.",
);
const REQUESTS_WAITING_MAX: ConfigKey = limit(
    "requests_waiting_max",
    0..=1_000_000,
    "1024",
    "Requests other than calls that wait for their turn, of one tenant three quarters. At the limit: E3001 with \
     `retry_after_ms`.",
);
const REQUEST_WAIT_MS: ConfigKey = limit(
    "request_wait_ms",
    10..=600_000,
    "10000",
    "Milliseconds that a request other than a call waits for its turn. At the limit: E3001 with `retry_after_ms`.",
);
const BODY_BYTES_MAX: ConfigKey =
    limit("body_bytes_max", 1024..=67_108_864, "1048576", "Bytes of one request body. At the limit: E3005.");
const HEADERS_MAX: ConfigKey = limit("headers_max", 8..=100, "64", "Header lines of one request. At the limit: E3004.");
const HEADER_BYTES_MAX: ConfigKey = limit(
    "header_bytes_max",
    4096..=262_144,
    "32768",
    "Bytes of request line and headers together. At the limit the connection is closed.",
);
const HEADER_READ_TIMEOUT_MS: ConfigKey = limit(
    "header_read_timeout_ms",
    10..=600_000,
    "10000",
    "Milliseconds for the headers of a request. At the limit the connection is closed.",
);
const BODY_READ_TIMEOUT_MS: ConfigKey =
    limit("body_read_timeout_ms", 10..=600_000, "30000", "Milliseconds for the whole body. At the limit: E3009.");
const IDLE_TIMEOUT_MS: ConfigKey =
    limit("idle_timeout_ms", 10..=3_600_000, "75000", "Milliseconds a connection may be idle between two requests.");
const TLS_HANDSHAKES_MAX: ConfigKey = limit(
    "tls_handshakes_max",
    1..=100_000,
    "256",
    "TLS handshakes under way; a connection counts against `connections_max` only after its handshake. At the limit new ones \
     wait, and the oldest that has taken more than a second makes room.",
);
const TLS_HANDSHAKE_TIMEOUT_MS: ConfigKey = limit(
    "tls_handshake_timeout_ms",
    10..=600_000,
    "10000",
    "Milliseconds for a TLS handshake. At the limit the connection is closed.",
);
const DRAIN_TIMEOUT_MS: ConfigKey = limit(
    "drain_timeout_ms",
    0..=3_600_000,
    "30000",
    "Milliseconds that calls have to finish once shutdown began. At the limit they are ended, and have five more seconds to be answered.",
);
const LAME_DUCK_MS: ConfigKey = limit(
    "lame_duck_ms",
    0..=600_000,
    "0",
    "Milliseconds between `/health/ready` turning 503 and the end of accepting, so that a load balancer can notice. Answers \
     meanwhile ask clients to connect anew. On Kubernetes longer than the readiness probe takes to fail: 6000.",
);

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[
    &LISTEN,
    &TLS_CERT,
    &TLS_KEY,
    &TLS_CLIENT_CA,
    &INSECURE_PLAINTEXT,
    &WORKER_ONLY,
    &METRICS_PUBLIC,
    &ALLOWED_HOSTS,
    &CONNECTIONS_MAX,
    &CALLS_MAX,
    &CALLS_WAITING_MAX,
    &REQUESTS_MAX,
    &REQUESTS_WAITING_MAX,
    &REQUEST_WAIT_MS,
    &BODY_BYTES_MAX,
    &HEADERS_MAX,
    &HEADER_BYTES_MAX,
    &HEADER_READ_TIMEOUT_MS,
    &BODY_READ_TIMEOUT_MS,
    &IDLE_TIMEOUT_MS,
    &TLS_HANDSHAKES_MAX,
    &TLS_HANDSHAKE_TIMEOUT_MS,
    &DRAIN_TIMEOUT_MS,
    &LAME_DUCK_MS,
];

const fn tls(name: &'static str, unset: &'static str, doc: &'static str) -> ConfigKey {
    ConfigKey { section: "server", name, kind: KeyKind::Text, default: None, unset, doc, since: "0.2" }
}

const fn limit(name: &'static str, range: RangeInclusive<u64>, default: &'static str, doc: &'static str) -> ConfigKey {
    ConfigKey {
        section: "server",
        name,
        kind: KeyKind::Integer(range),
        default: Some(default),
        unset: "",
        doc,
        since: "0.1",
    }
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct ServerSection {
    pub(crate) listen: SocketAddr,
    /// The doors speak TLS.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) insecure_plaintext: bool,
    pub(crate) limits: ServerConfig,
}

impl ServerSection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Option<Self> {
        let listen = settings.text(&LISTEN).unwrap_or_default();
        let Some(listen) = address(listen) else {
            problems.push(ConfigProblem::new(
                LISTEN.title(),
                format!("`{listen}` is not an address and port; write for example 127.0.0.1:7300 or [::1]:7300"),
            ));
            return None;
        };
        let insecure_plaintext = settings.flag(&INSECURE_PLAINTEXT);
        let tls = tls_files(settings, problems);
        let section = Self { listen, tls, insecure_plaintext, limits: limits(settings) };
        section.validate(problems);
        Some(section)
    }

    /// DESIGN §3: nothing but loopback without TLS, unless somebody says that they mean it.
    fn validate(&self, problems: &mut Vec<ConfigProblem>) {
        if !self.listen.ip().is_loopback() && self.tls.is_none() && !self.insecure_plaintext {
            problems.push(ConfigProblem::new(
                LISTEN.title(),
                format!(
                    "{} can be reached from other machines: give --tls-cert and --tls-key; or put a TLS proxy in front and say \
                     --insecure-plaintext; or listen on 127.0.0.1",
                    self.listen
                ),
            ));
        }
        if let Err(error) = self.limits.validate() {
            problems.push(ConfigProblem::new("[server]", error.to_string()));
        }
    }
}

/// All of TLS, or nothing of it: half of it would be the clear by accident.
fn tls_files(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Option<TlsFiles> {
    let file = |key| settings.text(key).filter(|path| !path.is_empty()).map(PathBuf::from);
    let (certificates, private_key, client_authorities) = (file(&TLS_CERT), file(&TLS_KEY), file(&TLS_CLIENT_CA));
    match (certificates, private_key) {
        (Some(certificates), Some(private_key)) => {
            return Some(TlsFiles { certificates, private_key, client_authorities });
        }
        (None, None) if client_authorities.is_none() => {}
        (None, None) => problems.push(ConfigProblem::new(TLS_CLIENT_CA.title(), "needs `tls_cert` and `tls_key`")),
        (Some(_), None) => problems.push(ConfigProblem::new(TLS_CERT.title(), "needs `tls_key`, its private key")),
        (None, Some(_)) => problems.push(ConfigProblem::new(TLS_KEY.title(), "needs `tls_cert`, its certificate")),
    }
    None
}

fn limits(settings: &EffectiveSettings) -> ServerConfig {
    let size = |key| usize::saturating_from(settings.integer(key));
    ServerConfig {
        connections_max: size(&CONNECTIONS_MAX),
        calls_max: size(&CALLS_MAX),
        calls_waiting_max: size(&CALLS_WAITING_MAX),
        requests_max: size(&REQUESTS_MAX),
        requests_waiting_max: size(&REQUESTS_WAITING_MAX),
        request_wait_ms: settings.integer(&REQUEST_WAIT_MS),
        body_bytes_max: size(&BODY_BYTES_MAX),
        headers_max: size(&HEADERS_MAX),
        header_bytes_max: size(&HEADER_BYTES_MAX),
        header_read_timeout_ms: settings.integer(&HEADER_READ_TIMEOUT_MS),
        body_read_timeout_ms: settings.integer(&BODY_READ_TIMEOUT_MS),
        idle_timeout_ms: settings.integer(&IDLE_TIMEOUT_MS),
        tls_handshakes_max: size(&TLS_HANDSHAKES_MAX),
        tls_handshake_timeout_ms: settings.integer(&TLS_HANDSHAKE_TIMEOUT_MS),
        drain_timeout_ms: settings.integer(&DRAIN_TIMEOUT_MS),
        lame_duck_ms: settings.integer(&LAME_DUCK_MS),
        probes_only: settings.flag(&WORKER_ONLY),
        allowed_hosts: settings.list(&ALLOWED_HOSTS).to_vec(),
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
            let tls = None;
            let mut section = ServerSection { listen: listen.parse().unwrap(), tls, insecure_plaintext, limits };
            section.validate(&mut problems);
            assert_eq!(problems.is_empty(), fine, "{listen}");
            section.tls =
                Some(TlsFiles { certificates: "c".into(), private_key: "k".into(), client_authorities: None });
            problems.clear();
            section.validate(&mut problems);
            assert!(problems.is_empty(), "{listen} with TLS");
        }
    }

    #[test]
    fn half_of_tls_is_refused() {
        for (names, fine) in [
            (&["TLS_CERT", "TLS_KEY"][..], true),
            (&["TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA"], true),
            (&["TLS_CERT"], false),
            (&["TLS_KEY"], false),
            (&["TLS_CLIENT_CA"], false),
        ] {
            let environment = names.iter().map(|name| (format!("GANTRY_SERVER__{name}"), "x".to_owned())).collect();
            let settings = EffectiveSettings::gather(None, &environment, Vec::new()).unwrap();
            let mut problems = Vec::new();
            assert_eq!(tls_files(&settings, &mut problems).is_some(), fine, "{names:?}");
            assert_eq!(problems.is_empty(), fine, "{names:?}");
        }
    }

    #[test]
    fn defaults_here_are_the_defaults_of_the_server() {
        let settings = EffectiveSettings::gather(None, &std::collections::BTreeMap::new(), Vec::new()).unwrap();
        assert_eq!(limits(&settings), ServerConfig::default());
    }
}
