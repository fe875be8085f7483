//! Cases of `AccessStore`. Each takes a fresh store.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::sync::Arc;

use policy::{PolicyOverrides, VisibilityDefault};
use ports::access_store::{
    AccessStore, Activation, AgentRecord, BudgetSpending, PolicyRecord, Revocation, RevokedIssuers, RevokedTokens,
    TenantRecord,
};
use ports::clock::UnixMillis;

use super::StoreAdapter;

/// All cases of `AccessStore` against one adapter.
#[macro_export]
macro_rules! access_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            access,
            [
                a_fresh_store_has_nothing_in_force,
                tenants_are_added_and_replaced,
                an_agent_keeps_its_first_record_until_a_document_comes,
                an_agent_is_removed_once_and_from_its_tenant_only,
                activations_are_replaced_by_tenant_agent_and_tool,
                an_activation_keeps_its_id_and_its_beginning_when_it_is_replaced,
                two_tenants_do_not_see_each_other,
                only_the_next_version_of_policies_is_added,
                one_of_many_concurrent_versions_wins,
                the_history_is_newest_first_and_limited,
                a_revocation_keeps_the_later_time,
                a_revocation_is_of_the_issuers_it_was_said_of_and_once_of_all_stays_of_all,
                a_revocation_whose_end_is_known_is_forgotten_after_it,
                a_call_is_counted_against_every_budget_or_none,
                concurrent_spending_never_exceeds_the_maximum,
                concurrent_spending_of_a_chain_counts_all_or_none,
                the_epoch_rises_with_every_change_and_with_nothing_else,
                concurrent_changes_get_epochs_of_their_own,
                everything_survives_a_reopening,
                hostile_text_is_kept_as_it_is,
            ]
        );
    };
}

type Store = Arc<dyn AccessStore>;

const NOON: UnixMillis = UnixMillis(1_790_000_000_123);

// ---------------------------------------------------------------------------------------------------------- samples

fn tenant(name: &str) -> TenantRecord {
    TenantRecord {
        tenant: name.parse().unwrap(),
        name: format!("The people of {name}"),
        visibility: Some(VisibilityDefault::ReadOnly),
        tools: ["demo.*", "calculator"].map(|pattern| pattern.parse().unwrap()).to_vec(),
        enabled: true,
    }
}

fn agent(tenant: &str, agent: &str) -> AgentRecord {
    AgentRecord {
        tenant: tenant.parse().unwrap(),
        agent: agent.parse().unwrap(),
        document: None,
        added_at: NOON,
        added_by: "admin".parse().unwrap(),
    }
}

/// The same id for the same text.
fn id_of(text: &str) -> uuid::Uuid {
    let number = text.bytes().fold(0_u128, |number, byte| number.rotate_left(7) ^ u128::from(byte));
    uuid::Uuid::from_u128(number)
}

fn activation(tenant: &str, agent: &str, tool: &str, enabled: bool) -> Activation {
    Activation {
        id: id_of(&format!("{tenant} {agent} {tool}")),
        tenant: tenant.parse().unwrap(),
        agent: agent.parse().unwrap(),
        tool: tool.parse().unwrap(),
        enabled,
        overrides: PolicyOverrides::default(),
        created_at: NOON,
        updated_at: NOON,
    }
}

fn policies(tenant: Option<&str>, version: u64, text: &str) -> PolicyRecord {
    PolicyRecord {
        tenant: tenant.map(|tenant| tenant.parse().unwrap()),
        version,
        text: text.to_owned(),
        added_at: NOON,
        added_by: "admin".parse().unwrap(),
    }
}

fn of_token(token: &str) -> RevokedTokens {
    RevokedTokens::Token("acme".parse().unwrap(), token.to_owned())
}

fn of_subject(tenant: &str, subject: &str) -> RevokedTokens {
    RevokedTokens::Subject(tenant.parse().unwrap(), subject.parse().unwrap())
}

