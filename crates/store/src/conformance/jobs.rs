//! Cases of `JobStore`. Each takes a fresh store whose time is moved by hand.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::sync::Arc;
use std::time::Duration;

use contract::ids::{InvocationId, TenantId};
use ports::job_store::{
    AdoptOutcome, AttemptEnd, CancelAsked, DedupeKey, EnqueueOutcome, FencingToken, FoundResult, JobCounts, JobDedupe,
    JobFilter, JobKey, JobPriority, JobState, JobStore, NewJob, OwnerId, PROGRESS_KEPT_MAX, QueueBounds, RenewOutcome,
    TakeRules, WriteOutcome,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{StoreAdapter, sample_job};

mod queue;

pub use queue::*;

/// All cases of `JobStore` against one adapter.
#[macro_export]
macro_rules! jobs_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            jobs,
            [
                a_job_is_queued_taken_and_done_and_its_events_tell_so,
                what_went_into_a_done_job_is_kept_as_far_as_it_is_needed,
                everything_about_a_job_survives_a_reopening,
                the_more_urgent_job_is_first_and_waiting_is_worth_urgency,
                tenants_take_turns_whatever_they_call_urgent,
                agents_of_a_tenant_take_turns_whatever_they_call_urgent,
                an_agent_runs_no_more_than_its_share_of_its_tenant,
                a_tenant_runs_no_more_than_its_share,
                a_delayed_job_is_taken_when_it_is_due,
                the_queue_is_bounded_per_tenant_and_in_total,
                one_flow_fills_no_more_of_its_tenants_queue_than_its_bound,
                one_dedupe_key_makes_one_job_within_its_window,
                a_dedupe_key_is_free_again_where_the_end_of_its_job_says_so,
                a_job_that_is_cancelled_before_it_began_leaves_its_dedupe_key_free,
                the_dedupe_key_of_an_ended_job_can_be_freed_and_of_no_other,
                one_id_makes_one_job_in_each_tenant,
                concurrent_takers_share_the_jobs_without_overlap,
                concurrent_enqueues_with_one_key_make_one_job,
                a_lapsed_owner_takes_nothing_and_its_jobs_are_taken_over_under_a_new_fence,
                an_owner_that_is_alone_ends_all_other_leases,
                an_owner_that_resigns_is_followed_at_once,
                a_retry_waits_for_its_pause_and_keeps_the_error,
                a_job_handed_back_waits_again_and_the_attempt_does_not_count,
                a_job_put_back_waits_for_its_pause_and_the_attempt_does_not_count,
                a_delayed_job_that_is_hastened_is_due_at_once,
                an_interruption_costs_no_try_and_was_begun_all_the_same,
                a_waiting_job_is_cancelled_at_once_and_a_running_one_is_told,
                a_retry_of_a_job_that_was_asked_to_end_ends_it,
                an_ended_job_never_changes,
                what_a_person_finds_out_replaces_the_end_of_a_failed_job_once,
                progress_is_kept_within_its_bound_and_changes_of_state_always,
                adopted_work_is_a_running_job,
                lists_are_filtered_and_paged_newest_first,
                ended_jobs_are_forgotten_after_their_retention_and_dead_ones_later,
                a_foreign_tenant_sees_nothing,
                counts_follow_every_move,
            ]
        );
    };
}

const LEASE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const WIDE: TakeRules = TakeRules { most: 100, running_per_tenant: 1_000, running_per_flow: 1_000 };

type Store = Arc<dyn JobStore>;

// ---------------------------------------------------------------------------------------------------------- samples

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn owner(number: u128) -> OwnerId {
    OwnerId(uuid(number).0)
}

fn uuid(number: u128) -> InvocationId {
    InvocationId(Uuid::from_u128(number))
}

fn key(of: &str, number: u128) -> JobKey {
    JobKey { tenant: tenant(of), id: uuid(number) }
}

async fn ready(adapter: &impl StoreAdapter) -> Store {
    let store = adapter.jobs();
    store.enlist(owner(1), LEASE, false).await.unwrap();
    store
}

