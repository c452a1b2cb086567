package capability

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
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
