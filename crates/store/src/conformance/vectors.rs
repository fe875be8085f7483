//! Cases of `VectorStore`: what is near is found, by whom it may be, in a stable order. Each takes a fresh store.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::collections::BTreeSet;
use std::sync::Arc;

use contract::canonical::Digest;
use contract::ids::{TenantId, ToolId};
use ports::registry_store::PublishOutcome;
use ports::vector_store::{
    BATCH_MAX, Embedding, NEAREST_MAX, NearestQuery, Neighbour, NeighbourScope, SPACES_MAX, TOOLS_MAX, VectorError,
    VectorRecord, VectorSpace, VectorStore, WIDTH_MAX,
};

use super::{StoreAdapter, new_version_of, sample_manifest};

/// All cases of `VectorStore` against one adapter.
#[macro_export]
macro_rules! vectors_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            vectors,
            [
                a_fresh_store_has_no_spaces_and_refuses_what_needs_one,
                a_space_is_opened_once_however_often_and_there_are_not_too_many,
                a_few_vectors_are_found_as_by_measuring_all,
                nearly_all_of_the_nearest_are_found_among_thousands,
                a_small_tenant_among_thousands_finds_all_of_its_own,
                a_tenant_finds_its_own_and_shared_tools_and_no_others,
                only_named_tools_are_found_if_some_are_named,
                equal_distances_are_ordered_by_tool,
                a_vector_takes_the_place_of_the_one_before,
                what_is_removed_is_gone_from_all_spaces,
                what_has_no_vector_or_an_old_one_is_missing,
                two_models_and_two_widths_stand_side_by_side,
                a_dropped_space_takes_its_vectors_with_it_and_no_others,
                vectors_of_another_width_and_too_many_are_refused,
                a_batch_is_kept_whole_or_not_at_all,
                the_widest_vectors_are_kept_and_found,
                vectors_are_found_while_others_are_put,
                everything_survives_a_reopening,
            ]
        );
    };
}

type Store = Arc<dyn VectorStore>;

const WIDTH: usize = 24;
/// More than any adapter measures one by one.
const THOUSANDS: u64 = 3000;

// ---------------------------------------------------------------------------------------------------------- samples

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn tool(number: u64) -> ToolId {
    format!("demo.tool{number:05}").parse().unwrap()
}

fn digest(text: &str) -> Digest {
    Digest::of_bytes(text.as_bytes())
}

fn space() -> VectorSpace {
    VectorSpace::new("test-model", WIDTH).unwrap()
}

/// Numbers between -1 and 1 that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        // A linear congruence; its upper bits are good enough to spread vectors.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let upper = u16::try_from(self.0 >> 48).unwrap_or(0);
        f32::from(upper) / 32_768.0 - 1.0
    }

    fn many(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// A direction by its number: near one of thirty centres, as tools about the same thing are.
fn numbers(seed: u64, width: usize) -> Vec<f32> {
    let centre = Numbers(seed % 30 + 7).many(width);
    let own = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).many(width);
    centre.iter().zip(own).map(|(centre, own)| centre + 0.4 * own).collect()
}

fn embedding(seed: u64) -> Embedding {
    Embedding::new(&numbers(seed, WIDTH)).unwrap()
}

fn record(number: u64, embedding: Embedding) -> VectorRecord {
    VectorRecord { tool: tool(number), digest: digest(&number.to_string()), embedding }
}

async fn opened(adapter: &impl StoreAdapter) -> Store {
    let store = adapter.vectors();
    store.open_space(&space()).await.unwrap();
    store
}

/// Puts vectors with these numbers, in as many batches as it takes.
async fn fill(store: &Store, of: &str, seeds: impl Iterator<Item = u64>) {
    let records: Vec<VectorRecord> = seeds.map(|seed| record(seed, embedding(seed))).collect();
    for batch in records.chunks(BATCH_MAX) {
        store.put(&space(), &tenant(of), batch).await.unwrap();
    }
}

