// Package report is what one host says of itself: its process, its session with the registry,
// its history, its jobs, what it still waits for, and what of that somebody may see.
package report
