package catalog

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/config/grants"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.yaml":   "job good",
		"good.wasm":   "good.",
		"other.yml":   "job good good.wasm\njob misfit good.wasm misfit",
		"wrong.yaml":  "!one\n!two",
		"none.yaml":   "job none",
		"bad.yaml":    "job bad",
		"bad.wasm":    "bad",
		"lone.wasm":   "bad lone",
		"notes.txt":   "",
		"empty.yaml":  "",
		"large.yaml":  "job large good.wasm misfit memory",
		".hidden.yml": "!x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "link.wasm")); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ paths, want []string }{
		"all": {[]string{""}, []string{
			"bad.wasm: first problem", "bad.wasm: second problem",
			`bad.yaml:1: job "bad": module "bad.wasm": the file is refused`,
			"empty.yaml: is empty",
			`large.yaml:1: job "large": module "good.wasm": has not the exports`,
			"link.wasm: is a symbolic link to nowhere, which does not exist",
			"lone.wasm: first problem", "lone.wasm: second problem",
			`lone.wasm: no definition names it, expected one such as lone.yaml beside it`,
			`none.yaml:1: job "none": module "none.wasm": there is no such file beside the definition`,
			`other.yml:1: job "good": is defined in good.yaml (line 1), expected one definition`,
			`other.yml:2: job "misfit": module "good.wasm": has not the exports`,
			"wrong.yaml:1: !one", "wrong.yaml:2: !two",
		}},
		"good definition": {[]string{"good.yaml"}, nil},
		"good module":     {[]string{"good.wasm"}, nil},
		"both":            {[]string{"good.wasm", "good.yaml"}, nil},
		"bad definition": {[]string{"bad.yaml"}, []string{
			"bad.wasm: first problem", "bad.wasm: second problem",
			`bad.yaml:1: job "bad": module "bad.wasm": the file is refused`,
		}},
		"lone module": {[]string{"lone.wasm"}, []string{"lone.wasm: first problem", "lone.wasm: second problem"}},
		"name twice":  {[]string{"other.yml", "good.yaml"}, []string{`other.yml:1: job "good": is defined in good.yaml (line 1), expected one definition`, `other.yml:2: job "misfit": module "good.wasm": has not the exports`}},
		"not there":   {[]string{"gone.yaml"}, []string{"gone.yaml: cannot be read: no such file or directory"}},
		"neither":     {[]string{"notes.txt"}, []string{"notes.txt: is not named as a module (NAME.wasm), a definition (NAME.yaml) or a calendar (NAME.calendar.yaml, NAME.ics) is"}},
		"nothing":     {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var paths, got []string
			for _, p := range test.paths {
				paths = append(paths, filepath.Join(dir, p))
			}
			for _, f := range check(t.Context(), newFakeLoader(t), fakeParse, Placement{}, paths) {
				got = append(got, strings.TrimPrefix(f.String(), dir+string(filepath.Separator)))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("findings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
	t.Run("orphan", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.wasm"), []byte("a."), 0o644); err != nil {
			t.Fatal(err)
		}
		got := check(t.Context(), newFakeLoader(t), fakeParse, Placement{}, []string{dir})
		if len(got) != 1 || got[0].Problem != "no definition names it, expected one such as a.yaml beside it" {
			t.Errorf("findings: %v", got)
		}
	})
	t.Run("empty directory", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		got := check(t.Context(), newFakeLoader(t), fakeParse, Placement{}, []string{dir})
		if len(got) != 1 || got[0].File != dir || got[0].Problem != "has neither definitions (NAME.yaml) nor modules (NAME.wasm)" {
			t.Errorf("findings: %v", got)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		got := check(ctx, newFakeLoader(t), fakeParse, Placement{}, []string{filepath.Join(dir, "good.yaml")})
		if len(got) != 1 || !strings.Contains(got[0].Problem, "not everything was checked") {
			t.Errorf("findings: %v", got)
		}
	})
}

