//! Secrets of tools as files: `<data-dir>/secrets/<tenant>/<name>`, one secret each, readable by the owner only.
//!
//! The simplest source that is still one: no daemon, nothing to unlock, and what mounts secrets into containers already
//! writes such files. The file is read for every call, so that a rotated secret is in force at the next one.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use contract::ids::TenantId;
use ports::secret_source::{SecretError, SecretSource, SecretValue};

use crate::secret_file::{self, SecretFileError};

/// The folder.
#[derive(Debug)]
pub(crate) struct SecretsFolder {
    dir: PathBuf,
}

impl SecretsFolder {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn read(dir: &Path, tenant: &str, name: &str) -> Result<SecretValue, SecretError> {
        // Names of tenants and credentials are words; whatever could lead elsewhere is no name.
        let is_word = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['/', '\\', '\0']);
        if !is_word(tenant) || !is_word(name) {
            return Err(SecretError::Missing);
        }
        match secret_file::read(&dir.join(tenant).join(name)) {
            Ok(Some(secret)) => SecretValue::new(secret.text).ok_or(SecretError::Missing),
            Ok(None) => Err(SecretError::Missing),
            Err(error @ (SecretFileError::Open { .. } | SecretFileError::NotText { .. })) => {
                Err(SecretError::Unusable(format!("{error}: {}", error.remedy()).into()))
            }
            Err(error) => Err(SecretError::Unavailable(Box::new(error))),
        }
    }
}

#[async_trait]
impl SecretSource for SecretsFolder {
    async fn secret(&self, tenant: &TenantId, name: &str) -> Result<SecretValue, SecretError> {
        let (dir, tenant, name) = (self.dir.clone(), tenant.as_str().to_owned(), name.to_owned());
        let read = tokio::task::spawn_blocking(move || Self::read(&dir, &tenant, &name)).await;
        read.unwrap_or_else(|error| Err(SecretError::Unavailable(Box::new(io::Error::other(error)))))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn write(path: &Path, mode: u32) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "s3cret\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[tokio::test]
    async fn a_tenant_gets_its_own_secrets_and_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("acme/mail"), 0o600);
        write(&dir.path().join("other/only"), 0o600);
        write(&dir.path().join("acme/open"), 0o644);
        let folder = SecretsFolder::new(dir.path().to_owned());
        let acme: TenantId = "acme".parse().unwrap();
        assert!(folder.secret(&acme, "mail").await.unwrap().expose().starts_with(b"s3cret"));
        for name in ["only", "../other/only", "..", "", ".", "mail/", "/etc/passwd"] {
            assert!(matches!(folder.secret(&acme, name).await, Err(SecretError::Missing)), "{name}");
        }
        let Err(SecretError::Unusable(cause)) = folder.secret(&acme, "open").await else {
            panic!("everybody can read it")
        };
        let said = cause.to_string();
        assert!(said.contains("mode 644") && said.contains("chmod 600"), "{said}");
    }
}
