//! Webhooks with the receiver, the queue and the time in the test's hand.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::envelope::{Callback, InvocationStatus};
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use gantry_jobs::webhooks::{
    CompletedCall, DeliveryOutcome, DeliveryTurn, SIGNATURE_HEADER, WebhookParts, WebhookSettings, WebhookWish,
    Webhooks, verify,
};
use ports::call_out::CallOutError;
use ports::clock::Clock as _;
use ports::secret_source::{SecretError, SecretSource, SecretValue};
use ports::webhook_store::{DeliveryState, EventKind, WebhookStore as _};
use serde_json::{Value, json};
use store::memory::MemoryStore;
use test_kernel::{CountingEntropy, HeldClock, MemoryEntrance, ScriptedReceiver, TestKernel, admin};

/// Has one credential.
#[derive(Debug)]
struct OneSecret;

#[async_trait]
impl SecretSource for OneSecret {
    async fn secret(&self, tenant: &TenantId, name: &str) -> Result<SecretValue, SecretError> {
        if tenant.is_home() && name == "hook" {
            Ok(SecretValue::new("shared\n").unwrap())
        } else {
            Err(SecretError::Missing)
        }
    }
}

struct Post {
    stage: TestKernel,
    hooks: Arc<Webhooks>,
    store: Arc<MemoryStore>,
    queue: Arc<MemoryEntrance>,
    receiver: Arc<ScriptedReceiver>,
}

/// Webhooks by this clock, their store and queue, and who receives them.
fn posted(
    clock: Arc<HeldClock>,
    answers: impl IntoIterator<Item = Result<(u16, Value), CallOutError>>,
) -> (Arc<Webhooks>, Arc<MemoryStore>, Arc<MemoryEntrance>, Arc<ScriptedReceiver>) {
    let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as _));
    let (queue, receiver) = (Arc::new(MemoryEntrance::default()), ScriptedReceiver::answers(answers));
    let hooks = Webhooks::new(WebhookParts {
        store: Arc::clone(&store) as _,
        calls: Arc::clone(&receiver) as _,
        queue: Arc::clone(&queue) as _,
        secrets: Arc::new(OneSecret),
        root: SecretValue::new([7; 32]).unwrap(),
        clock,
        entropy: Arc::new(CountingEntropy::default()),
        settings: WebhookSettings::default(),
    });
    (Arc::new(hooks), store, queue, receiver)
}

impl Post {
    async fn with(answers: impl IntoIterator<Item = Result<(u16, Value), CallOutError>>) -> Self {
        let stage = TestKernel::new().await;
        let (hooks, store, queue, receiver) = posted(Arc::clone(&stage.clock), answers);
        Self { stage, hooks, store, queue, receiver }
    }

    async fn subscribe(&self, events: &[EventKind]) -> (ports::webhook_store::WebhookRecord, String) {
        let wish = WebhookWish { url: "https://r.example/hook".into(), events: events.to_vec(), secret: None };
        let (record, secret) = self.hooks.add(&self.stage.kernel, admin(), None, wish).await.unwrap();
        (record, secret.unwrap())
    }

    async fn announce(&self, status: InvocationStatus, callback: Option<&Callback>) -> Result<usize, Refusal> {
        let (tenant, result) = (TenantId::home(), json!({ "n": 1 }));
        let invocation: InvocationId = "01890000-0000-7000-8000-000000000001".parse().unwrap();
        self.hooks
            .announce(CompletedCall {
                tenant: &tenant,
                invocation,
                tool: "demo.echo",
                tool_version: Some("1.0.0"),
                status,
                result: Some(&result),
                error: None,
                callback,
                agent: "agent-1",
            })
            .await
    }

    /// Takes the next turn in the queue when it is due, by moving the time on.
    async fn next_turn(&self) -> Option<DeliveryOutcome> {
        let job = {
            let mut jobs = self.queue.0.lock().unwrap();
            if jobs.is_empty() { None } else { Some(jobs.remove(0)) }
        }?;
        self.stage.step(i64::try_from(job.delay.as_secs()).unwrap());
        let turn = DeliveryTurn::of_payload(&job.payload).unwrap();
        Some(self.hooks.deliver(&job.tenant, turn).await.unwrap())
    }
}

