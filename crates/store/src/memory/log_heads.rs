//! `LogHeads` without durability: the newest head by the name of its log.

use std::collections::BTreeMap;

use async_trait::async_trait;
use base::MutexExt as _;
use ports::log_heads::{HEADS_MAX, HeadReport, LogHead, LogHeads};
use ports::registry_store::StoreError;

use super::MemoryStore;

/// By origin.
pub(super) type Heads = BTreeMap<String, LogHead>;

#[async_trait]
impl LogHeads for MemoryStore {
    async fn tell(&self, head: &LogHead) -> Result<HeadReport, StoreError> {
        let mut heads = self.log_heads.lock_unpoisoned();
        Ok(match heads.get(&head.origin) {
            Some(kept) if kept.size == head.size && kept.root == head.root => HeadReport::Known,
            Some(kept) if kept.size >= head.size => HeadReport::Contradicted(kept.clone()),
            _ => {
                heads.insert(head.origin.clone(), head.clone());
                HeadReport::Kept
            }
        })
    }

    async fn heads(&self) -> Result<Vec<LogHead>, StoreError> {
        let heads = self.log_heads.lock_unpoisoned();
        Ok(heads.values().take(HEADS_MAX).cloned().collect())
    }
}
