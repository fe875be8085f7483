//! The server's identity: its certificate chain with the private key, and whose certificates clients must show.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore};

use super::validity::{self, Validity};

/// The one protocol of the doors, so that a client that wants another is told in the handshake.
const ALPN: &[u8] = b"http/1.1";
/// Columns of base64 in PEM (RFC 7468).
const PEM_COLUMNS: usize = 64;

/// What an identity is made of, as PEM.
#[derive(Clone, Copy)]
pub struct TlsMaterial<'a> {
    /// The server's certificate, then those that lead to its authority.
    pub certificates: &'a [u8],
    /// The private key of the first certificate: PKCS #8, PKCS #1 or SEC 1.
    pub private_key: &'a [u8],
    /// Authorities of clients. If there are some, every client must show a certificate of theirs.
    pub client_authorities: Option<&'a [u8]>,
}

/// Nothing of it is shown.
impl std::fmt::Debug for TlsMaterial<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsMaterial(…)")
    }
}

/// Why an identity cannot be used. The texts say nothing about the key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Not PEM.
    #[error("the certificates cannot be read as PEM")]
    Certificates(#[source] pem::Error),
    /// PEM, but of something else.
    #[error("the certificate file holds no certificate")]
    NoCertificate,
    /// Not PEM, or not the PEM of a key.
    #[error(
        "the private key cannot be read: it must be one PEM block in PKCS #8, PKCS #1 or SEC 1, without a passphrase"
    )]
    PrivateKey(#[source] pem::Error),
    /// Most likely the key of another certificate.
    #[error("certificate and private key cannot be used together: {0}")]
    Pair(#[source] rustls::Error),
    /// The certificate's validity is not where it should be.
    #[error("the first certificate says nothing readable about its validity")]
    Validity,
    /// Nobody could be let in.
    #[error("the authorities of clients cannot be used: {0}")]
    ClientAuthorities(String),
}

/// The server's identity. Debug shows no key.
pub struct TlsIdentity {
    config: Arc<rustls::ServerConfig>,
    certificate: CertificateDer<'static>,
    validity: Validity,
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsIdentity").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl TlsIdentity {
    /// Reads and checks everything, so that what exists can be used (TLS-1).
    pub fn from_pem(material: TlsMaterial<'_>) -> Result<Self, TlsError> {
        let chain = certificates(material.certificates).map_err(TlsError::Certificates)?;
        let certificate = chain.first().cloned().ok_or(TlsError::NoCertificate)?;
        let validity = validity::of(&certificate).ok_or(TlsError::Validity)?;
        let key = PrivateKeyDer::from_pem_slice(material.private_key).map_err(TlsError::PrivateKey)?;
        let provider = Arc::new(ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Pair)?;
        let builder = match material.client_authorities {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = authorities(pem)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|error| TlsError::ClientAuthorities(error.to_string()))?,
                )
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Pair)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { config: Arc::new(config), certificate, validity })
    }

    /// When the certificate ends, in seconds since 1970.
    pub fn expires_at_s(&self) -> i64 {
        self.validity.not_after_s
    }

    /// Is the certificate valid at this time, in milliseconds since 1970?
    pub fn is_valid_at(&self, now_ms: i64) -> bool {
        let now_s = now_ms.div_euclid(1000);
        (self.validity.not_before_s..=self.validity.not_after_s).contains(&now_s)
    }

    /// The server's certificate without its chain, as PEM: what somebody needs to recognise this server.
    pub fn certificate_pem(&self) -> String {
        let text = STANDARD.encode(&self.certificate);
        let lines = text.as_bytes().chunks(PEM_COLUMNS).map(String::from_utf8_lossy);
        let body: String = lines.flat_map(|line| [line, "\n".into()]).collect();
        format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
    }

    pub(super) fn server_config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.config)
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

fn authorities(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let unusable = |error: &dyn std::fmt::Display| TlsError::ClientAuthorities(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem).map_err(|error| unusable(&error))? {
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() { Err(TlsError::ClientAuthorities("the file holds no certificate".into())) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &[u8] = include_bytes!("../../../../testdata/keys/loopback_tls_certificate.pem");
    const PRIVATE_KEY: &[u8] = include_bytes!("../../../../testdata/keys/loopback_tls_private.pem");

    fn material<'a>(certificates: &'a [u8], private_key: &'a [u8]) -> TlsMaterial<'a> {
        TlsMaterial { certificates, private_key, client_authorities: None }
    }

    #[test]
    fn a_matching_pair_is_taken_and_its_certificate_can_be_told() {
        let identity = TlsIdentity::from_pem(material(CERTIFICATE, PRIVATE_KEY)).unwrap();
        let told = certificates(identity.certificate_pem().as_bytes()).unwrap();
        assert_eq!(told, certificates(CERTIFICATE).unwrap()[..1]);
        assert!(!identity.is_valid_at(0) && identity.expires_at_s() > 1_700_000_000);
        assert!(!format!("{identity:?}").contains("config"));
    }

    #[test]
    fn what_is_not_a_pair_is_refused() {
        for (certificate, key, expected) in [
            (&b""[..], PRIVATE_KEY, "no certificate"),
            (PRIVATE_KEY, PRIVATE_KEY, "no certificate"),
            (CERTIFICATE, b"", "private key"),
            (CERTIFICATE, CERTIFICATE, "private key"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", PRIVATE_KEY, "validity"),
        ] {
            let error = TlsIdentity::from_pem(material(certificate, key)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let nobody = TlsMaterial { client_authorities: Some(b""), ..material(CERTIFICATE, PRIVATE_KEY) };
        assert!(TlsIdentity::from_pem(nobody).unwrap_err().to_string().contains("authorities of clients"));
    }
}
