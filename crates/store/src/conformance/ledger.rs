//! Cases of `Ledger`. Each takes a fresh store.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test suite: what does not hold must panic"
)]

use std::sync::Arc;
use std::time::Duration;

use contract::canonical;
use contract::ids::InvocationId;
use ports::clock::{Clock as _, UnixMillis};
use ports::job_store::{AdoptOutcome, EnqueueOutcome, JobDedupe, JobKey, JobPriority, LedgerAct, NewJob, QueueBounds};
use ports::ledger::{
    BeginOutcome, EntryFilter, EntryState, FencingToken, IdempotencyKey, Intent, Ledger, OwnerId, QueuedAct,
    ResolveOutcome, SettleOutcome, Settlement,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{StoreAdapter, sample_intent};

/// All cases of `Ledger` against one adapter.
#[macro_export]
macro_rules! ledger_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            ledger,
            [
                a_fresh_ledger_is_empty,
                a_key_is_reserved_once_however_many_ask_at_once,
                the_same_key_is_another_one_for_another_tenant_tool_or_scope,
                the_same_key_with_other_parameters_is_a_conflict,
                a_done_call_answers_its_key_until_the_window_has_passed,
                a_call_that_failed_clean_frees_its_key_for_another,
                the_key_of_a_done_call_can_be_freed_and_of_no_other,
                a_call_that_failed_clean_begins_again_under_its_own_id_with_a_new_fence,
                an_unknown_outcome_holds_its_key_for_ever_until_a_person_resolves_it,
                what_is_settled_is_settled_once_and_by_the_right_fence,
                a_settlement_whose_answer_was_lost_may_be_said_again,
                a_used_invocation_id_is_not_given_away_again,
                the_same_call_under_its_own_id_is_told_what_became_of_it,
                calls_of_a_lapsed_owner_are_found_and_those_of_a_living_one_are_not,
                a_lapsed_owner_begins_nothing_until_it_renews,
                a_wall_clock_that_jumps_ends_no_window_and_no_lease,
                settled_calls_are_forgotten_after_their_window_and_others_never,
                calls_are_listed_newest_first_by_tenant_and_state_in_pages,
                everything_survives_a_reopening,
                hostile_keys_are_kept_as_they_are,
                a_key_for_which_a_job_has_not_ended_begins_no_other_call,
                a_job_whose_key_a_call_holds_is_entered_only_as_that_call,
            ]
        );
    };
}

const DAY: Duration = Duration::from_secs(86_400);
const LEASE: Duration = Duration::from_secs(10);

// ---------------------------------------------------------------------------------------------------------- samples

fn id(number: u128) -> InvocationId {
    InvocationId(Uuid::from_u128(number))
}

fn owner(number: u128) -> OwnerId {
    OwnerId(Uuid::from_u128(number))
}

fn intent(number: u128, key: Option<&str>) -> Intent {
    Intent { window: DAY, ..sample_intent(number, key, owner(1)) }
}

fn done(outcome: Value) -> Settlement {
    Settlement { state: EntryState::Done, outcome }
}

fn end(state: EntryState) -> Settlement {
    Settlement { state, outcome: json!({ "why": state.as_str() }) }
}

async fn open(adapter: &impl StoreAdapter) -> Arc<dyn Ledger> {
    let ledger = adapter.ledger();
    ledger.renew(owner(1), LEASE).await.unwrap();
    ledger
}

async fn fresh(ledger: &Arc<dyn Ledger>, intent: Intent) -> FencingToken {
    match ledger.begin(intent).await.unwrap() {
        BeginOutcome::Fresh(fence) => fence,
        other => panic!("{other:?}"),
    }
}

async fn state(ledger: &Arc<dyn Ledger>, number: u128) -> EntryState {
    ledger.find(&"acme".parse().unwrap(), id(number)).await.unwrap().unwrap().state
}

// ------------------------------------------------------------------------------------------------------------- cases

