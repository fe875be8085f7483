//! Cases of `CheckpointStore`. Each takes a fresh store. Time is not waited for: what is kept for no time is over at once.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]
#![expect(clippy::indexing_slicing, clippy::panic, reason = "likewise")]

use std::sync::Arc;
use std::time::Duration;

use contract::canonical::Digest;
use contract::envelope::CheckpointKind;
use contract::ids::{InvocationId, TenantId};
use contract::version::Version;
use policy::CallOwner;
use ports::checkpoint_store::{
    CheckpointEnding, CheckpointHead, CheckpointId, CheckpointStore, LIST_MAX, ListPage, PromoteOutcome, SaveOutcome,
    SealedCheckpoint, attempt_fence,
};
use ports::clock::UnixMillis;

use super::StoreAdapter;

/// All cases of `CheckpointStore` against one adapter.
#[macro_export]
macro_rules! checkpoints_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            checkpoints,
            [
                every_member_survives_a_reopening,
                the_same_one_may_be_saved_again_and_another_may_not_take_its_id,
                the_newest_is_listed_first_and_lists_have_pages,
                what_is_over_is_gone_but_still_a_base,
                a_base_that_is_not_there_is_told,
                an_invocation_has_one_owner_and_one_tool,
                who_was_fenced_out_saves_nothing,
                who_takes_an_invocation_over_fences_out_before_it_saves,
                what_runs_is_known_to_everybody_until_it_ends,
                other_tenants_see_and_change_nothing,
                success_takes_the_micro_ones_and_only_those,
                success_leaves_what_others_are_based_on,
                failure_keeps_the_newest_micro_one_and_the_macro_ones,
                an_attempt_that_was_silent_for_too_long_is_fenced_out_by_the_next,
                the_attempts_of_a_job_come_after_every_call_under_its_id,
                what_was_rolled_back_is_not_saved_over_by_who_was_there_before,
                a_promoted_one_is_the_newest_and_what_was_newest_is_kept,
                a_deleted_one_is_gone_and_its_room_is_freed_later,
                pruning_goes_in_batches_from_the_top_of_chains,
            ]
        );
    };
}

type Store = Arc<dyn CheckpointStore>;

const HOUR: Duration = Duration::from_hours(1);
const NONE: Duration = Duration::ZERO;

// ---------------------------------------------------------------------------------------------------------- samples

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn owner() -> CallOwner {
    "agent-1".parse().unwrap()
}

fn invocation(n: u128) -> InvocationId {
    format!("{:032x}", 0x0199_0000_0000_7000_8000_0000_0000_0000_u128 + n).parse().unwrap()
}

fn id(n: u128) -> CheckpointId {
    format!("{:032x}", 0x019a_0000_0000_7000_8000_0000_0000_0000_u128 + n).parse().unwrap()
}

/// The checkpoint with this number, of invocation 1.
fn sealed(n: u128, kind: CheckpointKind, base: Option<u128>) -> SealedCheckpoint {
    SealedCheckpoint {
        head: CheckpointHead {
            id: id(n),
            tenant: tenant("acme"),
            invocation: invocation(1),
            owner: owner(),
            tool: "demo.primes".parse().unwrap(),
            version: Version::new(1, 2, 3),
            kind,
            label: (kind == CheckpointKind::Named).then(|| format!("the {n}th")),
            parent: (n > 1).then(|| id(n - 1)),
            saved_at: UnixMillis(1_800_000_000_000),
        },
        base: base.map(id),
        chain: u8::from(base.is_some()),
        schema_version: "1.0".into(),
        is_gzip: n.is_multiple_of(2),
        content_bytes: 1_000,
        checksum: Digest::of_bytes(&n.to_be_bytes()),
        seal: Digest::of_bytes(&(n + 1_000).to_be_bytes()),
        payload: vec![u8::try_from(n % 256).unwrap(); 100].into(),
    }
}

fn micro(n: u128, base: Option<u128>) -> SealedCheckpoint {
    sealed(n, CheckpointKind::Micro, base)
}

