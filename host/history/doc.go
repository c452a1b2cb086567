// Package history is what hosts remember of their work: the interface of the stores
// that keep it, and what all of them have in common.
//
// A host reports events, guests log lines, operators change things. A [Store] keeps
// these records, and makes fires and runs of the events. Every store is fed through a
// [Feed], which takes records without blocking, holds each job to its quota, and keeps
// the last lines of each run.
package history