// A job that states no memory limit has at most the ceiling.
func TestMemoryLimitIsCapped(t *testing.T) {
	t.Parallel()
	low := ceiling.List{{Jobs: "a", Values: map[ceiling.Name]int64{ceiling.MemoryLimit: 1 << 20}}}
	high := ceiling.List{{Jobs: "a", Values: map[ceiling.Name]int64{ceiling.MemoryLimit: 1 << 30}}}
	for _, c := range []struct {
		ceilings     ceiling.List
		job          string
		stated, want int64
	}{
		{nil, "a", 0, 0}, {low, "a", 0, 1 << 20}, {low, "b", 0, 0}, {high, "a", 0, 0}, {low, "a", 64 << 10, 64 << 10}, {high, "a", 1 << 25, 1 << 25},
	} {
		if got := memoryLimit(c.ceilings, c.job, c.stated); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
	d := jobconfig.Configuration{JobName: "a"}
	if s, err := (&boundModule{granted: granted{Grant: &grants.Grant{}}, terms: terms{ceilings: low}}).settings(d); err != nil || s.MemoryLimit != 1<<20 {
		t.Errorf("the module is given %+v, %v", s, err)
	}
	if !(state{ceilings: low}).costly(d, "", &fakeModule{}) || (state{ceilings: high}).costly(d, "", &fakeModule{}) {
		t.Error("a limit other than the default's is a module of its own")
	}
}

// A streaming job has no timeout for its items; its calls have one.
func TestCallsAreCapped(t *testing.T) {
	t.Parallel()
	d := jobconfig.Configuration{JobName: "a", Props: map[string]string{jobconfig.PropStreamingProcess: "true"}}
	for limit, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, time.Hour: streamCallTimeout, 0: streamCallTimeout} {
		l := ceiling.List{{Jobs: "a", Values: map[ceiling.Name]int64{ceiling.Timeout: int64(limit)}}}
		if s, err := (&boundModule{granted: granted{Grant: &grants.Grant{}}, terms: terms{ceilings: l}}).settings(d); err != nil || s.CallTimeout != want {
			t.Errorf("under a ceiling of %s: %s, %v", limit, s.CallTimeout, err)
		}
	}
}

// What a job asks beyond a ceiling is found at its place in the file.
func TestDefinitionsBeyondACeiling(t *testing.T) {
	t.Parallel()
	e, err := ceiling.Parse("team-a-*:timeout=5m,shardingTotalCount=10,memoryLimit=1MiB,maxConcurrency=4")
	if err != nil {
		t.Fatal(err)
	}
	parse := parseWithin(ceiling.List{e})
	_, problems := parse("a.yaml", []byte("jobName: team-a-x\nshardingTotalCount: 11\ntimeout: 6m\nmemoryLimit: 2MiB\nmaxConcurrency: 5\n"), nil)
	want := []complaint{
		{line: 2, column: 21, text: `shardingTotalCount: found 11, the host's ceiling shardingTotalCount for jobs "team-a-*" is 10`},
		{line: 3, column: 10, text: `timeout: found 6m, the host's ceiling timeout for jobs "team-a-*" is 5m`},
		{line: 4, column: 14, text: `memoryLimit: found 2MiB, the host's ceiling memoryLimit for jobs "team-a-*" is 1MiB`},
		{line: 5, column: 17, text: `maxConcurrency: found 5, the host's ceiling maxConcurrency for jobs "team-a-*" is 4`},
	}
	if !slices.Equal(problems.Kept(), want) {
		t.Errorf("got\n%+v\nexpected\n%+v", problems, want)
	}
	if _, problems = parse("a.yaml", []byte("jobName: team-a-x\nshardingTotalCount: 1\ntimeout: 0\n"), nil); problems.Len() != 1 || problems.Kept()[0].line != 3 {
		t.Errorf("no limit: got %+v", problems)
	}
	docs, problems := parse("a.yaml", []byte("jobName: team-a-x\nshardingTotalCount: 1\n---\njobName: b\nshardingTotalCount: 1000\n"), nil)
	if problems.Len() > 0 || docs[0].Configuration.Props[jobconfig.PropTimeout] != "5m0s" || docs[1].Configuration.Props[jobconfig.PropTimeout] != "10m0s" {
		t.Errorf("defaults: got %+v, %+v", docs, problems)
	}
}

