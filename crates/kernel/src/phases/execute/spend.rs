//! Budgets of tokens: a call is counted against that of its token and of every token this one was delegated from, before it
//! runs. (EXE-3)

use contract::error::{ErrorCode, Refusal};
use contract::ids::InvocationId;
use policy::Caller;
use ports::access_store::BudgetSpending;
use ports::registry_store::StoreError;

use super::super::facts::CallFacts;
use super::resume::ResumedCall;
use crate::invoke::Kernel;

/// A call that has been counted: nothing but its tool can refuse it any more.
pub(super) struct SpentCall<'c>(pub(super) ResumedCall<'c>);

/// Counts the call.
pub(super) async fn spend_for_call<'c>(
    kernel: &Kernel,
    facts: &CallFacts,
    call: ResumedCall<'c>,
) -> Result<SpentCall<'c>, Refusal> {
    let caller = &call.placed.call.caller;
    if facts.is_job {
        spend_for_job(kernel, caller, facts.invocation_id).await?;
    } else {
        spend(kernel, caller).await?;
    }
    Ok(SpentCall(call))
}

/// Counts the call against the budget of the token and of every token it was delegated from, before it runs.
pub(in crate::phases) async fn spend(kernel: &Kernel, caller: &Caller) -> Result<(), Refusal> {
    let spendings = spendings(caller);
    if spendings.is_empty() {
        return Ok(());
    }
    within_budget(kernel.access().spend(&spendings).await)
}

/// The same for a job, which is one call however often it is tried, interrupted or put back: counted when it is let run first.
async fn spend_for_job(kernel: &Kernel, caller: &Caller, id: InvocationId) -> Result<(), Refusal> {
    let mut spendings = spendings(caller);
    if spendings.is_empty() {
        return Ok(());
    }
    let job = job_counted(caller, id);
    let mark = job.token.clone();
    spendings.insert(0, job);
    match kernel.access().spend(&spendings).await.map_err(|error| error.refusal())? {
        Err(used_up) if used_up == mark => Ok(()),
        answer => within_budget(Ok(answer)),
    }
}

/// A call that was counted as it began goes on as a job.
pub(crate) async fn note_spent_by_job(kernel: &Kernel, caller: &Caller, id: InvocationId) {
    if !spendings(caller).is_empty()
        && let Err(error) = kernel.access().spend(&[job_counted(caller, id)]).await
    {
        tracing::warn!(%id, "it was not noted that a call was counted which goes on as a job; should it be interrupted, it is counted twice: {error}");
    }
}

/// What says that a job has been counted: a budget of one, which no token has, because no id of an issuer begins so.
fn job_counted(caller: &Caller, id: InvocationId) -> BudgetSpending {
    BudgetSpending { token: format!("\u{1f}job {} {id}", caller.tenant()), calls_max: 1 }
}

/// Whether [`spend`] would let the call run. Nothing is counted.
pub(in crate::phases) async fn would_spend(kernel: &Kernel, caller: &Caller) -> Result<(), Refusal> {
    let spendings = spendings(caller);
    if spendings.is_empty() {
        return Ok(());
    }
    within_budget(kernel.access().would_spend(&spendings).await)
}

/// Every budget that a call of this caller counts against.
fn spendings(caller: &Caller) -> Vec<BudgetSpending> {
    let own = caller.budget().and_then(|budget| budget.calls).zip(caller.token_id());
    let own = own.map(|(calls, token)| (calls, token, caller.issuer()));
    let handed_on = caller.chain().iter().filter_map(|link| {
        let calls = link.budget.as_ref()?.calls?;
        Some((calls, link.jti.as_deref()?, link.iss.as_deref()))
    });
    own.into_iter()
        .chain(handed_on)
        // A token's id is unique among those of its issuer only.
        .map(|(calls_max, token, issuer)| {
            let issuer = issuer.or_else(|| caller.issuer()).unwrap_or_default();
            BudgetSpending { token: format!("{issuer} {token}"), calls_max }
        })
        .collect()
}

fn within_budget(answer: Result<Result<(), String>, StoreError>) -> Result<(), Refusal> {
    match answer.map_err(|error| error.refusal())? {
        Ok(()) => Ok(()),
        Err(_) => Err(Refusal::new(ErrorCode::E3211, "the calls this token allows are used up")
            .hint("ask for a new token; the call was not run")),
    }
}
