//! TLS to the server: rustls, the roots of browsers or those of a file, and the server's name always verified.
//!
//! The library's `require` means what others call `verify-full`: a server whose certificate nobody vouches for is refused.
//! `prefer`, the default, takes a server at its word that it has no TLS, so it is for networks one trusts.
//!
//! Not here: the negotiation before the handshake (the library), client certificates (there are none).

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Why the roots of trust cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RootsError {
    #[error(transparent)]
    File(#[from] rustls::pki_types::pem::Error),
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    #[error("there is no certificate in the file")]
    Empty,
}

/// What every connection to the server begins with.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// Trusts the certificates in a PEM file, or without one those that browsers trust.
    pub(super) fn new(roots: Option<&PathBuf>) -> Result<Self, RootsError> {
        let mut trusted = RootCertStore::empty();
        match roots {
            Some(file) => {
                for certificate in CertificateDer::pem_file_iter(file)? {
                    trusted.add(certificate?)?;
                }
            }
            None => trusted.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        if trusted.is_empty() {
            return Err(RootsError::Empty);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, InvalidDnsNameError> {
        Ok(Handshake { connector: self.0.clone(), server: ServerName::try_from(domain.to_owned())? })
    }
}

/// A handshake about to begin.
pub(super) struct Handshake {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { Ok(Encrypted(self.connector.connect(self.server, stream).await?)) })
    }
}

/// A connection after the handshake.
pub(super) struct Encrypted(RustlsStream<Socket>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        // The password is not bound to the certificate: the certificate is verified.
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
