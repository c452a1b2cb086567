package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

// shop is one shop's place and host.
type shop struct {
	*testing.T
	host *sdktest.Host
	job  job
}

func newShop(t *testing.T, name string) *shop {
	s := &shop{t, &sdktest.Host{KV: map[string][]byte{}}, job{filepath.ToSlash(t.TempDir()), filepath.ToSlash(t.TempDir())}}
	s.host.Context.ShardingParameter = name
	if err := os.Mkdir(filepath.Join(s.job.sales, "north"), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// add appends to a file of sales.
func (s *shop) add(file, text string) {
	s.Helper()
	f, err := os.OpenFile(filepath.Join(s.job.sales, "north", file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		s.Fatal(err)
	}
}

// run runs the job, and holds the rows of the report against what is expected.
func (s *shop) run(want string) {
	s.Helper()
	if r := s.host.Run(s.job.run); r.Outcome != abi.OutcomeOK {
		s.Fatalf("%s %s", r.Outcome, r.Message)
	}
	if got := s.rows(); got != want {
		s.Errorf("the report has\n%s\nwant\n%s", got, want)
	}
}

func (s *shop) rows() string {
	s.Helper()
	data, err := os.ReadFile(filepath.Join(s.job.reports, "north.md"))
	if err != nil {
		s.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "| ") && !strings.Contains(line, "---") && !strings.Contains(line, "Units") {
			rows = append(rows, strings.ReplaceAll(strings.Trim(line, "| "), " | ", " "))
		}
	}
	return strings.Join(rows, "\n")
}

// TestAddsWhatIsNew: each run reads what has come since the one before it.
func TestAddsWhatIsNew(t *testing.T) {
	t.Parallel()
	s := newShop(t, "north")
	s.add("2026-11-01.csv", "product,units,price\ntea,2,2.50\n")
	s.add("README.txt", "tea,9,9.99\n")
	s.run("tea 2 5.00\n**all** 2 5.00")
	s.run("tea 2 5.00\n**all** 2 5.00")
	s.add("2026-11-01.csv", "cup,1,12.00\ntea,1,2.") // the last line is being written
	s.run("cup 1 12.00\ntea 2 5.00\n**all** 3 17.00")
	s.add("2026-11-01.csv", "50\n")
	s.add("2026-11-02.csv", "product,units,price\ntea,1,3.00\n")
	s.run("cup 1 12.00\ntea 4 10.50\n**all** 5 22.50")
	if got := string(s.host.Offset); got != "2026-11-02.csv 31" {
		t.Errorf("the offset is %q", got)
	}
	if list, err := os.ReadDir(s.job.reports); err != nil || len(list) != 1 {
		t.Errorf("beside the report there is something else: %v %v", list, err)
	}
}

// TestRunThatIsLost: a run whose commit is refused has written a report and counted
// nothing. The next one writes the same.
func TestRunThatIsLost(t *testing.T) {
	t.Parallel()
	s := newShop(t, "north")
	s.add("2026-11-01.csv", "product,units,price\ntea,2,2.50\n")
	s.host.OnCommit = func([]byte) abi.Code { return abi.ErrConflict }
	if r := s.host.Run(s.job.run); r.Outcome == abi.OutcomeOK {
		t.Error("the run ended well though its commit was refused")
	}
	s.host.OnCommit = nil
	s.run("tea 2 5.00\n**all** 2 5.00")
}

// TestBadRow: nothing is counted of a run that fails.
func TestBadRow(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]string{
		"tea,two,2.50": `line 3 from byte 0 on: units "two" of "tea" are no number`,
		"tea,2,2.5":    `price "2.5" of "tea" is none such as 12.50`,
		",2,2.50":      `price "2.50" of "" is none`,
		"tea,2":        "wrong number of fields",
	} {
		s := newShop(t, "north")
		s.add("2026-11-01.csv", "product,units,price\ntea,2,2.50\n"+row+"\n")
		if r := s.host.Run(s.job.run); r.Outcome != abi.OutcomeFail || !strings.Contains(r.Message, want) {
			t.Errorf("%q: %s %s", row, r.Outcome, r.Message)
		}
		if len(s.host.KV) != 0 || s.host.Offset != nil {
			t.Errorf("%q: state %v, offset %q", row, s.host.KV, s.host.Offset)
		}
	}
}

// TestNotGranted: the messages say what to grant.
func TestNotGranted(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*shop){
		"no sales: grant this job a directory":             func(s *shop) { s.job.sales += "/none" },
		`shop "south" has no folder`:                       func(s *shop) { s.host.Context.ShardingParameter = "south" },
		"no place for reports: grant this job a directory": func(s *shop) { s.job.reports += "/none" },
		"not granted":             func(s *shop) { s.host.KV = nil },
		"item 0 has no parameter": func(s *shop) { s.host.Context.ShardingParameter = "" },
		"is none of this job":     func(s *shop) { s.host.Offset = []byte("x") },
	} {
		s := newShop(t, "north")
		s.add("2026-11-01.csv", "product,units,price\ntea,2,2.50\n")
		change(s)
		if r := s.host.Run(s.job.run); r.Outcome != abi.OutcomeFail || !strings.Contains(r.Message, want) {
			t.Errorf("%s %q, want %q", r.Outcome, r.Message, want)
		}
	}
}

// TestSales: the data set of the repository can be read.
func TestSales(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{"north": 120, "south": 75} {
		s := newShop(t, name)
		s.job.sales = "sales"
		if r := s.host.Run(s.job.run); r.Outcome != abi.OutcomeOK {
			t.Fatalf("%s %s", r.Outcome, r.Message)
		}
		if m := s.host.Metrics(); len(m) != 1 || m[0].Value != want {
			t.Errorf("%s: %+v, want %d rows", name, m, want)
		}
	}
}
