-- Activations have ids, and say since when they are and when they were changed last (VIS-003).
--
-- Of those that are here already nobody knows since when: they are as old as this step. A release before this one writes
-- activations without any of it, so the database gives them what is missing.

ALTER TABLE access_activations
    ADD COLUMN id         text COLLATE "C" NOT NULL DEFAULT gen_random_uuid()::text,
    ADD COLUMN created_at bigint NOT NULL DEFAULT (extract(epoch FROM now()) * 1000)::bigint, -- Milliseconds since 1970, UTC.
    ADD COLUMN updated_at bigint NOT NULL DEFAULT (extract(epoch FROM now()) * 1000)::bigint; -- The same.

CREATE UNIQUE INDEX access_activations_by_id ON access_activations (id);
