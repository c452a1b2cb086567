package strategy

import "time"

// avgAllocation gives every instance the same number of adjacent items, in the order of the instances; the
// remainder goes, one item each, to the first ones. Three instances share eight items as [0,1,6] [2,3,7] [4,5].
func avgAllocation(_ string, instances []string, shardingTotalCount int, _ time.Time) Assignment {
	return allocate(instances, 0, false, shardingTotalCount)
}

// allocate divides for all strategies: they differ only in the order of the instances. The order begins at
// offset and wraps around, or goes backwards from the last one.
func allocate(instances []string, offset int, backwards bool, count int) Assignment {
	if len(instances) == 0 || count <= 0 {
		return nil
	}
	a := make(Assignment, count)
	each := count / len(instances)
	rest := each * len(instances)
	for k := range instances {
		from := (offset + k) % len(instances)
		if backwards {
			from = len(instances) - 1 - k
		}
		instance := instances[from]
		for item := k * each; item < (k+1)*each; item++ {
			a[item] = instance
		}
		if rest+k < count {
			a[rest+k] = instance
		}
	}
	return a
}
