// Package cleanup removes nodes that a job no longer needs: marks, triggers and lists of runs whose hosts are
// gone, and nodes of servers that have been unused for long. A host calls it now and then, never during a fire.
// It decides by the host's view of the job and by what it reads itself, and may run on several hosts at once.
package cleanup
