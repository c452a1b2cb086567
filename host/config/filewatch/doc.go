// Package filewatch detects changes of files, also when symbolic links change, as in Kubernetes volumes.
package filewatch
