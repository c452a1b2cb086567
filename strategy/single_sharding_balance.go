package strategy

import "time"

// singleShardingBalance is ROUND_ROBIN with the instant, in milliseconds since
// 1970, added to the hash code: each new sharding begins at another instance.
// The sum wraps around in 32 bits, as in Java.
func singleShardingBalance(jobName string, instances []string, shardingTotalCount int, at time.Time) Assignment {
	hash := hashCode(jobName) + int32(at.UnixMilli())
	return allocate(instances, offset(hash, len(instances)), false, shardingTotalCount)
}
