//! What one reader may see, now, of what a call of a tool came to before: in the status, the events and the ledger's line of it.
//!
//! Whatever activations and policies mask for the reader by now is masked. The parameters of the call may be gone, so a policy
//! that looks at them hears of none.
//!
//! Invariant READ-1: where it cannot be found out what is to be masked, nothing of the tool's words is shown.

use contract::canonical;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::VersionSpec;
use policy::Obligation;
use serde_json::{Map, Value};

use super::authorize::origin_of;
use super::conditions::Conditions;
use super::shown_output::obliged;
use crate::access::{AccessSnapshot, Call};
use crate::identity::Principal;
use crate::invoke::Kernel;

/// What stands in place of words of which nothing may be shown.
const WITHHELD: &str = "[REDACTED]";

/// What is masked for a reader.
#[derive(Debug)]
pub(crate) struct ReaderMask<'k> {
    kernel: &'k Kernel,
    tenant: TenantId,
    /// `None`: it could not be found out (READ-1).
    conditions: Option<Conditions>,
}

impl<'k> ReaderMask<'k> {
    /// For what a tool said in a call of this tenant.
    pub(crate) async fn of(kernel: &'k Kernel, reader: &Principal, tenant: &TenantId, tool: &ToolId) -> Self {
        let access = kernel.access().snapshot().clone();
        let mut conditions = Conditions::default();
        let hands = std::iter::once(reader.subject()).chain(reader.chain().iter().map(|link| &link.sub));
        for hand in hands {
            // Out of reach is out of calling; what was called before is still its own.
            if let Ok(Some(overrides)) = access.view(reader.tenant(), hand).reach(tool, || SideEffectPolicy::Pure) {
                conditions.add_overrides(overrides);
            }
        }
        let conditions = match obligations(kernel, &access, reader, tenant, tool).await {
            Ok(obligations) => {
                obligations.iter().for_each(|obligation| conditions.add(obligation));
                Some(conditions)
            }
            Err(refusal) => {
                tracing::warn!(code = %refusal.code, %tool, "what is masked for a reader could not be found out");
                None
            }
        };
        Self { kernel, tenant: reader.tenant().clone(), conditions }
    }

    /// Words of the tool, as the reader may see them.
    pub(crate) fn mask(&self, words: &mut Value) {
        let Some(conditions) = &self.conditions else {
            *words = WITHHELD.into();
            return;
        };
        if conditions.masks() {
            let said = words.take();
            let own = self.kernel.parts.redactor.of_tenant(&self.tenant);
            *words = obliged(own.as_deref().unwrap_or(&*self.kernel.parts.redactor), conditions, &said, said.clone());
        }
    }

    /// The same for a text.
    pub(crate) fn mask_text(&self, text: &mut String) {
        let mut words = Value::String(std::mem::take(text));
        self.mask(&mut words);
        if let Value::String(shown) = words {
            *text = shown;
        }
    }

    /// The same for the parts of an error that hold words of the tool.
    pub(crate) fn mask_error(&self, error: &mut Value) {
        error.get_mut("details").into_iter().for_each(|details| self.mask(details));
    }
}

/// What the policies demand of the reader if it called the tool now. Nothing where they deny it: what was called before is still
/// its own.
async fn obligations(
    kernel: &Kernel,
    access: &AccessSnapshot,
    reader: &Principal,
    tenant: &TenantId,
    tool: &ToolId,
) -> Result<Vec<Obligation>, Refusal> {
    if !kernel.access().has_policies(access, reader.tenant()) {
        return Ok(Vec::new());
    }
    let now = kernel.clock().now();
    let registry = kernel.registry().snapshot().clone();
    let found = [tenant, reader.tenant()].into_iter().find_map(|tenant| registry.find(tenant, tool.as_str()));
    let newest = found.and_then(|found| found.resolve(&VersionSpec::parse("").ok()?, now).ok());
    // A version that was taken away still says what the tool is.
    let version = newest.or_else(|| found?.versions().last());
    let gone = || Refusal::new(ErrorCode::E3101, format!("`{tool}` is not known any more"));
    let version = version.ok_or_else(gone)?;
    let arguments = Value::Object(Map::new());
    let origin = origin_of(kernel, version)?;
    let call = Call {
        caller: reader,
        tool: version,
        origin: origin.as_deref(),
        arguments_digest: canonical::digest(&arguments),
        arguments: &arguments,
        now,
    };
    match kernel.access().decide(access, call).await {
        Ok(decision) => Ok(decision.obligations.clone()),
        Err(refusal) if refusal.code == ErrorCode::E3206 => Ok(Vec::new()),
        Err(refusal) => Err(refusal),
    }
}
