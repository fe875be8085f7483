-- MCP servers behind Gantry, and what was accepted of their tools (REG-019…023, MCP-003).
--
-- Times are RFC 3339 text as in the registry. A pin is of one server and goes with it.

CREATE TABLE upstream_servers (
    tenant_id TEXT NOT NULL CHECK (tenant_id <> ''),
    name      TEXT NOT NULL CHECK (name <> ''),
    spec      TEXT NOT NULL CHECK (json_valid(spec) AND json_type(spec) = 'object'), -- Names secrets, holds none.
    added_at  TEXT NOT NULL CHECK (added_at LIKE '%Z'),
    added_by  TEXT NOT NULL,
    PRIMARY KEY (tenant_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE upstream_pins (
    tenant_id       TEXT NOT NULL,
    server          TEXT NOT NULL,
    upstream_tool   TEXT NOT NULL CHECK (upstream_tool <> ''), -- The server's own name of it.
    tool_id         TEXT NOT NULL,
    version         TEXT,
    accepted        TEXT CHECK (json_valid(accepted)),
    accepted_digest TEXT,
    proposed        TEXT CHECK (json_valid(proposed)),
    proposed_digest TEXT,
    state           TEXT NOT NULL CHECK (state IN ('accepted', 'quarantined', 'rejected', 'withdrawn')),
    findings        TEXT NOT NULL CHECK (json_valid(findings) AND json_type(findings) = 'array'),
    classification  TEXT, -- NULL: nobody has said.
    seen_at         TEXT NOT NULL CHECK (seen_at LIKE '%Z'),
    PRIMARY KEY (tenant_id, server, upstream_tool),
    CHECK ((accepted IS NULL) = (accepted_digest IS NULL)),
    CHECK ((proposed IS NULL) = (proposed_digest IS NULL)),
    -- What is offered was accepted.
    CHECK (state <> 'accepted' OR accepted IS NOT NULL)
) STRICT;

-- Two tools of a tenant never share a name, whichever servers they are of.
CREATE UNIQUE INDEX upstream_pins_by_tool ON upstream_pins (tenant_id, tool_id);
