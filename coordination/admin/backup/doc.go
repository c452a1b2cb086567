// Package backup reads what a namespace holds in a registry and outlives its hosts, keeps it in
// a file, and writes it to another registry.
//
// A backup has all persistent nodes of both trees, but for the key by which hosts know each other, which they make
// anew. It has not what belongs to a session: a host that is in a job when the backup is made is one that has
// crashed when it is restored, and others take over what it ran.
//
// Numbers go on growing: before anything is written, the base of the namespace is raised above all that was
// given out; see package fence.
package backup
