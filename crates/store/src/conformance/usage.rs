//! Cases of `UsageStore` and `HealthStore`. Each takes a fresh store.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test suite: what does not hold must panic"
)]

use std::time::Duration;

use contract::cost::CostComponent;
use contract::ids::TenantId;
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::health_store::{AlertRule, HealthRecord};
use ports::latency::Latencies;
use ports::tool_version::VersionKey;
use ports::usage_store::{CostLine, Day, Days, Grouping, UsageBatch, UsageKey, UsageQuery, UsageStore, UsageSum};
use ports::version_use::{Hour, HourOfUse};
use uuid::Uuid;

use super::StoreAdapter;

/// All cases of `UsageStore` and `HealthStore` against one adapter.
#[macro_export]
macro_rules! usage_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            usage,
            [
                a_fresh_store_has_no_use,
                rows_are_added_up_and_a_batch_counts_once,
                groups_are_made_by_what_is_asked_for,
                pages_have_every_group_once_with_its_own_costs,
                another_tenant_sees_nothing_of_it,
                money_is_added_exactly_and_by_currency,
                tools_have_their_times_and_their_agents,
                pairs_and_wishes_are_counted_over_days,
                old_days_are_forgotten_and_others_stay,
                use_survives_a_reopening,
                calls_of_versions_that_end_are_added_up_by_the_hour_and_reported_by_one,
                the_health_of_a_version_is_replaced_and_survives_a_reopening,
            ]
        );
    };
}

const DAY: Day = Day(20_468);
const NOON: UnixMillis = UnixMillis(1_768_435_200_123);
const ALL: Grouping = Grouping { day: true, tool: true, agent: true, user: true };
const NONE: Grouping = Grouping { day: false, tool: false, agent: false, user: false };

// ---------------------------------------------------------------------------------------------------------- samples

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn key(of: &str, day: Day, tool: &str, agent: &str, user: Option<&str>) -> UsageKey {
    UsageKey {
        tenant: tenant(of),
        day,
        tool: tool.parse().unwrap(),
        agent: agent.parse().unwrap(),
        user: user.map(|user| user.parse().unwrap()),
    }
}

fn calls(calls: u64) -> UsageSum {
    UsageSum {
        calls,
        errors: 1,
        timeouts: 1,
        refused: 2,
        replayed: 3,
        duration_ms: 10 * calls,
        cpu_millicore_seconds: 4,
        network_bytes: 5,
        tokens: 6,
        last_at: NOON,
    }
}

fn cost(currency: &str, component: CostComponent, amount: &str) -> CostLine {
    CostLine { currency: currency.parse().unwrap(), component, amount: amount.parse().unwrap() }
}

fn batch(number: u128, rows: Vec<(UsageKey, UsageSum, Vec<CostLine>)>) -> UsageBatch {
    let id = Uuid::from_u128(number);
    UsageBatch { id, rows, latencies: Vec::new(), pairs: Vec::new(), wishes: Vec::new() }
}

fn asked(of: &str, by: Grouping) -> UsageQuery {
    UsageQuery {
        tenant: tenant(of),
        from: DAY.before(1_000),
        to: Day(DAY.0 + 1_000),
        tool: None,
        agent: None,
        user: None,
        by,
        skip: 0,
        most: 500,
    }
}

fn ever() -> Days {
    Days { from: Day(0), to: Day(100_000) }
}

async fn total(store: &dyn UsageStore, query: &UsageQuery) -> u64 {
    store.usage(query).await.unwrap().groups.iter().map(|group| group.sum.calls).sum()
}

// ------------------------------------------------------------------------------------------------------------ cases

pub async fn a_fresh_store_has_no_use(adapter: impl StoreAdapter) {
    let store = adapter.usage();
    let page = store.usage(&asked("local", ALL)).await.unwrap();
    assert!(page.groups.is_empty() && !page.more);
    assert!(store.usage(&asked("local", NONE)).await.unwrap().groups.is_empty());
    assert!(store.tool_usage(&tenant("local"), ever(), 10).await.unwrap().is_empty());
    assert!(store.pairs(&tenant("local"), ever(), 10).await.unwrap().is_empty());
    assert!(store.wishes(&tenant("local"), ever(), 10).await.unwrap().is_empty());
    assert!(adapter.health().health(10).await.unwrap().is_empty());
}

