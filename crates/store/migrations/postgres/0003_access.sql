-- Who may use what: tenants, agents, activations, policies, revocations, spending (VIS-001…005, AUTH-012, DESIGN §8.6).
--
-- Every row carries its tenant, except what is counted by token id, because those ids are unique across tenants.
-- access_epoch is raised by every change but spending, in the transaction of the change.

CREATE TABLE access_tenants (
    tenant_id  text COLLATE "C" PRIMARY KEY CHECK (tenant_id <> ''),
    name       text NOT NULL,
    visibility text CHECK (visibility IN ('disabled', 'read_only', 'enabled')), -- NULL: as configured.
    tools      text NOT NULL CHECK (tools IS JSON ARRAY),                       -- Patterns.
    enabled    boolean NOT NULL
);

CREATE TABLE access_agents (
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    agent     text COLLATE "C" NOT NULL CHECK (agent <> ''),
    document  text,
    added_at  bigint NOT NULL,
    added_by  text NOT NULL,
    PRIMARY KEY (tenant_id, agent)
);

-- An agent need not have been introduced to be given tools, so there is no reference to access_agents.
CREATE TABLE access_activations (
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    agent     text COLLATE "C" NOT NULL CHECK (agent <> ''),
    tool      text COLLATE "C" NOT NULL CHECK (tool <> ''), -- A pattern.
    enabled   boolean NOT NULL,
    overrides text NOT NULL CHECK (overrides IS JSON OBJECT),
    PRIMARY KEY (tenant_id, agent, tool)
);

CREATE TABLE access_policies (
    tenant_id text COLLATE "C" NOT NULL, -- '' is the platform, which no tenant is called.
    version   bigint NOT NULL CHECK (version >= 1),
    text      text NOT NULL,
    added_at  bigint NOT NULL,
    added_by  text NOT NULL,
    PRIMARY KEY (tenant_id, version)
);

CREATE FUNCTION access_policies_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM access_policies WHERE tenant_id = NEW.tenant_id AND version = NEW.version - 1) THEN
        RAISE EXCEPTION 'policy versions have no gaps' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

-- After the row: of two that come at once, the later one is to find that the version is there, and not to fail.
CREATE TRIGGER access_policies_have_no_gaps
AFTER INSERT ON access_policies FOR EACH ROW WHEN (NEW.version > 1)
EXECUTE FUNCTION access_policies_follow();

CREATE TRIGGER access_policies_never_change
BEFORE UPDATE ON access_policies FOR EACH ROW
EXECUTE FUNCTION gantry_refuse('a policy version never changes');

CREATE TRIGGER access_policies_never_go
BEFORE DELETE ON access_policies FOR EACH ROW
EXECUTE FUNCTION gantry_refuse('a policy version is never deleted');

CREATE TABLE access_revocations (
    kind          text COLLATE "C" NOT NULL CHECK (kind IN ('token', 'subject')),
    tenant_id     text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    name          text COLLATE "C" NOT NULL, -- The token's id, or the subject.
    revoked_at    bigint NOT NULL,
    revoked_by    text NOT NULL,
    needless_from bigint,                    -- NULL: nobody knows, so it stays for good.
    PRIMARY KEY (kind, tenant_id, name)
);
CREATE INDEX access_revocations_by_end ON access_revocations (needless_from) WHERE needless_from IS NOT NULL;

CREATE TRIGGER access_revocations_go_only_where_their_end_is_known
BEFORE DELETE ON access_revocations FOR EACH ROW WHEN (OLD.needless_from IS NULL)
EXECUTE FUNCTION gantry_refuse('a revocation is never taken back');

CREATE TABLE access_spending (
    token text COLLATE "C" PRIMARY KEY,
    calls bigint NOT NULL CHECK (calls >= 0)
);

-- Counts one call against every budget, or against none; answers the first token whose budget is used up, NULL if none is.
-- A function, because the rows have to be locked before they are looked at, and a call waits for this. A token that is
-- named twice is counted twice.
CREATE FUNCTION access_spend(tokens text[], maxima bigint[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    refused text;
BEGIN
    -- In one order for all, so that no two wait for each other.
    INSERT INTO access_spending (token, calls)
    SELECT DISTINCT named.token COLLATE "C" AS token, 0 FROM unnest(tokens) AS named (token) ORDER BY 1
    ON CONFLICT (token) DO NOTHING;
    PERFORM 1 FROM access_spending AS kept WHERE kept.token = ANY (tokens) ORDER BY kept.token FOR UPDATE;
    SELECT asked.token INTO refused
    FROM (SELECT named.token, named.calls_max, named.place,
                 row_number() OVER (PARTITION BY named.token ORDER BY named.place) AS time
          FROM unnest(tokens, maxima) WITH ORDINALITY AS named (token, calls_max, place)) AS asked
    JOIN access_spending AS kept ON kept.token = asked.token
    WHERE kept.calls + asked.time > asked.calls_max
    ORDER BY asked.place LIMIT 1;
    IF refused IS NULL THEN
        UPDATE access_spending AS kept SET calls = kept.calls + asked.times
        FROM (SELECT named.token, count(*) AS times FROM unnest(tokens) AS named (token) GROUP BY 1) AS asked
        WHERE kept.token = asked.token;
    END IF;
    RETURN refused;
END $$;

ALTER TABLE access_tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE access_tenants FORCE ROW LEVEL SECURITY;
ALTER TABLE access_agents ENABLE ROW LEVEL SECURITY;
ALTER TABLE access_agents FORCE ROW LEVEL SECURITY;
ALTER TABLE access_activations ENABLE ROW LEVEL SECURITY;
ALTER TABLE access_activations FORCE ROW LEVEL SECURITY;
ALTER TABLE access_policies ENABLE ROW LEVEL SECURITY;
ALTER TABLE access_policies FORCE ROW LEVEL SECURITY;
ALTER TABLE access_revocations ENABLE ROW LEVEL SECURITY;
ALTER TABLE access_revocations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON access_tenants
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
CREATE POLICY tenant ON access_agents
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
CREATE POLICY tenant ON access_activations
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
-- Without a tenant the setting is '', as the owner of the platform's policies is: those are for the system only.
CREATE POLICY tenant ON access_policies
USING (tenant_id = nullif(current_setting('gantry.tenant', true), '') OR current_setting('gantry.tenant', true) = '*');
CREATE POLICY tenant ON access_revocations
USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');

INSERT INTO store_numbers (name, value) VALUES ('access_epoch', 0);
