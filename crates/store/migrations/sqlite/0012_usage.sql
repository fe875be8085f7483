-- Use and cost by tenant, day, tool, agent and user; how long calls took; what was used together and what was wanted; and
-- how the tools fared last (COST-004, COST-008, OBS-008, ANALYT-002, ANALYT-003).
--
-- Rows are sums and are only added to. Money is in two columns that add up separately: millionths of a unit, and what is
-- below one, in 10^-12; so a sum is exact and does not overflow. Days are counted from 1970-01-01, UTC. No user is ''.

CREATE TABLE usage (
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    day           INTEGER NOT NULL,
    tool_id       TEXT NOT NULL CHECK (tool_id <> ''),
    agent         TEXT NOT NULL CHECK (agent <> ''),
    user          TEXT NOT NULL,
    calls         INTEGER NOT NULL CHECK (calls >= 0),
    errors        INTEGER NOT NULL CHECK (errors >= 0),
    timeouts      INTEGER NOT NULL CHECK (timeouts >= 0),
    refused       INTEGER NOT NULL CHECK (refused >= 0),
    replayed      INTEGER NOT NULL CHECK (replayed >= 0),
    duration_ms   INTEGER NOT NULL CHECK (duration_ms >= 0),
    cpu_millicore_seconds INTEGER NOT NULL CHECK (cpu_millicore_seconds >= 0),
    network_bytes INTEGER NOT NULL CHECK (network_bytes >= 0),
    tokens        INTEGER NOT NULL CHECK (tokens >= 0),
    last_at       INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, day, tool_id, agent, user)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_by_day ON usage (day);

CREATE TABLE usage_costs (
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    day           INTEGER NOT NULL,
    tool_id       TEXT NOT NULL,
    agent         TEXT NOT NULL,
    user          TEXT NOT NULL,
    currency      TEXT NOT NULL CHECK (length(currency) = 3),
    component     TEXT NOT NULL,
    micros        INTEGER NOT NULL CHECK (micros >= 0),
    picos         INTEGER NOT NULL CHECK (picos >= 0),
    PRIMARY KEY (tenant_id, day, tool_id, agent, user, currency, component)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_costs_by_day ON usage_costs (day);

CREATE TABLE usage_latencies (
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    day           INTEGER NOT NULL,
    tool_id       TEXT NOT NULL,
    bucket        INTEGER NOT NULL CHECK (bucket >= 0),
    count         INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (tenant_id, day, tool_id, bucket)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_latencies_by_day ON usage_latencies (day);

CREATE TABLE usage_pairs (
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    day           INTEGER NOT NULL,
    first         TEXT NOT NULL,
    second        TEXT NOT NULL,
    count         INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (tenant_id, day, first, second),
    CHECK (first < second)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_pairs_by_day ON usage_pairs (day);

CREATE TABLE usage_wishes (
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    day           INTEGER NOT NULL,
    agent         TEXT NOT NULL,
    tool_id       TEXT NOT NULL,
    count         INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (tenant_id, day, agent, tool_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_wishes_by_day ON usage_wishes (day);

-- Which batches were added, so that none is added twice.
CREATE TABLE usage_batches (
    id            TEXT PRIMARY KEY CHECK (id <> ''),
    added_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_batches_by_time ON usage_batches (added_at);

CREATE TABLE tool_health (
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    tool_id       TEXT NOT NULL CHECK (tool_id <> ''),
    version       TEXT NOT NULL,
    score         REAL,
    calls         INTEGER NOT NULL CHECK (calls >= 0),
    baseline_p99_ms REAL NOT NULL,
    baseline_windows INTEGER NOT NULL CHECK (baseline_windows >= 0),
    raised        TEXT NOT NULL CHECK (json_valid(raised) AND json_type(raised) = 'array'), -- [[rule, time], …]
    at            INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, tool_id, version)
) STRICT, WITHOUT ROWID;

CREATE INDEX tool_health_by_time ON tool_health (at);
