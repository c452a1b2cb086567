package jobconfig

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The keys of Props that carry the guest's settings; see Guest.
const (
	PropType            = "wasm.type"
	PropTimeout         = "wasm.timeout"
	PropMaxConcurrency  = "wasm.maxConcurrency"
	PropIsolation       = "wasm.isolation"
	PropArgs            = "wasm.args"
	PropMemoryLimit     = "wasm.memoryLimit"
	PropFetchDataCount  = "wasm.fetchDataCount"
	PropRetryAttempts   = "wasm.retry.attempts"
	PropRetryBackoff    = "wasm.retry.backoff"
	PropRetryMaxBackoff = "wasm.retry.maxBackoff"
	PropRetryOn         = "wasm.retry.on"
	PropCatchUpWindow   = "wasm.catchUpWindow"
	PropMaxHostDeaths   = "wasm.maxHostDeaths"
	// PropStreamingProcess is ElasticJob's own.
	PropStreamingProcess = "streaming.process"
	// PropPrefix begins all keys that are not ElasticJob's.
	PropPrefix = "wasm."
)

// The bounds of the guest's settings.
const (
	MaxTimeout        = 30 * 24 * time.Hour
	MaxMaxConcurrency = 100_000
	MinMemoryLimit    = 64 << 10 // one page
	MaxMemoryLimit    = 4 << 30  // what a 32-bit guest can address
	MaxFetchDataCount = 1_000_000
	MaxRetryAttempts  = 100
	MaxBackoffLimit   = 24 * time.Hour
	MaxCatchUpWindow  = 30 * 24 * time.Hour
	MaxMaxHostDeaths  = 1000
)

// RetryOutcomes are the outcomes that may be tried again, in the order in
// which they are written.
func RetryOutcomes() []string { return []string{"RETRY", "FAIL", "TRAP", "EXIT", "TIMEOUT"} }

// DefaultGuest returns the settings of a configuration that states none of
// them, such as one that ElasticJob wrote.
func DefaultGuest() Guest {
	return Guest{
		Isolation:     IsolationFire,
		Retry:         RetryPolicy{Attempts: 3, Backoff: time.Second, MaxBackoff: 30 * time.Second, On: []string{"RETRY"}},
		CatchUpWindow: 5 * time.Minute,
		MaxHostDeaths: 2,
	}
}

// Guest reads the guest's settings from Props. The error joins a
// [*FieldError] for each value that cannot be read or is out of its range;
// keys that are not known are left alone, since a newer host may have written
// them. With an error, the settings at fault have their defaults.
func (c Configuration) Guest() (Guest, error) {
	g := DefaultGuest()
	r := propReader{props: c.Props}

	// Java takes anything but "true" for false.
	g.StreamingProcess = strings.EqualFold(c.Props[PropStreamingProcess], "true")

	r.read(PropType, func(s string) error {
		t := JobType(strings.ToUpper(s))
		if !slices.Contains([]JobType{"", TypeSimple, TypeDataflow, TypeScript}, t) {
			return fmt.Errorf("found %q, expected SIMPLE, DATAFLOW or SCRIPT", clipped(s))
		}
		g.Type = t
		return nil
	})
	r.read(PropIsolation, func(s string) error {
		i := Isolation(strings.ToLower(s))
		if !i.Valid() {
			return fmt.Errorf("found %q, expected fire, item or process", clipped(s))
		}
		g.Isolation = i
		return nil
	})
	r.read(PropArgs, func(s string) error {
		args, err := parseArgs(s)
		if err == nil {
			g.Args = args
		}
		return err
	})
	r.duration(PropTimeout, MaxTimeout, &g.Timeout)
	r.duration(PropCatchUpWindow, MaxCatchUpWindow, &g.CatchUpWindow)
	r.int(PropMaxConcurrency, 0, MaxMaxConcurrency, &g.MaxConcurrency)
	r.int(PropMaxHostDeaths, 0, MaxMaxHostDeaths, &g.MaxHostDeaths)
	r.int(PropFetchDataCount, 0, MaxFetchDataCount, &g.FetchDataCount)
	r.read(PropMemoryLimit, func(s string) error {
		n, err := ParseMemoryLimit(s)
		if err == nil {
			g.MemoryLimit = n
		}
		return err
	})
	r.int(PropRetryAttempts, 1, MaxRetryAttempts, &g.Retry.Attempts)
	r.duration(PropRetryBackoff, MaxBackoffLimit, &g.Retry.Backoff)
	r.duration(PropRetryMaxBackoff, MaxBackoffLimit, &g.Retry.MaxBackoff)
	if g.Retry.MaxBackoff < g.Retry.Backoff {
		if _, stated := c.Props[PropRetryMaxBackoff]; stated {
			r.problem(PropRetryMaxBackoff, fmt.Errorf("found %s, expected at least the first backoff, %s", g.Retry.MaxBackoff, g.Retry.Backoff))
		}
		g.Retry.MaxBackoff = max(DefaultGuest().Retry.MaxBackoff, g.Retry.Backoff)
	}
	r.read(PropRetryOn, func(s string) error {
		on, err := ParseRetryOn(s)
		if err == nil {
			g.Retry.On = on
		}
		return err
	})
	return g, errors.Join(r.problems...)
}

type propReader struct {
	props    map[string]string
	problems []error
}

func (r *propReader) problem(key string, err error) {
	r.problems = append(r.problems, &FieldError{"props." + key, err.Error()})
}