async fn put(store: &Store, job: NewJob) {
    assert_eq!(store.enqueue(job).await.unwrap(), EnqueueOutcome::New);
}

/// The ids of what is taken, and the fence of each.
async fn take(store: &Store, by: OwnerId, rules: TakeRules) -> Vec<(JobKey, FencingToken)> {
    store.take(by, rules).await.unwrap().jobs.into_iter().map(|job| (job.record.key, job.fence)).collect()
}

async fn take_one(store: &Store) -> (JobKey, FencingToken) {
    take(store, owner(1), TakeRules { most: 1, ..WIDE }).await.pop().unwrap()
}

async fn state(store: &Store, key: &JobKey) -> JobState {
    store.find(key).await.unwrap().unwrap().record.state
}

fn error() -> Value {
    json!({ "code": "E3401" })
}

fn failed() -> AttemptEnd {
    AttemptEnd::Failed { error: error(), key: DedupeKey::Kept }
}

fn dead() -> AttemptEnd {
    AttemptEnd::Dead { error: error(), key: DedupeKey::Kept }
}

fn cancelled() -> AttemptEnd {
    AttemptEnd::Cancelled { error: error(), key: DedupeKey::Kept }
}

// ------------------------------------------------------------------------------------------------------------ cases

pub async fn a_job_is_queued_taken_and_done_and_its_events_tell_so(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    assert_eq!(state(&store, &key("local", 1)).await, JobState::Queued);
    let taken = store.take(owner(1), WIDE).await.unwrap().jobs.pop().unwrap();
    assert_eq!((taken.payload, taken.record.attempts), (json!({ "number": "1" }), 1));
    assert_eq!(take(&store, owner(1), WIDE).await, []);
    let done = store.finish(&taken.record.key, taken.fence, AttemptEnd::Done(json!({ "words": 2 }))).await.unwrap();
    assert_eq!(done, WriteOutcome::Kept(JobState::Done));
    let found = store.find(&key("local", 1)).await.unwrap().unwrap();
    assert_eq!((found.record.state, found.result), (JobState::Done, Some(json!({ "words": 2 }))));
    assert!(found.record.ended_at.is_some());
    let events = store.events(&key("local", 1), 0, 100).await.unwrap();
    let told: Vec<(u64, &str)> = events.iter().map(|event| (event.seq, event.kind.as_str())).collect();
    assert_eq!(told, [(1, "queued"), (2, "started"), (3, "done")]);
    assert_eq!(store.events(&key("local", 1), 2, 100).await.unwrap().len(), 1, "from where one left off");
    assert_eq!(store.events(&key("local", 1), 3, 100).await.unwrap(), []);
}

pub async fn what_went_into_a_done_job_is_kept_as_far_as_it_is_needed(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    let (held, fence) = take_one(&store).await;
    assert!(store.rewrite_payload(&held, &json!("another writing")).await.unwrap());
    assert_eq!(store.find(&held).await.unwrap().unwrap().payload, json!("another writing"));
    let end = AttemptEnd::DoneKeeping { result: json!({ "words": 2 }), payload: json!(null) };
    assert_eq!(store.finish(&held, fence, end).await.unwrap(), WriteOutcome::Kept(JobState::Done));
    let found = store.find(&held).await.unwrap().unwrap();
    assert_eq!((found.payload, found.result), (json!(null), Some(json!({ "words": 2 }))));
    assert!(!store.rewrite_payload(&held, &json!("back")).await.unwrap(), "nothing is kept of it");
    assert!(!store.rewrite_payload(&key("acme", 1), &json!("back")).await.unwrap());
    put(&store, sample_job("local", 2)).await;
    let (held, fence) = take_one(&store).await;
    store.finish(&held, fence, failed()).await.unwrap();
    assert!(store.rewrite_payload(&held, &json!("sealed")).await.unwrap(), "a failed job can be begun again");
    assert_eq!(store.find(&held).await.unwrap().unwrap().payload, json!("sealed"));
}

