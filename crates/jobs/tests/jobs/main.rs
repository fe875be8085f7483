//! Jobs and webhooks on a kernel whose surroundings are held in the test's hand (`test_kernel`).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test crate")]

mod jobs;
mod resolution;
mod webhooks;
