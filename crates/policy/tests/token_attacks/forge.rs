//! The forger's workshop: honest keys, a stranger's key, and tokens with any header, claims and signature.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use gantry_policy::{KeySet, Role, SigningKey, TokenIssuerKeys, TokenTrust, VerifyingKey};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

pub(crate) const RSA_PUBLIC: &str = include_str!("../../../../testdata/keys/rsa_public.pem");
const RSA_PRIVATE: &str = include_str!("../../../../testdata/keys/rsa_private.pem");
const P256_PUBLIC: &str = include_str!("../../../../testdata/keys/p256_public.pem");
const P256_PRIVATE: &str = include_str!("../../../../testdata/keys/p256_private.pem");

/// When everything happens, in seconds since the epoch.
pub(crate) const NOW: i64 = 1_800_000_000;
/// Stands in every token and in no answer.
pub(crate) const MARK: &str = "m4rk3r";
/// The other issuer.
pub(crate) const ISSUER: &str = "https://issuer.example";

pub(crate) struct Forge {
    pub(crate) own: SigningKey,
    pub(crate) stranger: SigningKey,
    rsa: RsaKeyPair,
    random: SystemRandom,
}

impl Forge {
    pub(crate) fn new() -> Self {
        Self {
            own: SigningKey::from_seed(&[1; 32]),
            stranger: SigningKey::from_seed(&[2; 32]),
            rsa: RsaKeyPair::from_pkcs8(&der(RSA_PRIVATE)).unwrap(),
            random: SystemRandom::new(),
        }
    }

    pub(crate) fn trust(&self) -> TokenTrust {
        let mut trust = TokenTrust::own(self.own.verifying_key());
        let keys = KeySet::new([
            VerifyingKey::from_public_pem(RSA_PUBLIC, "rsa-1").unwrap(),
            VerifyingKey::from_public_pem(P256_PUBLIC, "ec-1").unwrap(),
        ]);
        trust.issuers.push(TokenIssuerKeys { name: ISSUER.to_owned(), keys: keys.unwrap(), roles: vec![Role::Agent] });
        trust
    }

    // ------------------------------------------------------------------------------------------------------- tokens

    /// A token as this server makes it.
    pub(crate) fn own(&self, claims: &Value) -> String {
        self.with_header(&self.header(), claims)
    }

    pub(crate) fn header(&self) -> Value {
        json!({ "alg": "EdDSA", "typ": "JWT", "kid": self.own.id() })
    }

    pub(crate) fn header_with(&self, name: &str, value: Value) -> Value {
        let mut header = self.header();
        header[name] = value;
        header
    }

    /// Signed with the own key, whatever the header says.
    pub(crate) fn with_header(&self, header: &Value, claims: &Value) -> String {
        self.raw(header.to_string().as_bytes(), claims.to_string().as_bytes())
    }

    /// Signed with the own key, whatever it is.
    pub(crate) fn raw(&self, header: &[u8], claims: &[u8]) -> String {
        signed(header, claims, |message| self.own.sign(message).to_vec())
    }

    /// RS256 by the other issuer.
    pub(crate) fn rsa(&self, claims: &Value) -> String {
        self.rsa_as(&json!({ "alg": "RS256", "kid": "rsa-1" }), claims)
    }

    pub(crate) fn rsa_as(&self, header: &Value, claims: &Value) -> String {
        sealed(header, claims, |message| {
            let mut signature = vec![0; self.rsa.public().modulus_len()];
            self.rsa.sign(&RSA_PKCS1_SHA256, &self.random, message, &mut signature).unwrap();
            signature
        })
    }

    /// ES256 by the other issuer.
    pub(crate) fn ec(&self, claims: &Value) -> String {
        self.ec_as(&json!({ "alg": "ES256", "kid": "ec-1" }), claims)
    }

    pub(crate) fn ec_as(&self, header: &Value, claims: &Value) -> String {
        sealed(header, claims, |message| self.ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING, message))
    }

    /// ES256 with the signature in DER, as X.509 has it and JOSE does not.
    pub(crate) fn ec_in_der(&self, claims: &Value) -> String {
        let header = json!({ "alg": "ES256", "kid": "ec-1" });
        sealed(&header, claims, |message| self.ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, message))
    }

    fn ecdsa(&self, algorithm: &'static EcdsaSigningAlgorithm, message: &[u8]) -> Vec<u8> {
        let key = EcdsaKeyPair::from_pkcs8(algorithm, &der(P256_PRIVATE), &self.random).unwrap();
        key.sign(&self.random, message).unwrap().as_ref().to_vec()
    }
}

/// Claims of this server's own token.
pub(crate) fn our_claims() -> Value {
    json!({
        "iss": "gantry", "aud": "gantry", "sub": format!("did:key:z6Mk{MARK}"), "exp": NOW + 60, "nbf": NOW, "iat": NOW,
        "jti": format!("jti-{MARK}"), "tenant": "acme", "roles": ["agent"],
        "tools": [{"tool_id": "demo.*", "version_range": "^1.0.0"}], "scopes": ["tool:calculator"],
    })
}

/// The same from the other issuer.
pub(crate) fn their_claims() -> Value {
    let mut claims = our_claims();
    claims["iss"] = json!(ISSUER);
    claims
}

pub(crate) fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = our_claims();
    claims[name] = value;
    claims
}

pub(crate) fn claims_without(name: &str) -> Value {
    let mut claims = our_claims();
    claims.as_object_mut().unwrap().remove(name).unwrap();
    claims
}

/// Any header, claims and signature.
pub(crate) fn sealed(header: &Value, claims: &Value, seal: impl Fn(&[u8]) -> Vec<u8>) -> String {
    signed(header.to_string().as_bytes(), claims.to_string().as_bytes(), seal)
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A token with another signature, made from the one it has.
pub(crate) fn resigned(token: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> String {
    let (signed, signature) = token.rsplit_once('.').unwrap();
    format!("{signed}.{}", encode(change(URL_SAFE_NO_PAD.decode(signature).unwrap())))
}

fn signed(header: &[u8], claims: &[u8], seal: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", encode(header), encode(claims));
    let signature = encode(seal(message.as_bytes()));
    format!("{message}.{signature}")
}

fn der(pem: &str) -> Vec<u8> {
    STANDARD.decode(pem.lines().filter(|line| !line.starts_with('-')).collect::<String>()).unwrap()
}
