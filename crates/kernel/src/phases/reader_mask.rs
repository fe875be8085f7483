//! What one reader may see, now, of what a call of a tool came to before: in the status, the events and the ledger's line of it,
//! and in what of it waits at a door.
//!
//! Whatever activations and policies mask for the reader by now is masked. The parameters of the call may be gone, so a policy
//! that looks at them hears of none.
//!
//! Invariants
//! - RMASK-1: where it cannot be found out what is to be masked, nothing of the tool's words is shown.
//! - RMASK-2: whoever the layers deny the tool is shown nothing of its words, only where the call stands; the owner of a call whose
//!   right to make it was withdrawn is no exception. A denial has no obligations that could be kept. (decision 0093)
//! - RMASK-3: what is hidden in the details of an error is hidden in its sentences.
//!
//! Not here: tokens. Whoever owns a call or may look at all jobs reads with every token of its own, whichever tools that names.

use std::sync::Arc;

use contract::canonical;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::VersionSpec;
use policy::{Action, WhyUnavailable};
use serde_json::{Map, Value};

use super::authorize::origin_of;
use super::conditions::Conditions;
use super::shown_output::{mask_document_in, obliged};
use crate::access::DecisionRequest;
use crate::discretion;
use crate::hidden_values::HiddenValues;
use crate::identity::Principal;
use crate::invoke::Kernel;

/// What stands in place of words of which nothing may be shown.
const WITHHELD: &str = "[REDACTED]";
/// What stands in place of the message of an error then.
const MESSAGE_WITHHELD: &str =
    "the call failed; what the tool said about it is not shown to whoever may not call the tool now";
/// Sentences of an error that may hold words of the tool: in envelopes, and in the ledger.
const SENTENCES: [&str; 3] = ["message", "resolution", "hint"];

/// What is masked for a reader.
#[derive(Debug)]
pub struct ReaderMask<'k> {
    kernel: &'k Kernel,
    tenant: TenantId,
    /// `None`: it could not be found out (RMASK-1), or the reader is denied the tool (RMASK-2).
    conditions: Option<Conditions>,
}

impl<'k> ReaderMask<'k> {
    /// For what a tool said in a call of this tenant; `owns` says whether the call was the reader's own.
    pub async fn of(kernel: &'k Kernel, reader: &Principal, tenant: &TenantId, tool: &ToolId, owns: bool) -> Self {
        let conditions = match conditions_of(kernel, reader, tenant, tool, owns).await {
            Ok(conditions) => conditions,
            Err(refusal) => {
                tracing::warn!(code = %refusal.code, %tool, error = &refusal as &dyn std::error::Error, "what is masked for a reader could not be found out");
                None
            }
        };
        Self { kernel, tenant: reader.tenant().clone(), conditions }
    }

    /// For somebody who is not welcome any more.
    pub fn withholding(kernel: &'k Kernel, tenant: &TenantId) -> Self {
        Self { kernel, tenant: tenant.clone(), conditions: None }
    }

    /// Is nothing of the tool's words shown?
    pub fn withholds(&self) -> bool {
        self.conditions.is_none()
    }

    /// Is text shown as it was said? Text has no members that could be masked.
    pub(crate) fn shows_text(&self) -> bool {
        self.conditions.as_ref().is_some_and(|conditions| !conditions.hides_members())
    }

    /// Words of the tool, as the reader may see them.
    pub fn mask(&self, words: &mut Value) {
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
    pub fn mask_text(&self, text: &mut String) {
        let mut words = Value::String(std::mem::take(text));
        self.mask(&mut words);
        if let Value::String(shown) = words {
            *text = shown;
        }
    }

    /// The same for the parts of an error that hold words of the tool (RMASK-3). Its code stays. Says which values were hidden, for
    /// what is told beside it.
    pub(crate) fn mask_error(&self, error: &mut Value) -> HiddenValues {
        let Some(members) = error.as_object_mut() else { return HiddenValues::None };
        let Some(conditions) = &self.conditions else {
            members.get_mut("details").into_iter().for_each(|details| *details = WITHHELD.into());
            SENTENCES.iter().for_each(|name| drop(members.remove(*name)));
            members.insert("message".to_owned(), MESSAGE_WITHHELD.into());
            return HiddenValues::None;
        };
        if !conditions.masks() {
            return HiddenValues::None;
        }
        let hidden = members.get_mut("details").map_or(HiddenValues::None, |details| {
            let said = details.clone();
            self.mask(details);
            discretion::hidden(&said, details)
        });
        for sentence in SENTENCES {
            let Some(Value::String(sentence)) = members.get_mut(sentence) else { continue };
            mask_document_in(sentence, |mut words| {
                self.mask(&mut words);
                words
            });
            if let Some(rest) = hidden.taken_out_of_text(sentence) {
                *sentence = rest;
            }
        }
        hidden
    }
}

impl ReaderMask<'_> {
    /// An error, and a text that is told beside it: what is hidden in the one is hidden in the other (READ-3).
    pub fn mask_told(&self, error: Option<&mut Value>, beside: Option<&mut String>) {
        let hidden = error.map_or(HiddenValues::None, |error| self.mask_error(error));
        if let Some(text) = beside {
            self.mask_text(text);
            if let Some(rest) = hidden.taken_out_of_text(text) {
                *text = rest;
            }
        }
    }
}

