//! How far a store has been migrated.

/// The steps of a store's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaSteps {
    /// Those it has taken.
    pub taken: u32,
    /// Those this program knows.
    pub known: u32,
}

impl SchemaSteps {
    /// Those that are missing.
    pub fn missing(self) -> u32 {
        self.known.saturating_sub(self.taken)
    }

    /// Those that a newer release has taken, and that this program does not know.
    pub fn unknown(self) -> u32 {
        self.taken.saturating_sub(self.known)
    }
}
