package service

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/control/cluster"
)

// TestChainOf: a job's chain is drawn from its first jobs on, each job once; also one whose jobs come after each other.
func TestChainOf(t *testing.T) {
	t.Parallel()
	after := func(name string, jobs ...string) *cluster.Job {
		j := &cluster.Job{Name: name}
		if len(jobs) > 0 {
			var list []string
			for _, b := range jobs {
				list = append(list, fmt.Sprintf(`{\"job\":\"%s\"}`, b))
			}
			j.Terms = `{"wasm.after":"[` + strings.Join(list, ",") + `]"}`
		}
		return j
	}
	all := []*cluster.Job{after("alone"), after("load"), after("check", "load"), after("report", "check", "stock"), after("stock"), after("mail", "report"), after("other", "stock"),
		after("x", "y"), after("y", "x"), after("last", "gone")}
	for _, tt := range []struct{ job, want string }{
		{"alone", ""},
		{"load", "load 0, check 1, report 2, mail 3"},
		{"report", "load 0, check 1, report 2, mail 3, stock 0"},
		{"stock", "stock 0, other 1, report 1, mail 2"},
		{"x", "x 0, y 1"},
		{"last", "last 0"},
	} {
		var got []string
		for _, l := range chainOf(tt.job, all) {
			got = append(got, fmt.Sprint(l.Job, " ", l.Depth))
		}
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%s: %s, want %s", tt.job, text, tt.want)
		}
	}
}