pub async fn rows_are_added_up_and_a_batch_counts_once(adapter: impl StoreAdapter) {
    let store = adapter.usage();
    let line = || vec![cost("USD", CostComponent::Token, "0.00000014")];
    let first = batch(1, vec![(key("local", DAY, "demo.echo", "one", None), calls(2), line())]);
    let later = UsageSum { last_at: UnixMillis(NOON.0 + 5), ..calls(3) };
    let second = batch(2, vec![(key("local", DAY, "demo.echo", "one", None), later, line())]);
    assert!(store.add_usage(&first).await.unwrap());
    assert!(!store.add_usage(&first).await.unwrap(), "the same one again");
    assert!(store.add_usage(&second).await.unwrap());
    let page = store.usage(&asked("local", ALL)).await.unwrap();
    let group = &page.groups[0];
    assert_eq!((page.groups.len(), group.sum.calls, group.sum.duration_ms), (1, 5, 50));
    assert_eq!((group.sum.errors, group.sum.timeouts, group.sum.refused, group.sum.replayed), (2, 2, 4, 6));
    assert_eq!((group.sum.cpu_millicore_seconds, group.sum.network_bytes, group.sum.tokens), (8, 10, 12));
    assert_eq!(group.sum.last_at, UnixMillis(NOON.0 + 5));
    assert_eq!((group.day, group.user.as_ref()), (Some(DAY), None));
    assert_eq!(group.costs, [cost("USD", CostComponent::Token, "0.00000028")]);
}

pub async fn groups_are_made_by_what_is_asked_for(adapter: impl StoreAdapter) {
    let store = adapter.usage();
    let rows = [
        (key("local", DAY, "demo.echo", "one", Some("ann")), calls(1)),
        (key("local", DAY, "demo.echo", "two", None), calls(2)),
        (key("local", DAY, "demo.mail", "one", Some("bob")), calls(4)),
        (key("local", DAY.before(1), "demo.echo", "one", Some("ann")), calls(8)),
    ];
    let rows = rows.map(|(key, sum)| (key, sum, vec![cost("USD", CostComponent::Compute, "1")]));
    store.add_usage(&batch(1, rows.to_vec())).await.unwrap();
    let counts = async |query: UsageQuery| {
        let page = store.usage(&query).await.unwrap();
        page.groups.iter().map(|group| (group.sum.calls, group.costs[0].amount.to_string())).collect::<Vec<_>>()
    };
    let text = |pairs: &[(u64, &str)]| pairs.iter().map(|(n, cost)| (*n, (*cost).to_owned())).collect::<Vec<_>>();
    let all = || asked("local", NONE);
    assert_eq!(counts(all()).await, text(&[(15, "4")]));
    let by = |change: fn(&mut Grouping)| {
        let mut query = all();
        change(&mut query.by);
        query
    };
    assert_eq!(counts(by(|by| by.day = true)).await, text(&[(8, "1"), (7, "3")]));
    assert_eq!(counts(by(|by| by.tool = true)).await, text(&[(11, "3"), (4, "1")]));
    assert_eq!(counts(by(|by| by.agent = true)).await, text(&[(13, "3"), (2, "1")]));
    assert_eq!(counts(by(|by| by.user = true)).await, text(&[(2, "1"), (9, "2"), (4, "1")]), "nobody first");
    assert_eq!(counts(UsageQuery { from: DAY, ..all() }).await, text(&[(7, "3")]));
    assert_eq!(counts(UsageQuery { to: DAY.before(1), ..all() }).await, text(&[(8, "1")]));
    assert_eq!(counts(UsageQuery { agent: Some("two".parse().unwrap()), ..all() }).await, text(&[(2, "1")]));
    assert_eq!(counts(UsageQuery { user: Some("bob".parse().unwrap()), ..all() }).await, text(&[(4, "1")]));
    assert_eq!(counts(UsageQuery { tool: Some("demo.mail".parse().unwrap()), ..all() }).await, text(&[(4, "1")]));
    assert!(counts(UsageQuery { tool: Some("demo.none".parse().unwrap()), ..all() }).await.is_empty());
}

pub async fn pages_have_every_group_once_with_its_own_costs(adapter: impl StoreAdapter) {
    let store = adapter.usage();
    let rows = (0_u64..25).map(|number| {
        let day = Day(DAY.0 + i64::try_from(number % 5).unwrap());
        let key = key("local", day, &format!("tool_{}", number / 5), "one", None);
        (key, calls(number + 1), vec![cost("USD", CostComponent::ExternalApi, &(number + 1).to_string())])
    });
    store.add_usage(&batch(1, rows.collect())).await.unwrap();
    let (mut seen, mut skip) = (Vec::new(), 0);
    loop {
        let page = store.usage(&UsageQuery { skip, most: 7, ..asked("local", ALL) }).await.unwrap();
        assert!(page.groups.len() == 7 || !page.more);
        skip += page.groups.len();
        let more = page.more;
        seen.extend(page.groups);
        if !more {
            break;
        }
    }
    assert_eq!(seen.len(), 25);
    for group in &seen {
        assert_eq!(group.costs, [cost("USD", CostComponent::ExternalApi, &group.sum.calls.to_string())]);
    }
    assert!(seen.windows(2).all(|pair| (pair[0].day, &pair[0].tool) < (pair[1].day, &pair[1].tool)));
}

