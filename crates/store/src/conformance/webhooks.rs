//! Cases of `WebhookStore` and `WorkflowRuns`. Each takes a fresh store.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test suite: what does not hold must panic"
)]

use std::sync::Arc;
use std::time::Duration;

use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::webhook_store::{
    ATTEMPTS_KEPT_MAX, AddOutcome, DeliveryAttempt, DeliveryFilter, DeliveryId, DeliveryPage, DeliveryState,
    DeliveryTarget, EventKind, NewDelivery, NoteOutcome, SigningSecret, WebhookId, WebhookRecord, WebhookStore,
};
use ports::workflow_runs::{NewRun, RunBeginOutcome, RunEnd, RunEnded, RunState};
use serde_json::{Value, json};

use super::StoreAdapter;

/// All cases against one adapter.
#[macro_export]
macro_rules! webhooks_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            webhooks,
            [
                a_subscription_is_kept_as_it_is_and_only_for_its_tenant,
                a_tenant_has_no_more_subscriptions_than_it_may,
                a_secret_is_replaced_once_and_the_former_stays_for_a_while,
                a_delivery_is_added_once,
                attempts_count_while_a_delivery_is_pending_and_once_each,
                a_body_goes_when_it_was_delivered_and_stays_when_it_was_given_up,
                what_was_given_up_is_reopened_in_a_round_of_its_own,
                attempts_are_kept_up_to_their_bound,
                deliveries_are_listed_newest_first_in_pages,
                one_of_many_gets_what_many_claim,
                what_has_ended_long_ago_is_forgotten,
                everything_survives_a_reopening,
                a_run_begins_once_for_a_key_and_ends_once,
            ]
        );
    };
}

const NOON: UnixMillis = UnixMillis(1_790_000_000_123);
const HOUR: Duration = Duration::from_secs(3600);

// ---------------------------------------------------------------------------------------------------------- samples

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// An id whose last digits say which it is.
fn id<T: std::str::FromStr>(number: u64) -> T {
    format!("01890000-0000-7000-8000-{number:012}").parse().ok().unwrap()
}

fn webhook(of: &str, number: u64) -> WebhookRecord {
    WebhookRecord {
        tenant: tenant(of),
        id: webhook_id(number),
        url: "https://hooks.example.com/a?b='; DROP TABLE webhooks; --".into(),
        events: vec![EventKind::InvocationCompleted, EventKind::InvocationFailed],
        secret: SigningSecret::Generated { generation: 1 },
        former: None,
        added_at: UnixMillis(NOON.0 + i64::try_from(number).unwrap()),
        added_by: "admin".parse().unwrap(),
    }
}

fn webhook_id(number: u64) -> WebhookId {
    WebhookId(id::<InvocationId>(number).0)
}

fn delivery_id(number: u64) -> DeliveryId {
    DeliveryId(id::<InvocationId>(number).0)
}

fn delivery(of: &str, number: u64) -> NewDelivery {
    NewDelivery {
        tenant: tenant(of),
        id: delivery_id(number),
        target: DeliveryTarget::Webhook(webhook_id(1)),
        event: EventKind::InvocationCompleted,
        invocation: Some(id(7)),
        body: "{\"a\":\"ä\"}".into(),
    }
}

fn attempt(round: u32, number: u32) -> DeliveryAttempt {
    DeliveryAttempt { round, number, at: NOON, status: Some(500), took_ms: 12, error: Some("bad_status".into()) }
}

async fn with_delivery(adapter: &impl StoreAdapter) -> Arc<dyn WebhookStore> {
    let store = adapter.webhooks();
    assert!(store.add_delivery(&delivery("local", 1)).await.unwrap());
    store
}

async fn note(store: &Arc<dyn WebhookStore>, attempt: &DeliveryAttempt, state: DeliveryState) -> NoteOutcome {
    store.note_attempt(&tenant("local"), delivery_id(1), attempt, state).await.unwrap()
}

fn of_tenant(of: &str) -> DeliveryFilter {
    DeliveryFilter { tenant: tenant(of), webhook: None, state: None }
}

// ------------------------------------------------------------------------------------------------------------ cases