async fn nearest(store: &Store, of: &str, to: &Embedding, limit: usize) -> Vec<Neighbour> {
    let tenant = tenant(of);
    store.nearest(&space(), NearestQuery { tenant: &tenant, to, among: NeighbourScope::Visible, limit }).await.unwrap()
}

fn tools(found: &[Neighbour]) -> Vec<&str> {
    found.iter().map(|one| one.tool.as_str()).collect()
}

/// By measuring all, without any store.
fn measured(seeds: impl Iterator<Item = u64>, to: &Embedding, limit: usize) -> Vec<(ToolId, f64)> {
    let mut all: Vec<(ToolId, f64)> = seeds.map(|seed| (tool(seed), to.distance(&embedding(seed)))).collect();
    all.sort_by(|left, right| left.1.total_cmp(&right.1).then_with(|| left.0.cmp(&right.0)));
    all.truncate(limit);
    all
}

async fn publish(adapter: &impl StoreAdapter, of: &str, name: &str) {
    let manifest = sample_manifest(name, "1.0.0", "A sample", "Does what samples do.");
    assert_eq!(adapter.store().publish(new_version_of(of, manifest)).await.unwrap(), PublishOutcome::New);
}

// ------------------------------------------------------------------------------------------------------------ cases

pub async fn a_fresh_store_has_no_spaces_and_refuses_what_needs_one(adapter: impl StoreAdapter) {
    let (store, acme, to) = (adapter.vectors(), tenant("acme"), embedding(1));
    assert_eq!(store.spaces().await.unwrap(), []);
    assert!(!store.drop_space(&space()).await.unwrap());
    assert_eq!(store.remove(&acme, &[tool(1)]).await.unwrap(), 0);
    let asked = NearestQuery { tenant: &acme, to: &to, among: NeighbourScope::Visible, limit: 1 };
    for refused in [
        store.put(&space(), &acme, &[record(1, embedding(1))]).await.err(),
        store.missing(&space(), &acme, &[(tool(1), digest("1"))]).await.err(),
        store.nearest(&space(), asked).await.err(),
    ] {
        assert!(matches!(refused, Some(VectorError::NoSpace { width: WIDTH, .. })), "{refused:?}");
    }
}

pub async fn a_space_is_opened_once_however_often_and_there_are_not_too_many(adapter: impl StoreAdapter) {
    let store = adapter.vectors();
    let opening = (0..8).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.open_space(&space()).await })
    });
    for opened in opening.collect::<Vec<_>>() {
        opened.await.unwrap().unwrap();
    }
    assert_eq!(store.spaces().await.unwrap().len(), 1);
    for number in 1..SPACES_MAX {
        store.open_space(&VectorSpace::new(&format!("other-{number}"), 3).unwrap()).await.unwrap();
    }
    let refused = store.open_space(&VectorSpace::new("one-more", 3).unwrap()).await.unwrap_err();
    assert!(matches!(refused, VectorError::TooManySpaces), "{refused}");
    store.open_space(&space()).await.unwrap();
    assert!(store.drop_space(&space()).await.unwrap());
    store.open_space(&VectorSpace::new("one-more", 3).unwrap()).await.unwrap();
}

pub async fn a_few_vectors_are_found_as_by_measuring_all(adapter: impl StoreAdapter) {
    let store = opened(&adapter).await;
    fill(&store, "acme", 0..200).await;
    for seed in 1000..1020 {
        let to = embedding(seed);
        for limit in [1, 10, NEAREST_MAX] {
            let found = nearest(&store, "acme", &to, limit).await;
            let found: Vec<(ToolId, f64)> = found.into_iter().map(|one| (one.tool, one.distance)).collect();
            assert_eq!(found, measured(0..200, &to, limit), "{seed}");
        }
    }
}

