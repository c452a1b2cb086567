// Package trace makes OpenTelemetry spans of what a host does, and sends them to a
// collector by OTLP over HTTP.
//
//	events ──► Observe ──► queue, bounded ──► one goroutine ──► collector
//
// A fire is a trace. Its id follows from the namespace, the job and the instant or the
// trigger, so that all hosts of a fire, and those that take items over, write into one
// trace without knowing of each other. Each host has a span for its part of the fire, and
// below it one for each item, attempt, and request or connection:
//
//	fire ─┬─ item ─┬─ attempt ─┬─ GET
//	      │        └─ attempt  └─ connect
//	      └─ listener
//
// Nothing here blocks a host: what a collector does not take in time is dropped, the
// oldest first, and counted.
package trace
