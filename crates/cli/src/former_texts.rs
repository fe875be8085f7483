//! What stands in the store in clear from a release, or a time, without a seal on it: sealed at the start, left out of backups.
//!
//! Not here: jobs, which are sealed as they are taken (`sealed_jobs`).

use ports::registry_store::StoreError;
use ports::sealed_texts::{SealedTexts, StoredText, TextPlace};
use serde_json::Value;
use store::transfer::{ClearColumn, Replacement};

use crate::store_seal::{SEALED_PAYLOAD, SEALED_SOMEHOW, StoreSeals};
use crate::{sealed_deliveries, sealed_runs, sealed_servers};

/// What a sealed description of a server begins with.
const SEALED_SPEC: &str = r#"{"sealed":"gantry-sealed:"#;

/// The columns of the store that are sealed, and what a backup without keys has in place of what is not.
pub(crate) fn clear_columns() -> Vec<ClearColumn> {
    let jobs = ClearColumn {
        table: "job_bodies",
        column: "payload",
        sealed: SEALED_PAYLOAD,
        instead: Replacement::Text("null"),
    };
    let texts = TextPlace::ALL.map(|place| {
        let (table, column, _) = place.columns();
        let instead = match place {
            // Without its description a server would be gone; only what it must not show is taken out.
            TextPlace::ServerSpec => Replacement::Made(without_settings),
            TextPlace::RunInput | TextPlace::RunOutput | TextPlace::RunError | TextPlace::DeliveryBody => {
                Replacement::Text(place.nothing())
            }
        };
        ClearColumn { table, column, sealed: beginning(place), instead }
    });
    std::iter::once(jobs).chain(texts).collect()
}

/// Seals what waits in the store in clear. Says how many texts it was.
pub(crate) async fn seal_former(store: &dyn SealedTexts, seals: &StoreSeals) -> Result<usize, StoreError> {
    let mut count = 0;
    if !seals.is_sealing() {
        return Ok(count);
    }
    for place in TextPlace::ALL {
        loop {
            let clear = store.clear_texts(place, beginning(place)).await?;
            let mut sealed = 0;
            for was in &clear {
                let Some(text) = sealed_text(seals, place, was)? else { continue };
                // What has changed or gone meanwhile was written by somebody who seals, or is met in the next round.
                sealed += usize::from(store.replace_text(place, was, &text).await?);
            }
            count += sealed;
            // Nothing more to be done, or nothing that can be done now.
            if sealed == 0 {
                break;
            }
        }
    }
    Ok(count)
}

/// What sealed texts begin with, as they stand in the store.
fn beginning(place: TextPlace) -> &'static str {
    match place {
        TextPlace::RunInput | TextPlace::RunOutput | TextPlace::RunError => SEALED_PAYLOAD,
        TextPlace::DeliveryBody => SEALED_SOMEHOW,
        TextPlace::ServerSpec => SEALED_SPEC,
    }
}

fn sealed_text(seals: &StoreSeals, place: TextPlace, was: &StoredText) -> Result<Option<String>, StoreError> {
    let StoredText { tenant, row, text } = was;
    let (_, member, _) = place.columns();
    Ok(match place {
        TextPlace::RunInput | TextPlace::RunOutput | TextPlace::RunError => {
            seals.sealed(&sealed_runs::what(tenant, row, member), text)?.map(|sealed| Value::String(sealed).to_string())
        }
        TextPlace::DeliveryBody => seals.sealed(&sealed_deliveries::what(tenant, row), text)?,
        TextPlace::ServerSpec => seals
            .sealed(&sealed_servers::what(tenant, row), text)?
            .map(|sealed| sealed_servers::kept(&sealed).to_string()),
    })
}

/// A description of a server without values that nobody has made credentials of; none if it has none.
fn without_settings(spec: &str) -> Option<String> {
    let mut spec: Value = serde_json::from_str(spec).ok()?;
    upstreams::plain_secrets::take_out(&mut spec).then(|| spec.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sealed_description_begins_as_it_is_looked_for() {
        let kept = sealed_servers::kept(&format!("{SEALED_SOMEHOW}1:AAAA")).to_string();
        assert!(kept.starts_with(beginning(TextPlace::ServerSpec)), "{kept}");
    }

    #[test]
    fn what_is_sealed_or_nothing_stays_in_a_backup_and_the_rest_goes() {
        for column in clear_columns() {
            let sealed = format!("{}1:AAAA", column.sealed);
            assert_eq!(column.forgotten(&sealed), None, "{column:?}");
            let Replacement::Text(nothing) = column.instead else { continue };
            assert_eq!(column.forgotten(nothing), None, "{column:?}");
            assert_eq!(column.forgotten("planted").as_deref(), Some(nothing), "{column:?}");
        }
    }

    #[test]
    fn a_server_loses_the_values_that_are_secrets_and_nothing_else() {
        let clean =
            json!({ "reach": { "type": "http", "url": "https://a.example/mcp", "headers": { "x-team": "a" } } });
        assert_eq!(without_settings(&clean.to_string()), None);
        let mut spec = clean;
        spec["reach"]["headers"]["Authorization"] = json!("Bearer planted");
        let left: Value = serde_json::from_str(&without_settings(&spec.to_string()).unwrap()).unwrap();
        assert_eq!(left["reach"]["headers"], json!({ "x-team": "a", "Authorization": { "secret": "authorization" } }));
    }
}
