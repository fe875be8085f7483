//! Cases of `RegistryStore`. Each takes a fresh store.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::sync::Arc;

use contract::ids::TenantId;
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::lifecycle::Lifecycle;
use ports::registry_store::{LifecycleChange, PublishOutcome, QuarantineChange, StoredVersion, ToolQuarantine};

use super::{AnyStore, StoreAdapter, deprecated, new_version, new_version_of, removed, sample_manifest, sunset};

/// All cases of `RegistryStore` against one adapter.
#[macro_export]
macro_rules! registry_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            registry,
            [
                an_empty_store_loads_nothing,
                what_was_published_is_loaded_as_it_was,
                the_same_content_again_is_the_same,
                other_content_is_refused_and_changes_nothing,
                build_metadata_does_not_make_another_version,
                one_of_many_concurrent_publications_is_new,
                many_tools_published_at_once_all_arrive,
                versions_are_loaded_by_precedence,
                a_lifecycle_moves_only_from_what_it_is,
                one_of_two_concurrent_changes_wins,
                unknown_versions_have_no_lifecycle,
                answered_writes_survive_a_reopening,
                removed_versions_stay_published,
                hostile_text_is_kept_as_data,
                tenants_have_the_same_id_without_hearing_of_each_other,
                a_lifecycle_is_changed_for_one_tenant_only,
                a_quarantine_is_set_replaced_and_lifted_for_one_tenant,
                a_quarantine_of_the_installation_yields_to_the_installation_alone,
                a_sound_store_answers_pings,
            ]
        );
    };
}

fn sample(tool: &str, version: &str) -> StoredVersion {
    new_version(sample_manifest(tool, version, "A sample tool", "Does what samples do."))
}

async fn listed(store: &Arc<dyn AnyStore>) -> Vec<String> {
    store.load().await.unwrap().iter().map(|stored| format!("{} {}", stored.tool, stored.version)).collect()
}

async fn only(store: &Arc<dyn AnyStore>) -> StoredVersion {
    let mut versions = store.load().await.unwrap();
    assert_eq!(versions.len(), 1);
    versions.pop().unwrap()
}

pub async fn an_empty_store_loads_nothing(adapter: impl StoreAdapter) {
    assert!(adapter.store().load().await.unwrap().is_empty());
}

pub async fn what_was_published_is_loaded_as_it_was(adapter: impl StoreAdapter) {
    let store = adapter.store();
    let mut version = sample("demo.sample", "1.2.3-rc.1+linux");
    version.lifecycle = deprecated();
    assert_eq!(store.publish(version.clone()).await.unwrap(), PublishOutcome::New);
    let stored = only(&store).await;
    assert_eq!((&stored.tool, stored.version.to_string().as_str()), (&version.tool, "1.2.3-rc.1+linux"));
    assert_eq!((stored.manifest, stored.digest), (version.manifest, version.digest));
    assert_eq!(stored.lifecycle, version.lifecycle);
    assert_eq!((stored.published_at, stored.published_by), (version.published_at, version.published_by));
}

pub async fn the_same_content_again_is_the_same(adapter: impl StoreAdapter) {
    let store = adapter.store();
    let first = sample("demo.sample", "1.0.0");
    assert_eq!(store.publish(first.clone()).await.unwrap(), PublishOutcome::New);
    let again =
        StoredVersion { published_by: "somebody-else".parse().unwrap(), lifecycle: deprecated(), ..first.clone() };
    assert_eq!(store.publish(again).await.unwrap(), PublishOutcome::Same);
    let stored = only(&store).await;
    assert_eq!((stored.published_by, stored.lifecycle), (first.published_by, first.lifecycle));
}

pub async fn other_content_is_refused_and_changes_nothing(adapter: impl StoreAdapter) {
    let store = adapter.store();
    let first = sample("demo.sample", "1.0.0");
    store.publish(first.clone()).await.unwrap();
    let other = new_version(sample_manifest("demo.sample", "1.0.0", "Another tool", "Does what others do."));
    let answer = store.publish(other).await.unwrap();
    assert_eq!(answer, PublishOutcome::Different { published: first.digest });
    assert_eq!(only(&store).await.manifest, first.manifest);
}

