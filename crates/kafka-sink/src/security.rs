//! How a producer and its brokers recognise each other: TLS, SASL, both or neither, as the properties of librdkafka.
//!
//! Secrets are values here; where they come from is the caller's. Debug shows none of them.

use std::fmt;
use std::path::PathBuf;

/// Nothing set is plain text without a login.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KafkaSecurity {
    pub tls: Option<KafkaTls>,
    pub login: Option<SaslLogin>,
}

/// TLS. The broker's certificate is always checked, its name included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KafkaTls {
    /// Authorities of the brokers, as PEM; those of the system if there is none.
    pub authorities: Option<PathBuf>,
    /// Our certificate and its private key, as PEM, for brokers that want to see one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslLogin {
    pub mechanism: SaslMechanism,
    pub username: String,
    pub password: String,
}

/// How the password is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslMechanism {
    /// As it is.
    Plain,
    /// As a proof that it is known.
    ScramSha256,
    /// The same with a longer hash.
    ScramSha512,
}

impl SaslMechanism {
    /// By Kafka's word for it.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "PLAIN" => Some(Self::Plain),
            "SCRAM-SHA-256" => Some(Self::ScramSha256),
            "SCRAM-SHA-512" => Some(Self::ScramSha512),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl fmt::Debug for SaslLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslLogin").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

impl KafkaSecurity {
    /// In the words of librdkafka. Empty if nothing is set, so that a library without TLS takes it.
    pub fn properties(&self) -> Vec<(&'static str, String)> {
        let protocol = match (&self.tls, &self.login) {
            (None, None) => return Vec::new(),
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        let mut properties = vec![("security.protocol", protocol.to_owned())];
        if let Some(tls) = &self.tls {
            properties.push(("enable.ssl.certificate.verification", "true".to_owned()));
            properties.push(("ssl.endpoint.identification.algorithm", "https".to_owned()));
            if let Some(authorities) = &tls.authorities {
                properties.push(("ssl.ca.location", authorities.display().to_string()));
            }
            if let Some((certificate, key)) = &tls.identity {
                properties.push(("ssl.certificate.location", certificate.display().to_string()));
                properties.push(("ssl.key.location", key.display().to_string()));
            }
        }
        if let Some(login) = &self.login {
            properties.push(("sasl.mechanism", login.mechanism.word().to_owned()));
            properties.push(("sasl.username", login.username.clone()));
            properties.push(("sasl.password", login.password.clone()));
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(mechanism: SaslMechanism) -> SaslLogin {
        SaslLogin { mechanism, username: "gantry".into(), password: "hunter2".into() }
    }

    #[test]
    fn tls_and_sasl_choose_the_protocol_and_nothing_is_said_without_them() {
        let tls = || Some(KafkaTls::default());
        for (security, expected) in [
            (KafkaSecurity::default(), None),
            (KafkaSecurity { tls: tls(), login: None }, Some("ssl")),
            (KafkaSecurity { tls: None, login: Some(login(SaslMechanism::ScramSha256)) }, Some("sasl_plaintext")),
            (KafkaSecurity { tls: tls(), login: Some(login(SaslMechanism::Plain)) }, Some("sasl_ssl")),
        ] {
            let properties = security.properties();
            let protocol = properties.iter().find(|(name, _)| *name == "security.protocol");
            assert_eq!(protocol.map(|(_, value)| value.as_str()), expected);
        }
    }

    #[test]
    fn files_names_and_passwords_are_given_in_the_librarys_words() {
        let security = KafkaSecurity {
            tls: Some(KafkaTls {
                authorities: Some("/ca.pem".into()),
                identity: Some(("/crt.pem".into(), "/key.pem".into())),
            }),
            login: Some(login(SaslMechanism::ScramSha512)),
        };
        let properties = security.properties();
        for (name, value) in [
            ("security.protocol", "sasl_ssl"),
            ("enable.ssl.certificate.verification", "true"),
            ("ssl.endpoint.identification.algorithm", "https"),
            ("ssl.ca.location", "/ca.pem"),
            ("ssl.certificate.location", "/crt.pem"),
            ("ssl.key.location", "/key.pem"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.username", "gantry"),
            ("sasl.password", "hunter2"),
        ] {
            assert!(properties.contains(&(name, value.to_owned())), "{name}");
        }
        assert!(!format!("{security:?}").contains("hunter2"));
    }

    #[test]
    fn mechanisms_have_kafkas_names() {
        for mechanism in [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512] {
            assert_eq!(SaslMechanism::from_word(mechanism.word()), Some(mechanism));
        }
        assert_eq!(SaslMechanism::from_word("GSSAPI"), None);
    }
}
