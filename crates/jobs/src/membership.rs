//! The instances that work as one: each says what it is, again and again, and everybody can tell who is there.
//!
//! An instance is told of under a name that is new at every start, with its role, its release and the shape of the store that
//! this release knows. Two shapes at once are how a rolling upgrade looks; it is said once, and shown until it is over.
//!
//! Invariants
//! - MEMBER-1: an instance always knows of itself, also when nobody else can be asked.
//! - MEMBER-2: a word that cannot be read, of a release to come for example, is left out and hurts nobody.
//!
//! Not here: where it is kept (`ports::presence`), who may look (`administration`).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{MutexExt as _, SaturatingFrom as _};
use ports::clock::{Clock, UnixMillis};
use ports::presence::{Presence, PresenceError, PresentReplica};
use serde::{Deserialize, Serialize};

/// How often an instance says that it is there.
pub const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);
/// How long a word holds: a few may be lost before an instance counts as gone.
pub const PRESENT_FOR: Duration = Duration::from_secs(20);
/// How long whoever keeps this may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Shapes of the store that are remembered as said; there are as many as releases at work at once.
const SAID_MAX: usize = 64;

/// What an instance is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceRole {
    /// It takes calls, and does jobs.
    Serve,
    /// It does jobs.
    Worker,
}

impl InstanceRole {
    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Worker => "worker",
        }
    }
}

/// What an instance says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceMember {
    /// New at every start.
    pub id: String,
    pub role: InstanceRole,
    /// Of the program.
    pub version: String,
    /// The kind of store and the newest shape of it that the program knows.
    pub schema: String,
    /// Where it listens.
    pub address: String,
    /// Milliseconds since 1970, by its own clock.
    pub started_ms: i64,
}

/// An instance that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenMember {
    pub member: InstanceMember,
    pub seen_at: UnixMillis,
    /// Is it the one that was asked?
    pub is_self: bool,
}

/// Everybody who is there, as far as one can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberList {
    pub members: Vec<SeenMember>,
    /// Only this instance and who was there before are known: nobody could be asked.
    pub is_stale: bool,
}

