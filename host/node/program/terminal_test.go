package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// evil is text with what a terminal might obey: a title, a colour, an empty screen, the beginning of the line, orders
// in one character, turned text. PAINTED comes after a colour that this program uses, too.
const evil = "E\x1b]0;TITLE\x07\x1b[31mPAINTED\x1b[2J\r\u009b35m\u202e\u2066\u200f\x7f"

// ours are the orders that this program gives.
var ours = regexp.MustCompile(`\x1b\[(?:(?:31|32|33|36|90|1|0)m|H\x1b\[2J)`)

// checkTerminal finds orders to the terminal that are not ours in what was written to it.
func checkTerminal(t *testing.T, written string) {
	t.Helper()
	if regexp.MustCompile(`\x1b\[[0-9]*mPAINTED`).MatchString(written) {
		t.Errorf("a stranger paints: %q", written)
	}
	rest := ours.ReplaceAllString(written, "")
	if i := strings.IndexFunc(rest, func(r rune) bool { return !words.Harmless(r) }); i >= 0 {
		t.Errorf("%q arrives in\n%q", rest[i:min(len(rest), i+10)], written)
	}
}

// fill sets all texts in a value to evil ones, has one element in each list and mapping, and no zero.
func fill(v reflect.Value, depth int) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Now().Add(-time.Minute)))
		return
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		text, _ := json.Marshal(evil)
		v.SetBytes(text)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(evil)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), depth-1)
		}
	case reflect.Map:
		if depth > 0 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, depth-1)
			fill(value, depth-1)
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Next" { // which is the place of another page
				fill(v.Field(i), depth)
			}
		}
	}
}

// answers are what a host answers with, by the end of the path without the job's name.
func answers() map[string]any {
	return map[string]any{
		"/v1/status": &report.Report{}, "/v1/registry/jobs": &[]admin.Brief{}, "/v1/jobs": &service.Jobs{}, "/v1/jobs/": &service.JobDetail{},
		"/v1/jobs/shards": &admin.Shards{}, "/v1/jobs/config": &admin.JobConfig{}, "PATCH /v1/jobs/config": &admin.Edited{},
		"/v1/jobs/kept": &[]admin.Kept{}, "POST /v1/jobs/kept": &admin.Kept{}, "/v1/jobs/explain": &explain.Answer{},
		"POST /v1/jobs/trigger": &admin.Triggered{}, "POST /v1/jobs/backfill": &service.BackfillPlan{}, "/v1/jobs/backfill": &service.Backfills{}, "POST /v1/jobs/kill": &admin.Kills{}, "POST /v1/jobs/restore": &service.Restored{},
		"POST /v1/jobs/release": &struct {
			Items tree.Items `json:"items"`
		}{}, "POST /v1/start": &service.Restored{},
		"/v1/fires": &cluster.Found[history.Fire]{}, "/v1/runs": &cluster.Found[history.Run]{}, "/v1/run": &service.RunDetail{},
		"/v1/events": &cluster.Found[event.Event]{}, "/v1/logs": &cluster.Found[history.Line]{}, "/v1/audit": &cluster.Found[history.Change]{},
		"/v1/hosts": &[]cluster.Host{}, "/v1/hosts/gone": &[]service.GoneHost{}, "/v1/hosts/restart": &service.Restart{}, "/v1/backup": &struct{}{}, "/v1/modules": &service.Modules{},
		"/v1/calendar": &service.Calendar{}, "/v1/limits": &admin.Limits{}, "/v1/overview": &service.Overview{}, "/v1/alerts": &service.Alerts{},
		"POST /v1/silences": &alert.Silence{},
	}
}

// shortPath is a path without the name of a job, a server and an item in it.
var nameInPath = regexp.MustCompile(`^(/v1/jobs/)[^/]+/?`)