pub async fn everything_about_a_job_survives_a_reopening(mut adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let dedupe = Some(JobDedupe { key: "it's \"quoted\" \u{202e}".into(), window: HOUR });
    put(&store, NewJob { dedupe, priority: JobPriority::near(9), ..sample_job("local", 1) }).await;
    put(&store, NewJob { delay: HOUR, ..sample_job("acme", 2) }).await;
    let (taken, fence) = take_one(&store).await;
    store.report(&taken, fence, Some(40.0), Some("parsing".into())).await.unwrap();
    store.ask_cancel(&taken, "not wanted", error()).await.unwrap();
    let before = [store.find(&key("local", 1)).await.unwrap(), store.find(&key("acme", 2)).await.unwrap()];
    let events = store.events(&key("local", 1), 0, 100).await.unwrap();
    drop(store);
    adapter.reopen().await;
    let store = adapter.jobs();
    assert_eq!([store.find(&key("local", 1)).await.unwrap(), store.find(&key("acme", 2)).await.unwrap()], before);
    assert_eq!(store.events(&key("local", 1), 0, 100).await.unwrap(), events);
    assert_eq!(store.counts().await.unwrap(), JobCounts { waiting: 1, running: 1 });
    let done = store.finish(&taken, fence, AttemptEnd::Done(json!(null))).await.unwrap();
    assert_eq!(done, WriteOutcome::Kept(JobState::Done), "the lease is still good");
    assert_eq!(store.find(&key("local", 1)).await.unwrap().unwrap().result, Some(json!(null)), "null is a result");
}

pub async fn a_lapsed_owner_takes_nothing_and_its_jobs_are_taken_over_under_a_new_fence(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    put(&store, sample_job("local", 2)).await;
    let (first, old) = take_one(&store).await;
    store.enlist(owner(2), LEASE * 10, false).await.unwrap();
    assert_eq!(store.take_over(owner(2), 10).await.unwrap(), [], "its owner is alive");
    adapter.clock().step(LEASE - SECOND);
    assert_eq!(store.renew(owner(1), LEASE).await.unwrap(), RenewOutcome::Alive { cancel: vec![] });
    adapter.clock().step(LEASE - SECOND);
    assert_eq!(store.take_over(owner(2), 10).await.unwrap(), [], "it has said so");
    adapter.clock().step(SECOND * 2);
    assert_eq!(store.renew(owner(1), LEASE).await.unwrap(), RenewOutcome::Lapsed);
    assert_eq!(take(&store, owner(1), WIDE).await, [], "a lapsed owner takes nothing");
    let over = store.take_over(owner(2), 10).await.unwrap();
    assert_eq!(over.len(), 1);
    let new = over.first().unwrap().fence;
    assert!(new > old);
    assert_eq!(over.first().unwrap().record.attempts, 1, "the attempt was counted when it began");
    for write in [
        store.finish(&first, old, AttemptEnd::Done(json!("late"))).await.unwrap(),
        store.report(&first, old, Some(50.0), None).await.unwrap(),
    ] {
        assert_eq!(write, WriteOutcome::Fenced);
    }
    assert_eq!(store.take_over(owner(2), 10).await.unwrap(), [], "it is in good hands");
    assert_eq!(
        store.finish(&first, new, AttemptEnd::Done(json!("once"))).await.unwrap(),
        WriteOutcome::Kept(JobState::Done)
    );
    assert_eq!(store.find(&first).await.unwrap().unwrap().result, Some(json!("once")));
}

pub async fn an_owner_that_is_alone_ends_all_other_leases(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    take_one(&store).await;
    store.enlist(owner(2), LEASE, true).await.unwrap();
    assert_eq!(store.renew(owner(1), LEASE).await.unwrap(), RenewOutcome::Lapsed);
    assert_eq!(store.take_over(owner(2), 10).await.unwrap().len(), 1);
    assert_eq!(store.renew(owner(2), LEASE).await.unwrap(), RenewOutcome::Alive { cancel: vec![] });
}

