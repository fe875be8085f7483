-- Full-text search over the version that stands for each tool (REG-014).
--
-- Terms are made by the program, so the tokenizer here only splits at spaces: `ascii` leaves everything beyond ASCII
-- alone. The index is built from the registry when search_pipeline is not what the program has; 0 makes that happen.

CREATE VIRTUAL TABLE tool_search USING fts5 (
    name, labels, description, parameter_names, parameter_descriptions,
    tokenize = 'ascii'
);

-- In how many documents each term is. fts5vocab knows it too, but has to count postings for every answer.
CREATE TABLE search_terms (
    term      TEXT NOT NULL PRIMARY KEY,
    documents INTEGER NOT NULL CHECK (documents >= 0)
) STRICT, WITHOUT ROWID;

INSERT INTO store_numbers (name, value) VALUES ('search_documents', 0), ('search_pipeline', 0);
