-- Who may use what: tenants, agents, activations, policies, revocations, spending (VIS-001…005, AUTH-012, DESIGN §8.6).
--
-- Times are RFC 3339 text as in the registry. Every row carries its tenant, except what is counted by token id,
-- because those ids are unique across tenants. access_epoch is raised by every change but spending.

CREATE TABLE access_tenants (
    tenant_id  TEXT NOT NULL PRIMARY KEY CHECK (tenant_id <> ''),
    name       TEXT NOT NULL,
    visibility TEXT CHECK (visibility IN ('disabled', 'read_only', 'enabled')), -- NULL: as configured.
    tools      TEXT NOT NULL CHECK (json_valid(tools) AND json_type(tools) = 'array'), -- Patterns.
    enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE access_agents (
    tenant_id TEXT NOT NULL CHECK (tenant_id <> ''),
    agent     TEXT NOT NULL CHECK (agent <> ''),
    document  TEXT,
    added_at  TEXT NOT NULL CHECK (added_at LIKE '%Z'),
    added_by  TEXT NOT NULL,
    PRIMARY KEY (tenant_id, agent)
) STRICT, WITHOUT ROWID;

-- An agent need not have been introduced to be given tools, so there is no reference to access_agents.
CREATE TABLE access_activations (
    tenant_id TEXT NOT NULL CHECK (tenant_id <> ''),
    agent     TEXT NOT NULL CHECK (agent <> ''),
    tool      TEXT NOT NULL CHECK (tool <> ''), -- A pattern.
    enabled   INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    overrides TEXT NOT NULL CHECK (json_valid(overrides) AND json_type(overrides) = 'object'),
    PRIMARY KEY (tenant_id, agent, tool)
) STRICT, WITHOUT ROWID;

CREATE TABLE access_policies (
    tenant_id TEXT NOT NULL, -- '' is the platform, which no tenant is called.
    version   INTEGER NOT NULL CHECK (version >= 1),
    text      TEXT NOT NULL,
    added_at  TEXT NOT NULL CHECK (added_at LIKE '%Z'),
    added_by  TEXT NOT NULL,
    PRIMARY KEY (tenant_id, version)
) STRICT;

CREATE TRIGGER access_policies_have_no_gaps
BEFORE INSERT ON access_policies
WHEN NEW.version <> 1 + (SELECT coalesce(max(version), 0) FROM access_policies WHERE tenant_id = NEW.tenant_id)
BEGIN
    SELECT RAISE(ABORT, 'policy versions have no gaps');
END;

CREATE TRIGGER access_policies_never_change
BEFORE UPDATE ON access_policies
BEGIN
    SELECT RAISE(ABORT, 'a policy version never changes');
END;

CREATE TRIGGER access_policies_never_go
BEFORE DELETE ON access_policies
BEGIN
    SELECT RAISE(ABORT, 'a policy version is never deleted');
END;

CREATE TABLE access_revocations (
    kind       TEXT NOT NULL CHECK (kind IN ('token', 'subject')),
    tenant_id  TEXT NOT NULL CHECK (tenant_id <> ''),
    name       TEXT NOT NULL, -- The token's id, or the subject.
    revoked_at TEXT NOT NULL CHECK (revoked_at LIKE '%Z'),
    revoked_by TEXT NOT NULL,
    PRIMARY KEY (kind, tenant_id, name)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER access_revocations_never_go
BEFORE DELETE ON access_revocations
BEGIN
    SELECT RAISE(ABORT, 'a revocation is never taken back');
END;

CREATE TABLE access_spending (
    token TEXT NOT NULL PRIMARY KEY,
    calls INTEGER NOT NULL CHECK (calls >= 0)
) STRICT, WITHOUT ROWID;

INSERT INTO store_numbers (name, value) VALUES ('access_epoch', 0);
