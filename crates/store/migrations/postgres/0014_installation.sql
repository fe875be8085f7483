-- What makes several instances one installation: the secrets they all know by the same name, such as the key that signs
-- tokens. No tenant's, so no tenant sees a row.

CREATE TABLE installation_secrets (
    name  text PRIMARY KEY CHECK (name <> ''),
    value text NOT NULL CHECK (value <> ''),
    since timestamptz NOT NULL DEFAULT now()
);

ALTER TABLE installation_secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE installation_secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY system ON installation_secrets USING (current_setting('gantry.tenant', true) = '*');