pub async fn a_subscription_is_kept_as_it_is_and_only_for_its_tenant(adapter: impl StoreAdapter) {
    let store = adapter.webhooks();
    let named = WebhookRecord {
        secret: SigningSecret::Named("hook".into()),
        events: Vec::new(),
        former: None,
        ..webhook("local", 2)
    };
    for record in [&webhook("local", 1), &named, &webhook("acme", 1)] {
        assert_eq!(store.add_webhook(record, 10).await.unwrap(), AddOutcome::Kept);
    }
    assert_eq!(store.webhooks(&tenant("local")).await.unwrap(), [webhook("local", 1), named]);
    assert_eq!(store.webhook(&tenant("acme"), webhook_id(1)).await.unwrap(), Some(webhook("acme", 1)));
    assert_eq!(store.webhook(&tenant("acme"), webhook_id(2)).await.unwrap(), None);
    assert!(!store.remove_webhook(&tenant("acme"), webhook_id(2)).await.unwrap());
    assert!(store.remove_webhook(&tenant("local"), webhook_id(1)).await.unwrap());
    assert!(!store.remove_webhook(&tenant("local"), webhook_id(1)).await.unwrap());
    assert_eq!(store.webhooks(&tenant("acme")).await.unwrap(), [webhook("acme", 1)]);
}

pub async fn a_tenant_has_no_more_subscriptions_than_it_may(adapter: impl StoreAdapter) {
    let store = adapter.webhooks();
    for (number, expected) in [(1, AddOutcome::Kept), (2, AddOutcome::Kept), (3, AddOutcome::TooMany)] {
        assert_eq!(store.add_webhook(&webhook("local", number), 2).await.unwrap(), expected);
    }
    assert_eq!(store.add_webhook(&webhook("acme", 3), 2).await.unwrap(), AddOutcome::Kept, "others are not counted");
    assert_eq!(store.webhooks(&tenant("local")).await.unwrap().len(), 2);
}

pub async fn a_secret_is_replaced_once_and_the_former_stays_for_a_while(adapter: impl StoreAdapter) {
    let store = adapter.webhooks();
    store.add_webhook(&webhook("local", 1), 10).await.unwrap();
    let (first, second) =
        (SigningSecret::Generated { generation: 1 }, SigningSecret::Generated { generation: 4_000_000_000 });
    let named = SigningSecret::Named("hook".into());
    let rotate = async |of: &str, from: &SigningSecret, to: &SigningSecret| {
        store.rotate_secret(&tenant(of), webhook_id(1), from, to, HOUR).await.unwrap()
    };
    assert_eq!(rotate("acme", &first, &second).await, None);
    let rotated = rotate("local", &first, &second).await.unwrap();
    assert_eq!((&rotated.secret, &rotated.former.as_ref().unwrap().secret), (&second, &first));
    assert_eq!(rotate("local", &first, &named).await, None, "it is another one by now");
    let again = rotate("local", &second, &named).await.unwrap();
    assert_eq!((&again.secret, &again.former.as_ref().unwrap().secret), (&named, &second));
    assert!(again.former.as_ref().unwrap().until >= rotated.former.unwrap().until);
    assert_eq!(store.webhook(&tenant("local"), webhook_id(1)).await.unwrap(), Some(again));
}

pub async fn a_delivery_is_added_once(adapter: impl StoreAdapter) {
    let store = with_delivery(&adapter).await;
    let other = NewDelivery { body: "other".into(), ..delivery("local", 1) };
    assert!(!store.add_delivery(&other).await.unwrap());
    assert!(store.add_delivery(&delivery("acme", 1)).await.unwrap(), "the same id of another tenant");
    let kept = store.delivery(&tenant("local"), delivery_id(1)).await.unwrap().unwrap();
    assert_eq!(kept.body.as_deref(), Some("{\"a\":\"ä\"}"));
    assert_eq!((kept.record.state, kept.record.round, kept.record.attempts), (DeliveryState::Pending, 1, 0));
    assert_eq!(store.delivery(&tenant("acme"), delivery_id(2)).await.unwrap(), None);
}

