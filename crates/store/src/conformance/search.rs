//! Cases of `ToolSearch`. Each takes a fresh store.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::sync::Arc;

use contract::ids::TenantId;
use contract::manifest::Manifest;
use ports::lifecycle::Lifecycle;
use serde_json::json;

use super::{AnyStore, StoreAdapter, deprecated, new_version, new_version_of, removed, sample_manifest, sunset};

/// All cases of `ToolSearch` against one adapter.
#[macro_export]
macro_rules! search_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            search,
            [
                a_publication_is_found_as_soon_as_it_is_answered,
                every_field_can_be_found,
                names_are_found_however_they_are_written,
                a_word_in_the_name_says_more_than_one_in_a_parameter,
                misspelled_and_unfinished_words_are_found,
                a_request_of_several_sentences_finds_a_tool_for_each,
                the_newest_searchable_version_is_what_is_found,
                tools_vanish_when_sunset_or_removed_and_come_back_when_restored,
                the_index_survives_a_reopening,
                equal_scores_are_ordered_by_tool,
                limits_are_kept,
                queries_without_words_find_nothing,
                hostile_queries_are_data,
                words_of_other_scripts_are_found,
                a_tenant_finds_its_own_tools_and_the_shared_ones,
                a_tenants_own_tool_is_found_in_the_place_of_the_shared_one,
                words_of_other_tenants_neither_complete_nor_correct,
            ]
        );
    };
}

async fn publish(store: &Arc<dyn AnyStore>, manifest: Manifest) {
    store.publish(new_version(manifest)).await.unwrap();
}

/// Tools of several trades, none of which shares a telling word with another.
async fn publish_trades(store: &Arc<dyn AnyStore>) {
    for (tool, name, description) in [
        ("mail.send_message", "Send message", "Sends an e-mail to one or more recipients."),
        ("weather_forecast", "Weather forecast", "Tells temperature and rain of the coming days."),
        ("demo.word_stats", "Word statistics", "Counts words and characters of a text."),
        ("currency_converter", "Currency converter", "Exchanges amounts between dollars and euros."),
        ("http.get_status_code", "HTTP status", "Fetches a page and answers with its status."),
    ] {
        publish(store, sample_manifest(tool, "1.0.0", name, description)).await;
    }
}

async fn found(store: &Arc<dyn AnyStore>, query: &str) -> Vec<String> {
    store.search(&TenantId::home(), query, 10).await.unwrap().into_iter().map(|hit| hit.tool.to_string()).collect()
}

async fn check(store: &Arc<dyn AnyStore>, cases: &[(&str, &str)]) {
    for (query, first) in cases {
        assert_eq!(found(store, query).await.first().map(String::as_str), Some(*first), "{query}");
    }
}

pub async fn a_publication_is_found_as_soon_as_it_is_answered(adapter: impl StoreAdapter) {
    let store = adapter.store();
    // Words that no correction could take for each other.
    for letter in 'a'..='q' {
        let word = letter.to_string().repeat(8);
        assert!(found(&store, &word).await.is_empty(), "{word}");
        let description = format!("Has the word {word} in its description.");
        publish(&store, sample_manifest(&format!("tool_{letter}"), "1.0.0", "A tool", &description)).await;
        assert_eq!(found(&store, &word).await, [format!("tool_{letter}")]);
    }
}

pub async fn every_field_can_be_found(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    let mut manifest =
        sample_manifest("zoo.keeper_tool", "1.0.0", "Elephant counter", "Counts trunks at the waterhole.");
    manifest.aliases = vec!["pachydermCensus".to_owned()];
    manifest.tags = vec!["savanna".to_owned()];
    manifest.categories = vec!["wildlife".to_owned()];
    manifest.parameters = json!({ "type": "object", "properties": {
        "herdSize": { "type": "integer", "description": "how many calves" },
        "area": { "type": "object", "properties": { "latitude": { "type": "number" } } },
    }});
    publish(&store, manifest).await;
    for query in [
        "zoo",
        "keeper",
        "elephants",
        "trunk",
        "pachyderm",
        "census",
        "savannas",
        "Wildlife",
        "herd",
        "calves",
        "latitude",
    ] {
        assert_eq!(found(&store, query).await, ["zoo.keeper_tool"], "{query}");
    }
}