// evilHost answers all that commands ask with evil texts, or refuses it with them. fails is told of what it knows
// no answer for.
func evilHost(t *testing.T, refuses bool, fails func(string)) string {
	t.Helper()
	known := answers()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := nameInPath.ReplaceAllString(r.URL.EscapedPath(), "$1")
		w.Header().Set("Server", "x\u009b31m")
		if path == "/healthz" {
			return
		}
		if refuses {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(map[string]any{"title": evil, "status": 409, "detail": evil, "errors": []map[string]string{{"location": "query." + evil, "message": evil}}})
			return
		}
		if path == "/v1/logs/stream" {
			var l history.Line
			fill(reflect.ValueOf(&l).Elem(), 6)
			data, err := json.Marshal(l)
			if err != nil {
				fails(err.Error())
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: line\ndata: %s\n\n", data)
			return
		}
		value, ok := known[r.Method+" "+path]
		if !ok && r.Method == http.MethodGet {
			value, ok = known[path]
		}
		if !ok && (r.Method == http.MethodPost || r.Method == http.MethodDelete) {
			return // nothing is answered
		}
		if !ok {
			fails(r.Method + " " + path + " has no answer here")
			return
		}
		filled := reflect.New(reflect.TypeOf(value).Elem())
		fill(filled.Elem(), 8)
		data, err := json.Marshal(filled.Interface())
		if err != nil {
			fails(path + ": " + err.Error())
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// evilModule imports a function by an evil name.
func evilModule() []byte {
	name := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	imports := slices.Concat([]byte{1}, name("job"+evil), name(evil), []byte{0, 0})
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), []byte{1, 4, 1, 0x60, 0, 0}, []byte{2, byte(len(imports))}, imports)
}

// evilFiles are a directory with modules, definitions and files of all kinds that have evil names and contents.
func evilFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	quoted := strconv.QuoteToASCII(evil) // which is YAML
	for name, text := range map[string]string{
		"evil.wasm":                            string(evilModule()),
		"E\x1b]0;TITLE\x07\u202e.wasm":         string(evilModule()),
		"evil.yaml":                            "jobName: " + quoted + "\nshardingTotalCount: " + quoted + "\ncron: " + quoted + "\nneeds: [" + quoted + "]\n" + quoted + ": x\n",
		"E\x1b]0;TITLE\x07\u202e.yaml":         "shardingTotalCount: 1\nmodule: evil.wasm\n",
		"broken.yaml":                          "cron: *" + evil + "\n",
		"grants/g.yaml":                        "grants:\n- jobs: " + quoted + "\n  http: [" + quoted + "]\n  secrets: {" + quoted + ": " + quoted + "}\n",
		"config/c.yaml":                        "plugins: " + quoted + "\n" + quoted + ": " + quoted + "\nlogLevel: " + quoted + "\n",
		"contexts/contexts.yaml":               "contexts:\n  good: {admin: " + quoted + ", tokenFile: " + quoted + "}\n",
		"users/u.yaml":                         "users: [{name: " + quoted + ", roles: {" + quoted + ": " + quoted + "}}]\n",
		"alerts/a.yaml":                        "routes: [{name: " + quoted + ", to: " + quoted + "}]\n",
		"history/events.jsonl":                 `{"kind":` + quoted + `,"job":` + quoted + "}\n" + evil + "\n",
		"keys/\x1bkey\u202e.pub":               evil,
		"plugins/\x1b[31mPAINTED\u202ea.yaml":  "shardingTotalCount: 1\n",
		"plugins/\x1b[31mPAINTED\u202ea.wasm":  "\x00asm\x01\x00\x00\x00",
		"plugins/\u202e\x1b]0;TITLE\x07b.yaml": "x",
		"import/crontab":                       evil + "\n* * * * * " + evil + "\nMAILTO=" + evil + "\n",
		"import/cronjob.yaml":                  "kind: CronJob\nmetadata: {name: " + quoted + "}\nspec: {schedule: '* * * * *', timeZone: " + quoted + ", concurrencyPolicy: " + quoted + "}\n---\nkind: " + quoted + "\n",
		"import/quartz.xml":                    "<a><job><name>x&#x202e;\u009b31mPAINTED</name><group>\u009b31mPAINTED</group></job></a>",
		"import/xxl.sql":                       "INSERT INTO xxl_job_info (id, job_desc, author) VALUES (1, '" + evil + "', '" + evil + "');",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// hostileLines are the arguments of each command, several lines where it has several ways to say something. A word
// DIR/ begins at evilFiles. Those that ask a host are run with each one of evilHost.
func hostileLines() map[string][][]string {
	job := [][]string{{evil}}
	shown := [][]string{{evil}, {evil, "-o", "json"}, {evil, "-o", "yaml"}, {evil, "--watch"}}
	list := [][]string{{}, {"-o", "json"}, {"-o", "yaml"}, {"--watch"}}
	nothing := [][]string{{evil}, {"--" + evil}}
	zk := []string{"--zk", evil, "--namespace", evil}
	return map[string][][]string{
		"":               {{evil}, {"--" + evil}},
		"registry adopt": {zk, {"--namespace", evil}}, "job export": {append(zk, "--out", evil)}, "job import": {{evil}},
		"job import elasticjob": {append(zk, "--out", evil), {evil}}, "job import crontab": {{"DIR/import/crontab", "--out", "DIR/out"}, {evil, "--out", evil}},
		"job import cronjob": {{"DIR/import/cronjob.yaml", "--out", "DIR/out"}, {"DIR/import/cronjob.yaml", "--out", "DIR/out", "--zone", evil}},
		"job import quartz":  {{"DIR/import/quartz.xml", "--out", "DIR/out"}, {"--database", evil, "--out", evil}}, "job import xxl-job": {{"DIR/import/xxl.sql", "--out", "DIR/out"}},
		"alert": {{evil}}, "alert export": {{"--alerts", "DIR/alerts/a.yaml"}}, "alert list": list, "alert silence": {{evil, "--for", "1h"}, {evil, "--for", "1h", "--reason", evil}, {"*", "--for", "1h", "--reason", evil}},
		"alert test": {{"--alerts", "DIR/alerts/a.yaml"}, {"--route", evil}}, "alert unsilence": {{evil}, {"5f0c2b7a91d3e4f6"}},
		"access audit": append(list, job...), "job calendar": append(list, job...), "job history": append(list, job...), "job runs": append(list, job...),
		"compile-module": {{}}, "run-guests": {{evil}},
		"context": {{}, {evil}}, "context list": {{}}, "context rm": job, "context use": job, "context set": {{evil, "--admin", evil}, {"a", "--admin", evil}},
		"job pause": {{evil}, {evil, "--server", evil}, {}}, "job resume": {{evil}, {evil, "--item", "1"}}, "job edit": {{evil}, {evil, "cron=" + evil}, {evil, evil + "=" + evil}, {evil, "cron=0 0 3 * * ?"}, {evil, "cron=0 0 3 * * ?", "--preview"}},
		"explain": {{evil}, {evil, "-o", "json"}, {evil, "-o", "yaml"}}, "access grants": append(list[:3:3], []string{evil}, []string{"--grants", "DIR/grants/g.yaml"}, []string{evil, "--grants", "DIR/grants"}), "host list": list,
		"module inspect": {{"DIR/evil.wasm"}, {"DIR/evil.wasm", "-o", "json"}, {"DIR/evil.wasm", "-o", "yaml"}, {"DIR/" + evil}, {"DIR/evil.wasm", "--grants", "DIR/grants", "--job", evil}},
		"invoke":         {{"DIR/evil.wasm"}, {"DIR/" + evil}, {guest, "--job-parameter", "stderr " + evil, "--param", "0=log:" + evil}, {guest, "--param", "0=fail:" + evil}, {guest, "--param", "0=trap:" + evil}},
		"job list":       append(list, []string{"--job", evil}), "job kill": {{evil, "--wait", "0s"}, {evil, "--wait", "0s", "--json"}},
		"job kv": {{evil}, {evil, "-o", "json"}, {evil, "--item", "1", "--get", evil}, {evil, "--item", "1", "--set", evil + "=" + evil}}, "job offset": {{evil}, {evil, "-o", "yaml"}, {evil, "--item", "1", "--set", evil}},
		"access login": {{}}, "job logs": {{}, {evil}, {evil, evil}, {evil, "-o", "json"}, {evil, "-o", "yaml"}, {evil, "--follow"}, {evil, "--follow", "-o", "json"}}, "module list": list,
		"job next": {{evil}, {"0 0 3 * * ?", "--zone", evil}}, "job release": {{evil}, {evil, "--item", "1"}}, "job remove": {{evil}, {evil, "--purge"}}, "job restore": job,
		"plan":       {{"DIR/plugins"}, {"DIR/" + evil}, {evil, evil, "--last", evil}, {evil, "--history", "DIR/history/events.jsonl"}},
		"run":        {{"--plugins", evil}, {"--config", "DIR/config/c.yaml"}, {"--print-config", "--plugins", "DIR/plugins"}, {"--registry", evil}},
		"job schema": nothing, "job items": shown, "job drain": {{evil}, {evil, "--instance", evil}}, "job start": {{evil}, {"--server", evil}},
		"module sign": {{"DIR/evil.wasm", "--key", "DIR/keys/\x1bkey\u202e.pub"}, {evil, "--key", evil}}, "module verify-signature": {{"DIR/evil.wasm", "--key", "DIR/keys/\x1bkey\u202e.pub"}, {evil, "--key", evil}},
		"status": append(list, shown...), "top": {{"--once"}, {}, {"-o", "json"}}, "job run": {{evil}, {evil, "--param", evil}}, "job backfill": {{evil, "--from", "7d", "--to", "6d"}, {evil, "--from", "7d", "--to", "6d", "--dry-run"}, {evil, "--cancel"}, {evil}},
		"access token": {{evil}}, "access token create": {{evil, "--role", evil}, {"a", "--role", "admin=" + evil, "--users", "DIR/users/u.yaml"}}, "access token list": {{"--users", "DIR/users/u.yaml"}}, "access token revoke": {{evil, "--users", "DIR/users/u.yaml"}, {evil, "--users", "DIR/users/none.yaml"}},
		"access user": {{evil}}, "access user add": {{evil, "--role", evil}}, "access user list": {{"--users", "DIR/users/u.yaml"}}, "access user passwd": {{evil, "--users", "DIR/users/none.yaml", "--password-file", "DIR/evil.yaml"}}, "access user remove": {{evil, "--users", "DIR/users/u.yaml"}},
		"validate": {{"DIR"}, {"DIR", "-o", "json"}, {"DIR", "-o", "yaml"}, {"DIR/" + evil}, {"DIR", "--grants", "DIR/grants"}}, "job verify": {{"DIR/history/events.jsonl"}, {evil}, {"DIR/history/events.jsonl", "-o", "json"}},
		"registry backup": {{evil}}, "registry backup create": {{evil}, {"DIR/" + evil}}, "registry backup show": {{evil}, {"DIR/evil.yaml"}}, "registry backup restore": {{evil}, append([]string{"DIR/evil.yaml"}, zk...)},
		"host may-restart": append(list[:3:3], []string{evil}),
		"job limits":       {{}, {"-o", "json"}},
		"version":          {{}, {"-o", "json"}},
		"demo":             {{}, {evil}},
		"docs":             {{}, {evil, evil}},
		"init":             {{evil}, {"DIR/evil.yaml"}},
		"job":              {{}, {evil}}, "host": {{}, {evil}}, "module": {{}, {evil}}, "access": {{}, {evil}}, "registry": {{}, {evil}},
		"host drain": {{"--server", evil}, {evil}}, "host start": {{"--server", evil}, {evil}},
		"help":       {{}, {evil}, {"connection"}},
		"completion": {{"bash"}, {"zsh"}, {"fish"}, {"powershell"}, {evil}},
		"__complete": {{"status", ""}, {"job", "logs", evil, ""}, {"job", "history", ""}},
	}
}

// TestTerminalOfAllCommands runs every command with all that strangers can write to it, in a terminal.
func TestTerminalOfAllCommands(t *testing.T) {
	t.Parallel()
	dir := evilFiles(t)
	known := hostileLines()
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		if name := strings.Join(path, " "); c.Runnable() && known[name] == nil {
			t.Errorf("the command %q has no line here that shows strangers' text", name)
		}
		for _, sub := range c.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
	}
	walk((&program{}).root(), nil)
	answering, refusing := evilHost(t, false, func(text string) { t.Error(text) }), evilHost(t, true, nil)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-the-host-1234"), 0o600); err != nil {
		t.Fatal(err)
	}
	reached := map[string]bool{} // commands that showed something of strangers
	for _, name := range slices.Sorted(maps.Keys(known)) {
		for _, line := range known[name] {
			for _, host := range []string{answering, refusing} {
				args := strings.Fields(name)
				for _, word := range line {
					args = append(args, strings.Replace(word, "DIR", dir, 1))
				}
				written := inTerminal(t, []string{"WASMJOB_ADMIN=" + host, "WASMJOB_ADMIN_TOKEN_FILE=" + token, "WASMJOB_CONTEXTS=" + filepath.Join(dir, "contexts", "contexts.yaml")}, args...)
				reached[name] = reached[name] || strings.Contains(written, "TITLE") || strings.Contains(written, "PAINTED")
				checkTerminal(t, written)
				if t.Failed() {
					t.Fatalf("so writes wasmjob %q", args)
				}
			}
		}
	}
	for name := range known {
		// The others take no text, or show none that is not their own.
		own := []string{"demo", "job schema", "version", "access login", "compile-module", "run-guests", "context list", "context", "alert export"}
		if !reached[name] && !slices.Contains(own, name) {
			t.Errorf("%q showed nothing of strangers", name)
		}
	}
}