pub async fn an_owner_that_resigns_is_followed_at_once(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    store.enlist(owner(2), LEASE, false).await.unwrap();
    put(&store, sample_job("local", 1)).await;
    put(&store, sample_job("local", 2)).await;
    let (held, fence) = take_one(&store).await;
    assert_eq!(store.take_over(owner(2), 10).await.unwrap(), []);
    store.resign(owner(1)).await.unwrap();
    assert_eq!(take(&store, owner(1), WIDE).await, [], "who has left takes nothing");
    assert_eq!(store.renew(owner(1), LEASE).await.unwrap(), RenewOutcome::Lapsed);
    let followed = store.take_over(owner(2), 10).await.unwrap();
    assert_eq!(followed.iter().map(|job| job.record.key.clone()).collect::<Vec<_>>(), std::slice::from_ref(&held));
    assert_eq!(store.finish(&held, fence, AttemptEnd::Done(json!(1))).await.unwrap(), WriteOutcome::Fenced);
    // Nobody is ended by it but whoever asked, and once is enough.
    store.resign(owner(1)).await.unwrap();
    store.resign(owner(9)).await.unwrap();
    assert_eq!(store.renew(owner(2), LEASE).await.unwrap(), RenewOutcome::Alive { cancel: Vec::new() });
}

pub async fn a_retry_waits_for_its_pause_and_keeps_the_error(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    let (key, fence) = take_one(&store).await;
    let retry = AttemptEnd::Retry { error: error(), after: SECOND * 5 };
    assert_eq!(store.finish(&key, fence, retry).await.unwrap(), WriteOutcome::Kept(JobState::Delayed));
    assert_eq!(store.find(&key).await.unwrap().unwrap().record.error, Some(error()));
    assert_eq!(take(&store, owner(1), WIDE).await, []);
    adapter.clock().step(SECOND * 5);
    let again = store.take(owner(1), WIDE).await.unwrap().jobs.pop().unwrap();
    assert_eq!(again.record.attempts, 2);
    assert!(again.fence > fence);
    store.finish(&key, again.fence, dead()).await.unwrap();
    assert_eq!(state(&store, &key).await, JobState::Dead);
    let kinds: Vec<String> = store.events(&key, 0, 100).await.unwrap().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["queued", "started", "retry", "started", "dead"]);
}

pub async fn a_job_handed_back_waits_again_and_the_attempt_does_not_count(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    let (key, fence) = take_one(&store).await;
    assert_eq!(store.finish(&key, fence, AttemptEnd::HandBack).await.unwrap(), WriteOutcome::Kept(JobState::Queued));
    let again = store.take(owner(1), WIDE).await.unwrap().jobs.pop().unwrap();
    assert_eq!(again.record.attempts, 1);
    assert_eq!(store.finish(&key, fence, AttemptEnd::HandBack).await.unwrap(), WriteOutcome::Fenced);
}

pub async fn a_job_put_back_waits_for_its_pause_and_the_attempt_does_not_count(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    let (key, fence) = take_one(&store).await;
    let back = |after| AttemptEnd::PutBack { error: error(), after };
    assert_eq!(store.finish(&key, fence, back(SECOND * 5)).await.unwrap(), WriteOutcome::Kept(JobState::Delayed));
    let record = store.find(&key).await.unwrap().unwrap().record;
    assert_eq!((record.attempts, record.error), (0, Some(error())), "it says why it waits");
    assert_eq!(take(&store, owner(1), WIDE).await, []);
    assert_eq!(store.counts().await.unwrap(), JobCounts { waiting: 1, running: 0 });
    adapter.clock().step(SECOND * 5);
    let again = store.take(owner(1), WIDE).await.unwrap().jobs.pop().unwrap();
    assert_eq!(again.record.attempts, 1);
    assert!(again.fence > fence);
    assert_eq!(store.finish(&key, fence, back(SECOND)).await.unwrap(), WriteOutcome::Fenced);
    assert_eq!(
        store.finish(&key, again.fence, back(Duration::ZERO)).await.unwrap(),
        WriteOutcome::Kept(JobState::Queued)
    );
    let last = store.take(owner(1), WIDE).await.unwrap().jobs.pop().unwrap();
    store.finish(&key, last.fence, AttemptEnd::Done(json!(1))).await.unwrap();
    let detail = store.find(&key).await.unwrap().unwrap();
    assert_eq!((detail.record.attempts, detail.record.error), (1, None));
    let kinds: Vec<String> = store.events(&key, 0, 100).await.unwrap().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["queued", "started", "put_back", "started", "put_back", "started", "done"]);
}

