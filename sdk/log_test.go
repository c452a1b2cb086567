package sdk_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

// TestLogHandler holds the handler to the rules of slog.
func TestLogHandler(t *testing.T) {
	h := &sdktest.Host{}
	var failure error
	r := h.Run(func(context.Context, sdk.ShardingContext) error {
		failure = slogtest.TestHandler(sdk.LogHandler(), func() []map[string]any {
			var records []map[string]any
			for _, l := range h.Logs() {
				record := map[string]any{slog.LevelKey: l.Level, slog.MessageKey: l.Message}
				for i := 0; i+1 < len(l.Attrs); i += 2 {
					m, path := record, strings.Split(l.Attrs[i], ".")
					for _, group := range path[:len(path)-1] {
						inner, ok := m[group].(map[string]any)
						if !ok {
							inner = make(map[string]any)
							m[group] = inner
						}
						m = inner
					}
					m[path[len(path)-1]] = l.Attrs[i+1]
				}
				records = append(records, record)
			}
			return records
		})
		return nil
	})
	if r.Outcome != abi.OutcomeOK {
		t.Fatal(r.Message)
	}
	if failure == nil {
		return
	}
	// The host stamps the time itself: the one rule that is not kept.
	for _, line := range strings.Split(failure.Error(), "\n") {
		if line != "" && !strings.Contains(line, `missing key "time"`) {
			t.Error(line)
		}
	}
}

type valuer struct{}

func (valuer) LogValue() slog.Value { return slog.GroupValue(slog.Int("n", 1), slog.String("s", "x")) }

func TestLogValues(t *testing.T) {
	h := &sdktest.Host{LogLevel: slog.LevelDebug}
	h.Run(func(ctx context.Context, _ sdk.ShardingContext) error {
		slog.Debug("values", "s", "a b", "i", -3, "u", uint64(7), "f", 1.5, "b", true,
			"d", 90*time.Second, "t", time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC),
			"err", errors.New("broken"), "bytes", []byte("raw"), "nil", nil, "list", []int{1, 2},
			"v", valuer{}, "nul", "a\x00b", "k\x00", "", slog.Group("", slog.Int("inline", 1)), slog.Group("empty"))
		l := slog.With("a", 1).WithGroup("g").With("b", 2)
		l.Warn("first", "c", 3)
		l.With("x", 1).Error("second")
		l.WithGroup("h").Info("third", slog.Group("i", slog.Int("j", 4)))
		slog.Log(ctx, slog.Level(2), "between")
		log.Printf("from %s", "log")
		return nil
	})
	var got []string
	for _, l := range h.Logs() {
		got = append(got, l.String())
	}
	want := []string{
		`DEBUG values s="a b" i=-3 u=7 f=1.5 b=true d=1m30s t=2026-01-02T03:04:05.006Z err=broken bytes=raw nil=<nil> list="[1 2]" v.n=1 v.s=x nul=a` + "\uFFFD" + `b k` + "\uFFFD" + `="" inline=1`,
		`WARN first a=1 g.b=2 g.c=3`,
		`ERROR second a=1 g.b=2 g.x=1`,
		`INFO third a=1 g.b=2 g.h.i.j=4`,
		`INFO+2 between`,
		`INFO from log`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLogLevelIsTheHosts(t *testing.T) {
	h := &sdktest.Host{LogLevel: slog.LevelWarn}
	called := false
	h.Run(func(ctx context.Context, _ sdk.ShardingContext) error {
		slog.Info("no", "value", lazy(func() { called = true }))
		slog.Warn("yes")
		if slog.Default().Enabled(ctx, slog.LevelInfo) {
			t.Error("info is enabled")
		}
		return nil
	})
	if logs := h.Logs(); len(logs) != 1 || logs[0].Message != "yes" || called {
		t.Errorf("logs %v, value asked for: %v", logs, called)
	}
}

type lazy func()

func (l lazy) LogValue() slog.Value { l(); return slog.StringValue("") }

// TestLogIsGivenBack: a run leaves the process's loggers as they were.
func TestLogIsGivenBack(t *testing.T) {
	var out strings.Builder
	writer, flags := log.Writer(), log.Flags()
	log.SetOutput(&out)
	log.SetFlags(0)
	t.Cleanup(func() { log.SetOutput(writer); log.SetFlags(flags) })
	h := &sdktest.Host{}
	h.Run(func(context.Context, sdk.ShardingContext) error { log.Print("inside"); return nil })
	log.Print("outside")
	slog.Info("outside too")
	if got, want := out.String(), "outside\nINFO outside too\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(h.Logs()) != 1 {
		t.Errorf("logs %v", h.Logs())
	}
}
