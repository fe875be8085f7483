//! What is counted of the archive of audit records that instances share.
//!
//! Not here: what one instance brings there and how far it is behind, which is counted as a sink of its log
//! (`sink="record_archive"`).

use base::SaturatingFrom as _;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::{self, InstrumentRegistry};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TableLabel {
    table: &'static str,
}

/// Counters and gauges of the archive.
#[derive(Debug)]
pub struct ArchiveMetrics {
    dropped: Family<TableLabel, Counter>,
    records: Gauge,
    months: Gauge,
}

impl ArchiveMetrics {
    pub(crate) fn new(registry: &mut InstrumentRegistry) -> Self {
        Self {
            dropped: registry.made(&instruments::ARCHIVE_MONTHS_DROPPED),
            records: registry.made(&instruments::ARCHIVE_RECORDS),
            months: registry.made(&instruments::ARCHIVE_MONTHS),
        }
    }

    /// A month of a table was dropped.
    pub fn dropped(&self, table: &'static str) {
        self.dropped.get_or_create(&TableLabel { table }).inc();
    }

    /// So much is there.
    pub fn stands(&self, records: u64, months: usize) {
        self.records.set(i64::saturating_from(records));
        self.months.set(i64::saturating_from(months));
    }
}