pub async fn a_delayed_job_that_is_hastened_is_due_at_once(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    for number in [1, 2] {
        put(&store, NewJob { delay: HOUR, ..sample_job("local", number) }).await;
    }
    store.hasten(&key("acme", 1)).await.unwrap();
    assert_eq!(take(&store, owner(1), WIDE).await, [], "that of another tenant is another one");
    store.hasten(&key("local", 2)).await.unwrap();
    let (taken, fence) = take_one(&store).await;
    assert_eq!(taken, key("local", 2));
    store.hasten(&taken).await.unwrap();
    assert_eq!(
        store.finish(&taken, fence, AttemptEnd::Done(json!(1))).await.unwrap(),
        WriteOutcome::Kept(JobState::Done)
    );
    store.hasten(&taken).await.unwrap();
    assert_eq!(take(&store, owner(1), WIDE).await, [], "the other one waits for its time");
}

pub async fn a_waiting_job_is_cancelled_at_once_and_a_running_one_is_told(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    for (number, delay, level) in [(1, Duration::ZERO, 3), (2, HOUR, 6), (3, Duration::ZERO, 9)] {
        put(&store, NewJob { delay, priority: JobPriority::near(level), ..sample_job("local", number) }).await;
    }
    let (running, fence) = take_one(&store).await;
    assert_eq!(running, key("local", 3));
    for waiting in [key("local", 1), key("local", 2)] {
        for _ in 0..2 {
            let asked = store.ask_cancel(&waiting, "not wanted", error()).await.unwrap();
            assert_eq!(asked, CancelAsked::Now(JobState::Cancelled));
        }
        assert_eq!(store.find(&waiting).await.unwrap().unwrap().record.error, Some(error()));
    }
    adapter.clock().step(SECOND);
    assert_eq!(take(&store, owner(1), WIDE).await, [], "they never start");
    for _ in 0..2 {
        let asked = store.ask_cancel(&running, "not wanted", error()).await.unwrap();
        assert_eq!(asked, CancelAsked::Now(JobState::Running));
    }
    let heard = store.renew(owner(1), LEASE).await.unwrap();
    assert_eq!(heard, RenewOutcome::Alive { cancel: vec![running.clone()] });
    store.finish(&running, fence, cancelled()).await.unwrap();
    assert_eq!(store.ask_cancel(&running, "x", error()).await.unwrap(), CancelAsked::Now(JobState::Cancelled));
    let events = store.events(&running, 0, 100).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == "cancel_asked").count(), 1, "asking twice is asking once");
    assert_eq!(store.ask_cancel(&key("local", 9), "x", error()).await.unwrap(), CancelAsked::Unknown);
}

pub async fn an_interruption_costs_no_try_and_was_begun_all_the_same(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    for interruptions in 1..=2 {
        let (key, fence) = take_one(&store).await;
        let end = AttemptEnd::Interrupted { error: error() };
        assert_eq!(store.finish(&key, fence, end).await.unwrap(), WriteOutcome::Kept(JobState::Queued));
        let record = store.find(&key).await.unwrap().unwrap().record;
        assert_eq!((record.attempts, record.interruptions, record.tries()), (interruptions, interruptions, 0));
        assert_eq!(record.error, Some(error()), "it says why it waits");
    }
    let (key, fence) = take_one(&store).await;
    store.finish(&key, fence, AttemptEnd::Retry { error: error(), after: Duration::ZERO }).await.unwrap();
    let record = store.find(&key).await.unwrap().unwrap().record;
    assert_eq!((record.attempts, record.interruptions, record.tries()), (3, 2, 1));
    let kinds: Vec<String> = store.events(&key, 0, 100).await.unwrap().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["queued", "started", "interrupted", "started", "interrupted", "started", "retry"]);
}