/// This instance among the others.
pub struct Membership {
    me: InstanceMember,
    presence: Arc<dyn Presence>,
    clock: Arc<dyn Clock>,
    last: Mutex<Vec<SeenMember>>,
    said: Mutex<BTreeSet<String>>,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Membership {
    /// This instance. Nobody has been told yet.
    pub fn new(me: InstanceMember, presence: Arc<dyn Presence>, clock: Arc<dyn Clock>) -> Self {
        Self { me, presence, clock, last: Mutex::default(), said: Mutex::default() }
    }

    /// What this instance says of itself.
    pub fn me(&self) -> &InstanceMember {
        &self.me
    }

    /// Says so, and looks who else is there, until it is dropped.
    pub async fn keep(&self) {
        let mut heard = true;
        loop {
            let answered = self.announce(PRESENT_FOR).await.is_ok() && !self.roll().await.is_stale;
            if heard != answered {
                heard = answered;
                let there = if heard { "can be asked again" } else { "cannot be asked at the moment" };
                tracing::info!("who else is there {there}");
            }
            self.clock.sleep(ANNOUNCE_EVERY).await;
        }
    }

    /// Says farewell, so that nobody waits for the next word.
    pub async fn leave(&self) {
        if let Err(error) = self.announce(Duration::ZERO).await {
            tracing::debug!(%error, "the others will notice by themselves that this instance is gone");
        }
    }

    async fn announce(&self, ttl: Duration) -> Result<(), PresenceError> {
        let word = serde_json::to_string(&self.me).map_err(|error| PresenceError(Box::new(error)))?;
        self.in_time(self.presence.announce(&self.me.id, &word, ttl)).await
    }

    async fn in_time<T>(&self, asked: impl Future<Output = Result<T, PresenceError>>) -> Result<T, PresenceError> {
        tokio::select! {
            answer = asked => answer,
            () = self.clock.sleep(ANSWER_MAX) => Err(PresenceError("no answer in time".into())),
        }
    }

    /// Who is there.
    pub async fn roll(&self) -> MemberList {
        let asked = self.in_time(self.presence.present()).await;
        let is_stale = asked.is_err();
        let mut members = match asked {
            Ok(present) => present.iter().filter_map(|present| self.read(present)).collect(),
            Err(_) => self.last().clone(),
        };
        if !members.iter().any(|seen| seen.is_self) {
            members.push(SeenMember { member: self.me.clone(), seen_at: self.clock.now(), is_self: true });
        }
        members.sort_by(|one, other| one.member.id.cmp(&other.member.id));
        self.say_other_shapes(&members);
        self.last().clone_from(&members);
        MemberList { members, is_stale }
    }

    /// Do all that were there at the last look know the same shape of the store?
    pub fn is_of_one_shape(&self) -> bool {
        self.last().iter().all(|seen| seen.member.schema == self.me.schema)
    }

    fn read(&self, present: &PresentReplica) -> Option<SeenMember> {
        let member: InstanceMember = serde_json::from_str(&present.word).ok()?;
        let seen_at = UnixMillis(i64::saturating_from(present.seen_ms));
        // The name that it was announced under counts, not the one in the word.
        let is_self = present.replica == self.me.id;
        (member.id == present.replica).then_some(SeenMember { member, seen_at, is_self })
    }

    /// Once for each shape.
    fn say_other_shapes(&self, members: &[SeenMember]) {
        let mut said = self.said.lock_unpoisoned();
        for other in members.iter().map(|seen| &seen.member).filter(|member| member.schema != self.me.schema) {
            if said.len() < SAID_MAX && said.insert(other.schema.clone()) {
                tracing::warn!(
                    instance = other.id,
                    version = other.version,
                    theirs = other.schema,
                    ours = self.me.schema,
                    "another instance knows another shape of the store: bring all to one release"
                );
            }
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Vec<SeenMember>> {
        self.last.lock_unpoisoned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Noon for ever, and no wait ends: who is asked answers at once or has failed.
    #[derive(Debug)]
    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> UnixMillis {
            UnixMillis(1_800_000_000_000)
        }
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
        fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
            Box::pin(std::future::pending())
        }
    }

    #[derive(Debug, Default)]
    struct Board {
        words: Mutex<BTreeMap<String, String>>,
        is_away: AtomicBool,
    }

    #[async_trait::async_trait]
    impl Presence for Board {
        async fn announce(&self, instance: &str, word: &str, ttl: Duration) -> Result<(), PresenceError> {
            let mut words = self.words.lock().unwrap();
            if ttl.is_zero() {
                words.remove(instance);
            } else {
                words.insert(instance.to_owned(), word.to_owned());
            }
            Ok(())
        }
        async fn present(&self) -> Result<Vec<PresentReplica>, PresenceError> {
            if self.is_away.load(Ordering::Relaxed) {
                return Err(PresenceError("away".into()));
            }
            let words = self.words.lock().unwrap();
            let present = |(replica, word): (&String, &String)| PresentReplica {
                replica: replica.clone(),
                word: word.clone(),
                seen_ms: 7,
            };
            Ok(words.iter().map(present).collect())
        }
    }

    fn member(board: &Arc<Board>, id: &str, schema: &str) -> Membership {
        let me = InstanceMember {
            id: id.to_owned(),
            role: InstanceRole::Serve,
            version: "1.0.0".to_owned(),
            schema: schema.to_owned(),
            address: "http://127.0.0.1:7300".to_owned(),
            started_ms: 1,
        };
        Membership::new(me, Arc::clone(board) as _, Arc::new(Noon))
    }

    fn ids(roll: &MemberList) -> Vec<(&str, bool)> {
        roll.members.iter().map(|seen| (seen.member.id.as_str(), seen.is_self)).collect()
    }

    #[tokio::test]
    async fn everybody_who_said_so_is_there_until_they_leave() {
        let board = Arc::new(Board::default());
        let (one, other) = (member(&board, "a", "postgres/1"), member(&board, "b", "postgres/1"));
        assert_eq!(ids(&one.roll().await), [("a", true)], "MEMBER-1: before it has said so");
        one.announce(PRESENT_FOR).await.unwrap();
        other.announce(PRESENT_FOR).await.unwrap();
        assert_eq!(ids(&one.roll().await), [("a", true), ("b", false)]);
        assert!(one.is_of_one_shape());
        other.leave().await;
        assert_eq!(ids(&one.roll().await), [("a", true)]);
    }

    #[tokio::test]
    async fn who_was_there_is_remembered_while_nobody_can_be_asked() {
        let board = Arc::new(Board::default());
        let (one, other) = (member(&board, "a", "postgres/1"), member(&board, "b", "postgres/1"));
        one.announce(PRESENT_FOR).await.unwrap();
        other.announce(PRESENT_FOR).await.unwrap();
        assert!(!one.roll().await.is_stale);
        board.is_away.store(true, Ordering::Relaxed);
        let roll = one.roll().await;
        assert_eq!((ids(&roll), roll.is_stale), (vec![("a", true), ("b", false)], true));
    }

    #[tokio::test]
    async fn another_shape_of_the_store_is_noticed_and_words_that_cannot_be_read_are_not() {
        let board = Arc::new(Board::default());
        let (one, other) = (member(&board, "a", "postgres/1"), member(&board, "b", "postgres/2"));
        one.announce(PRESENT_FOR).await.unwrap();
        for (id, word) in [("c", "10.0.0.1:7300"), ("d", "{}"), ("e", "")] {
            board.announce(id, word, PRESENT_FOR).await.unwrap();
        }
        // Somebody else's word under another name.
        let lent = serde_json::to_string(other.me()).unwrap();
        board.announce("f", &lent, PRESENT_FOR).await.unwrap();
        assert_eq!(ids(&one.roll().await), [("a", true)]);
        assert!(one.is_of_one_shape());
        other.announce(PRESENT_FOR).await.unwrap();
        assert_eq!(one.roll().await.members.len(), 2);
        assert!(!one.is_of_one_shape());
        assert_eq!(one.said.lock().unwrap().len(), 1);
    }
}
