//! Calls whose process died between intent and settlement. (DESIGN §5)
//!
//! Tools that are safe to repeat are set free: whoever makes the call again, the caller with its key or the queue with its
//! job, runs it again. For all others nobody knows whether the effect happened, and that is what is written: the key stays
//! taken, and a person decides ([`Kernel::resolve_invocation`]). Nothing is ever repeated blindly.

use contract::envelope::InvocationStatus;
use contract::error::{ErrorCode, Refusal};
use contract::ids::InvocationId;
use policy::Action;
use ports::actor::Actor;
use ports::audit_sink::{AuditAction, AuditRecord};
use ports::ledger::{EntryFilter, EntryState, LedgerEntry, SettleOutcome, Settlement};
use ports::observer::LedgerEvent;
use ports::registry_store::StoreError;
use serde_json::Value;

use super::kept_outcome::{KeptDoubt, KeptOutcome};
use super::settlement::INTERRUPTED;
use crate::identity::Principal;
use crate::invoke::Kernel;
use crate::phases::ReaderMask;
use crate::recorder::RecordSlot;

/// How many are looked at in one go.
const AT_ONCE: usize = 100;
/// Most lines of one page.
const PAGE_MAX: usize = 200;
/// Where a line holds what the tool answered, and where it holds an error.
const ANSWERS: [&str; 2] = ["/success/result", "/resolved/result"];
const ERRORS: [&str; 2] = ["/failure", "/unknown"];

/// What recovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// Calls of which nobody knows whether they had their effect.
    pub indeterminate: usize,
    /// Calls that were set free, because making them again does no harm.
    pub set_free: usize,
}

impl Kernel {
    /// Settles calls whose process is gone. To be done before the doors open, and from time to time after.
    pub async fn recover(&self) -> Result<RecoveryReport, StoreError> {
        let books = &self.parts.books;
        let mut recovered = RecoveryReport::default();
        if books.others_may_come_back() {
            return Ok(recovered);
        }
        // What this process knows better than anybody goes first.
        books.pay_once().await;
        loop {
            let lapsed = books.ledger().lapsed(AT_ONCE).await?;
            if lapsed.is_empty() {
                return Ok(recovered);
            }
            for entry in lapsed {
                // What cannot be recorded is not settled: it stays as it is, and is looked at again.
                let Ok(slot) = self.parts.recorder.reserve().await else { return Ok(recovered) };
                let safe = entry.intent.effects.is_safe_to_retry();
                let state = if safe { EntryState::FailedClean } else { EntryState::Unknown };
                let ended = Refusal::new(ErrorCode::E3413, "the server ended while the call ran");
                let outcome = match state {
                    EntryState::Unknown => KeptDoubt::of(&ended, INTERRUPTED).write(),
                    _ => KeptOutcome::failure(&ended).write(),
                };
                let settlement = Settlement { state, outcome };
                let settled = books.ledger().settle(entry.intent.invocation, entry.fence, settlement).await?;
                // Whoever ran it has come back and settled it after all.
                if settled == SettleOutcome::Fenced {
                    continue;
                }
                self.parts.observer.ledger(LedgerEvent::Recovered);
                self.note_interrupted(&entry, slot).await;
                if safe {
                    recovered.set_free += 1;
                } else {
                    recovered.indeterminate += 1;
                }
            }
        }
    }

    /// Leaves a record of a call that was interrupted, in the name of whoever made it.
    async fn note_interrupted(&self, entry: &LedgerEntry, slot: RecordSlot) {
        let intent = &entry.intent;
        tracing::warn!(invocation = %intent.invocation, tool = %intent.tool, tenant = %intent.tenant, effects = intent.effects.as_str(), "a call was interrupted by the end of its server");
        let safe = intent.effects.is_safe_to_retry();
        let note = "interrupted by the end of the server".to_owned();
        let record = AuditRecord {
            trace_id: intent.trace,
            invocation_id: Some(intent.invocation),
            tool: Some(intent.tool.clone()),
            version: Some(intent.version.clone()),
            status: Some(if safe { InvocationStatus::Error } else { InvocationStatus::Indeterminate }),
            code: Some(ErrorCode::E3413),
            parameters_digest: Some(intent.parameters),
            ..self.unattended(&intent.tenant, intent.caller.subject().clone(), AuditAction::InvocationFinished, note)
        };
        if let Err(refusal) = slot.record(record).await {
            // It is kept until it can be written, and must not keep the others from being settled.
            tracing::warn!(code = %refusal.code, error = &refusal as &dyn std::error::Error, "the record of an interrupted call waits to be written");
        }
    }

    /// Calls in the ledger, newest first: those of the caller's tenant, or of any for administrators of the installation.
    pub async fn ledger_lines(
        &self,
        actor: Actor<'_>,
        filter: EntryFilter,
        most: usize,
    ) -> Result<Vec<LedgerEntry>, Refusal> {
        let caller = self.permitted(actor, Action::SeeJobs).await?;
        let tenant = match &filter.tenant {
            None if caller.tenant().is_home() => None,
            named => Some(self.tenant_for(actor, &caller, named.as_ref()).await?),
        };
        let filter = EntryFilter { tenant, ..filter };
        let found = self.parts.books.ledger().list(&filter, most.min(PAGE_MAX)).await;
        let mut entries = found.map_err(|error| error.refusal())?;
        for entry in &mut entries {
            self.mask_line(&caller, entry).await;
        }
        Ok(entries)
    }

    /// One call in the ledger, for whoever made it and for administrators.
    pub async fn ledger_line(&self, actor: Actor<'_>, invocation: InvocationId) -> Result<LedgerEntry, Refusal> {
        let caller = self.recognise(actor).await?;
        let found = self.parts.books.ledger().find(caller.tenant(), invocation).await;
        let mut entry = found.map_err(|error| error.refusal())?.ok_or_else(|| no_such(invocation))?;
        let own = entry.intent.caller == caller.owner();
        // The same words whether it is not there or not for this caller.
        if !own && !caller.may(Action::SeeJobs) {
            return Err(no_such(invocation));
        }
        self.mask_line(&caller, &mut entry).await;
        Ok(entry)
    }

    /// Leaves of what a call came to what this reader may see of it now.
    async fn mask_line(&self, reader: &Principal, entry: &mut LedgerEntry) {
        let LedgerEntry { intent, outcome: Some(outcome), .. } = entry else { return };
        // One that an earlier release has kept is as it was given.
        if let Some(given) = outcome.pointer_mut("/resolved/result") {
            *given = self.shown_of_person(intent, given.take()).await.map_or_else(|_| Value::Null, |(shown, _)| shown);
        }
        let owns = intent.caller == reader.owner();
        let mask = ReaderMask::of(self, reader, &intent.tenant, &intent.tool, owns).await;
        for at in ANSWERS {
            outcome.pointer_mut(at).into_iter().for_each(|words| mask.mask(words));
        }
        for at in ERRORS {
            outcome.pointer_mut(at).into_iter().for_each(|error| drop(mask.mask_error(error)));
        }
    }
}

pub(super) fn no_such(invocation: InvocationId) -> Refusal {
    Refusal::new(ErrorCode::E3702, format!("there is no invocation `{invocation}`"))
        .hint("calls without effects are answered at once and not kept; others are kept for their window")
}