pub async fn attempts_count_while_a_delivery_is_pending_and_once_each(adapter: impl StoreAdapter) {
    let store = with_delivery(&adapter).await;
    assert_eq!(note(&store, &attempt(1, 1), DeliveryState::Pending).await, NoteOutcome::Kept);
    assert_eq!(note(&store, &attempt(1, 1), DeliveryState::Dead).await, NoteOutcome::Stale, "the same once more");
    assert_eq!(note(&store, &attempt(2, 1), DeliveryState::Dead).await, NoteOutcome::Stale, "of another round");
    let delivered = DeliveryAttempt { status: Some(204), error: None, ..attempt(1, 2) };
    assert_eq!(note(&store, &delivered, DeliveryState::Delivered).await, NoteOutcome::Kept);
    assert_eq!(note(&store, &attempt(1, 3), DeliveryState::Dead).await, NoteOutcome::Stale, "it has ended");
    let foreign = store.note_attempt(&tenant("acme"), delivery_id(1), &attempt(1, 3), DeliveryState::Dead).await;
    assert_eq!(foreign.unwrap(), NoteOutcome::Stale);
    let kept = store.attempts(&tenant("local"), delivery_id(1)).await.unwrap();
    assert_eq!(kept, [attempt(1, 1), delivered]);
    assert_eq!(store.attempts(&tenant("acme"), delivery_id(1)).await.unwrap(), []);
}

pub async fn a_body_goes_when_it_was_delivered_and_stays_when_it_was_given_up(adapter: impl StoreAdapter) {
    let store = with_delivery(&adapter).await;
    store.add_delivery(&delivery("local", 2)).await.unwrap();
    assert_eq!(note(&store, &attempt(1, 1), DeliveryState::Delivered).await, NoteOutcome::Kept);
    let second = store.note_attempt(&tenant("local"), delivery_id(2), &attempt(1, 1), DeliveryState::Dead).await;
    assert_eq!(second.unwrap(), NoteOutcome::Kept);
    for (number, has_body) in [(1, false), (2, true)] {
        let kept = store.delivery(&tenant("local"), delivery_id(number)).await.unwrap().unwrap();
        assert_eq!((kept.body.is_some(), kept.record.ended_at.is_some()), (has_body, true));
    }
}

pub async fn what_was_given_up_is_reopened_in_a_round_of_its_own(adapter: impl StoreAdapter) {
    let store = with_delivery(&adapter).await;
    let reopen = async |of: &str| store.reopen(&tenant(of), delivery_id(1)).await.unwrap();
    assert_eq!(reopen("local").await, None, "it is pending");
    note(&store, &attempt(1, 1), DeliveryState::Dead).await;
    assert_eq!(reopen("acme").await, None);
    let again = reopen("local").await.unwrap();
    assert_eq!((again.state, again.round, again.attempts), (DeliveryState::Pending, 2, 0));
    assert_eq!(reopen("local").await, None);
    assert_eq!(note(&store, &attempt(1, 2), DeliveryState::Dead).await, NoteOutcome::Stale, "of the round before");
    assert_eq!(note(&store, &attempt(2, 1), DeliveryState::Delivered).await, NoteOutcome::Kept);
    assert_eq!(store.attempts(&tenant("local"), delivery_id(1)).await.unwrap().len(), 2);
}

pub async fn attempts_are_kept_up_to_their_bound(adapter: impl StoreAdapter) {
    let store = with_delivery(&adapter).await;
    for number in 1..=ATTEMPTS_KEPT_MAX + 3 {
        assert_eq!(note(&store, &attempt(1, number), DeliveryState::Pending).await, NoteOutcome::Kept);
    }
    let kept = store.attempts(&tenant("local"), delivery_id(1)).await.unwrap();
    assert_eq!(kept.len(), usize::try_from(ATTEMPTS_KEPT_MAX).unwrap());
    assert_eq!((kept.first().unwrap().number, kept.last().unwrap().number), (4, ATTEMPTS_KEPT_MAX + 3));
}

