// Package filelock takes files for one process.
package filelock