pub async fn a_retry_of_a_job_that_was_asked_to_end_ends_it(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    for (number, end) in [
        (1, AttemptEnd::Retry { error: error(), after: SECOND }),
        (2, AttemptEnd::HandBack),
        (3, AttemptEnd::PutBack { error: error(), after: SECOND }),
        (4, AttemptEnd::Interrupted { error: error() }),
    ] {
        put(&store, sample_job("local", number)).await;
        let (key, fence) = take_one(&store).await;
        store.ask_cancel(&key, "x", error()).await.unwrap();
        assert_eq!(store.finish(&key, fence, end).await.unwrap(), WriteOutcome::Kept(JobState::Cancelled));
    }
    assert_eq!(store.counts().await.unwrap(), JobCounts::default());
}

pub async fn an_ended_job_never_changes(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    let (key, fence) = take_one(&store).await;
    store.finish(&key, fence, AttemptEnd::Done(json!(1))).await.unwrap();
    let before = store.find(&key).await.unwrap();
    for end in [AttemptEnd::Done(json!(2)), failed(), AttemptEnd::HandBack, dead(), cancelled()] {
        assert_eq!(store.finish(&key, fence, end).await.unwrap(), WriteOutcome::Fenced);
    }
    assert_eq!(store.report(&key, fence, Some(1.0), None).await.unwrap(), WriteOutcome::Fenced);
    assert_eq!(store.ask_cancel(&key, "late", error()).await.unwrap(), CancelAsked::Now(JobState::Done));
    adapter.clock().step(LEASE * 2);
    store.enlist(owner(2), LEASE, true).await.unwrap();
    assert_eq!(store.take_over(owner(2), 10).await.unwrap(), []);
    assert_eq!(store.find(&key).await.unwrap(), before);
    assert_eq!(store.events(&key, 0, 100).await.unwrap().len(), 3);
}

pub async fn what_a_person_finds_out_replaces_the_end_of_a_failed_job_once(mut adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let dedupe = || Some(JobDedupe { key: "k".into(), window: HOUR });
    let other = json!({ "code": "E3404" });
    let found = FoundResult { result: json!({ "words": 2 }), payload: json!("kept") };
    for (number, found) in [(1, Ok(found)), (2, Err(other.clone()))] {
        let of = if number == 1 { "local" } else { "acme" };
        put(&store, NewJob { dedupe: dedupe(), ..sample_job(of, number) }).await;
        let (key, fence) = take_one(&store).await;
        assert_eq!(store.resolve(&key, &error(), found.clone()).await.unwrap(), WriteOutcome::Fenced, "it runs");
        store.finish(&key, fence, failed()).await.unwrap();
        assert_eq!(store.resolve(&key, &other, found.clone()).await.unwrap(), WriteOutcome::Fenced, "another error");
        let state = if found.is_ok() { JobState::Done } else { JobState::Failed };
        assert_eq!(store.resolve(&key, &error(), found.clone()).await.unwrap(), WriteOutcome::Kept(state));
        assert_eq!(store.resolve(&key, &error(), found).await.unwrap(), WriteOutcome::Fenced, "once");
    }
    drop(store);
    adapter.reopen().await;
    let store = adapter.jobs();
    let (done, failed) = (key("local", 1), key("acme", 2));
    let found = store.find(&done).await.unwrap().unwrap();
    assert_eq!(
        (found.record.state, found.record.error, found.result),
        (JobState::Done, None, Some(json!({ "words": 2 })))
    );
    assert_eq!(found.payload, json!("kept"), "what is done needs no parameters");
    let found = store.find(&failed).await.unwrap().unwrap();
    assert_eq!((found.record.state, found.record.error), (JobState::Failed, Some(other)));
    for key in [&done, &failed] {
        let events = store.events(key, 0, 100).await.unwrap();
        let told: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(told, ["queued", "started", "failed", "resolved"]);
    }
    let again = store.enqueue(NewJob { dedupe: dedupe(), ..sample_job("local", 1) }).await.unwrap();
    assert!(matches!(again, EnqueueOutcome::Existing { .. }), "what was done keeps its key: {again:?}");
    put(&store, NewJob { dedupe: dedupe(), ..sample_job("acme", 3) }).await;
    assert_eq!(store.counts().await.unwrap(), JobCounts { waiting: 1, running: 0 });
}

