// Package admin has the operators' operations on the jobs of a namespace, through the registry alone, and the
// values that they take and return. A host uses it for its API and its console (package service); a command
// with --zk uses it directly.
package admin
