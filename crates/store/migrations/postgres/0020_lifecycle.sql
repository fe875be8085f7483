-- Tools that people have taken out of use (REG-024), and how often versions that end are still called, whichever instances
-- are called (REG-012, REG-013).

CREATE TABLE tool_quarantines (
    tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    tool_id    text COLLATE "C" NOT NULL CHECK (tool_id <> ''),
    reason     text NOT NULL CHECK (reason <> ''),
    set_by     text NOT NULL CHECK (set_by <> ''),
    set_at     bigint NOT NULL,
    PRIMARY KEY (tenant_id, tool_id)
);

-- Calls by the hour, counted from 1970-01-01 UTC. The tenant is the one whose tool it is.
CREATE TABLE version_use (
    tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    tool_id    text COLLATE "C" NOT NULL CHECK (tool_id <> ''),
    version    text COLLATE "C" NOT NULL CHECK (version <> ''),
    hour       bigint NOT NULL,
    calls      bigint NOT NULL CHECK (calls > 0),
    PRIMARY KEY (tenant_id, tool_id, version, hour)
);

CREATE INDEX version_use_by_hour ON version_use (hour);

-- Milliseconds since 1970: when the counting began, and when it was last reported.
INSERT INTO store_numbers (name, value)
VALUES ('version_use_since', (extract(epoch FROM clock_timestamp()) * 1000)::bigint), ('version_use_reported', 0);

ALTER TABLE tool_quarantines ENABLE ROW LEVEL SECURITY;
ALTER TABLE tool_quarantines FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tool_quarantines
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');

ALTER TABLE version_use ENABLE ROW LEVEL SECURITY;
ALTER TABLE version_use FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON version_use
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
