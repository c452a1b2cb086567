package migrate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/internal/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registryOf is a registry with nodes, "path = value" each.
func registryOf(t *testing.T, nodes ...string) registry.Center {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	for _, n := range nodes {
		path, value, _ := strings.Cut(n, " = ")
		if _, err := r.Commit(t.Context(), registry.Ensure(path), registry.Set(path, []byte(value), registry.AnyVersion)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// versions is a namespace with a job of each version.
func versions(t *testing.T) registry.Center {
	return registryOf(t,
		// 1.x: a node for each setting.
		"/ns/one/config/jobClass = com.example.One",
		"/ns/one/config/jobType = DATA_FLOW",
		"/ns/one/config/cron = 0/10 * * * * ?",
		"/ns/one/config/shardingTotalCount = 3",
		"/ns/one/config/shardingItemParameters = 0=A,1=B,2=C",
		"/ns/one/config/failover = true",
		"/ns/one/config/misfire = false",
		"/ns/one/config/monitorExecution = true",
		"/ns/one/config/jobShardingStrategyClass = com.dangdang.ddframe.job.plugin.sharding.strategy.OdevitySortByNameJobShardingStrategy",
		"/ns/one/config/streamingProcess = true",
		"/ns/one/config/fetchDataCount = 50",
		"/ns/one/config/concurrentDataProcessThreadCount = 4",
		"/ns/one/config/processCountIntervalSeconds = 300",
		"/ns/one/servers/10.0.0.1/status = READY",
		"/ns/one/servers/10.0.0.2/disabled",
		"/ns/one/execution/0/completed",
		"/ns/one/offset/0 = 4711",
		"/ns/one/offset/1",
		"/ns/one/offset/2 = 12",
		// 2.0: JSON, servers with nodes below.
		`/ns/twenty/config = {"jobName":"twenty","jobClass":"com.dangdang.ddframe.job.api.script.ScriptJob","jobType":"SCRIPT","cron":"0 0 3 * * ?","shardingTotalCount":1,"failover":false,"misfire":true,"monitorExecution":true,"maxTimeDiffSeconds":10,"scriptCommandLine":"/opt/close.sh --all","jobProperties":{"job_exception_handler":"com.example.Mail","executor_service_handler":"com.dangdang.ddframe.job.executor.handler.impl.DefaultExecutorServiceHandler"},"monitorPort":9888}`,
		"/ns/twenty/servers/10.0.0.1/sharding = 0",
		// 2.1: JSON, the tree of 3.x.
		`/ns/twentyone/config = {"jobName":"twentyone","jobClass":"com.example.TwentyOne","jobType":"SIMPLE","cron":"0 0 4 * * ?","shardingTotalCount":2,"jobShardingStrategyClass":"com.example.Mine","reconcileIntervalMinutes":5}`,
		"/ns/twentyone/servers/10.0.0.1 = DISABLED",
		"/ns/twentyone/sharding/0/instance = 10.0.0.1@-@7",
		"/ns/twentyone/sharding/1/disabled",
		// 3.x.
		"/ns/three = com.example.Three",
		"/ns/three/sharding/0/disabled",
		"/ns/three/sharding/1/disabled",
		"/ns/three/config = cron: '0/30 * * * * ?'\nfailover: true\njobErrorHandlerType: EMAIL\njobListenerTypes:\n- audit\njobName: three\nmisfire: true\nmonitorExecution: true\nprops:\n  email.password: secret\n  own.key: 'yes'\n  streaming.process: 'false'\nreconcileIntervalMinutes: 10\nshardingItemParameters: 0=a,1=b,7=x\nshardingTotalCount: 2\ntimeZone: GMT+08:00\njobExecutorThreadPoolSizeProviderType: SINGLE_THREAD\noverwrite: true\njobExtraConfigurations:\n- !!org.apache.shardingsphere.elasticjob.kernel.tracing.yaml.YamlTracingConfiguration\n  type: RDB\n",
		"/ns/http = HTTP",
		"/ns/http/config = cron: 0 0 * * * ?\njobName: http\nprops:\n  http.uri: http://example.org/\n  http.method: POST\nshardingTotalCount: 1\n",
		"/ns/broken/config = cron: [\n",
		// Not jobs.
		"/ns/removed/leader/election/latch",
	)
}

func TestDetect(t *testing.T) {
	t.Parallel()
	r := versions(t)
	found, err := Detect(t.Context(), r, "ns")
	if err != nil {
		t.Fatal(err)
	}
	want := []Found{
		{"broken", Version3, "/ns/broken/config", "YAML"},
		{"http", Version3, "/ns/http/config", "YAML"},
		{"one", Version1, "/ns/one/config/concurrentDataProcessThreadCount", "a node for each setting"},
		{"three", Version3, "/ns/three/config", "YAML"},
		{"twenty", Version20, "/ns/twenty/config", "JSON with jobClass, jobProperties, jobType, monitorPort, scriptCommandLine"},
		{"twentyone", Version21, "/ns/twentyone/config", "JSON with jobClass, jobShardingStrategyClass, jobType"},
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("found\n%+v\nwant\n%+v", found, want)
	}
	var layout *LayoutError
	if err := Check(t.Context(), r, "ns"); !errors.As(err, &layout) || layout.First.Name != "one" || layout.More != 2 ||
		!strings.Contains(err.Error(), "namespace ns holds jobs of ElasticJob 1.x: one and 2 more (/ns/one/config/") {
		t.Errorf("a namespace of old versions: %v", err)
	}
	if err := Check(t.Context(), r, "nothing"); err != nil {
		t.Errorf("an empty namespace: %v", err)
	}
	// JSON that 3.x reads as YAML is no sign of 2.x.
	if err := Check(t.Context(), registryOf(t, `/ns/j/config = {"jobName": "j", "cron": "0 0 0 * * ?", "shardingTotalCount": 1}`), "ns"); err != nil {
		t.Errorf("YAML in JSON's form: %v", err)
	}
}

func TestDefinitions(t *testing.T) {
	t.Parallel()
	r := versions(t)
	found, err := Detect(t.Context(), r, "ns")
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := Read(t.Context(), r, "ns", found)
	if err == nil || !strings.Contains(err.Error(), `job "broken" (ElasticJob 3.x): not a YAML document`) || len(jobs) != len(found)-1 {
		t.Fatalf("%d of %d jobs, %v", len(jobs), len(found), err)
	}
	want := map[string]string{
		"one": `# concurrentDataProcessThreadCount 4: an item is worked on by one guest; divide the job into more items
# servers are disabled for the job: 10.0.0.2; in the namespace of ElasticJob that stays, elsewhere use 'wasmjob job pause'
# offsets of 2 items are in /ns/one/offset and not taken over: the module starts without one; have it read them from there first, or begin where they say
jobName: one
cron: 0/10 * * * * ?
shardingTotalCount: 3
shardingItemParameters: 0=A,1=B,2=C
jobShardingStrategyType: ODEVITY
failover: true
misfire: false
jobClass: com.example.One
type: DATAFLOW
streamingProcess: true
timeout: 0
fetchDataCount: 50
`,
		"twenty": `# monitorPort 9888: a host has one port for all jobs, --dump-port
# the exception handler com.example.Mail is a Java class; errors are in the log, the events and the metrics
# the command line was: /opt/close.sh --all
jobName: twenty
cron: 0 0 3 * * ?
shardingTotalCount: 1
maxTimeDiffSeconds: 10
type: SCRIPT
timeout: 0
`,
		"twentyone": `# all its servers are disabled, so the job begins paused: 'wasmjob job resume' has it fire
# the strategy com.example.Mine is not known here, AVG_ALLOCATION is in its place: `,
		"three": `# the error handler EMAIL sends by the route that the hosts' file of alerts has for it (errorHandlers), see docs/alerts.md
# shardingItemParameters were "0=a,1=b,7=x", of which what has no meaning is left out: "7=x" is for item 7, but the job has only items 0 to 1
# the listeners audit are Java's; a module exports its own, see docs/writing-jobs.md
# jobExtraConfigurations is a Java host's tracing into a database; a host here keeps events with --history
# overwrite is left out: with it the file would win over every change that a console makes
# props of a Java host are left out: email.password
# items are disabled: 0-1; in the namespace of ElasticJob that stays, elsewhere use 'wasmjob job pause --item'
jobName: three
cron: 0/30 * * * * ?
timeZone: GMT+08:00
shardingTotalCount: 2
shardingItemParameters: 0=a,1=b
failover: true
jobErrorHandlerType: EMAIL
jobClass: com.example.Three
type: DATAFLOW
timeout: 0
maxConcurrency: 1
props:
  own.key: yes
`,
		"http": `# the host sends its request (POST http://example.org/), once the operator has granted the address (docs/grants.md). An answer that is no success makes the item fail; ElasticJob only logged it
jobName: http
cron: 0 0 * * * ?
shardingTotalCount: 1
misfire: false
monitorExecution: false
reconcileIntervalMinutes: 0
type: HTTP
timeout: 0
http:
  url: http://example.org/
  method: POST
  headers: ['shardingContext: {"jobName":"{job}","taskId":"{run}","shardingTotalCount":{total},"jobParameter":"{jobParameter}","shardingItem":{item},"shardingParameter":"{itemParameter}"}']
`,
	}
	for _, j := range jobs {
		if j.Configuration.Disabled != (j.Name == "twentyone") {
			t.Errorf("%s: disabled: %t", j.Name, j.Configuration.Disabled)
		}
		text, notes, err := j.Definition()
		if err != nil {
			t.Errorf("%s: %v", j.Name, err)
			continue
		}
		line := schema.Line("job") + "\n"
		body, ok := strings.CutPrefix(string(text), line)
		if !ok {
			t.Errorf("%s: expected the first line %q, found\n%s", j.Name, line, text)
		}
		if !strings.HasPrefix(body, want[j.Name]) {
			t.Errorf("%s: found\n%s\nwant\n%s", j.Name, text, want[j.Name])
		}
		if strings.Contains(body, "secret") || strings.Count(body, "# ") != len(notes) {
			t.Errorf("%s: %d notes, and in\n%s", j.Name, len(notes), text)
		}
	}
}

// TestRoundTrip: what a definition file says comes back from the registry.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	label := "null"
	odd := []string{"", "yes", "0123", "*/5", "a: b # c", " blanks ", "two\nlines", "ünïcode 漢", "'", `"\`, "{x}", "- a", "~", "!!str x"}
	for n, s := range odd {
		name := fmt.Sprintf("job %d:ü", n)
		c := jobconfig.Configuration{
			JobName: name, Cron: "*/5 * * * *", TimeZone: "Asia/Shanghai", ShardingTotalCount: 4, ShardingItemParameters: "0=a,3=b c",
			JobParameter: s, Description: s, Failover: n%2 == 0, Misfire: n%3 == 0, MonitorExecution: true, MaxTimeDiffSeconds: n, ReconcileIntervalMinutes: n,
			JobShardingStrategyType: "ROUND_ROBIN", JobErrorHandlerType: "THROW", StaticSharding: n%2 == 1, Label: &label, Disabled: n%4 == 0,
		}
		if s != "" {
			c.Props = map[string]string{"own": s, s + "x": "1"}
		} else {
			c.Props = map[string]string{}
		}
		jobconfig.Guest{
			Type: jobconfig.TypeDataflow, StreamingProcess: n%2 == 0, Timeout: time.Duration(n) * time.Minute, MaxConcurrency: n,
			Isolation: jobconfig.IsolationItem, MemoryLimit: 96<<20 + int64(n%2)<<10, FetchDataCount: n, CatchUpWindow: time.Duration(n) * time.Hour,
			Retry: jobconfig.RetryPolicy{Attempts: 1 + n, Backoff: time.Duration(n) * time.Second, MaxBackoff: time.Minute, On: []string{"RETRY", "TRAP"}},
		}.Props(c.Props)
		r := registryOf(t, "/ns/"+name+"/config = "+string(c.YAML()))
		found, err := Detect(t.Context(), r, "ns")
		if err != nil || len(found) != 1 {
			t.Fatalf("%q: %v, %v", s, found, err)
		}
		jobs, err := Read(t.Context(), r, "ns", found)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		text, notes, err := jobs[0].Definition()
		if err != nil || len(notes) > 0 {
			t.Errorf("%q: notes %q, %v", s, notes, err)
			continue
		}
		back, err := definition.Parse(jobs[0].File()+".yaml", text)
		if err != nil {
			t.Errorf("%q: %v in\n%s", s, err, text)
			continue
		}
		if got := back[0].Configuration; !reflect.DeepEqual(got, c) {
			t.Errorf("%q: got\n%+v\nwant\n%+v\nfrom\n%s", s, got, c, text)
		}
	}
}

// TestDefinitionHasEachSetting: no setting of the guest is lost on the way into a file.
func TestDefinitionHasEachSetting(t *testing.T) {
	t.Parallel()
	values := map[jobconfig.Type]string{jobconfig.Boolean: "true", jobconfig.Duration: "1h", jobconfig.Size: "67108864",
		jobconfig.Texts: `["kv"]`, jobconfig.Outcomes: "RETRY,FAIL", jobconfig.Labels: "a=1,team=billing", jobconfig.Time: "2026-12-24T18:00:00+01:00",
		jobconfig.Several: `[{"cron":"@daily"},{"cron":"@hourly","timeZone":"UTC","jobParameter":""}]`,
		jobconfig.Jobs:    `[{"job":"b","on":"failure","within":"2h"}]`,
		jobconfig.Args:    `[{"name":"day","type":"date","default":"2026-01-01","min":"2026-01-01","description":"a day"},{"name":"how","type":"enum","default":"a","values":["a","b"]}]`}
	for _, s := range jobconfig.Settings() {
		if s.Prop == "" {
			continue
		}
		value := values[s.Type]
		switch s.Type {
		case jobconfig.Number:
			value = strconv.FormatInt(s.Max, 10)
		case jobconfig.Word:
			value = s.Words[len(s.Words)-1]
		}
		c := jobconfig.Configuration{JobName: "a", Cron: "0 0 3 * * ?", ShardingTotalCount: 1, Misfire: true, Props: map[string]string{s.Prop: value}}
		if s.Only != "" {
			c.Props["wasm.type"] = string(s.Only)
		}
		if s.Only == jobconfig.TypeHTTP {
			c.Props["http.uri"] = "https://example.org/{item}"
			switch s.Name {
			case "http.headers":
				c.Props[s.Prop] = `["A: b"]`
			case "http.expect":
				c.Props[s.Prop] = "200-204,404"
			case "http.method", "http.body", "http.contentType":
				c.Props[s.Prop] = "PUT"
			}
			value = c.Props[s.Prop]
		}
		switch s.Name {
		case "type":
			c.Props["http.uri"] = "https://example.org/"
		case "at", "schedules", "after": // in place of a cron
			c.Cron = ""
		case "concurrency.key":
			value = "db"
			c.Props[s.Prop], c.Props["wasm.concurrency.max"] = value, "2"
		case "concurrency.max":
			c.Props["wasm.concurrency.key"] = "db"
		case "rate.key", "rate.per", "rate.max":
			c.Props["wasm.rate.key"], c.Props["wasm.rate.per"], c.Props["wasm.rate.max"] = "mails", "1h", "1000"
			value = c.Props[s.Prop]
		case "calendars.onExcluded":
			c.Props["wasm.calendars.include"] = `["workdays"]`
		}
		text, notes, err := Job{Found: Found{Name: "a"}, Configuration: c}.Definition()
		if err != nil || len(notes) > 0 {
			t.Errorf("%s: notes %q, %v", s.Name, notes, err)
			continue
		}
		back, err := definition.Parse("a.yaml", text)
		if err != nil {
			t.Errorf("%s: %v in\n%s", s.Name, err, text)
			continue
		}
		if got := back[0].Configuration.Props[s.Prop]; value == "" || got != s.Text(guest(t, c)) {
			t.Errorf("%s: %q comes back as %q from\n%s", s.Name, value, got, text)
		}
	}
}

func guest(t *testing.T, c jobconfig.Configuration) jobconfig.Guest {
	t.Helper()
	g, err := c.Guest()
	if err != nil {
		t.Error(err)
	}
	return g
}

// TestSkeletonsCompile builds every kind of skeleton as its comment says.
func TestSkeletonsCompile(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{KindSimple, KindDataflow, KindScript} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			j := Job{Found: Found{Name: "my job", Version: Version3}, Kind: kind, Class: "com.example.Job\n", Command: "run */ `x`\nboth"}
			dir := t.TempDir()
			source := filepath.Join(dir, "main.go")
			if err := os.WriteFile(source, j.Skeleton(), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", source).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("gofmt: %s, %v", out, err)
			}
			// As if it stood in this tree, where the sdk is.
			root, err := filepath.Abs("../../..")
			if err != nil {
				t.Fatal(err)
			}
			overlay := filepath.Join(dir, "overlay.json")
			text := fmt.Sprintf(`{"Replace": {%q: %q}}`, filepath.Join(root, "skeleton_"+j.File(), "main.go"), source)
			if err := os.WriteFile(overlay, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"build", "-trimpath", "-overlay", overlay, "-o", filepath.Join(dir, "x.wasm")}
			if strings.Contains(string(j.Skeleton()), "-buildmode=c-shared") {
				args = append(args, "-buildmode=c-shared")
			}
			build := exec.CommandContext(t.Context(), "go", append(args, "./skeleton_"+j.File())...)
			build.Dir, build.Env = root, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\n%s", err, out, j.Skeleton())
			}
		})
	}
}

func TestFileNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"report.v2": "report.v2", ".hidden": "hidden-", "-x": "x-", "a b:c": "a_b_c-", "日报": "job-", "日报 v2": "v2-", "_": "job-",
	} {
		got := (Job{Found: Found{Name: name}}).File()
		if whole := !strings.HasSuffix(want, "-"); (whole && got != want) || !regexp.MustCompile("^"+regexp.QuoteMeta(want)+"([0-9a-f]{8})?$").MatchString(got) {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	// Names of one length have names of their own.
	seen := make(map[string]string)
	for _, name := range []string{"每日报表", "月度结算", "库存同步", "a b", "a:b", "a_b", "é", "è"} {
		file := (Job{Found: Found{Name: name}}).File()
		if other := seen[file]; other != "" {
			t.Errorf("%q and %q have the same files, %s", name, other, file)
		}
		seen[file] = name
	}
}
