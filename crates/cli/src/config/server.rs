//! `[server]`: where the doors are and how much they let in.
//!
//! TLS is on when `tls_cert` and `tls_key` are set. The limits themselves, with their ranges, belong to the `server` crate; this section only names them for people.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::Deserialize;
use server::ServerConfig;

use super::paths::{ControlPath, PrivatePath};
use super::problems::SectionProblems;
use super::section::ConfigSection;
use crate::tls_files::TlsFiles;

/// Where the doors are and how much they let in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct ServerKeys {
    /// Address and port to listen on; port 0 picks a free one and prints it. Flag: `--listen`. Anything but a loopback
    /// address needs TLS (`tls_cert` and `tls_key`), or `insecure_plaintext`.
    pub(super) listen: String,
    /// PEM file with the server's certificate, followed by those that lead to its authority. With `tls_key` the doors speak
    /// TLS (1.2 and 1.3) and nothing else. The files are read again when they change, and on SIGHUP; a pair that cannot be
    /// used leaves the former one in force and is told in the log and by `gantry_tls_certificate_reloads_total`. Flag:
    /// `--tls-cert`.
    #[schemars(extend("x-unset" = "the doors speak in the clear", "x-since" = "0.2"))]
    pub(super) tls_cert: Option<ControlPath>,
    /// PEM file with the private key of that certificate (PKCS #8, PKCS #1 or SEC 1, without a passphrase). A file that
    /// every user of the machine can read is refused. Flag: `--tls-key`.
    #[schemars(extend("x-unset" = "needed when `tls_cert` is set", "x-since" = "0.2"))]
    pub(super) tls_key: Option<PrivatePath>,
    /// PEM file with authorities: every client, probes included, must show a certificate of one of them before it can say
    /// anything; its token decides about its rights as ever. Flag: `--tls-client-ca`.
    #[schemars(extend("x-unset" = "clients need no certificate", "x-since" = "0.2"))]
    pub(super) tls_client_ca: Option<ControlPath>,
    /// Allow a non-loopback address without TLS: tokens then cross the network in the clear, so put a TLS proxy in front.
    /// Flag: `--insecure-plaintext`.
    pub(super) insecure_plaintext: bool,
    /// Take no calls: do jobs, deliver webhooks and keep the books beside other servers on the same PostgreSQL. Only
    /// `/health…` and `/metrics` answer. Flag: `--worker-only`.
    pub(super) worker_only: bool,
    /// May `/metrics` be read without a token? Otherwise only by a token of the home tenant that may look at the use of
    /// others (admin, operator, auditor): the numbers are those of every tenant.
    #[schemars(extend("x-unset" = "true on a loopback address for requests to a name of the machine itself, false elsewhere"))]
    pub(super) metrics_public: Option<bool>,
    /// Names under which clients find this server, besides the loopback ones; in lower case and without port. A server on a
    /// loopback address answers to loopback names and these only, so that a page in a browser cannot reach it by a name of
    /// its own (DNS rebinding); a proxy in front that hands its own name on must be named here. Elsewhere every name is
    /// fine until there is one here. Another name, or none: E3206. Probes (`/health/live`, `/health/ready`) are answered
    /// under any.
    pub(super) allowed_hosts: Vec<String>,
    /// Open connections. At the limit an idle one makes room for the next: first those that have shown no good token, of
    /// the address that has most. If every connection has a request under way, new ones wait. Connections without a good
    /// token hold half of them, and a quarter from one address, before their idle ones are closed.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) connections_max: usize,
    /// Calls that run at the same time. Tenants share them: one alone holds at most three quarters, and within a tenant its
    /// agents share again. Further calls wait for their turn, within their own time.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) calls_max: usize,
    /// Calls that wait for their turn, of one tenant three quarters. At the limit, or when the time of a call is over:
    /// E3001 with `retry_after_ms`.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) calls_waiting_max: usize,
    /// Requests other than calls that are worked on at the same time: searches, listings, audit queries, registrations and
    /// other changes. Tenants share them: one alone holds at most three quarters, and within a tenant its agents share
    /// again. Further ones wait for their turn.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) requests_max: usize,
    /// Requests other than calls that wait for their turn, of one tenant three quarters. At the limit: E3001 with
    /// `retry_after_ms`.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) requests_waiting_max: usize,
    /// Milliseconds that a request other than a call waits for its turn. At the limit: E3001 with `retry_after_ms`.
    #[schemars(range(min = 10, max = 600_000))]
    pub(super) request_wait_ms: u64,
    /// Bytes of one request body. At the limit: E3005.
    #[schemars(range(min = 1_024, max = 67_108_864))]
    pub(super) body_bytes_max: usize,
    /// Header lines of one request. At the limit: E3004.
    #[schemars(range(min = 8, max = 100))]
    pub(super) headers_max: usize,
    /// Bytes of request line and headers together. At the limit the connection is closed.
    #[schemars(range(min = 4_096, max = 262_144))]
    pub(super) header_bytes_max: usize,
    /// Milliseconds for the headers of a request. At the limit the connection is closed.
    #[schemars(range(min = 10, max = 600_000))]
    pub(super) header_read_timeout_ms: u64,
    /// Milliseconds for the whole body. At the limit: E3009.
    #[schemars(range(min = 10, max = 600_000))]
    pub(super) body_read_timeout_ms: u64,
    /// Milliseconds a connection may be idle between two requests.
    #[schemars(range(min = 10, max = 3_600_000))]
    pub(super) idle_timeout_ms: u64,
    /// TLS handshakes under way; a connection counts against `connections_max` only after its handshake. At the limit new
    /// ones wait, and the oldest that has taken more than a second makes room.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) tls_handshakes_max: usize,
    /// Milliseconds for a TLS handshake. At the limit the connection is closed.
    #[schemars(range(min = 10, max = 600_000))]
    pub(super) tls_handshake_timeout_ms: u64,
    /// Milliseconds that calls have to finish once shutdown began. At the limit they are ended, and have five more seconds
    /// to be answered.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(super) drain_timeout_ms: u64,
    /// Milliseconds between `/health/ready` turning 503 and the end of accepting, so that a load balancer can notice.
    /// Answers meanwhile ask clients to connect anew. On Kubernetes longer than the readiness probe takes to fail: 6000.
    #[schemars(range(min = 0, max = 600_000))]
    pub(super) lame_duck_ms: u64,
}

