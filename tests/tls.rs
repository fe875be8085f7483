//! The doors speak TLS by themselves: certificates made here, a server that shows them, replaces them and asks for them.

use std::net::TcpStream;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Gantry, PATIENCE, Start, client, client_trusting, gantry, run, wait_for};

/// A certificate for this machine's loopback, and its key.
struct Pair {
    certificate: String,
    key: String,
}

impl Pair {
    fn new() -> Self {
        Self::until(2100)
    }

    /// That ends with this year's beginning.
    fn until(year: i32) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params(year).self_signed(&key).unwrap();
        Self { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn params(year: i32) -> CertificateParams {
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    params
}

/// A folder with `tls.crt` and `tls.key`, as a secret store would mount it.
struct Files(TempDir);

impl Files {
    fn of(pair: &Pair) -> Self {
        let files = Self(TempDir::new().unwrap());
        files.put(pair);
        files
    }

    fn certificate(&self) -> PathBuf {
        self.0.path().join("tls.crt")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("tls.key")
    }

    /// Puts a pair there, each file replaced as a whole.
    fn put(&self, pair: &Pair) {
        self.write("tls.key", &pair.key);
        self.write("tls.crt", &pair.certificate);
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let (path, new) = (self.0.path().join(name), self.0.path().join(format!("{name}.next")));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&new, &path).unwrap();
        path
    }

    fn start(&self) -> Start {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        Start::new().arg("--tls-cert").arg(text(self.certificate())).arg("--tls-key").arg(text(self.key()))
    }
}

async fn calculates(server: &Gantry) {
    let answer = server.invoke("calculator", json!({ "expression": "6 * 7" })).await;
    assert_eq!((answer.status, &answer.body["result"]["result"]), (200, &json!(42)), "{}", answer.text);
}

/// Does a fresh connection show a certificate that this client trusts?
async fn shows(server: &Gantry, pair: &Pair) -> bool {
    let asked = client_trusting(Some(&pair.certificate)).get(format!("{}/health/ready", server.url)).send().await;
    asked.is_ok_and(|answer| answer.status() == 200)
}

async fn metric(server: &Gantry, pair: &Pair, line: &str) -> bool {
    let asked = client_trusting(Some(&pair.certificate)).get(format!("{}/metrics", server.url));
    asked.bearer_auth(&server.token).send().await.unwrap().text().await.unwrap().contains(line)
}

#[tokio::test]
async fn a_server_with_a_certificate_speaks_tls_and_nothing_else() {
    let pair = Pair::new();
    let files = Files::of(&pair);
    let server = files.start().trusting(&pair.certificate).run().await;
    assert!(server.url.starts_with("https://"), "{}", server.url);
    calculates(&server).await;
    let plain = client().get(server.url.replace("https://", "http://")).send().await;
    assert!(plain.is_err(), "in the clear nobody is answered");
    assert!(client().get(&server.url).send().await.is_err(), "an unknown certificate is not trusted");
    let page = server.get("/metrics").await.text;
    assert!(
        page.contains(r#"gantry_tls_certificate_expiry_timestamp_seconds{certificate="server"} 4102444800"#),
        "{page}"
    );
    assert!(page.contains(r#"gantry_tls_handshakes_total{outcome="completed"}"#), "{page}");
    let refused = server.request(reqwest::Method::GET, "/v1/tools", None, None).await;
    assert!(refused.header("www-authenticate").contains("https://"), "{}", refused.header("www-authenticate"));
}

#[tokio::test]
async fn commands_recognise_the_server_of_their_data_directory_and_no_other() {
    let pair = Pair::new();
    let files = Files::of(&pair);
    let server = files.start().trusting(&pair.certificate).run().await;
    let called = server.cli(&["call", "calculator", "expression=6*7", "--json"]).ok();
    assert!(called.out().contains("42"), "{}", called.out());
    let health = server.cli(&["health"]).ok();
    assert!(health.out().contains("OK"), "{}", health.out());

    // From elsewhere the certificate must be vouched for.
    let elsewhere = TempDir::new().unwrap();
    let ask = |more: &[&str]| {
        let mut command = gantry(&elsewhere.path().join("data"));
        run(command.args(["tool", "list", "--server", &server.url]).args(more).env("GANTRY_TOKEN", &server.token))
    };
    let unknown = ask(&[]);
    assert_eq!(unknown.code(), 1, "{}", unknown.out());
    assert!(unknown.err().contains("TLS") && unknown.err().contains("--ca"), "{}", unknown.err());
    let certificate = files.certificate();
    assert!(ask(&["--ca", certificate.to_str().unwrap()]).ok().out().contains("calculator"));

    // Not even the note in the data directory makes a stranger's certificate good.
    let other = Pair::new();
    std::fs::write(server.data.join("server.crt"), &other.certificate).unwrap();
    let stranger = server.cli(&["call", "calculator", "expression=1+1"]);
    assert_eq!(stranger.code(), 1, "{}", stranger.out());
    assert!(stranger.err().contains("TLS"), "{}", stranger.err());
}

#[tokio::test]
async fn a_client_on_standard_input_is_led_to_a_server_with_tls() {
    use std::io::Write as _;
    let pair = Pair::new();
    let files = Files::of(&pair);
    let server = files.start().trusting(&pair.certificate).run().await;
    let mut command = gantry(&server.data);
    command.arg("mcp").stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut relay = command.spawn().unwrap();
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } } });
    writeln!(relay.stdin.take().unwrap(), "{hello}").unwrap();
    let said = String::from_utf8(relay.wait_with_output().unwrap().stdout).unwrap();
    assert!(said.contains("serverInfo"), "{said}");
}

