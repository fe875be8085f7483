//! The nearest tools by meaning: vectors of tools, kept apart by the model that made them. (STORE-001, STORE-002, X-22, DESIGN §6.13)
//!
//! A *space* is what one embedding model in one width makes; vectors of two spaces are never compared. In a space a tool
//! (tenant and tool id) has one vector, that of the version which stands for it, as in `tool_search`; beside it is the
//! digest of the text it was made from, which says whether it has to be made again.
//!
//! Vectors follow from the registry and from a model: whatever happens to them, they can be made anew. So they are no part
//! of what must never be lost, and nothing that decides about a call reads them.
//!
//! Invariants every adapter keeps
//! - VEC-1: a tenant finds its own tools and those of the home tenant whose ids it does not have itself, and nothing else;
//!   what it cannot see never takes a place among the results.
//! - VEC-2: what is found is ordered by cosine distance, equal distances by tool id, with distances computed by
//!   [`Embedding::distance`] whatever the store has computed for itself.
//! - VEC-3: a batch is kept whole or not at all, and durable before it is answered.
//!
//! Not here: making vectors of texts, deciding what text stands for a tool, taking away the vectors of tools nobody may
//! find any more (whoever keeps a space up to date does, by `remove`).

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use contract::canonical::Digest;
use contract::ids::{TenantId, ToolId};

use crate::registry_store::StoreError;

/// Largest width of a vector. One element of PostgreSQL's HNSW index has to fit into a page of 8 KB, which 2000 numbers of
/// four bytes do; all stores have the bound, so that a space can move from one to the other.
pub const WIDTH_MAX: usize = 2000;
/// Most spaces of a store: the model in use, the one that takes its place, and some that were forgotten.
pub const SPACES_MAX: usize = 16;
/// Longest name of a model in bytes.
pub const MODEL_BYTES_MAX: usize = 200;
/// Most vectors in one `put`.
pub const BATCH_MAX: usize = 256;
/// Most tools that one question or one `remove` may name.
pub const TOOLS_MAX: usize = 1000;
/// Most neighbours of one answer.
pub const NEAREST_MAX: usize = 200;

/// How far from 1 the length of a vector may be that counts as one of length 1; rounding to 32 bits makes much less.
const UNIT_TOLERANCE: f64 = 1e-6;

/// Why vectors could not be kept or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VectorError {
    /// The store itself failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name no model has.
    #[error("the name of an embedding model has 1 to {MODEL_BYTES_MAX} bytes and no control characters")]
    Model,
    /// Too wide, or without width.
    #[error("vectors have 1 to {WIDTH_MAX} numbers, not {width}: use a model of a smaller width")]
    Width { width: usize },
    /// Not as wide as its space.
    #[error("a vector of {found} numbers does not belong to a space of {expected}")]
    OtherWidth { expected: usize, found: usize },
    /// Not a number, or infinite.
    #[error("number {position} of the vector is not finite")]
    NotFinite { position: usize },
    /// A vector without direction has no cosine.
    #[error("the vector has no direction: all its numbers are zero")]
    Zero,
    /// Nobody has opened it, or it was dropped.
    #[error("there is no space for vectors of `{model}` with {width} numbers")]
    NoSpace { model: String, width: usize },
    /// One more would be too many.
    #[error("there are {SPACES_MAX} spaces already: drop one that is not used any more")]
    TooManySpaces,
    /// More than [`BATCH_MAX`] vectors at once.
    #[error("at most {BATCH_MAX} vectors are kept at once, not {given}")]
    Batch { given: usize },
    /// More than [`TOOLS_MAX`] tools in one question.
    #[error("at most {TOOLS_MAX} tools can be named at once, not {given}")]
    Tools { given: usize },
    /// None, or more than [`NEAREST_MAX`] neighbours.
    #[error("1 to {NEAREST_MAX} neighbours can be asked for, not {given}")]
    Limit { given: usize },
}

/// What a model makes: vectors of one width.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VectorSpace {
    model: String,
    width: usize,
}

impl VectorSpace {
    /// Refuses what cannot be a space of any store.
    pub fn new(model: &str, width: usize) -> Result<Self, VectorError> {
        if model.is_empty() || model.len() > MODEL_BYTES_MAX || model.chars().any(char::is_control) {
            return Err(VectorError::Model);
        }
        if !(1..=WIDTH_MAX).contains(&width) {
            return Err(VectorError::Width { width });
        }
        Ok(Self { model: model.to_owned(), width })
    }

    /// The name of the model, with its version if it has one.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// How many numbers its vectors have; 1 to [`WIDTH_MAX`].
    pub fn width(&self) -> usize {
        self.width
    }

    /// The error of a space that is not there.
    pub fn missing(&self) -> VectorError {
        VectorError::NoSpace { model: self.model.clone(), width: self.width }
    }

