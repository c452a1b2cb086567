// Package admin is what operators do to jobs: the operations on the jobs of a namespace in
// the registry, whether a host runs or not, and the values that they take and return. A host
// carries them out for its API and its console, package service; a command with --zk by itself.
package admin