fn revocation(what: RevokedTokens, at: i64, by: &str) -> Revocation {
    let issuers = RevokedIssuers::All;
    Revocation { what, issuers, at: UnixMillis(at), by: by.parse().unwrap(), needless_from: None }
}

fn spending(budgets: &[(&str, u64)]) -> Vec<BudgetSpending> {
    budgets
        .iter()
        .map(|(token, calls_max)| BudgetSpending { token: (*token).to_owned(), calls_max: *calls_max })
        .collect()
}

async fn spend(store: &Store, budgets: &[(&str, u64)]) -> Result<(), String> {
    let told = store.would_spend(&spending(budgets)).await.unwrap();
    let spent = store.spend(&spending(budgets)).await.unwrap();
    assert_eq!(told, spent, "what would be answered is what is answered, and asking counts nothing");
    spent
}

// ------------------------------------------------------------------------------------------------------------ cases

pub async fn a_fresh_store_has_nothing_in_force(adapter: impl StoreAdapter) {
    let store = adapter.access();
    let state = store.load().await.unwrap();
    assert_eq!(state.epoch, 0);
    assert!(state.tenants.is_empty() && state.agents.is_empty() && state.activations.is_empty());
    assert!(state.policies.is_empty() && state.revocations.is_empty());
    assert!(store.policy_history(None, 10).await.unwrap().is_empty());
}

pub async fn tenants_are_added_and_replaced(adapter: impl StoreAdapter) {
    let store = adapter.access();
    store.put_tenants(&[tenant("zeta"), tenant("acme")]).await.unwrap();
    assert_eq!(store.load().await.unwrap().tenants, [tenant("acme"), tenant("zeta")]);
    let mut states = vec![tenant("acme")];
    for visibility in [None, Some(VisibilityDefault::Disabled), Some(VisibilityDefault::Enabled)] {
        states.push(TenantRecord { visibility, enabled: false, tools: vec![], ..tenant("acme") });
    }
    for record in states {
        store.put_tenants(std::slice::from_ref(&record)).await.unwrap();
        assert_eq!(store.load().await.unwrap().tenants, [record, tenant("zeta")]);
    }
    // Of two records for one tenant in the same list the later holds.
    let last = TenantRecord { name: "Last".to_owned(), ..tenant("acme") };
    store.put_tenants(&[tenant("acme"), last.clone()]).await.unwrap();
    assert_eq!(store.load().await.unwrap().tenants, [last, tenant("zeta")]);
}

