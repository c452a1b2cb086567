package e2e_test

import (
	"io"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// dumped is the answer to a request.
func dumped(t *testing.T, address, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// closedPort is an address at which nothing answers.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestWithoutZooKeeper: a host that finds no ZooKeeper says so, waits as long
// as it is told to, and ends with the reason.
func TestWithoutZooKeeper(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	nobody := closedPort(t)
	run := func(zk string, texts ...string) {
		t.Helper()
		texts = append(texts, "gave up waiting", "waiting for ZooKeeper")
		p.refused(1, texts, "run", "--plugins", p.path("plugins"), "--admin", "127.0.0.1:0", "--server-ip", "127.0.0.1", "--zk", zk, "--wait", "6s")
	}
	run(nobody, nobody, "connection refused")
	run("no-such-host.invalid:2181", "no-such-host.invalid")
	p.refused(1, []string{"connection refused", nobody}, "job", "items", "any", "--zk", nobody, "--config", p.settings("wait: 2s"))
	p.refused(2, []string{"--zk: ZooKeeper's servers are named, but the registry is embedded"}, "run", "--registry", "embedded", "--zk", nobody, "--plugins", p.path("plugins"))
	p.refused(2, []string{"zookeeper needs its servers"}, "run", "--registry", "zookeeper", "--plugins", p.path("plugins"))
	p.refused(2, []string{"--admin asks a host, --zk the registry itself"}, "job", "list", "--zk", nobody, "--admin", "127.0.0.1:1")
	p.refused(2, []string{"no address in 203.0.113.0/24; this machine has lo 127.0.0.1"}, "run", "--zk", nobody, "--server-ip", "203.0.113.0/24", "--plugins", p.path("plugins"), "--admin", "off")
}

// settings writes a configuration file and returns its name.
func (p *place) settings(lines ...string) string {
	p.t.Helper()
	p.put("settings.yaml", []byte(strings.Join(lines, "\n")+"\n"))
	return p.path("settings.yaml")
}

// TestZooKeeperComesLater: a host waits for ever, answers meanwhile, and goes
// to work when ZooKeeper is there. One that is told to end before does so.
func TestZooKeeperComesLater(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 1")
	proxy, err := zkserver.NewProxy(c.zk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	proxy.Cut()
	c.zk = proxy.Addr()
	m := c.add()
	m.line(0, "waiting for ZooKeeper at "+proxy.Addr())
	code, body := m.get("/readyz")
	if code != 503 || !strings.Contains(body, "waiting for ZooKeeper at "+proxy.Addr()) {
		t.Errorf("/readyz of a host that waits: %d, %s", code, body)
	}
	if code, _ := m.get("/healthz"); code != 200 {
		t.Errorf("/healthz of a host that waits: %d", code)
	}
	if out := m.place.must("status"); !strings.Contains(out, "not ready (waiting for ZooKeeper at ") {
		t.Errorf("status of a host that waits:\n%s", out)
	}
	proxy.Heal()
	m.of("tick", 0, kind(event.FireEnded))
	if code, _ := m.get("/readyz"); code != 200 {
		t.Errorf("/readyz of a host at work: %d", code)
	}
	c.judge("tick")

	proxy.Cut()
	late := c.add()
	late.line(0, "waiting for ZooKeeper at "+proxy.Addr())
	late.signal(syscall.SIGTERM)
	if code := late.exit(); code != 0 {
		t.Errorf("exit code %d of a host that was told to end while it waited", code)
	}
}

// TestCredentials: who may not work in a namespace is told where that shows.
func TestCredentials(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.ns = "credentials" // what is above it is made with the credentials, too
	c.job("tick", everySecond, "shardingTotalCount: 2")
	const right = "owner:pass:word"
	secret := []string{"WASMJOB_ZK_CREDENTIALS=" + right}
	m := &member{place: newPlace(t), ip: "127.0.1.1"}
	m.place.guestJob("tick", c.jobs["tick"]...)
	m.process = m.place.startEnv(secret, "--zk", c.zk, "--namespace", c.ns, "--session-timeout", "3s", "--server-ip", m.ip)
	m.of("tick", 0, kind(event.FireEnded))
	if out := m.place.cliEnv(secret, "run", "--print-config", "--plugins", m.place.path("plugins"), "--zk", c.zk); strings.Contains(out.out+out.err, "pass") ||
		!strings.Contains(out.out, "owner:********, from WASMJOB_ZK_CREDENTIALS") {
		t.Errorf("the settings show\n%s%s", out.out, out.err)
	}

	root := "/" + c.ns
	run := []string{"run", "--plugins", c.path("plugins"), "--admin", "127.0.0.1:0", "--server-ip", "127.0.1.2", "--zk", c.zk, "--namespace", c.ns, "--wait", "1m"}
	c.refused(1, []string{"access denied", root, "has no credentials"}, run...)
	c.putText("wrong", "owner:wrong\n")
	wrong := c.cli(append(run, "--zk-credentials-file", c.path("wrong"))...)
	wrong.mustSay(t, 1, []string{"access denied", root, `does not allow it to user`, "with this password", "can be read by others"}, run...)
	if strings.Contains(wrong.err, "owner:wrong") {
		t.Errorf("the password is shown:\n%s", wrong.err)
	}
	c.refused(1, []string{"access denied", root}, "job", "list", "--zk", c.zk, "--namespace", c.ns)
	out := c.cliEnv(secret, "job", "list", "--zk", c.zk, "--namespace", c.ns)
	out.mustSay(t, 0, []string{"tick", "OK"}, "job", "list")
	m.stop()
}

// putText writes a file into the place, for everybody to read.
func (p *place) putText(name, text string) {
	p.t.Helper()
	p.put(name, []byte(text))
}

// TestOlderElasticJob: a host keeps out of a namespace of 1.x or 2.x, and
// import takes the jobs over.
func TestOlderElasticJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.session("")
	one, two := c.ns+".one", c.ns+".two"
	c.put(s,
		"/"+one+"/ledger/config/cron = 0 0 3 * * ?",
		"/"+one+"/ledger/config/shardingTotalCount = 2",
		"/"+one+"/ledger/config/jobClass = com.example.Ledger",
		"/"+one+"/ledger/servers/10.0.0.1/hostName = old",
		`/`+two+`/close/config = {"jobName":"close","jobClass":"com.example.Close","jobType":"SCRIPT","cron":"0 0 4 * * ?","shardingTotalCount":1,"scriptCommandLine":"/opt/close.sh"}`,
	)
	refuse := func(ns string, texts ...string) {
		t.Helper()
		c.refused(1, texts, "run", "--plugins", c.path("plugins"), "--admin", "127.0.0.1:0", "--server-ip", "127.0.1.1", "--zk", c.zk, "--namespace", ns)
	}
	refuse(one, "holds jobs of ElasticJob 1.x: ledger", "/"+one+"/ledger/config/cron: a node for each setting", "wasmjob job import elasticjob")
	refuse(two, "holds jobs of ElasticJob 2.1: close", "/"+two+"/close/config: JSON with jobClass", "choose another namespace")
	nodes, err := s.Read(t.Context(), registry.Children("/"+one), registry.Data("/"+one+".wasmjob"))
	if err != nil || !slices.Equal(nodes[0].Names, []string{"ledger"}) || nodes[1].Exists {
		t.Errorf("a host that was refused has written: %+v, %v", nodes, err)
	}

	dir := c.path("jobs")
	out := c.must("job", "import", "elasticjob", "--zk", c.zk, "--namespace", one, "--out", dir)
	if !strings.Contains(out, "job ledger, of ElasticJob 1.x") {
		t.Errorf("import says\n%s", out)
	}
	said := c.cli("job", "import", "elasticjob", "--zk", c.zk, "--namespace", two, "--out", dir, "--job", "close")
	said.mustSay(t, 0, []string{"close: the command line was: /opt/close.sh"}, "job", "import")
	if got := files(t, dir); !slices.Equal(got, []string{"close/main.go", "close.yaml", "ledger/main.go", "ledger.yaml"}) {
		t.Errorf("import wrote %v", got)
	}
	for _, name := range []string{"ledger", "close"} {
		c.putText(filepath.Join("jobs", name+".wasm"), string(guest(t, 1)))
	}
	if text := string(read(t, filepath.Join(dir, "ledger.yaml"))); !strings.Contains(text, "jobClass: com.example.Ledger\ntimeout: 0\n") {
		t.Errorf("the definition is\n%s", text)
	}
	c.must("validate", filepath.Join(dir, "ledger.yaml"))
	c.refused(1, []string{"ledger.yaml exists; --force writes over it"}, "job", "import", "elasticjob", "--zk", c.zk, "--namespace", one, "--out", dir)
	c.must("job", "import", "elasticjob", "--zk", c.zk, "--namespace", one, "--out", dir, "--force")
	c.refused(2, []string{`unknown command "elasticjobs"`}, "job", "import", "elasticjobs")
	c.refused(2, []string{"--out is missing"}, "job", "import", "elasticjob", "--zk", c.zk)
	c.refused(2, []string{"servers are not named"}, "job", "export", "--out", dir)
}

// TestExport: what the registry has comes back as files that a host takes, and
// that say the same.
func TestExport(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 4", `shardingItemParameters: "0=a,3=d"`, "failover: true", "jobShardingStrategyType: ROUND_ROBIN",
		"timeout: 7m", "retry: {attempts: 5, on: [RETRY, TRAP]}", "props: {own: \"yes\"}", "description: 'with: a colon'")
	c.job("manual", "shardingTotalCount: 1", `jobParameter: "hold:x"`, "timeout: 0")
	m := c.add()
	m.of("tick", 0, owned())
	m.of("manual", 0, owned())
	dir := c.path("jobs")
	c.registry("job", "export", "--out", dir)
	for _, name := range []string{"tick", "manual"} {
		c.putText(filepath.Join("jobs", name+".wasm"), string(guest(t, 1)))
	}
	if got := files(t, dir); !slices.Equal(got, []string{"manual.wasm", "manual.yaml", "tick.wasm", "tick.yaml"}) {
		t.Errorf("export wrote %v", got)
	}
	c.must("validate", dir)
	again := c.path("again")
	c.registry("job", "export", "--out", again, "--job", "tick")
	if got := files(t, again); !slices.Equal(got, []string{"tick.yaml"}) {
		t.Errorf("export of one job wrote %v", got)
	}
	before := c.registry("job", "list", "--json")
	// A host on those files changes nothing of what is in force.
	c.stopAll()
	for name := range c.jobs {
		m.place.drop(name+".yaml", read(t, filepath.Join(dir, name+".yaml")))
	}
	next := m.place.start("--registry", "zookeeper://"+c.zk, "--namespace", c.ns, "--server-ip", m.ip)
	next.of("tick", 0, owned())
	next.of("manual", 0, owned())
	then, now := records[admin.Brief](t, before), records[admin.Brief](t, c.registry("job", "list", "--json"))
	for i := range min(len(now), len(then)) {
		for _, b := range []*admin.Brief{&now[i], &then[i]} { // it fires meanwhile
			b.Leader, b.LastOutcome, b.LastReason, b.LastEnded = "", "", "", time.Time{}
		}
	}
	if !reflect.DeepEqual(now, then) || len(now) != 2 {
		t.Errorf("jobs were\n%+v\nand are with the exported files\n%+v", then, now)
	}
	if n := next.count("tick", kind(event.JobChanged)) + next.count("manual", kind(event.JobChanged)); n > 0 {
		t.Errorf("the exported files changed the configuration %d times", n)
	}
	next.stop()
}

// TestNothingThere: a namespace without jobs, and jobs, servers and instances
// that do not exist.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, command := range []string{"job list", "status"} {
		if out := c.registry(strings.Fields(command)...); !strings.Contains(out, "no jobs in namespace "+c.ns) {
			t.Errorf("%s of nothing: %s", command, out)
		}
	}
	if out := c.registry("job", "list", "--json"); strings.Join(strings.Fields(out), "") != `{"records":[]}` {
		t.Errorf("job list --json of nothing: %s", out)
	}
	c.refused(2, []string{"--health is for the jobs of hosts"}, "job", "list", "--health", "failing", "--zk", c.zk, "--namespace", c.ns)
	c.refused(1, []string{"namespace " + c.ns + " has no jobs"}, "job", "export", "--zk", c.zk, "--namespace", c.ns, "--out", c.path("none"))
	if got := files(t, c.path("none")); len(got) > 0 {
		t.Errorf("export of nothing wrote %v", got)
	}
	c.job("tick", everySecond, "shardingTotalCount: 1")
	m := c.add()
	m.of("tick", 0, kind(event.FireEnded))
	for _, args := range [][]string{{"job", "items", "tock"}, {"status", "tock"}, {"job", "run", "tock"}, {"job", "pause", "tock"}, {"job", "resume", "tock", "--item", "0"},
		{"job", "drain", "tock"}, {"job", "remove", "tock"}, {"job", "pause", "tock", "--server", m.ip}} {
		c.refused(1, []string{`"tock"`, `did you mean "tick"?`}, append(args, "--zk", c.zk, "--namespace", c.ns)...)
		a := m.place.cli(args...)
		a.mustSay(t, 1, []string{`did you mean "tick"?`}, args...)
	}
	c.refused(1, []string{"no server 10.9.9.9; there is " + m.ip}, "job", "pause", "tick", "--server", "10.9.9.9", "--zk", c.zk, "--namespace", c.ns)
	c.refused(1, []string{"no instance nobody; there is " + m.ip + "@-@"}, "job", "drain", "tick", "--instance", "nobody", "--zk", c.zk, "--namespace", c.ns)
	c.refused(1, []string{"has no item 7"}, "job", "pause", "tick", "--item", "7", "--zk", c.zk, "--namespace", c.ns)
	c.refused(1, []string{`has no job "tock"; did you mean "tick"?`}, "job", "export", "--job", "tock", "--zk", c.zk, "--namespace", c.ns, "--out", c.path("none"))
	c.judge("tick")
}
