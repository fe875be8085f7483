//! Instances as witnesses of each other: each tells the others how far its audit log has come, and writes down in its own how
//! far theirs have. Only with a store that instances share.
//!
//! What is written down makes a log longer, and that again is new to the others: so growth by one record is not worth a
//! record, and a quiet installation falls silent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use audit::{FileLog, SignedHead};
use ports::clock::Clock;
use ports::log_heads::{HeadReport, LogHead, LogHeads};
use tokio::task::JoinHandle;

use super::assembly::KernelAssembly;

/// How often heads are told and read.
const EVERY: Duration = Duration::from_secs(10);
/// Another log has to grow by so many records before it is written down again.
const GROWTH_MIN: u64 = 2;
/// Heads of other logs in one record. Others have their turn in the next.
const HEADS_AT_ONCE_MAX: usize = 64;

/// Tells and writes down until it is aborted.
pub(super) fn keep(assembly: &KernelAssembly, log: Arc<FileLog>) -> Option<JoinHandle<()>> {
    let heads = assembly.store.log_heads()?;
    let clock = Arc::clone(&assembly.clock) as Arc<dyn Clock>;
    Some(tokio::spawn(async move {
        let mut keeper = HeadKeeper { heads, log, written: BTreeMap::new(), contradicted: false };
        loop {
            if let Err(error) = keeper.round().await {
                tracing::warn!(error = &*error, "audit logs of other instances are not witnessed at the moment");
            }
            clock.sleep(EVERY).await;
        }
    }))
}

struct HeadKeeper {
    heads: Arc<dyn LogHeads>,
    log: Arc<FileLog>,
    /// How far other logs had come when they were written down here.
    written: BTreeMap<String, u64>,
    /// It was said that this log contradicts what was told of it before.
    contradicted: bool,
}

type Trouble = Box<dyn std::error::Error + Send + Sync>;

impl HeadKeeper {
    async fn round(&mut self) -> Result<(), Trouble> {
        let own = SignedHead::of(&self.log.checkpoint().await?)?;
        let origin = own.origin.clone();
        if let HeadReport::Contradicted(kept) = self.heads.tell(&told(own)).await?
            && !std::mem::replace(&mut self.contradicted, true)
        {
            tracing::error!(
                records = kept.size,
                "AUDIT_LOG_ROLLED_BACK: this log has told the other instances of another history; \
                 `gantry audit verify --against` shows where they part"
            );
        }
        let fresh = self.heads.heads().await?.into_iter().filter(|head| head.origin != origin && self.is_new(head));
        let fresh: Vec<SignedHead> = fresh.take(HEADS_AT_ONCE_MAX).map(seen).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let sizes: Vec<_> = fresh.iter().map(|head| (head.origin.clone(), head.size)).collect();
        self.log.bear_witness(fresh).await?;
        self.written.extend(sizes);
        Ok(())
    }

    fn is_new(&self, head: &LogHead) -> bool {
        self.written.get(&head.origin).is_none_or(|written| head.size >= written.saturating_add(GROWTH_MIN))
    }
}

fn told(SignedHead { origin, size, root, note }: SignedHead) -> LogHead {
    LogHead { origin, size, root, note }
}

fn seen(LogHead { origin, size, root, note }: LogHead) -> SignedHead {
    SignedHead { origin, size, root, note }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ports::entropy::Entropy;
    use store::memory::MemoryStore;

    use super::*;
    use crate::machine::{OsEntropy, SystemClock};

    fn log_in(folder: &Path) -> Arc<FileLog> {
        let clock = Arc::new(SystemClock::start()) as Arc<dyn Clock>;
        let entropy = Arc::new(OsEntropy::open().unwrap()) as Arc<dyn Entropy>;
        let options = audit::LogOptions::new(folder.join("audit.key"), clock, entropy);
        Arc::new(FileLog::open(&folder.join("audit"), &options).unwrap())
    }

    fn keeper(heads: &Arc<MemoryStore>, log: &Arc<FileLog>) -> HeadKeeper {
        let heads = Arc::clone(heads) as Arc<dyn LogHeads>;
        HeadKeeper { heads, log: Arc::clone(log), written: BTreeMap::new(), contradicted: false }
    }

    #[tokio::test]
    async fn logs_are_written_down_in_each_other_and_then_fall_silent() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let logs = folders.each_ref().map(|folder| log_in(folder.path()));
        let heads = Arc::new(MemoryStore::new());
        let mut keepers = logs.each_ref().map(|log| keeper(&heads, log));
        for _ in 0..10 {
            for keeper in &mut keepers {
                keeper.round().await.unwrap();
            }
        }
        // Each has begun, and has written down the other; what follows from that is not new.
        assert!(logs.iter().all(|log| (2..=3).contains(&log.size())), "{:?}", logs.each_ref().map(|log| log.size()));
        let [one, other] = folders.each_ref().map(|folder| folder.path().join("audit"));
        for (of, by) in [(&one, &other), (&other, &one)] {
            let origin = audit::log_of_dir(of).unwrap().unwrap();
            assert!(!audit::heads_of(&origin, by).unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn a_log_that_was_made_anew_under_its_name_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let log = log_in(folder.path());
        let heads = Arc::new(MemoryStore::new());
        let own = SignedHead::of(&log.checkpoint().await.unwrap()).unwrap();
        heads.tell(&told(SignedHead { size: own.size + 5, ..own })).await.unwrap();
        let mut keeper = keeper(&heads, &log);
        keeper.round().await.unwrap();
        assert!(keeper.contradicted);
    }
}
