CREATE TABLE IF NOT EXISTS wasmjob_executions (
	fire text COLLATE "C" NOT NULL,
	job text COLLATE "C" NOT NULL,
	instant bigint NOT NULL,
	trigger_round bigint NOT NULL,
	source text COLLATE "C" NOT NULL,
	host text COLLATE "C" NOT NULL,
	items text NOT NULL,
	total integer NOT NULL,
	begun bigint NOT NULL,
	ended bigint NOT NULL,
	lag bigint NOT NULL,
	succeeded integer NOT NULL,
	failed_items integer NOT NULL,
	outcome text COLLATE "C" NOT NULL,
	failed smallint NOT NULL,
	message text NOT NULL,
	PRIMARY KEY (fire, host, begun)
) PARTITION BY RANGE (begun);
CREATE INDEX IF NOT EXISTS wasmjob_executions_job_begun ON wasmjob_executions (job, begun, fire, host);
CREATE INDEX IF NOT EXISTS wasmjob_executions_begun ON wasmjob_executions (begun, fire, host);
CREATE INDEX IF NOT EXISTS wasmjob_executions_open ON wasmjob_executions (begun) WHERE ended = 0;
CREATE INDEX IF NOT EXISTS wasmjob_executions_failed ON wasmjob_executions (begun, fire, host) WHERE failed = 1;
CREATE TABLE IF NOT EXISTS wasmjob_items (
	id text COLLATE "C" NOT NULL,
	job text COLLATE "C" NOT NULL,
	item integer NOT NULL,
	instant bigint NOT NULL,
	trigger_round bigint NOT NULL,
	source text COLLATE "C" NOT NULL,
	host text COLLATE "C" NOT NULL,
	attempt integer NOT NULL,
	begun bigint NOT NULL,
	ended bigint NOT NULL,
	duration bigint NOT NULL,
	lag bigint NOT NULL,
	outcome text COLLATE "C" NOT NULL,
	failed smallint NOT NULL,
	completed smallint NOT NULL,
	message text NOT NULL,
	fence bigint NOT NULL,
	digest text COLLATE "C" NOT NULL,
	signer text NOT NULL,
	memory bigint NOT NULL,
	batches bigint NOT NULL,
	records bigint NOT NULL,
	dropped_lines bigint NOT NULL,
	outside text NOT NULL,
	PRIMARY KEY (id, begun)
) PARTITION BY RANGE (begun);
CREATE INDEX IF NOT EXISTS wasmjob_items_job_begun ON wasmjob_items (job, begun, id);
CREATE INDEX IF NOT EXISTS wasmjob_items_begun ON wasmjob_items (begun, id);
CREATE INDEX IF NOT EXISTS wasmjob_items_open ON wasmjob_items (begun) WHERE ended = 0;
CREATE INDEX IF NOT EXISTS wasmjob_items_failed ON wasmjob_items (begun, id) WHERE failed = 1;
CREATE TABLE IF NOT EXISTS wasmjob_events (
	id bigint GENERATED ALWAYS AS IDENTITY,
	time bigint NOT NULL,
	kind text COLLATE "C" NOT NULL,
	host text COLLATE "C" NOT NULL,
	job text COLLATE "C" NOT NULL,
	run text COLLATE "C" NOT NULL,
	item integer,
	instant bigint NOT NULL,
	trigger_round bigint NOT NULL,
	outcome text COLLATE "C" NOT NULL,
	keep smallint NOT NULL,
	reason text NOT NULL,
	data text NOT NULL,
	PRIMARY KEY (time, id)
) PARTITION BY RANGE (time);
CREATE INDEX IF NOT EXISTS wasmjob_events_job_time ON wasmjob_events (job, time, id);
CREATE INDEX IF NOT EXISTS wasmjob_events_keep ON wasmjob_events (time) WHERE keep = 1;
CREATE INDEX IF NOT EXISTS wasmjob_events_run ON wasmjob_events (run, time, id) WHERE run <> '';
CREATE TABLE IF NOT EXISTS wasmjob_logs (
	id bigint GENERATED ALWAYS AS IDENTITY,
	time bigint NOT NULL,
	job text COLLATE "C" NOT NULL,
	run text COLLATE "C" NOT NULL,
	item integer NOT NULL,
	host text COLLATE "C" NOT NULL,
	level integer NOT NULL,
	keep smallint NOT NULL,
	message text NOT NULL,
	attrs text NOT NULL,
	gap bigint NOT NULL,
	PRIMARY KEY (time, id)
) PARTITION BY RANGE (time);
CREATE INDEX IF NOT EXISTS wasmjob_logs_job_time ON wasmjob_logs (job, time, id);
CREATE INDEX IF NOT EXISTS wasmjob_logs_keep ON wasmjob_logs (time) WHERE keep = 1;
CREATE INDEX IF NOT EXISTS wasmjob_logs_run ON wasmjob_logs (run, time, id);
CREATE TABLE IF NOT EXISTS wasmjob_audit (
	id bigint GENERATED ALWAYS AS IDENTITY,
	time bigint NOT NULL,
	who text NOT NULL,
	origin text NOT NULL,
	what text NOT NULL,
	job text COLLATE "C" NOT NULL,
	item integer,
	host text COLLATE "C" NOT NULL,
	failed smallint NOT NULL,
	data text NOT NULL,
	PRIMARY KEY (time, id)
);
CREATE INDEX IF NOT EXISTS wasmjob_audit_job_time ON wasmjob_audit (job, time, id);
CREATE TABLE IF NOT EXISTS wasmjob_writers (
	id text COLLATE "C" NOT NULL PRIMARY KEY,
	position bigint NOT NULL,
	seen bigint NOT NULL
);