// TestIsolated says whose guests run in processes: the definition can ask for it, and
// the operator's word wins.
func TestIsolated(t *testing.T) {
	t.Parallel()
	asks := map[string]string{jobconfig.PropIsolation: string(jobconfig.IsolationProcess)}
	refuses := map[string]string{jobconfig.PropIsolation: string(jobconfig.IsolationItem)}
	inside := map[string]string{jobconfig.PropIsolation: string(jobconfig.IsolationHost)}
	shared := Placement{Groups: GroupAll, workers: true}
	alone := func(patterns ...string) Placement { return Placement{Alone: patterns, workers: true} }
	allowed := func(patterns ...string) Placement { return Placement{InProcess: patterns, workers: true} }
	for _, c := range []struct {
		placement Placement
		props     map[string]string
		trusted   bool
		want      where
		refused   bool
	}{
		{shared, nil, false, inGroup, false}, {shared, refuses, false, inGroup, false}, {shared, asks, false, inOwn, false},
		{shared, nil, true, inGroup, false}, {shared, inside, true, inHost, false}, {shared, inside, false, inGroup, true},
		{alone("*"), nil, false, inOwn, false}, {alone("*"), refuses, false, inOwn, false}, {alone("*"), inside, true, inOwn, false},
		{alone("b", "a-*"), refuses, false, inOwn, false}, {alone("b", "c-*"), refuses, false, inGroup, false},
		{allowed("a-*"), nil, false, inGroup, false}, {allowed("a-*"), inside, false, inHost, false}, {allowed("b"), inside, false, inGroup, true},
		{Placement{}, nil, false, inHost, false}, {Placement{}, asks, false, inOwn, false},
	} {
		conf := jobconfig.Configuration{JobName: "a-1", Props: c.props}
		if got, err := c.placement.of(conf, c.trusted); got != c.want || (err != nil) != c.refused {
			t.Errorf("%+v, %v, trusted %t: %d, %v", c.placement, c.props, c.trusted, got, err)
		}
		if c.trusted {
			continue // of that the state knows by the grants
		}
		// One that was loaded for the other kind is tried once more.
		here := c.want == inHost
		s := state{placement: c.placement}
		if !s.costly(conf, "", &fakeModule{alone: here}) || s.costly(conf, "", &fakeModule{alone: !here}) {
			t.Errorf("%+v, %v: it is tried where it does not run", c.placement, c.props)
		}
		// A module is not run in the host unless a job is.
		if got := s.apart("", []claim{{doc: definition.Definition{Configuration: conf}}}); got == here {
			t.Errorf("%+v, %v: the module is tried outside of the host: %t", c.placement, c.props, got)
		}
	}
	for folder, want := range map[string]string{"": "guests", ".": "guests", "team-a": "guests of team-a"} {
		if got := (Placement{Groups: GroupFolder}).group(folder, "key"); got != want {
			t.Errorf("folder %q: %q", folder, got)
		}
	}
	for signer, want := range map[string]string{"": "guests", "release": "guests signed by release"} {
		if got := (Placement{Groups: GroupSigner}).group("team-a", signer); got != want {
			t.Errorf("signer %q: %q", signer, got)
		}
	}
	b := &boundModule{granted: granted{Grant: &grants.Grant{}}, terms: terms{placement: alone("*")}}
	if _, err := b.Executor(jobconfig.Configuration{JobName: "a"}); err == nil || !strings.Contains(err.Error(), "no worker processes") {
		t.Errorf("found %v, expected a refusal without worker processes", err)
	}
}