/// A call whose act is known in the queue, and its job.
fn act(number: u128, key: &str, amount: u64) -> (Intent, NewJob) {
    let parameters = json!({ "amount": amount });
    let (digest, job_digest) = (canonical::digest(&parameters), canonical::digest(&json!(["job", parameters])));
    let dedupe_key = format!("job {key}");
    let queued_act = Some(QueuedAct { kind: "tool_call", dedupe_key: dedupe_key.clone(), digest: job_digest });
    let intent = Intent { parameters: digest, queued_act, ..intent(number, Some(key)) };
    let job = NewJob {
        key: JobKey { tenant: intent.tenant.clone(), id: intent.invocation },
        kind: "tool_call".into(),
        label: intent.tool.to_string(),
        owner: intent.caller.clone(),
        flow: "flow".into(),
        payload: json!({}),
        digest: job_digest,
        priority: JobPriority::near(5),
        delay: Duration::ZERO,
        attempts_max: 1,
        dedupe: Some(JobDedupe { key: dedupe_key, window: DAY }),
        act: intent.key.clone().map(|key| LedgerAct { tool: intent.tool.clone(), key, parameters: digest }),
        bounds: QueueBounds { per_flow: 10, per_tenant: 10, total: 10 },
    };
    (intent, job)
}

// ------------------------------------------------------------------------------------------------------------- queue

/// LEDGER-5.
pub async fn a_key_for_which_a_job_has_not_ended_begins_no_other_call(adapter: impl StoreAdapter) {
    let (ledger, jobs) = (open(&adapter).await, adapter.jobs());
    let (job_call, job) = act(1, "k", 5);
    assert_eq!(jobs.enqueue(job.clone()).await.unwrap(), EnqueueOutcome::New);
    let begin = async |number, amount| ledger.begin(act(number, "k", amount).0).await.unwrap();
    // More than once, because a first claim may go with others.
    for _ in 0..2 {
        assert_eq!(begin(2, 5).await, BeginOutcome::Queued { job: id(1), same: true, ended: false });
        assert_eq!(begin(3, 6).await, BeginOutcome::Queued { job: id(1), same: false, ended: false });
    }
    assert_eq!(ledger.find(&"acme".parse().unwrap(), id(2)).await.unwrap(), None, "nothing was written");
    fresh(&ledger, act(4, "other", 5).0).await;
    let elsewhere = Intent { tenant: "other".parse().unwrap(), ..act(5, "k", 5).0 };
    fresh(&ledger, elsewhere).await;
    // The job itself begins, and is found in the ledger from then on.
    let fence = fresh(&ledger, job_call).await;
    assert!(matches!(begin(2, 5).await, BeginOutcome::Held(entry) if entry.intent.invocation == id(1)));
    assert_eq!(begin(3, 6).await, BeginOutcome::OtherParameters { invocation: id(1) });
    assert_eq!(ledger.settle(id(1), fence, end(EntryState::FailedClean)).await.unwrap(), SettleOutcome::Kept);
    assert_eq!(begin(2, 5).await, BeginOutcome::Queued { job: id(1), same: true, ended: false }, "it is tried again");
    jobs.ask_cancel(&job.key, "", json!({})).await.unwrap();
    fresh(&ledger, act(2, "k", 5).0).await;
}

/// JOB-10.
pub async fn a_job_whose_key_a_call_holds_is_entered_only_as_that_call(adapter: impl StoreAdapter) {
    let (ledger, jobs) = (open(&adapter).await, adapter.jobs());
    jobs.enlist(owner(1), LEASE, false).await.unwrap();
    let fence = fresh(&ledger, act(1, "k", 5).0).await;
    let enter = async |number, amount| jobs.enqueue(act(number, "k", amount).1).await.unwrap();
    assert_eq!(enter(2, 5).await, EnqueueOutcome::Claimed { id: id(1), same: true });
    assert_eq!(enter(3, 6).await, EnqueueOutcome::Claimed { id: id(1), same: false });
    let adopted = jobs.adopt(act(2, "k", 5).1, owner(1)).await.unwrap();
    assert_eq!(adopted, AdoptOutcome::Claimed { id: id(1), same: true });
    assert_eq!(ledger.settle(id(1), fence, done(json!({}))).await.unwrap(), SettleOutcome::Kept);
    assert_eq!(enter(2, 5).await, EnqueueOutcome::Claimed { id: id(1), same: true }, "it is done");
    assert_eq!(enter(1, 5).await, EnqueueOutcome::New, "the same act under its own id");
    assert_eq!(enter(2, 5).await, EnqueueOutcome::Existing { id: id(1), same: true });
    // What failed clean, or is over, holds nothing.
    let fence = fresh(&ledger, act(7, "l", 5).0).await;
    assert_eq!(ledger.settle(id(7), fence, end(EntryState::FailedClean)).await.unwrap(), SettleOutcome::Kept);
    assert_eq!(jobs.enqueue(act(8, "l", 6).1).await.unwrap(), EnqueueOutcome::New);
    let fence = fresh(&ledger, act(9, "m", 5).0).await;
    assert_eq!(ledger.settle(id(9), fence, done(json!({}))).await.unwrap(), SettleOutcome::Kept);
    adapter.clock().step(DAY + LEASE);
    assert_eq!(jobs.enqueue(act(10, "m", 6).1).await.unwrap(), EnqueueOutcome::New);
}