pub async fn build_metadata_does_not_make_another_version(adapter: impl StoreAdapter) {
    let store = adapter.store();
    let first = sample("demo.sample", "1.0.0+a");
    store.publish(first.clone()).await.unwrap();
    let answer = store.publish(sample("demo.sample", "1.0.0+b")).await.unwrap();
    assert_eq!(answer, PublishOutcome::Different { published: first.digest });
    let plain: Version = "1.0.0".parse().unwrap();
    let moved = store.change_lifecycle(&first.tenant, &first.tool, &plain, &first.lifecycle, &removed()).await.unwrap();
    assert_eq!(moved, LifecycleChange::Done);
    assert_eq!(only(&store).await.version.to_string(), "1.0.0+a");
}

pub async fn one_of_many_concurrent_publications_is_new(adapter: impl StoreAdapter) {
    const PUBLISHERS: usize = 64;
    let store = adapter.store();
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|number| {
            let store = Arc::clone(&store);
            let description = format!("Does what publisher {number} does.");
            let version = new_version(sample_manifest("demo.sample", "1.0.0", "A sample tool", &description));
            tokio::spawn(async move { (version.digest, store.publish(version).await.unwrap()) })
        })
        .collect();
    let mut answers = Vec::new();
    for publisher in publishers {
        answers.push(publisher.await.unwrap());
    }
    let stored = only(&store).await.digest;
    for (digest, answer) in answers {
        if digest == stored {
            assert_eq!(answer, PublishOutcome::New);
        } else {
            assert_eq!(answer, PublishOutcome::Different { published: stored });
        }
    }
}

pub async fn many_tools_published_at_once_all_arrive(adapter: impl StoreAdapter) {
    const TOOLS: usize = 100;
    let store = adapter.store();
    let publishers: Vec<_> = (0..TOOLS)
        .map(|number| {
            let (store, version) = (Arc::clone(&store), sample(&format!("demo.sample_{number:03}"), "1.0.0"));
            tokio::spawn(async move { store.publish(version).await.unwrap() })
        })
        .collect();
    for publisher in publishers {
        assert_eq!(publisher.await.unwrap(), PublishOutcome::New);
    }
    let expected: Vec<String> = (0..TOOLS).map(|number| format!("demo.sample_{number:03} 1.0.0")).collect();
    assert_eq!(listed(&store).await, expected);
}

pub async fn versions_are_loaded_by_precedence(adapter: impl StoreAdapter) {
    let store = adapter.store();
    for version in ["1.10.0", "1.9.0", "2.0.0", "2.0.0-rc.11", "2.0.0-rc.2", "2.0.0-alpha", "10.0.0"] {
        store.publish(sample("demo.sample", version)).await.unwrap();
    }
    store.publish(sample("aaa", "1.0.0")).await.unwrap();
    store.publish(sample("demo.other", "3.0.0")).await.unwrap();
    assert_eq!(
        listed(&store).await,
        [
            "aaa 1.0.0",
            "demo.other 3.0.0",
            "demo.sample 1.9.0",
            "demo.sample 1.10.0",
            "demo.sample 2.0.0-alpha",
            "demo.sample 2.0.0-rc.2",
            "demo.sample 2.0.0-rc.11",
            "demo.sample 2.0.0",
            "demo.sample 10.0.0",
        ]
    );
}

pub async fn a_lifecycle_moves_only_from_what_it_is(adapter: impl StoreAdapter) {
    let store = adapter.store();
    let version = sample("demo.sample", "1.0.0");
    store.publish(version.clone()).await.unwrap();
    let change = async |from: &Lifecycle, to: &Lifecycle| {
        store.change_lifecycle(&version.tenant, &version.tool, &version.version, from, to).await.unwrap()
    };
    assert_eq!(change(&version.lifecycle, &deprecated()).await, LifecycleChange::Done);
    assert_eq!(change(&version.lifecycle, &removed()).await, LifecycleChange::Stale(deprecated()));
    let mut nearly = deprecated();
    nearly.notice.as_mut().unwrap().successor = None;
    assert_eq!(change(&nearly, &removed()).await, LifecycleChange::Stale(deprecated()));
    assert_eq!(only(&store).await.lifecycle, deprecated());
    assert_eq!(change(&deprecated(), &sunset()).await, LifecycleChange::Done);
    assert_eq!(change(&sunset(), &Lifecycle::default()).await, LifecycleChange::Done);
    assert_eq!(only(&store).await.lifecycle, Lifecycle::default());
}

