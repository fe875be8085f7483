//! The one connection to Redis: made, lost and made again by a keeper of its own, and never waited for by a call.
//!
//! ```text
//!            connect, greet, subscribe
//!   Away ──────────────────────────────▶ Up(n)
//!     ▲     lost: closed, or one operation timed out     │
//!     └──────────────────────────────────────────────────┘
//! ```
//!
//! An operation uses the connection that is there or fails at once. One that times out takes the connection down, because
//! what is stuck for one is stuck for all behind it: the next calls do not wait as long as the first, and the keeper finds out
//! when the server answers again.
//!
//! A server that is full answers and takes no writes. The connection stays, because reading and listening still work, but it
//! counts as trouble: the keeper writes a word from time to time to find out.
//!
//! Invariants
//! - LINK-1: a connection is `Up` only after the channels are subscribed, so whatever is published after that is heard.
//! - LINK-2: words that come faster than they are taken are dropped, not queued without end; the bus finds the gap.
//!
//! Not here: what words mean (`words`), what operations do.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, Msg, PushInfo, PushKind, RedisError};
use ::redis::{ScriptInvocation, ServerErrorKind};
use base::backoff::GrowingPause;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::RedisSettings;

/// Words of channels that wait to be understood.
const WORDS_WAITING_MAX: usize = 1_024;
/// Operations that wait to be written to the connection.
const OPERATIONS_WAITING_MAX: usize = 1_024;
/// The first pause after a connection was lost or could not be made.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
/// The longest: how much later than the server itself its return is noticed at most.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A connection that has held so long was a good one: the next pause is the first again.
const STEADY_AFTER: Duration = Duration::from_secs(5);
/// How often the keeper looks whether the server takes writes: one that does, and one that does not.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(500));
/// How long what is written for that stays, in milliseconds.
const LOOK_KEPT_MS: u64 = 60_000;
/// The oldest Redis that has everything the scripts use.
const MAJOR_MIN: u32 = 7;

/// Is the server there?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// It answers. The number rises with every connection.
    Up { connection: u64 },
    /// It does not, and this is why, as far as it is known.
    Away { trouble: RedisTrouble },
}

/// Why an operation came to nothing. Never holds the words of the server, which may repeat keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedisTrouble {
    /// There is no connection.
    #[error("Redis cannot be reached")]
    Unreachable,
    /// No answer within the time that was given.
    #[error("Redis did not answer in time")]
    Slow,
    /// Wrong user or password, or too few rights.
    #[error("Redis does not accept the credentials, or they allow too little")]
    Denied,
    /// No memory left, and the server throws nothing away.
    #[error("Redis is out of memory")]
    Full,
    /// Redis Cluster, whose keys lie on many servers. That never changes by itself.
    #[error("this Redis is a cluster, which is not supported")]
    Cluster,
    /// A replica of Redis that cannot write, or one that still loads.
    #[error("Redis cannot serve at present")]
    NotServing,
    /// It answered what the operation cannot have answered: another version, or somebody else's keys.
    #[error("Redis answered what was not asked for")]
    Garbled,
}

/// One word that came in on a channel.
#[derive(Debug)]
pub(super) struct ChannelMessage {
    pub(super) channel: String,
    pub(super) payload: Vec<u8>,
}

/// The connection and its keeper.
pub(super) struct Link {
    shared: Arc<Shared>,
    keeper: JoinHandle<()>,
}

struct Shared {
    client: Client,
    channels: Vec<String>,
    /// What is written to find out whether that is possible.
    look_key: String,
    /// The server answers and has no room.
    full: AtomicBool,
    connect_timeout: Duration,
    operation_timeout: Duration,
    present: watch::Sender<Present>,
    words: mpsc::Sender<ChannelMessage>,
}

/// What is there at this moment.
enum Present {
    Up { connection: MultiplexedConnection, number: u64 },
    Away(RedisTrouble),
}

impl Link {
    /// Starts the keeper. The receiver has the words of the channels.
    pub(super) fn open(
        client: Client,
        settings: &RedisSettings,
        channels: Vec<String>,
        look_key: String,
    ) -> (Self, mpsc::Receiver<ChannelMessage>) {
        let (words, heard) = mpsc::channel(WORDS_WAITING_MAX);
        let shared = Arc::new(Shared {
            client,
            channels,
            look_key,
            full: AtomicBool::new(false),
            connect_timeout: settings.connect_timeout,
            operation_timeout: settings.operation_timeout,
            present: watch::Sender::new(Present::Away(RedisTrouble::Unreachable)),
            words,
        });
        let keeper = tokio::spawn(keep(Arc::clone(&shared)));
        (Self { shared, keeper }, heard)
    }

