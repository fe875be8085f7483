//! Cases of `JobStore` about the queue: who is next, how much may wait, and what makes one job of two wishes.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ports::job_store::{
    AGEING_PER_LEVEL, AttemptEnd, DedupeKey, EnqueueOutcome, JobDedupe, JobKey, JobPriority, NewJob, QueueBounds,
    TakeRules,
};
use serde_json::json;

use super::super::{StoreAdapter, sample_job};
use super::{HOUR, LEASE, SECOND, WIDE, error, failed, key, owner, put, ready, take, take_one, tenant, uuid};

pub async fn the_more_urgent_job_is_first_and_waiting_is_worth_urgency(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    for (number, level) in [(1, 5), (2, 1), (3, 10), (4, 5)] {
        put(&store, NewJob { priority: JobPriority::near(level), ..sample_job("local", number) }).await;
    }
    let order: Vec<JobKey> = take(&store, owner(1), WIDE).await.into_iter().map(|(key, _)| key).collect();
    assert_eq!(order, [3, 1, 4, 2].map(|number| key("local", number)));

    put(&store, NewJob { priority: JobPriority::near(1), ..sample_job("local", 5) }).await;
    adapter.clock().step(AGEING_PER_LEVEL * 9 + SECOND);
    store.enlist(owner(1), LEASE, false).await.unwrap();
    put(&store, NewJob { priority: JobPriority::near(10), ..sample_job("local", 6) }).await;
    assert_eq!(take_one(&store).await.0, key("local", 5), "it has waited long enough");
}

pub async fn tenants_take_turns_whatever_they_call_urgent(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    for number in 0..60 {
        put(&store, NewJob { priority: JobPriority::near(10), ..sample_job("loud", number) }).await;
    }
    for (of, numbers) in [("quiet", 100..105), ("other", 200..205)] {
        for number in numbers {
            put(&store, NewJob { priority: JobPriority::near(1), ..sample_job(of, number) }).await;
        }
    }
    // One worker, so nothing ever runs when it takes: turns, not running jobs, make the difference.
    let mut served: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..15 {
        let (key, fence) = take_one(&store).await;
        *served.entry(key.tenant.to_string()).or_default() += 1;
        store.finish(&key, fence, AttemptEnd::Done(json!(1))).await.unwrap();
    }
    assert_eq!(served, [("loud", 5), ("other", 5), ("quiet", 5)].map(|(of, n)| (of.to_owned(), n)).into());
    // Many at once: whoever has fewer running is next.
    put(&store, sample_job("quiet", 300)).await;
    let taken = take(&store, owner(1), TakeRules { most: 3, ..WIDE }).await;
    assert_eq!(taken.iter().filter(|(key, _)| key.tenant == tenant("quiet")).count(), 1);
}

pub async fn agents_of_a_tenant_take_turns_whatever_they_call_urgent(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let of = |flow: &str, level, number| NewJob {
        flow: flow.to_owned(),
        priority: JobPriority::near(level),
        ..sample_job("local", number)
    };
    for number in 0..60 {
        put(&store, of("loud", 10, number)).await;
    }
    for number in 100..105 {
        put(&store, of("quiet", 1, number)).await;
    }
    let is_quiet = |key: &JobKey| (100..105).any(|number| *key == super::key("local", number));
    // One worker, so nothing ever runs when it takes: turns, not running jobs, make the difference.
    let mut quiet = 0;
    for _ in 0..10 {
        let (key, fence) = take_one(&store).await;
        quiet += usize::from(is_quiet(&key));
        store.finish(&key, fence, AttemptEnd::Done(json!(1))).await.unwrap();
    }
    assert_eq!(quiet, 5, "every other turn");
    // An agent that comes and goes does not overtake one that waits.
    for number in 200..203 {
        put(&store, of(&format!("new-{number}"), 10, number)).await;
        let (key, fence) = take_one(&store).await;
        assert_ne!(key, super::key("local", number), "the one that waits is first");
        store.finish(&key, fence, AttemptEnd::Done(json!(1))).await.unwrap();
        let (next, fence) = take_one(&store).await;
        assert_eq!(next, super::key("local", number));
        store.finish(&next, fence, AttemptEnd::Done(json!(1))).await.unwrap();
    }
}