async fn keep(store: &Store, checkpoint: &SealedCheckpoint, span: Option<Duration>) {
    assert_eq!(store.save(checkpoint, Some(0), span).await.unwrap(), SaveOutcome::Kept);
}

async fn listed(store: &Store) -> Vec<CheckpointId> {
    let page = ListPage { after: None, limit: LIST_MAX };
    let list = store.list(&tenant("acme"), invocation(1), page).await.unwrap();
    list.into_iter().map(|one| one.head.id).collect()
}

async fn chain(store: &Store, n: u128) -> Vec<CheckpointId> {
    let chain = store.chain(&tenant("acme"), id(n)).await.unwrap();
    chain.into_iter().map(|one| one.head.id).collect()
}

async fn settle(store: &Store, ending: CheckpointEnding) {
    store.settle(&tenant("acme"), invocation(1), &owner(), None, ending).await.unwrap();
}

async fn promoted(store: &Store, n: u128, span: Duration, if_idle: bool) -> PromoteOutcome {
    store.promote(&tenant("acme"), invocation(1), id(n), span, if_idle).await.unwrap()
}

async fn pruned(store: &Store) -> usize {
    let mut freed = 0;
    loop {
        match store.prune(1_000).await.unwrap() {
            0 => return freed,
            more => freed += more,
        }
    }
}

// ------------------------------------------------------------------------------------------------------------ cases

pub async fn every_member_survives_a_reopening(mut adapter: impl StoreAdapter) {
    let mut all = vec![micro(1, None), micro(2, Some(1)), sealed(3, CheckpointKind::Macro, None)];
    all.push(sealed(4, CheckpointKind::Named, None));
    all.push(SealedCheckpoint { payload: Vec::new().into(), ..micro(5, None) });
    for one in &all {
        keep(&adapter.checkpoints(), one, Some(HOUR)).await;
    }
    adapter.reopen().await;
    let store = adapter.checkpoints();
    assert_eq!(store.chain(&tenant("acme"), id(2)).await.unwrap(), [all[1].clone(), all[0].clone()]);
    for (n, one) in (1..).zip(&all) {
        assert_eq!(store.chain(&tenant("acme"), id(n)).await.unwrap().first(), Some(one));
    }
    let list = store.list(&tenant("acme"), invocation(1), ListPage { after: None, limit: 1 }).await.unwrap();
    let newest = list.first().unwrap();
    assert_eq!((&newest.head, newest.base, newest.content_bytes), (&all[4].head, None, 1_000));
    assert_eq!(newest.stored_bytes, 0);
    assert!(newest.expires_at.is_some());
}

pub async fn the_same_one_may_be_saved_again_and_another_may_not_take_its_id(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    keep(&store, &micro(1, None), Some(HOUR)).await;
    keep(&store, &micro(2, None), Some(HOUR)).await;
    keep(&store, &micro(1, None), Some(HOUR)).await;
    assert_eq!(listed(&store).await, [id(2), id(1)], "saving it again changes nothing");
    let other = SealedCheckpoint { seal: Digest::of_bytes(b"other"), ..micro(1, None) };
    assert_eq!(store.save(&other, Some(0), None).await.unwrap(), SaveOutcome::Foreign);
    assert_eq!(store.chain(&tenant("acme"), id(1)).await.unwrap(), [micro(1, None)]);
}

pub async fn the_newest_is_listed_first_and_lists_have_pages(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    for n in 1..=7 {
        keep(&store, &micro(n, None), Some(HOUR)).await;
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = store.list(&tenant("acme"), invocation(1), ListPage { after, limit: 3 }).await.unwrap();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = Some(last.head.id);
        seen.extend(page.iter().map(|one| one.head.id));
    }
    assert_eq!(seen, (1..=7).rev().map(id).collect::<Vec<_>>());
    assert!(store.list(&tenant("acme"), invocation(2), ListPage { after: None, limit: 3 }).await.unwrap().is_empty());
}