#[tokio::test]
async fn a_new_certificate_is_taken_over_without_a_restart_and_a_broken_one_is_not() {
    let (first, second) = (Pair::new(), Pair::until(2101));
    let files = Files::of(&first);
    let server = files.start().trusting(&first.certificate).run().await;
    assert!(shows(&server, &first).await);
    files.put(&second);
    let start = std::time::Instant::now();
    while !shows(&server, &second).await {
        assert!(start.elapsed() < PATIENCE, "the new certificate was not taken over: {}", server.log());
    }
    assert!(!shows(&server, &first).await, "the former one is no longer shown");
    let expiry = r#"gantry_tls_certificate_expiry_timestamp_seconds{certificate="server"} 4133980800"#;
    assert!(metric(&server, &second, expiry).await);
    // The command recognises the new one too; it was never told.
    let start = std::time::Instant::now();
    while server.cli(&["call", "calculator", "expression=1+1"]).code() != 0 {
        assert!(start.elapsed() < PATIENCE, "{}", server.log());
    }

    files.write("tls.crt", "this is no certificate");
    server.signal("HUP");
    let failure = r#"gantry_tls_certificate_reloads_total{outcome="failure"}"#;
    let start = std::time::Instant::now();
    while metric(&server, &second, &format!("{failure} 0")).await {
        assert!(start.elapsed() < PATIENCE, "{}", server.log());
    }
    wait_for("the log's word", || server.log().contains("the former certificate stays in force").then_some(()));
    assert!(shows(&server, &second).await, "the former pair stays in force");
    // One that is over is no better than a broken one.
    files.put(&Pair::until(2002));
    wait_for("the log's word", || server.log().contains("the certificate is not valid now").then_some(()));
    assert!(shows(&server, &second).await);
}