pub async fn an_agent_runs_no_more_than_its_share_of_its_tenant(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    for number in 0..10 {
        put(&store, NewJob { flow: "loud".into(), ..sample_job("local", number) }).await;
    }
    let rules = TakeRules { running_per_tenant: 3, running_per_flow: 2, ..WIDE };
    let taken = take(&store, owner(1), rules).await;
    assert_eq!(taken.len(), 2, "the third is left to others");
    assert_eq!(take(&store, owner(1), rules).await, []);
    put(&store, NewJob { flow: "quiet".into(), ..sample_job("local", 100) }).await;
    put(&store, NewJob { flow: "quiet".into(), ..sample_job("local", 101) }).await;
    let next = take(&store, owner(1), rules).await;
    assert_eq!(next.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), [key("local", 100)]);
    let (loud, fence) = taken.into_iter().next().unwrap();
    store.finish(&loud, fence, AttemptEnd::HandBack).await.unwrap();
    let again: Vec<JobKey> = take(&store, owner(1), rules).await.into_iter().map(|(key, _)| key).collect();
    assert_eq!(again.len(), 1, "given back, it waits again: {again:?}");
}

pub async fn a_tenant_runs_no_more_than_its_share(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    for number in 0..10 {
        put(&store, sample_job("loud", number)).await;
    }
    put(&store, sample_job("quiet", 100)).await;
    let rules = TakeRules { most: 100, running_per_tenant: 3, running_per_flow: 1_000 };
    let taken = take(&store, owner(1), rules).await;
    assert_eq!(taken.len(), 4);
    assert_eq!(take(&store, owner(1), rules).await, []);
    let (loud, fence) = taken.into_iter().find(|(key, _)| key.tenant == tenant("loud")).unwrap();
    store.finish(&loud, fence, failed()).await.unwrap();
    assert_eq!(take(&store, owner(1), rules).await.len(), 1);
}

pub async fn a_delayed_job_is_taken_when_it_is_due(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, NewJob { delay: SECOND * 20, priority: JobPriority::near(10), ..sample_job("local", 1) }).await;
    put(&store, NewJob { delay: SECOND * 10, priority: JobPriority::near(1), ..sample_job("local", 2) }).await;
    let early = store.take(owner(1), WIDE).await.unwrap();
    assert_eq!((early.jobs.len(), early.next_due_in), (0, Some(SECOND * 10)));
    adapter.clock().step(SECOND * 10);
    assert_eq!(take_one(&store).await.0, key("local", 2));
    adapter.clock().step(SECOND * 10);
    let late = store.take(owner(1), WIDE).await.unwrap();
    assert_eq!((late.jobs.len(), late.next_due_in), (1, None));
}

pub async fn the_queue_is_bounded_per_tenant_and_in_total(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let bounds = QueueBounds { per_flow: 10, per_tenant: 2, total: 3 };
    let bounded = |of: &str, number| NewJob { bounds, ..sample_job(of, number) };
    put(&store, bounded("local", 1)).await;
    put(&store, NewJob { delay: HOUR, ..bounded("local", 2) }).await;
    assert_eq!(store.enqueue(bounded("local", 3)).await.unwrap(), EnqueueOutcome::Full);
    assert_eq!(store.find(&key("local", 3)).await.unwrap(), None);
    put(&store, bounded("acme", 4)).await;
    assert_eq!(store.enqueue(bounded("acme", 5)).await.unwrap(), EnqueueOutcome::Full, "in total");
    let again = store.enqueue(bounded("local", 1)).await.unwrap();
    assert_eq!(
        again,
        EnqueueOutcome::Existing { id: uuid(1), same: true },
        "what is there is found in a full queue too"
    );
    take_one(&store).await;
    put(&store, bounded("acme", 5)).await;
}

