//! The change bus over Redis: words by pub/sub, and a count of them by which a lost one is found.
//!
//! Pub/sub forgets whoever does not listen at the moment. So each publication raises a generation in the same script that
//! publishes it, and every replica compares what it has heard with that number: at each word, at each new connection, and every
//! [`LOOK_EVERY`] without either. A gap is told to the listeners as [`BusChange::Lost`], and they read everything anew.
//!
//! The own listeners hear at once and without Redis. What could not be told to the others is owed: as soon as there is a
//! connection again, they are told that something was lost.
//!
//! Invariants
//! - RBUS-1: whatever was published while a replica was connected, it has heard or is told `Lost` within [`LOOK_EVERY`] and
//!   one operation.
//! - RBUS-2: after every connection, the first one included, listeners are told `Lost`: nobody knows what was said before.
//! - RBUS-3: noise and forged words cost at most a reload each, and at most one line of log in [`NOISE_SAID_EVERY`].
//! - RBUS-4: a word of the policy engine that cannot be read may have named anybody, so it voids all decisions. (AUTH-011)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::Script;
use async_trait::async_trait;
use ports::change_bus::{BusChange, ChangeBus};
use ports::shared_state::BreakerTransition;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::link::{ChannelMessage, Link, RedisTrouble};
use super::names::Names;
use super::words::{self, Word};

/// Changes that may wait for a slow listener.
const WAITING_MAX: usize = 256;
/// How often the generation is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often noise on the channels is worth a line in the log.
const NOISE_SAID_EVERY: Duration = Duration::from_secs(10);

/// A bus between replicas.
#[derive(Debug)]
pub struct RedisBus {
    voice: Arc<Voice>,
    ear: JoinHandle<()>,
}

/// What publishing needs.
#[derive(Debug)]
struct Voice {
    link: Arc<Link>,
    names: Arc<Names>,
    replica: String,
    told: broadcast::Sender<BusChange>,
    /// Something was published that the others have not heard.
    owed: AtomicBool,
    publish: Script,
    generation: Script,
}

impl RedisBus {
    pub(super) fn listen(
        link: Arc<Link>,
        heard: mpsc::Receiver<ChannelMessage>,
        names: Arc<Names>,
        replica: &str,
        transitions: broadcast::Sender<BreakerTransition>,
    ) -> Self {
        let voice = Arc::new(Voice {
            link,
            replica: replica.to_owned(),
            told: broadcast::Sender::new(WAITING_MAX),
            owed: AtomicBool::new(false),
            publish: Script::new(include_str!("scripts/publish.lua")),
            generation: Script::new(include_str!("scripts/generation.lua")),
            names,
        });
        let ear = RedisReceiver {
            policy_updates: voice.names.policy_updates(),
            breaker_words: voice.names.breaker_words(),
            transitions,
            voice: Arc::clone(&voice),
            known: None,
            connection: 0,
            noise_said: None,
        };
        Self { voice, ear: tokio::spawn(ear.listen(heard)) }
    }
}

impl Drop for RedisBus {
    fn drop(&mut self) {
        self.ear.abort();
    }
}

#[async_trait]
impl ChangeBus for RedisBus {
    async fn publish(&self, change: BusChange) {
        let said = words::spoken(&self.voice.replica, &change);
        self.voice.tell(change);
        if let Err(trouble) = self.voice.say(&said).await {
            self.voice.owed.store(true, Ordering::Release);
            tracing::warn!(%trouble, "other replicas will hear of a change only when Redis is back, or by time");
        }
    }

    fn subscribe(&self) -> broadcast::Receiver<BusChange> {
        self.voice.told.subscribe()
    }
}

// --------------------------------------------------------------------------------------------------------------- voice

impl Voice {
    /// To the listeners of this process.
    fn tell(&self, change: BusChange) {
        // An error means that nobody listens, and then nobody needs to know.
        let _nobody = self.told.send(change);
    }

    /// To the other replicas.
    async fn say(&self, said: &str) -> Result<(), RedisTrouble> {
        let mut script = self.publish.key(self.names.generation());
        self.link.run::<String>(script.arg(self.names.changes()).arg(said)).await.map(drop)
    }

    /// The number of the last change.
    async fn newest(&self) -> Result<Option<u64>, RedisTrouble> {
        let newest: Option<String> = self.link.run(&self.generation.key(self.names.generation())).await?;
        Ok(newest.and_then(|number| number.parse().ok()))
    }
}

// ----------------------------------------------------------------------------------------------------------------- ear

struct RedisReceiver {
    voice: Arc<Voice>,
    policy_updates: String,
    breaker_words: String,
    transitions: broadcast::Sender<BreakerTransition>,
    /// The newest generation that was heard or told as lost.
    known: Option<u64>,
    /// The connection on which it was.
    connection: u64,
    noise_said: Option<Instant>,
}

impl RedisReceiver {
    async fn listen(mut self, mut heard: mpsc::Receiver<ChannelMessage>) {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let link = Arc::clone(&self.voice.link);
            tokio::select! {
                connection = link.newer_than(self.connection) => self.connected(connection).await,
                word = heard.recv() => match word {
                    Some(word) => self.hear(&word),
                    None => return,
                },
                _ = look.tick() => self.look().await,
            }
        }
    }

    /// RBUS-2. The count is taken before the listeners are told: what comes after it is heard.
    async fn connected(&mut self, connection: u64) {
        self.connection = connection;
        self.known = self.voice.newest().await.ok().flatten();
        self.voice.tell(BusChange::Lost);
        self.pay().await;
    }

    /// RBUS-1. Nothing is learnt from a look that fails; the link has noticed it.
    async fn look(&mut self) {
        self.pay().await;
        if let Ok(newest) = self.voice.newest().await
            && newest != self.known
        {
            tracing::debug!("words of other replicas were lost, or are late; everything is read anew");
            self.known = newest;
            self.voice.tell(BusChange::Lost);
        }
    }

    /// Tells the others what they have missed from here.
    async fn pay(&self) {
        if self.voice.owed.swap(false, Ordering::AcqRel) {
            let said = words::spoken(&self.voice.replica, &BusChange::Lost);
            if self.voice.say(&said).await.is_err() {
                self.voice.owed.store(true, Ordering::Release);
            }
        }
    }

    fn hear(&mut self, heard: &ChannelMessage) {
        if heard.channel == self.policy_updates {
            match words::subjects_of(&heard.payload) {
                Some(subjects) => self.voice.tell(BusChange::DecisionsOf { subjects }),
                // RBUS-4.
                None => {
                    self.voice.tell(BusChange::Decisions);
                    self.noise();
                }
            }
            return;
        }
        if heard.channel == self.breaker_words {
            match words::transition(&heard.payload) {
                // An error means that nobody listens.
                Some(transition) => drop(self.transitions.send(transition)),
                None => self.noise(),
            }
            return;
        }
        let Some(Word { generation, replica, change }) = words::understood(&heard.payload) else { return self.noise() };
        let late = self.known.is_some_and(|known| generation <= known);
        let next = self.known.is_none_or(|known| generation == known.saturating_add(1));
        if !late {
            self.known = Some(generation);
        }
        if replica != self.voice.replica {
            self.voice.tell(change);
        }
        if !late && !next {
            self.voice.tell(BusChange::Lost);
        }
    }

    fn noise(&mut self) {
        let now = Instant::now();
        if self.noise_said.is_none_or(|last| now.duration_since(last) >= NOISE_SAID_EVERY) {
            self.noise_said = Some(now);
            tracing::warn!(
                "a message on a channel of Redis was not understood; one about policies voids all decisions, others are ignored"
            );
        }
    }
}
