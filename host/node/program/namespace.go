package program

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/node/session"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// waitNotice is when a command first says what it waits for.
	waitNotice = time.Second
	// commandWait is how long a command waits for the registry.
	commandWait = 15 * time.Second
)

// openNamespace connects to the shared registry that flags, environment and file name; writes says that the command
// changes something there.
func openNamespace(ctx context.Context, p *program, flags *pflag.FlagSet, writes bool) (*command.Opened, error) {
	l, err := loadRegistry(p.Environ, flags)
	if err != nil {
		return nil, err
	}
	for _, w := range l.warnings {
		onlyHosts := strings.HasPrefix(w, "the variable ")
		if !onlyHosts && (writes || w != noCredentials) {
			fmt.Fprintln(p.Err, "wasmjob: warning:", w)
		}
	}
	if l.Wait == 0 {
		l.Wait = commandWait
	}
	r, err := session.Open(l.backend(), l.Namespace, l.Wait, zap.NewNop(), nil)
	if err != nil {
		return nil, err
	}
	said := ""
	r.Interval, r.WaitsLong = waitNotice, func(why string, _, limit time.Duration) {
		if why != said {
			fmt.Fprintf(p.Err, "wasmjob: %s; gives up after %s\n", why, words.Duration(limit))
			said = why
		}
	}
	c, err := r.Await(ctx, l.Wait)
	if err != nil {
		return nil, err
	}
	return &command.Opened{Namespace: l.Namespace, Backend: l.backend().String(), Center: c, Jobs: admin.NewRegistry(l.Namespace, func() registry.Center { return c })}, nil
}
