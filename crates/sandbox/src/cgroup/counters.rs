//! What a group has counted, from files that are open: they can be read by a process that has given every right up, and
//! without looking for them again when somebody waits.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use crate::wire::GroupUsage;

/// Longest of these files that is read; they are a few lines.
const FILE_BYTES_MAX: usize = 4096;

/// The counters of one group, each absent where there is none.
#[derive(Debug, Default)]
pub(crate) struct CgroupCounters {
    pub(super) cpu: Option<Counter>,
    pub(super) memory_peak: Option<Counter>,
    pub(super) oom_kills: Option<Counter>,
    pub(super) pids_refused: Option<Counter>,
    /// Events of those who had the group before: the kernel does not forget them.
    pub(super) oom_kills_before: u64,
    pub(super) pids_refused_before: u64,
    /// The unit of the processor's counter in microseconds is one in so many.
    pub(super) cpu_per_micro: u64,
}

/// A file with a number in it.
#[derive(Debug)]
pub(super) struct Counter {
    file: OwnedFd,
    /// The word before the number, if the file has several.
    word: Option<&'static str>,
}

impl Counter {
    pub(super) fn open(dir: &Path, file: &str, word: Option<&'static str>) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, dir.join(file), flags, Mode::empty()).ok()?;
        Some(Self { file, word })
    }

    fn read(&self) -> Option<u64> {
        let mut buffer = [0; FILE_BYTES_MAX];
        let count = rustix::io::pread(&self.file, &mut buffer, 0).ok()?;
        let text = std::str::from_utf8(buffer.get(..count)?).ok()?;
        match self.word {
            None => text.trim().parse().ok(),
            Some(word) => super::files::number_beside(text, word),
        }
    }
}

impl CgroupCounters {
    /// Microseconds of the processor, of all who were ever in the group.
    pub(crate) fn cpu_micros(&self) -> Option<u64> {
        self.cpu.as_ref()?.read().map(|count| count / self.cpu_per_micro.max(1))
    }

    pub(crate) fn usage(&self) -> GroupUsage {
        let read = |counter: &Option<Counter>| counter.as_ref().and_then(Counter::read);
        GroupUsage {
            cpu_micros: self.cpu_micros(),
            memory_peak_bytes: read(&self.memory_peak),
            oom_kills: read(&self.oom_kills).unwrap_or(0).saturating_sub(self.oom_kills_before),
            pids_refused: read(&self.pids_refused).unwrap_or(0).saturating_sub(self.pids_refused_before),
            cpu_overruns: 0,
        }
    }
}