pub async fn another_tenant_sees_nothing_of_it(adapter: impl StoreAdapter) {
    let store = adapter.usage();
    let mut mine = batch(1, vec![(key("acme", DAY, "demo.echo", "one", None), calls(1), Vec::new())]);
    let tool = |name: &str| name.parse().unwrap();
    mine.latencies = vec![((tenant("acme"), tool("demo.echo"), DAY), Latencies::default())];
    mine.pairs = vec![((tenant("acme"), DAY, tool("demo.echo"), tool("demo.mail")), 3)];
    mine.wishes = vec![((tenant("acme"), DAY, "one".parse().unwrap(), tool("demo.mail")), 3)];
    store.add_usage(&mine).await.unwrap();
    for (of, expected) in [("acme", 1), ("local", 0), ("acm", 0), ("acme2", 0)] {
        assert_eq!(total(&*store, &asked(of, ALL)).await, expected, "{of}");
        let one = usize::try_from(expected).unwrap();
        assert_eq!(store.tool_usage(&tenant(of), ever(), 10).await.unwrap().len(), one);
        assert_eq!(store.pairs(&tenant(of), ever(), 10).await.unwrap().len(), one);
        assert_eq!(store.wishes(&tenant(of), ever(), 10).await.unwrap().len(), one);
    }
}

pub async fn money_is_added_exactly_and_by_currency(adapter: impl StoreAdapter) {
    let store = adapter.usage();
    for number in 0..50_u128 {
        let costs = vec![
            cost("USD", CostComponent::Token, "0.000000000001"),
            cost("USD", CostComponent::Compute, "123456789.000000999999"),
            cost("EUR", CostComponent::Token, "0.1"),
        ];
        store
            .add_usage(&batch(number, vec![(key("local", DAY, "demo.echo", "one", None), calls(1), costs)]))
            .await
            .unwrap();
    }
    let expected = [
        cost("EUR", CostComponent::Token, "5"),
        cost("USD", CostComponent::Compute, "6172839450.00004999995"),
        cost("USD", CostComponent::Token, "0.00000000005"),
    ];
    assert_eq!(store.usage(&asked("local", NONE)).await.unwrap().groups[0].costs, expected);
    assert_eq!(store.tool_usage(&tenant("local"), ever(), 10).await.unwrap()[0].costs, expected);
}

pub async fn tools_have_their_times_and_their_agents(adapter: impl StoreAdapter) {
    let store = adapter.usage();
    let mut latencies = Latencies::default();
    (0..100).for_each(|_| latencies.note(Duration::from_millis(10)));
    for number in 0..2_u128 {
        let day = Day(DAY.0 + i64::try_from(number).unwrap());
        let mut some = batch(
            number,
            vec![
                (key("local", day, "demo.echo", "one", None), calls(1), Vec::new()),
                (key("local", day, "demo.echo", "two", None), calls(1), Vec::new()),
                (key("local", day, "demo.mail", "one", None), calls(9), Vec::new()),
            ],
        );
        some.latencies = vec![((tenant("local"), "demo.echo".parse().unwrap(), day), latencies.clone())];
        store.add_usage(&some).await.unwrap();
    }
    let tools = store.tool_usage(&tenant("local"), ever(), 10).await.unwrap();
    let shown: Vec<_> = tools.iter().map(|tool| (tool.tool.as_str(), tool.sum.calls, tool.agents)).collect();
    assert_eq!(shown, [("demo.mail", 18, 1), ("demo.echo", 4, 2)], "most called first");
    assert_eq!((tools[1].latencies.total(), tools[0].latencies.total()), (200, 0));
    let p99 = tools[1].latencies.quantile(0.99).unwrap();
    assert!((Duration::from_millis(8)..Duration::from_millis(13)).contains(&p99), "{p99:?}");
    let first_day = Days { from: DAY, to: DAY };
    assert_eq!(store.tool_usage(&tenant("local"), first_day, 1).await.unwrap()[0].sum.calls, 9);
}

pub async fn pairs_and_wishes_are_counted_over_days(adapter: impl StoreAdapter) {
    let store = adapter.usage();
    let tool = |name: &str| name.parse().unwrap();
    for number in 0..3_u128 {
        let mut some = batch(number, Vec::new());
        let day = Day(DAY.0 + i64::try_from(number).unwrap());
        some.pairs = vec![
            ((tenant("local"), day, tool("aaa"), tool("bbb")), 2),
            ((tenant("local"), day, tool("aaa"), tool("ccc")), 1),
        ];
        some.wishes = vec![((tenant("local"), day, "one".parse().unwrap(), tool("aaa")), 4)];
        assert!(store.add_usage(&some).await.unwrap());
    }
    let pairs = store.pairs(&tenant("local"), ever(), 10).await.unwrap();
    let shown: Vec<_> = pairs.iter().map(|pair| (pair.first.as_str(), pair.second.as_str(), pair.count)).collect();
    assert_eq!(shown, [("aaa", "bbb", 6), ("aaa", "ccc", 3)]);
    let days = Days { from: DAY, to: Day(DAY.0 + 1) };
    let wishes = store.wishes(&tenant("local"), days, 1).await.unwrap();
    assert_eq!(
        (wishes.len(), wishes[0].agent.as_str(), wishes[0].tool.as_str(), wishes[0].count),
        (1, "one", "aaa", 8)
    );
}

