-- When the host began a run that took it over, whose first begin is begun; 0: none did.
ALTER TABLE wasmjob_items ADD COLUMN repeated BIGINT NOT NULL DEFAULT 0;
-- MySQL has no partial indexes.
ALTER TABLE wasmjob_items ADD KEY wasmjob_items_open (ended, begun);
ALTER TABLE wasmjob_executions ADD KEY wasmjob_executions_open (ended, begun);
