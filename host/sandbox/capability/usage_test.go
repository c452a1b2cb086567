package capability

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
)

// What guests name is in the events of each run: it is few and short.
func TestTargetsAreBounded(t *testing.T) {
	t.Parallel()
	u := newUsage()
	u.Target("dir", strings.Repeat("ä", 4000))
	for n := range 100 {
		u.Target("dir", fmt.Sprint(n/2))
		u.Failed("net", fmt.Sprint(n/2))
	}
	all := u.All()
	if list := all["dir"].Targets; len(list) != maxTargets || len(list[0]) > maxTarget || !utf8.ValidString(list[0]) || list[1] != "0" || list[2] != "1" {
		t.Errorf("%d targets: %q", len(list), list)
	}
	if c := all["net"]; c.Failed != 100 || len(c.FailedTargets) != maxTargets || len(c.Targets) != 0 {
		t.Errorf("%+v", c)
	}
}

// Of many targets the slowest are known, and the one that was slowest is named.
func TestSlowestTargets(t *testing.T) {
	t.Parallel()
	u := newUsage()
	if text := Slow(u.All()); text != "" {
		t.Errorf("of nothing: %q", text)
	}
	u.Took("http", "quick:443", 999*time.Millisecond)
	u.Took("net", "db:5432", 10*time.Millisecond)
	if text := Slow(u.All()); text != "" {
		t.Errorf("no target is slow: %q", text)
	}
	u.Took("http", "api:443", 30*time.Millisecond)
	u.Took("http", "api:443", 12400*time.Millisecond)
	u.Took("http", "api:443", 20*time.Millisecond)
	u.Took("net", "db:5432", 2*time.Second)
	for n := range 100 {
		u.Took("http", fmt.Sprint(n), time.Duration(n)*time.Millisecond)
	}
	u.Took("http", strings.Repeat("ä", 4000), time.Second)
	all := u.All()
	if c := all["http"]; len(c.Times) != maxTargets || c.Times["api:443"] != (abi.TargetTime{Calls: 3, Slowest: 12400 * time.Millisecond}) || c.Times["99"].Calls != 1 || c.Times["80"].Calls != 0 {
		t.Errorf("%+v", c.Times)
	}
	for name := range all["http"].Times {
		if len(name) > maxTarget || !utf8.ValidString(name) {
			t.Errorf("%q", name)
		}
	}
	if text := Slow(all); text != "3 requests to api:443, slowest 12.4s" {
		t.Error(text)
	}
	if text := Slowest("net", all["net"]); text != "2 connections to db:5432, slowest 2s" {
		t.Error(text)
	}
	u.Took("net", "db:5432", time.Minute)
	if text := Slow(u.All()); text != "3 connections to db:5432, slowest 1m" || len(all["net"].Times) != 1 || all["net"].Times["db:5432"].Calls != 2 {
		t.Errorf("%s; the copy is %+v", text, all["net"])
	}
}