pub async fn an_agent_keeps_its_first_record_until_a_document_comes(adapter: impl StoreAdapter) {
    let store = adapter.access();
    let first = agent("acme", "did:web:a.example");
    store.put_agents(std::slice::from_ref(&first)).await.unwrap();
    let again = AgentRecord { added_at: UnixMillis(NOON.0 + 1), added_by: "other".parse().unwrap(), ..first.clone() };
    store.put_agents(std::slice::from_ref(&again)).await.unwrap();
    assert_eq!(store.load().await.unwrap().agents, [first]);
    let documented = AgentRecord { document: Some(r#"{"id":"did:web:a.example"}"#.to_owned()), ..again.clone() };
    store.put_agents(std::slice::from_ref(&documented)).await.unwrap();
    assert_eq!(store.load().await.unwrap().agents, std::slice::from_ref(&documented));
    store.put_agents(&[again]).await.unwrap();
    assert_eq!(store.load().await.unwrap().agents, [documented]);
}

pub async fn an_agent_is_removed_once_and_from_its_tenant_only(adapter: impl StoreAdapter) {
    let store = adapter.access();
    let epoch = store.put_agents(&[agent("acme", "one"), agent("acme", "two"), agent("zeta", "one")]).await.unwrap();
    for (tenant, unknown) in [("acme", "three"), ("nobody", "one"), ("ACME", "one")] {
        let answer = store.remove_agent(&tenant.parse().unwrap(), &unknown.parse().unwrap()).await.unwrap();
        assert_eq!(answer, None, "{tenant} {unknown}");
    }
    assert_eq!(store.load().await.unwrap().epoch, epoch);
    let (acme, one) = ("acme".parse().unwrap(), "one".parse().unwrap());
    let removed = store.remove_agent(&acme, &one).await.unwrap();
    assert!(removed.is_some_and(|after| after > epoch), "{removed:?}");
    assert_eq!(store.remove_agent(&acme, &one).await.unwrap(), None);
    let state = store.load().await.unwrap();
    assert_eq!((state.agents, Some(state.epoch)), (vec![agent("acme", "two"), agent("zeta", "one")], removed));
}

pub async fn activations_are_replaced_by_tenant_agent_and_tool(adapter: impl StoreAdapter) {
    let store = adapter.access();
    let all = activation("acme", "one", "*", true);
    let space = activation("acme", "one", "demo.*", true);
    let tool = activation("acme", "one", "demo.word_stats", false);
    store.put_activations(&[tool.clone(), all.clone(), space.clone()]).await.unwrap();
    assert_eq!(store.load().await.unwrap().activations, [all.clone(), space.clone(), tool.clone()]);
    let tight = Activation {
        enabled: false,
        overrides: PolicyOverrides {
            requires_confirmation: Some(true),
            requires_approval: Some(false),
            timeout_seconds: Some(3),
            redact: vec!["iban".to_owned(), "a \"quoted\" member".to_owned()],
        },
        ..space
    };
    store.put_activations(std::slice::from_ref(&tight)).await.unwrap();
    assert_eq!(store.load().await.unwrap().activations, [all, tight, tool]);
}

pub async fn an_activation_keeps_its_id_and_its_beginning_when_it_is_replaced(adapter: impl StoreAdapter) {
    let store = adapter.access();
    let first = activation("acme", "one", "demo.*", true);
    store.put_activations(std::slice::from_ref(&first)).await.unwrap();
    let later = UnixMillis(NOON.0 + 5_000);
    let id = "7d444840-9dc0-41d1-b245-5ffdce74fad2".parse().unwrap();
    let other = Activation { id, enabled: false, created_at: later, updated_at: later, ..first.clone() };
    store.put_activations(std::slice::from_ref(&other)).await.unwrap();
    let expected = Activation { id: first.id, created_at: NOON, ..other };
    assert_eq!(store.load().await.unwrap().activations, [expected]);
}

pub async fn two_tenants_do_not_see_each_other(adapter: impl StoreAdapter) {
    let store = adapter.access();
    store.put_agents(&[agent("acme", "one"), agent("zeta", "one")]).await.unwrap();
    let (theirs, ours) = (activation("acme", "one", "demo.*", true), activation("zeta", "one", "demo.*", false));
    store.put_activations(&[theirs.clone(), ours.clone()]).await.unwrap();
    assert_eq!(store.load().await.unwrap().activations, [theirs, ours.clone()]);
    let changed = activation("acme", "one", "demo.*", false);
    store.put_activations(std::slice::from_ref(&changed)).await.unwrap();
    assert_eq!(store.load().await.unwrap().activations, [changed, ours]);

    for (owner, text) in [(Some("acme"), "of acme"), (Some("zeta"), "of zeta"), (None, "of the platform")] {
        assert!(store.add_policies(&policies(owner, 1, text)).await.unwrap().is_some(), "{text}");
    }
    let acme = "acme".parse().unwrap();
    assert_eq!(store.policy_history(Some(&acme), 10).await.unwrap(), [policies(Some("acme"), 1, "of acme")]);
    assert_eq!(store.policy_history(None, 10).await.unwrap(), [policies(None, 1, "of the platform")]);
    assert!(store.policy_history(Some(&"nobody".parse().unwrap()), 10).await.unwrap().is_empty());

    // The same name as a subject of two tenants and as a token.
    for what in [of_subject("acme", "one"), of_subject("zeta", "one"), of_token("one")] {
        store.revoke(&revocation(what, 1000, "admin")).await.unwrap();
    }
    store.revoke(&revocation(of_subject("zeta", "one"), 2000, "admin")).await.unwrap();
    assert_eq!(
        store.load().await.unwrap().revocations,
        [
            revocation(of_subject("acme", "one"), 1000, "admin"),
            revocation(of_subject("zeta", "one"), 2000, "admin"),
            revocation(of_token("one"), 1000, "admin"),
        ]
    );
}

pub async fn only_the_next_version_of_policies_is_added(adapter: impl StoreAdapter) {
    let store = adapter.access();
    for owner in [None, Some("acme")] {
        for (version, next) in [
            (0, false),
            (2, false),
            (u64::MAX, false),
            (1, true),
            (1, false),
            (3, false),
            (2, true),
            (2, false),
            (0, false),
        ] {
            let before = store.load().await.unwrap().epoch;
            let answer = store.add_policies(&policies(owner, version, &format!("version {version}"))).await.unwrap();
            assert_eq!(answer.is_some(), next, "{owner:?} {version}");
            assert_eq!(store.load().await.unwrap().epoch, answer.unwrap_or(before), "{owner:?} {version}");
        }
    }
    assert_eq!(
        store.load().await.unwrap().policies,
        [policies(None, 2, "version 2"), policies(Some("acme"), 2, "version 2")]
    );
}

pub async fn one_of_many_concurrent_versions_wins(adapter: impl StoreAdapter) {
    let store = adapter.access();
    store.add_policies(&policies(Some("acme"), 1, "first")).await.unwrap();
    let authors: Vec<_> = (0..32)
        .map(|author| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let record = policies(Some("acme"), 2, &format!("by author {author}"));
                store.add_policies(&record).await.unwrap().map(|_| record)
            })
        })
        .collect();
    let mut winners = Vec::new();
    for author in authors {
        winners.extend(author.await.unwrap());
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(store.load().await.unwrap().policies, winners);
    assert_eq!(store.policy_history(Some(&"acme".parse().unwrap()), 10).await.unwrap().len(), 2);
}

