//! Writes of one kind that many callers want at once, in one transaction: while one is on its way, the next ones gather.
//!
//! ```text
//!  caller ─▶ queue ─▶ writer takes all that waits ─▶ one transaction ─▶ each caller hears: done, or "by yourself"
//!                       ╰ at most a few at once; each ends when nothing waits
//! ```
//!
//! A transaction costs its parsing, its planning and one sync of the disk, however many rows it has. A caller that is alone waits
//! for nobody; under load hundreds share what one had to pay.
//!
//! Only what goes without saying is written together. What needs a second look (a key that somebody has) is left to its
//! caller, who then goes the long way alone; so does everybody of a group in which one row was refused.
//!
//! Invariants
//! - GROUP-1: nobody hears "done" before the commit.
//! - GROUP-2: a row that is refused harms nobody but its caller.
//! - GROUP-3: every wait is bounded: for a place in the queue, in the queue, and for the database.
//! - GROUP-4: what was written, or may have been, and nobody heard of it, is told to its kind.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use tokio::sync::{Semaphore, oneshot};

use super::faults::{Busy, Fault};

/// Most pieces of work that wait. At the limit a caller waits as long as for a connection.
const QUEUE_MAX: usize = 1_024;
/// Most pieces of work in one transaction.
const GROUP_MAX: usize = 256;
/// Most transactions of one kind at once. A second one, so that the processor works on one while the disk does on the other.
const WRITERS_MAX: usize = 2;

/// A kind of work.
#[async_trait]
pub(super) trait Kind: fmt::Debug + Send + Sync + 'static {
    type Job: Send + Sync + 'static;

    /// Writes what can be written, durably or not at all. Says of each, in their order, whether it was; if not, its caller sees
    /// to it alone.
    async fn write(&self, jobs: &[Self::Job]) -> Result<Vec<bool>, Fault>;

    /// It was written, or may have been or yet be, and nobody hears that it was (GROUP-4).
    fn unheard(&self, _job: Self::Job) {}
}

/// Gathers work of one kind.
pub(super) struct Together<K: Kind>(Arc<Shared<K>>);

struct Shared<K: Kind> {
    kind: K,
    queue: Mutex<Queue<K::Job>>,
    places: Semaphore,
    wait_max: Duration,
}

struct Queue<J> {
    waiting: VecDeque<Waiting<J>>,
    /// Names what is queued next.
    next: u64,
    writers: usize,
}

struct Waiting<J> {
    name: u64,
    job: J,
    reply: oneshot::Sender<Result<bool, Fault>>,
}

impl<K: Kind> Together<K> {
    /// `wait_max`: how long work may wait before a writer takes it.
    pub(super) fn new(kind: K, wait_max: Duration) -> Self {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), next: 0, writers: 0 });
        Self(Arc::new(Shared { kind, queue, places: Semaphore::new(QUEUE_MAX), wait_max }))
    }

    /// Writes it with what others want at the moment. `false`: it was not, and has to be seen to alone.
    ///
    /// Dropping the future calls nothing back that a writer has taken.
    pub(super) async fn write(&self, job: K::Job) -> Result<bool, Fault> {
        let shared = &self.0;
        let place = tokio::time::timeout(shared.wait_max, shared.places.acquire()).await;
        let _place = place.map_err(|_| Busy::ConnectionsTaken)?.map_err(|_| Busy::Closed)?;
        let (reply, mut answer) = oneshot::channel();
        let name = shared.enter(job, reply);
        let heard = match tokio::time::timeout(shared.wait_max, &mut answer).await {
            Ok(heard) => heard,
            Err(_) if shared.withdraw(name) => return Err(Busy::ConnectionsTaken.into()),
            // A writer has it, and is bounded by what the database may take.
            Err(_) => answer.await,
        };
        heard.unwrap_or_else(|_| Err(Busy::Closed.into()))
    }
}