pub async fn nearly_all_of_the_nearest_are_found_among_thousands(adapter: impl StoreAdapter) {
    const QUESTIONS: u64 = 40;
    let store = opened(&adapter).await;
    fill(&store, "acme", 0..THOUSANDS).await;
    let mut right = 0;
    for seed in 10_000..10_000 + QUESTIONS {
        let to = embedding(seed);
        let found = nearest(&store, "acme", &to, 10).await;
        assert_eq!(found.len(), 10);
        assert!(found.is_sorted_by(|left, right| left.distance <= right.distance), "{found:?}");
        let expected: BTreeSet<ToolId> = measured(0..THOUSANDS, &to, 10).into_iter().map(|(tool, _)| tool).collect();
        right += u64::try_from(found.iter().filter(|one| expected.contains(&one.tool)).count()).unwrap();
    }
    assert!(right * 100 >= QUESTIONS * 10 * 95, "{right} of {}", QUESTIONS * 10);
    assert_eq!(nearest(&store, "acme", &embedding(1), NEAREST_MAX).await.len(), NEAREST_MAX);
}

pub async fn a_small_tenant_among_thousands_finds_all_of_its_own(adapter: impl StoreAdapter) {
    let store = opened(&adapter).await;
    fill(&store, "acme", 0..THOUSANDS).await;
    // The very same directions, and far away from what is asked for.
    fill(&store, "small", 0..12).await;
    let found = nearest(&store, "small", &embedding(2999), 50).await;
    let found: Vec<(ToolId, f64)> = found.into_iter().map(|one| (one.tool, one.distance)).collect();
    assert_eq!(found, measured(0..12, &embedding(2999), 50));
}

pub async fn a_tenant_finds_its_own_and_shared_tools_and_no_others(adapter: impl StoreAdapter) {
    let store = opened(&adapter).await;
    let at = |seed| record(seed, embedding(seed));
    store.put(&space(), &tenant("local"), &[at(1), at(2)]).await.unwrap();
    store.put(&space(), &tenant("acme"), &[record(1, embedding(5)), at(3)]).await.unwrap();
    store.put(&space(), &tenant("zeta"), &[at(4)]).await.unwrap();
    // A tool of its own stands before the shared one of the same id, with a vector or without.
    publish(&adapter, "acme", "demo.tool00001").await;
    publish(&adapter, "zeta", "demo.tool00002").await;
    let seen = |found: Vec<Neighbour>| -> BTreeSet<(String, String)> {
        found.into_iter().map(|one| (one.tenant.to_string(), one.tool.to_string())).collect()
    };
    let expected = |pairs: &[(&str, u64)]| -> BTreeSet<(String, String)> {
        pairs.iter().map(|(of, number)| ((*of).to_owned(), tool(*number).to_string())).collect()
    };
    for (who, pairs) in [
        ("acme", &[("acme", 1), ("acme", 3), ("local", 2)][..]),
        ("zeta", &[("zeta", 4), ("local", 1)]),
        ("local", &[("local", 1), ("local", 2)]),
        ("nobody", &[("local", 1), ("local", 2)]),
    ] {
        assert_eq!(seen(nearest(&store, who, &embedding(4), 10).await), expected(pairs), "{who}");
    }
    // What cannot be seen takes nobody's place, even if it is the nearest.
    assert_eq!(nearest(&store, "acme", &embedding(4), 1).await.len(), 1);
    let own = nearest(&store, "acme", &embedding(5), 1).await;
    assert_eq!(own.first().map(|one| (one.tenant.as_str(), one.distance < 1e-6)), Some(("acme", true)));
}