    fn accept(&self, embedding: &Embedding) -> Result<(), VectorError> {
        let (expected, found) = (self.width, embedding.numbers.len());
        if expected == found { Ok(()) } else { Err(VectorError::OtherWidth { expected, found }) }
    }
}

/// A direction: finite numbers whose length is 1, as nearly as 32 bits can say it.
///
/// Cosine does not see how long a vector is. Bringing all to one length here keeps numbers that are very large or very
/// small from overflowing in databases, which compute with 32 bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    numbers: Vec<f32>,
}

impl Embedding {
    /// The direction of what a model has made.
    pub fn new(numbers: &[f32]) -> Result<Self, VectorError> {
        if !(1..=WIDTH_MAX).contains(&numbers.len()) {
            return Err(VectorError::Width { width: numbers.len() });
        }
        if let Some(position) = numbers.iter().position(|number| !number.is_finite()) {
            return Err(VectorError::NotFinite { position });
        }
        // INVARIANT: squares of 32-bit numbers neither overflow nor vanish in 64 bits, and 2000 of them can be added.
        let length = numbers.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
        if length == 0.0 {
            return Err(VectorError::Zero);
        }
        // What comes back from a store has been here before, and is to stay what it was to the last bit.
        if (length - 1.0).abs() < UNIT_TOLERANCE {
            return Ok(Self { numbers: numbers.to_vec() });
        }
        let numbers = numbers.iter().map(|number| narrowed(f64::from(*number) / length)).collect();
        Ok(Self { numbers })
    }

    /// The numbers.
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// The cosine distance: 0 for the same direction, 1 for nothing in common, 2 for the opposite.
    pub fn distance(&self, other: &Self) -> f64 {
        let (mut dot, mut own, mut others) = (0.0, 0.0, 0.0);
        for (left, right) in self.numbers.iter().zip(&other.numbers) {
            let (left, right) = (f64::from(*left), f64::from(*right));
            dot += left * right;
            own += left * left;
            others += right * right;
        }
        (1.0 - dot / (own * others).sqrt()).clamp(0.0, 2.0)
    }
}

/// A number between -1 and 1 in 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "the nearest number of 32 bits is what is wanted")]
fn narrowed(number: f64) -> f32 {
    number as f32
}

/// A vector of a tool, on its way into the store.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorRecord {
    pub tool: ToolId,
    /// Of the text that the vector was made from.
    pub digest: Digest,
    pub embedding: Embedding,
}

/// A space and how far it is filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceState {
    pub space: VectorSpace,
    /// Vectors of all tenants.
    pub vectors: u64,
}

/// Among which tools neighbours are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourScope<'a> {
    /// All that the tenant can see (VEC-1).
    Visible,
    /// Of those, the ones named here, at most [`TOOLS_MAX`]: what a token or an activation is limited to.
    Tools(&'a [ToolId]),
}

/// A question for neighbours.
#[derive(Debug, Clone, Copy)]
pub struct NearestQuery<'a> {
    /// Who asks.
    pub tenant: &'a TenantId,
    pub to: &'a Embedding,
    pub among: NeighbourScope<'a>,
    /// At most so many; 1 to [`NEAREST_MAX`].
    pub limit: usize,
}

/// A tool that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbour {
    /// Whose tool it is: the tenant that asked, or the home tenant.
    pub tenant: TenantId,
    pub tool: ToolId,
    /// 0 to 2, see [`Embedding::distance`].
    pub distance: f64,
}

/// Is this a batch that `put` takes? If so, one record for each tool, the last that was given, ordered by tool.
pub fn batch<'a>(
    space: &VectorSpace,
    records: &'a [VectorRecord],
) -> Result<BTreeMap<&'a ToolId, &'a VectorRecord>, VectorError> {
    if records.len() > BATCH_MAX {
        return Err(VectorError::Batch { given: records.len() });
    }
    records.iter().try_for_each(|record| space.accept(&record.embedding))?;
    Ok(records.iter().map(|record| (&record.tool, record)).collect())
}

/// Are these not too many tools?
pub fn check_tools(given: usize) -> Result<(), VectorError> {
    if given > TOOLS_MAX { Err(VectorError::Tools { given }) } else { Ok(()) }
}

/// Is this a question that `nearest` answers?
pub fn check_nearest(space: &VectorSpace, asked: &NearestQuery<'_>) -> Result<(), VectorError> {
    if !(1..=NEAREST_MAX).contains(&asked.limit) {
        return Err(VectorError::Limit { given: asked.limit });
    }
    if let NeighbourScope::Tools(tools) = asked.among {
        check_tools(tools.len())?;
    }
    space.accept(asked.to)
}

