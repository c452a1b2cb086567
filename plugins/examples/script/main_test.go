package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func env(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func Example_run() {
	for item := range 3 {
		stdin := fmt.Sprintf(`{"jobName":"script","taskId":"t","shardingTotalCount":3,"jobParameter":"30","shardingItem":%d}`, item)
		if err := run([]string{"-list", stdin}, env(nil), strings.NewReader(stdin+"\n"), os.Stdout); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// 2
	// 3
	// 5
	// 7
	// 4 primes from 0 to 9 (item 0 of 3)
	// 11
	// 13
	// 17
	// 19
	// 4 primes from 10 to 19 (item 1 of 3)
	// 23
	// 29
	// 2 primes from 20 to 29 (item 2 of 3)
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := run(nil, env(map[string]string{"JOB_SHARDING_TOTAL_COUNT": "4", "JOB_SHARDING_ITEM": "3", "JOB_PARAMETER": "100"}), strings.NewReader(""), &out)
	if want := "4 primes from 75 to 99 (item 3 of 4)\n"; err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ item, parameter, stdin, want string }{
		{"0", "many", "", `job parameter "many" is not a number`},
		{"0", "-1", "", "is not a number"},
		{"1", "", "", "there is no item 1 of 1"},
		{"x", "", "", "environment variable JOB_SHARDING_ITEM"},
		{"0", "", "{", "standard input"},
	} {
		err := run(nil, env(map[string]string{"JOB_SHARDING_ITEM": test.item, "JOB_PARAMETER": test.parameter}), strings.NewReader(test.stdin), &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// TestSieve compares with trial division, part by part.
func TestSieve(t *testing.T) {
	t.Parallel()
	var want []int
	for n := 2; n < 1000; n++ {
		prime := true
		for d := 2; d < n; d++ {
			prime = prime && n%d != 0
		}
		if prime {
			want = append(want, n)
		}
	}
	for parts := 1; parts < 40; parts++ {
		var got []int
		for i := range parts {
			got = append(got, sieve(1000*i/parts, 1000*(i+1)/parts)...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d parts: got %v", parts, got)
		}
	}
}