pub async fn one_flow_fills_no_more_of_its_tenants_queue_than_its_bound(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let bounds = QueueBounds { per_flow: 2, per_tenant: 4, total: 10 };
    let of = |flow: &str, number| NewJob { bounds, flow: flow.into(), ..sample_job("local", number) };
    put(&store, of("loud", 1)).await;
    put(&store, NewJob { delay: HOUR, ..of("loud", 2) }).await;
    assert_eq!(store.enqueue(of("loud", 3)).await.unwrap(), EnqueueOutcome::Full, "a job that is delayed waits too");
    assert_eq!(store.find(&key("local", 3)).await.unwrap(), None);
    let again = store.enqueue(of("loud", 1)).await.unwrap();
    assert_eq!(again, EnqueueOutcome::Existing { id: uuid(1), same: true });
    put(&store, of("quiet", 4)).await;
    assert_eq!(take_one(&store).await.0, key("local", 1));
    put(&store, NewJob { key: key("acme", 5), ..of("loud", 5) }).await;
    put(&store, of("loud", 6)).await;
    assert_eq!(store.enqueue(of("loud", 7)).await.unwrap(), EnqueueOutcome::Full, "a running job waits no more");
    store.ask_cancel(&key("local", 2), "", error()).await.unwrap();
    put(&store, of("loud", 7)).await;
    assert_eq!(store.enqueue(of("third", 8)).await.unwrap(), EnqueueOutcome::New);
    assert_eq!(store.enqueue(of("third", 9)).await.unwrap(), EnqueueOutcome::Full, "the bound of the tenant");
}

pub async fn one_dedupe_key_makes_one_job_within_its_window(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let keyed = |of: &str, number| NewJob {
        dedupe: Some(JobDedupe { key: "k".into(), window: HOUR }),
        ..sample_job(of, number)
    };
    put(&store, keyed("local", 1)).await;
    let same = NewJob { digest: keyed("local", 1).digest, ..keyed("local", 2) };
    assert_eq!(store.enqueue(same.clone()).await.unwrap(), EnqueueOutcome::Existing { id: uuid(1), same: true });
    assert_eq!(
        store.enqueue(keyed("local", 3)).await.unwrap(),
        EnqueueOutcome::Existing { id: uuid(1), same: false },
        "other parameters"
    );
    put(&store, keyed("acme", 1)).await;
    put(&store, NewJob { kind: "webhook".into(), ..keyed("local", 4) }).await;
    adapter.clock().step(HOUR + SECOND);
    assert!(
        matches!(store.enqueue(same.clone()).await.unwrap(), EnqueueOutcome::Existing { .. }),
        "it has not ended yet"
    );
    store.enlist(owner(1), LEASE, false).await.unwrap();
    for (taken, fence) in take(&store, owner(1), WIDE).await {
        store.finish(&taken, fence, failed()).await.unwrap();
    }
    assert_eq!(store.enqueue(same).await.unwrap(), EnqueueOutcome::New, "its window is over");
}

/// Jobs of one act: one dedupe key, one digest, another id each.
fn act(number: u128) -> NewJob {
    let dedupe = Some(JobDedupe { key: "k".into(), window: HOUR });
    NewJob { dedupe, digest: sample_job("local", 1).digest, ..sample_job("local", number) }
}

pub async fn a_dedupe_key_is_free_again_where_the_end_of_its_job_says_so(mut adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let freed = DedupeKey::Freed;
    let ends = [
        AttemptEnd::Failed { error: error(), key: freed },
        AttemptEnd::Dead { error: error(), key: freed },
        AttemptEnd::Cancelled { error: error(), key: freed },
    ];
    for (number, end) in (1..).zip(ends) {
        put(&store, act(number)).await;
        let (held, fence) = take_one(&store).await;
        store.finish(&held, fence, end.clone()).await.unwrap();
        assert_eq!(store.find(&held).await.unwrap().unwrap().record.error, Some(error()), "{end:?}");
    }
    put(&store, act(10)).await;
    let (held, fence) = take_one(&store).await;
    store.finish(&held, fence, failed()).await.unwrap();
    drop(store);
    adapter.reopen().await;
    let again = adapter.jobs().enqueue(act(11)).await.unwrap();
    assert_eq!(again, EnqueueOutcome::Existing { id: uuid(10), same: true }, "of that one something may have come");
}

pub async fn the_dedupe_key_of_an_ended_job_can_be_freed_and_of_no_other(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, act(1)).await;
    store.release_key(&key("local", 1)).await.unwrap();
    let (held, fence) = take_one(&store).await;
    store.release_key(&held).await.unwrap();
    assert_eq!(store.enqueue(act(2)).await.unwrap(), EnqueueOutcome::Existing { id: uuid(1), same: true }, "it runs");
    store.finish(&held, fence, failed()).await.unwrap();
    store.release_key(&key("acme", 1)).await.unwrap();
    assert_eq!(
        store.enqueue(act(2)).await.unwrap(),
        EnqueueOutcome::Existing { id: uuid(1), same: true },
        "another tenant's"
    );
    store.release_key(&held).await.unwrap();
    assert_eq!(store.enqueue(act(2)).await.unwrap(), EnqueueOutcome::New);
    store.release_key(&held).await.unwrap();
    assert_eq!(store.enqueue(act(3)).await.unwrap(), EnqueueOutcome::Existing { id: uuid(2), same: true });
}

