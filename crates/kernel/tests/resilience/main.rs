//! Breakers, windows, limits and retries as pure machines: the 56 cases of the yardstick by their ids, and properties.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test crate")]

mod breaker_cases;
mod reference_model;
mod retry_cases;
mod settings_cases;
mod window_cases;