pub async fn what_is_over_is_gone_but_still_a_base(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    keep(&store, &micro(1, None), Some(NONE)).await;
    keep(&store, &micro(2, Some(1)), Some(HOUR)).await;
    assert_eq!(listed(&store).await, [id(2)]);
    assert_eq!(chain(&store, 1).await, []);
    assert_eq!(chain(&store, 2).await, [id(2), id(1)]);
    assert_eq!(pruned(&store).await, 0);
    assert_eq!(chain(&store, 2).await, [id(2), id(1)]);
}

pub async fn a_base_that_is_not_there_is_told(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    assert_eq!(store.save(&micro(2, Some(1)), Some(0), None).await.unwrap(), SaveOutcome::BaseGone);
    let mut elsewhere = micro(1, None);
    elsewhere.head.invocation = invocation(2);
    keep(&store, &elsewhere, Some(HOUR)).await;
    assert_eq!(store.save(&micro(2, Some(1)), Some(0), None).await.unwrap(), SaveOutcome::BaseGone);
    assert!(listed(&store).await.is_empty());
}

pub async fn an_invocation_has_one_owner_and_one_tool(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    keep(&store, &micro(1, None), Some(HOUR)).await;
    let (mut other_owner, mut same_name, mut other_tool) = (micro(2, None), micro(4, None), micro(3, None));
    other_owner.head.owner = "agent-2".parse().unwrap();
    same_name.head.owner = format!("agent-2 {}", owner()).parse().unwrap();
    other_tool.head.tool = "demo.other".parse().unwrap();
    for foreign in [other_owner, same_name, other_tool] {
        assert_eq!(store.save(&foreign, Some(0), Some(HOUR)).await.unwrap(), SaveOutcome::Foreign);
    }
    store
        .settle(&tenant("acme"), invocation(1), &"agent-2".parse().unwrap(), None, CheckpointEnding::Completed)
        .await
        .unwrap();
    assert_eq!(listed(&store).await, [id(1)], "who does not own it does not end it");
}

pub async fn who_was_fenced_out_saves_nothing(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    keep(&store, &micro(1, None), Some(HOUR)).await;
    assert_eq!(store.save(&micro(2, None), Some(7), Some(HOUR)).await.unwrap(), SaveOutcome::Kept);
    assert_eq!(store.save(&micro(3, None), Some(6), Some(HOUR)).await.unwrap(), SaveOutcome::Fenced);
    // Who is of no attempt is not refused, and keeps nobody else out.
    assert_eq!(store.save(&micro(4, None), None, Some(HOUR)).await.unwrap(), SaveOutcome::Kept);
    assert_eq!(store.save(&micro(5, None), Some(7), Some(HOUR)).await.unwrap(), SaveOutcome::Kept);
    assert_eq!(listed(&store).await, [id(5), id(4), id(2), id(1)]);
}

async fn claimed(store: &Store, fence: Option<u64>, span: Duration) -> Option<u64> {
    store.claim(&tenant("acme"), invocation(1), fence, span).await.unwrap()
}

pub async fn who_takes_an_invocation_over_fences_out_before_it_saves(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    assert_eq!(claimed(&store, Some(1), HOUR).await, Some(1));
    assert_eq!(store.save(&micro(1, None), Some(1), Some(HOUR)).await.unwrap(), SaveOutcome::Kept);
    // Its lease is not asked about: who has the higher number was given the work.
    assert_eq!(claimed(&store, Some(2), HOUR).await, Some(2));
    assert_eq!(store.save(&micro(2, None), Some(1), Some(HOUR)).await.unwrap(), SaveOutcome::Fenced);
    assert_eq!(claimed(&store, Some(1), HOUR).await, None, "it is told when it says that it runs");
    assert_eq!(claimed(&store, Some(1), NONE).await, None, "and ends nothing");
    assert_eq!(store.save(&micro(3, None), Some(2), Some(HOUR)).await.unwrap(), SaveOutcome::Kept);
    assert_eq!(listed(&store).await, [id(3), id(1)]);
    // What it saved is gone, and its number is still known.
    for n in [1, 3] {
        assert!(store.delete(&tenant("acme"), invocation(1), id(n)).await.unwrap());
    }
    pruned(&store).await;
    assert_eq!(store.save(&micro(4, None), Some(1), Some(HOUR)).await.unwrap(), SaveOutcome::Fenced);
    let elsewhere = store.claim(&tenant("other"), invocation(1), Some(1), HOUR).await.unwrap();
    assert_eq!(elsewhere, Some(1), "numbers are of one tenant and one invocation");
}