pub async fn a_job_that_is_cancelled_before_it_began_leaves_its_dedupe_key_free(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, act(1)).await;
    store.ask_cancel(&key("local", 1), "not wanted", error()).await.unwrap();
    put(&store, NewJob { delay: HOUR, ..act(2) }).await;
    store.ask_cancel(&key("local", 2), "not wanted", error()).await.unwrap();
    // One that was asked to end while its first attempt stood before the door has not begun either.
    for (number, end) in [(3, AttemptEnd::HandBack), (4, AttemptEnd::PutBack { error: error(), after: SECOND })] {
        put(&store, act(number)).await;
        let (held, fence) = take_one(&store).await;
        store.finish(&held, fence, end.clone()).await.unwrap();
        let again = store.enqueue(act(20)).await.unwrap();
        assert_eq!(again, EnqueueOutcome::Existing { id: uuid(number), same: true }, "it waits: {end:?}");
        adapter.clock().step(SECOND);
        let (held, fence) = take_one(&store).await;
        store.ask_cancel(&held, "not wanted", error()).await.unwrap();
        store.finish(&held, fence, end).await.unwrap();
    }
    // An attempt that has begun may have come to something: whoever cancels the job meanwhile frees nothing.
    for (number, is_taken) in [(5, true), (6, false)] {
        put(&store, act(number)).await;
        let (held, fence) = take_one(&store).await;
        let again = AttemptEnd::Retry { error: error(), after: Duration::ZERO };
        if is_taken {
            store.ask_cancel(&held, "not wanted", error()).await.unwrap();
            store.finish(&held, fence, again).await.unwrap();
        } else {
            store.finish(&held, fence, again).await.unwrap();
            store.ask_cancel(&held, "not wanted", error()).await.unwrap();
        }
        let again = store.enqueue(act(20)).await.unwrap();
        assert_eq!(again, EnqueueOutcome::Existing { id: uuid(number), same: true });
        adapter.clock().step(HOUR + SECOND);
        store.enlist(owner(1), LEASE, false).await.unwrap();
    }
}

pub async fn one_id_makes_one_job_in_each_tenant(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    put(&store, sample_job("local", 1)).await;
    put(&store, sample_job("acme", 1)).await;
    let other = NewJob { digest: sample_job("local", 2).digest, ..sample_job("local", 1) };
    assert_eq!(store.enqueue(other).await.unwrap(), EnqueueOutcome::Existing { id: uuid(1), same: false });
    assert_eq!(store.counts().await.unwrap().waiting, 2);
}

pub async fn concurrent_takers_share_the_jobs_without_overlap(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    for number in 0..60 {
        put(&store, sample_job(if number % 2 == 0 { "even" } else { "odd" }, number)).await;
    }
    let mut takers = Vec::new();
    for _ in 0..12 {
        let store = Arc::clone(&store);
        takers.push(tokio::spawn(async move { take(&store, owner(1), TakeRules { most: 10, ..WIDE }).await }));
    }
    let mut all = Vec::new();
    for taker in takers {
        all.extend(taker.await.unwrap());
    }
    assert_eq!(all.len(), 60);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 60);
}

pub async fn concurrent_enqueues_with_one_key_make_one_job(adapter: impl StoreAdapter) {
    let store = ready(&adapter).await;
    let mut askers = Vec::new();
    for number in 0..40 {
        let store = Arc::clone(&store);
        let dedupe = Some(JobDedupe { key: "k".into(), window: HOUR });
        let new = NewJob { dedupe, digest: sample_job("local", 1).digest, ..sample_job("local", number) };
        askers.push(tokio::spawn(async move { store.enqueue(new).await.unwrap() }));
    }
    let mut new = 0;
    for asker in askers {
        let outcome = asker.await.unwrap();
        new += usize::from(outcome == EnqueueOutcome::New);
        assert!(matches!(outcome, EnqueueOutcome::New | EnqueueOutcome::Existing { same: true, .. }), "{outcome:?}");
    }
    assert_eq!((new, store.counts().await.unwrap().waiting), (1, 1));
}
