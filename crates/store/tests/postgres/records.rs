//! What is kept of calls, between instances: checkpoints, webhooks, use.

use std::sync::Arc;
use std::time::Duration;

use contract::canonical::Digest;
use contract::envelope::CheckpointKind;
use contract::ids::TenantId;
use contract::version::Version;
use ports::checkpoint_store::{
    CheckpointEnding, CheckpointHead, CheckpointId, CheckpointStore, ListPage, SaveOutcome, SealedCheckpoint,
};
use ports::clock::UnixMillis;
use ports::usage_store::{Day, Days, UsageBatch, UsageStore};
use ports::webhook_store::{AddOutcome, SigningSecret, WebhookId, WebhookRecord, WebhookStore};
use uuid::Uuid;

use super::{SERVER, open, two};

const HOUR: Duration = Duration::from_hours(1);
/// How often a race is run.
const RACES: u128 = 20;

// -------------------------------------------------------------------------------------------------------- instances

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

fn sealed(n: u128, invocation: u128, base: Option<u128>) -> SealedCheckpoint {
    let id = |n: u128| CheckpointId(Uuid::from_u128((0x019a << 112) + n));
    SealedCheckpoint {
        head: CheckpointHead {
            id: id(n),
            tenant: tenant(),
            invocation: Uuid::from_u128((0x0199 << 112) + invocation).to_string().parse().unwrap(),
            owner: "agent-1".parse().unwrap(),
            tool: "demo.primes".parse().unwrap(),
            version: Version::new(1, 2, 3),
            kind: CheckpointKind::Micro,
            label: None,
            parent: None,
            saved_at: UnixMillis(1_800_000_000_000),
        },
        base: base.map(id),
        chain: u8::from(base.is_some()),
        schema_version: "1.0".into(),
        is_gzip: false,
        content_bytes: 3,
        checksum: Digest::of_bytes(&n.to_be_bytes()),
        seal: Digest::of_bytes(&(n + 1_000).to_be_bytes()),
        payload: vec![1, 2, 3].into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_save_at_once_keep_everything_and_a_fenced_one_keeps_nothing() {
    let stores = two().await;
    for race in 0..RACES {
        let mut saving = tokio::task::JoinSet::new();
        for number in 0..6_u128 {
            let store = Arc::clone(if number.is_multiple_of(2) { &stores[0] } else { &stores[1] });
            let one = sealed(race * 10 + number, race, None);
            saving.spawn(async move { store.save(&one, Some(1), Some(HOUR)).await.unwrap() });
        }
        assert!(saving.join_all().await.into_iter().all(|saved| saved == SaveOutcome::Kept));
        let page = ListPage { after: None, limit: 100 };
        let invocation = sealed(0, race, None).head.invocation;
        assert_eq!(CheckpointStore::list(&*stores[0], &tenant(), invocation, page).await.unwrap().len(), 6);
        // The one with the higher fence and the one that was fenced out come together: the latter is never the newest after.
        let (higher, lower) = (sealed(race * 10 + 7, race, None), sealed(race * 10 + 8, race, None));
        let (first, second) =
            tokio::join!(stores[0].save(&higher, Some(3), Some(HOUR)), stores[1].save(&lower, Some(2), Some(HOUR)));
        assert_eq!(first.unwrap(), SaveOutcome::Kept);
        match second.unwrap() {
            SaveOutcome::Fenced => {}
            SaveOutcome::Kept => {
                let listed = CheckpointStore::list(&*stores[0], &tenant(), invocation, page).await.unwrap();
                assert_eq!(listed.first().unwrap().head.id, higher.head.id);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_saved_on_a_base_that_goes_at_that_moment_has_its_base_or_is_refused() {
    let stores = two().await;
    for race in 0..RACES {
        let (base, top) = (sealed(race * 10, race, None), sealed(race * 10 + 1, race, Some(race * 10)));
        assert_eq!(stores[0].save(&base, Some(1), Some(HOUR)).await.unwrap(), SaveOutcome::Kept);
        let head = &base.head;
        let (saved, settled) = tokio::join!(
            stores[0].save(&top, Some(1), None),
            CheckpointStore::settle(
                &*stores[1],
                &head.tenant,
                head.invocation,
                &head.owner,
                None,
                CheckpointEnding::Completed
            ),
        );
        settled.unwrap();
        let chain = stores[1].chain(&tenant(), top.head.id).await.unwrap();
        match saved.unwrap() {
            SaveOutcome::Kept => assert_eq!(chain.len(), 2),
            other => assert_eq!((other, chain.len()), (SaveOutcome::BaseGone, 0)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_together_add_no_more_subscriptions_than_a_tenant_may_have() {
    let stores = two().await;
    let webhook = |number: u128| WebhookRecord {
        tenant: tenant(),
        id: WebhookId(Uuid::from_u128(number)),
        url: "https://hooks.example/in".into(),
        events: Vec::new(),
        secret: SigningSecret::Generated { generation: 1 },
        former: None,
        added_at: UnixMillis(1),
        added_by: "ann".parse().unwrap(),
    };
    let mut adding = tokio::task::JoinSet::new();
    for number in 0..12_u128 {
        let store = Arc::clone(if number.is_multiple_of(2) { &stores[0] } else { &stores[1] });
        let one = webhook(number);
        adding.spawn(async move { store.add_webhook(&one, 5).await.unwrap() });
    }
    let kept = adding.join_all().await.into_iter().filter(|added| *added == AddOutcome::Kept).count();
    assert_eq!((kept, stores[0].webhooks(&tenant()).await.unwrap().len()), (5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_claim_or_add_the_same_do_it_once_between_them() {
    let stores = two().await;
    for race in 0..RACES {
        let key = format!("jwt_{race}");
        let claim = |store: usize, holder| WebhookStore::claim(&*stores[store], &key, holder, HOUR);
        let (first, second) = tokio::join!(claim(0, "one"), claim(1, "two"));
        assert!(first.unwrap() ^ second.unwrap());
        // The same batch sent by both, and one of each own that touch the same rows in another order.
        let tool = |name: &str| name.parse().unwrap();
        let batch = |id: u128, turned: bool| {
            let mut pairs = vec![
                ((tenant(), Day(1), tool("aaa"), tool("bbb")), 1),
                ((tenant(), Day(1), tool("aaa"), tool("ccc")), 1),
                ((tenant(), Day(1), tool("aaa"), tool("bbb")), 1),
            ];
            if turned {
                pairs.reverse();
            }
            let id = Uuid::from_u128(race * 10 + id);
            UsageBatch { id, rows: Vec::new(), latencies: Vec::new(), pairs, wishes: Vec::new() }
        };
        let same = batch(1, false);
        let (own, other) = (batch(2, false), batch(3, true));
        let (a, b, c, d) = tokio::join!(
            stores[0].add_usage(&same),
            stores[1].add_usage(&same),
            stores[0].add_usage(&own),
            stores[1].add_usage(&other),
        );
        assert!(a.unwrap() ^ b.unwrap());
        assert!(c.unwrap() && d.unwrap());
    }
    let days = Days { from: Day(0), to: Day(9) };
    let pairs = stores[0].pairs(&tenant(), days, 10).await.unwrap();
    let counts: Vec<u64> = pairs.iter().map(|pair| pair.count).collect();
    let races = u64::try_from(RACES).unwrap();
    assert_eq!(counts, [races * 6, races * 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_holds_a_transaction_to_its_tenant() {
    let here = open().await;
    here.store.save(&sealed(1, 1, None), None, None).await.unwrap();
    let database = here.url.rsplit('/').next().unwrap();
    let as_tenant = |tenant: &str, sql: &str| {
        SERVER.sql(database, &format!("SET ROLE gantry; BEGIN; SET LOCAL gantry.tenant = '{tenant}'; {sql}; COMMIT"))
    };
    for (tenant, seen) in [("acme", "1"), ("other", "0"), ("*", "1"), ("", "0")] {
        assert_eq!(as_tenant(tenant, "SELECT count(*) FROM checkpoints").unwrap(), seen, "{tenant}");
    }
    let columns = "tenant_id, day, tool_id, bucket, count";
    let insert = format!("INSERT INTO usage_latencies ({columns}) VALUES ('acme', 1, 'aaa', 1, 1)");
    as_tenant("other", &insert).unwrap_err();
    as_tenant("acme", &insert).unwrap();
    as_tenant("other", "UPDATE checkpoints SET owner = 'mine'; DELETE FROM checkpoints").unwrap();
    assert_eq!(as_tenant("*", "SELECT count(*) FROM checkpoints WHERE owner = 'agent-1'").unwrap(), "1");
}