pub async fn old_days_are_forgotten_and_others_stay(adapter: impl StoreAdapter) {
    let store = adapter.usage();
    let mut rows = Vec::new();
    for age in 0..10 {
        rows.push((key("local", DAY.before(age), "demo.echo", "one", None), calls(1), Vec::new()));
    }
    store.add_usage(&batch(1, rows)).await.unwrap();
    assert_eq!(store.prune_usage(DAY.before(4), 3).await.unwrap(), 3);
    assert_eq!(store.prune_usage(DAY.before(4), 100).await.unwrap(), 2);
    assert_eq!(store.prune_usage(DAY.before(4), 100).await.unwrap(), 0);
    assert_eq!(total(&*store, &asked("local", ALL)).await, 5);
}

pub async fn use_survives_a_reopening(mut adapter: impl StoreAdapter) {
    let rows = vec![(
        key("local", DAY, "demo.echo", "one", Some("ann")),
        calls(3),
        vec![cost("USD", CostComponent::Token, "2")],
    )];
    adapter.usage().add_usage(&batch(1, rows.clone())).await.unwrap();
    adapter.reopen().await;
    let store = adapter.usage();
    assert!(!store.add_usage(&batch(1, rows)).await.unwrap(), "and its name with it");
    assert_eq!(total(&*store, &asked("local", ALL)).await, 3);
}

pub async fn the_health_of_a_version_is_replaced_and_survives_a_reopening(mut adapter: impl StoreAdapter) {
    let record = |tool: &str, at: i64| HealthRecord {
        key: VersionKey { tenant: tenant("local"), tool: tool.parse().unwrap(), version: Version::new(1, 2, 3) },
        score: Some(0.75),
        calls: 12,
        baseline_p99_ms: 41.5,
        baseline_windows: 7,
        raised: vec![(AlertRule::ToolDegraded, NOON), (AlertRule::OutputSchemaViolation, UnixMillis(7))],
        at: UnixMillis(at),
    };
    adapter.health().keep_health(&[record("aaa", 1), record("bbb", 2)]).await.unwrap();
    let unknown = HealthRecord { score: None, raised: Vec::new(), ..record("aaa", 3) };
    adapter.health().keep_health(std::slice::from_ref(&unknown)).await.unwrap();
    adapter.reopen().await;
    let kept = adapter.health().health(10).await.unwrap();
    assert_eq!(kept, [unknown, record("bbb", 2)], "newest first");
    assert_eq!(adapter.health().health(1).await.unwrap().len(), 1);
}

pub async fn calls_of_versions_that_end_are_added_up_by_the_hour_and_reported_by_one(mut adapter: impl StoreAdapter) {
    let used = |tool: &str, hour: i64, calls: u64| HourOfUse {
        version: VersionKey {
            tenant: tenant("acme"),
            tool: tool.parse().unwrap(),
            version: Version::parse("1.0.0").unwrap(),
        },
        hour: Hour(hour),
        calls,
    };
    let store = adapter.version_use();
    store.add_version_use(&[used("one", 10, 2), used("one", 11, 1), used("two", 10, 5)]).await.unwrap();
    store.add_version_use(&[used("one", 11, 3)]).await.unwrap();
    store.add_version_use(&[]).await.unwrap();
    drop(store);
    adapter.reopen().await;
    let store = adapter.version_use();
    let mut hours = store.version_use(Hour(10)).await.unwrap().hours;
    hours.sort_by(|left, right| (&left.version, left.hour).cmp(&(&right.version, right.hour)));
    assert_eq!(hours, [used("one", 10, 2), used("one", 11, 4), used("two", 10, 5)]);
    store.forget_version_use(Hour(11)).await.unwrap();
    assert_eq!(store.version_use(Hour(0)).await.unwrap().hours, [used("one", 11, 4)]);

    let day = Duration::from_secs(86_400);
    assert_eq!(store.begin_use_report(NOON, day).await.unwrap(), Some(UnixMillis(0)));
    assert_eq!(store.begin_use_report(NOON.plus(day / 2), day).await.unwrap(), None, "another one has reported");
    assert_eq!(store.begin_use_report(NOON.plus(day), day).await.unwrap(), Some(NOON));
}
