//! What a broker with TLS and SASL gets to hear: nothing before its certificate was believed, and then the name and the password.
//!
//! The listener is ours and no broker: it speaks as much of Kafka's protocol as comes before the first record (which requests it
//! knows, which mechanisms, the login), and hears what the client says to one that it must not believe. Needs the feature `tls`;
//! `cargo xtask kafka` runs it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test crate")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audit::conformance::MemorySource;
use audit::sinks::RecordSink as _;
use gantry_kafka_sink::{
    KafkaConfig, KafkaMode, KafkaSecurity, KafkaSink, KafkaTls, SaslLogin, SaslMechanism, TOPIC_DEFAULT,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The requests the listener knows, by the protocol's numbers, with the newest version of each.
const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
const SASL_AUTHENTICATE: i16 = 36;
const KNOWN: [(i16, i16); 3] = [(API_VERSIONS, 3), (SASL_HANDSHAKE, 1), (SASL_AUTHENTICATE, 1)];

/// Longest request that is read.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// What the listener has heard.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Heard {
    /// The client gave up while TLS was spoken of.
    NoTls,
    /// A request of this number, after TLS.
    Request(i16),
    Mechanism(String),
    Login(Vec<u8>),
}

/// A listener with a certificate for `name`, by an authority of its own.
struct SecureBroker {
    address: String,
    authority: PathBuf,
    heard: Arc<Mutex<Vec<Heard>>>,
    _dir: tempfile::TempDir,
}

impl SecureBroker {
    async fn start(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = dir.path().join("authority.pem");
        let acceptor = acceptor(name, &authority);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let heard = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn({
            let heard = Arc::clone(&heard);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(acceptor.clone(), stream, Arc::clone(&heard)));
                }
            }
        });
        Self { address, authority, heard, _dir: dir }
    }

    /// Tries to deliver a record, and says what was heard of it. It never arrives: the listener keeps no topics.
    async fn hears(&self, authority: &Path, login: Option<SaslLogin>, wanted: impl Fn(&[Heard]) -> bool) -> Vec<Heard> {
        let config = KafkaConfig {
            brokers: vec![self.address.clone()],
            topic: TOPIC_DEFAULT.into(),
            mode: KafkaMode::Structured,
            timeout: Duration::from_secs(1),
            security: KafkaSecurity {
                tls: Some(KafkaTls { authorities: Some(authority.to_owned()), identity: None }),
                login,
            },
        };
        let sink = KafkaSink::new(config).unwrap();
        let source = MemorySource::default();
        source.append(1, |seq| format!("note {seq}"));
        for _ in 0..60 {
            sink.deliver(&source.events()).await.expect_err("nobody takes it");
            let heard = self.heard.lock().unwrap().clone();
            if wanted(&heard) {
                return heard;
            }
        }
        self.heard.lock().unwrap().clone()
    }
}

fn acceptor(name: &str, authority: &Path) -> TlsAcceptor {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Another name than the certificates it signs have: OpenSSL takes one whose issuer is its subject for its own authority.
    params.distinguished_name.push(DnType::CommonName, "the authority of a test");
    let authority_key = KeyPair::generate().unwrap();
    std::fs::write(authority, params.self_signed(&authority_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certificate.der().to_vec())], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, heard: Arc<Mutex<Vec<Heard>>>) {
    let tell = |what: Heard| heard.lock().unwrap().push(what);
    let Ok(mut stream) = acceptor.accept(stream).await else {
        tell(Heard::NoTls);
        return;
    };
    // Ends when the client goes away.
    while let Some(request) = Request::read(&mut stream).await {
        tell(Heard::Request(request.kind));
        let mut answer = Vec::new();
        match request.kind {
            API_VERSIONS => {
                answer.extend(0_i16.to_be_bytes());
                // Arrays of newer versions have their length and one more, as a number of variable length.
                answer.push(u8::try_from(KNOWN.len() + 1).unwrap());
                for (kind, newest) in KNOWN {
                    answer.extend([kind.to_be_bytes(), 0_i16.to_be_bytes(), newest.to_be_bytes()].concat());
                    answer.push(0);
                }
                answer.extend(0_i32.to_be_bytes());
                answer.push(0);
            }
            SASL_HANDSHAKE => {
                let name = String::from_utf8_lossy(request.body.get(2..).unwrap_or_default()).into_owned();
                answer.extend([&0_i16.to_be_bytes()[..], &1_i32.to_be_bytes()].concat());
                answer.extend(i16::try_from(name.len()).unwrap().to_be_bytes());
                answer.extend(name.as_bytes());
                tell(Heard::Mechanism(name));
            }
            SASL_AUTHENTICATE => {
                tell(Heard::Login(request.body.get(4..).unwrap_or_default().to_vec()));
                return;
            }
            _ => return,
        }
        if request.answer(&mut stream, &answer).await.is_none() {
            return;
        }
    }
}

