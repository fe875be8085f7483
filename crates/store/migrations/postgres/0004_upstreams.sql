-- MCP servers behind Gantry, and what was accepted of their tools (REG-019…023, MCP-003).
--
-- A pin is of one server and goes with it.

CREATE TABLE upstream_servers (
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    name      text COLLATE "C" NOT NULL CHECK (name <> ''),
    spec      text NOT NULL CHECK (spec IS JSON OBJECT), -- Names secrets, holds none.
    added_at  bigint NOT NULL,
    added_by  text NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

CREATE TABLE upstream_pins (
    tenant_id       text COLLATE "C" NOT NULL,
    server          text COLLATE "C" NOT NULL,
    upstream_tool   text COLLATE "C" NOT NULL CHECK (upstream_tool <> ''), -- The server's own name of it.
    tool_id         text COLLATE "C" NOT NULL,
    version         text,
    accepted        text CHECK (accepted IS JSON),
    accepted_digest text,
    proposed        text CHECK (proposed IS JSON),
    proposed_digest text,
    state           text NOT NULL CHECK (state IN ('accepted', 'quarantined', 'rejected', 'withdrawn')),
    findings        text NOT NULL CHECK (findings IS JSON ARRAY),
    classification  text, -- NULL: nobody has said.
    seen_at         bigint NOT NULL,
    PRIMARY KEY (tenant_id, server, upstream_tool),
    FOREIGN KEY (tenant_id, server) REFERENCES upstream_servers (tenant_id, name) ON DELETE CASCADE ON UPDATE RESTRICT,
    CHECK ((accepted IS NULL) = (accepted_digest IS NULL)),
    CHECK ((proposed IS NULL) = (proposed_digest IS NULL)),
    -- What is offered was accepted.
    CHECK (state <> 'accepted' OR accepted IS NOT NULL)
);

-- Two tools of a tenant never share a name, whichever servers they are of.
CREATE UNIQUE INDEX upstream_pins_by_tool ON upstream_pins (tenant_id, tool_id);

ALTER TABLE upstream_servers ENABLE ROW LEVEL SECURITY;
ALTER TABLE upstream_servers FORCE ROW LEVEL SECURITY;
ALTER TABLE upstream_pins ENABLE ROW LEVEL SECURITY;
ALTER TABLE upstream_pins FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON upstream_servers
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
CREATE POLICY tenant ON upstream_pins
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
