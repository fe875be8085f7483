-- Full-text search over the version that stands for each tool (REG-014): an inverted index of the terms the program makes.
--
-- The server's own text search has other words, other weights and no BM25; with this index a query finds the same here and
-- in SQLite. The index is built from the registry when search_pipeline is less than what the program has; 0 makes that
-- happen.

-- How many documents a tenant has, and how many terms they have together. Whoever changes the index of a tenant has its
-- row locked first, so two never wait for each other's terms.
CREATE TABLE search_corpora (
    tenant_id text COLLATE "C" PRIMARY KEY,
    documents bigint NOT NULL CHECK (documents >= 0),
    length    bigint NOT NULL CHECK (length >= 0)
);

CREATE TABLE search_documents (
    tool_key  bigint PRIMARY KEY REFERENCES tool_definitions (tool_key) ON DELETE RESTRICT,
    tenant_id text COLLATE "C" NOT NULL,
    tool_id   text COLLATE "C" NOT NULL,
    length    bigint NOT NULL,                  -- In terms, over all fields.
    terms     text[] COLLATE "C" NOT NULL       -- Each once: what has to be taken out of search_terms when it goes.
);

-- How often a term is in each field of a document.
CREATE TABLE search_postings (
    tenant_id                 text COLLATE "C" NOT NULL,
    term                      text COLLATE "C" NOT NULL,
    tool_key                  bigint NOT NULL REFERENCES search_documents (tool_key) ON DELETE CASCADE,
    in_name                   bigint NOT NULL,
    in_labels                 bigint NOT NULL,
    in_description            bigint NOT NULL,
    in_parameter_names        bigint NOT NULL,
    in_parameter_descriptions bigint NOT NULL,
    PRIMARY KEY (tenant_id, term, tool_key)
);
CREATE INDEX search_postings_by_tool ON search_postings (tool_key);

-- In how many documents of a tenant each term is: the words of one tenant must not show in the answers of another.
CREATE TABLE search_terms (
    tenant_id  text COLLATE "C" NOT NULL,
    term       text COLLATE "C" NOT NULL,
    documents  bigint NOT NULL CHECK (documents >= 0),
    characters bigint NOT NULL GENERATED ALWAYS AS (char_length(term)) STORED,
    PRIMARY KEY (tenant_id, term)
);
-- For corrections, which are of nearly the same length. Of a column, not of an expression: under row level security an
-- index is used only with operators that are known to give nothing away, and the length of a text is not among them.
CREATE INDEX search_terms_by_length ON search_terms (tenant_id, characters);

ALTER TABLE search_corpora ENABLE ROW LEVEL SECURITY;
ALTER TABLE search_corpora FORCE ROW LEVEL SECURITY;
ALTER TABLE search_documents ENABLE ROW LEVEL SECURITY;
ALTER TABLE search_documents FORCE ROW LEVEL SECURITY;
ALTER TABLE search_postings ENABLE ROW LEVEL SECURITY;
ALTER TABLE search_postings FORCE ROW LEVEL SECURITY;
ALTER TABLE search_terms ENABLE ROW LEVEL SECURITY;
ALTER TABLE search_terms FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON search_corpora
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
CREATE POLICY tenant ON search_documents
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
CREATE POLICY tenant ON search_postings
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
CREATE POLICY tenant ON search_terms
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
-- Everybody finds the tools of the home tenant.
CREATE POLICY shared ON search_corpora FOR SELECT USING (tenant_id = 'local');
CREATE POLICY shared ON search_documents FOR SELECT USING (tenant_id = 'local');
CREATE POLICY shared ON search_postings FOR SELECT USING (tenant_id = 'local');
CREATE POLICY shared ON search_terms FOR SELECT USING (tenant_id = 'local');

INSERT INTO store_numbers (name, value) VALUES ('search_pipeline', 0);
