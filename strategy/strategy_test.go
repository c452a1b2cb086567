package strategy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// listA and listB are in ElasticJob's order.
var (
	listA = []string{"10.0.0.3@-@100", "10.0.0.2@-@100", "10.0.0.1@-@100"}
	listB = []string{"10.0.0.9@-@7", "10.0.0.2@-@45", "10.0.0.2@-@4000", "10.0.0.2@-@300", "10.0.0.10@-@7"}
)

func TestHashCode(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name       string
		hash       int32
		odd        bool
		mod3, mod5 int
	}{
		{"a", 97, true, 1, 2},
		{"jobA", 3267620, false, 2, 0},
		{"jobB", 3267621, true, 0, 1},
		{"nightlyReport", 1585970489, true, 2, 4},
		{"settle-orders", -270024281, true, 2, 1},
		{"rebuild-index", -2075059040, false, 2, 0},
		{"stockFeed", 1267652052, false, 0, 2},
		{"settle.v2", 1526342143, true, 1, 3},
		{"priceRefresh", -739760814, false, 0, 4},
		{"作业", 649790, false, 2, 0},
		{"😀", 1772899, true, 1, 4},
		{"polygenelubricants", -2147483648, false, 0, 0},
		{"", 0, false, 0, 0},
	} {
		h := hashCode(v.name)
		if h != v.hash || (h&1 != 0) != v.odd || offset(h, 3) != v.mod3 || offset(h, 5) != v.mod5 {
			t.Errorf("%q: hash %d, odd %v, offsets %d and %d; want %+v", v.name, h, h&1 != 0, offset(h, 3), offset(h, 5), v)
		}
	}
}

// TestAssignmentsOfElasticJob has the answers that ElasticJob's own classes
// give. Instances are shortened to the end of their address, and 2@45 where
// one address has several.
func TestAssignmentsOfElasticJob(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name, job string
		instances []string
		count     int
		want      string
	}{
		{AvgAllocation, "any", listA, 1, "3:[0] 2:[] 1:[]"},
		{AvgAllocation, "any", listA, 8, "3:[0 1 6] 2:[2 3 7] 1:[4 5]"},
		{AvgAllocation, "any", listA, 9, "3:[0 1 2] 2:[3 4 5] 1:[6 7 8]"},
		{AvgAllocation, "any", listA, 10, "3:[0 1 2 9] 2:[3 4 5] 1:[6 7 8]"},
		{AvgAllocation, "any", listB, 3, "9:[0] 2@45:[1] 2@4000:[2] 2@300:[] 10:[]"},
		{AvgAllocation, "any", listB, 7, "9:[0 5] 2@45:[1 6] 2@4000:[2] 2@300:[3] 10:[4]"},
		{Odevity, "jobA", listA, 2, "1:[0] 2:[1] 3:[]"},
		{Odevity, "jobB", listA, 2, "3:[0] 2:[1] 1:[]"},
		{Odevity, "settle-orders", listA, 8, "3:[0 1 6] 2:[2 3 7] 1:[4 5]"},
		{Odevity, "rebuild-index", listB, 7, "10:[0 5] 2@300:[1 6] 2@4000:[2] 2@45:[3] 9:[4]"},
		{RoundRobin, "jobA", listA, 8, "1:[0 1 6] 3:[2 3 7] 2:[4 5]"},
		{RoundRobin, "jobB", listA, 2, "3:[0] 2:[1] 1:[]"},
		{RoundRobin, "nightlyReport", listB, 7, "10:[0 5] 9:[1 6] 2@45:[2] 2@4000:[3] 2@300:[4]"},
		{RoundRobin, "stockFeed", listB, 7, "2@4000:[0 5] 2@300:[1 6] 10:[2] 9:[3] 2@45:[4]"},
		{RoundRobin, "settle.v2", listB, 7, "2@300:[0 5] 10:[1 6] 9:[2] 2@45:[3] 2@4000:[4]"},
		// ElasticJob fails on this name; see offset.
		{RoundRobin, "polygenelubricants", listA, 2, "3:[0] 2:[1] 1:[]"},
		// The balance adds the instant to the hash: 97 + 0, 97 + 1, and
		// past the end of 32 bits.
		{SingleShardingBalance, "a", listA, 1, "2:[0] 1:[] 3:[]"},
		{SingleShardingBalance + "+1", "a", listA, 1, "1:[0] 3:[] 2:[]"},
		{SingleShardingBalance + "+2147483551", "a", listA, 1, "3:[0] 2:[] 1:[]"}, // -2^31
		{SingleShardingBalance + "+2147483552", "a", listA, 1, "2:[0] 1:[] 3:[]"}, // -2147483647
		{SingleShardingBalance + "+1753000000000", "a", listA, 8, "1:[0 1 6] 3:[2 3 7] 2:[4 5]"},
	} {
		name, millis := v.name, int64(0)
		if before, after, found := strings.Cut(v.name, "+"); found {
			name = before
			fmt.Sscan(after, &millis)
		}
		s, _, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(v.instances)
		got := s(v.job, v.instances, v.count, time.UnixMilli(millis))
		for _, part := range strings.SplitAfter(v.want, "] ") {
			short, items, _ := strings.Cut(strings.TrimSpace(part), ":")
			if !strings.Contains(short, "@") {
				short += "@"
			}
			short = "10.0.0." + strings.Replace(short, "@", "@-@", 1)
			i := slices.IndexFunc(v.instances, func(id string) bool { return strings.HasPrefix(id, short) })
			if have := fmt.Sprint(got.Items(v.instances[i])); have != items {
				t.Errorf("%s %s %d items: %s has %s, want %s", v.name, v.job, v.count, v.instances[i], have, items)
			}
		}
		if len(got) != v.count || !slices.Equal(before, v.instances) {
			t.Errorf("%s %s: %d items of %d, instances %v", v.name, v.job, len(got), v.count, v.instances)
		}
	}
}