pub async fn a_fresh_ledger_is_empty(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    assert!(ledger.list(&EntryFilter::default(), 10).await.unwrap().is_empty());
    assert!(ledger.lapsed(10).await.unwrap().is_empty());
    assert_eq!(ledger.find(&"acme".parse().unwrap(), id(1)).await.unwrap(), None);
    assert_eq!(ledger.prune(10).await.unwrap(), 0);
    assert_eq!(ledger.settle(id(1), FencingToken(1), done(Value::Null)).await.unwrap(), SettleOutcome::Fenced);
}

pub async fn a_key_is_reserved_once_however_many_ask_at_once(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let asking = (1..=100).map(|number| {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move { ledger.begin(intent(number, Some("k"))).await.unwrap() })
    });
    let mut fresh = 0;
    for asked in asking.collect::<Vec<_>>() {
        match asked.await.unwrap() {
            BeginOutcome::Fresh(_) => fresh += 1,
            BeginOutcome::Held(entry) => assert_eq!(entry.state, EntryState::InFlight),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fresh, 1);
    assert_eq!(ledger.list(&EntryFilter::default(), 200).await.unwrap().len(), 1, "who came second left nothing");
}

pub async fn the_same_key_is_another_one_for_another_tenant_tool_or_scope(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    fresh(&ledger, intent(1, Some("k"))).await;
    fresh(&ledger, Intent { tenant: "other".parse().unwrap(), ..intent(2, Some("k")) }).await;
    fresh(&ledger, Intent { tool: "bank.refund".parse().unwrap(), ..intent(3, Some("k")) }).await;
    let scoped = Some(IdempotencyKey { scope: "another".into(), key: "k".into() });
    fresh(&ledger, Intent { key: scoped, ..intent(4, None) }).await;
    fresh(&ledger, intent(5, Some("K"))).await;
    fresh(&ledger, intent(6, None)).await;
    fresh(&ledger, intent(7, None)).await;
}

pub async fn the_same_key_with_other_parameters_is_a_conflict(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let fence = fresh(&ledger, intent(1, Some("k"))).await;
    let other = || Intent { parameters: canonical::digest(&json!({ "amount": 6 })), ..intent(2, Some("k")) };
    let conflict = BeginOutcome::OtherParameters { invocation: id(1) };
    assert_eq!(ledger.begin(other()).await.unwrap(), conflict, "while it runs");
    ledger.settle(id(1), fence, done(json!(1))).await.unwrap();
    assert_eq!(ledger.begin(other()).await.unwrap(), conflict, "and after");
}

pub async fn a_done_call_answers_its_key_until_the_window_has_passed(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let clock = adapter.clock();
    for (number, outcome) in [(1, Value::Null), (2, json!({})), (3, json!([])), (4, json!({ "ok": true }))] {
        let key = format!("k{number}");
        let fence = fresh(&ledger, intent(number, Some(&key))).await;
        assert_eq!(ledger.settle(id(number), fence, done(outcome.clone())).await.unwrap(), SettleOutcome::Kept);
        let BeginOutcome::Held(entry) = ledger.begin(intent(100 + number, Some(&key))).await.unwrap() else { panic!() };
        assert_eq!((entry.state, entry.outcome), (EntryState::Done, Some(outcome)), "also what is empty");
    }
    clock.step(DAY - Duration::from_secs(1));
    ledger.renew(owner(1), LEASE).await.unwrap();
    assert!(matches!(ledger.begin(intent(200, Some("k4"))).await.unwrap(), BeginOutcome::Held(_)));
    clock.step(Duration::from_secs(2));
    fresh(&ledger, intent(201, Some("k4"))).await;
}

