-- When the host began a run that took it over, whose first begin is begun; 0: none did.
ALTER TABLE wasmjob_items ADD COLUMN repeated bigint NOT NULL DEFAULT 0;