func TestNobodyAndNothing(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		s, _, _ := ByName(name)
		for _, got := range []Assignment{s("a", nil, 3, time.Time{}), s("a", listA, 0, time.Time{}), s("a", listA, -1, time.Time{})} {
			if got != nil {
				t.Errorf("%s: %v, want nothing", name, got)
			}
		}
	}
	if items := (Assignment{"x"}).Items("y"); items != nil {
		t.Errorf("items of a stranger: %v", items)
	}
}

func TestSorted(t *testing.T) {
	t.Parallel()
	shuffled := []string{listB[3], listB[0], listB[4], listB[2], listB[1]}
	kept := slices.Clone(shuffled)
	if got := Sorted(shuffled); !slices.Equal(got, listB) {
		t.Errorf("got %v, want %v", got, listB)
	}
	if !slices.Equal(shuffled, kept) {
		t.Error("the argument was changed")
	}
	// U+FFFD is below U+1F600 as a code point, but Java sees D83D first.
	if got := Sorted([]string{"a😀", "a\uFFFD", "a", "b", "a😀x", "a😁"}); !slices.Equal(got, []string{"b", "a\uFFFD", "a😁", "a😀x", "a😀", "a"}) {
		t.Errorf("got %q", got)
	}
}

// FuzzJava compares with the plain reading of Java's documentation.
func FuzzJava(f *testing.F) {
	f.Add("jobA", "polygenelubricants")
	f.Add("a😀", "a\uFFFD\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		ua, ub := utf16.Encode([]rune(a)), utf16.Encode([]rune(b))
		if got, want := compareUTF16(a, b), slices.Compare(ua, ub); got != want {
			t.Errorf("compare %q %q: %d, want %d", a, b, got, want)
		}
		var want uint32
		for _, u := range ua {
			want = want*31 + uint32(u)
		}
		if got := hashCode(a); uint32(got) != want {
			t.Errorf("hash of %q: %d, want %d", a, uint32(got), want)
		}
	})
}

// FuzzStrategies holds every strategy to what they all promise.
func FuzzStrategies(f *testing.F) {
	f.Add("jobA", uint8(3), uint16(8), int64(0))
	f.Add("polygenelubricants", uint8(5), uint16(1), int64(-1))
	f.Fuzz(func(t *testing.T, job string, hosts uint8, count uint16, millis int64) {
		instances := make([]string, hosts)
		for i := range instances {
			instances[i] = fmt.Sprintf("10.0.0.%d@-@%d", i, i)
		}
		checkPromises(t, job, instances, int(count), time.UnixMilli(millis))
	})
}

func TestPromises(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		instances := make([]string, r.IntN(20))
		for i := range instances {
			instances[i] = fmt.Sprintf("10.0.%d.%d@-@%d", i, r.IntN(255), r.IntN(1<<16))
		}
		job := fmt.Sprintf("job-%d", r.Uint32())
		checkPromises(t, job, Sorted(instances), r.IntN(200), time.UnixMilli(r.Int64()))
	}
}

