//! TLS and SASL of a Kafka sink, as its table says: checked here, so that a build without Kafka checks it too.
//!
//! The password is never in the table: it is in a file that its owner alone may read.

use std::path::PathBuf;

use serde::Deserialize;

/// The mechanisms, by Kafka's names.
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// The keys of a table that are about it.
pub(super) const KEYS: [&str; 7] =
    ["tls", "tls_ca", "tls_cert", "tls_key", "sasl_mechanism", "sasl_username", "sasl_password_file"];

/// As it stands in the table.
#[derive(Debug, Default, Deserialize)]
pub(super) struct KafkaSecurityTable {
    tls: Option<bool>,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    sasl_mechanism: Option<String>,
    sasl_username: Option<String>,
    sasl_password_file: Option<PathBuf>,
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
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return Err("`tls_cert` and `tls_key` belong together".to_owned()),
        };
        let has_files = identity.is_some() || self.tls_ca.is_some();
        let tls = match self.tls {
            Some(true) => Some(TlsToBrokers { authorities: self.tls_ca.clone(), identity }),
            _ if has_files => return Err("`tls_ca`, `tls_cert` and `tls_key` need `tls = true`".to_owned()),
            _ => None,
        };
        let login = match (&self.sasl_mechanism, &self.sasl_username, &self.sasl_password_file) {
            (None, None, None) => None,
            (Some(mechanism), Some(username), Some(file)) => {
                if !MECHANISMS.contains(&mechanism.as_str()) {
                    return Err(format!("`sasl_mechanism` must be one of {}", MECHANISMS.join(", ")));
                }
                if mechanism == "PLAIN" && tls.is_none() {
                    return Err(
                        "`sasl_mechanism = \"PLAIN\"` shows the password to the network: it needs `tls = true`"
                            .to_owned(),
                    );
                }
                let login = BrokerLogin {
                    mechanism: mechanism.clone(),
                    username: username.clone(),
                    password_file: file.clone(),
                };
                Some(login)
            }
            _ => return Err("`sasl_mechanism`, `sasl_username` and `sasl_password_file` belong together".to_owned()),
        };
        Ok(KafkaSecuritySection { tls, login })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(table: serde_json::Value) -> Result<KafkaSecuritySection, String> {
        serde_json::from_value::<KafkaSecurityTable>(table).unwrap().checked()
    }

    #[test]
    fn nothing_said_is_nothing_and_everything_said_is_kept() {
        assert_eq!(checked(json!({})), Ok(KafkaSecuritySection::default()));
        let all = json!({ "tls": true, "tls_ca": "/ca", "tls_cert": "/c", "tls_key": "/k",
            "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "gantry", "sasl_password_file": "/p" });
        let section = checked(all).unwrap();
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
            assert!(checked(table.clone()).unwrap_err().contains(expected), "{table}");
        }
    }
}