fn ok() -> Result<(u16, Value), CallOutError> {
    Ok((204, Value::Null))
}

#[tokio::test]
async fn a_receiver_can_check_where_a_body_comes_from_and_gets_it_once_however_often_it_is_announced() {
    let post = Post::with([ok()]).await;
    let (record, secret) = post.subscribe(&[EventKind::InvocationCompleted]).await;
    assert_eq!(post.announce(InvocationStatus::Success, None).await.unwrap(), 1);
    assert_eq!(post.announce(InvocationStatus::Success, None).await.unwrap(), 1);
    assert_eq!(post.announce(InvocationStatus::Error, None).await.unwrap(), 0, "it has not asked for failures");
    assert_eq!(post.announce(InvocationStatus::Running, None).await.unwrap(), 0, "it has not ended");
    assert_eq!(post.next_turn().await, Some(DeliveryOutcome::Done));
    assert_eq!(post.next_turn().await, None);
    let sent = post.receiver.sent.lock().unwrap().clone();
    let [(url, headers, body)] = sent.as_slice() else { panic!("once") };
    let header = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap();
    assert_eq!((url.as_str(), header("gantry-event").as_str()), (record.url.as_str(), "invocation.completed"));
    let secrets = [SecretValue::new(secret).unwrap()];
    verify(&header(SIGNATURE_HEADER), &secrets, body.as_bytes(), post.stage.clock.now()).unwrap();
    let event: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&event["type"], &event["data"]["result"]["n"]), (&json!("invocation.completed"), &json!(1)));
    assert_eq!(event["tenant_id"], "local");
}

#[tokio::test]
async fn a_receiver_that_fails_for_an_hour_gets_it_when_it_is_back() {
    let failing = (0..4).map(|_| Ok((500, Value::Null)));
    let post = Post::with(failing.chain([ok()])).await;
    post.subscribe(&[]).await;
    post.announce(InvocationStatus::Success, None).await.unwrap();
    let begun = post.stage.clock.now();
    let mut turns = 0;
    let last = loop {
        turns += 1;
        match post.next_turn().await.unwrap() {
            DeliveryOutcome::Again { error, .. } => assert_eq!(error, "bad_status"),
            end => break end,
        }
    };
    let took = post.stage.clock.now().since(begun);
    assert_eq!((last, turns), (DeliveryOutcome::Done, 5));
    assert!((1800..4 * 3600).contains(&took.as_secs()), "{took:?}");
    let ids: Vec<_> = post.receiver.sent.lock().unwrap().iter().map(|(_, _, body)| body.clone()).collect();
    assert!(ids.iter().all(|body| *body == ids[0]), "every repetition has the same bytes");
}

#[tokio::test]
async fn what_is_given_up_after_a_day_is_kept_and_can_be_sent_again() {
    let post = Post::with([Err(CallOutError::TimedOut(Duration::from_secs(15)))]).await;
    post.subscribe(&[]).await;
    post.announce(InvocationStatus::Error, None).await.unwrap();
    let begun = post.stage.clock.now();
    let mut turns = 1;
    while let DeliveryOutcome::Again { .. } = post.next_turn().await.unwrap() {
        turns += 1;
    }
    let took = post.stage.clock.now().since(begun);
    assert_eq!(turns, 8);
    assert!(took <= Duration::from_secs(24 * 3600) && took > Duration::from_secs(20 * 3600), "{took:?}");
    let page =
        post.hooks.deliveries(&post.stage.kernel, admin(), None, (None, Some(DeliveryState::Dead)), (None, 10)).await;
    let dead = page.unwrap().deliveries.remove(0);
    let report = post.hooks.delivery(&post.stage.kernel, admin(), None, dead.id).await.unwrap();
    assert!(report.attempts.iter().all(|attempt| attempt.error.as_deref() == Some("timed_out")));
    *post.receiver.answers.lock().unwrap() = [ok()].into();
    let again = post.hooks.resend(&post.stage.kernel, admin(), None, dead.id).await.unwrap();
    assert_eq!((again.record.round, again.record.state), (2, DeliveryState::Pending));
    assert_eq!(post.next_turn().await, Some(DeliveryOutcome::Done));
    let refusal = post.hooks.resend(&post.stage.kernel, admin(), None, dead.id).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3408, "it has arrived");
}