pub async fn the_history_is_newest_first_and_limited(adapter: impl StoreAdapter) {
    let store = adapter.access();
    for version in 1..=12 {
        store.add_policies(&policies(Some("acme"), version, &format!("version {version}"))).await.unwrap().unwrap();
    }
    let acme = "acme".parse().unwrap();
    let versions = async |limit: usize| -> Vec<u64> {
        store.policy_history(Some(&acme), limit).await.unwrap().iter().map(|record| record.version).collect()
    };
    assert_eq!(versions(3).await, [12, 11, 10]);
    assert!(versions(0).await.is_empty());
    assert_eq!(versions(usize::MAX).await, (1..=12).rev().collect::<Vec<u64>>());
    assert_eq!(store.policy_history(Some(&acme), 1).await.unwrap(), [policies(Some("acme"), 12, "version 12")]);
}

pub async fn a_revocation_keeps_the_later_time(adapter: impl StoreAdapter) {
    let store = adapter.access();
    for what in [of_subject("acme", "did:key:zOne"), of_token("token-1")] {
        // Two of the times have different numbers of digits.
        for (at, by, kept) in [
            (999_999_999_999, "first", (999_999_999_999, "first")),
            (1_000, "earlier", (999_999_999_999, "first")),
            (1_000_000_000_000, "later", (1_000_000_000_000, "later")),
            (1_000_000_000_000, "again", (1_000_000_000_000, "later")),
            (999_999_999_999, "earlier", (1_000_000_000_000, "later")),
        ] {
            store.revoke(&revocation(what.clone(), at, by)).await.unwrap();
            let state = store.load().await.unwrap();
            let found: Vec<_> = state.revocations.iter().filter(|revocation| revocation.what == what).collect();
            assert_eq!(found, [&revocation(what.clone(), kept.0, kept.1)], "{by}");
        }
    }
}

