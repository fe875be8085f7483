-- Of which tenant whoever took a tool out of use is. What the installation (the home tenant) took out, only it puts back; rows
-- from before do not say who it was, so they count as the installation's.
ALTER TABLE tool_quarantines ADD COLUMN set_by_tenant TEXT NOT NULL DEFAULT 'local' CHECK (set_by_tenant <> '');
