-- The searchable copy of all audit logs, and the calls that came to their end (STORE-004, AUD-014), by months of UTC.
--
-- Moments are milliseconds since 1970. A month is a partition, made ahead and dropped as a whole by the two functions below,
-- which run with the rights of the owner: servers need not own the tables. The line is the log's own, byte for byte.

-- How far each log was brought. `began_seq` is where the last batch began, for the statement that brings it.
CREATE TABLE archive_logs (
    log           text COLLATE "C" PRIMARY KEY CHECK (log <> ''),
    began_seq     bigint NOT NULL CHECK (began_seq >= 0),
    next_seq      bigint NOT NULL CHECK (next_seq >= 0)
);

CREATE TABLE audit_records (
    log           text COLLATE "C" NOT NULL,
    seq           bigint NOT NULL CHECK (seq >= 0),
    at            bigint NOT NULL,
    tenant_id     text COLLATE "C" CHECK (tenant_id <> ''),
    tool_id       text COLLATE "C",
    subject       text COLLATE "C",
    trace_id      text COLLATE "C",
    action        text COLLATE "C" NOT NULL,
    invocation_id uuid,
    line          text NOT NULL,
    PRIMARY KEY (log, seq, at)
) PARTITION BY RANGE (at);

CREATE INDEX audit_records_by_time ON audit_records (at, log, seq);
CREATE INDEX audit_records_by_tenant ON audit_records (tenant_id, at, log, seq);
CREATE INDEX audit_records_by_tool ON audit_records (tenant_id, tool_id, at, log, seq);
CREATE INDEX audit_records_by_trace ON audit_records (trace_id);
CREATE INDEX audit_records_by_invocation ON audit_records (invocation_id);

CREATE TABLE tool_invocations (
    invocation_id uuid NOT NULL,
    log           text COLLATE "C" NOT NULL,
    seq           bigint NOT NULL CHECK (seq >= 0),
    tenant_id     text COLLATE "C" CHECK (tenant_id <> ''),
    tool_id       text COLLATE "C",
    tool_version  text COLLATE "C",
    agent_did     text COLLATE "C",
    status        text COLLATE "C" NOT NULL CHECK (status <> ''),
    error_code    text COLLATE "C",
    invoked_at    bigint NOT NULL,
    completed_at  bigint NOT NULL,
    duration_ms   bigint NOT NULL CHECK (duration_ms >= 0),
    parameters_digest text COLLATE "C",
    currency      text COLLATE "C",
    cost_micros   bigint,
    cost_picos    bigint,
    PRIMARY KEY (log, seq, completed_at)
) PARTITION BY RANGE (completed_at);

CREATE INDEX tool_invocations_by_tenant ON tool_invocations (tenant_id, completed_at, log, seq);
CREATE INDEX tool_invocations_by_tool_status ON tool_invocations (tenant_id, tool_id, status, completed_at);
CREATE INDEX tool_invocations_by_invocation ON tool_invocations (invocation_id);

ALTER TABLE archive_logs ENABLE ROW LEVEL SECURITY;
ALTER TABLE archive_logs FORCE ROW LEVEL SECURITY;
CREATE POLICY system ON archive_logs USING (current_setting('gantry.tenant', true) = '*');

ALTER TABLE audit_records ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_records FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_records
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');

ALTER TABLE tool_invocations ENABLE ROW LEVEL SECURITY;
ALTER TABLE tool_invocations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tool_invocations
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');

-- The first moment of a month.
CREATE FUNCTION archive_month_begins(month date) RETURNS bigint LANGUAGE sql IMMUTABLE
    AS $$ SELECT (month - date '1970-01-01')::bigint * 86400000 $$;

-- Makes a month of a table ready; false if it is. Made beside and attached, so that readers and writers go on meanwhile.
CREATE FUNCTION archive_provide(parent text, month date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    part text := parent || to_char(month, '_YYYY_MM');
BEGIN
    IF parent NOT IN ('audit_records', 'tool_invocations') OR extract(day FROM month) <> 1 THEN
        RAISE EXCEPTION 'no month of the archive';
    END IF;
    PERFORM pg_advisory_xact_lock(1196315218);
    IF to_regclass(quote_ident(part)) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part, parent);
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', part);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', part);
    EXECUTE format('CREATE POLICY tenant ON %I USING (tenant_id = current_setting(''gantry.tenant'', true)
        OR current_setting(''gantry.tenant'', true) = ''*'')', part);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part,
        archive_month_begins(month), archive_month_begins((month + interval '1 month')::date));
    RETURN true;
END $$;

-- Drops the months of a table that end at this moment or before; their names. Does not wait long behind a reader: whoever
-- waits for such a lock holds everybody else up.
CREATE FUNCTION archive_drop(parent text, before bigint) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER
    SET lock_timeout = '2s' AS $$
DECLARE
    part text;
    month date;
BEGIN
    IF parent NOT IN ('audit_records', 'tool_invocations') THEN
        RAISE EXCEPTION 'no table of the archive';
    END IF;
    PERFORM pg_advisory_xact_lock(1196315218);
    FOR part IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = to_regclass(quote_ident(parent)) ORDER BY c.relname
    LOOP
        month := to_date(right(part, 7), 'YYYY_MM');
        CONTINUE WHEN archive_month_begins((month + interval '1 month')::date) > before;
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, part);
        EXECUTE format('DROP TABLE %I', part);
        RETURN NEXT part;
    END LOOP;
END $$;

-- With the owner's rights only what is named here is done, on the owner's tables, and by whom the owner lets.
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION archive_provide(text, date) SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION archive_drop(text, bigint) SET search_path = %I, pg_temp', current_schema());
END $$;
REVOKE ALL ON FUNCTION archive_provide(text, date), archive_drop(text, bigint) FROM PUBLIC;