pub async fn a_revocation_is_of_the_issuers_it_was_said_of_and_once_of_all_stays_of_all(adapter: impl StoreAdapter) {
    let store = adapter.access();
    let of = |issuer: &str| Revocation {
        issuers: RevokedIssuers::only(issuer),
        ..revocation(of_token("twin"), 1_000, "admin")
    };
    for (said, kept) in [
        (of("https://b.example"), Some("https://b.example")),
        (of("https://a.example"), Some("https://b.example\nhttps://a.example")),
        (of("https://b.example"), Some("https://b.example\nhttps://a.example")),
        // Is in the middle of one that is there, and another issuer.
        (of("https://a.exam"), Some("https://b.example\nhttps://a.example\nhttps://a.exam")),
        (revocation(of_token("twin"), 1_000, "admin"), None),
        (of("https://a.example"), None),
    ] {
        store.revoke(&said).await.unwrap();
        let state = store.load().await.unwrap();
        let issuers: Vec<Option<String>> = state.revocations.iter().map(|one| one.issuers.to_lines()).collect();
        assert_eq!(issuers, [kept.map(str::to_owned)]);
    }
}

pub async fn a_revocation_whose_end_is_known_is_forgotten_after_it(adapter: impl StoreAdapter) {
    let store = adapter.access();
    let ending = |token: &str, at: i64, end: Option<i64>| Revocation {
        needless_from: end.map(UnixMillis),
        ..revocation(of_token(token), at, "admin")
    };
    let kept = async || {
        let state = store.load().await.unwrap();
        let ends = state.revocations.into_iter().map(|kept| match kept.what {
            RevokedTokens::Token(_, token) => (token, kept.needless_from.map(|end| end.0)),
            RevokedTokens::Subject(_, subject) => (subject.to_string(), kept.needless_from.map(|end| end.0)),
        });
        ends.collect::<Vec<_>>()
    };
    let short = || ("short".to_owned(), Some(2_000));
    let endless = || ("endless".to_owned(), None);
    store.revoke(&ending("short", 1_000, Some(2_000))).await.unwrap();
    // Whoever knows less makes it stay, whichever comes first; of two ends the later one counts.
    store.revoke(&ending("endless", 1_001, Some(2_000))).await.unwrap();
    store.revoke(&ending("endless", 1_002, None)).await.unwrap();
    store.revoke(&ending("endless", 1_003, Some(2_000))).await.unwrap();
    store.revoke(&ending("longer", 1_004, Some(3_000))).await.unwrap();
    store.revoke(&ending("longer", 1_000, Some(2_500))).await.unwrap();
    let longer = || ("longer".to_owned(), Some(3_000));
    assert_eq!(kept().await, [endless(), longer(), short()]);

    store.revoke(&revocation(of_subject("acme", "one"), 1_999, "admin")).await.unwrap();
    let one = || ("one".to_owned(), None);
    assert_eq!(kept().await, [one(), endless(), longer(), short()], "a moment before its end");
    store.revoke(&revocation(of_subject("acme", "one"), 2_000, "admin")).await.unwrap();
    assert_eq!(kept().await, [one(), endless(), longer()]);
    store.revoke(&revocation(of_subject("acme", "one"), i64::from(u32::MAX), "admin")).await.unwrap();
    assert_eq!(kept().await, [one(), endless()], "what has no known end stays for good");
}

