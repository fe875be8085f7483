-- The registry: tools and their published versions (STORE-001, STORE-003), each with its tenant (X-51).
--
-- Times are milliseconds since 1970 in UTC. Rows are never deleted (X-55), and what was published never changes (REG-003);
-- the triggers keep that true against every writer, not only against this one. Names have the collation "C", so that
-- their order is that of the program, whatever the database was made with.
--
-- Row level security: a transaction sees the rows of the tenant in `gantry.tenant`, or of all if that is `*`. It holds the
-- owner of the tables too (FORCE), because that is who the program is.

-- What triggers do with a change that must not be.
CREATE FUNCTION gantry_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END $$;

-- Single numbers: probes (counts write probes), search_pipeline, access_epoch, registry_generation (rises with every change
-- of the registry), changes (rises with every word on the change bus), listeners (how many there were so far).
CREATE TABLE store_numbers (
    name  text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO store_numbers (name, value)
VALUES ('probes', 0), ('registry_generation', 0), ('changes', 0), ('listeners', 0);

CREATE TABLE tool_definitions (
    tool_key           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- For the search index, which names tools often.
    tenant_id          text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    tool_id            text COLLATE "C" NOT NULL, -- Canonical: namespace.tool_id
    namespace          text,
    -- The next five follow the version that stands for the tool, see searchable_version.
    name               text NOT NULL,
    description        text NOT NULL,
    provider           text NOT NULL,
    protocol           text NOT NULL,
    searchable_version text,                      -- NULL: no version is active or deprecated.
    created_at         bigint NOT NULL,
    updated_at         bigint NOT NULL,
    UNIQUE (tenant_id, tool_id)
);
ALTER TABLE tool_definitions ENABLE ROW LEVEL SECURITY;
ALTER TABLE tool_definitions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tool_definitions
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
-- The tools of the home tenant are the shared catalogue.
CREATE POLICY shared ON tool_definitions FOR SELECT USING (tenant_id = 'local');

CREATE TRIGGER tool_definitions_keep_their_names
BEFORE UPDATE ON tool_definitions FOR EACH ROW
WHEN ((NEW.tool_key, NEW.tenant_id, NEW.tool_id) IS DISTINCT FROM (OLD.tool_key, OLD.tenant_id, OLD.tool_id))
EXECUTE FUNCTION gantry_refuse('a tool stays with its tenant');

CREATE TRIGGER tool_definitions_never_go
BEFORE DELETE ON tool_definitions FOR EACH ROW
EXECUTE FUNCTION gantry_refuse('a published tool is never deleted');

CREATE TABLE tool_versions (
    tenant_id       text COLLATE "C" NOT NULL,
    tool_id         text COLLATE "C" NOT NULL,
    version         text COLLATE "C" NOT NULL, -- Without build metadata: versions that differ only there are one version.
    version_text    text NOT NULL,             -- As published.
    manifest        text NOT NULL CHECK (manifest IS JSON), -- Text, because it comes back as it was written.
    digest          text NOT NULL,
    lifecycle_state text NOT NULL DEFAULT 'active'
                    CONSTRAINT valid_lifecycle_state
                    CHECK (lifecycle_state IN ('active', 'deprecated', 'sunset', 'removed')),
    deprecated_at   bigint,
    sunset_at       bigint,
    removal_at      bigint,
    successor       text,
    migration_guide text,
    published_at    bigint NOT NULL,
    published_by    text NOT NULL,
    PRIMARY KEY (tenant_id, tool_id, version),
    FOREIGN KEY (tenant_id, tool_id) REFERENCES tool_definitions (tenant_id, tool_id)
    ON DELETE RESTRICT ON UPDATE RESTRICT,
    CONSTRAINT whole_notice
    CHECK ((deprecated_at IS NULL) = (sunset_at IS NULL) AND (deprecated_at IS NULL) = (removal_at IS NULL)
           AND (deprecated_at IS NOT NULL OR (successor IS NULL AND migration_guide IS NULL)))
);
ALTER TABLE tool_versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE tool_versions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tool_versions
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');

CREATE TRIGGER tool_versions_never_change
BEFORE UPDATE ON tool_versions FOR EACH ROW
WHEN ((NEW.tenant_id, NEW.tool_id, NEW.version, NEW.version_text, NEW.manifest, NEW.digest, NEW.published_at,
       NEW.published_by)
      IS DISTINCT FROM
      (OLD.tenant_id, OLD.tool_id, OLD.version, OLD.version_text, OLD.manifest, OLD.digest, OLD.published_at,
       OLD.published_by))
EXECUTE FUNCTION gantry_refuse('a published version never changes');

CREATE TRIGGER tool_versions_never_go
BEFORE DELETE ON tool_versions FOR EACH ROW
EXECUTE FUNCTION gantry_refuse('a published version is never deleted');
