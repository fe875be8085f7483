//! TLS and SASL of a Kafka sink, as its table says: checked here, so that a build without Kafka checks it too.
//!
//! The password is never in the table: it is in a file that its owner alone may read.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::paths::{ControlPath, PathText, PrivatePath};

/// The mechanisms, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) enum SaslMechanism {
    #[serde(rename = "PLAIN")]
    Plain,
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl SaslMechanism {
    fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// As it stands in the table.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KafkaSecurityTable {
    /// Are brokers spoken to by TLS?
    tls: Option<bool>,
    /// PEM file with the authorities that are trusted; unset, those of the system.
    tls_ca: Option<ControlPath>,
    /// PEM file with our own certificate.
    tls_cert: Option<ControlPath>,
    /// PEM file with its private key.
    tls_key: Option<PrivatePath>,
    /// How we say who we are.
    sasl_mechanism: Option<SaslMechanism>,
    /// Who we are.
    sasl_username: Option<String>,
    /// File with the password, which its owner alone may read.
    sasl_password_file: Option<PrivatePath>,
}

/// What it means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KafkaSecuritySection {
    pub(crate) tls: Option<TlsToBrokers>,
    pub(crate) login: Option<BrokerLogin>,
}

/// TLS, with the broker's certificate always checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TlsToBrokers {
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// Who we are to the brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerLogin {
    pub(crate) mechanism: String,
    pub(crate) username: String,
    pub(crate) password_file: PathBuf,
}

impl KafkaSecurityTable {
    /// Half of something is refused: it would be less than was meant.
    pub(super) fn checked(&self) -> Result<KafkaSecuritySection, String> {
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((path(certificate), path(key))),
            (None, None) => None,
            _ => return Err("`tls_cert` and `tls_key` belong together".to_owned()),
        };
        let has_files = identity.is_some() || self.tls_ca.is_some();
        let tls = match self.tls {
            Some(true) => Some(TlsToBrokers { authorities: self.tls_ca.as_ref().map(path), identity }),
            _ if has_files => return Err("`tls_ca`, `tls_cert` and `tls_key` need `tls = true`".to_owned()),
            _ => None,
        };
        let login = match (&self.sasl_mechanism, &self.sasl_username, &self.sasl_password_file) {
            (None, None, None) => None,
            (Some(SaslMechanism::Plain), Some(_), Some(_)) if tls.is_none() => {
                let message = "`sasl_mechanism = \"PLAIN\"` shows the password to the network: it needs `tls = true`";
                return Err(message.to_owned());
            }
            (Some(mechanism), Some(username), Some(file)) => Some(BrokerLogin {
                mechanism: mechanism.as_str().to_owned(),
                username: username.clone(),
                password_file: path(file),
            }),
            _ => return Err("`sasl_mechanism`, `sasl_username` and `sasl_password_file` belong together".to_owned()),
        };
        Ok(KafkaSecuritySection { tls, login })
    }
}

fn path<M>(text: &PathText<M>) -> PathBuf {
    PathBuf::from(text.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::tables::table as table_of;
    use super::*;

    fn checked(table: &serde_json::Value) -> Result<KafkaSecuritySection, String> {
        table_of::<KafkaSecurityTable>(table)?.checked()
    }

    #[test]
    fn nothing_said_is_nothing_and_everything_said_is_kept() {
        assert_eq!(checked(&json!({})), Ok(KafkaSecuritySection::default()));
        let all = json!({ "tls": true, "tls_ca": "/ca", "tls_cert": "/c", "tls_key": "/k",
            "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "gantry", "sasl_password_file": "/p" });
        let section = checked(&all).unwrap();
        assert_eq!(section.tls.unwrap().identity, Some(("/c".into(), "/k".into())));
        assert_eq!(section.login.unwrap().password_file, PathBuf::from("/p"));
    }

    #[test]
    fn halves_and_clear_passwords_are_refused() {
        for (table, expected) in [
            (json!({ "tls": true, "tls_cert": "/c" }), "belong together"),
            (json!({ "tls_ca": "/ca" }), "need `tls = true`"),
            (json!({ "tls": false, "tls_ca": "/ca" }), "need `tls = true`"),
            (json!({ "sasl_username": "gantry" }), "belong together"),
            (json!({ "sasl_mechanism": "GSSAPI", "sasl_username": "g", "sasl_password_file": "/p" }), "must be one of"),
            (
                json!({ "sasl_mechanism": "PLAIN", "sasl_username": "g", "sasl_password_file": "/p" }),
                "needs `tls = true`",
            ),
        ] {
            assert!(checked(&table).unwrap_err().contains(expected), "{table}");
        }
    }
}
