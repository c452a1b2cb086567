// Command script is a SCRIPT job: an ordinary program, a WASI command, that
// knows nothing of the sdk. It is built without -buildmode=c-shared, so that
// it has a main:
//
//	GOOS=wasip1 GOARCH=wasm go build -o script.wasm ./script
//
// It counts primes: item i of n takes the i-th of n equal parts of the numbers
// below the job parameter (1000000 if there is none).
//
// A host tells a script about its item in three ways, of which a program takes
// the one it likes: in the environment (JOB_SHARDING_ITEM and so on), as JSON
// in the last argument, and as the same JSON on standard input. This one reads
// standard input, and falls back to the environment, so that it also runs in a
// shell. Its own arguments are in front: -list prints the primes themselves.
//
// What it writes to standard output is the host's log, line by line; standard
// error is logged as errors. It exits with 0, or with 1 if it failed; with 75
// a script asks to be run again.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
)

func main() {
	if err := run(os.Args[1:], os.Getenv, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "script:", err)
		os.Exit(1)
	}
}

// sharding is what a script is told, under ElasticJob's names.
type sharding struct {
	JobName            string `json:"jobName"`
	ShardingTotalCount int    `json:"shardingTotalCount"`
	ShardingItem       int    `json:"shardingItem"`
	JobParameter       string `json:"jobParameter"`
	ShardingParameter  string `json:"shardingParameter"`
}

func run(args []string, getenv func(string) string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("script", flag.ContinueOnError)
	list := flags.Bool("list", false, "print the primes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := read(getenv, stdin)
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(cmp.Or(s.JobParameter, "1000000"))
	if err != nil || limit < 0 || limit > 100_000_000 {
		return fmt.Errorf("job parameter %q is not a number from 0 to 100000000", s.JobParameter)
	}
	if s.ShardingTotalCount < 1 || s.ShardingItem < 0 || s.ShardingItem >= s.ShardingTotalCount {
		return fmt.Errorf("there is no item %d of %d", s.ShardingItem, s.ShardingTotalCount)
	}
	from := limit * s.ShardingItem / s.ShardingTotalCount
	to := limit * (s.ShardingItem + 1) / s.ShardingTotalCount
	primes := sieve(from, to)
	if *list {
		for _, p := range primes {
			fmt.Fprintln(stdout, p)
		}
	}
	_, err = fmt.Fprintf(stdout, "%d primes from %d to %d (item %d of %d)\n", len(primes), from, to-1, s.ShardingItem, s.ShardingTotalCount)
	return err
}

// read finds out which item is meant: by standard input if there is something
// on it, else by the environment. Without either it is item 0 of 1.
func read(getenv func(string) string, stdin io.Reader) (sharding, error) {
	s := sharding{ShardingTotalCount: 1}
	err := json.NewDecoder(stdin).Decode(&s)
	if err == nil {
		return s, nil
	}
	if !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("read the sharding context from standard input: %w", err)
	}
	s.JobName, s.JobParameter = getenv("JOB_NAME"), getenv("JOB_PARAMETER")
	s.ShardingParameter = getenv("JOB_SHARDING_PARAMETER")
	for name, value := range map[string]*int{"JOB_SHARDING_TOTAL_COUNT": &s.ShardingTotalCount, "JOB_SHARDING_ITEM": &s.ShardingItem} {
		text := getenv(name)
		if text == "" {
			continue
		}
		if *value, err = strconv.Atoi(text); err != nil {
			return s, fmt.Errorf("environment variable %s: %w", name, err)
		}
	}
	return s, nil
}

// sieve returns the primes p with from <= p < to.
func sieve(from, to int) []int {
	composite := make([]bool, max(0, to-from))
	for d := 2; d*d < to; d++ {
		for multiple := max(d*d, (from+d-1)/d*d); multiple < to; multiple += d {
			composite[multiple-from] = true
		}
	}
	var primes []int
	for i, c := range composite {
		if n := from + i; !c && n >= 2 {
			primes = append(primes, n)
		}
	}
	return primes
}