/// The nearest of the candidates in the order of VEC-2.
pub fn ranked(
    asked: &NearestQuery<'_>,
    candidates: impl IntoIterator<Item = (TenantId, ToolId, Embedding)>,
) -> Vec<Neighbour> {
    let measured = candidates.into_iter().map(|(tenant, tool, embedding)| {
        let distance = asked.to.distance(&embedding);
        Neighbour { tenant, tool, distance }
    });
    let mut found: Vec<Neighbour> = measured.collect();
    found.sort_by(|left, right| left.distance.total_cmp(&right.distance).then_with(|| left.tool.cmp(&right.tool)));
    found.truncate(asked.limit);
    found
}

/// Keeps vectors of tools.
#[async_trait]
pub trait VectorStore: Send + Sync + fmt::Debug {
    /// Makes room for a space, if there is none. The same model with another width is another space.
    async fn open_space(&self, space: &VectorSpace) -> Result<(), VectorError>;

    /// All spaces, ordered by model and width.
    async fn spaces(&self) -> Result<Vec<SpaceState>, VectorError>;

    /// Forgets a space and all its vectors; false if there was none.
    async fn drop_space(&self, space: &VectorSpace) -> Result<bool, VectorError>;

    /// Keeps vectors of a tenant's tools, at most [`BATCH_MAX`], in the place of those they had (VEC-3). Of two for one
    /// tool in a batch the last counts.
    async fn put(&self, space: &VectorSpace, tenant: &TenantId, records: &[VectorRecord]) -> Result<(), VectorError>;

    /// Forgets what all spaces have of these tools of a tenant, at most [`TOOLS_MAX`]; how many vectors that were.
    async fn remove(&self, tenant: &TenantId, tools: &[ToolId]) -> Result<u64, VectorError>;

    /// Which of these tools of a tenant, at most [`TOOLS_MAX`], have no vector made from the text with this digest; in the
    /// order they were given.
    async fn missing(
        &self,
        space: &VectorSpace,
        tenant: &TenantId,
        wanted: &[(ToolId, Digest)],
    ) -> Result<Vec<ToolId>, VectorError>;

    /// The nearest tools (VEC-1, VEC-2). A store may look at an index that misses a few of the nearest when there are many
    /// vectors, at least nineteen of twenty are the right ones; it never answers with fewer than there are.
    async fn nearest(&self, space: &VectorSpace, asked: NearestQuery<'_>) -> Result<Vec<Neighbour>, VectorError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_without_a_direction_are_refused_by_name() {
        for (numbers, words) in [
            (vec![], "not 0"),
            (vec![1.0; WIDTH_MAX + 1], "not 2001"),
            (vec![0.0; 3], "no direction"),
            (vec![-0.0, 0.0], "no direction"),
            (vec![1.0, f32::NAN], "number 1"),
            (vec![f32::INFINITY, 1.0], "number 0"),
            (vec![1.0, 2.0, f32::NEG_INFINITY], "number 2"),
        ] {
            let error = Embedding::new(&numbers).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_direction_does_not_depend_on_the_length() {
        for scale in [f32::MIN_POSITIVE, 1e-20, 0.5, 1.0, 3.0, 1e30, f32::MAX / 4.0] {
            let scaled = Embedding::new(&[3.0 * scale, -4.0 * scale]).unwrap();
            for (number, expected) in scaled.numbers().iter().zip([0.6, -0.8]) {
                assert!((number - expected).abs() < 1e-6, "{scale}: {number}");
            }
        }
        // The smallest number there is has a direction too.
        assert_eq!(Embedding::new(&[0.0, f32::from_bits(1)]).unwrap().numbers(), [0.0, 1.0]);
    }

    #[test]
    fn distances_are_those_of_the_cosine() {
        let at = |numbers: &[f32]| Embedding::new(numbers).unwrap();
        for (other, expected) in
            [([1.0, 0.0], 0.0), ([9.0, 0.0], 0.0), ([0.0, 2.0], 1.0), ([-1.0, 0.0], 2.0), ([1.0, 1.0], 0.292_893)]
        {
            let found = at(&[1.0, 0.0]).distance(&at(&other));
            assert!((found - expected).abs() < 1e-6, "{other:?}: {found}");
        }
    }

    #[test]
    fn spaces_no_store_can_have_are_refused() {
        let long = "m".repeat(MODEL_BYTES_MAX + 1);
        for (model, width, is_space) in [
            ("nomic-embed-text", 768, true),
            ("nomic-embed-text:v1.5", WIDTH_MAX, true),
            ("m", 1, true),
            ("m", 0, false),
            ("m", WIDTH_MAX + 1, false),
            ("", 768, false),
            ("a\0b", 768, false),
            (&long, 768, false),
        ] {
            assert_eq!(VectorSpace::new(model, width).is_ok(), is_space, "{model} {width}");
        }
    }
}
