// Package peers lets the hosts of a namespace find and ask each other. Each publishes
// the address of its API in the registry, in a node that goes with its session, and
// watches those of the others. They know each other by a key that stands in the
// registry too: who may read it may also write jobs there.
//
// A request is signed with the key, for one host and one life of it; the key itself is
// not sent. An answer can be read by who can read the connection: without TLS that is
// what it always is.
package peers
