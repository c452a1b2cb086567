// Package rate is a rate over a namespace: under a key at most so many items begin in any span of some
// length, whatever their jobs and hosts.
//
// Each key is a node. It holds when items began lately, who is next, and until when a guest has paused the key:
//
//	@-@rates/api   {"key":"api","per":60000,"max":5,"first":1796000000000,"begins":[0,12,50],
//	                "places":[{"at":1796000060000,"host":"10.0.0.1@-@7-x","job":"mails"}]}
//
// A host that begins items adds them to the node in the same commit, which proves the version of the node that it has
// decided by. So no span has too many begins, and nothing is lost with a host that dies before its commit.
//
// What may not begin yet gets a place: the earliest time at which it may, after all places that were given before. A
// host has at most as many places as its job may begin in a span, so that a host with many items does not go before all
// others. A place that is not used within [Grace] is void: its host may have died.
//
// All times are those of the registry's clock.
package rate