#[tokio::test]
async fn strangers_who_never_shake_hands_keep_nobody_out() {
    let pair = Pair::new();
    let files = Files::of(&pair);
    // Fewer places than strangers, both for handshakes and for connections; and none is over by itself.
    let server = files
        .start()
        .env("GANTRY_SERVER__TLS_HANDSHAKES_MAX", "4")
        .env("GANTRY_SERVER__TLS_HANDSHAKE_TIMEOUT_MS", "600000")
        .env("GANTRY_SERVER__CONNECTIONS_MAX", "6")
        .trusting(&pair.certificate)
        .run()
        .await;
    let address = server.url.strip_prefix("https://").unwrap();
    let strangers: Vec<TcpStream> = (0..12).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(shows(&server, &pair).await, "a fresh connection gets through");
    assert!(!metric(&server, &pair, r#"gantry_tls_handshakes_total{outcome="displaced"} 0"#).await);
    drop(strangers);
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_ended() {
    use std::io::Read as _;
    let pair = Pair::new();
    let files = Files::of(&pair);
    let server =
        files.start().env("GANTRY_SERVER__TLS_HANDSHAKE_TIMEOUT_MS", "200").trusting(&pair.certificate).run().await;
    let address = server.url.strip_prefix("https://").unwrap();
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    let ended =
        tokio::task::spawn_blocking(move || stranger.read(&mut [0; 16]).map(|count| count == 0).unwrap_or(true));
    assert!(ended.await.unwrap(), "the server closes");
    let start = std::time::Instant::now();
    while metric(&server, &pair, r#"gantry_tls_handshakes_total{outcome="timed_out"} 0"#).await {
        assert!(start.elapsed() < PATIENCE);
    }
}

#[tokio::test]
async fn a_server_that_demands_certificates_hears_nobody_without_one() {
    let pair = Pair::new();
    let files = Files::of(&pair);
    let mut authority = params(2100);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let (mut member, member_key) = (params(2100), KeyPair::generate().unwrap());
    member.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let member_pem = member.signed_by(&member_key, &issuer).unwrap().pem();
    let member_pem = files.write("member.crt", &member_pem);
    let member_key = files.write("member.key", &member_key.serialize_pem());
    let authority_pem = files.write("authority.crt", &authority_pem);

    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let mut command = files.start().arg("--tls-client-ca").arg(authority_pem.to_str().unwrap()).command(&data);
    let server = Killed(command.stderr(std::process::Stdio::null()).spawn().unwrap());
    let ask = |more: &[&Path]| run(gantry(&data).args(["tool", "list"]).args(more));
    let shown: [&Path; 4] = [Path::new("--client-cert"), &member_pem, Path::new("--client-key"), &member_key];
    wait_for("an answer to a member", || {
        data.join("server.json").try_exists().unwrap().then(|| ask(&shown)).filter(|asked| asked.code() == 0)
    });
    let refused = ask(&[]);
    assert_eq!(refused.code(), 1, "{}", refused.out());
    assert!(refused.err().contains("--client-cert"), "{}", refused.err());
    // A certificate of nobody this server knows.
    let (certificate, key) = (files.certificate(), files.key());
    let foreign: [&Path; 4] = [Path::new("--client-cert"), &certificate, Path::new("--client-key"), &key];
    assert_eq!(ask(&foreign).code(), 1);
    drop(server);
}

/// A process that is ended when dropped.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Already gone is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn files_that_make_no_tls_are_refused_at_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let (pair, other) = (Pair::new(), Pair::new());
    let files = Files::of(&pair);
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let refused = |start: Start, expected: &str| {
        let ran = run(&mut start.command(&data));
        assert_ne!(ran.code(), 0);
        assert!(ran.err().contains(expected), "{expected}: {}", ran.err());
    };
    let certificate = files.certificate().to_str().unwrap().to_owned();
    refused(Start::new().arg("--tls-cert").arg(&certificate), "tls_key");
    refused(Start::new().arg("--tls-client-ca").arg(&certificate), "tls_cert");
    files.write("tls.key", &other.key);
    refused(files.start(), "cannot be used together");
    files.put(&pair);
    std::fs::set_permissions(files.key(), std::fs::Permissions::from_mode(0o644)).unwrap();
    refused(files.start(), "every user");
    std::fs::remove_file(files.key()).unwrap();
    refused(files.start(), "tls.key");
}

#[test]
fn doctor_tells_how_long_the_certificate_lasts() {
    let home = TempDir::new().unwrap();
    let findings = |year: i32| {
        let files = Files::of(&Pair::until(year));
        let ran = run(gantry(&home.path().join("data"))
            .args(["doctor", "--json"])
            .env("GANTRY_SERVER__TLS_CERT", files.certificate())
            .env("GANTRY_SERVER__TLS_KEY", files.key()));
        let document = ran.json();
        let checks = document["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["check"] == "tls").unwrap()
    };
    let lasting = findings(2100);
    assert_eq!(lasting["status"], "ok", "{lasting}");
    assert!(lasting["detail"].as_str().unwrap().contains("expires in"), "{lasting}");
    let over = findings(2002);
    assert_eq!(over["status"], "failed", "{over}");
    assert!(over["detail"].as_str().unwrap().contains("expired"), "{over}");
}
