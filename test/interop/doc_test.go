// Package interop_test puts ElasticJob itself beside our hosts: its lifecycle
// API operates them, and its instances share jobs with them. Everything is
// real: ZooKeeper, the built program, ElasticJob's own classes in a JVM.
//
// The tests have the build tag interop, since they need Maven once; "make
// interop" runs them. Nothing here waits for a time to pass: a test waits for
// a run, an event, a node or an answer, and patience bounds each wait.
package interop_test