pub async fn a_call_is_counted_against_every_budget_or_none(adapter: impl StoreAdapter) {
    let store = adapter.access();
    assert_eq!(spend(&store, &[]).await, Ok(()));
    assert_eq!(spend(&store, &[("never", 0)]).await, Err("never".to_owned()));
    let chain = [("child", 5), ("parent", 2), ("grandparent", 2)];
    assert_eq!(spend(&store, &chain).await, Ok(()));
    assert_eq!(spend(&store, &chain).await, Ok(()));
    // The first that is used up is named, and the child has not been counted.
    for _ in 0..10 {
        assert_eq!(spend(&store, &chain).await, Err("parent".to_owned()));
    }
    for _ in 0..3 {
        assert_eq!(spend(&store, &[("child", 5)]).await, Ok(()));
    }
    assert_eq!(spend(&store, &[("child", 5)]).await, Err("child".to_owned()));
    // A larger maximum leaves room for more; the count is that of the token.
    assert_eq!(spend(&store, &[("child", 6)]).await, Ok(()));
    assert_eq!(spend(&store, &[("child", u64::MAX), ("parent", 3)]).await, Ok(()));
    // A token that is named twice is counted twice, or not at all.
    assert_eq!(spend(&store, &[("twice", 3), ("twice", 3)]).await, Ok(()));
    assert_eq!(spend(&store, &[("twice", 3), ("twice", 3)]).await, Err("twice".to_owned()));
    assert_eq!(spend(&store, &[("twice", 3)]).await, Ok(()));
}

pub async fn concurrent_spending_never_exceeds_the_maximum(adapter: impl StoreAdapter) {
    const MAXIMUM: u64 = 25;
    let store = adapter.access();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.spend(&spending(&[("token", MAXIMUM)])).await.unwrap().is_ok() })
        })
        .collect();
    let mut counted = 0;
    for call in calls {
        counted += u64::from(call.await.unwrap());
    }
    assert_eq!(counted, MAXIMUM);
    assert!(spend(&store, &[("token", MAXIMUM)]).await.is_err());
}

pub async fn concurrent_spending_of_a_chain_counts_all_or_none(adapter: impl StoreAdapter) {
    // Ten children share a parent that has room for fewer calls than they have together.
    const PARENT: u64 = 30;
    const CHILD: u64 = 5;
    let store = adapter.access();
    let calls: Vec<_> = (0..100)
        .map(|call| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let child = format!("child-{}", call % 10);
                let counted = store.spend(&spending(&[(&child, CHILD), ("parent", PARENT)])).await.unwrap().is_ok();
                (child, counted)
            })
        })
        .collect();
    let mut counted = std::collections::BTreeMap::<String, u64>::new();
    for call in calls {
        let (child, done) = call.await.unwrap();
        *counted.entry(child).or_default() += u64::from(done);
    }
    assert_eq!(counted.values().sum::<u64>(), PARENT);
    // What each child has left says how often it was counted.
    for (child, done) in counted {
        for _ in done..CHILD {
            assert_eq!(spend(&store, &[(&child, CHILD)]).await, Ok(()), "{child}");
        }
        assert_eq!(spend(&store, &[(&child, CHILD)]).await, Err(child.clone()));
    }
}

pub async fn the_epoch_rises_with_every_change_and_with_nothing_else(adapter: impl StoreAdapter) {
    let store = adapter.access();
    let mut epochs = vec![
        store.load().await.unwrap().epoch,
        store.put_tenants(&[tenant("acme")]).await.unwrap(),
        store.put_tenants(&[tenant("acme")]).await.unwrap(),
        store.put_agents(&[agent("acme", "one")]).await.unwrap(),
        store.put_activations(&[activation("acme", "one", "*", true)]).await.unwrap(),
        store.add_policies(&policies(None, 1, "")).await.unwrap().unwrap(),
        store.revoke(&revocation(of_token("token"), 1, "admin")).await.unwrap(),
        store.remove_agent(&"acme".parse().unwrap(), &"one".parse().unwrap()).await.unwrap().unwrap(),
    ];
    assert!(epochs.is_sorted_by(|before, after| before < after), "{epochs:?}");
    let last = epochs.pop().unwrap();
    spend(&store, &[("token", 1)]).await.unwrap();
    spend(&store, &[("token", 1)]).await.unwrap_err();
    store.policy_history(None, 10).await.unwrap();
    assert_eq!(store.load().await.unwrap().epoch, last);
}

