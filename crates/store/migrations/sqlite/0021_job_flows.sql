-- Within a tenant, flows take turns (JOB-7): the jobs of one agent, or the deliveries to one address. The counters follow the
-- states of jobs, whatever statement moved them, also one of the release before, whose jobs are all of the flow ''.

ALTER TABLE jobs ADD COLUMN flow TEXT NOT NULL DEFAULT '';
UPDATE jobs SET flow = subject WHERE ended_at IS NULL;

CREATE INDEX jobs_queued_in_flow ON jobs (tenant_id, flow, rank, seq) WHERE state = 'queued';

-- `served` is twice the ticket under which a flow was served last. One that comes new begins behind those that were served
-- before: with the odd number after the newest ticket.
CREATE TABLE job_flows (
    tenant_id TEXT NOT NULL,
    flow      TEXT NOT NULL,
    ready     INTEGER NOT NULL DEFAULT 0 CHECK (ready >= 0),
    running   INTEGER NOT NULL DEFAULT 0 CHECK (running >= 0),
    served    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, flow)
) STRICT, WITHOUT ROWID;

CREATE INDEX job_flows_turn ON job_flows (tenant_id, running, served, flow) WHERE ready > 0;

INSERT INTO job_flows (tenant_id, flow, ready, running)
SELECT tenant_id, flow, sum(state = 'queued'), sum(state = 'running') FROM jobs
WHERE state IN ('queued', 'running') GROUP BY tenant_id, flow;

CREATE TRIGGER job_flows_in AFTER INSERT ON jobs WHEN NEW.state IN ('queued', 'running')
BEGIN
    INSERT INTO job_flows (tenant_id, flow, served)
    SELECT NEW.tenant_id, NEW.flow, (SELECT served * 2 + 1 FROM job_tenants WHERE tenant_id = '')
    WHERE NOT EXISTS (SELECT 1 FROM job_flows WHERE tenant_id = NEW.tenant_id AND flow = NEW.flow);
    UPDATE job_flows SET ready = ready + (NEW.state = 'queued'), running = running + (NEW.state = 'running')
    WHERE tenant_id = NEW.tenant_id AND flow = NEW.flow;
END;

CREATE TRIGGER job_flows_on AFTER UPDATE OF state ON jobs WHEN OLD.state <> NEW.state
BEGIN
    INSERT INTO job_flows (tenant_id, flow, served)
    SELECT NEW.tenant_id, NEW.flow, (SELECT served * 2 + 1 FROM job_tenants WHERE tenant_id = '')
    WHERE NEW.state IN ('queued', 'running')
      AND NOT EXISTS (SELECT 1 FROM job_flows WHERE tenant_id = NEW.tenant_id AND flow = NEW.flow);
    UPDATE job_flows SET ready = ready + (NEW.state = 'queued') - (OLD.state = 'queued'),
                         running = running + (NEW.state = 'running') - (OLD.state = 'running')
    WHERE tenant_id = NEW.tenant_id AND flow = NEW.flow;
    DELETE FROM job_flows WHERE tenant_id = NEW.tenant_id AND flow = NEW.flow AND ready = 0 AND running = 0;
END;

CREATE TRIGGER job_flows_out AFTER DELETE ON jobs WHEN OLD.state IN ('queued', 'running')
BEGIN
    UPDATE job_flows SET ready = ready - (OLD.state = 'queued'), running = running - (OLD.state = 'running')
    WHERE tenant_id = OLD.tenant_id AND flow = OLD.flow;
    DELETE FROM job_flows WHERE tenant_id = OLD.tenant_id AND flow = OLD.flow AND ready = 0 AND running = 0;
END;