func (r *propReader) read(key string, parse func(string) error) {
	s, stated := r.props[key]
	if !stated {
		return
	}
	if err := parse(strings.TrimSpace(s)); err != nil {
		r.problem(key, err)
	}
}

func (r *propReader) duration(key string, limit time.Duration, into *time.Duration) {
	r.read(key, func(s string) error {
		d, err := ParseDuration(s, limit)
		if err == nil {
			*into = d
		}
		return err
	})
}

func (r *propReader) int(key string, lowest, highest int, into *int) {
	r.read(key, func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < lowest || n > highest {
			return fmt.Errorf("found %q, expected a whole number from %d to %d", clipped(s), lowest, highest)
		}
		*into = n
		return nil
	})
}

// Props writes the settings into a set of properties, which must not be nil:
// Guest reads the same settings from the result. A setting that has its
// default is left out, and removed if it was there. No attempts stand
// for the default RetryPolicy, no outcomes and no isolation for theirs.
func (g Guest) Props(into map[string]string) {
	d := DefaultGuest()
	put := func(key, value string, isDefault bool) {
		if isDefault {
			delete(into, key)
			return
		}
		into[key] = value
	}
	retry := g.Retry
	if retry.Attempts == 0 {
		retry = d.Retry
	}
	if len(retry.On) == 0 {
		retry.On = d.Retry.On
	}
	isolation := cmp.Or(g.Isolation, d.Isolation)
	args, _ := json.Marshal(g.Args) // a list of strings always has a JSON form
	on := strings.Join(retry.On, ",")

	put(PropStreamingProcess, "true", !g.StreamingProcess)
	put(PropType, string(g.Type), g.Type == "")
	put(PropTimeout, g.Timeout.String(), g.Timeout == d.Timeout)
	put(PropMaxConcurrency, strconv.Itoa(g.MaxConcurrency), g.MaxConcurrency == 0)
	put(PropIsolation, string(isolation), isolation == d.Isolation)
	put(PropArgs, string(args), len(g.Args) == 0)
	put(PropMemoryLimit, strconv.FormatInt(g.MemoryLimit, 10), g.MemoryLimit == 0)
	put(PropFetchDataCount, strconv.Itoa(g.FetchDataCount), g.FetchDataCount == 0)
	put(PropRetryAttempts, strconv.Itoa(retry.Attempts), retry.Attempts == d.Retry.Attempts)
	put(PropRetryBackoff, retry.Backoff.String(), retry.Backoff == d.Retry.Backoff)
	// A first backoff beyond the default limit raises the limit by itself.
	put(PropRetryMaxBackoff, retry.MaxBackoff.String(), retry.MaxBackoff == max(d.Retry.MaxBackoff, retry.Backoff))
	put(PropRetryOn, on, on == strings.Join(d.Retry.On, ","))
	put(PropCatchUpWindow, g.CatchUpWindow.String(), g.CatchUpWindow == d.CatchUpWindow)
	put(PropMaxHostDeaths, strconv.Itoa(g.MaxHostDeaths), g.MaxHostDeaths == d.MaxHostDeaths)
}

func parseArgs(s string) ([]string, error) {
	var args []*string
	err := json.Unmarshal([]byte(s), &args)
	if err != nil || args == nil || slices.Contains(args, nil) {
		return nil, fmt.Errorf(`found %q, expected a JSON list of strings, such as ["-v","x y"]`, clipped(s))
	}
	var out []string
	for _, a := range args {
		if strings.ContainsRune(*a, 0) {
			return nil, fmt.Errorf("found %q, expected arguments without a NUL character", clipped(s))
		}
		out = append(out, *a)
	}
	return out, nil
}

// ParseDuration reads a duration such as 30s, 5m or 1h30m, or 0; it is at
// least 0 and at most limit.
func ParseDuration(s string, limit time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		if _, e := strconv.ParseFloat(s, 64); e == nil {
			return 0, fmt.Errorf("found %q, expected a duration with its unit, such as %ss", clipped(s), clipped(s))
		}
		return 0, fmt.Errorf("found %q, expected a duration such as 30s, 5m or 1h30m, or 0", clipped(s))
	case d < 0 || d > limit:
		return 0, fmt.Errorf("found %q, expected a duration from 0 to %s", clipped(s), limit)
	}
	return d, nil
}

// ParseMemoryLimit reads a number of bytes, 67108864 or 64MiB: the units are
// B, KiB, MiB, GiB and the decimal KB, MB, GB. 0 is the default limit.
func ParseMemoryLimit(s string) (int64, error) {
	n, ok := ParseSize(s)
	switch {
	case !ok:
		return 0, fmt.Errorf("found %q, expected a size such as 64MiB, or a number of bytes", clipped(s))
	case n != 0 && (n < MinMemoryLimit || n > MaxMemoryLimit):
		return 0, fmt.Errorf("found %q, expected a size from 64KiB to 4GiB", clipped(s))
	}
	return n, nil
}

// ParseRetryOn reads a list of outcomes separated by commas. The result has
// each of them once, in the order of RetryOutcomes.
func ParseRetryOn(s string) ([]string, error) {
	outcomes := RetryOutcomes()
	var on []string
	for name := range strings.SplitSeq(s, ",") {
		name = strings.ToUpper(strings.TrimSpace(name))
		if !slices.Contains(outcomes, name) {
			return nil, fmt.Errorf("found %q, expected some of %s, separated by commas", clipped(name), strings.Join(outcomes, ", "))
		}
		on = append(on, name)
	}
	return slices.DeleteFunc(outcomes, func(o string) bool { return !slices.Contains(on, o) }), nil
}
