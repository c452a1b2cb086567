// Package attack_test does the same harm to ElasticJob and to ours, at the same
// time and on the same ZooKeeper, and counts from outside what comes of it: a
// host is killed, halted beyond its session, or cut off from ZooKeeper, while
// it runs items that have an effect ten times a second.
//
// An effect is a line that the item's own code says to this program, over a
// pipe. It counts when it arrives, by one clock for all. What the systems say
// of themselves is not asked. "make attack-peers" runs it (build tag peers).
package attack_test
