-- Vectors of tools for search by meaning (STORE-001, STORE-002), kept apart by the model and width that made them (X-22).
--
-- They follow from the registry and a model, and can be made anew. All spaces are in one table, so that row level security
-- is said once; each space has an HNSW index of its own over its rows (vectors_of_space_N), which is made when the space is
-- opened, because only then its width is known.

CREATE TABLE vector_spaces (
    space_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model     text COLLATE "C" NOT NULL CHECK (model <> ''),
    width     bigint NOT NULL CHECK (width BETWEEN 1 AND 2000),
    UNIQUE (model, width)
);

CREATE TABLE vectors (
    space_key bigint NOT NULL REFERENCES vector_spaces (space_key) ON DELETE CASCADE,
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    tool_id   text COLLATE "C" NOT NULL CHECK (tool_id <> ''),
    digest    text COLLATE "C" NOT NULL,        -- Of the text that the vector was made from.
    embedding vector NOT NULL,                  -- Of length 1.
    PRIMARY KEY (space_key, tenant_id, tool_id)
);
CREATE INDEX vectors_by_tool ON vectors (tenant_id, tool_id);

ALTER TABLE vectors ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectors FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectors
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
-- Everybody finds the tools of the home tenant.
CREATE POLICY shared ON vectors FOR SELECT USING (tenant_id = 'local');