impl Kernel {
    /// What a reader may see, now, of a text that a tool of its tenant said in an earlier call, as a door has kept it. JSON is
    /// masked as what it says. Nothing of it where it cannot be found out what is to be masked (RMASK-1).
    pub async fn shown_to_reader(&self, reader: &Principal, tool: &str, said: Arc<str>) -> Arc<str> {
        let Ok(tool) = tool.parse::<ToolId>() else { return WITHHELD.into() };
        // What a door keeps for a reader is the answer to a call of its own.
        let mask = ReaderMask::of(self, reader, reader.tenant(), &tool, true).await;
        if mask.conditions.as_ref().is_some_and(|conditions| !conditions.masks()) {
            return said;
        }
        let words = serde_json::from_str::<Value>(&said).ok().filter(|words| words.is_object() || words.is_array());
        let mut words = words.unwrap_or_else(|| Value::String((*said).to_owned()));
        mask.mask(&mut words);
        match words {
            Value::String(shown) => shown.into(),
            shown => shown.to_string().into(),
        }
    }

    /// The same for bytes that nobody can look into (SHOWN-3): they are shown where nothing is masked, and else the words that
    /// stand in their place.
    pub async fn binary_shown_to_reader(
        &self,
        reader: &Principal,
        tool: &str,
        said: Arc<str>,
    ) -> Result<Arc<str>, &'static str> {
        let tool = tool.parse::<ToolId>().map_err(|_| WITHHELD)?;
        let mask = ReaderMask::of(self, reader, reader.tenant(), &tool, true).await;
        if mask.conditions.as_ref().is_some_and(|conditions| !conditions.masks()) { Ok(said) } else { Err(WITHHELD) }
    }
}

/// What tightens a call of the reader, if it made one now. `None`: it may make none (RMASK-2).
async fn conditions_of(
    kernel: &Kernel,
    reader: &Principal,
    tenant: &TenantId,
    tool: &ToolId,
    owns: bool,
) -> Result<Option<Conditions>, Refusal> {
    let access = kernel.access().snapshot().clone();
    let registry = kernel.registry().snapshot().clone();
    let now = kernel.clock().now();
    let found = [tenant, reader.tenant()].into_iter().find_map(|tenant| registry.find(tenant, tool.as_str()));
    let newest = found.and_then(|found| found.resolve(&VersionSpec::parse("").ok()?, now).ok());
    // A version that was taken away still says what the tool is.
    let version = newest.or_else(|| found?.versions().last());
    let mut conditions = Conditions::default();
    let subjects = std::iter::once(reader.subject()).chain(reader.chain().iter().map(|link| &link.sub));
    for subject in subjects {
        let view = access.view(reader.tenant(), subject);
        let effects = || version.map_or(SideEffectPolicy::Irreversible, |version| version.manifest.side_effect_policy);
        // Whoever may look at all jobs need not have been given their tools.
        let given = reader.may(Action::SeeJobs) || version.is_none_or(|version| view.has(&version.tenant, tool));
        let aliases = version.map_or(&[][..], |version| &version.aliases);
        match view.reach(tool, aliases, effects) {
            Ok(overrides) if given => overrides.into_iter().for_each(|overrides| conditions.add_overrides(overrides)),
            Err(why) if why != WhyUnavailable::DisabledForAgent && reader.may(Action::SeeJobs) => {}
            Ok(_) | Err(_) => return Ok(None),
        }
    }
    if !kernel.access().has_policies(&access, reader.tenant()) {
        return Ok(Some(conditions));
    }
    let gone = || Refusal::new(ErrorCode::E3101, format!("`{tool}` is not known any more"));
    let version = version.ok_or_else(gone)?;
    let arguments = Value::Object(Map::new());
    let origin = origin_of(kernel, version)?;
    let call = DecisionRequest {
        caller: reader,
        tool: version,
        origin: origin.as_deref(),
        arguments_digest: canonical::digest(&arguments),
        arguments: &arguments,
        now,
    };
    let obligations = kernel.access().demanded_of_reader(&access, call, owns).await?;
    Ok(obligations.map(|obligations| {
        obligations.iter().for_each(|obligation| conditions.add(obligation));
        conditions
    }))
}
