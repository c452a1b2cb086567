// Package filewatch notices that files have changed, also behind symbolic links that are
// turned, as Kubernetes does it with the files of a volume.
package filewatch