pub async fn deliveries_are_listed_newest_first_in_pages(adapter: impl StoreAdapter) {
    let store = adapter.webhooks();
    for number in 1..=5 {
        store.add_delivery(&delivery("local", number)).await.unwrap();
    }
    let callback = DeliveryTarget::Callback { url: "https://a.example".into(), secret: "hook".into() };
    store
        .add_delivery(&NewDelivery { target: callback.clone(), invocation: None, ..delivery("local", 6) })
        .await
        .unwrap();
    store.add_delivery(&delivery("acme", 9)).await.unwrap();
    let numbers = |page: &DeliveryPage| page.deliveries.iter().map(|record| record.id).collect::<Vec<_>>();
    let first = store.deliveries(&of_tenant("local"), None, 4).await.unwrap();
    assert_eq!(numbers(&first), [6, 5, 4, 3].map(delivery_id));
    assert_eq!(first.deliveries.first().unwrap().target, callback);
    let rest = store.deliveries(&of_tenant("local"), first.next, 4).await.unwrap();
    assert_eq!((numbers(&rest), rest.next), ([2, 1].map(delivery_id).to_vec(), None));
    let exact = store.deliveries(&of_tenant("local"), None, 6).await.unwrap();
    assert_eq!((exact.deliveries.len(), exact.next), (6, None));
    note(&store, &attempt(1, 1), DeliveryState::Dead).await;
    let dead = DeliveryFilter { state: Some(DeliveryState::Dead), ..of_tenant("local") };
    assert_eq!(numbers(&store.deliveries(&dead, None, 10).await.unwrap()), [delivery_id(1)]);
    let of_hook = DeliveryFilter { webhook: Some(webhook_id(1)), ..of_tenant("local") };
    assert_eq!(store.deliveries(&of_hook, None, 10).await.unwrap().deliveries.len(), 5);
    assert_eq!(store.deliveries(&of_tenant("nobody"), None, 10).await.unwrap(), DeliveryPage::default());
}

pub async fn one_of_many_gets_what_many_claim(adapter: impl StoreAdapter) {
    let store = adapter.webhooks();
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..16 {
        let store = Arc::clone(&store);
        asking.spawn(async move { (number, store.claim("jwt_1", &format!("msg_{number}"), HOUR).await.unwrap()) });
    }
    let got: Vec<_> = asking.join_all().await.into_iter().filter(|(_, got)| *got).collect();
    let [(winner, _)] = got.as_slice() else { panic!("one, not {got:?}") };
    assert!(store.claim("jwt_1", &format!("msg_{winner}"), HOUR).await.unwrap(), "it has it already");
    assert!(!store.claim("jwt_1", "msg_other", HOUR).await.unwrap());
    assert!(store.claim("jwt_2", "msg_a", Duration::ZERO).await.unwrap());
    assert!(store.claim("jwt_2", "msg_b", HOUR).await.unwrap(), "its window was over at once");
    adapter.clock().step(HOUR);
    assert!(store.claim("jwt_2", "msg_c", HOUR).await.unwrap(), "its window is over");
}

pub async fn what_has_ended_long_ago_is_forgotten(adapter: impl StoreAdapter) {
    let store = with_delivery(&adapter).await;
    store.add_delivery(&delivery("local", 2)).await.unwrap();
    note(&store, &attempt(1, 1), DeliveryState::Dead).await;
    assert_eq!(store.prune_webhooks(HOUR, 10).await.unwrap(), 0, "it ended just now");
    adapter.clock().step(Duration::from_millis(50));
    assert_eq!(store.prune_webhooks(Duration::ZERO, 10).await.unwrap(), 1);
    let left = store.deliveries(&of_tenant("local"), None, 10).await.unwrap();
    assert_eq!(left.deliveries.iter().map(|record| record.id).collect::<Vec<_>>(), [delivery_id(2)], "it is pending");
    assert_eq!(store.attempts(&tenant("local"), delivery_id(1)).await.unwrap(), []);
}

