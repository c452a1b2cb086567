// Package peers lets the hosts of a namespace find and call each other. Each publishes the address of its API
// in an ephemeral node of the registry, and watches those of the others. They authenticate each other by a key
// in the registry: a program that can read it can write jobs there anyway.
//
// A request is signed with the key, for one host and one session of it; the key itself is not sent. Without TLS
// an answer can be read on the connection, as always.
package peers
