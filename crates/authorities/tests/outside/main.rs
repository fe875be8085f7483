//! The adapters against real servers on this machine: what they send, what they accept, and that every fault is a no.
//!
//! One program for all of them, because linking it is what takes the time.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test crate")]

mod authority;
mod did_web;
mod engines;
mod key_sets;
mod manual_clock;