pub async fn the_key_of_a_done_call_can_be_freed_and_of_no_other(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let tenant = intent(1, None).tenant;
    let fence = fresh(&ledger, intent(1, Some("k"))).await;
    let holder = async |number: u128| match ledger.begin(intent(number, Some("k"))).await.unwrap() {
        BeginOutcome::Held(entry) => entry.intent.invocation,
        other => panic!("{other:?}"),
    };
    ledger.release(&tenant, id(1)).await.unwrap();
    assert_eq!(holder(2).await, id(1), "it is in flight");
    ledger.settle(id(1), fence, end(EntryState::Done)).await.unwrap();
    ledger.release(&"other".parse().unwrap(), id(1)).await.unwrap();
    ledger.release(&tenant, id(9)).await.unwrap();
    assert_eq!(holder(3).await, id(1), "it is not another tenant's");
    ledger.release(&tenant, id(1)).await.unwrap();
    let fence = fresh(&ledger, intent(4, Some("k"))).await;
    assert_eq!(state(&ledger, 1).await, EntryState::Done, "what became of it is remembered");
    // Freeing it again takes the key from nobody.
    ledger.release(&tenant, id(1)).await.unwrap();
    assert_eq!(holder(5).await, id(4));
    ledger.settle(id(4), fence, end(EntryState::Unknown)).await.unwrap();
    ledger.release(&tenant, id(4)).await.unwrap();
    assert_eq!(holder(6).await, id(4), "nobody knows what became of it");
}

pub async fn a_call_that_failed_clean_frees_its_key_for_another(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let fence = fresh(&ledger, intent(1, Some("k"))).await;
    ledger.settle(id(1), fence, end(EntryState::FailedClean)).await.unwrap();
    let other = canonical::digest(&json!({ "amount": 6 }));
    fresh(&ledger, Intent { parameters: other, ..intent(2, Some("k")) }).await;
    let BeginOutcome::Held(entry) = ledger.begin(Intent { parameters: other, ..intent(3, Some("k")) }).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(entry.intent.invocation, id(2));
    assert_eq!(state(&ledger, 1).await, EntryState::FailedClean, "the first is remembered as it was");
}

pub async fn a_call_that_failed_clean_begins_again_under_its_own_id_with_a_new_fence(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let first = fresh(&ledger, intent(1, Some("k"))).await;
    ledger.settle(id(1), first, end(EntryState::FailedClean)).await.unwrap();
    let second = fresh(&ledger, intent(1, Some("k"))).await;
    assert!(second > first);
    assert_eq!(ledger.settle(id(1), first, done(json!("late"))).await.unwrap(), SettleOutcome::Fenced);
    assert_eq!(ledger.settle(id(1), second, done(json!("right"))).await.unwrap(), SettleOutcome::Kept);
    let BeginOutcome::Held(entry) = ledger.begin(intent(2, Some("k"))).await.unwrap() else { panic!() };
    assert_eq!(entry.outcome, Some(json!("right")));
    assert!(
        matches!(ledger.begin(intent(1, Some("k"))).await.unwrap(), BeginOutcome::Held(_)),
        "what is done does not begin again"
    );
}

