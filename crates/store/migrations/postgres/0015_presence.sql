-- Which instances are there, as they say themselves, where there is no Redis to tell. Nothing else depends on it.
--
-- Times are milliseconds since 1970 by the server's clock.

CREATE TABLE presence (
    instance text COLLATE "C" PRIMARY KEY CHECK (octet_length(instance) BETWEEN 1 AND 200),
    word     text NOT NULL CHECK (octet_length(word) <= 4096),
    seen_at  bigint NOT NULL,
    until_at bigint NOT NULL
) WITH (fillfactor = 50);