pub async fn progress_is_kept_within_its_bound_and_changes_of_state_always(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    let (key, fence) = take_one(&store).await;
    store.report(&key, fence, None, Some("parsing".into())).await.unwrap();
    for _ in 0..PROGRESS_KEPT_MAX + 20 {
        store.report(&key, fence, Some(12.5), None).await.unwrap();
    }
    let record = store.find(&key).await.unwrap().unwrap().record;
    assert_eq!((record.progress_percent, record.phase.as_deref()), (Some(12.5), Some("parsing")));
    let (mut after, mut all) = (0, Vec::new());
    loop {
        let some = store.events(&key, after, 50).await.unwrap();
        let Some(last) = some.last() else { break };
        after = last.seq;
        all.extend(some);
    }
    let progress = all.iter().filter(|event| event.kind == "progress").count();
    assert_eq!(progress, usize::try_from(PROGRESS_KEPT_MAX).unwrap());
    let kinds: Vec<&str> = all.iter().map(|event| event.kind.as_str()).take(3).collect();
    assert_eq!(kinds, ["queued", "started", "progress"]);
    assert!(all.array_windows().all(|[left, right]| left.seq < right.seq));
}

pub async fn adopted_work_is_a_running_job(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let full = QueueBounds { per_flow: 0, per_tenant: 0, total: 0 };
    let adopted = store.adopt(NewJob { bounds: full, ..sample_job("local", 1) }, owner(1)).await.unwrap();
    assert_eq!(adopted, AdoptOutcome::Running(FencingToken(1)));
    let fence = FencingToken(1);
    assert_eq!(state(&store, &key("local", 1)).await, JobState::Running);
    let again = store.adopt(sample_job("local", 1), owner(1)).await.unwrap();
    assert_eq!(again, AdoptOutcome::Existing { id: uuid(1), same: true });
    assert_eq!(take(&store, owner(1), WIDE).await, []);
    adapter.clock().step(LEASE * 2);
    store.enlist(owner(2), LEASE, true).await.unwrap();
    assert_eq!(store.take_over(owner(2), 1).await.unwrap().len(), 1, "its process is gone");
    assert_eq!(store.finish(&key("local", 1), fence, AttemptEnd::Done(json!(1))).await.unwrap(), WriteOutcome::Fenced);
}

pub async fn lists_are_filtered_and_paged_newest_first(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    for number in 0..7 {
        let of = if number % 2 == 0 { "local" } else { "acme" };
        // The same name, once as an authority gave it and once of somebody else's making.
        let owner = if number < 4 {
            "agent-1"
        } else if number < 6 {
            "agent-2"
        } else {
            "agent-1 agent-2"
        };
        put(&store, NewJob { owner: owner.parse().unwrap(), ..sample_job(of, number) }).await;
    }
    let local = JobFilter { tenant: Some(tenant("local")), ..JobFilter::default() };
    let first = store.list(&local, None, 3).await.unwrap();
    let ids = |jobs: &[ports::job_store::JobRecord]| jobs.iter().map(|job| job.key.id).collect::<Vec<_>>();
    assert_eq!(ids(&first.jobs), [6, 4, 2].map(uuid));
    let second = store.list(&local, first.next, 3).await.unwrap();
    assert_eq!((ids(&second.jobs), second.next), (vec![uuid(0)], None));
    for (owner, expected) in
        [("agent-2", vec![4]), ("agent-1 agent-2", vec![6]), ("agent-1", vec![2, 0]), ("a agent-2", vec![])]
    {
        let own = JobFilter { owner: Some(owner.parse().unwrap()), ..local.clone() };
        let listed = store.list(&own, None, 100).await.unwrap().jobs;
        assert_eq!(ids(&listed), expected.into_iter().map(uuid).collect::<Vec<_>>(), "{owner}");
        assert!(listed.iter().all(|job| job.owner.as_str() == owner), "{owner}");
    }
    take_one(&store).await;
    let running = JobFilter { state: Some(JobState::Running), ..JobFilter::default() };
    assert_eq!(store.list(&running, None, 100).await.unwrap().jobs.len(), 1);
    let other = JobFilter { kind: Some("webhook".into()), ..JobFilter::default() };
    assert_eq!(store.list(&other, None, 100).await.unwrap().jobs, []);
    assert_eq!(store.list(&JobFilter::default(), None, 100).await.unwrap().jobs.len(), 7);
}

