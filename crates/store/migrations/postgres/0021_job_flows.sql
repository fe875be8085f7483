-- Within a tenant, flows take turns (JOB-7): the jobs of one agent, or the deliveries to one address. The counters follow the
-- states of jobs, whatever statement moved them, also one of the release before, whose jobs are all of the flow ''.

ALTER TABLE jobs ADD COLUMN flow text COLLATE "C" NOT NULL DEFAULT '';
UPDATE jobs SET flow = subject WHERE ended_at IS NULL;

CREATE INDEX jobs_queued_in_flow ON jobs (tenant_id, flow, rank, seq) WHERE state = 'queued';

-- `served` is twice the ticket under which a flow was served last. One that comes new begins behind those that were served
-- before: with the odd number after the newest ticket.
CREATE TABLE job_flows (
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    flow      text COLLATE "C" NOT NULL,
    waiting   bigint NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    running   bigint NOT NULL DEFAULT 0 CHECK (running >= 0),
    served    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, flow)
) WITH (fillfactor = 50);

CREATE INDEX job_flows_turn ON job_flows (tenant_id, running, served, flow) WHERE waiting > 0;

INSERT INTO job_flows (tenant_id, flow, waiting, running)
SELECT tenant_id, flow, count(*) FILTER (WHERE state IN ('delayed', 'queued')), count(*) FILTER (WHERE state = 'running')
FROM jobs WHERE ended_at IS NULL GROUP BY tenant_id, flow;

CREATE FUNCTION job_flows_move(of_tenant text, of_flow text, more_waiting bigint, more_running bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE job_flows SET waiting = waiting + more_waiting, running = running + more_running
    WHERE tenant_id = of_tenant AND flow = of_flow;
    IF NOT FOUND THEN
        INSERT INTO job_flows (tenant_id, flow, waiting, running, served)
        VALUES (of_tenant, of_flow, more_waiting, more_running,
                (SELECT coalesce(max(served), 0) * 2 + 1 FROM job_tenants))
        ON CONFLICT (tenant_id, flow) DO UPDATE
            SET waiting = job_flows.waiting + excluded.waiting, running = job_flows.running + excluded.running;
    ELSIF more_waiting + more_running < 0 THEN
        DELETE FROM job_flows WHERE tenant_id = of_tenant AND flow = of_flow AND waiting = 0 AND running = 0;
    END IF;
END
$$;

-- Its rows are locked in the order of their names, always after those of jobs and of tenants: the triggers of one statement
-- fire in the order of their names, and `jobs_counted` comes before `jobs_flowing`.
CREATE FUNCTION jobs_flowing() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moved record;
BEGIN
    IF TG_OP = 'INSERT' THEN
        FOR moved IN SELECT tenant_id, flow, count(*) FILTER (WHERE state IN ('delayed', 'queued')) AS waiting,
                            count(*) FILTER (WHERE state = 'running') AS running
                     FROM after WHERE ended_at IS NULL GROUP BY tenant_id, flow ORDER BY tenant_id, flow
        LOOP
            PERFORM job_flows_move(moved.tenant_id, moved.flow, moved.waiting, moved.running);
        END LOOP;
    ELSIF TG_OP = 'UPDATE' THEN
        FOR moved IN SELECT tenant_id, flow, sum(waits)::bigint AS waiting, sum(runs)::bigint AS running
                     FROM (SELECT tenant_id, flow, (state IN ('delayed', 'queued'))::int AS waits,
                                  (state = 'running')::int AS runs
                           FROM after
                           UNION ALL
                           SELECT tenant_id, flow, -(state IN ('delayed', 'queued'))::int, -(state = 'running')::int
                           FROM before) moves
                     GROUP BY tenant_id, flow HAVING sum(waits) <> 0 OR sum(runs) <> 0 ORDER BY tenant_id, flow
        LOOP
            PERFORM job_flows_move(moved.tenant_id, moved.flow, moved.waiting, moved.running);
        END LOOP;
    ELSE
        FOR moved IN SELECT tenant_id, flow, -count(*) FILTER (WHERE state IN ('delayed', 'queued')) AS waiting,
                            -count(*) FILTER (WHERE state = 'running') AS running
                     FROM before WHERE ended_at IS NULL GROUP BY tenant_id, flow ORDER BY tenant_id, flow
        LOOP
            PERFORM job_flows_move(moved.tenant_id, moved.flow, moved.waiting, moved.running);
        END LOOP;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER jobs_flowing_in AFTER INSERT ON jobs REFERENCING NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION jobs_flowing();
CREATE TRIGGER jobs_flowing_on AFTER UPDATE ON jobs REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION jobs_flowing();
CREATE TRIGGER jobs_flowing_out AFTER DELETE ON jobs REFERENCING OLD TABLE AS before
    FOR EACH STATEMENT EXECUTE FUNCTION jobs_flowing();

ALTER TABLE job_flows ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_flows FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_flows
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
