// Package report is one host's report about itself: its process, its session with the registry, its history,
// its jobs, what it still waits for, and which parts of it a principal may see.
package report
