-- Vectors of tools for search by meaning (STORE-001, STORE-002), kept apart by the model and width that made them (X-22).
--
-- They follow from the registry and a model, and can be made anew. Plain rows: the extension sqlite-vec gives the functions
-- that compare them, so the file can be opened, checked and copied without it.

CREATE TABLE vector_spaces (
    space_key INTEGER PRIMARY KEY,
    model     TEXT NOT NULL CHECK (model <> ''),
    width     INTEGER NOT NULL CHECK (width BETWEEN 1 AND 2000),
    UNIQUE (model, width)
) STRICT;

CREATE TABLE vectors (
    vector_key INTEGER PRIMARY KEY,
    space_key  INTEGER NOT NULL REFERENCES vector_spaces (space_key) ON DELETE CASCADE,
    tenant_id  TEXT NOT NULL CHECK (tenant_id <> ''),
    tool_id    TEXT NOT NULL CHECK (tool_id <> ''),
    digest     TEXT NOT NULL,                   -- Of the text that the vector was made from.
    embedding  BLOB NOT NULL CHECK (length(embedding) % 4 = 0), -- 32-bit numbers, little end first; of length 1.
    UNIQUE (space_key, tenant_id, tool_id)
) STRICT;
CREATE INDEX vectors_by_tool ON vectors (tenant_id, tool_id);
