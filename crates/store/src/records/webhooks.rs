//! Webhooks, deliveries and their attempts out of rows.

use ports::webhook_store::{
    DeliveryAttempt, DeliveryDetail, DeliveryId, DeliveryRecord, DeliveryState, DeliveryTarget, EventKind,
    FormerSecret, SigningSecret, WebhookId, WebhookRecord,
};

use crate::stored_row::{StoredRow, unreadable};

/// The columns that [`webhook`] reads.
pub(crate) const COLUMNS: &str = "tenant_id, id, url, events, generation, secret_name, former_generation, former_name, \
                                  former_until, added_at, added_by";

/// The columns that [`delivery`] reads, and those of its body and place.
pub(crate) const DELIVERY_COLUMNS: &str = "seq, tenant_id, id, webhook_id, callback_url, callback_secret, event, \
                                           invocation_id, body, state, round, attempts, created_at, ended_at";

/// A secret as two columns, of which one is set.
pub(crate) fn secret_columns(secret: &SigningSecret) -> (Option<i64>, Option<&str>) {
    match secret {
        SigningSecret::Generated { generation } => (Some(i64::from(*generation)), None),
        SigningSecret::Named(name) => (None, Some(name)),
    }
}

/// A webhook out of a row with [`COLUMNS`].
pub(crate) fn webhook<R: StoredRow>(row: &R) -> Result<WebhookRecord, R::Fault> {
    let of = row.text("id")?;
    let events: Vec<String> = row.json("events", of)?;
    let events = events.iter().map(|word| EventKind::of_word(word).ok_or_else(|| unreadable("events", of)));
    let former = match row.opt_time("former_until")? {
        Some(until) => Some(FormerSecret { secret: secret(row, ("former_generation", "former_name"), of)?, until }),
        None => None,
    };
    Ok(WebhookRecord {
        tenant: row.word("tenant_id", of)?,
        id: WebhookId(row.word("id", of)?),
        url: row.text("url")?.to_owned(),
        events: events.collect::<Result<_, _>>()?,
        secret: secret(row, ("generation", "secret_name"), of)?,
        former,
        added_at: row.time("added_at")?,
        added_by: row.word("added_by", of)?,
    })
}

fn secret<R: StoredRow>(
    row: &R,
    (generation, name): (&'static str, &'static str),
    of: &str,
) -> Result<SigningSecret, R::Fault> {
    match (row.opt_number(generation, of)?, row.opt_text(name)?) {
        (Some(generation), None) => Ok(SigningSecret::Generated { generation }),
        (None, Some(name)) => Ok(SigningSecret::Named(name.to_owned())),
        _ => Err(unreadable(generation, of).into()),
    }
}

/// A delivery out of a row with [`DELIVERY_COLUMNS`].
pub(crate) fn delivery<R: StoredRow>(row: &R) -> Result<DeliveryRecord, R::Fault> {
    let of = row.text("id")?;
    let callback = (row.opt_text("callback_url")?, row.opt_text("callback_secret")?);
    let target = match (row.opt_word("webhook_id", of)?, callback) {
        (Some(id), (None, None)) => DeliveryTarget::Webhook(WebhookId(id)),
        (None, (Some(url), Some(secret))) => {
            DeliveryTarget::Callback { url: url.to_owned(), secret: secret.to_owned() }
        }
        _ => return Err(unreadable("webhook_id", of).into()),
    };
    Ok(DeliveryRecord {
        tenant: row.word("tenant_id", of)?,
        id: DeliveryId(row.word("id", of)?),
        target,
        event: row.one_of("event", of, EventKind::of_word)?,
        invocation: row.opt_word("invocation_id", of)?,
        state: row.one_of("state", of, DeliveryState::of_word)?,
        round: row.number("round", of)?,
        attempts: row.number("attempts", of)?,
        created_at: row.time("created_at")?,
        ended_at: row.opt_time("ended_at")?,
    })
}

/// A delivery with what is sent, out of a row with [`DELIVERY_COLUMNS`].
pub(crate) fn delivery_detail<R: StoredRow>(row: &R) -> Result<DeliveryDetail, R::Fault> {
    Ok(DeliveryDetail { record: delivery(row)?, body: row.opt_text("body")?.map(str::to_owned) })
}

/// An attempt of the delivery `of`.
pub(crate) fn attempt<R: StoredRow>(row: &R, of: &str) -> Result<DeliveryAttempt, R::Fault> {
    Ok(DeliveryAttempt {
        round: row.number("round", of)?,
        number: row.number("number", of)?,
        at: row.time("at")?,
        status: row.opt_number("status", of)?,
        took_ms: u64::try_from(row.int("took_ms")?).unwrap_or_default(),
        error: row.opt_text("error")?.map(str::to_owned),
    })
}