pub async fn names_are_found_however_they_are_written(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    check(
        &store,
        &[
            ("demo.word_stats", "demo.word_stats"),
            ("wordStats", "demo.word_stats"),
            ("WORD-STATS", "demo.word_stats"),
            ("getHTTPStatusCode", "http.get_status_code"),
            ("convert currencies", "currency_converter"),
            ("please, could you send messages for me?", "mail.send_message"),
        ],
    )
    .await;
}

pub async fn a_word_in_the_name_says_more_than_one_in_a_parameter(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    let mut manifest = sample_manifest("aaa_tool", "1.0.0", "Other thing", "Does things nobody asks for.");
    manifest.parameters =
        json!({ "type": "object", "properties": { "place": { "description": "where the weather is to be had" } } });
    publish(&store, manifest).await;
    assert_eq!(found(&store, "weather").await, ["weather_forecast", "aaa_tool"]);
}

pub async fn misspelled_and_unfinished_words_are_found(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    check(
        &store,
        &[
            ("wether", "weather_forecast"),
            ("waether forcast", "weather_forecast"),
            ("curency", "currency_converter"),
            ("send mess", "mail.send_message"),
            ("tempera", "weather_forecast"),
        ],
    )
    .await;
}

pub async fn a_request_of_several_sentences_finds_a_tool_for_each(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    let query = "First tell me the temperature and the rain in Lisbon. Then exchange 20 dollars to euros! \
                 Finally send an e-mail with it to all recipients.";
    let mut best = found(&store, query).await;
    best.truncate(3);
    best.sort();
    assert_eq!(best, ["currency_converter", "mail.send_message", "weather_forecast"]);
}

pub async fn the_newest_searchable_version_is_what_is_found(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    let text = |animal: &str| format!("Feeds the {animal} in the morning.");
    for (version, animal) in [("1.10.0", "giraffe"), ("1.9.0", "walrus"), ("2.0.0-rc.1", "penguin")] {
        publish(&store, sample_manifest("feeder", version, "Feeder", &text(animal))).await;
    }
    assert_eq!(found(&store, "giraffe").await, ["feeder"]);
    assert!(found(&store, "walrus").await.is_empty() && found(&store, "penguin").await.is_empty());
    publish(&store, sample_manifest("feeder", "2.0.0", "Feeder", &text("ostrich"))).await;
    assert!(found(&store, "giraffe").await.is_empty());
    assert_eq!(found(&store, "ostrich").await, ["feeder"]);
    let (tool, newest) = ("feeder".parse().unwrap(), "2.0.0".parse().unwrap());
    store.change_lifecycle(&TenantId::home(), &tool, &newest, &Lifecycle::default(), &removed()).await.unwrap();
    assert_eq!(found(&store, "giraffe").await, ["feeder"]);
    assert!(found(&store, "ostrich").await.is_empty());
}

pub async fn tools_vanish_when_sunset_or_removed_and_come_back_when_restored(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    let (tool, version) = ("weather_forecast".parse().unwrap(), "1.0.0".parse().unwrap());
    let steps = [(deprecated(), true), (sunset(), false), (Lifecycle::default(), true), (removed(), false)];
    let mut now = Lifecycle::default();
    for (next, visible) in steps {
        store.change_lifecycle(&TenantId::home(), &tool, &version, &now, &next).await.unwrap();
        assert_eq!(!found(&store, "rain").await.is_empty(), visible, "{next:?}");
        now = next;
    }
    let mut hidden = new_version(sample_manifest("born_sunset", "1.0.0", "Born sunset", "Starts at the end, unseen."));
    hidden.lifecycle = sunset();
    store.publish(hidden).await.unwrap();
    assert!(found(&store, "unseen").await.is_empty());
}

pub async fn the_index_survives_a_reopening(mut adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    let before = store.search(&TenantId::home(), "exchange dollars", 10).await.unwrap();
    drop(store);
    adapter.reopen().await;
    assert_eq!(adapter.store().search(&TenantId::home(), "exchange dollars", 10).await.unwrap(), before);
    assert_eq!(before.len(), 1);
}

