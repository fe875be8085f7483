//! How long a page of a list is: the same for every list of what is done and was done.

use contract::error::Refusal;
use schemars::SchemaGenerator;

use super::{ParameterPlace, RouteParameter};
use crate::query::QueryParameters;

/// Entries of a page unless asked otherwise, and at most.
const PAGE_DEFAULT: usize = 50;
const PAGE_MAX: usize = 200;

/// The parameter.
pub(super) const LIMIT: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "limit",
    about: "at most so many, up to 200; default 50",
    schema: SchemaGenerator::subschema_for::<usize>,
};

/// What the query says.
pub(super) fn limit(query: &QueryParameters) -> Result<usize, Refusal> {
    query.number(LIMIT.name, 1..=PAGE_MAX, PAGE_DEFAULT)
}
