CREATE TABLE IF NOT EXISTS wasmjob_executions (
	fire TEXT NOT NULL,
	job TEXT NOT NULL,
	instant INTEGER NOT NULL,
	trigger_round INTEGER NOT NULL,
	source TEXT NOT NULL,
	host TEXT NOT NULL,
	items TEXT NOT NULL,
	total INTEGER NOT NULL,
	begun INTEGER NOT NULL,
	ended INTEGER NOT NULL,
	lag INTEGER NOT NULL,
	succeeded INTEGER NOT NULL,
	failed_items INTEGER NOT NULL,
	outcome TEXT NOT NULL,
	failed INTEGER NOT NULL,
	message TEXT NOT NULL,
	PRIMARY KEY (fire, host, begun)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS wasmjob_executions_job_begun ON wasmjob_executions (job, begun, fire, host);
CREATE INDEX IF NOT EXISTS wasmjob_executions_begun ON wasmjob_executions (begun, fire, host);
CREATE INDEX IF NOT EXISTS wasmjob_executions_failed ON wasmjob_executions (begun, fire, host) WHERE failed = 1;
CREATE TABLE IF NOT EXISTS wasmjob_items (
	id TEXT NOT NULL,
	job TEXT NOT NULL,
	item INTEGER NOT NULL,
	instant INTEGER NOT NULL,
	trigger_round INTEGER NOT NULL,
	source TEXT NOT NULL,
	host TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	begun INTEGER NOT NULL,
	ended INTEGER NOT NULL,
	duration INTEGER NOT NULL,
	lag INTEGER NOT NULL,
	outcome TEXT NOT NULL,
	failed INTEGER NOT NULL,
	completed INTEGER NOT NULL,
	message TEXT NOT NULL,
	fence INTEGER NOT NULL,
	digest TEXT NOT NULL,
	signer TEXT NOT NULL,
	memory INTEGER NOT NULL,
	batches INTEGER NOT NULL,
	records INTEGER NOT NULL,
	dropped_lines INTEGER NOT NULL,
	outside TEXT NOT NULL,
	PRIMARY KEY (id, begun)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS wasmjob_items_job_begun ON wasmjob_items (job, begun, id);
CREATE INDEX IF NOT EXISTS wasmjob_items_begun ON wasmjob_items (begun, id);
CREATE INDEX IF NOT EXISTS wasmjob_items_failed ON wasmjob_items (begun, id) WHERE failed = 1;
CREATE TABLE IF NOT EXISTS wasmjob_events (
	id INTEGER PRIMARY KEY,
	time INTEGER NOT NULL,
	kind TEXT NOT NULL,
	host TEXT NOT NULL,
	job TEXT NOT NULL,
	run TEXT NOT NULL,
	item INTEGER,
	instant INTEGER NOT NULL,
	trigger_round INTEGER NOT NULL,
	outcome TEXT NOT NULL,
	keep INTEGER NOT NULL,
	reason TEXT NOT NULL,
	data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS wasmjob_events_job_time ON wasmjob_events (job, time, id);
CREATE INDEX IF NOT EXISTS wasmjob_events_run ON wasmjob_events (run, time, id) WHERE run <> '';
CREATE INDEX IF NOT EXISTS wasmjob_events_time ON wasmjob_events (time, id);
CREATE TABLE IF NOT EXISTS wasmjob_logs (
	id INTEGER PRIMARY KEY,
	time INTEGER NOT NULL,
	job TEXT NOT NULL,
	run TEXT NOT NULL,
	item INTEGER NOT NULL,
	host TEXT NOT NULL,
	level INTEGER NOT NULL,
	keep INTEGER NOT NULL,
	message TEXT NOT NULL,
	attrs TEXT NOT NULL,
	gap INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS wasmjob_logs_job_time ON wasmjob_logs (job, time, id);
CREATE INDEX IF NOT EXISTS wasmjob_logs_run ON wasmjob_logs (run, time, id);
CREATE INDEX IF NOT EXISTS wasmjob_logs_time ON wasmjob_logs (time, id);
CREATE TABLE IF NOT EXISTS wasmjob_audit (
	id INTEGER PRIMARY KEY,
	time INTEGER NOT NULL,
	who TEXT NOT NULL,
	origin TEXT NOT NULL,
	what TEXT NOT NULL,
	job TEXT NOT NULL,
	item INTEGER,
	host TEXT NOT NULL,
	failed INTEGER NOT NULL,
	data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS wasmjob_audit_job_time ON wasmjob_audit (job, time, id);
CREATE INDEX IF NOT EXISTS wasmjob_audit_time ON wasmjob_audit (time, id);
CREATE TABLE IF NOT EXISTS wasmjob_writers (
	id TEXT NOT NULL PRIMARY KEY,
	position INTEGER NOT NULL,
	seen INTEGER NOT NULL
);