pub async fn what_runs_is_known_to_everybody_until_it_ends(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    let runs = || async { store.is_claimed(&tenant("acme"), invocation(1)).await.unwrap() };
    assert!(!runs().await);
    assert_eq!(claimed(&store, None, HOUR).await, Some(0));
    assert!(runs().await);
    assert!(!store.is_claimed(&tenant("other"), invocation(1)).await.unwrap());
    assert_eq!(claimed(&store, None, HOUR).await, None, "one that was not handed over waits for the end of the other");
    assert_eq!(claimed(&store, Some(0), NONE).await, Some(0));
    assert!(!runs().await);
    assert_eq!(claimed(&store, None, HOUR).await, Some(1));
    assert_eq!(claimed(&store, Some(3), HOUR).await, Some(3), "one that was handed over does not");
    assert_eq!(claimed(&store, Some(3), NONE).await, Some(3));
    assert_eq!(claimed(&store, None, HOUR).await, Some(4));
}

pub async fn an_attempt_that_was_silent_for_too_long_is_fenced_out_by_the_next(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    // Neither belongs to a job. The first says nothing for longer than it said it would run.
    let first = claimed(&store, None, NONE).await;
    assert_eq!(store.save(&micro(1, None), first, Some(HOUR)).await.unwrap(), SaveOutcome::Kept);
    let second = claimed(&store, None, HOUR).await;
    assert!(second > first, "{first:?} {second:?}");
    assert_eq!(store.save(&micro(2, None), second, Some(HOUR)).await.unwrap(), SaveOutcome::Kept);
    assert_eq!(store.save(&micro(3, None), first, Some(HOUR)).await.unwrap(), SaveOutcome::Fenced);
    assert_eq!(claimed(&store, first, HOUR).await, None, "it hears so when it says that it runs");
    // Nor does its end take away, or keep, what is the other's now.
    for ending in [CheckpointEnding::Completed, CheckpointEnding::Failed { keep: NONE }] {
        store.settle(&tenant("acme"), invocation(1), &owner(), first, ending).await.unwrap();
        assert_eq!(listed(&store).await, [id(2), id(1)], "{ending:?}");
    }
    store.settle(&tenant("acme"), invocation(1), &owner(), second, CheckpointEnding::Completed).await.unwrap();
    assert!(listed(&store).await.is_empty());
}

pub async fn the_attempts_of_a_job_come_after_every_call_under_its_id(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    let mut before = None;
    for token in 1..4 {
        // However often somebody makes the call by hand in between.
        for _ in 0..5 {
            let by_hand = claimed(&store, None, NONE).await;
            assert!(by_hand > before, "{before:?} {by_hand:?}");
            before = by_hand;
        }
        let of_job = Some(attempt_fence(token));
        assert!(of_job > before);
        assert_eq!(claimed(&store, of_job, NONE).await, of_job);
        assert_eq!(claimed(&store, before, NONE).await, None);
        before = of_job;
    }
}

