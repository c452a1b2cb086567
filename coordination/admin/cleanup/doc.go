// Package cleanup removes what nothing in a job needs any more: marks, triggers
// and lists of runs whose hosts are gone, and nodes of servers that are unused for long.
// A host calls it now and then, never in a fire. It goes by a host's view of the job and
// what it reads itself, and may run on several hosts at once.
package cleanup
