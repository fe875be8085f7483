//! TLS, through a proxy of loopback that has it: the server of these tests has none itself.

use std::sync::Arc;
use std::time::Duration;

use gantry_store::postgres::{PostgresOpenError, PostgresOptions, PostgresStore};
use ports::registry_store::RegistryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::SERVER;

const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/keys/loopback_tls_certificate.pem");
const PRIVATE_KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/keys/loopback_tls_private.pem");
/// What a client sends that asks for TLS: its length and the number of the request.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The port of a proxy that answers the request for TLS, ends TLS and passes everything on in the clear.
async fn proxy() -> u16 {
    let certificates = CertificateDer::pem_file_iter(CERTIFICATE).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from_pem_file(PRIVATE_KEY).unwrap())
        .unwrap();
    let (acceptor, server) = (TlsAcceptor::from(Arc::new(config)), SERVER.port());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut request = [0; 8];
                client.read_exact(&mut request).await.unwrap();
                assert_eq!(request, SSL_REQUEST, "somebody spoke in the clear");
                client.write_all(b"S").await.unwrap();
                // A client that does not trust us ends here.
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

fn options() -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.connection_wait = Duration::from_secs(60);
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_works_over_tls_when_its_authority_is_named() {
    let (url, port) = (SERVER.database().unwrap(), proxy().await);
    let through = url.replacen(&format!(":{}/", SERVER.port()), &format!(":{port}/"), 1);
    for (host, mode) in [("127.0.0.1", "require"), ("localhost", "verify-full"), ("127.0.0.1", "prefer")] {
        let url = through.replacen("127.0.0.1", host, 1);
        let url = format!("{url}?sslmode={mode}&sslrootcert={CERTIFICATE}");
        let store = PostgresStore::open(&url, &options()).await.unwrap();
        store.ping().await.unwrap();
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_nobody_vouches_for_is_refused() {
    let (url, port) = (SERVER.database().unwrap(), proxy().await);
    let through = url.replacen(&format!(":{}/", SERVER.port()), &format!(":{port}/"), 1);
    for (url, why) in [
        (format!("{through}?sslmode=require"), "an unknown authority"),
        (format!("{through}?sslmode=prefer"), "an unknown authority"),
        (format!("{url}?sslmode=require"), "no TLS at all"),
    ] {
        let error = PostgresStore::open(&url, &options()).await.map(drop).unwrap_err();
        assert!(matches!(error, PostgresOpenError::Untrusted(_)), "{why}: {error:?}");
        assert!(error.to_string().contains("sslrootcert"), "{error}");
    }
    let nothing = PostgresStore::open(&format!("{url}?sslrootcert=/dev/null"), &options()).await;
    assert!(matches!(nothing.map(drop), Err(PostgresOpenError::Roots(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_used_in_the_clear_unless_tls_is_required() {
    for mode in ["disable", "prefer"] {
        let url = format!("{}?sslmode={mode}", SERVER.database().unwrap());
        PostgresStore::open(&url, &options()).await.unwrap().ping().await.unwrap();
    }
}