pub async fn only_named_tools_are_found_if_some_are_named(adapter: impl StoreAdapter) {
    let (store, acme, to) = (opened(&adapter).await, tenant("acme"), embedding(50));
    fill(&store, "acme", 0..100).await;
    fill(&store, "zeta", 200..201).await;
    let named = [tool(7), tool(200), tool(3), tool(999), tool(3)];
    let asked = NearestQuery { tenant: &acme, to: &to, among: NeighbourScope::Tools(&named), limit: 10 };
    let found = store.nearest(&space(), asked).await.unwrap();
    let found: Vec<(ToolId, f64)> = found.into_iter().map(|one| (one.tool, one.distance)).collect();
    assert_eq!(found, measured([3, 7].into_iter(), &to, 10));
    assert_eq!(store.nearest(&space(), NearestQuery { among: NeighbourScope::Tools(&[]), ..asked }).await.unwrap(), []);
    let many: Vec<ToolId> = (0..=u64::try_from(TOOLS_MAX).unwrap()).map(tool).collect();
    let refused =
        store.nearest(&space(), NearestQuery { among: NeighbourScope::Tools(&many), ..asked }).await.unwrap_err();
    assert!(matches!(refused, VectorError::Tools { .. }), "{refused}");
}

pub async fn equal_distances_are_ordered_by_tool(adapter: impl StoreAdapter) {
    let store = opened(&adapter).await;
    // More of the same than candidates, and one that is nearer.
    let same: Vec<VectorRecord> = (0..60).rev().map(|number| record(number, embedding(1))).collect();
    store.put(&space(), &tenant("acme"), &same).await.unwrap();
    store.put(&space(), &tenant("acme"), &[record(99, embedding(31))]).await.unwrap();
    let found = nearest(&store, "acme", &embedding(31), 6).await;
    let expected = ["demo.tool00099", "demo.tool00000", "demo.tool00001", "demo.tool00002", "demo.tool00003"];
    assert_eq!(tools(&found).get(..5), Some(&expected[..]));
}

pub async fn a_vector_takes_the_place_of_the_one_before(adapter: impl StoreAdapter) {
    let (store, acme) = (opened(&adapter).await, tenant("acme"));
    store.put(&space(), &acme, &[record(1, embedding(1)), record(2, embedding(2))]).await.unwrap();
    let changed = VectorRecord { digest: digest("changed"), ..record(1, embedding(9)) };
    // Twice in one batch: the last counts.
    store.put(&space(), &acme, &[record(1, embedding(8)), changed.clone()]).await.unwrap();
    store.put(&space(), &acme, std::slice::from_ref(&changed)).await.unwrap();
    let found = nearest(&store, "acme", &embedding(9), 10).await;
    assert_eq!(tools(&found), ["demo.tool00001", "demo.tool00002"]);
    assert!(found.first().unwrap().distance < 1e-9, "{found:?}");
    assert_eq!(store.missing(&space(), &acme, &[(tool(1), digest("changed"))]).await.unwrap(), []);
    assert_eq!(store.spaces().await.unwrap().first().unwrap().vectors, 2);
}

pub async fn what_is_removed_is_gone_from_all_spaces(adapter: impl StoreAdapter) {
    let (store, acme, other) = (opened(&adapter).await, tenant("acme"), VectorSpace::new("other", WIDTH).unwrap());
    store.open_space(&other).await.unwrap();
    fill(&store, "acme", 0..3).await;
    fill(&store, "zeta", 0..1).await;
    store.put(&other, &acme, &[record(0, embedding(0))]).await.unwrap();
    assert_eq!(store.remove(&acme, &[tool(0), tool(2), tool(77)]).await.unwrap(), 3);
    assert_eq!(tools(&nearest(&store, "acme", &embedding(0), 10).await), ["demo.tool00001"]);
    assert_eq!(tools(&nearest(&store, "zeta", &embedding(0), 10).await), ["demo.tool00000"]);
    let left: Vec<u64> = store.spaces().await.unwrap().iter().map(|state| state.vectors).collect();
    assert_eq!(left, [0, 2], "by model");
    let many: Vec<ToolId> = (0..=u64::try_from(TOOLS_MAX).unwrap()).map(tool).collect();
    assert!(matches!(store.remove(&acme, &many).await, Err(VectorError::Tools { .. })));
}

