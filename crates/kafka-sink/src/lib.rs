//! The Kafka sink of the audit log.
