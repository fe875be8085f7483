//! The connection on which words come: one beside the pool, made again whenever it ends.

use std::future::poll_fn;
use std::time::Duration;

use base::backoff::GrowingPause;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;

use super::super::faults::{Busy, Fault};
use super::super::pool::Pool;
use super::CHANNEL;

/// The first pause before a new connection; each next one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long connecting and the first answer may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// What comes over the line.
#[derive(Debug)]
pub(super) enum BusLine {
    /// The line is there, for the first time or again: what is said from here on is heard.
    Connected,
    Word(String),
}

/// Keeps the line until nobody hears any more.
pub(super) async fn keep(pool: Pool, heard: mpsc::Sender<BusLine>) {
    let mut pause = GrowingPause::doubling(PAUSE_MIN, PAUSE_MAX);
    while !heard.is_closed() {
        let mut listened = false;
        if let Err(fault) = listen(&pool, &heard, &mut listened).await {
            tracing::debug!(%fault, "the line on which changes are heard ended; the numbers are still looked at");
        }
        if listened {
            pause.reset();
        }
        tokio::time::sleep(pause.next_pause()).await;
    }
}

/// One connection, until it ends. `listened` becomes true once words can come.
async fn listen(pool: &Pool, heard: &mpsc::Sender<BusLine>, listened: &mut bool) -> Result<(), Fault> {
    let (client, mut connection) =
        tokio::time::timeout(CONNECT_MAX, pool.connect_apart()).await.map_err(|_| Busy::NoAnswer)??;
    let listening = format!("LISTEN {CHANNEL}");
    let ask = tokio::time::timeout(CONNECT_MAX, client.batch_execute(&listening));
    tokio::pin!(ask);
    loop {
        tokio::select! {
            answer = &mut ask, if !*listened => {
                answer.map_err(|_| Busy::NoAnswer)??;
                *listened = true;
                if heard.send(BusLine::Connected).await.is_err() {
                    return Ok(());
                }
            }
            message = poll_fn(|context| connection.poll_message(context)) => match message {
                Some(Ok(AsyncMessage::Notification(word))) => {
                    if heard.send(BusLine::Word(word.payload().to_owned())).await.is_err() {
                        return Ok(());
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
            () = heard.closed() => return Ok(()),
        }
    }
}