pub async fn everything_survives_a_reopening(mut adapter: impl StoreAdapter) {
    let store = with_delivery(&adapter).await;
    store.add_webhook(&webhook("local", 1), 10).await.unwrap();
    let (from, to) = (SigningSecret::Generated { generation: 1 }, SigningSecret::Named("hook".into()));
    let rotated = store.rotate_secret(&tenant("local"), webhook_id(1), &from, &to, HOUR).await.unwrap().unwrap();
    let silent = DeliveryAttempt { status: None, error: Some("timed_out".into()), ..attempt(1, 1) };
    note(&store, &silent, DeliveryState::Pending).await;
    let before = store.delivery(&tenant("local"), delivery_id(1)).await.unwrap();
    assert!(store.claim("jwt_1", "msg_1", HOUR).await.unwrap());
    drop(store);
    adapter.reopen().await;
    let store = adapter.webhooks();
    assert_eq!(store.webhooks(&tenant("local")).await.unwrap(), [rotated]);
    assert_eq!(store.delivery(&tenant("local"), delivery_id(1)).await.unwrap(), before);
    assert_eq!(store.attempts(&tenant("local"), delivery_id(1)).await.unwrap(), [silent]);
    assert!(!store.claim("jwt_1", "msg_2", HOUR).await.unwrap());
}

pub async fn a_run_begins_once_for_a_key_and_ends_once(mut adapter: impl StoreAdapter) {
    let runs = adapter.runs();
    let run = |of: &str, number: u64, key: &str| NewRun {
        tenant: tenant(of),
        id: id(number),
        workflow: "wf-send-email".into(),
        idempotency_key: key.into(),
        input: json!({ "to": "a@b.example" }),
    };
    assert_eq!(runs.begin_run(&run("local", 1, "k")).await.unwrap(), RunBeginOutcome::New);
    assert_eq!(runs.begin_run(&run("local", 2, "k")).await.unwrap(), RunBeginOutcome::Known(id(1)));
    assert_eq!(runs.begin_run(&run("local", 3, "other")).await.unwrap(), RunBeginOutcome::New);
    assert_eq!(runs.begin_run(&run("acme", 1, "k")).await.unwrap(), RunBeginOutcome::New);
    let end = RunEnd::Success(Value::Null);
    assert_eq!(runs.end_run(&tenant("nobody"), id(1), &end).await.unwrap(), RunEnded::Unknown);
    assert!(matches!(runs.end_run(&tenant("local"), id(1), &end).await.unwrap(), RunEnded::Now { .. }));
    let failure = RunEnd::Failure(json!({ "code": "N8N_ERROR" }));
    assert_eq!(runs.end_run(&tenant("local"), id(1), &failure).await.unwrap(), RunEnded::Before);
    assert!(matches!(runs.end_run(&tenant("local"), id(3), &failure).await.unwrap(), RunEnded::Now { .. }));
    let released = async |number: u64, key: &str| {
        runs.release_run(&tenant("local"), id(number)).await.unwrap();
        runs.begin_run(&run("local", 4, key)).await.unwrap() == RunBeginOutcome::New
    };
    assert!(!released(1, "k").await, "what succeeded stays");
    assert_eq!(runs.begin_run(&run("local", 5, "not sent")).await.unwrap(), RunBeginOutcome::New);
    assert!(released(5, "not sent").await, "its key is free");
    assert!(released(4, "not sent").await, "and again");
    runs.release_run(&tenant("local"), id(4)).await.unwrap();
    drop(runs);
    adapter.reopen().await;
    let runs = adapter.runs();
    let ended = runs.run(&tenant("local"), id(1)).await.unwrap().unwrap();
    assert_eq!((ended.state, ended.output, ended.error), (RunState::Success, Some(Value::Null), None));
    assert_eq!(ended.input, Some(json!({ "to": "a@b.example" })));
    let failed = runs.run(&tenant("local"), id(3)).await.unwrap().unwrap();
    assert_eq!((failed.state, failed.error), (RunState::Failure, Some(json!({ "code": "N8N_ERROR" }))));
    assert_eq!(runs.run(&tenant("acme"), id(1)).await.unwrap().unwrap().state, RunState::Pending);
    adapter.clock().step(Duration::from_millis(50));
    assert_eq!(runs.prune_runs(HOUR, 10).await.unwrap(), 0);
    assert_eq!(runs.prune_runs(Duration::ZERO, 10).await.unwrap(), 2);
    assert_eq!(runs.run(&tenant("local"), id(1)).await.unwrap(), None);
}
