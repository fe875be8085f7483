-- How the tools fared last (OBS-008).

CREATE TABLE tool_health (
    tenant_id     text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    tool_id       text COLLATE "C" NOT NULL CHECK (tool_id <> ''),
    version       text COLLATE "C" NOT NULL,
    score         double precision,
    calls         bigint NOT NULL CHECK (calls >= 0),
    baseline_p99_ms double precision NOT NULL,
    baseline_windows bigint NOT NULL CHECK (baseline_windows >= 0),
    raised        text NOT NULL CHECK (json_typeof(raised::json) = 'array'), -- [[rule, time], …]
    at            bigint NOT NULL,
    PRIMARY KEY (tenant_id, tool_id, version)
);

CREATE INDEX tool_health_by_time ON tool_health (at);

ALTER TABLE tool_health ENABLE ROW LEVEL SECURITY;
ALTER TABLE tool_health FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tool_health
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