impl Default for ServerKeys {
    fn default() -> Self {
        let usual = ServerConfig::default();
        Self {
            listen: "127.0.0.1:7300".to_owned(),
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            insecure_plaintext: false,
            worker_only: usual.probes_only,
            metrics_public: usual.metrics_public,
            allowed_hosts: usual.allowed_hosts,
            connections_max: usual.connections_max,
            calls_max: usual.calls_max,
            calls_waiting_max: usual.calls_waiting_max,
            requests_max: usual.requests_max,
            requests_waiting_max: usual.requests_waiting_max,
            request_wait_ms: usual.request_wait_ms,
            body_bytes_max: usual.body_bytes_max,
            headers_max: usual.headers_max,
            header_bytes_max: usual.header_bytes_max,
            header_read_timeout_ms: usual.header_read_timeout_ms,
            body_read_timeout_ms: usual.body_read_timeout_ms,
            idle_timeout_ms: usual.idle_timeout_ms,
            tls_handshakes_max: usual.tls_handshakes_max,
            tls_handshake_timeout_ms: usual.tls_handshake_timeout_ms,
            drain_timeout_ms: usual.drain_timeout_ms,
            lame_duck_ms: usual.lame_duck_ms,
        }
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

impl ConfigSection for ServerKeys {
    const NAME: &'static str = "server";
    type Checked = Option<ServerSection>;

    fn checked(self, problems: &mut SectionProblems<'_>) -> Option<ServerSection> {
        let Some(listen) = address(&self.listen) else {
            let example = "write for example 127.0.0.1:7300 or [::1]:7300";
            problems.at("listen", format!("`{}` is not an address and port; {example}", self.listen));
            return None;
        };
        let limits = ServerConfig {
            connections_max: self.connections_max,
            calls_max: self.calls_max,
            calls_waiting_max: self.calls_waiting_max,
            requests_max: self.requests_max,
            requests_waiting_max: self.requests_waiting_max,
            request_wait_ms: self.request_wait_ms,
            body_bytes_max: self.body_bytes_max,
            headers_max: self.headers_max,
            header_bytes_max: self.header_bytes_max,
            header_read_timeout_ms: self.header_read_timeout_ms,
            body_read_timeout_ms: self.body_read_timeout_ms,
            idle_timeout_ms: self.idle_timeout_ms,
            tls_handshakes_max: self.tls_handshakes_max,
            tls_handshake_timeout_ms: self.tls_handshake_timeout_ms,
            drain_timeout_ms: self.drain_timeout_ms,
            lame_duck_ms: self.lame_duck_ms,
            probes_only: self.worker_only,
            allowed_hosts: self.allowed_hosts,
            metrics_public: self.metrics_public,
        };
        let tls = tls_files(self.tls_cert, self.tls_key, self.tls_client_ca, problems);
        let section = ServerSection { listen, tls, insecure_plaintext: self.insecure_plaintext, limits };
        section.validate(problems);
        Some(section)
    }
}

impl ServerSection {
    /// DESIGN §3: nothing but loopback without TLS, unless somebody says that they mean it.
    fn validate(&self, problems: &mut SectionProblems<'_>) {
        if !self.listen.ip().is_loopback() && self.tls.is_none() && !self.insecure_plaintext {
            problems.at(
                "listen",
                format!(
                    "{} can be reached from other machines: give --tls-cert and --tls-key; or put a TLS proxy in front and say \
                     --insecure-plaintext; or listen on 127.0.0.1",
                    self.listen
                ),
            );
        }
        if let Err(error) = self.limits.validate() {
            problems.at_section(error.to_string());
        }
    }
}

/// All of TLS, or nothing of it: half of it would be the clear by accident.
fn tls_files(
    certificates: Option<ControlPath>,
    private_key: Option<PrivatePath>,
    client_authorities: Option<ControlPath>,
    problems: &mut SectionProblems<'_>,
) -> Option<TlsFiles> {
    match (certificates, private_key) {
        (Some(certificates), Some(private_key)) => {
            return Some(TlsFiles {
                certificates: certificates.into(),
                private_key: private_key.into(),
                client_authorities: client_authorities.map(Into::into),
            });
        }
        (None, None) if client_authorities.is_none() => {}
        (None, None) => problems.at("tls_client_ca", "needs `tls_cert` and `tls_key`"),
        (Some(_), None) => problems.at("tls_cert", "needs `tls_key`, its private key"),
        (None, Some(_)) => problems.at("tls_key", "needs `tls_cert`, its certificate"),
    }
    None
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
    use super::super::section_tests::{of_file, of_variables};
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
            let plain = format!("[server]\nlisten = '{listen}'\ninsecure_plaintext = {insecure_plaintext}\n");
            assert_eq!(of_file::<ServerKeys>(&plain).1.is_empty(), fine, "{listen}");
            let (_, problems) = of_file::<ServerKeys>(&format!("{plain}tls_cert = 'c'\ntls_key = 'k'"));
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
            let variables: Vec<(&str, &str)> = names.iter().map(|name| (*name, "x")).collect();
            let (section, problems) = of_variables::<ServerKeys>(&variables);
            assert_eq!((section.unwrap().tls.is_some(), problems.is_empty()), (fine, fine), "{names:?}");
        }
    }

    #[test]
    fn what_is_unset_is_as_the_server_has_it() {
        assert_eq!(of_file::<ServerKeys>("").0.unwrap().limits, ServerConfig::default());
    }
}