pub async fn equal_scores_are_ordered_by_tool(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    for tool in ["twin.ccc", "twin.aaa", "twin.eee", "twin.bbb", "twin.ddd"] {
        let mut manifest = sample_manifest(tool, "1.0.0", "Twin", "Looks like every other twin.");
        manifest.name = "Twin".to_owned();
        publish(&store, manifest).await;
    }
    let hits = store.search(&TenantId::home(), "looks", 10).await.unwrap();
    assert!(hits.windows(2).all(|pair| matches!(pair, [left, right] if left.score >= right.score)));
    assert_eq!(found(&store, "looks").await, ["twin.aaa", "twin.bbb", "twin.ccc", "twin.ddd", "twin.eee"]);
    let first = store.search(&TenantId::home(), "looks", 2).await.unwrap();
    assert_eq!(first.iter().map(|hit| hit.tool.as_str()).collect::<Vec<_>>(), ["twin.aaa", "twin.bbb"]);
    assert_eq!(store.search(&TenantId::home(), "looks", 10).await.unwrap(), hits);
}

pub async fn limits_are_kept(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    let query = "send weather words currency status";
    assert_eq!(store.search(&TenantId::home(), query, 0).await.unwrap(), []);
    assert_eq!(store.search(&TenantId::home(), query, 2).await.unwrap().len(), 2);
    assert_eq!(store.search(&TenantId::home(), query, usize::MAX).await.unwrap().len(), 5);
}

pub async fn queries_without_words_find_nothing(adapter: impl StoreAdapter) {
    let store = adapter.store();
    assert!(found(&store, "anything").await.is_empty());
    publish_trades(&store).await;
    for query in ["", " \t\n", "the of and", "?!… – 🧰", "zzzzqqqq xxxxyyyy"] {
        assert!(found(&store, query).await.is_empty(), "{query}");
    }
}

pub async fn hostile_queries_are_data(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    let long = "weather ".repeat(20_000);
    for query in [
        "weather\"",
        "\"weather",
        "weather*",
        "weather NEAR(rain, 5)",
        "name:weather",
        "{name labels} : weather",
        "^weather",
        "weather AND NOT rain",
        "-weather",
        "'; DROP TABLE tool_search; -- weather",
        "weather\u{0}rain",
        "((((((((((weather",
        "weather \u{202e}\u{feff}",
        &long,
    ] {
        assert_eq!(found(&store, query).await.first().map(String::as_str), Some("weather_forecast"), "{query:.40}");
    }
    let noise: String =
        (0..100_000_u32).filter_map(|number| char::from_u32(number.wrapping_mul(7919) % 0x11_0000)).collect();
    store.search(&TenantId::home(), &noise, 10).await.unwrap();
    let words: String = (0..20_000).map(|number| format!("w{number} ")).collect();
    store.search(&TenantId::home(), &words, 10).await.unwrap();
}

/// What a tenant finds.
async fn found_by(store: &Arc<dyn AnyStore>, tenant: &str, query: &str) -> Vec<String> {
    let hits = store.search(&tenant.parse().unwrap(), query, 10).await.unwrap();
    hits.into_iter().map(|hit| hit.tool.to_string()).collect()
}

async fn publish_as(store: &Arc<dyn AnyStore>, tenant: &str, tool: &str, description: &str) {
    let manifest = sample_manifest(tool, "1.0.0", "A tool", description);
    store.publish(new_version_of(tenant, manifest)).await.unwrap();
}

