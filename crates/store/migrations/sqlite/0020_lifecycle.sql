-- Tools that people have taken out of use (REG-024), and how often versions that end are still called (REG-012, REG-013).

CREATE TABLE tool_quarantines (
    tenant_id  TEXT NOT NULL CHECK (tenant_id <> ''),
    tool_id    TEXT NOT NULL CHECK (tool_id <> ''),
    reason     TEXT NOT NULL CHECK (reason <> ''),
    set_by     TEXT NOT NULL CHECK (set_by <> ''),
    set_at     INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, tool_id)
) STRICT, WITHOUT ROWID;

-- Calls by the hour, counted from 1970-01-01 UTC. The tenant is the one whose tool it is.
CREATE TABLE version_use (
    tenant_id  TEXT NOT NULL CHECK (tenant_id <> ''),
    tool_id    TEXT NOT NULL CHECK (tool_id <> ''),
    version    TEXT NOT NULL CHECK (version <> ''),
    hour       INTEGER NOT NULL,
    calls      INTEGER NOT NULL CHECK (calls > 0),
    PRIMARY KEY (tenant_id, tool_id, version, hour)
) STRICT, WITHOUT ROWID;

CREATE INDEX version_use_by_hour ON version_use (hour);

-- Milliseconds since 1970: when the counting began, and when it was last reported.
INSERT INTO store_numbers (name, value)
VALUES ('version_use_since', CAST(strftime('%s', 'now') AS INTEGER) * 1000), ('version_use_reported', 0);
