package show

import (
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
)

func TestKept(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	all := []admin.Kept{
		{Item: 0, Offset: new(admin.Bytes("line 7\nof 9\x1b")), Keys: []string{}, Size: 13, Written: now.Add(-time.Minute), Fence: 42},
		{Item: 1, Offset: new(admin.Bytes("line 7\nof 9")), Keys: []string{"cursor", "table"}, Size: 2048, Values: map[string]admin.Bytes{"cursor": "", "table": admin.Bytes(strings.Repeat("x", 99))}},
		{Item: 2, RunsOn: "10.0.0.1@-@7", Keys: []string{}},
		{Item: 3, Damaged: "the item's state is damaged", Keys: []string{}},
	}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"offsets":      {Offsets(terminal.Style{}, all, now), []string{"0x6c696e6520370a6f6620391b", "1m ago", "42", "idle", "line 7 of 9 ", "runs on 10.0.0.1@-@7", "is damaged"}},
		"no items":     {Offsets(terminal.Style{}, nil, now), []string{"no items yet"}},
		"no items, kv": {KeyValues(terminal.Style{}, nil, now), []string{"no items yet"}},
		"keys":         {KeyValues(terminal.Style{}, all, now), []string{"cursor, table", "2.0 KiB", "is damaged"}},
		"values":       {KeyValues(terminal.Style{}, all[1:2], now), []string{"(empty)", strings.Repeat("x", 50), "…", "99 bytes"}},
		"one damaged":  {KeyValues(terminal.Style{}, all[3:], now), []string{"is damaged"}},
		"no keys":      {KeyValues(terminal.Style{}, all[2:3], now), []string{"item 2 has no keys"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.text, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, c.text)
			}
		}
	}
}
