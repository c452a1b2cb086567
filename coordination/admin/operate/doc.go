// Package operate is what operators do to a job: trigger it, enable and disable servers and items, stop
// instances, kill runs, release items that were held back, change items' offsets and state, and remove the job.
// ElasticJob's console writes the same nodes. Every function is one step on a session, may be called by any
// number of goroutines, and may be called again after an error. It returns [tree.ErrRemoved] for a job that is
// not in the registry.
package operate