pub async fn what_was_rolled_back_is_not_saved_over_by_who_was_there_before(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    let silent = claimed(&store, None, HOUR).await;
    for n in [1, 2] {
        assert_eq!(store.save(&micro(n, None), silent, Some(HOUR)).await.unwrap(), SaveOutcome::Kept);
    }
    assert_eq!(promoted(&store, 1, HOUR, true).await, PromoteOutcome::Running);
    assert_eq!(listed(&store).await, [id(2), id(1)]);
    assert_eq!(claimed(&store, silent, NONE).await, silent);
    assert_eq!(promoted(&store, 1, HOUR, true).await, PromoteOutcome::Newest);
    assert_eq!(store.save(&micro(3, None), silent, Some(HOUR)).await.unwrap(), SaveOutcome::Fenced);
    store.settle(&tenant("acme"), invocation(1), &owner(), silent, CheckpointEnding::Completed).await.unwrap();
    assert_eq!(listed(&store).await, [id(1), id(2)]);
    // Who knows that nobody runs does not ask; what was said by somebody who is gone counts no more.
    let gone = claimed(&store, None, HOUR).await;
    assert_eq!(promoted(&store, 2, HOUR, false).await, PromoteOutcome::Newest);
    assert_eq!(store.save(&micro(4, None), gone, Some(HOUR)).await.unwrap(), SaveOutcome::Fenced);
    assert!(!store.is_claimed(&tenant("acme"), invocation(1)).await.unwrap());
    // An invocation that nobody ever claimed is rolled back like any other.
    let unclaimed = |n: u128| {
        let mut one = micro(n, None);
        one.head.invocation = invocation(2);
        one
    };
    for n in [5, 6] {
        keep(&store, &unclaimed(n), Some(HOUR)).await;
    }
    let promoted = store.promote(&tenant("acme"), invocation(2), id(5), HOUR, true).await.unwrap();
    assert_eq!(promoted, PromoteOutcome::Newest);
}

pub async fn other_tenants_see_and_change_nothing(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    keep(&store, &micro(1, None), Some(HOUR)).await;
    keep(&store, &micro(2, None), Some(HOUR)).await;
    let other = tenant("globex");
    assert!(store.chain(&other, id(1)).await.unwrap().is_empty());
    assert!(store.list(&other, invocation(1), ListPage { after: None, limit: 9 }).await.unwrap().is_empty());
    let promoted = store.promote(&other, invocation(1), id(1), HOUR, true).await.unwrap();
    assert_eq!(promoted, PromoteOutcome::NotThere);
    assert!(!store.delete(&other, invocation(1), id(1)).await.unwrap());
    let promoted = store.promote(&tenant("acme"), invocation(2), id(1), HOUR, true).await.unwrap();
    assert_eq!(promoted, PromoteOutcome::NotThere);
    assert!(!store.delete(&tenant("acme"), invocation(2), id(1)).await.unwrap());
    store.settle(&other, invocation(1), &owner(), None, CheckpointEnding::Completed).await.unwrap();
    assert_eq!(listed(&store).await, [id(2), id(1)]);
    // The same invocation id in another tenant is another invocation.
    let mut same = micro(9, None);
    same.head.tenant = other.clone();
    same.head.owner = "agent-2".parse().unwrap();
    keep(&store, &same, Some(HOUR)).await;
    assert_eq!(listed(&store).await, [id(2), id(1)]);
}

pub async fn success_takes_the_micro_ones_and_only_those(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    keep(&store, &micro(1, None), Some(HOUR)).await;
    keep(&store, &sealed(2, CheckpointKind::Macro, None), Some(HOUR)).await;
    keep(&store, &micro(3, Some(2)), Some(HOUR)).await;
    keep(&store, &micro(4, Some(3)), Some(HOUR)).await;
    keep(&store, &sealed(5, CheckpointKind::Named, None), None).await;
    settle(&store, CheckpointEnding::Completed).await;
    assert_eq!(listed(&store).await, [id(5), id(2)]);
    assert_eq!(pruned(&store).await, 0, "nothing is left of them");
}

pub async fn success_leaves_what_others_are_based_on(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    keep(&store, &micro(1, None), Some(HOUR)).await;
    keep(&store, &sealed(2, CheckpointKind::Macro, Some(1)), Some(HOUR)).await;
    settle(&store, CheckpointEnding::Completed).await;
    assert_eq!(listed(&store).await, [id(2)]);
    assert_eq!(chain(&store, 2).await, [id(2), id(1)]);
    assert!(store.delete(&tenant("acme"), invocation(1), id(2)).await.unwrap());
    assert_eq!(pruned(&store).await, 0, "with the last that stood on it, it went too");
    assert_eq!(chain(&store, 2).await, []);
}