/// One request, without what all have in common.
struct Request {
    kind: i16,
    correlation: [u8; 4],
    body: Vec<u8>,
}

impl Request {
    async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let length = usize::try_from(stream.read_i32().await.ok()?).ok().filter(|n| *n <= REQUEST_BYTES_MAX)?;
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await.ok()?;
        let kind = i16::from_be_bytes(bytes.get(..2)?.try_into().ok()?);
        let correlation = bytes.get(4..8)?.try_into().ok()?;
        let name = usize::try_from(i16::from_be_bytes(bytes.get(8..10)?.try_into().ok()?)).unwrap_or(0);
        Some(Self { kind, correlation, body: bytes.get(10 + name..)?.to_vec() })
    }

    async fn answer(&self, stream: &mut (impl AsyncWrite + Unpin), body: &[u8]) -> Option<()> {
        let length = i32::try_from(self.correlation.len() + body.len()).ok()?;
        stream.write_all(&[&length.to_be_bytes()[..], &self.correlation, body].concat()).await.ok()?;
        stream.flush().await.ok()
    }
}

fn login(mechanism: SaslMechanism) -> SaslLogin {
    SaslLogin { mechanism, username: "gantry".into(), password: "open sesame".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_whose_authority_is_known_is_spoken_to_by_tls() {
    let broker = SecureBroker::start("localhost").await;
    let asked = |heard: &[Heard]| heard.contains(&Heard::Request(API_VERSIONS));
    let heard = broker.hears(&broker.authority, None, asked).await;
    assert!(asked(&heard) && !heard.contains(&Heard::NoTls), "{heard:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_with_the_certificate_of_another_authority_or_another_name_hears_nothing() {
    let (known, stranger) = (SecureBroker::start("localhost").await, SecureBroker::start("localhost").await);
    let other_name = SecureBroker::start("broker.example").await;
    for (broker, authority) in [(&stranger, &known.authority), (&other_name, &other_name.authority)] {
        let login = Some(login(SaslMechanism::Plain));
        let heard = broker.hears(authority, login, |heard| heard.len() > 1).await;
        assert!(!heard.is_empty() && heard.iter().all(|heard| *heard == Heard::NoTls), "{heard:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_and_its_password_are_shown_after_tls_as_the_mechanism_wants_it() {
    for mechanism in [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512] {
        let broker = SecureBroker::start("localhost").await;
        let logged_in = |heard: &[Heard]| heard.iter().any(|heard| matches!(heard, Heard::Login(_)));
        let heard = broker.hears(&broker.authority, Some(login(mechanism)), logged_in).await;
        let word = match mechanism {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        assert!(heard.contains(&Heard::Mechanism(word.to_owned())), "{mechanism:?}: {heard:?}");
        let shown = heard.iter().find_map(|heard| match heard {
            Heard::Login(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        });
        let shown = shown.unwrap_or_else(|| panic!("{mechanism:?}: {heard:?}"));
        if mechanism == SaslMechanism::Plain {
            assert_eq!(shown, "\0gantry\0open sesame");
        } else {
            // The name and a number used once; the password is only proven.
            assert!(shown.starts_with("n,,n=gantry,r=") && !shown.contains("sesame"), "{shown}");
        }
    }
}