pub async fn an_unknown_outcome_holds_its_key_for_ever_until_a_person_resolves_it(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let tenant = "acme".parse().unwrap();
    for (number, verdict) in [(1, EntryState::Done), (2, EntryState::FailedClean)] {
        let key = format!("k{number}");
        let fence = fresh(&ledger, intent(number, Some(&key))).await;
        ledger.settle(id(number), fence, end(EntryState::Unknown)).await.unwrap();
        adapter.clock().step(DAY * 3);
        ledger.renew(owner(1), LEASE).await.unwrap();
        let BeginOutcome::Held(entry) = ledger.begin(intent(100 + number, Some(&key))).await.unwrap() else { panic!() };
        assert_eq!(entry.state, EntryState::Unknown);
        let foreign = "other".parse().unwrap();
        let resolve = |tenant, number| ledger.resolve(tenant, id(number), end(verdict));
        assert_eq!(resolve(&foreign, number).await.unwrap(), ResolveOutcome::NotFound);
        assert_eq!(resolve(&tenant, number).await.unwrap(), ResolveOutcome::Done);
        assert_eq!(resolve(&tenant, number).await.unwrap(), ResolveOutcome::NotUnknown(verdict));
        assert_eq!(resolve(&tenant, 999).await.unwrap(), ResolveOutcome::NotFound);
        let again = ledger.begin(intent(200 + number, Some(&key))).await.unwrap();
        assert_eq!(matches!(again, BeginOutcome::Fresh(_)), verdict == EntryState::FailedClean, "{again:?}");
    }
}

pub async fn what_is_settled_is_settled_once_and_by_the_right_fence(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let fence = fresh(&ledger, intent(1, None)).await;
    assert_eq!(ledger.settle(id(1), FencingToken(fence.0 + 1), done(json!(0))).await.unwrap(), SettleOutcome::Fenced);
    let settling = (0..20).map(|number| {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move { ledger.settle(id(1), fence, done(json!(number))).await.unwrap() })
    });
    let mut kept = 0;
    for settled in settling.collect::<Vec<_>>() {
        kept += usize::from(settled.await.unwrap() == SettleOutcome::Kept);
    }
    assert_eq!(kept, 1);
}

pub async fn a_settlement_whose_answer_was_lost_may_be_said_again(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    for (number, state) in (1..).zip([EntryState::Done, EntryState::FailedClean, EntryState::Unknown]) {
        let fence = fresh(&ledger, intent(number, Some(&"long".repeat(2_000 + state.as_str().len())))).await;
        let said = |outcome: Value| Settlement { state, outcome };
        let paid = json!({ "paid": 5, "to": "ann\u{0}" });
        assert_eq!(ledger.settle(id(number), fence, said(paid.clone())).await.unwrap(), SettleOutcome::Kept);
        let tenant = "acme".parse().unwrap();
        let before = ledger.find(&tenant, id(number)).await.unwrap();
        adapter.clock().step(Duration::from_secs(1));
        assert_eq!(
            ledger.settle(id(number), fence, said(paid.clone())).await.unwrap(),
            SettleOutcome::Kept,
            "{state:?}"
        );
        assert_eq!(ledger.find(&tenant, id(number)).await.unwrap(), before, "saying it again changes nothing");
        assert_eq!(ledger.settle(id(number), fence, said(json!("not paid"))).await.unwrap(), SettleOutcome::Fenced);
        for other in EntryState::ALL.into_iter().filter(|other| *other != state && *other != EntryState::InFlight) {
            let otherwise = Settlement { state: other, outcome: paid.clone() };
            assert_eq!(ledger.settle(id(number), fence, otherwise).await.unwrap(), SettleOutcome::Fenced, "{other:?}");
        }
        assert_eq!(
            ledger.settle(id(number), FencingToken(fence.0 + 1), said(paid)).await.unwrap(),
            SettleOutcome::Fenced
        );
        assert_eq!(ledger.find(&tenant, id(number)).await.unwrap(), before);
    }
}