    /// Carries out one script. REDIS-1, REDIS-2.
    pub(super) async fn run<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, RedisTrouble> {
        let (mut connection, number) = self.shared.connection()?;
        match timeout(self.shared.operation_timeout, script.invoke_async(&mut connection)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let trouble = classified(&error);
                tracing::debug!(%error, "an operation on Redis failed");
                if trouble == RedisTrouble::Full {
                    self.shared.is_full(true);
                }
                if error.is_unrecoverable_error() || matches!(trouble, RedisTrouble::NotServing) {
                    // A server that cannot write may be one that was the first until a moment ago: ask anew who is.
                    self.shared.lose(number, trouble);
                }
                Err(trouble)
            }
            Err(_elapsed) => {
                self.shared.lose(number, RedisTrouble::Slow);
                Err(RedisTrouble::Slow)
            }
        }
    }

    pub(super) fn standing(&self) -> LinkState {
        match &*self.shared.present.borrow() {
            Present::Up { number, .. } => LinkState::Up { connection: *number },
            Present::Away(trouble) => LinkState::Away { trouble: *trouble },
        }
    }

    /// What is amiss, also with a server that is there: one that is full.
    pub(super) fn trouble(&self) -> Option<RedisTrouble> {
        match self.standing() {
            LinkState::Away { trouble } => Some(trouble),
            LinkState::Up { .. } => self.shared.full.load(Ordering::Relaxed).then_some(RedisTrouble::Full),
        }
    }

    pub(super) async fn ready(&self) {
        self.wait_for(|present| matches!(present, Present::Up { .. })).await;
    }

    /// How it stands after the first attempt to connect, or as long as one may take.
    pub(super) async fn settled(&self) -> LinkState {
        let settled = |present: &Present| matches!(present, Present::Up { .. } | Present::Away(RedisTrouble::Cluster));
        let patience = self.shared.connect_timeout.saturating_add(self.shared.operation_timeout);
        // Whoever is away may come; how it stands is the answer either way.
        let _in_time = timeout(patience, self.wait_for(settled)).await.is_ok();
        self.standing()
    }

    pub(super) async fn away(&self) {
        self.wait_for(|present| matches!(present, Present::Away(_))).await;
    }

    /// Ends when there is a connection other than `known`.
    pub(super) async fn newer_than(&self, known: u64) -> u64 {
        self.wait_for(|present| matches!(present, Present::Up { number, .. } if *number > known)).await;
        match self.standing() {
            LinkState::Up { connection } => connection,
            LinkState::Away { .. } => known,
        }
    }

    async fn wait_for(&self, wanted: impl FnMut(&Present) -> bool) {
        let mut present = self.shared.present.subscribe();
        // The sender is ours, so the channel is open.
        let _open = present.wait_for(wanted).await.is_ok();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("standing", &self.standing()).finish_non_exhaustive()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

// -------------------------------------------------------------------------------------------------------------- shared

impl Shared {
    fn connection(&self) -> Result<(MultiplexedConnection, u64), RedisTrouble> {
        match &*self.present.borrow() {
            Present::Up { connection, number } => Ok((connection.clone(), *number)),
            Present::Away(trouble) => Err(*trouble),
        }
    }

    /// This connection is of no use any more; a newer one is left alone.
    fn lose(&self, lost: u64, trouble: RedisTrouble) {
        self.present.send_if_modified(|present| {
            let this = matches!(present, Present::Up { number, .. } if *number == lost);
            if this {
                *present = Present::Away(trouble);
            }
            this
        });
    }

    /// Notes whether the server has room, and tells when that changes.
    fn is_full(&self, full: bool) {
        if self.full.swap(full, Ordering::Relaxed) == full {
            return;
        }
        if full {
            let trouble = RedisTrouble::Full;
            tracing::warn!(%trouble, "Redis takes no writes; this replica keeps its own state until there is room");
        } else {
            tracing::info!("Redis takes writes again");
        }
    }

    /// Does the server take writes, and in time? A full one is noted as that and is no failure.
    async fn look(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisTrouble> {
        let mut write = ::redis::cmd("SET");
        write.arg(&self.look_key).arg(1).arg("PX").arg(LOOK_KEPT_MS);
        let written = match timeout(self.operation_timeout, write.query_async::<()>(connection)).await {
            Ok(written) => written.map_err(|error| classified(&error)),
            Err(_elapsed) => Err(RedisTrouble::Slow),
        };
        match written {
            Err(RedisTrouble::Full) => self.is_full(true),
            Err(trouble) => return Err(trouble),
            Ok(()) => self.is_full(false),
        }
        Ok(())
    }

    /// Looks from time to time, until this connection is of no use any more.
    async fn look_after(&self, mut connection: MultiplexedConnection, number: u64) {
        loop {
            let full = self.full.load(Ordering::Relaxed);
            tokio::time::sleep(if full { LOOK_EVERY.1 } else { LOOK_EVERY.0 }).await;
            if let Err(trouble) = self.look(&mut connection).await {
                return self.lose(number, trouble);
            }
        }
    }

    async fn connect(self: &Arc<Self>, number: u64) -> Result<MultiplexedConnection, RedisTrouble> {
        let (shared, words) = (Arc::downgrade(self), self.words.clone());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(OPERATIONS_WAITING_MAX)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection
                    && let Some(shared) = shared.upgrade()
                {
                    shared.lose(number, RedisTrouble::Unreachable);
                }
                take(push, &words);
                Ok::<(), ::redis::aio::SendError>(())
            });
        let made = timeout(self.connect_timeout, async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            // LINK-1.
            connection.subscribe(self.channels.as_slice()).await?;
            let about = About::ask(&mut connection).await?;
            Ok::<_, RedisError>((connection, about))
        });
        let (mut connection, about) = match made.await {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => {
                tracing::debug!(%error, "no connection to Redis");
                return Err(classified(&error));
            }
            Err(_elapsed) => return Err(RedisTrouble::Slow),
        };
        // A server that is too slow for an operation is not there, however patient the greeting was.
        if about.is_cluster() {
            return Err(RedisTrouble::Cluster);
        }
        self.look(&mut connection).await?;
        about.look_over();
        Ok(connection)
    }
}

