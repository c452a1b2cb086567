// Package backup reads what a namespace in a registry must keep when its hosts are gone, writes it to a file,
// and restores it into another registry.
//
// A backup has all persistent nodes of both trees, except the key by which hosts authenticate each other: hosts
// create a new one. It has no ephemeral nodes: a host that is in a job when the backup is made counts as
// crashed after the restore, and others take over what it ran.
//
// Transaction numbers keep growing: before anything is written, the base of the namespace is raised above every
// number that was given out; see package fence.
package backup
