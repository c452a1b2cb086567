// Package operate is what operators do to a job: trigger it, enable and disable
// servers and items, stop instances, end runs, let items run again that were held
// back, change what items keep from run to run, and remove the job. ElasticJob's console writes the same nodes. Every function
// is one step on a session, may be called by any number of goroutines, and may be
// called again after an error. Of a job that is not in the registry it returns
// [tree.ErrRemoved].
package operate