pub async fn one_of_two_concurrent_changes_wins(adapter: impl StoreAdapter) {
    let store = adapter.store();
    let version = sample("demo.sample", "1.0.0");
    store.publish(version.clone()).await.unwrap();
    let change = async |to: Lifecycle| {
        store.change_lifecycle(&version.tenant, &version.tool, &version.version, &version.lifecycle, &to).await.unwrap()
    };
    let (left, right) = tokio::join!(change(deprecated()), change(removed()));
    let now = only(&store).await.lifecycle;
    match (left, right) {
        (LifecycleChange::Done, stale) => {
            assert_eq!((stale, now), (LifecycleChange::Stale(deprecated()), deprecated()))
        }
        (stale, won) => {
            assert_eq!((stale, won, now), (LifecycleChange::Stale(removed()), LifecycleChange::Done, removed()));
        }
    }
}

pub async fn unknown_versions_have_no_lifecycle(adapter: impl StoreAdapter) {
    let store = adapter.store();
    store.publish(sample("demo.sample", "1.0.0")).await.unwrap();
    for (tool, version) in [("demo.sample", "1.0.1"), ("demo.other", "1.0.0"), ("sample", "1.0.0")] {
        let answer = store
            .change_lifecycle(
                &TenantId::home(),
                &tool.parse().unwrap(),
                &version.parse().unwrap(),
                &Lifecycle::default(),
                &removed(),
            )
            .await
            .unwrap();
        assert_eq!(answer, LifecycleChange::Unknown, "{tool} {version}");
    }
}

pub async fn answered_writes_survive_a_reopening(mut adapter: impl StoreAdapter) {
    let version = sample("demo.sample", "1.0.0");
    let store = adapter.store();
    store.publish(version.clone()).await.unwrap();
    store
        .change_lifecycle(&version.tenant, &version.tool, &version.version, &version.lifecycle, &deprecated())
        .await
        .unwrap();
    drop(store);
    adapter.reopen().await;
    let store = adapter.store();
    let stored = only(&store).await;
    assert_eq!((stored.manifest, stored.lifecycle), (version.manifest.clone(), deprecated()));
    assert_eq!(store.publish(version).await.unwrap(), PublishOutcome::Same);
    assert_eq!(store.publish(sample("demo.sample", "1.0.1")).await.unwrap(), PublishOutcome::New);
}

pub async fn removed_versions_stay_published(adapter: impl StoreAdapter) {
    let store = adapter.store();
    let version = sample("demo.sample", "1.0.0");
    store.publish(version.clone()).await.unwrap();
    store
        .change_lifecycle(&version.tenant, &version.tool, &version.version, &version.lifecycle, &removed())
        .await
        .unwrap();
    assert_eq!(store.publish(version).await.unwrap(), PublishOutcome::Same);
    assert_eq!(only(&store).await.lifecycle, removed());
}

pub async fn hostile_text_is_kept_as_data(adapter: impl StoreAdapter) {
    let store = adapter.store();
    let description = "Robert'); DROP TABLE tool_versions;-- \u{0} \"quoted\" ümläut 工具 🧰 \u{202e}";
    let version = new_version(sample_manifest("demo.sample", "1.0.0", "'; DELETE FROM x", description));
    store.publish(version.clone()).await.unwrap();
    assert_eq!(only(&store).await.manifest, version.manifest);
}

pub async fn tenants_have_the_same_id_without_hearing_of_each_other(mut adapter: impl StoreAdapter) {
    let store = adapter.store();
    let theirs = ["local", "acme", "zeta", "ACME"]
        .map(|tenant| new_version_of(tenant, sample_manifest("demo.sample", "1.0.0", "A sample tool", tenant)));
    for version in &theirs {
        assert_eq!(store.publish(version.clone()).await.unwrap(), PublishOutcome::New, "{}", version.tenant);
    }
    for version in &theirs {
        assert_eq!(store.publish(version.clone()).await.unwrap(), PublishOutcome::Same, "{}", version.tenant);
    }
    let other = new_version_of("acme", theirs[0].manifest.clone());
    assert_eq!(store.publish(other).await.unwrap(), PublishOutcome::Different { published: theirs[1].digest });
    drop(store);
    adapter.reopen().await;
    let loaded = adapter.store().load().await.unwrap();
    let loaded: Vec<_> = loaded.iter().map(|v| (v.tenant.as_str(), v.manifest.description.as_str())).collect();
    assert_eq!(loaded, [("ACME", "ACME"), ("acme", "acme"), ("local", "local"), ("zeta", "zeta")]);
}

