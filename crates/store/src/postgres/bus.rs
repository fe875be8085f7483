//! The change bus of instances that share a database: words by `NOTIFY`, and numbers by which a lost one is found.
//!
//! ```text
//!  publish ─────▶ number raised, word told ──▶ line (one connection of its own, LISTEN) ──▶ ear ──▶ listeners
//!  a change of the store tells its own word when it commits                                  ▲
//!                                             numbers in the database, every second ─────────┘
//! ```
//!
//! The server forgets whoever does not listen at the moment, and behind a pooler nobody may be heard at all. So the epoch of
//! access and the generation of the registry are raised by the changes themselves, in their own transactions, and each
//! publication raises a number too; every instance looks at these once a second. With words a change is known at once,
//! without them within [`LOOK_EVERY`].
//!
//! The own listeners hear what is published at once and without the database. What could not be told to the others is
//! owed: as soon as there is a connection again, they are told that something was lost.
//!
//! Invariants
//! - BUS-1: whatever was changed, every instance has heard of it, or is told so or told `Lost` within twice [`LOOK_EVERY`]
//!   and one statement.
//! - BUS-2: after every connection of the line, the first one included, listeners are told `Lost`: nobody knows what was
//!   said before.
//!
//! Not here: the words (`words`), the connection on which they come (`line`).

mod line;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::change_bus::{BusChange, ChangeBus};
use ports::registry_store::StoreError;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::PostgresStore;
use super::faults::Fault;
use super::pool::Pool;
use super::statement::{column, text};
use super::transaction::Scope;
use crate::stored_row::unreadable;
use line::BusLine;
use words::Word;
pub(super) use words::{ACCESS_WORD, REGISTRY_WORD};

/// Where changes are told.
pub(super) const CHANNEL: &str = "gantry_changes";
/// Changes that may wait for a slow listener.
const WAITING_MAX: usize = 256;
/// Words that may wait for the ear; the line waits when it is full.
const WORDS_MAX: usize = 256;
/// How often the numbers are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A bus between instances.
#[derive(Debug)]
pub struct PostgresBus {
    voice: Arc<Voice>,
    ear: JoinHandle<()>,
    line: JoinHandle<()>,
}

impl PostgresStore {
    /// Listens to what other instances change in this database. Ends when the bus is dropped.
    pub async fn bus(&self) -> Result<PostgresBus, StoreError> {
        let number = "UPDATE store_numbers SET value = value + 1 WHERE name = 'listeners' RETURNING value";
        let rows = self.pool.query(Scope::System, number, &[]).await?;
        let row = rows.first().ok_or_else(|| Fault::from(unreadable("listeners", "store_numbers")))?;
        let instance = column(row, "value")?;
        self.instance.store(instance, Ordering::Release);
        let voice = Arc::new(Voice {
            pool: self.pool.clone(),
            instance,
            told: broadcast::Sender::new(WAITING_MAX),
            owed: AtomicBool::new(false),
        });
        let (heard, words) = mpsc::channel(WORDS_MAX);
        let ear = BusReceiver { voice: Arc::clone(&voice), known: None, seen: None };
        let line = tokio::spawn(line::keep(self.pool.clone(), heard));
        Ok(PostgresBus { voice, ear: tokio::spawn(ear.listen(words)), line })
    }
}

impl Drop for PostgresBus {
    fn drop(&mut self) {
        self.ear.abort();
        self.line.abort();
    }
}

#[async_trait]
impl ChangeBus for PostgresBus {
    async fn publish(&self, change: BusChange) {
        let said = words::spoken(self.voice.instance, &change);
        self.voice.tell(change);
        if let Err(fault) = self.voice.say(&said).await {
            self.voice.owed.store(true, Ordering::Release);
            tracing::warn!(%fault, "other instances will hear of a change only when the database is back");
        }
    }

    fn subscribe(&self) -> broadcast::Receiver<BusChange> {
        self.voice.told.subscribe()
    }
}

// --------------------------------------------------------------------------------------------------------------- voice

/// What publishing needs.
#[derive(Debug)]
struct Voice {
    pool: Pool,
    /// Tells our own words from those of others.
    instance: i64,
    told: broadcast::Sender<BusChange>,
    /// Something was published that the others have not heard.
    owed: AtomicBool,
}

