//! Authorities outside this process, as the configuration names them: another issuer, hosts of `did:web`, a policy engine.
//!
//! From settings to adapters, and nothing more: nobody is contacted here, so `gantry doctor` can do it as well.

use std::sync::Arc;

use authorities::{
    AuthorityClient, AuthorizeEngine, BearerToken, CheckPermissionEngine, DidWeb, EngineSettings, EngineSetupError,
    KeySetFile, KeySetUrl, OpaEngine,
};
use kernel::ExternalIssuer;
use outbound::{AddressGuard, GateLimits, HostResolver, SystemResolver};
use policy::VerifyingKey;
use ports::clock::Clock;
use ports::did_resolver::DidResolver;
use ports::key_source::KeySource;
use ports::policy_engine::PolicyEngine;

use crate::config::GantryConfig;
use crate::config::identity::{KeySetPlace, TrustedIssuer};
use crate::config::key;
use crate::config::policy::{EngineChoice, EngineShape};
use crate::config::secret_text::SecretText;
use crate::failure::CommandFailure;
use crate::public_key_file;

/// Everybody outside whose word counts.
#[derive(Debug)]
pub(crate) struct OutsideAuthorities {
    pub(crate) issuer: Option<ExternalIssuer>,
    pub(crate) did_resolver: Option<Arc<dyn DidResolver>>,
    pub(crate) engine: Option<Arc<dyn PolicyEngine>>,
}

impl OutsideAuthorities {
    /// As the configuration says, or what is wrong with it.
    pub(crate) fn from_config(config: &GantryConfig, clock: &Arc<dyn Clock>) -> Result<Self, CommandFailure> {
        let identity = &config.identity;
        if identity.trusted.is_none() && identity.did_web_hosts.is_empty() && config.policy.engine.is_none() {
            return Ok(Self { issuer: None, did_resolver: None, engine: None });
        }
        let out = AuthorityClient::new().map_err(|error| CommandFailure::new(error.to_string()))?;
        Ok(Self {
            issuer: identity.trusted.as_ref().map(|trusted| issuer(trusted, &out)).transpose()?,
            did_resolver: did_web(config, clock)?,
            engine: config.policy.engine.as_ref().map(|choice| engine(choice, &out)).transpose()?,
        })
    }
}

/// The keys that were given as files, each under the name of its file and under its thumbprint.
pub(crate) fn trusted_keys(trusted: &TrustedIssuer) -> Result<Vec<VerifyingKey>, CommandFailure> {
    let mut keys: Vec<VerifyingKey> = Vec::new();
    for path in &trusted.key_files {
        let name = public_key_file::name_of(path).ok_or_else(|| {
            unusable("identity", "trusted_keys", &format!("`{}` is not the name of a file", path.display()))
        })?;
        let text = public_key_file::text_of(path)?;
        let key = public_key_file::key_in(path, &text, name)?;
        let thumbprint = key.thumbprint();
        let again = public_key_file::key_in(path, &text, &thumbprint)?;
        for key in [key, again] {
            match keys.iter().find(|other| other.id() == key.id()) {
                None => keys.push(key),
                Some(same) if same.thumbprint() == thumbprint => {}
                Some(_) => {
                    let problem = format!("two files have different keys under the name `{name}`");
                    return Err(unusable("identity", "trusted_keys", &problem));
                }
            }
        }
    }
    Ok(keys)
}

fn issuer(trusted: &TrustedIssuer, out: &AuthorityClient) -> Result<ExternalIssuer, CommandFailure> {
    let source: Option<Arc<dyn KeySource>> = match &trusted.key_set {
        None => None,
        Some(KeySetPlace::File(path)) => Some(Arc::new(KeySetFile::new(path))),
        Some(KeySetPlace::Url(url)) => {
            let url = KeySetUrl::new(out, url);
            Some(Arc::new(url.map_err(|error| unusable("identity", "jwks_url", &error.to_string()))?))
        }
    };
    Ok(ExternalIssuer {
        name: trusted.name.clone(),
        roles: trusted.roles.clone(),
        keys: trusted_keys(trusted)?,
        source,
        refresh_every: trusted.refresh_every,
    })
}

fn did_web(config: &GantryConfig, clock: &Arc<dyn Clock>) -> Result<Option<Arc<dyn DidResolver>>, CommandFailure> {
    let hosts = &config.identity.did_web_hosts;
    if hosts.is_empty() {
        return Ok(None);
    }
    let names: Arc<dyn HostResolver> = Arc::new(SystemResolver);
    let guard = AddressGuard::for_listed_hosts(&config.egress.open_networks, GateLimits::default(), names);
    let resolver = DidWeb::new(guard, hosts, Arc::clone(clock))
        .map_err(|error| unusable("identity", "did_web_hosts", &error.to_string()))?;
    Ok(Some(Arc::new(resolver)))
}