pub async fn failure_keeps_the_newest_micro_one_and_the_macro_ones(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    keep(&store, &micro(1, None), Some(HOUR)).await;
    keep(&store, &sealed(2, CheckpointKind::Macro, None), Some(HOUR * 2_160)).await;
    keep(&store, &micro(3, None), Some(HOUR)).await;
    keep(&store, &sealed(4, CheckpointKind::Named, None), None).await;
    settle(&store, CheckpointEnding::Failed { keep: HOUR * 720 }).await;
    let list = store.list(&tenant("acme"), invocation(1), ListPage { after: None, limit: 9 }).await.unwrap();
    let ends: Vec<_> = list.iter().map(|one| (one.head.id, one.expires_at)).collect();
    let [(four, None), (three, Some(newest)), (two, Some(durable)), (one, Some(older))] = ends[..] else {
        panic!("{ends:?}");
    };
    assert_eq!([four, three, two, one], [id(4), id(3), id(2), id(1)]);
    assert_eq!(newest, durable);
    let between = newest.since(older);
    assert!(between > HOUR * 700 && between < HOUR * 720, "{between:?}");
}

pub async fn a_promoted_one_is_the_newest_and_what_was_newest_is_kept(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    for n in 1..=3 {
        keep(&store, &micro(n, None), Some(HOUR)).await;
    }
    assert_eq!(promoted(&store, 1, HOUR * 2_000, true).await, PromoteOutcome::Newest);
    let list = store.list(&tenant("acme"), invocation(1), ListPage { after: None, limit: 9 }).await.unwrap();
    assert_eq!(list.iter().map(|one| one.head.id).collect::<Vec<_>>(), [id(1), id(3), id(2)]);
    let ends: Vec<_> = list.iter().filter_map(|one| one.expires_at).collect();
    assert_eq!(ends[0], ends[1]);
    assert!(ends[0].since(ends[2]) > HOUR * 1_000);
    let next = claimed(&store, None, NONE).await;
    assert_eq!(store.save(&micro(4, None), next, Some(HOUR)).await.unwrap(), SaveOutcome::Kept);
    assert_eq!(listed(&store).await, [id(4), id(1), id(3), id(2)], "what is saved next is newer");
    assert_eq!(store.save(&micro(5, None), next, Some(NONE)).await.unwrap(), SaveOutcome::Kept);
    for n in [5, 6] {
        assert_eq!(promoted(&store, n, HOUR, true).await, PromoteOutcome::NotThere, "{n}");
    }
    assert_eq!(listed(&store).await, [id(4), id(1), id(3), id(2)]);
}

pub async fn a_deleted_one_is_gone_and_its_room_is_freed_later(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    keep(&store, &sealed(1, CheckpointKind::Named, None), None).await;
    keep(&store, &micro(2, Some(1)), Some(HOUR)).await;
    assert!(store.delete(&tenant("acme"), invocation(1), id(1)).await.unwrap());
    assert!(!store.delete(&tenant("acme"), invocation(1), id(1)).await.unwrap());
    assert_eq!(listed(&store).await, [id(2)]);
    assert_eq!(chain(&store, 2).await, [id(2), id(1)]);
}

pub async fn pruning_goes_in_batches_from_the_top_of_chains(adapter: impl StoreAdapter) {
    let store = adapter.checkpoints();
    keep(&store, &micro(1, None), Some(NONE)).await;
    keep(&store, &micro(2, Some(1)), Some(NONE)).await;
    keep(&store, &micro(3, Some(2)), Some(NONE)).await;
    for n in 10..15 {
        keep(&store, &micro(n, None), Some(NONE)).await;
    }
    keep(&store, &sealed(20, CheckpointKind::Named, None), None).await;
    let mut rounds = Vec::new();
    loop {
        let freed = store.prune(2).await.unwrap();
        assert!(freed <= 2);
        if freed == 0 {
            break;
        }
        rounds.push(freed);
    }
    assert_eq!(rounds.iter().sum::<usize>(), 8);
    assert_eq!(listed(&store).await, [id(20)]);
}
