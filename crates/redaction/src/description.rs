//! What is known about a value besides what stands in it: the marks of its schema, asked part by part. (VALID-014)
//!
//! Who knows a schema says here what it marks. How schemas refer to each other is not for this crate to know.

/// A part of a value, seen from the value it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValuePart<'a> {
    /// The member with this name.
    Member(&'a str),
    /// The item at this place of a list.
    Item(usize),
    /// The document that stands in a text.
    Content,
    /// The names of all members.
    Names,
}

/// What is known about one value.
pub trait ValueDescription {
    /// Must the value not be seen? `None` if nothing is said; `false` says that it may be, whatever its name sounds like.
    fn is_sensitive(&self) -> Option<bool>;

    /// What is known about a part of it; `None` if nothing is said about the part or what is in it.
    fn part(&self, part: ValuePart<'_>) -> Option<Box<dyn ValueDescription + '_>>;
}
