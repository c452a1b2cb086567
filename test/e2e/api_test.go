package e2e_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/host/event"
)

// withToken starts a host whose token is known, with a job that only triggers run.
func withToken(t *testing.T) (p *place, h *process, token string) {
	t.Helper()
	p, h, token = startWithToken(t)
	h.of("cities", 0, owned())
	return p, h, token
}

// startWithToken does not wait for the job.
func startWithToken(t *testing.T, flags ...string) (p *place, h *process, token string) {
	t.Helper()
	p, token = newPlace(t), server.NewToken()
	p.put("token", []byte(token))
	if err := os.Chmod(p.path("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.guestJob("cities", "shardingTotalCount: 2")
	h = p.start(append([]string{"--admin-token-file", p.path("token")}, flags...)...)
	return p, h, token
}

// TestGeneratedClient makes a client from the description that a host serves, with a
// generator that many use, and operates the host with it.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	p, h, token := withToken(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.address+"/v1/openapi.yaml", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	description, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v: %s", answer.StatusCode, err, description)
	}
	const module = "../openapi"
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(filepath.Join(module, "testdata", "list.go.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "client"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"main.go": program, "openapi.yaml": description} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = dir
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Run(); err != nil {
			t.Fatalf("%s: %v\n%s%s", c, err, &out, &errs)
		}
		return out.String()
	}
	run("go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "client", "-o", "client/client.go", "openapi.yaml")
	run("go", "build", "-o", "list", ".")
	out := run("./list", "http://"+h.address, token, "cities")
	want := "cities ready 2\nby a generated client\ntrue\nno host has a job \"no such job\"\n"
	if out != want {
		t.Errorf("the client says\n%swant\n%s", out, want)
	}
	if trigger := regexp.MustCompile(`"what":"trigger"`).FindAllString(p.must("access", "audit", "--json"), -1); len(trigger) > 1 {
		t.Errorf("a trigger with a key took effect %d times", len(trigger))
	}
}

// TestExamplesOfTheAPI runs what docs/api.md shows.
func TestExamplesOfTheAPI(t *testing.T) {
	t.Parallel()
	p, h, _ := withToken(t)
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -euo pipefail\n"
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		script += block[1]
	}
	if n := strings.Count(script, "$WASMJOB_API"); n < 20 {
		t.Fatalf("found %d requests only: the page is not read as it is written", n)
	}
	script = strings.Replace(script, "http://127.0.0.1:9770", "http://"+h.address, 1)
	c := exec.CommandContext(t.Context(), "bash", "-c", script)
	c.Dir, c.Env = p.dir, p.env()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`"counts":`, `"location":"query.limit"`, `"name":"cities"`, "event: jobs\n", `"description":"every night"`, "changed since", `"retry.attempts":"5"`, `"next":[`, `"runs":[]`} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	h.of("cities", 0, test{"the trigger with a body", func(e event.Event) bool {
		return e.Kind == event.FireStarted && e.Args != nil && e.Args.Items == "1" && e.Args.Param != nil && *e.Args.Param == "from the archive" && slices.Equal(e.Items, []int{1})
	}})
}

// TestDatabaseDown: without the database of its history a host works, and shows what is
// now; what has run cannot be shown, and each answer says why.
func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	p, h, token := startWithToken(t, "--history", "postgres://u@127.0.0.1:1/d")
	ask := func(path string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	for end := time.Now().Add(patience); ; {
		if code, _ := ask("/readyz"); code == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the host is not ready")
		}
	}
	p.must("job", "run", "cities")
	for path, want := range map[string]string{"/v1/overview": `"problem":"`, "/v1/jobs": `"name":"cities"`, "/v1/jobs/cities": `"items":[`, "/": "does not answer", "/jobs": "cities", "/jobs/cities": "does not answer"} {
		if code, text := ask(path); code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d, and %q is not in\n%s", path, code, want, text)
		}
	}
	// What is not written there yet is shown, and that the rest is missing is said.
	for _, path := range []string{"/v1/fires", "/v1/runs", "/v1/events", "/v1/logs", "/v1/audit", "/v1/jobs/cities/explain", "/fires", "/logs"} {
		if code, text := ask(path); code != http.StatusOK || !strings.Contains(text, "the history's database does not answer") && !strings.Contains(text, "history&#39;s database does not answer") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	p.cli("job", "history").mustSay(t, 0, []string{"the history's database does not answer"}, "job", "history")
}
