//! Finds what must not be seen, and puts words in its place: personal data and secrets, in text and in JSON.
//!
//! One engine serves everything that writes: audit, logs, tickets, traces, and results whose output policy asks for it. It is
//! pure: a text goes in, places come out, the same every time. Three kinds of knowledge meet in it:
//!
//! - *shapes*: e-mail addresses, telephone numbers, cards, accounts, addresses of machines, keys of known providers;
//! - *names*: `password = …`, `{"apiKey": …}`, whatever the value looks like;
//! - *values* that somebody hands in because they are secret.
//!
//! Invariants: every byte is looked at a bounded number of times, so the time is linear in the text; what was redacted stays
//! as it is when redacted again; a value that cannot be redacted is an error, never passed on as it was.
//!
//! Not here: where text comes from or goes to, and the removal of secrets from a stream in pieces (`executors`).

mod addresses;
mod boundary;
mod description;
mod document;
mod email;
mod embedded;
mod engine;
mod findings;
mod iban;
mod json_in_text;
mod loose_members;
#[cfg(feature = "measure")]
pub mod measure;
mod name_facts;
mod names;
mod normalised_name;
mod numbers;
mod secrets;

pub use description::{ValueDescription, ValuePart};
pub use document::RedactionError;
pub use engine::{AdditionsError, RedactionAdditions, RedactionEngine};
pub use findings::{REDACTED, RedactionFinding, RedactionKind};
pub use names::{is_sensitive, words};