/// Makes connections as long as somebody holds the link.
async fn keep(shared: Arc<Shared>) {
    let mut number: u64 = 0;
    let mut pause = GrowingPause::doubling(PAUSE_FIRST, PAUSE_MAX);
    let mut said = None;
    let mut present = shared.present.subscribe();
    loop {
        match shared.connect(number + 1).await {
            Ok(connection) => {
                number += 1;
                if said.take().is_some() || number == 1 {
                    tracing::info!("Redis is there");
                }
                let since = Instant::now();
                shared.present.send_replace(Present::Up { connection: connection.clone(), number });
                tokio::select! {
                    // The sender is in `shared`, so the channel is open.
                    _open = present.wait_for(|present| matches!(present, Present::Away(_))) => {}
                    () = shared.look_after(connection, number) => {}
                }
                if since.elapsed() >= STEADY_AFTER {
                    pause.reset();
                }
            }
            Err(trouble) => {
                shared.present.send_if_modified(|present| {
                    let other = !matches!(present, Present::Away(known) if *known == trouble);
                    *present = Present::Away(trouble);
                    other
                });
                // Once for each way of being away, not for each attempt.
                if said.replace(trouble) != Some(trouble) {
                    tracing::warn!(%trouble, "Redis is away; this replica keeps its own state until it is back");
                }
            }
        }
        tokio::time::sleep(pause.next_pause()).await;
    }
}

/// Called by the connection for everything that is no answer. Must not wait.
fn take(push: PushInfo, words: &mpsc::Sender<ChannelMessage>) {
    let Some(message) = Msg::from_push_info(push) else { return };
    let heard = ChannelMessage {
        channel: message.get_channel_name().to_owned(),
        payload: message.get_payload_bytes().to_vec(),
    };
    // LINK-2.
    let _full = words.try_send(heard);
}

/// What an error means for whoever called.
pub(super) fn classified(error: &RedisError) -> RedisTrouble {
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => RedisTrouble::Denied,
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType | ErrorKind::RESP3NotSupported => RedisTrouble::Garbled,
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain,
        ) => RedisTrouble::NotServing,
        _ => match error.code() {
            Some("OOM") => RedisTrouble::Full,
            Some("NOAUTH" | "WRONGPASS") => RedisTrouble::Denied,
            Some("BUSY" | "NOREPLICAS" | "MISCONF") => RedisTrouble::NotServing,
            Some(_) => RedisTrouble::Garbled,
            None => RedisTrouble::Unreachable,
        },
    }
}

// --------------------------------------------------------------------------------------------------------------- about

/// What a server says about itself.
pub(super) struct About(String);

impl About {
    pub(super) async fn ask(connection: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        Ok(Self(::redis::cmd("INFO").arg("server").arg("memory").query_async(connection).await?))
    }

    pub(super) fn version(&self) -> Option<&str> {
        self.field("redis_version")
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.field("redis_mode") == Some("cluster")
    }

    /// Is it older than what is tested?
    pub(super) fn is_old(&self) -> bool {
        let major = self.version().and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        major.is_some_and(|major| major < MAJOR_MIN)
    }

    /// The policy by which it throws keys away when it is full, if it does. X-42: that is an open breaker or a used-up limit.
    pub(super) fn throws_away(&self) -> Option<&str> {
        let policy = self.field("maxmemory_policy").filter(|policy| *policy != "noeviction")?;
        self.field("maxmemory").is_some_and(|bytes| bytes != "0").then_some(policy)
    }

    /// Says what an operator should know about the server. It is used all the same.
    fn look_over(&self) {
        if self.is_old() {
            tracing::warn!("this Redis is older than {MAJOR_MIN}, which is the oldest that is tested");
        }
        if let Some(policy) = self.throws_away() {
            tracing::warn!(policy, "this Redis throws keys away when it is full; give Gantry one with `noeviction`");
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }
}
