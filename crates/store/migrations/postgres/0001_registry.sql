-- What every later step uses: single numbers.
CREATE TABLE store_numbers (
    name  text PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO store_numbers (name, value) VALUES ('probes', 0);
