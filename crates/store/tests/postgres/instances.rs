//! Two instances on one database: races that one process alone does not have.

use std::collections::BTreeSet;
use std::sync::Arc;

use contract::ids::TenantId;
use gantry_store::conformance::{deprecated, new_version, sample_manifest, sunset};
use gantry_store::postgres::PostgresStore;
use ports::access_store::{AccessStore, AgentRecord, BudgetSpending, PolicyRecord};
use ports::clock::UnixMillis;
use ports::lifecycle::Lifecycle;
use ports::presence::Presence as _;
use ports::registry_store::{LifecycleChange, PublishOutcome, RegistryStore};
use ports::tool_search::ToolSearch;

use super::{SERVER, open_at};

/// So often each race is run.
const ROUNDS: usize = 20;

async fn two(url: &str) -> [Arc<PostgresStore>; 2] {
    [open_at(url).await, open_at(url).await]
}

/// Runs the same work on both at once, several times each, and gives what came of it.
async fn race<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    stores: &[Arc<PostgresStore>; 2],
    work: impl Fn(Arc<PostgresStore>, usize) -> F,
) -> Vec<T> {
    let running: Vec<_> = (0..8).map(|number| tokio::spawn(work(Arc::clone(&stores[number % 2]), number))).collect();
    let mut outcomes = Vec::new();
    for one in running {
        outcomes.push(one.await.unwrap());
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_are_present_as_long_as_they_say_so() {
    let url = SERVER.database().unwrap();
    let [one, other] = two(&url).await;
    let present = async || {
        let present = other.present().await.unwrap();
        present.into_iter().map(|one| (one.replica, one.word)).collect::<Vec<_>>()
    };
    let told = |name: &str, word: &str| (name.to_owned(), word.to_owned());
    let ttl = std::time::Duration::from_secs(20);
    assert_eq!(present().await, []);
    one.announce("i-2", "two", ttl).await.unwrap();
    one.announce("i-1", "one", ttl).await.unwrap();
    assert_eq!(present().await, [told("i-1", "one"), told("i-2", "two")]);
    // The newest word counts, and zero is a farewell.
    one.announce("i-2", "two again", ttl).await.unwrap();
    one.announce("i-1", "", std::time::Duration::ZERO).await.unwrap();
    assert_eq!(present().await, [told("i-2", "two again")]);
    assert!(one.announce("i-3", &"x".repeat(5_000), ttl).await.is_err(), "a word is small");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_new_once_and_its_lifecycle_moves_once() {
    let stores = two(&SERVER.database().unwrap()).await;
    for round in 0..ROUNDS {
        let version = format!("1.{round}.0");
        let published = race(&stores, |store, number| {
            let text = format!("Does what publisher {number} does with the giraffe.");
            let manifest = sample_manifest("demo.sample", &version, "A sample tool", &text);
            async move { store.publish(new_version(manifest)).await.unwrap() }
        })
        .await;
        assert_eq!(published.iter().filter(|outcome| **outcome == PublishOutcome::New).count(), 1, "{published:?}");
        let moved = race(&stores, |store, number| {
            let (tool, version) = ("demo.sample".parse().unwrap(), version.parse().unwrap());
            let to = if number % 3 == 0 { deprecated() } else { sunset() };
            async move {
                store.change_lifecycle(&TenantId::home(), &tool, &version, &Lifecycle::default(), &to).await.unwrap()
            }
        })
        .await;
        assert_eq!(moved.iter().filter(|outcome| **outcome == LifecycleChange::Done).count(), 1, "{moved:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_counts_right_whoever_publishes_at_once() {
    let url = SERVER.database().unwrap();
    let stores = two(&url).await;
    for round in 0..ROUNDS {
        race(&stores, |store, number| {
            let (tool, version) = (format!("tool_{number}"), format!("1.{round}.0"));
            let text = format!("Feeds the walrus at round{round} and dusk.");
            let manifest = sample_manifest(&tool, &version, "Feeder", &text);
            async move { store.publish(new_version(manifest)).await.unwrap() }
        })
        .await;
        for store in &stores {
            let query = format!("round{round} walrus");
            assert_eq!(store.search(&TenantId::home(), &query, 100).await.unwrap().len(), 8, "{round}");
        }
    }
    let database = |statement: &str| SERVER.sql(url.rsplit('/').next().unwrap(), statement).unwrap();
    let wrong = database(
        "SELECT count(*) FROM (SELECT tenant_id, term, count(*) AS documents FROM search_postings GROUP BY 1, 2) AS counted
         FULL JOIN search_terms USING (tenant_id, term) WHERE counted.documents IS DISTINCT FROM search_terms.documents",
    );
    assert_eq!(wrong, "0");
    let corpus = "SELECT documents || ' ' || (length = (SELECT sum(length) FROM search_documents)) FROM search_corpora";
    assert_eq!(database(corpus), "8 true");
}

#[tokio::test(flavor = "multi_thread")]
async fn epochs_are_given_once_and_policies_have_no_gaps() {
    let stores = two(&SERVER.database().unwrap()).await;
    let mut epochs = BTreeSet::new();
    for round in 0..ROUNDS {
        let given = race(&stores, |store, number| {
            let agent = AgentRecord {
                tenant: "acme".parse().unwrap(),
                agent: format!("agent-{round}-{}", number / 2).parse().unwrap(),
                document: Some("{}".to_owned()),
                added_at: UnixMillis(1),
                added_by: "admin".parse().unwrap(),
            };
            async move { store.put_agents(&[agent]).await.unwrap() }
        })
        .await;
        assert!(given.into_iter().all(|epoch| epochs.insert(epoch)), "an epoch was given twice");
        let added = race(&stores, |store, number| {
            let record = PolicyRecord {
                tenant: None,
                version: u64::try_from(round + 1).unwrap(),
                text: format!("by {number}"),
                added_at: UnixMillis(1),
                added_by: "admin".parse().unwrap(),
            };
            async move { store.add_policies(&record).await.unwrap() }
        })
        .await;
        let added: Vec<u64> = added.into_iter().flatten().collect();
        assert_eq!(added.len(), 1, "{round}");
        assert!(added.into_iter().all(|epoch| epochs.insert(epoch)), "an epoch was given twice");
    }
    let last = u64::try_from(epochs.len()).unwrap();
    assert_eq!((epochs.first(), epochs.last()), (Some(&1), Some(&last)), "without gaps");
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_hold_across_instances_whatever_the_order_of_tokens() {
    let stores = two(&SERVER.database().unwrap()).await;
    for round in 0..ROUNDS {
        let counted = race(&stores, |store, number| {
            let mut chain =
                ["child", "parent"].map(|token| BudgetSpending { token: format!("{token}-{round}"), calls_max: 5 });
            if number % 2 == 0 {
                chain.reverse();
            }
            async move { store.spend(&chain).await.unwrap().is_ok() }
        })
        .await;
        assert_eq!(counted.into_iter().filter(|counted| *counted).count(), 5, "{round}");
    }
}