pub async fn what_has_no_vector_or_an_old_one_is_missing(adapter: impl StoreAdapter) {
    let (store, acme) = (opened(&adapter).await, tenant("acme"));
    assert_eq!(store.missing(&space(), &acme, &[]).await.unwrap(), []);
    fill(&store, "acme", 0..2).await;
    fill(&store, "zeta", 5..6).await;
    let wanted = [(5, "5"), (1, "another text"), (0, "0"), (3, "3")].map(|(number, text)| (tool(number), digest(text)));
    assert_eq!(store.missing(&space(), &acme, &wanted).await.unwrap(), [tool(5), tool(1), tool(3)]);
    let many = vec![(tool(1), digest("1")); TOOLS_MAX + 1];
    assert!(matches!(store.missing(&space(), &acme, &many).await, Err(VectorError::Tools { .. })));
}

pub async fn two_models_and_two_widths_stand_side_by_side(adapter: impl StoreAdapter) {
    let (store, acme) = (opened(&adapter).await, tenant("acme"));
    let spaces =
        [VectorSpace::new("test-model", 5), VectorSpace::new("Test-model", WIDTH), VectorSpace::new("a'b\"c; ü", 5)];
    let spaces = spaces.map(Result::unwrap);
    fill(&store, "acme", 0..5).await;
    for (number, other) in (10..).zip(&spaces) {
        store.open_space(other).await.unwrap();
        let only = record(number, Embedding::new(&numbers(number, other.width())).unwrap());
        store.put(other, &acme, std::slice::from_ref(&only)).await.unwrap();
        let asked = NearestQuery { tenant: &acme, to: &only.embedding, among: NeighbourScope::Visible, limit: 10 };
        assert_eq!(tools(&store.nearest(other, asked).await.unwrap()), [only.tool.as_str()]);
    }
    assert_eq!(nearest(&store, "acme", &embedding(0), 10).await.len(), 5);
    let listed: Vec<_> = store.spaces().await.unwrap().into_iter().map(|state| (state.space, state.vectors)).collect();
    let [narrow, upper, odd] = spaces;
    assert_eq!(listed, [(upper, 1), (odd, 1), (narrow, 1), (space(), 5)]);
}

pub async fn a_dropped_space_takes_its_vectors_with_it_and_no_others(adapter: impl StoreAdapter) {
    let (store, acme, other) = (opened(&adapter).await, tenant("acme"), VectorSpace::new("other", WIDTH).unwrap());
    store.open_space(&other).await.unwrap();
    fill(&store, "acme", 0..3).await;
    store.put(&other, &acme, &[record(9, embedding(9))]).await.unwrap();
    assert!(store.drop_space(&space()).await.unwrap());
    assert!(!store.drop_space(&space()).await.unwrap());
    let refused = store.put(&space(), &acme, &[record(1, embedding(1))]).await.unwrap_err();
    assert!(matches!(refused, VectorError::NoSpace { .. }), "{refused}");
    store.open_space(&space()).await.unwrap();
    assert_eq!(nearest(&store, "acme", &embedding(0), 10).await, []);
    assert_eq!(store.spaces().await.unwrap().iter().map(|state| state.vectors).collect::<Vec<_>>(), [1, 0]);
}

pub async fn vectors_of_another_width_and_too_many_are_refused(adapter: impl StoreAdapter) {
    let (store, acme) = (opened(&adapter).await, tenant("acme"));
    let narrow = Embedding::new(&[1.0, 2.0]).unwrap();
    let refused = store.put(&space(), &acme, &[record(1, narrow.clone())]).await.unwrap_err();
    assert!(matches!(refused, VectorError::OtherWidth { expected: WIDTH, found: 2 }), "{refused}");
    let asked = NearestQuery { tenant: &acme, to: &narrow, among: NeighbourScope::Visible, limit: 1 };
    let refused = store.nearest(&space(), asked).await.unwrap_err();
    assert!(matches!(refused, VectorError::OtherWidth { .. }), "{refused}");
    let to = embedding(1);
    for limit in [0, NEAREST_MAX + 1, usize::MAX] {
        let refused = store.nearest(&space(), NearestQuery { to: &to, limit, ..asked }).await.unwrap_err();
        assert!(matches!(refused, VectorError::Limit { .. }), "{refused}");
    }
    let many = vec![record(1, embedding(1)); BATCH_MAX + 1];
    let refused = store.put(&space(), &acme, &many).await.unwrap_err();
    assert!(matches!(refused, VectorError::Batch { .. }), "{refused}");
    store.put(&space(), &acme, &[]).await.unwrap();
    assert_eq!(store.spaces().await.unwrap().first().unwrap().vectors, 0);
}

