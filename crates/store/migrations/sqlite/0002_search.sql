-- Full-text search over the version that stands for each tool (REG-014).
--
-- Terms are made by the program, so the tokenizer here only splits at spaces: `ascii` leaves everything beyond ASCII
-- alone. The index is built from the registry when search_pipeline is not what the program has; 0 makes that happen.

CREATE VIRTUAL TABLE tool_search USING fts5 (
    name, labels, description, parameter_names, parameter_descriptions,
    tokenize = 'ascii'
);

-- In how many documents of a tenant each term is: the words of one tenant must not show in the answers of another.
-- fts5vocab knows it too, but has to count postings for every answer.
CREATE TABLE search_terms (
    tenant_key INTEGER NOT NULL,
    term       TEXT NOT NULL,
    documents  INTEGER NOT NULL CHECK (documents >= 0),
    PRIMARY KEY (tenant_key, term)
) STRICT, WITHOUT ROWID;

INSERT INTO store_numbers (name, value) VALUES ('search_pipeline', 0);