#[tokio::test]
async fn some_failures_are_final_and_a_redirect_says_that_it_is_one() {
    for (answer, word, is_final) in [
        (Err(CallOutError::NotAllowed("x")), "address_not_allowed", true),
        (Err(CallOutError::Plaintext), "plaintext_not_allowed", true),
        (Ok((410, Value::Null)), "bad_status", true),
        (Err(CallOutError::Redirect(302)), "redirect", false),
        (Err(CallOutError::Unresolved), "unresolved", false),
        (Ok((404, Value::Null)), "bad_status", false),
    ] {
        let post = Post::with([answer]).await;
        post.subscribe(&[]).await;
        post.announce(InvocationStatus::Success, None).await.unwrap();
        let turn = post.next_turn().await.unwrap();
        let said = match &turn {
            DeliveryOutcome::Dead { error } if is_final => error,
            DeliveryOutcome::Again { error, .. } if !is_final => error,
            other => panic!("{other:?}"),
        };
        assert_eq!(said, word);
    }
}

#[tokio::test]
async fn a_turn_that_was_taken_before_a_crash_is_not_taken_again_and_the_next_one_is() {
    let post = Post::with([Ok((500, Value::Null)), ok()]).await;
    post.subscribe(&[]).await;
    post.announce(InvocationStatus::Success, None).await.unwrap();
    let first = post.queue.0.lock().unwrap()[0].clone();
    let turn = DeliveryTurn::of_payload(&first.payload).unwrap();
    post.hooks.deliver(&first.tenant, turn.clone()).await.unwrap();
    // The server dies before the next turn is in the queue, and takes the first one again after its start.
    post.queue.0.lock().unwrap().clear();
    let again = post.hooks.deliver(&first.tenant, turn.clone()).await.unwrap();
    assert!(matches!(again, DeliveryOutcome::Again { .. }));
    assert_eq!(post.receiver.count(), 1, "nothing was sent");
    assert_eq!(post.next_turn().await, Some(DeliveryOutcome::Done));
    assert_eq!(post.hooks.deliver(&first.tenant, turn).await.unwrap(), DeliveryOutcome::Nothing, "it has arrived");
}

#[tokio::test]
async fn secrets_are_shown_once_and_two_are_valid_while_one_is_replaced() {
    let post = Post::with([ok()]).await;
    let (record, first) = post.subscribe(&[]).await;
    let kept = format!("{:?}", post.store.webhooks(&TenantId::home()).await.unwrap());
    assert!(!kept.contains("whsec_"), "{kept}");
    let hour = Duration::from_secs(3600);
    let (_, second) = post.hooks.rotate(&post.stage.kernel, admin(), None, record.id, None, hour).await.unwrap();
    let second = second.unwrap();
    assert_ne!(first, second);
    for (seconds, first_is_valid) in [(0, true), (3601, false)] {
        post.stage.step(seconds);
        post.hooks.test(&post.stage.kernel, admin(), None, record.id).await.unwrap();
        let (_, headers, body) = post.receiver.sent.lock().unwrap().last().unwrap().clone();
        let signature = &headers.iter().find(|(name, _)| *name == SIGNATURE_HEADER).unwrap().1;
        let check = |secret: &str| {
            verify(signature, &[SecretValue::new(secret).unwrap()], body.as_bytes(), post.stage.clock.now()).is_ok()
        };
        assert_eq!((check(&first), check(&second)), (first_is_valid, true), "{seconds}");
    }
    let named =
        post.hooks.rotate(&post.stage.kernel, admin(), None, record.id, Some("hook".into()), hour).await.unwrap();
    assert_eq!(named.1, None, "a credential is not shown");
    let missing = post.hooks.rotate(&post.stage.kernel, admin(), None, record.id, Some("none".into()), hour).await;
    assert_eq!(missing.unwrap_err().code, ErrorCode::E3602);
}

