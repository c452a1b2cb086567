-- When the host began a run that took it over, whose first begin is begun; 0: none did.
ALTER TABLE wasmjob_items ADD COLUMN repeated INTEGER NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS wasmjob_items_open ON wasmjob_items (begun) WHERE ended = 0;
CREATE INDEX IF NOT EXISTS wasmjob_executions_open ON wasmjob_executions (begun) WHERE ended = 0;
