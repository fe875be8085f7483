//! Where the secrets come from that a tool has declared (`credentials:name`): the environment, an encrypted file, a vault.
//!
//! A secret is fetched at the last moment, for one call, and lives as long as that call (DESIGN §6.4). Executors hold the
//! port; the kernel itself never sees a secret.

use std::fmt;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use zeroize::Zeroizing;

/// Longest secret, in bytes: a key or a certificate with its chain.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;

/// A secret value. Masks itself, is not `Serialize`, and is overwritten in memory when it goes.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// Wraps a value; one that is too long is none.
    ///
    /// ```
    /// # use gantry_ports::secret_source::SecretValue;
    /// let secret = SecretValue::new("hunter2").unwrap();
    /// assert_eq!(format!("{secret:?}"), "Secret(***)");
    /// assert_eq!(secret.expose(), b"hunter2");
    /// ```
    pub fn new(value: impl Into<Vec<u8>>) -> Option<Self> {
        let value = Zeroizing::new(value.into());
        (value.len() <= SECRET_BYTES_MAX).then_some(Self(value))
    }

    /// The value itself, for the moment it is needed.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The tenant has none of this name. The same whether another tenant has one.
    #[error("there is no such credential")]
    Missing,
    /// There is one, but not as one may be kept: others can read it, or it is no text. The cause is for the log.
    #[error("the credential is kept in a way in which it is not used")]
    Unusable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Nobody could be asked. The cause is for the log.
    #[error("credentials cannot be had at the moment")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl SecretError {
    /// The refusal for a caller. `name` is the manifest's own word, so it is fit to be shown.
    pub fn refusal(self, name: &str) -> Refusal {
        let refusal = match &self {
            Self::Missing => Refusal::new(ErrorCode::E3602, format!("the credential `{name}` is not provisioned"))
                .hint(format!("let the operator provision `{name}` for this tenant; the tool was not started")),
            Self::Unusable(_) => {
                Refusal::new(ErrorCode::E3602, format!("the credential `{name}` is provisioned, but cannot be used so"))
                    .hint(format!("let the operator look at the server's log, which says what is wrong with `{name}`; the tool was not started"))
            }
            Self::Unavailable(_) => {
                Refusal::new(ErrorCode::E3601, format!("the credential `{name}` cannot be had at the moment"))
                    .hint("try again later; the tool was not started")
            }
        };
        refusal.caused_by(self)
    }
}

/// Hands out secrets.
#[async_trait]
pub trait SecretSource: Send + Sync + fmt::Debug {
    /// The tenant's secret of this name. A source never gives one tenant the secret of another, and never an empty one in
    /// place of a missing one. May wait; whoever calls bounds the wait by the call's deadline.
    async fn secret(&self, tenant: &TenantId, name: &str) -> Result<SecretValue, SecretError>;
}

/// Has none: for servers where nobody has provisioned any.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

#[async_trait]
impl SecretSource for NoSecrets {
    async fn secret(&self, _: &TenantId, _: &str) -> Result<SecretValue, SecretError> {
        Err(SecretError::Missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_credential_and_nothing_of_the_cause() {
        let away = SecretError::Unavailable("vault at 10.0.0.1 said no".into());
        let open = SecretError::Unusable("everybody on 10.0.0.1 can read it".into());
        for (error, code, retryable) in [
            (SecretError::Missing, ErrorCode::E3602, false),
            (open, ErrorCode::E3602, false),
            (away, ErrorCode::E3601, true),
        ] {
            let refusal = error.refusal("mail");
            assert_eq!(refusal.code, code);
            assert!(refusal.message.contains("`mail`") && !format!("{refusal:?}").contains("10.0.0.1"));
            assert_eq!(refusal.code.row().retry.retryable(), retryable);
        }
    }

    #[test]
    fn a_secret_that_is_too_long_is_none() {
        assert!(SecretValue::new(vec![b'x'; SECRET_BYTES_MAX]).is_some());
        assert!(SecretValue::new(vec![b'x'; SECRET_BYTES_MAX + 1]).is_none());
    }
}