pub async fn a_tenant_finds_its_own_tools_and_the_shared_ones(mut adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    for (tenant, tool) in [("acme", "acme_painter"), ("zeta", "zeta_painter"), ("local", "home_painter")] {
        publish_as(&store, tenant, tool, "Paints the fence in the garden.").await;
    }
    publish_as(&store, "zeta", "zeta_mower", "Mows the lawn at noon.").await;
    drop(store);
    for _ in 0..2 {
        let store = adapter.store();
        assert_eq!(found_by(&store, "acme", "fence").await, ["acme_painter", "home_painter"]);
        assert_eq!(found_by(&store, "zeta", "fence").await, ["home_painter", "zeta_painter"]);
        assert_eq!(found_by(&store, "local", "fence").await, ["home_painter"]);
        assert_eq!(found_by(&store, "a_tenant_without_tools", "fence").await, ["home_painter"]);
        let sentences = "Mow the lawn at noon. Tell the temperature and rain.";
        let mut both = found_by(&store, "zeta", sentences).await;
        both.sort();
        assert_eq!(both, ["weather_forecast", "zeta_mower"]);
        assert_eq!(found_by(&store, "acme", sentences).await, ["weather_forecast"]);
        assert!(found_by(&store, "zeta", "acme_painter").await.iter().all(|tool| tool != "acme_painter"));
        drop(store);
        adapter.reopen().await;
    }
}

pub async fn a_tenants_own_tool_is_found_in_the_place_of_the_shared_one(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    publish_as(&store, "acme", "painter", "Paints the giraffe.").await;
    publish_as(&store, "local", "painter", "Paints the walrus.").await;
    publish_as(&store, "local", "washer", "Washes the walrus.").await;
    assert_eq!(found_by(&store, "acme", "giraffe").await, ["painter"]);
    assert_eq!(found_by(&store, "acme", "walrus").await, ["washer"]);
    assert_eq!(found_by(&store, "local", "walrus").await, ["painter", "washer"]);
    assert!(found_by(&store, "local", "giraffe").await.is_empty());
    // Removed is not gone: the shared one does not come through.
    let (acme, painter) = ("acme".parse().unwrap(), "painter".parse().unwrap());
    let (version, active) = ("1.0.0".parse().unwrap(), Lifecycle::default());
    store.change_lifecycle(&acme, &painter, &version, &active, &removed()).await.unwrap();
    assert!(found_by(&store, "acme", "giraffe").await.is_empty());
    assert_eq!(found_by(&store, "acme", "walrus").await, ["washer"]);
    // What is hidden does not use up the limit either.
    assert_eq!(store.search(&acme, "walrus", 1).await.unwrap().len(), 1);
}

pub async fn words_of_other_tenants_neither_complete_nor_correct(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    // Were these words known to all, they would be taken as they are, or be the nearest, or the first to begin so.
    publish_as(&store, "acme", "secret_project", "Wether curencies temperaz.").await;
    for (query, first) in
        [("wether", "weather_forecast"), ("curency", "currency_converter"), ("tempera", "weather_forecast")]
    {
        assert_eq!(found_by(&store, "zeta", query).await.first().map(String::as_str), Some(first), "{query}");
        assert_eq!(found_by(&store, "local", query).await.first().map(String::as_str), Some(first), "{query}");
    }
    assert_eq!(found_by(&store, "acme", "wether").await, ["secret_project"]);
    assert!(found_by(&store, "acme", "tempera").await.contains(&"secret_project".to_owned()));
    assert_eq!(found_by(&store, "acme", "forcast").await, ["weather_forecast"]);
}

pub async fn words_of_other_scripts_are_found(adapter: impl StoreAdapter) {
    let store = adapter.store();
    publish_trades(&store).await;
    for (tool, name, description) in [
        ("cafe_finder", "Café finder", "Findet Cafés in der Nähe, auch für große Gruppen."),
        ("moscow_metro", "Московское метро", "Показывает расписание поездов."),
        ("tokyo_train", "東京の電車", "電車の時刻表を調べる。"),
        ("hindi_poet", "हिन्दी कविता", "कविता लिखता है और पढ़ता है।"),
    ] {
        publish(&store, sample_manifest(tool, "1.0.0", name, description)).await;
    }
    check(
        &store,
        &[
            ("cafe", "cafe_finder"),
            ("CAFÉ", "cafe_finder"),
            ("grosse", "cafe_finder"),
            ("nahe", "cafe_finder"),
            ("метро", "moscow_metro"),
            ("РАСПИСАНИЕ", "moscow_metro"),
            ("時刻", "tokyo_train"),
            ("कविता", "hindi_poet"),
        ],
    )
    .await;
}