/// The numbers in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    /// Words published so far.
    changes: u64,
    access: u64,
    registry: u64,
}

impl Voice {
    /// To the listeners of this process.
    fn tell(&self, change: BusChange) {
        // An error means that nobody listens, and then nobody needs to know.
        let _nobody = self.told.send(change);
    }

    /// To the other instances.
    async fn say(&self, said: &str) -> Result<(), Fault> {
        let statement = format!(
            "WITH raised AS (UPDATE store_numbers SET value = value + 1 WHERE name = 'changes' RETURNING value)
             SELECT pg_notify('{CHANNEL}', value || ' ' || $1) FROM raised"
        );
        self.pool.query(Scope::System, &statement, &[text(&said)]).await.map(drop)
    }

    async fn numbers(&self) -> Result<Numbers, Fault> {
        let select = "SELECT name, value FROM store_numbers
                      WHERE name IN ('changes', 'access_epoch', 'registry_generation')";
        let rows = self.pool.query(Scope::System, select, &[]).await?;
        let number = |name: &'static str| -> Result<u64, Fault> {
            for row in &rows {
                if column::<&str>(row, "name")? == name {
                    return Ok(u64::saturating_from(column::<i64>(row, "value")?));
                }
            }
            Err(unreadable(name, "store_numbers").into())
        };
        Ok(Numbers {
            changes: number("changes")?,
            access: number("access_epoch")?,
            registry: number("registry_generation")?,
        })
    }
}

// ----------------------------------------------------------------------------------------------------------------- ear

struct BusReceiver {
    voice: Arc<Voice>,
    /// The newest numbers that were heard of or told.
    known: Option<Numbers>,
    /// What the last look saw of the words published: one that is still not heard of at the next look is lost.
    seen: Option<u64>,
}

impl BusReceiver {
    async fn listen(mut self, mut words: mpsc::Receiver<BusLine>) {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                heard = words.recv() => match heard {
                    Some(BusLine::Connected) => self.connected().await,
                    Some(BusLine::Word(word)) => self.hear(&word),
                    None => return,
                },
                _ = look.tick() => self.look().await,
            }
        }
    }

    /// BUS-2. The numbers are taken before the listeners are told: what comes after them is heard.
    async fn connected(&mut self) {
        if let Ok(numbers) = self.voice.numbers().await {
            self.known = Some(numbers);
        }
        self.voice.tell(BusChange::Lost);
    }

    /// BUS-1. Nothing is learnt from a look that fails; the next one will.
    async fn look(&mut self) {
        if self.voice.owed.swap(false, Ordering::AcqRel)
            && self.voice.say(&words::spoken(self.voice.instance, &BusChange::Lost)).await.is_err()
        {
            self.voice.owed.store(true, Ordering::Release);
        }
        let Ok(newest) = self.voice.numbers().await else { return };
        let Some(known) = self.known.replace(newest) else { return };
        if newest.access != known.access {
            self.voice.tell(BusChange::Access { epoch: newest.access });
        }
        if newest.registry != known.registry {
            self.voice.tell(BusChange::Registry { generation: newest.registry });
        }
        // A word of the last moment may still be on its way.
        let seen = self.seen.replace(newest.changes);
        if seen.is_some_and(|seen| known.changes < seen) || newest.changes < known.changes {
            tracing::info!("words of other instances were lost; everything is read anew");
            self.voice.tell(BusChange::Lost);
        } else if let Some(kept) = &mut self.known {
            kept.changes = known.changes;
        }
    }

    fn hear(&mut self, word: &str) {
        let Some(Word { number, instance, change }) = words::understood(word) else {
            tracing::debug!("a word on the channel of changes was not understood and is ignored");
            return;
        };
        let mut lost = false;
        match (&mut self.known, number, &change) {
            (Some(known), Some(number), _) => {
                lost = number > known.changes.saturating_add(1);
                known.changes = known.changes.max(number);
            }
            (Some(known), None, BusChange::Access { epoch }) => known.access = known.access.max(*epoch),
            (Some(known), None, BusChange::Registry { generation }) => known.registry = known.registry.max(*generation),
            _ => {}
        }
        if instance != Some(self.voice.instance) {
            self.voice.tell(change);
        }
        if lost {
            self.voice.tell(BusChange::Lost);
        }
    }
}
