// Package rate limits how many items begin under a key within a time span in a namespace, whatever their jobs
// and hosts.
//
// Each key is a node. It holds the recent begins, the places of those that wait, and until when a guest has
// paused the key:
//
//	@-@rates/api   {"key":"api","per":60000,"max":5,"first":1796000000000,"begins":[0,12,50],
//	                "places":[{"at":1796000060000,"host":"10.0.0.1@-@7-x","job":"mails"}]}
//
// A host that begins items adds them to the node in the same commit, which proves the node's version. So no
// span has too many begins, and nothing is lost with a host that dies before its commit.
//
// An item that may not begin yet gets a place: the earliest time at which it may, after all earlier places. A
// host has at most as many places as its job may begin in a span, so that a host with many items does not crowd
// out the others. A place that is not used within [Grace] is void: its host may have died.
//
// All times are those of the registry's clock.
package rate