pub async fn a_used_invocation_id_is_not_given_away_again(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let fence = fresh(&ledger, intent(1, None)).await;
    let strangers = || {
        [
            Intent { tenant: "other".parse().unwrap(), ..intent(1, None) },
            Intent { caller: "somebody".parse().unwrap(), ..intent(1, None) },
            // The same name, of somebody else's making.
            Intent { caller: "somebody did:key:z6Mk".parse().unwrap(), ..intent(1, None) },
            Intent { tool: "bank.refund".parse().unwrap(), ..intent(1, None) },
            Intent { parameters: canonical::digest(&json!({ "amount": 6 })), ..intent(1, None) },
            intent(1, Some("k")),
        ]
    };
    for stranger in strangers() {
        assert_eq!(ledger.begin(stranger).await.unwrap(), BeginOutcome::IdTaken);
    }
    ledger.settle(id(1), fence, end(EntryState::FailedClean)).await.unwrap();
    for stranger in strangers() {
        assert_eq!(ledger.begin(stranger).await.unwrap(), BeginOutcome::IdTaken, "also when it failed clean");
    }
    let handed_on = || Intent { caller: "boss agent".parse().unwrap(), ..intent(2, None) };
    fresh(&ledger, handed_on()).await;
    let BeginOutcome::Held(entry) = ledger.begin(handed_on()).await.unwrap() else { panic!("it is the same call") };
    assert_eq!(entry.intent.caller.as_str(), "boss agent");
    let plain = Intent { caller: "agent".parse().unwrap(), ..intent(2, None) };
    assert_eq!(ledger.begin(plain).await.unwrap(), BeginOutcome::IdTaken);
}

pub async fn the_same_call_under_its_own_id_is_told_what_became_of_it(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let fence = fresh(&ledger, intent(1, None)).await;
    let told = async || match ledger.begin(intent(1, None)).await.unwrap() {
        BeginOutcome::Held(entry) => (entry.intent.invocation, entry.state),
        other => panic!("{other:?}"),
    };
    assert_eq!(told().await, (id(1), EntryState::InFlight));
    ledger.settle(id(1), fence, end(EntryState::Unknown)).await.unwrap();
    assert_eq!(told().await, (id(1), EntryState::Unknown));
}

pub async fn calls_of_a_lapsed_owner_are_found_and_those_of_a_living_one_are_not(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let fence = fresh(&ledger, intent(1, Some("k"))).await;
    fresh(&ledger, intent(2, None)).await;
    assert!(ledger.lapsed(10).await.unwrap().is_empty());
    adapter.clock().step(LEASE + Duration::from_millis(1));
    let lapsed = ledger.lapsed(10).await.unwrap();
    assert_eq!(lapsed.iter().map(|entry| entry.intent.invocation).collect::<Vec<_>>(), [id(1), id(2)], "oldest first");
    assert_eq!(ledger.lapsed(1).await.unwrap().len(), 1);
    assert_eq!(ledger.settle(id(1), fence, end(EntryState::Unknown)).await.unwrap(), SettleOutcome::Kept);
    assert_eq!(
        ledger.settle(id(1), fence, done(json!(1))).await.unwrap(),
        SettleOutcome::Fenced,
        "its owner comes back late"
    );
    ledger.renew(owner(1), LEASE).await.unwrap();
    assert!(ledger.lapsed(10).await.unwrap().is_empty());
    ledger.retire(owner(1)).await.unwrap();
    assert_eq!(ledger.lapsed(10).await.unwrap().len(), 1);
}

pub async fn a_lapsed_owner_begins_nothing_until_it_renews(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    assert_eq!(ledger.begin(Intent { owner: owner(9), ..intent(1, None) }).await.unwrap(), BeginOutcome::OwnerLapsed);
    adapter.clock().step(LEASE);
    assert_eq!(ledger.begin(intent(1, None)).await.unwrap(), BeginOutcome::OwnerLapsed);
    ledger.renew(owner(1), LEASE).await.unwrap();
    fresh(&ledger, intent(1, None)).await;
}

pub async fn a_wall_clock_that_jumps_ends_no_window_and_no_lease(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let clock = adapter.clock();
    let fence = fresh(&ledger, intent(1, Some("k"))).await;
    fresh(&ledger, intent(2, Some("running"))).await;
    ledger.settle(id(1), fence, done(json!(1))).await.unwrap();
    let noon = clock.now();
    for wrong in [UnixMillis(0), noon.plus(DAY * 400), UnixMillis(noon.0 - 86_400_000)] {
        clock.jump(wrong);
        assert!(matches!(ledger.begin(intent(3, Some("k"))).await.unwrap(), BeginOutcome::Held(_)));
        assert!(ledger.lapsed(10).await.unwrap().is_empty());
        assert_eq!(ledger.prune(10).await.unwrap(), 0);
    }
}

