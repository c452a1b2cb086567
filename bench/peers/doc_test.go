// Package peers_test measures whole systems beside each other: ElasticJob and
// ours, as processes, on the same ZooKeeper in the same run, with items that do
// nothing. What it compares is what the hosts do around the items.
//
// "make bench-peers" runs it (build tag peers). What it finds out is ratios: the
// times belong to the machine and to what else it does. The defaults take some eight
// minutes of a quiet machine; the sizes at which ElasticJob takes its time are
//
//	make bench-peers PEERS="-items 1,10,100,1000 -hosts 1,3,10 -crashed 1,10,100 -more 1000 -jobs 1000"
package peers_test
