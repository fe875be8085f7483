-- Activations have ids, and say since when they are and when they were changed last (VIS-003).
--
-- Of those that are here already nobody knows since when: they are as old as this step. A release before this one writes
-- activations without any of it, so the database gives them what is missing.

ALTER TABLE access_activations ADD COLUMN id TEXT;
ALTER TABLE access_activations ADD COLUMN created_at INTEGER; -- Milliseconds since 1970, UTC.
ALTER TABLE access_activations ADD COLUMN updated_at INTEGER; -- The same.

UPDATE access_activations SET
    id = lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-8' ||
               substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))),
    created_at = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER),
    updated_at = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER);

CREATE TRIGGER access_activations_identity AFTER INSERT ON access_activations WHEN new.id IS NULL
BEGIN
    UPDATE access_activations SET
        id = lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-8' ||
                   substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))),
        created_at = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER),
        updated_at = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
    WHERE tenant_id = new.tenant_id AND agent = new.agent AND tool = new.tool;
END;

CREATE UNIQUE INDEX access_activations_by_id ON access_activations (id);
