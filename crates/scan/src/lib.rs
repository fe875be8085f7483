//! Looks for what should not be in a tool's definition: hidden characters, orders to the model, look-alike names.
