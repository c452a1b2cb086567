-- What was not of fires and runs is asked for among very many events that were. The conditions are those of seldom.
CREATE INDEX IF NOT EXISTS wasmjob_events_seldom ON wasmjob_events (time, id)
	WHERE (kind < 'fire.' OR kind >= 'fire/') AND (kind < 'item.' OR kind >= 'item/') AND kind <> 'listener';
CREATE INDEX IF NOT EXISTS wasmjob_events_seldom_job ON wasmjob_events (job, time, id)
	WHERE (kind < 'fire.' OR kind >= 'fire/') AND (kind < 'item.' OR kind >= 'item/') AND kind <> 'listener';
