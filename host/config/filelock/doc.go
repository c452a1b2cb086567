// Package filelock locks files for one process, and replaces them as a whole.
package filelock