pub async fn concurrent_changes_get_epochs_of_their_own(adapter: impl StoreAdapter) {
    const CHANGES: usize = 64;
    let store = adapter.access();
    let changes: Vec<_> = (0..CHANGES)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let epoch = store.put_agents(&[agent("acme", &format!("agent-{number:02}"))]).await.unwrap();
                // Whoever was answered an epoch finds at least that one, with the change in it.
                let state = store.load().await.unwrap();
                assert!(state.epoch >= epoch && state.agents.len() >= usize::try_from(epoch).unwrap());
                epoch
            })
        })
        .collect();
    let mut epochs = Vec::new();
    for change in changes {
        epochs.push(change.await.unwrap());
    }
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), CHANGES);
    assert_eq!(epochs.last().copied(), Some(store.load().await.unwrap().epoch));
}

pub async fn everything_survives_a_reopening(mut adapter: impl StoreAdapter) {
    let store = adapter.access();
    let documented = AgentRecord { document: Some("{}".to_owned()), ..agent("acme", "one") };
    let active = activation("acme", "one", "demo.*", true);
    store.put_tenants(&[tenant("acme")]).await.unwrap();
    store.put_agents(std::slice::from_ref(&documented)).await.unwrap();
    store.put_activations(std::slice::from_ref(&active)).await.unwrap();
    store.add_policies(&policies(None, 1, "old")).await.unwrap().unwrap();
    store.add_policies(&policies(None, 2, "new")).await.unwrap().unwrap();
    spend(&store, &[("token", 2)]).await.unwrap();
    let epoch = store.revoke(&revocation(of_subject("acme", "one"), NOON.0, "admin")).await.unwrap();
    drop(store);
    adapter.reopen().await;
    let store = adapter.access();
    let state = store.load().await.unwrap();
    assert_eq!((state.epoch, state.tenants, state.agents), (epoch, vec![tenant("acme")], vec![documented]));
    assert_eq!((state.activations, state.policies), (vec![active], vec![policies(None, 2, "new")]));
    assert_eq!(state.revocations, [revocation(of_subject("acme", "one"), NOON.0, "admin")]);
    assert_eq!(store.policy_history(None, 10).await.unwrap(), [policies(None, 2, "new"), policies(None, 1, "old")]);
    spend(&store, &[("token", 2)]).await.unwrap();
    spend(&store, &[("token", 2)]).await.unwrap_err();
    assert!(store.put_tenants(&[tenant("zeta")]).await.unwrap() > epoch);
}

pub async fn hostile_text_is_kept_as_it_is(adapter: impl StoreAdapter) {
    let store = adapter.access();
    let hostile = "';DROP/**/TABLE\"access_tenants\";--ümläut工具🧰%_\\";
    let record = TenantRecord { name: format!("{hostile} \u{0}\n"), ..tenant(hostile) };
    store.put_tenants(std::slice::from_ref(&record)).await.unwrap();
    let agent = AgentRecord { document: Some(hostile.to_owned()), ..agent(hostile, hostile) };
    store.put_agents(std::slice::from_ref(&agent)).await.unwrap();
    let text = format!("// {hostile}\n").repeat(20_000);
    store.add_policies(&policies(Some(hostile), 1, &text)).await.unwrap().unwrap();
    let revoked = revocation(of_token(hostile), 1000, hostile);
    store.revoke(&revoked).await.unwrap();
    assert_eq!(spend(&store, &[(hostile, 1)]).await, Ok(()));
    assert_eq!(spend(&store, &[(hostile, 1)]).await, Err(hostile.to_owned()));
    assert_eq!(store.remove_agent(&"%".parse().unwrap(), &"%".parse().unwrap()).await.unwrap(), None);
    let state = store.load().await.unwrap();
    assert_eq!((state.tenants, state.agents, state.revocations), (vec![record], vec![agent], vec![revoked]));
    assert_eq!(state.policies, [policies(Some(hostile), 1, &text)]);
}
