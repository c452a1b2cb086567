package program

import (
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const auto = "auto"

// deadManSetting is whether the kernel ends a host that no longer proves that it
// lives.
func deadManSetting() setting {
	return setting{
		key: "deadMan", arg: "WHEN", standard: auto, is: schema.Words(auto, "on", off),
		help: "have the kernel end a host that is frozen or whose guests outlive its session, before others get its items (Linux): on, off, or auto: with ZooKeeper, and under systemd or Kubernetes",
		set: func(c *Config, s string) error {
			if want := []string{auto, "on", off}; !slices.Contains(want, s) {
				return fmt.Errorf("%q is none of auto, on and off%s", words.Clip(s), words.Suggest(s, want))
			}
			c.DeadMan = s
			return nil
		},
		show: func(c *Config) string { return c.DeadMan },
	}
}

// deadMan reports whether the kernel's timers are wanted. A user may stop a host in a terminal with Ctrl-Z, and
// a shell may have inherited the variables of a supervisor.
func deadMan(p *program, l *loaded) bool {
	if l.DeadMan != auto {
		return l.DeadMan != off
	}
	supervised := slices.ContainsFunc([]string{"NOTIFY_SOCKET", "INVOCATION_ID", "KUBERNETES_SERVICE_HOST"}, func(name string) bool {
		return p.Getenv(name) != ""
	})
	return l.backend().Shared() || (supervised && !p.OutTTY && !p.ErrTTY)
}