// inTerminal runs a command line in a terminal in colour, interrupted as soon as it waits for that, and returns what
// arrives there.
func inTerminal(t *testing.T, environ []string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	p := &program{Program: command.Program{
		Out: &out, Err: &out, OutTTY: true, ErrTTY: true, Environ: append([]string{"HOME=" + t.TempDir()}, environ...),
		Notify: func() (<-chan os.Signal, func()) {
			c := make(chan os.Signal, 2)
			if args[0] != "invoke" {
				c <- syscall.SIGINT
				c <- syscall.SIGINT
			}
			return c, func() {}
		},
	}}
	p.main(t.Context(), args)
	return out.String()
}

// TestMachineOutput: JSON and YAML have the values that a host answered, and nothing that a terminal obeys; bytes of an
// offset are what they are in a pipe.
func TestMachineOutput(t *testing.T) {
	t.Parallel()
	host := evilHost(t, false, func(text string) { t.Error(text) })
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-the-host-1234"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"WASMJOB_ADMIN=" + host, "WASMJOB_ADMIN_TOKEN_FILE=" + token}
	for form, read := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": yaml.Unmarshal} {
		r := runCLI(t, environ, "module", "list", "-o", form)
		var m map[string]any
		if err := read([]byte(r.out), &m); err != nil {
			t.Fatalf("%s: %v\n%s", form, err, r.out)
		}
		if text := fmt.Sprint(m); !strings.Contains(text, evil) {
			t.Errorf("%s: the text is not in %q", form, text)
		}
		checkTerminal(t, r.out)
	}
	r := runCLI(t, environ, "job", "kv", "j", "--get", evil)
	if r.code != exitOK || !strings.Contains(r.out, evil) {
		t.Errorf("to a pipe %q, %s", r.out, r.err)
	}
	if written := inTerminal(t, environ, "job", "kv", "j", "--get", evil); strings.Contains(written, "\x1b") {
		t.Errorf("to a terminal %q", written)
	}
}
