-- Use and cost by tenant, day, tool, agent and user; how long calls took; what was used together and what was wanted
-- (COST-004, COST-008, ANALYT-002, ANALYT-003).
--
-- Rows are sums and are only added to. Money is in two columns that add up separately: millionths of a unit, and what is
-- below one, in 10^-12; so a sum is exact and does not overflow. Days are counted from 1970-01-01, UTC. No user is ''.

CREATE TABLE usage (
    tenant_id     text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    day           bigint NOT NULL,
    tool_id       text COLLATE "C" NOT NULL CHECK (tool_id <> ''),
    agent         text COLLATE "C" NOT NULL CHECK (agent <> ''),
    "user"        text COLLATE "C" NOT NULL,
    calls         bigint NOT NULL CHECK (calls >= 0),
    errors        bigint NOT NULL CHECK (errors >= 0),
    timeouts      bigint NOT NULL CHECK (timeouts >= 0),
    refused       bigint NOT NULL CHECK (refused >= 0),
    replayed      bigint NOT NULL CHECK (replayed >= 0),
    duration_ms   bigint NOT NULL CHECK (duration_ms >= 0),
    cpu_millicore_seconds bigint NOT NULL CHECK (cpu_millicore_seconds >= 0),
    network_bytes bigint NOT NULL CHECK (network_bytes >= 0),
    tokens        bigint NOT NULL CHECK (tokens >= 0),
    last_at       bigint NOT NULL,
    PRIMARY KEY (tenant_id, day, tool_id, agent, "user")
);

CREATE INDEX usage_by_day ON usage (day);

CREATE TABLE usage_costs (
    tenant_id     text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    day           bigint NOT NULL,
    tool_id       text COLLATE "C" NOT NULL,
    agent         text COLLATE "C" NOT NULL,
    "user"        text COLLATE "C" NOT NULL,
    currency      text COLLATE "C" NOT NULL CHECK (length(currency) = 3),
    component     text COLLATE "C" NOT NULL,
    micros        bigint NOT NULL CHECK (micros >= 0),
    picos         bigint NOT NULL CHECK (picos >= 0),
    PRIMARY KEY (tenant_id, day, tool_id, agent, "user", currency, component)
);

CREATE INDEX usage_costs_by_day ON usage_costs (day);

CREATE TABLE usage_latencies (
    tenant_id     text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    day           bigint NOT NULL,
    tool_id       text COLLATE "C" NOT NULL,
    bucket        bigint NOT NULL CHECK (bucket >= 0),
    count         bigint NOT NULL CHECK (count > 0),
    PRIMARY KEY (tenant_id, day, tool_id, bucket)
);

CREATE INDEX usage_latencies_by_day ON usage_latencies (day);

CREATE TABLE usage_pairs (
    tenant_id     text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    day           bigint NOT NULL,
    first         text COLLATE "C" NOT NULL,
    second        text COLLATE "C" NOT NULL,
    count         bigint NOT NULL CHECK (count > 0),
    PRIMARY KEY (tenant_id, day, first, second),
    CHECK (first < second)
);

CREATE INDEX usage_pairs_by_day ON usage_pairs (day);

CREATE TABLE usage_wishes (
    tenant_id     text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    day           bigint NOT NULL,
    agent         text COLLATE "C" NOT NULL,
    tool_id       text COLLATE "C" NOT NULL,
    count         bigint NOT NULL CHECK (count > 0),
    PRIMARY KEY (tenant_id, day, agent, tool_id)
);

CREATE INDEX usage_wishes_by_day ON usage_wishes (day);

-- Which batches were added, so that none is added twice.
CREATE TABLE usage_batches (
    id            text COLLATE "C" PRIMARY KEY CHECK (id <> ''),
    added_at      bigint NOT NULL
);

CREATE INDEX usage_batches_by_time ON usage_batches (added_at);

ALTER TABLE usage ENABLE ROW LEVEL SECURITY;
ALTER TABLE usage FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON usage
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');

ALTER TABLE usage_costs ENABLE ROW LEVEL SECURITY;
ALTER TABLE usage_costs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON usage_costs
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');

ALTER TABLE usage_latencies ENABLE ROW LEVEL SECURITY;
ALTER TABLE usage_latencies FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON usage_latencies
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');

ALTER TABLE usage_pairs ENABLE ROW LEVEL SECURITY;
ALTER TABLE usage_pairs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON usage_pairs
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');

ALTER TABLE usage_wishes ENABLE ROW LEVEL SECURITY;
ALTER TABLE usage_wishes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON usage_wishes
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