impl<K: Kind> Shared<K> {
    /// Queues it, and sets a writer to work if there may be one more.
    fn enter(self: &Arc<Self>, job: K::Job, reply: oneshot::Sender<Result<bool, Fault>>) -> u64 {
        let mut queue = self.queue();
        let name = queue.next;
        queue.next = name.wrapping_add(1);
        queue.waiting.push_back(Waiting { name, job, reply });
        if queue.writers < WRITERS_MAX {
            queue.writers += 1;
            tokio::spawn(Writer { shared: Arc::clone(self), counts: true }.run());
        }
        name
    }

    /// Takes it out of the queue; `false` if a writer was quicker.
    fn withdraw(&self, name: u64) -> bool {
        let mut queue = self.queue();
        let before = queue.waiting.len();
        queue.waiting.retain(|waiting| waiting.name != name);
        queue.waiting.len() < before
    }

    async fn write(&self, group: Vec<Waiting<K::Job>>) {
        let (jobs, replies): (Vec<_>, Vec<_>) = group.into_iter().map(|waiting| (waiting.job, waiting.reply)).unzip();
        match self.kind.write(&jobs).await {
            Ok(done) => {
                for ((job, reply), done) in jobs.into_iter().zip(replies).zip(done) {
                    if reply.send(Ok(done)).is_err() && done {
                        self.kind.unheard(job);
                    }
                }
            }
            // Somebody's row; whose, each finds out alone (GROUP-2).
            Err(fault) if jobs.len() > 1 && fault.may_be_of_one_row() => {
                for reply in replies {
                    // Who went away wants nothing more.
                    let _gone = reply.send(Ok(false));
                }
            }
            Err(fault) => {
                let fault = Arc::new(fault);
                for (job, reply) in jobs.into_iter().zip(replies) {
                    if fault.leaves_doubt() {
                        self.kind.unheard(job);
                    }
                    let _gone = reply.send(Err(Fault::Shared(Arc::clone(&fault))));
                }
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<K::Job>> {
        self.queue.lock_unpoisoned()
    }
}

/// One that writes until nothing waits.
struct Writer<K: Kind> {
    shared: Arc<Shared<K>>,
    /// Is it among those that are counted?
    counts: bool,
}

impl<K: Kind> Writer<K> {
    async fn run(mut self) {
        while let Some(group) = self.next() {
            if !group.is_empty() {
                self.shared.write(group).await;
            }
        }
    }

    /// What is written next, without those who went away; none if nothing waits, and then this is a writer no more: under one
    /// lock, so that whoever enters afterwards finds room for another.
    fn next(&mut self) -> Option<Vec<Waiting<K::Job>>> {
        let mut queue = self.shared.queue();
        if queue.waiting.is_empty() {
            queue.writers = queue.writers.saturating_sub(1);
            self.counts = false;
            return None;
        }
        let most = queue.waiting.len().min(GROUP_MAX);
        Some(queue.waiting.drain(..most).filter(|waiting| !waiting.reply.is_closed()).collect())
    }
}

/// However it ends, there is room for another.
impl<K: Kind> Drop for Writer<K> {
    fn drop(&mut self) {
        if self.counts {
            let mut queue = self.shared.queue();
            queue.writers = queue.writers.saturating_sub(1);
        }
    }
}

impl<K: Kind> fmt::Debug for Together<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.0.queue().waiting.len();
        f.debug_struct("Together").field("kind", &self.0.kind).field("waiting", &waiting).finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Writes when it is let, and notes what.
    #[derive(Debug, Default)]
    struct Notes {
        let_go: Notify,
        groups: Mutex<Vec<Vec<u32>>>,
        unheard: Mutex<Vec<u32>>,
    }

    #[derive(Debug)]
    struct OfNotes(Arc<Notes>);

    #[async_trait]
    impl Kind for OfNotes {
        type Job = u32;

        async fn write(&self, jobs: &[u32]) -> Result<Vec<bool>, Fault> {
            self.0.groups.lock().unwrap().push(jobs.to_vec());
            self.0.let_go.notified().await;
            if jobs.contains(&13) {
                return Err(Busy::NoAnswer.into());
            }
            Ok(jobs.iter().map(|job| job % 2 == 0).collect())
        }

        fn unheard(&self, job: u32) {
            self.0.unheard.lock().unwrap().push(job);
        }
    }

    struct WriteQueue {
        notes: Arc<Notes>,
        together: Arc<Together<OfNotes>>,
    }

    impl WriteQueue {
        fn open(wait_max: Duration) -> Self {
            let notes = Arc::<Notes>::default();
            Self { together: Arc::new(Together::new(OfNotes(Arc::clone(&notes)), wait_max)), notes }
        }

        fn ask(&self, job: u32) -> tokio::task::JoinHandle<Result<bool, Fault>> {
            let together = Arc::clone(&self.together);
            tokio::spawn(async move { together.write(job).await })
        }

        /// Two that have a writer each.
        async fn both(&self) -> [tokio::task::JoinHandle<Result<bool, Fault>>; 2] {
            let first = self.ask(0);
            self.settle().await;
            let second = self.ask(2);
            self.settle().await;
            [first, second]
        }

        /// Lets everybody who can go as far as they can.
        async fn settle(&self) {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }

        fn groups(&self) -> Vec<Vec<u32>> {
            self.notes.groups.lock().unwrap().clone()
        }
    }

    #[tokio::test]
    async fn what_comes_while_others_are_written_goes_together_and_each_hears_its_own() {
        let desk = WriteQueue::open(LONG);
        let mut asked = Vec::new();
        for job in 0..10 {
            asked.push(desk.ask(job));
            desk.settle().await;
        }
        assert_eq!(desk.groups(), [vec![0], vec![1]], "the first two have a writer each, the others wait");
        for _ in 0..3 {
            desk.notes.let_go.notify_one();
            desk.settle().await;
        }
        assert_eq!(desk.groups(), [vec![0], vec![1], (2..10).collect()]);
        for (job, asked) in (0..).zip(asked) {
            assert_eq!(asked.await.unwrap().unwrap(), job % 2 == 0, "{job}");
        }
        assert_eq!(desk.together.0.queue().writers, 0, "nobody stays who has nothing to write");
        let again = desk.ask(20);
        desk.settle().await;
        desk.notes.let_go.notify_one();
        assert!(again.await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn what_is_in_doubt_is_told_to_everybody_and_to_its_kind() {
        let desk = WriteQueue::open(LONG);
        let first = desk.both().await;
        let doubtful = [desk.ask(12), desk.ask(13)];
        desk.settle().await;
        for _ in 0..3 {
            desk.notes.let_go.notify_one();
            desk.settle().await;
        }
        for asked in first {
            assert!(asked.await.unwrap().unwrap());
        }
        for asked in doubtful {
            let fault = asked.await.unwrap().unwrap_err();
            assert!(fault.leaves_doubt(), "{fault:?}");
        }
        assert_eq!(*desk.notes.unheard.lock().unwrap(), [12, 13]);
    }

    #[tokio::test]
    async fn who_goes_away_before_is_left_out_and_after_is_told_to_its_kind() {
        let desk = WriteQueue::open(LONG);
        let taken = desk.both().await;
        let waiting = desk.ask(4);
        desk.settle().await;
        for asked in taken.iter().chain([&waiting]) {
            asked.abort();
        }
        desk.settle().await;
        for _ in 0..2 {
            desk.notes.let_go.notify_one();
            desk.settle().await;
        }
        assert_eq!(desk.groups(), [vec![0], vec![2]], "what nobody wants is not written");
        assert_eq!(*desk.notes.unheard.lock().unwrap(), [0, 2]);
    }

    #[tokio::test]
    async fn nobody_waits_longer_for_a_writer_than_for_a_connection() {
        let desk = WriteQueue::open(Duration::from_millis(20));
        let taken = desk.both().await;
        let fault = desk.ask(4).await.unwrap().unwrap_err();
        assert!(matches!(fault, Fault::Busy(Busy::ConnectionsTaken)), "{fault:?}");
        assert!(!fault.leaves_doubt(), "it was surely not written");
        for _ in 0..2 {
            desk.notes.let_go.notify_one();
            desk.settle().await;
        }
        // Those that a writer had are waited for.
        for asked in taken {
            assert!(asked.await.unwrap().unwrap());
        }
        assert_eq!(desk.groups(), [vec![0], vec![2]]);
    }
}