func checkPromises(t *testing.T, job string, instances []string, count int, at time.Time) {
	t.Helper()
	for _, name := range Names() {
		s, _, _ := ByName(name)
		a := s(job, instances, count, at)
		if len(instances) == 0 || count == 0 {
			if a != nil {
				t.Fatalf("%s: %v out of nothing", name, a)
			}
			continue
		}
		if !reflect.DeepEqual(a, s(job, instances, count, at)) {
			t.Fatalf("%s: two answers to one question", name)
		}
		seen := make([]int, count)
		least, most := count, 0
		for _, instance := range instances {
			items := a.Items(instance)
			least, most = min(least, len(items)), max(most, len(items))
			for _, item := range items {
				seen[item]++
			}
		}
		if most-least > 1 {
			t.Fatalf("%s %q, %d items on %d instances: one has %d, another %d", name, job, count, len(instances), least, most)
		}
		for item, n := range seen {
			if n != 1 {
				t.Fatalf("%s: item %d assigned %d times", name, item, n)
			}
		}
	}
}

func TestByName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":                                     AvgAllocation,
		"AVG_ALLOCATION":                       AvgAllocation,
		"avg_allocation":                       AvgAllocation,
		"Odevity":                              Odevity,
		"ROUND_ROBIN":                          RoundRobin,
		"single_sharding_balance":              SingleShardingBalance,
		"AverageAllocationJobShardingStrategy": AvgAllocation,
		"com.dangdang.ddframe.job.plugin.sharding.strategy.AverageAllocationJobShardingStrategy":                               AvgAllocation,
		"com.dangdang.ddframe.job.plugin.sharding.strategy.OdevitySortByNameJobShardingStrategy":                               Odevity,
		"com.dangdang.ddframe.job.plugin.sharding.strategy.RotateServerByNameJobShardingStrategy":                              RoundRobin,
		"com.dangdang.ddframe.job.lite.api.strategy.impl.AverageAllocationJobShardingStrategy":                                 AvgAllocation,
		"com.dangdang.ddframe.job.lite.api.strategy.impl.OdevitySortByNameJobShardingStrategy":                                 Odevity,
		"com.dangdang.ddframe.job.lite.api.strategy.impl.RotateServerByNameJobShardingStrategy":                                RoundRobin,
		"io.elasticjob.lite.api.strategy.impl.AverageAllocationJobShardingStrategy":                                            AvgAllocation,
		"org.apache.shardingsphere.elasticjob.lite.api.strategy.impl.OdevitySortByNameJobShardingStrategy":                     Odevity,
		"org.apache.shardingsphere.elasticjob.infra.handler.sharding.impl.RoundRobinByNameJobShardingStrategy":                 RoundRobin,
		"org.apache.shardingsphere.elasticjob.kernel.internal.sharding.strategy.type.SingleShardingBalanceJobShardingStrategy": SingleShardingBalance,
	} {
		s, canonical, err := ByName(name)
		if err != nil || canonical != want || s == nil {
			t.Errorf("%q: %q, %v; want %q", name, canonical, err, want)
		}
	}
	for name, want := range map[string]string{
		"AVG_ALOCATION":        "did you mean AVG_ALLOCATION?",
		"round-robin":          "did you mean ROUND_ROBIN?",
		"ODEVITI":              "did you mean ODEVITY?",
		"SINGLE_SHARD_BALANCE": "did you mean SINGLE_SHARDING_BALANCE?",
		"com.dangdang.ddframe.job.lite.api.strategy.impl.OdevitySortJobShardingStrategy": "did you mean ODEVITY?",
		"com.example.AverageAllocationJobShardingStrategy":                               "known are AVG_ALLOCATION, ODEVITY, ROUND_ROBIN, SINGLE_SHARDING_BALANCE",
		"CONSISTENT_HASH": "known are AVG_ALLOCATION, ODEVITY, ROUND_ROBIN, SINGLE_SHARDING_BALANCE",
		" ":               "known are",
	} {
		s, canonical, err := ByName(name)
		if err == nil || s != nil || canonical != "" {
			t.Errorf("%q: no error", name)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want it to say %q", name, err, want)
		}
	}
}

func BenchmarkStrategies(b *testing.B) {
	instances := make([]string, 100)
	for i := range instances {
		instances[i] = fmt.Sprintf("10.0.0.%d@-@%d", i, 1000+i)
	}
	instances = Sorted(instances)
	for _, name := range Names() {
		s, _, _ := ByName(name)
		b.Run(name+"/100000x100", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s("nightlyReport", instances, 100_000, time.UnixMilli(1753000000000))
			}
		})
	}
}

func BenchmarkItems(b *testing.B) {
	a := avgAllocation("", Sorted([]string{"10.0.0.1@-@1", "10.0.0.2@-@1", "10.0.0.3@-@1"}), 100_000, time.Time{})
	b.ReportAllocs()
	for b.Loop() {
		a.Items("10.0.0.2@-@1")
	}
}
