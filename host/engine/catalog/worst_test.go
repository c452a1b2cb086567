package catalog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// TestReasonsAreBounded: what a host keeps of why files are refused is short, however much is wrong with them.
func TestReasonsAreBounded(t *testing.T) {
	t.Parallel()
	var many complaints
	for i := range 520_000 {
		many.Add(complaint{line: i + 1, text: strings.Repeat("x", 100)})
	}
	long := strings.Repeat("reason ", 1<<17)
	bad, _ := fakeParse("bad.yaml", []byte("job a bad.wasm"), nil)
	s := state{grantsProblem: long, problem: long, files: map[string]file{
		"many.yaml": {problems: many},
		"long.yaml": {problems: about(long)},
		"bad.wasm":  {digest: "d", read: stamp{size: 1}},
		"bad.yaml":  {digest: "e", docs: bad},
	}}
	_, p := s.decide(map[string]outcome{"d": {problems: []string{long, long, long, long, long, long}}}, time.Now())
	if len(p.refused) != 6 {
		t.Fatalf("%d files are refused", len(p.refused))
	}
	for _, r := range p.refused {
		n := len(strings.Join(r.Reasons, ""))
		if n == 0 || n > words.MaxReasons || len(r.Reasons) > words.MostProblems {
			t.Errorf("%s: %d reasons of %d bytes", r.File, len(r.Reasons), n)
		}
		if r.File == "many.yaml" && r.Reasons[len(r.Reasons)-1] != "… and 519,951 more" {
			t.Errorf("the last reason is %q", r.Reasons[len(r.Reasons)-1])
		}
	}
}

func TestReasonsOfErrors(t *testing.T) {
	t.Parallel()
	var all []error
	for i := range 1000 {
		all = append(all, fmt.Errorf("problem %d", i))
	}
	got := reasons(errors.Join(errors.Join(all...), errors.New("another")))
	if len(got) != words.MostProblems || got[len(got)-1] != "… and 952 more" || got[0] != "problem 0" {
		t.Errorf("%d reasons: %q", len(got), got)
	}
	if got := reasons(&plugin.LoadError{Problems: []string{"one", "two"}}); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("%q", got)
	}
}

// TestFindingsAreCounted: validate says how many problems a file has beyond those that it shows, after these.
func TestFindingsAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("shardingTotalCount: 1\nargs: ["+strings.Repeat("~,", 3000)+"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := check(t.Context(), newFakeLoader(t), parseWithin(nil), Placement{}, []string{dir})
	if len(got) != words.MostProblems+1 || got[0].Line != 2 || got[len(got)-1].String() != filepath.Join(dir, "a.yaml")+": … and 2,950 more" {
		t.Errorf("%d findings, the last %v", len(got), got[len(got)-1])
	}
}

// TestManyJobsWaitForModules: a file whose many jobs only wait for their modules is not reported as refused.
func TestManyJobsWaitForModules(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("job a%d bad.wasm\n", 60)
	for i := range 60 {
		text = strings.Replace(text, "%d", fmt.Sprint(i), 1)
	}
	jobs, _ := fakeParse("many.yaml", []byte(text), nil)
	if len(jobs) != 60 {
		t.Fatalf("%d jobs", len(jobs))
	}
	_, p := state{files: map[string]file{"many.yaml": {docs: jobs}}}.decide(nil, time.Now())
	if len(p.refused) != 1 || !waitsForModule(p.refused[0], p.complaints["many.yaml"]) {
		t.Errorf("refused: %+v", p.refused)
	}
	other := p.complaints["many.yaml"]
	other.Kept()[0].missing = false
	if waitsForModule(p.refused[0], other) {
		t.Error("it waits for another reason")
	}
}
