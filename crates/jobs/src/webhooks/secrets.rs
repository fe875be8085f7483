//! The secrets that sign: derived from one key of the server, or credentials of the tenant by name.
//!
//! A derived secret is the HMAC of tenant, subscription and generation under the server's root key. So nothing secret is in
//! the store (HOOK-1), a copy of the store forges nothing, and what was shown once can be made again for every delivery.
//! Whoever loses the root key has lost all derived secrets: receivers then need new ones (`rotate`).
//!
//! Invariant: different subscriptions never have the same secret, whatever their tenants are called, because each part is
//! preceded by its length.

use base::SaturatingFrom as _;
use contract::error::{ErrorCode, Refusal};
use contract::hex::lower_hex;
use contract::ids::TenantId;
use policy::message_code;
use ports::clock::UnixMillis;
use ports::secret_source::SecretValue;
use ports::webhook_store::{SigningSecret, WebhookId, WebhookRecord};

use super::Webhooks;

/// What every derived secret begins with, so that scanners of repositories can recognise one.
const PREFIX: &str = "whsec_";

/// The secret of a subscription, derived anew.
pub(super) fn derived(root: &SecretValue, tenant: &TenantId, webhook: WebhookId, generation: u32) -> String {
    let tenant = tenant.as_str().as_bytes();
    let length = u64::saturating_from(tenant.len()).to_be_bytes();
    let parts: &[&[u8]] = &[b"gantry webhook v1", &length, tenant, webhook.0.as_bytes(), &generation.to_be_bytes()];
    format!("{PREFIX}{}", lower_hex(&message_code(root.expose(), parts)))
}

impl Webhooks {
    /// The secrets that sign for a subscription now: its own, and its former one as long as that is valid.
    pub(super) async fn secrets_of(
        &self,
        webhook: &WebhookRecord,
        now: UnixMillis,
    ) -> Result<Vec<SecretValue>, Refusal> {
        let mut secrets = vec![self.secret_of(webhook, &webhook.secret).await?];
        if let Some(former) = webhook.former.as_ref().filter(|former| now < former.until) {
            // A former credential that was taken away signs no more; that is no reason not to deliver.
            secrets.extend(self.secret_of(webhook, &former.secret).await.ok());
        }
        Ok(secrets)
    }

    async fn secret_of(&self, webhook: &WebhookRecord, secret: &SigningSecret) -> Result<SecretValue, Refusal> {
        match secret {
            SigningSecret::Generated { generation } => {
                let text = derived(&self.parts.root, &webhook.tenant, webhook.id, *generation);
                // It is short enough; were it not, nothing else may sign in its place.
                SecretValue::new(text).ok_or_else(|| Refusal::new(ErrorCode::E3000, "the secret could not be made"))
            }
            SigningSecret::Named(name) => self.named(&webhook.tenant, name).await,
        }
    }

    /// A credential of the tenant.
    pub(super) async fn named(&self, tenant: &TenantId, name: &str) -> Result<SecretValue, Refusal> {
        let found = self.parts.secrets.secret(tenant, name).await.and_then(|secret| {
            let trimmed = secret.expose().trim_ascii();
            SecretValue::new(trimmed)
                .filter(|secret| !secret.expose().is_empty())
                .ok_or(ports::secret_source::SecretError::Missing)
        });
        found.map_err(|error| error.refusal(name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uuid::Uuid;

    use super::*;

    #[test]
    fn each_subscription_and_generation_has_a_secret_of_its_own() {
        let tenants: [TenantId; 3] = ["a", "ab", "acme"].map(|name| name.parse().unwrap());
        let mut seen = BTreeSet::new();
        for root in ["one", "two"] {
            for tenant in &tenants {
                for (id, generation) in [(1, 1), (1, 2), (2, 1)] {
                    let id = WebhookId(Uuid::from_u128(id));
                    let root = SecretValue::new(root).unwrap();
                    let made = derived(&root, tenant, id, generation);
                    assert_eq!(made, derived(&root, tenant, id, generation));
                    assert!(made.starts_with("whsec_") && made.len() == 70);
                    assert!(seen.insert(made));
                }
            }
        }
    }
}