pub async fn settled_calls_are_forgotten_after_their_window_and_others_never(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let ends = [None, Some(EntryState::Done), Some(EntryState::FailedClean), Some(EntryState::Unknown)];
    for (number, state) in (1..).zip(ends) {
        let fence = fresh(&ledger, intent(number, Some(&format!("k{number}")))).await;
        if let Some(state) = state {
            ledger.settle(id(number), fence, end(state)).await.unwrap();
        }
    }
    assert_eq!(ledger.prune(10).await.unwrap(), 0);
    adapter.clock().step(DAY + Duration::from_secs(1));
    assert_eq!(ledger.prune(1).await.unwrap(), 1, "in pieces");
    assert_eq!(ledger.prune(10).await.unwrap(), 1);
    let left = ledger.list(&EntryFilter::default(), 10).await.unwrap();
    let left: Vec<EntryState> = left.iter().map(|entry| entry.state).collect();
    assert_eq!(left, [EntryState::Unknown, EntryState::InFlight]);
}

pub async fn calls_are_listed_newest_first_by_tenant_and_state_in_pages(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    for number in 1..=6 {
        let tenant = if number % 2 == 0 { "acme" } else { "other" }.parse().unwrap();
        let fence = fresh(&ledger, Intent { tenant, ..intent(number, None) }).await;
        if number > 3 {
            ledger.settle(id(number), fence, end(EntryState::Unknown)).await.unwrap();
        }
    }
    let listed = async |filter: EntryFilter, most| {
        let entries = ledger.list(&filter, most).await.unwrap();
        entries.iter().map(|entry| entry.intent.invocation.0.as_u128()).collect::<Vec<_>>()
    };
    let acme = Some("acme".parse().unwrap());
    assert_eq!(listed(EntryFilter::default(), 10).await, [6, 5, 4, 3, 2, 1]);
    assert_eq!(listed(EntryFilter { before: Some(id(4)), ..EntryFilter::default() }, 2).await, [3, 2]);
    assert_eq!(listed(EntryFilter { tenant: acme.clone(), ..EntryFilter::default() }, 10).await, [6, 4, 2]);
    let unknown = Some(EntryState::Unknown);
    assert_eq!(listed(EntryFilter { state: unknown, ..EntryFilter::default() }, 10).await, [6, 5, 4]);
    assert_eq!(listed(EntryFilter { tenant: acme, state: unknown, before: Some(id(6)) }, 10).await, [4]);
}

pub async fn everything_survives_a_reopening(mut adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let running = intent(1, Some("k"));
    fresh(&ledger, running.clone()).await;
    let fence = fresh(&ledger, intent(2, Some("l"))).await;
    ledger.settle(id(2), fence, done(json!({ "paid": 5 }))).await.unwrap();
    drop(ledger);
    adapter.reopen().await;
    let ledger = adapter.ledger();
    // A process of its own has come after the first.
    ledger.retire(owner(1)).await.unwrap();
    ledger.renew(owner(2), LEASE).await.unwrap();
    let lapsed = ledger.lapsed(10).await.unwrap();
    assert_eq!(lapsed.len(), 1);
    assert_eq!(lapsed.first().unwrap().intent, running);
    let BeginOutcome::Held(entry) = ledger.begin(Intent { owner: owner(2), ..intent(3, Some("l")) }).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(entry.outcome, Some(json!({ "paid": 5 })));
    assert!(entry.settled_at.is_some_and(|at| at >= entry.begun_at));
}

pub async fn hostile_keys_are_kept_as_they_are(adapter: impl StoreAdapter) {
    let ledger = open(&adapter).await;
    let keys = ["'; DROP TABLE ledger; --", "\u{0}\u{202e}", "ключ", "a:b", "a", "%", "_"];
    for (number, key) in (1..).zip(keys) {
        fresh(&ledger, intent(number, Some(key))).await;
    }
    for (number, key) in (1..).zip(keys) {
        let BeginOutcome::Held(entry) = ledger.begin(intent(100 + number, Some(key))).await.unwrap() else { panic!() };
        assert_eq!(entry.intent.invocation, id(number));
    }
}