pub async fn ended_jobs_are_forgotten_after_their_retention_and_dead_ones_later(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let ends = [AttemptEnd::Done(json!(1)), failed(), dead(), cancelled()];
    for (number, end) in (1..).zip(ends) {
        put(&store, sample_job("local", number)).await;
        let (key, fence) = take_one(&store).await;
        store.finish(&key, fence, end).await.unwrap();
    }
    put(&store, sample_job("local", 5)).await;
    adapter.clock().step(HOUR + SECOND);
    assert_eq!(store.prune(HOUR * 2, HOUR * 4, 100).await.unwrap(), 0);
    assert_eq!(store.prune(HOUR, HOUR * 4, 2).await.unwrap(), 2, "no more than asked for");
    assert_eq!(store.prune(HOUR, HOUR * 4, 100).await.unwrap(), 1);
    assert_eq!(store.find(&key("local", 1)).await.unwrap(), None);
    assert_eq!(store.events(&key("local", 1), 0, 100).await.unwrap(), []);
    assert_eq!(state(&store, &key("local", 3)).await, JobState::Dead);
    assert_eq!(state(&store, &key("local", 5)).await, JobState::Queued, "what waits is never forgotten");
    adapter.clock().step(HOUR * 4);
    assert_eq!(store.prune(HOUR, HOUR * 4, 100).await.unwrap(), 1);
}

pub async fn a_foreign_tenant_sees_nothing(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    let foreign = key("acme", 1);
    assert_eq!(store.find(&foreign).await.unwrap(), None);
    assert_eq!(store.events(&foreign, 0, 100).await.unwrap(), []);
    assert_eq!(store.ask_cancel(&foreign, "x", error()).await.unwrap(), CancelAsked::Unknown);
    let (_, fence) = take_one(&store).await;
    assert_eq!(store.finish(&foreign, fence, AttemptEnd::Done(json!(1))).await.unwrap(), WriteOutcome::Fenced);
    assert_eq!(store.report(&foreign, fence, None, None).await.unwrap(), WriteOutcome::Fenced);
}

pub async fn counts_follow_every_move(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let counts = async |waiting, running| {
        assert_eq!(store.counts().await.unwrap(), JobCounts { waiting, running });
    };
    counts(0, 0).await;
    put(&store, sample_job("local", 1)).await;
    put(&store, NewJob { delay: SECOND, ..sample_job("acme", 2) }).await;
    counts(2, 0).await;
    let (key, fence) = take_one(&store).await;
    counts(1, 1).await;
    store.finish(&key, fence, AttemptEnd::Retry { error: error(), after: SECOND }).await.unwrap();
    counts(2, 0).await;
    adapter.clock().step(SECOND);
    let taken = take(&store, owner(1), WIDE).await;
    counts(0, 2).await;
    for (key, fence) in taken {
        store.finish(&key, fence, AttemptEnd::HandBack).await.unwrap();
    }
    counts(2, 0).await;
    for (of, number) in [("local", 1), ("acme", 2)] {
        store.ask_cancel(&self::key(of, number), "x", error()).await.unwrap();
    }
    counts(0, 0).await;
}