#[tokio::test]
async fn a_call_names_whom_it_wants_told_and_is_refused_if_that_cannot_be() {
    let post = Post::with([ok()]).await;
    let (record, _) = post.subscribe(&[EventKind::InvocationFailed]).await;
    let to =
        |url: &str, secret: &str| Callback { url: Some(url.into()), secret: Some(secret.into()), webhook_id: None };
    let subscription = Callback { webhook_id: Some(record.id.0.to_string()), ..Callback::default() };
    let home = TenantId::home();
    for (callback, expected) in [
        (subscription.clone(), None),
        (to("https://c.example/", "hook"), None),
        (to("http://c.example/", "hook"), Some(ErrorCode::E3004)),
        (to("https://c.example/", "none"), Some(ErrorCode::E3602)),
        (Callback { webhook_id: Some(uuid()), ..Callback::default() }, Some(ErrorCode::E3702)),
        (Callback::default(), Some(ErrorCode::E3004)),
    ] {
        let checked = post.hooks.check_callback(&home, &callback).await;
        assert_eq!(checked.err().map(|refusal| refusal.code), expected, "{callback:?}");
    }
    let foreign: TenantId = "acme".parse().unwrap();
    let refusal = post.hooks.check_callback(&foreign, &subscription).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3702, "another tenant's is like none");
    assert_eq!(post.announce(InvocationStatus::Success, Some(&subscription)).await.unwrap(), 1);
    assert_eq!(post.announce(InvocationStatus::Success, Some(&to("https://c.example/", "hook"))).await.unwrap(), 1);
    assert_eq!(
        (post.next_turn().await, post.next_turn().await),
        (Some(DeliveryOutcome::Done), Some(DeliveryOutcome::Done))
    );
    let sent = post.receiver.sent.lock().unwrap().clone();
    let (_, headers, body) = sent.iter().find(|(url, ..)| url == "https://c.example/").unwrap();
    let signature = &headers.iter().find(|(name, _)| *name == SIGNATURE_HEADER).unwrap().1;
    verify(signature, &[SecretValue::new("shared").unwrap()], body.as_bytes(), post.stage.clock.now()).unwrap();
}

fn uuid() -> String {
    "01890000-0000-7000-8000-000000000099".to_owned()
}

#[tokio::test]
async fn a_subscription_that_was_removed_gets_nothing_more() {
    let post = Post::with([ok()]).await;
    let (record, _) = post.subscribe(&[]).await;
    post.announce(InvocationStatus::Success, None).await.unwrap();
    post.hooks.remove(&post.stage.kernel, admin(), None, record.id).await.unwrap();
    assert_eq!(post.next_turn().await, Some(DeliveryOutcome::Dead { error: "webhook_removed".into() }));
    assert_eq!(post.receiver.count(), 0);
    let refusal = post.hooks.remove(&post.stage.kernel, admin(), None, record.id).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3702);
}

#[tokio::test]
async fn a_callback_takes_the_turns_of_the_agent_that_named_it_whatever_its_address() {
    for url in ["https://r.example/a", "https://r.example?n=1", "https://R.example:443/b"] {
        let post = Post::with([Ok((500, Value::Null)), ok()]).await;
        let callback = Callback { webhook_id: None, url: Some(url.into()), secret: Some("hook".into()) };
        post.announce(InvocationStatus::Success, Some(&callback)).await.unwrap();
        let flow = || post.queue.0.lock().unwrap().iter().map(|job| job.flow.clone()).collect::<Vec<_>>();
        assert_eq!(flow(), ["agent-1"], "{url}");
        assert!(matches!(post.next_turn().await, Some(DeliveryOutcome::Again { .. })));
        assert_eq!(flow(), ["agent-1"], "{url}: the next attempt, too");
    }
}
