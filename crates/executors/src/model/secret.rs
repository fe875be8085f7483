//! A secret that does not show itself: masked in `Debug`, without `Display` and `Serialize` (STYLE §8).

use std::fmt;

use serde::{Deserialize, Deserializer};

/// A value that must not appear in logs, answers or dumps of the configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct ModelSecret(String);

impl ModelSecret {
    /// Wraps a secret value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the moment it is needed.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ModelSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl<'de> Deserialize<'de> for ModelSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_does_not_contain_the_value() {
        let secret = ModelSecret::new("sk-very-secret");
        assert_eq!(format!("{secret:?}"), "Secret(***)");
        assert_eq!(secret.expose(), "sk-very-secret");
    }
}
