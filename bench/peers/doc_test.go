// Package peers_test measures whole systems beside each other: ElasticJob and
// ours, as processes, on the same ZooKeeper in the same run, with items that do
// nothing. What it compares is what the hosts do around the items.
//
// "make bench-peers" runs it (build tag peers). What it finds out is ratios: the
// times belong to the machine and to what else it does.
package peers_test
