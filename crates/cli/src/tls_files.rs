//! The files of the server's TLS identity: read whole, checked as a whole.
//!
//! The private key is a secret file like every other: one that all users of the machine can read is refused.
//!
//! Not here: when they are read again (`serve::tls`), what makes an identity (`server::TlsIdentity`).

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use server::{TlsIdentity, TlsMaterial};

use crate::data_dir::refused;
use crate::failure::CommandFailure;
use crate::secret_file;

/// No chain is longer; a larger file is some other file.
const BYTES_MAX: u64 = 1 << 20;

/// Where the files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificates: PathBuf,
    pub(crate) private_key: PathBuf,
    /// If there is one, clients must show a certificate.
    pub(crate) client_authorities: Option<PathBuf>,
}

/// What was in them.
#[derive(PartialEq, Eq)]
pub(crate) struct TlsTexts {
    certificates: Vec<u8>,
    private_key: String,
    client_authorities: Option<Vec<u8>>,
    /// The key can be read by its group, which some set-ups mean.
    pub(crate) warning: Option<String>,
}

impl TlsFiles {
    /// Reads them. What is in them is not looked at.
    pub(crate) fn read(&self) -> Result<TlsTexts, CommandFailure> {
        let key_file = &self.private_key;
        regular(key_file)?;
        let Some(key) = secret_file::read(key_file).map_err(|error| refused(&error))? else {
            return Err(missing(key_file));
        };
        let warning = key
            .group_readable
            .then(|| format!("`{}` can be read by its group, if that is not meant", key_file.display()));
        Ok(TlsTexts {
            certificates: public(&self.certificates)?,
            private_key: key.text,
            client_authorities: self.client_authorities.as_deref().map(public).transpose()?,
            warning,
        })
    }

    /// The folders whose changes matter.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let files = [Some(&self.certificates), Some(&self.private_key), self.client_authorities.as_ref()];
        let folder = |file: &PathBuf| match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut folders: Vec<PathBuf> = files.into_iter().flatten().map(folder).collect();
        folders.sort();
        folders.dedup();
        folders
    }
}

impl TlsTexts {
    /// The identity they make.
    pub(crate) fn identity(&self) -> Result<TlsIdentity, CommandFailure> {
        let material = TlsMaterial {
            certificates: &self.certificates,
            private_key: self.private_key.as_bytes(),
            client_authorities: self.client_authorities.as_deref(),
        };
        TlsIdentity::from_pem(material).map_err(|error| {
            CommandFailure::new(error.to_string())
                .hint("check `[server] tls_cert`, `tls_key` and `tls_client_ca`: PEM files, the server's own certificate first")
        })
    }
}

/// The content of a file that everybody may read.
pub(crate) fn public(path: &Path) -> Result<Vec<u8>, CommandFailure> {
    regular(path)?;
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Ok(length) if u64::try_from(length).is_ok_and(|length| length <= BYTES_MAX) => Ok(bytes),
        Ok(_) => Err(CommandFailure::new(format!("`{}` is too large for certificates", path.display()))),
        Err(error) => Err(CommandFailure::new(format!("`{}` cannot be read: {error}", path.display()))
            .hint("run as a user that may read it")),
    }
}

/// Opening a pipe or a device could wait for ever.
fn regular(path: &Path) -> Result<(), CommandFailure> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(CommandFailure::new(format!("`{}` is not a file", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing(path)),
        Err(error) => Err(CommandFailure::new(format!("`{}` cannot be read: {error}", path.display()))),
    }
}

fn missing(path: &Path) -> CommandFailure {
    CommandFailure::new(format!("there is no file `{}`", path.display()))
        .hint("check `[server] tls_cert`, `tls_key` and `tls_client_ca`, or --tls-cert, --tls-key and --tls-client-ca")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn testdata(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/keys").join(name)
    }

    fn files(dir: &Path) -> TlsFiles {
        let key = dir.join("key.pem");
        let text = std::fs::read_to_string(testdata("loopback_tls_private.pem")).unwrap();
        secret_file::write(&key, &text).unwrap();
        TlsFiles { certificates: testdata("loopback_tls_certificate.pem"), private_key: key, client_authorities: None }
    }

    #[test]
    fn files_make_an_identity_and_a_key_that_everybody_reads_does_not() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        assert!(files.read().unwrap().identity().is_ok());
        std::fs::set_permissions(&files.private_key, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(files.read().err().unwrap().message.contains("every user"));
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let good = files(dir.path());
        for (path, expected) in
            [(dir.path().to_owned(), "is not a file"), (dir.path().join("none"), "there is no file")]
        {
            let certificates = TlsFiles { certificates: path.clone(), ..good.clone() };
            let key = TlsFiles { private_key: path, ..good.clone() };
            for files in [certificates, key] {
                assert!(files.read().err().unwrap().message.contains(expected));
            }
        }
        assert_eq!(good.folders().len(), 2);
    }
}
