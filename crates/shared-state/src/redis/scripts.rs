//! The scripts, read from their files when the program is built, each with the clock before it.
//!
//! They are sent by their digest; a server that does not know one is told its text. Invariant: a script names every key
//! that it touches, and all of them have one hash tag.

use std::sync::atomic::{AtomicU64, Ordering};

use ::redis::{Script, ScriptInvocation};

/// Makes the server look at its state before the script and not at each write: one that has no memory left, or is no
/// master, refuses the whole step.
pub(super) const STRICT: &str = "#!lua\n";

/// All of them.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) breaker: Script,
    pub(super) index: Script,
    pub(super) take: Script,
    pub(super) count: Script,
    pub(super) value: Script,
    pub(super) presence: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        let with_clock = |text: &str| Script::new(&format!("{STRICT}{}{text}", include_str!("scripts/clock.lua")));
        let lenient = |text: &str| Script::new(&format!("{}{text}", include_str!("scripts/clock.lua")));
        Self {
            breaker: with_clock(include_str!("scripts/breaker.lua")),
            index: with_clock(include_str!("scripts/index.lua")),
            take: with_clock(include_str!("scripts/take.lua")),
            count: with_clock(include_str!("scripts/count.lua")),
            // A server that is full can still be read from; what would write is refused by the write.
            value: lenient(include_str!("scripts/value.lua")),
            presence: with_clock(include_str!("scripts/presence.lua")),
        }
    }
}

/// The time of every step: the server's own, or one that a test holds still.
#[derive(Debug, Default)]
pub(super) struct StepClock(AtomicU64);

impl StepClock {
    /// Microseconds since the Unix epoch; zero: the server's.
    #[cfg(feature = "conformance")]
    pub(super) fn hold(&self, micros: u64) {
        self.0.store(micros, Ordering::Release);
    }

    /// Begins a script with it.
    pub(super) fn begin<'s>(&self, script: &'s Script) -> ScriptInvocation<'s> {
        match self.0.load(Ordering::Acquire) {
            0 => script.arg(""),
            micros => script.arg(micros),
        }
    }
}
