package users

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// TestWorstFiles: what is said about a file of users is short, and reading it takes memory in proportion to its size.
func TestWorstFiles(t *testing.T) {
	many := func(form string, size int) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, form, i)
		}
		return b.String()
	}
	const part = 200 << 10
	for name, text := range map[string]string{
		"users":        "users:\n" + many("- {name: u%d}\n", part),
		"one user":     "users:\n" + many("- {name: u, password: '%d', roles: {admin: '*'}}\n", part),
		"tokens":       "tokens:\n" + many("- {name: t%d, roles: {admin: '*'}}\n", part),
		"roles":        "users: [{name: u, roles: {" + many("admim%d: a,", part) + "}}]\n",
		"patterns":     "users: [{name: u, roles: {admin: [" + many("'/%d',", part) + "]}}]\n",
		"certificates": "users: [{name: u, roles: {admin: a}, certificates: [" + strings.Repeat("CN=a,", part/5) + "]}]\n",
		"scopes":       "oidc: {scopes: [" + many("'a %d',", part) + "]}\n",
		"groups":       "oidc: {groups: {" + many("g%d: {x: a},", part) + "}}\n",
		"bytes":        strings.Repeat("{a,", 1<<20/3),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse("/u.yaml", []byte(text))
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 100<<20 {
				t.Errorf("it takes %d MiB", allocated>>20)
			}
			if err == nil || len(err.Error()) > words.MaxReasons || strings.Count(err.Error(), "\n") > words.MostProblems {
				t.Errorf("found %.300q", fmt.Sprint(err))
			}
		})
	}
}
