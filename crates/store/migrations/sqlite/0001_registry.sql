-- The registry: tools and their published versions (STORE-001, STORE-003), each with its tenant (X-51).
--
-- Times are RFC 3339 text in UTC with milliseconds (STORE-014): readable in any SQLite shell, and their order as text is
-- their order in time. Rows are never deleted (X-55), and what was published never changes (REG-003); the triggers keep
-- that true against every writer, not only against this one.

-- Tenants that have published something. Others need no number.
CREATE TABLE registry_tenants (
    tenant_key INTEGER PRIMARY KEY CHECK (tenant_key BETWEEN 0 AND 0x7fffffff),
    tenant_id  TEXT NOT NULL UNIQUE,
    documents  INTEGER NOT NULL DEFAULT 0 CHECK (documents >= 0) -- How many of its tools the search index holds.
) STRICT;

-- The home tenant, whose tools are the shared catalogue.
INSERT INTO registry_tenants (tenant_key, tenant_id) VALUES (0, 'local');

CREATE TABLE tool_definitions (
    -- Stable row number, because VACUUM renumbers hidden ones. Its upper half is the tenant_key, so that the search can
    -- tell whose tool a row of the index is without looking further.
    tool_key           INTEGER PRIMARY KEY,
    tenant_id          TEXT NOT NULL REFERENCES registry_tenants (tenant_id) ON DELETE RESTRICT ON UPDATE RESTRICT,
    tool_id            TEXT NOT NULL,        -- Canonical: namespace.tool_id
    namespace          TEXT,
    -- The next five follow the version that stands for the tool, see searchable_version.
    name               TEXT NOT NULL,
    description        TEXT NOT NULL,
    provider           TEXT NOT NULL,
    protocol           TEXT NOT NULL,
    searchable_version TEXT,                 -- NULL: no version is active or deprecated.
    created_at         TEXT NOT NULL CHECK (created_at LIKE '%Z'),
    updated_at         TEXT NOT NULL CHECK (updated_at LIKE '%Z'),
    UNIQUE (tenant_id, tool_id)
) STRICT;

CREATE TRIGGER tool_definitions_are_numbered_by_tenant
AFTER INSERT ON tool_definitions
WHEN NEW.tool_key >> 32 IS NOT (SELECT tenant_key FROM registry_tenants WHERE tenant_id = NEW.tenant_id)
BEGIN
    SELECT RAISE(ABORT, 'a tool is numbered within its tenant');
END;

CREATE TRIGGER tool_definitions_keep_their_names
BEFORE UPDATE OF tool_key, tenant_id, tool_id ON tool_definitions
BEGIN
    SELECT RAISE(ABORT, 'a tool stays with its tenant');
END;

CREATE TABLE tool_versions (
    tenant_id       TEXT NOT NULL,
    tool_id         TEXT NOT NULL,
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
    PRIMARY KEY (tenant_id, tool_id, version),
    FOREIGN KEY (tenant_id, tool_id) REFERENCES tool_definitions (tenant_id, tool_id)
    ON DELETE RESTRICT ON UPDATE RESTRICT,
    CONSTRAINT whole_notice
    CHECK ((deprecated_at IS NULL) = (sunset_at IS NULL) AND (deprecated_at IS NULL) = (removal_at IS NULL)
           AND (deprecated_at IS NOT NULL OR (successor IS NULL AND migration_guide IS NULL)))
) STRICT;

CREATE TRIGGER tool_versions_never_change
BEFORE UPDATE OF tenant_id, tool_id, version, version_text, manifest, digest, published_at, published_by ON tool_versions
BEGIN
    SELECT RAISE(ABORT, 'a published version never changes');
END;

CREATE TRIGGER tool_versions_never_go
BEFORE DELETE ON tool_versions
BEGIN
    SELECT RAISE(ABORT, 'a published version is never deleted');
END;

-- Single numbers: probes (counts write probes), search_pipeline, access_epoch.
CREATE TABLE store_numbers (
    name  TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO store_numbers (name, value) VALUES ('probes', 0);
