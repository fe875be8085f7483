-- The registry: tools and their published versions (STORE-001, STORE-003).
--
-- Times are RFC 3339 text in UTC with milliseconds (STORE-014): readable in any SQLite shell, and their order as text is
-- their order in time. Rows are never deleted (X-55), and what was published never changes (REG-003); the triggers keep
-- that true against every writer, not only against this one.

CREATE TABLE tool_definitions (
    tool_key           INTEGER PRIMARY KEY,  -- Stable row number, because VACUUM renumbers hidden ones.
    tool_id            TEXT NOT NULL UNIQUE, -- Canonical: namespace.tool_id
    namespace          TEXT,
    -- The next five follow the version that stands for the tool, see searchable_version.
    name               TEXT NOT NULL,
    description        TEXT NOT NULL,
    provider           TEXT NOT NULL,
    protocol           TEXT NOT NULL,
    searchable_version TEXT,                 -- NULL: no version is active or deprecated.
    created_at         TEXT NOT NULL CHECK (created_at LIKE '%Z'),
    updated_at         TEXT NOT NULL CHECK (updated_at LIKE '%Z')
) STRICT;

CREATE TABLE tool_versions (
    tool_id         TEXT NOT NULL REFERENCES tool_definitions (tool_id) ON DELETE RESTRICT ON UPDATE RESTRICT,
    version         TEXT NOT NULL, -- Without build metadata: versions that differ only there are one version.
    version_text    TEXT NOT NULL, -- As published.
    manifest        TEXT NOT NULL CHECK (json_valid(manifest)),
    digest          TEXT NOT NULL,
    lifecycle_state TEXT NOT NULL DEFAULT 'active'
                    CONSTRAINT valid_lifecycle_state
                    CHECK (lifecycle_state IN ('active', 'deprecated', 'sunset', 'removed')),
    deprecated_at   TEXT CHECK (deprecated_at LIKE '%Z'),
    sunset_at       TEXT CHECK (sunset_at LIKE '%Z'),
    removal_at      TEXT CHECK (removal_at LIKE '%Z'),
    successor       TEXT,
    migration_guide TEXT,
    published_at    TEXT NOT NULL CHECK (published_at LIKE '%Z'),
    published_by    TEXT NOT NULL,
    PRIMARY KEY (tool_id, version),
    CONSTRAINT whole_notice
    CHECK ((deprecated_at IS NULL) = (sunset_at IS NULL) AND (deprecated_at IS NULL) = (removal_at IS NULL)
           AND (deprecated_at IS NOT NULL OR (successor IS NULL AND migration_guide IS NULL)))
) STRICT;

CREATE TRIGGER tool_versions_never_change
BEFORE UPDATE OF tool_id, version, version_text, manifest, digest, published_at, published_by ON tool_versions
BEGIN
    SELECT RAISE(ABORT, 'a published version never changes');
END;

CREATE TRIGGER tool_versions_never_go
BEFORE DELETE ON tool_versions
BEGIN
    SELECT RAISE(ABORT, 'a published version is never deleted');
END;

-- Single numbers: probes (counts write probes), search_documents, search_pipeline.
CREATE TABLE store_numbers (
    name  TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO store_numbers (name, value) VALUES ('probes', 0);
