//! Cases of `SealedTexts`. Each takes a fresh store.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::sealed_texts::{SealedTexts, StoredText, TextPlace};
use ports::upstream_store::ServerRecord;
use ports::webhook_store::{DeliveryId, DeliveryTarget, EventKind, NewDelivery};
use ports::workflow_runs::{NewRun, RunEnd};
use serde_json::json;

use super::StoreAdapter;

/// All cases against one adapter.
#[macro_export]
macro_rules! sealed_texts_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            sealed_texts,
            [
                what_stands_in_clear_is_found_and_what_is_sealed_or_nothing_is_not,
                a_text_is_replaced_once_and_only_while_it_is_the_one_that_was_read,
            ]
        );
    };
}

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

fn id(number: u64) -> InvocationId {
    format!("01890000-0000-7000-8000-{number:012}").parse().unwrap()
}

/// A run that ended well, one that failed, a delivery and a server.
async fn filled<A: StoreAdapter>(adapter: &A)
where
    A::Store: SealedTexts,
{
    for (number, end) in [(1, RunEnd::Success(json!("well"))), (2, RunEnd::Failure(json!({ "code": "badly" })))] {
        let run = NewRun {
            tenant: tenant(),
            id: id(number),
            workflow: "w".into(),
            idempotency_key: number.to_string(),
            input: if number == 1 { json!({ "a": 1 }) } else { json!("SEALED") },
        };
        adapter.runs().begin_run(&run).await.unwrap();
        adapter.runs().end_run(&tenant(), id(number), &end).await.unwrap();
    }
    for (number, body) in [(3, "told"), (4, "")] {
        let delivery = NewDelivery {
            tenant: tenant(),
            id: DeliveryId(id(number).0),
            target: DeliveryTarget::Callback { url: "https://a.example".into(), secret: "s".into() },
            event: EventKind::Test,
            invocation: None,
            body: body.into(),
        };
        assert!(adapter.webhooks().add_delivery(&delivery).await.unwrap());
    }
    let server = ServerRecord {
        tenant: tenant(),
        name: "files".into(),
        spec: json!({ "reach": 1 }),
        added_at: UnixMillis(1_790_000_000_123),
        added_by: "admin".parse().unwrap(),
    };
    adapter.upstreams().put_server(&server, &[]).await.unwrap();
}

pub async fn what_stands_in_clear_is_found_and_what_is_sealed_or_nothing_is_not<A: StoreAdapter>(adapter: A)
where
    A::Store: SealedTexts,
{
    filled(&adapter).await;
    let of = |row: &str, text: &str| StoredText { tenant: tenant(), row: row.into(), text: text.into() };
    let (first, second, third) = (id(1).to_string(), id(2).to_string(), id(3).to_string());
    for (place, sealed, expected) in [
        (TextPlace::RunInput, "\"SEALED", of(&first, r#"{"a":1}"#)),
        (TextPlace::RunOutput, "\"SEALED", of(&first, "\"well\"")),
        (TextPlace::RunError, "\"SEALED", of(&second, r#"{"code":"badly"}"#)),
        (TextPlace::DeliveryBody, "SEALED", of(&third, "told")),
        (TextPlace::ServerSpec, "SEALED", of("files", r#"{"reach":1}"#)),
    ] {
        assert_eq!(adapter.whole().clear_texts(place, sealed).await.unwrap(), [expected], "{place:?}");
    }
    assert_eq!(adapter.whole().clear_texts(TextPlace::DeliveryBody, "tol").await.unwrap(), []);
}

pub async fn a_text_is_replaced_once_and_only_while_it_is_the_one_that_was_read<A: StoreAdapter>(adapter: A)
where
    A::Store: SealedTexts,
{
    filled(&adapter).await;
    for place in TextPlace::ALL {
        let was = adapter.whole().clear_texts(place, "\"SEALED").await.unwrap().pop().unwrap();
        let new = format!("{}", json!({ "SEALED": place.columns().1 }));
        let stranger = StoredText { tenant: "other".parse().unwrap(), ..was.clone() };
        assert!(!adapter.whole().replace_text(place, &stranger, &new).await.unwrap(), "{place:?}");
        assert!(adapter.whole().replace_text(place, &was, &new).await.unwrap(), "{place:?}");
        assert!(!adapter.whole().replace_text(place, &was, &new).await.unwrap(), "TEXT-1 at {place:?}");
        let clear = adapter.whole().clear_texts(place, &new).await.unwrap();
        assert!(clear.iter().all(|text| text.row != was.row), "{place:?}: {clear:?}");
    }
}
