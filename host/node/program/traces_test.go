package program

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/command"
)

// TestTraceSettings: a flag wins over OpenTelemetry's variables, and mistakes are said.
func TestTraceSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ, args []string
		want          string
	}{
		"nothing":  {nil, nil, ""},
		"flag":     {nil, []string{"--otlp", "http://c:4318", "--trace-ratio", "0.25"}, "http://c:4318/v1/traces"},
		"variable": {[]string{"WASMJOB_OTLP=https://c/take"}, nil, "https://c/take"},
		"off":      {[]string{"WASMJOB_OTLP=https://c/take"}, []string{"--otlp", "off"}, ""},
	} {
		l, _, err := load(t, "", c.environ, append([]string{"--plugins", "P"}, c.args...))
		if err != nil || l.OTLP != c.want {
			t.Errorf("%s: %q, %v; want %q", name, l.OTLP, err, c.want)
		}
	}
	_, _, err := load(t, "", nil, []string{"--plugins", "P", "--otlp", "c:4317", "--trace-ratio", "10%", "--metrics-jobs", "many"})
	for _, want := range []string{`"c:4317" is not the address of a collector`, `"10%" is not a part`, `"many" is neither all nor none nor a number of jobs`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	for text, want := range map[string]string{"http://c:4318": "http://c:4318/v1/traces", "c": ""} {
		environ := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": text, "HOME": t.TempDir()}
		if got := machineDefaults(func(name string) string { return environ[name] }).otlp; got != want {
			t.Errorf("%s makes %q, want %q", text, got, want)
		}
	}
}

// TestTracesOfTheEnvironment: variables that are not understood keep no host from starting,
// unless it was told to send traces.
func TestTracesOfTheEnvironment(t *testing.T) {
	t.Parallel()
	environ := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
	wired := func(args ...string) (string, error) {
		l, dir, err := load(t, "", nil, append([]string{"--plugins", "P", "--cache", "off", "--admin", "off", "--dead-man", "off"}, args...))
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		p := &program{Program: command.Program{Out: &bytes.Buffer{}, Err: &log, Environ: append(environ, "HOME="+filepath.Join(dir, "home"))}, self: thisProgram()}
		s, err := wire(t.Context(), p, l)
		if err != nil {
			return "", err
		}
		if s.traces != nil {
			t.Error("traces are sent")
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
		return log.String(), nil
	}
	const why = `OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" is not spoken here`
	if log, err := wired(); err != nil || !strings.Contains(log, "no traces are sent") || !strings.Contains(log, "OTEL_EXPORTER_OTLP_PROTOCOL") {
		t.Errorf("%v\n%s", err, log)
	}
	if _, err := wired("--otlp", "http://127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%v", err)
	}
}