fn engine(choice: &EngineChoice, out: &AuthorityClient) -> Result<Arc<dyn PolicyEngine>, CommandFailure> {
    let token = choice.token.as_ref().map(SecretText::expose).map(BearerToken::new).transpose();
    let mut settings = EngineSettings::new(&choice.url);
    settings.timeout = choice.timeout;
    settings.token = token.map_err(|error| unusable("policy", "engine_token", &error.to_string()))?;
    let engine: Result<Arc<dyn PolicyEngine>, EngineSetupError> = match &choice.shape {
        EngineShape::Authorize => AuthorizeEngine::new(out, &settings).map(|engine| Arc::new(engine) as _),
        EngineShape::CheckPermission => CheckPermissionEngine::new(out, &settings).map(|engine| Arc::new(engine) as _),
        EngineShape::Opa { path } => OpaEngine::new(out, &settings, path).map(|engine| Arc::new(engine) as _),
    };
    engine.map_err(|error| {
        let key = match error {
            EngineSetupError::Path { .. } => "engine_path",
            EngineSetupError::Address(_) | EngineSetupError::Timeout => "engine_url",
        };
        unusable("policy", key, &error.to_string())
    })
}

fn unusable(section: &str, name: &str, problem: &str) -> CommandFailure {
    CommandFailure::new(format!("{}: {problem}", key::title(section, name)))
        .hint("every key is explained in docs/configuration.md")
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{Role, SigningKey};
    use std::path::PathBuf;
    use std::time::Duration;

    fn trusted(key_files: Vec<PathBuf>, key_set: Option<KeySetPlace>) -> TrustedIssuer {
        TrustedIssuer {
            name: "them".into(),
            roles: vec![Role::Agent],
            key_files,
            key_set,
            refresh_every: Duration::from_secs(300),
        }
    }

    #[test]
    fn a_key_is_known_by_its_file_and_by_its_thumbprint() {
        let dir = tempfile::tempdir().unwrap();
        let pem = SigningKey::from_seed(&[1; 32]).verifying_key().to_public_pem().unwrap();
        let other = SigningKey::from_seed(&[2; 32]).verifying_key().to_public_pem().unwrap();
        let path = dir.path().join("issuer-2026.pem");
        std::fs::write(&path, pem).unwrap();
        let keys = trusted_keys(&trusted(vec![path.clone(), path.clone()], None)).unwrap();
        assert_eq!(keys.iter().map(VerifyingKey::id).collect::<Vec<_>>(), ["issuer-2026", &keys[0].thumbprint()]);
        // Another key under the same name is a mistake that must not be settled by the order of a list.
        std::fs::create_dir(dir.path().join("b")).unwrap();
        let twin = dir.path().join("b/issuer-2026.pem");
        std::fs::write(&twin, other).unwrap();
        assert!(trusted_keys(&trusted(vec![path, twin], None)).unwrap_err().message.contains("issuer-2026"));
    }

    #[test]
    fn what_cannot_be_asked_is_told_with_its_key() {
        let out = AuthorityClient::new().unwrap();
        let url = |url: &str| issuer(&trusted(Vec::new(), Some(KeySetPlace::Url(url.into()))), &out);
        assert!(url("https://issuer.example.com/keys").is_ok());
        assert!(url("http://issuer.example.com/keys").unwrap_err().message.contains("[identity] jwks_url"));
        let missing = trusted_keys(&trusted(vec!["/nowhere/at/all.pem".into()], None)).unwrap_err();
        assert!(missing.message.contains("all.pem"), "{missing:?}");
        let choice = |shape, url: &str, token: Option<&str>| EngineChoice {
            shape,
            url: url.into(),
            timeout: Duration::from_millis(500),
            token: token.map(|token| token.to_owned().into()),
        };
        assert!(engine(&choice(EngineShape::Authorize, "https://a.example.com", Some("t")), &out).is_ok());
        for (choice, word) in [
            (choice(EngineShape::CheckPermission, "ftp://a", None), "engine_url"),
            (choice(EngineShape::Authorize, "https://a", Some("s3 cret")), "engine_token"),
            (choice(EngineShape::Opa { path: "../x".into() }, "https://a", None), "engine_path"),
        ] {
            let failure = engine(&choice, &out).unwrap_err();
            assert!(failure.message.contains(word) && !failure.message.contains("cret"), "{failure:?}");
        }
    }
}
