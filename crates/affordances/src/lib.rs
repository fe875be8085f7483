//! What of the catalogue fits into a model's context: counting tokens, packing by usefulness, summarising the rest.
