//! Whom a command takes for its server, when it speaks TLS.
//!
//! - The server that runs on the data directory is recognised by the very certificate that it has put there, whatever names
//!   are in it and whoever signed it. The folder belongs to the server's user alone, and the note about the running server
//!   counts only while that server holds it.
//! - Every other server must show a certificate for its name, of an authority of the web or of one named by `--ca`.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::data_dir::{DataDir, refused};
use crate::failure::CommandFailure;
use crate::{secret_file, tls_files};

/// What a command knows about its server and can show to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerTrust {
    /// The server of this data directory at this address.
    pub(crate) own: Option<(DataDir, String)>,
    /// Authorities beside those of the web.
    pub(crate) authorities: Option<PathBuf>,
    /// Certificate and private key, for a server that wants to see one.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl ServerTrust {
    /// TLS as this says.
    pub(crate) fn config(&self) -> Result<ClientConfig, CommandFailure> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|_| CommandFailure::new("TLS cannot be set up on this machine"))?;
        let builder = match (&self.authorities, &self.own) {
            (None, Some((data_dir, url))) => {
                let verifier = OwnServer { data_dir: data_dir.clone(), url: url.clone(), provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            _ => builder.with_root_certificates(self.roots()?),
        };
        let Some((certificate, key)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = certificates(&tls_files::public(certificate)?)
            .filter(|chain| !chain.is_empty())
            .ok_or_else(|| CommandFailure::usage(format!("`{}` holds no certificate", certificate.display())))?;
        let secret = secret_file::read(key).map_err(|error| refused(&error))?;
        let unusable =
            || CommandFailure::usage(format!("`{}` holds no private key for that certificate", key.display()));
        let key =
            PrivateKeyDer::from_pem_slice(secret.ok_or_else(unusable)?.text.as_bytes()).map_err(|_| unusable())?;
        builder.with_client_auth_cert(chain, key).map_err(|_| unusable())
    }

    fn roots(&self) -> Result<RootCertStore, CommandFailure> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        if let Some(path) = &self.authorities {
            let unusable =
                || CommandFailure::usage(format!("--ca: `{}` holds no certificate of an authority", path.display()));
            let found = certificates(&tls_files::public(path)?).filter(|found| !found.is_empty());
            for certificate in found.ok_or_else(unusable)? {
                roots.add(certificate).map_err(|_| unusable())?;
            }
        }
        Ok(roots)
    }
}

/// Why TLS failed, if it was TLS that failed.
pub(crate) fn tls_error(error: &reqwest::Error) -> Option<&Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(found) = current.downcast_ref::<Error>() {
            return Some(found);
        }
        // An I/O error hides what it holds from `source`.
        let held = current.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match held {
            Some(held) => Some(held),
            None => current.source(),
        };
    }
    None
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()
}

/// Recognises the server of a data directory. Looks there anew for each handshake, because certificates are replaced while
/// servers and long-lived commands run.
#[derive(Debug)]
struct OwnServer {
    data_dir: DataDir,
    url: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OwnServer {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let runs = self.data_dir.running_server().is_some_and(|running| running.url == self.url);
        let told = std::fs::read(self.data_dir.certificate_file()).ok().and_then(|pem| certificates(&pem));
        if runs && told.is_some_and(|told| told.iter().any(|certificate| certificate == shown)) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