pub async fn a_lifecycle_is_changed_for_one_tenant_only(adapter: impl StoreAdapter) {
    let store = adapter.store();
    let shared = sample("demo.sample", "1.0.0");
    store.publish(shared.clone()).await.unwrap();
    let acme: TenantId = "acme".parse().unwrap();
    let change = async |tenant: &TenantId| {
        store.change_lifecycle(tenant, &shared.tool, &shared.version, &shared.lifecycle, &removed()).await.unwrap()
    };
    assert_eq!(change(&acme).await, LifecycleChange::Unknown);
    store.publish(new_version_of("acme", shared.manifest.clone())).await.unwrap();
    assert_eq!(change(&acme).await, LifecycleChange::Done);
    let states: Vec<_> = store.load().await.unwrap().into_iter().map(|v| (v.tenant, v.lifecycle)).collect();
    assert_eq!(states, [(acme, removed()), (TenantId::home(), Lifecycle::default())]);
}

pub async fn a_sound_store_answers_pings(adapter: impl StoreAdapter) {
    adapter.store().ping().await.unwrap();
    adapter.store().ping().await.unwrap();
}

pub async fn a_quarantine_is_set_replaced_and_lifted_for_one_tenant(mut adapter: impl StoreAdapter) {
    let held = |tenant: &str, reason: &str| ToolQuarantine {
        tenant: tenant.parse().unwrap(),
        tool: "demo.sample".parse().unwrap(),
        reason: reason.to_owned(),
        by: "did:example:officer".parse().unwrap(),
        by_tenant: TenantId::home(),
        at: UnixMillis(1_800_000_000_123),
    };
    let store = adapter.store();
    assert_eq!(store.quarantines().await.unwrap(), []);
    store.put_quarantine(&held("local", "it lies")).await.unwrap();
    store.put_quarantine(&held("local", "it lies\0again")).await.unwrap();
    store.put_quarantine(&held("acme", "of another tenant")).await.unwrap();
    drop(store);
    adapter.reopen().await;
    let store = adapter.store();
    let mut all = store.quarantines().await.unwrap();
    all.sort_by(|left, right| left.tenant.cmp(&right.tenant));
    assert_eq!(all, [held("acme", "of another tenant"), held("local", "it lies\0again")]);
    let (home, tool) = (TenantId::home(), "demo.sample".parse().unwrap());
    assert_eq!(store.remove_quarantine(&home, &tool, &home).await.unwrap(), QuarantineChange::Done);
    assert_eq!(store.remove_quarantine(&home, &tool, &home).await.unwrap(), QuarantineChange::Unknown, "once");
    assert_eq!(store.quarantines().await.unwrap(), [held("acme", "of another tenant")]);
}

pub async fn a_quarantine_of_the_installation_yields_to_the_installation_alone(mut adapter: impl StoreAdapter) {
    let (home, acme) = (TenantId::home(), "acme".parse::<TenantId>().unwrap());
    let tool = "demo.sample".parse().unwrap();
    let held = |by_tenant: &TenantId, reason: &str| ToolQuarantine {
        tenant: acme.clone(),
        tool: "demo.sample".parse().unwrap(),
        reason: reason.to_owned(),
        by: "did:example:officer".parse().unwrap(),
        by_tenant: by_tenant.clone(),
        at: UnixMillis(1_800_000_000_123),
    };
    let store = adapter.store();
    // The tenant's own yields to the tenant, and to the installation.
    assert_eq!(store.put_quarantine(&held(&acme, "our own")).await.unwrap(), QuarantineChange::Done);
    assert_eq!(store.remove_quarantine(&acme, &tool, &acme).await.unwrap(), QuarantineChange::Done);
    assert_eq!(store.put_quarantine(&held(&acme, "our own")).await.unwrap(), QuarantineChange::Done);
    assert_eq!(store.put_quarantine(&held(&home, "it lies")).await.unwrap(), QuarantineChange::Done);
    // From then on the tenant neither lifts it nor makes it its own.
    assert_eq!(store.put_quarantine(&held(&acme, "ours again")).await.unwrap(), QuarantineChange::Withheld);
    assert_eq!(store.remove_quarantine(&acme, &tool, &acme).await.unwrap(), QuarantineChange::Withheld);
    drop(store);
    adapter.reopen().await;
    let store = adapter.store();
    assert_eq!(store.quarantines().await.unwrap(), [held(&home, "it lies")]);
    assert_eq!(store.remove_quarantine(&acme, &tool, &acme).await.unwrap(), QuarantineChange::Withheld);
    assert_eq!(store.remove_quarantine(&acme, &tool, &home).await.unwrap(), QuarantineChange::Done);
    assert_eq!(store.quarantines().await.unwrap(), []);
}
