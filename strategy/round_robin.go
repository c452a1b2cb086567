package strategy

import "time"

// roundRobin divides as AVG_ALLOCATION does, but begins at an instance that
// depends on the hash code of the job's name.
func roundRobin(jobName string, instances []string, shardingTotalCount int, _ time.Time) Assignment {
	return allocate(instances, offset(hashCode(jobName), len(instances)), false, shardingTotalCount)
}

// offset is abs(hash) mod n as Java computes it. The one number without an
// absolute value, -2^31, stays negative there and makes ElasticJob fail or
// begin at the first instance, depending on n; here it always begins at the
// first.
func offset(hash int32, n int) int {
	if hash < 0 {
		hash = -hash
	}
	if hash < 0 || n == 0 {
		return 0
	}
	return int(hash) % n
}