pub async fn a_batch_is_kept_whole_or_not_at_all(adapter: impl StoreAdapter) {
    let (store, acme) = (opened(&adapter).await, tenant("acme"));
    let narrow = Embedding::new(&[1.0, 2.0]).unwrap();
    store.put(&space(), &acme, &[record(1, embedding(1)), record(2, narrow)]).await.unwrap_err();
    assert_eq!(nearest(&store, "acme", &embedding(1), 10).await, []);
}

pub async fn the_widest_vectors_are_kept_and_found(adapter: impl StoreAdapter) {
    let (store, acme, wide) = (adapter.vectors(), tenant("acme"), VectorSpace::new("wide", WIDTH_MAX).unwrap());
    store.open_space(&wide).await.unwrap();
    let at = |seed| Embedding::new(&numbers(seed, WIDTH_MAX)).unwrap();
    let records: Vec<VectorRecord> = (0..20).map(|seed| record(seed, at(seed))).collect();
    store.put(&wide, &acme, &records).await.unwrap();
    let to = at(13);
    let asked = NearestQuery { tenant: &acme, to: &to, among: NeighbourScope::Visible, limit: 1 };
    let found = store.nearest(&wide, asked).await.unwrap();
    assert_eq!(tools(&found), ["demo.tool00013"]);
    assert!(found.first().unwrap().distance < 1e-9, "{found:?}");
}

pub async fn vectors_are_found_while_others_are_put(adapter: impl StoreAdapter) {
    let store = opened(&adapter).await;
    fill(&store, "acme", 0..10).await;
    let putting = (0..4_u64).map(|task| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for round in 0..10 {
                // All tasks change the same tools, each in another order.
                let mut records: Vec<VectorRecord> =
                    (100..130).map(|number| record(number, embedding(number + round + task))).collect();
                if task % 2 == 0 {
                    records.reverse();
                }
                store.put(&space(), &tenant("acme"), &records).await.unwrap();
            }
        })
    });
    let putting: Vec<_> = putting.collect();
    for round in 0..40 {
        let to = embedding(round % 10);
        let found = nearest(&store, "acme", &to, NEAREST_MAX).await;
        // A batch is there as a whole or not at all, and nothing is there twice.
        assert!(found.len() == 10 || found.len() == 40, "{}", found.len());
        assert_eq!(found.iter().map(|one| &one.tool).collect::<BTreeSet<_>>().len(), found.len());
        assert!(found.iter().any(|one| one.tool == tool(round % 10) && one.distance < 1e-9), "{found:?}");
    }
    for put in putting {
        put.await.unwrap();
    }
    assert_eq!(nearest(&store, "acme", &embedding(1), NEAREST_MAX).await.len(), 40);
}

pub async fn everything_survives_a_reopening(mut adapter: impl StoreAdapter) {
    let store = opened(&adapter).await;
    fill(&store, "acme", 0..50).await;
    let before = nearest(&store, "acme", &embedding(77), 20).await;
    let spaces = store.spaces().await.unwrap();
    drop(store);
    adapter.reopen().await;
    let store = opened(&adapter).await;
    assert_eq!(nearest(&store, "acme", &embedding(77), 20).await, before);
    assert_eq!(store.spaces().await.unwrap(), spaces);
    let kept: Vec<(ToolId, Digest)> = (0..50).map(|number: u64| (tool(number), digest(&number.to_string()))).collect();
    assert_eq!(store.missing(&space(), &tenant("acme"), &kept).await.unwrap(), []);
}
