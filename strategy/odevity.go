package strategy

import "time"

// odevity divides as AVG_ALLOCATION does, but a job whose name has an even hash code takes the instances from
// the last to the first. So jobs with fewer items than instances do not all get the same ones.
func odevity(jobName string, instances []string, shardingTotalCount int, _ time.Time) Assignment {
	return allocate(instances, 0, hashCode(jobName)&1 == 0, shardingTotalCount)
}
