//go:build interop

package interop_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/strategy"
	"github.com/wasmjob/wasmjob/test/interop/peer"
	"github.com/wasmjob/wasmjob/test/tap"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// patience is how long anything may take before a test gives up. JVMs, hosts
// and tests share a few slow cores.
const patience = 60 * time.Second

// sessionTimeout is that of all hosts: short, as kills are waited for.
const sessionTimeout = 6 * time.Second

// never is a cron expression that no test lives to see fire.
const never = "0 0 0 1 1 ? 2090"

var version = flag.String("elasticjob", "3.0.4", "version of ElasticJob, 3.0.4 or 3.0.5")

// shared is what all tests use: the built program and one ZooKeeper.
var shared struct {
	program, connect string
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("6"); err != nil { // scenarios wait more than they work
			return 0, err
		}
	}
	dir, err := os.MkdirTemp("", "wasmjob-interop-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	shared.program = filepath.Join(dir, "wasmjob")
	for _, args := range [][]string{{"go", "build", "-trimpath", "-o", shared.program, "../../cmd/host"}, {"java/build", *version}} {
		c := exec.Command(args[0], args[1:]...)
		c.Stderr = os.Stderr
		if err := c.Run(); err != nil {
			return 0, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	servers, err := zkserver.Start(ctx, zkserver.Options{Dir: filepath.Join(dir, "zookeeper"), TickTime: 500 * time.Millisecond, NoSync: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	shared.connect = servers.Connect()
	return m.Run(), nil
}

// cluster is the hosts of one test, in a namespace of their own, that share one
// job.
type cluster struct {
	t   *testing.T
	ctx context.Context
	// namespace is the test's, job the job's name.
	namespace, job string
	log            *peer.Log
	taps           *tap.Recorder // what all hosts ask of the registry
	zk             *zk.Conn
	ours           []*ours
	java           []*java
	operator       *peer.Java
	next           int // the next server's address
}

func newCluster(t *testing.T, job string) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	t.Cleanup(cancel)
	conn, events, err := zk.Connect(strings.Split(shared.connect, ","), 30*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	c := &cluster{t: t, ctx: ctx, namespace: strings.ReplaceAll(t.Name(), "/", "."), job: job, log: &peer.Log{}, taps: &tap.Recorder{Detailed: true}, zk: conn}
	t.Cleanup(func() { c.check(c.taps.Close()) })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("writes:\n%s", c.writes())
			t.Logf("runs:\n%s", peer.Text(c.log.Runs(c.job, 0)))
			t.Logf("registry:\n%s", c.dump())
		}
	})
	return c
}

func (c *cluster) address() string {
	c.next++
	return "10.1.0." + strconv.Itoa(c.next)
}

func (c *cluster) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, patience)
}

func (c *cluster) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// ours is a host of ours.
type ours struct {
	*peer.Wasmjob
	c       *cluster
	ip, dir string
	args    []string
}

// definition is a definition of the cluster's job. With hold, items go on until
// release; a host that is not held ends them at once.
func definition(total int, lines ...string) string {
	return strings.Join(append([]string{
		"cron: " + strconv.Quote(never), "shardingTotalCount: " + strconv.Itoa(total),
		"failover: true", "misfire: false", "monitorExecution: true", "jobParameter: hold:go",
	}, lines...), "\n") + "\n"
}

// start starts a host of ours that has the job, and waits until it has joined.
func (c *cluster) start(definition string, args ...string) *ours {
	t := c.t
	t.Helper()
	guest, err := os.ReadFile("../e2e/testdata/guest.wasm")
	c.check(err)
	name := fmt.Sprintf("ours%d", len(c.ours)+1)
	o := &ours{c: c, ip: c.address(), dir: t.TempDir()}
	for _, d := range []string{"plugins", "gate"} {
		c.check(os.Mkdir(filepath.Join(o.dir, d), 0o755))
	}
	c.check(os.WriteFile(filepath.Join(o.dir, "plugins", c.job+".wasm"), guest, 0o644))
	o.define(definition)
	o.release()
	o.args = append([]string{
		"--registry", "zookeeper", "--zk", c.tap(name), "--namespace", c.namespace, "--session-timeout", sessionTimeout.String(),
		"--dead-man", "off", // they are halted, and go on
		"--server-ip", o.ip, "--plugins", filepath.Join(o.dir, "plugins"), "--mount", c.job + "=" + filepath.Join(o.dir, "gate") + ":/gate",
		"--admin", filepath.Join(o.dir, "admin"), "--max-concurrency", "64",
	}, args...)
	o.Wasmjob, err = peer.StartWasmjob(peer.WasmjobOptions{Name: name, Program: shared.program, Dir: o.dir, Args: o.args, Log: c.log})
	c.check(err)
	c.ours = append(c.ours, o)
	t.Cleanup(func() {
		o.Kill()
		if t.Failed() {
			t.Logf("%s (%s):\n%s", name, o.ip, o.Stderr())
		}
	})
	c.until(name+" to join", func(v *view) bool { return o.idIn(v) != "" })
	return o
}

// idIn is the host's instance id, if it has one.
func (o *ours) idIn(v *view) string {
	for _, id := range v.children("instances") {
		if strings.HasPrefix(id, o.ip+"@-@") {
			return id
		}
	}
	return ""
}

// define changes the definition file.
func (o *ours) define(text string) {
	o.c.t.Helper()
	file := filepath.Join(o.dir, "plugins", o.c.job+".yaml")
	o.c.check(os.WriteFile(file+".tmp", []byte(text), 0o644))
	o.c.check(os.Rename(file+".tmp", file))
}

// hold keeps items from ending, until release.
func (o *ours) hold() {
	o.c.t.Helper()
	if err := os.Remove(filepath.Join(o.dir, "gate", "go")); err != nil && !errors.Is(err, os.ErrNotExist) {
		o.c.t.Fatal(err)
	}
}

func (o *ours) release() {
	o.c.t.Helper()
	o.c.check(os.WriteFile(filepath.Join(o.dir, "gate", "go"), nil, 0o644))
}

// stop drains the host.
func (o *ours) stop() {
	o.c.t.Helper()
	o.c.check(o.Signal(syscall.SIGTERM))
	ctx, cancel := o.c.within()
	defer cancel()
	code, err := o.Wait(ctx)
	o.c.check(err)
	if code != 0 {
		o.c.t.Errorf("%s: exit code %d after SIGTERM, want 0\n%s", o.Name(), code, o.Stderr())
	}
}

// await waits for an event of the job.
func (o *ours) await(what string, mark int, ok func(event.Event) bool) event.Event {
	o.c.t.Helper()
	ctx, cancel := o.c.within()
	defer cancel()
	e, err := o.Await(ctx, what, mark, func(e event.Event) bool { return e.Job == o.c.job && ok(e) })
	o.c.check(err)
	return e
}

// java is an ElasticJob host.
type java struct {
	*peer.Java
	c  *cluster
	ip string
}

// quick makes a JVM start fast; it is not measured here.
func quick() []string {
	return []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"}
}

func (c *cluster) startPeer(name, ip string) *peer.Java {
	c.t.Helper()
	ctx, cancel := c.within()
	defer cancel()
	j, err := peer.StartJava(ctx, peer.JavaOptions{
		Name: name, Dir: "java", Version: *version, Connect: c.tap(name), Namespace: c.namespace, IP: ip,
		SessionTimeout: sessionTimeout, JavaArgs: quick(), Log: c.log,
	})
	c.check(err)
	c.t.Cleanup(func() {
		j.Kill()
		if c.t.Failed() && j.Stderr() != "" {
			c.t.Logf("%s:\n%s", name, j.Stderr())
		}
	})
	return j
}

// startJava starts an ElasticJob host with the job.
func (c *cluster) startJava(total int) *java {
	c.t.Helper()
	j := &java{c: c, ip: c.address()}
	j.Java = c.startPeer(fmt.Sprintf("java%d", len(c.java)+1), j.ip)
	c.java = append(c.java, j)
	j.host(total)
	return j
}

// host has the process host the job.
func (j *java) host(total int) {
	j.c.t.Helper()
	j.ask(peer.Request{"do": "start", "job": j.c.job, "cron": never, "total": total, "failover": true, "monitorExecution": true, "parameter": "hold:go"})
}

func (j *java) ask(r peer.Request) {
	j.c.t.Helper()
	ctx, cancel := j.c.within()
	defer cancel()
	j.c.check(j.Call(ctx, r, nil))
}

func (j *java) hold()    { j.c.t.Helper(); j.ask(peer.Request{"do": "hold", "job": j.c.job}) }
func (j *java) release() { j.c.t.Helper(); j.ask(peer.Request{"do": "release", "job": j.c.job}) }

// stop has ElasticJob end the job in good order; the process goes on.
func (j *java) stop() { j.c.t.Helper(); j.ask(peer.Request{"do": "stop", "job": j.c.job}) }

// console makes a request to a console, for the cluster's job unless the
// request names another, or "" for none.
func (c *cluster) console(do string, more peer.Request, result any) {
	c.t.Helper()
	c.check(c.tryConsole(do, more, result))
}

func (c *cluster) tryConsole(do string, more peer.Request, result any) error {
	c.t.Helper()
	if c.operator == nil {
		c.operator = c.startPeer("console", "")
	}
	r := peer.Request{"do": do, "job": c.job}
	maps.Copy(r, more)
	if r["job"] == "" {
		delete(r, "job")
	}
	ctx, cancel := c.within()
	defer cancel()
	return c.operator.Call(ctx, r, result)
}

// view is a look at the job's nodes that sees when they change. Paths are below
// the job.
type view struct {
	c       *cluster
	changes chan struct{}
	ctx     context.Context
}

func (v *view) path(name string) string { return path.Join("/", v.c.namespace, v.c.job, name) }

func (v *view) forward(watch <-chan zk.Event) {
	go func() { // ends with the look
		select {
		case <-watch:
			select {
			case v.changes <- struct{}{}:
			default:
			}
		case <-v.ctx.Done():
		}
	}()
}

// get is a node's data.
func (v *view) get(name string) (data string, exists bool) {
	for {
		b, _, watch, err := v.c.zk.GetW(v.path(name))
		if err == nil {
			v.forward(watch)
			return string(b), true
		}
		if !errors.Is(err, zk.ErrNoNode) {
			v.c.t.Fatal(err)
		}
		exists, _, watch, err := v.c.zk.ExistsW(v.path(name))
		v.c.check(err)
		if !exists {
			v.forward(watch)
			return "", false
		}
	}
}

func (v *view) has(name string) bool {
	_, exists := v.get(name)
	return exists
}

// children are the names below a node, sorted; none if there is no node.
func (v *view) children(name string) []string {
	for {
		list, _, watch, err := v.c.zk.ChildrenW(v.path(name))
		if err == nil {
			v.forward(watch)
			slices.Sort(list)
			return list
		}
		if !errors.Is(err, zk.ErrNoNode) {
			v.c.t.Fatal(err)
		}
		if !v.has(name) {
			return nil
		}
	}
}

// owners are the ids that the items are assigned to; "" for none.
func (v *view) owners(total int) []string {
	list := make([]string, total)
	for i := range list {
		list[i], _ = v.get(fmt.Sprintf("sharding/%d/instance", i))
	}
	return list
}

// idle: nobody runs an item, and no trigger waits for a server that is enabled.
func (v *view) idle(total int) bool {
	for _, id := range v.children("trigger") {
		ip, _, _ := strings.Cut(id, "@-@")
		if state, _ := v.get("servers/" + ip); state == "ENABLED" {
			return false
		}
	}
	for i := range total {
		for _, mark := range []string{"running", "failover", "failovering"} {
			if v.has(fmt.Sprintf("sharding/%d/%s", i, mark)) {
				return false
			}
		}
	}
	return true
}

// until waits until the nodes are as wanted.
func (c *cluster) until(what string, ok func(v *view) bool) {
	c.t.Helper()
	ctx, cancel := c.within()
	defer cancel()
	v := &view{c, make(chan struct{}, 1), ctx}
	for !ok(v) {
		select {
		case <-v.changes:
		case <-ctx.Done():
			c.t.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

// now looks once.
func (c *cluster) now(look func(v *view)) {
	ctx, cancel := c.within()
	defer cancel()
	look(&view{c, make(chan struct{}, 1), ctx})
}

// tap is where a host with this name finds the registry.
func (c *cluster) tap(name string) string {
	c.t.Helper()
	p, err := c.taps.Open(name, shared.connect)
	c.check(err)
	return p.Addr()
}

// writes is who changed what in the registry, for a failed test.
func (c *cluster) writes() string {
	const most = 300
	list := c.taps.Ops(0, func(o *tap.Op) bool { return o.Code.Writes() })
	var b strings.Builder
	if len(list) > most {
		fmt.Fprintf(&b, "  … %d before\n", len(list)-most)
		list = list[len(list)-most:]
	}
	short := strings.NewReplacer("/"+c.namespace+".wasmjob/"+c.job, "~", "/"+c.namespace+"/"+c.job, "")
	for _, o := range list {
		what := o.Code.String() + " " + o.Path
		if len(o.Details) > 0 {
			what = "multi: " + strings.Join(o.Details, ", ")
		}
		fmt.Fprintf(&b, "  %s %s %s", o.Sent.Format("15:04:05.000"), o.Client, short.Replace(what))
		if o.Err != 0 {
			fmt.Fprintf(&b, " (error %d)", o.Err)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// dump is both trees of the job, for a failed test.
func (c *cluster) dump() string {
	var b strings.Builder
	var walk func(p string)
	walk = func(p string) {
		data, stat, err := c.zk.Get(p)
		if err != nil {
			return
		}
		fmt.Fprintf(&b, "  %s v%d owner %x: %q\n", p, stat.Version, stat.EphemeralOwner, data)
		list, _, _ := c.zk.Children(p)
		slices.Sort(list)
		for _, name := range list {
			walk(path.Join(p, name))
		}
	}
	walk(path.Join("/", c.namespace, c.job))
	walk(path.Join("/", c.namespace+".wasmjob", c.job))
	return b.String()
}

// expected is who owns each item by ElasticJob's rule, among the instances that
// there are, without servers that are disabled.
func (c *cluster) expected(v *view, total int) []string {
	average, _, err := strategy.ByName(strategy.AvgAllocation)
	c.check(err)
	var instances []string
	for _, id := range v.children("instances") {
		ip, _, _ := strings.Cut(id, "@-@")
		if state, _ := v.get("servers/" + ip); state == "ENABLED" {
			instances = append(instances, id)
		}
	}
	if len(instances) == 0 {
		return make([]string, total)
	}
	return average(c.job, strategy.Sorted(instances), total, time.Time{})
}

// divided waits until the items are owned as ElasticJob would have it, by so
// many instances. A Java leader divides with its next fire only.
func (c *cluster) divided(total, instances int) {
	c.t.Helper()
	c.until(fmt.Sprintf("%d items to be divided among %d instances", total, instances), func(v *view) bool {
		return len(v.children("instances")) == instances && slices.Equal(v.owners(total), c.expected(v, total)) &&
			!v.has("leader/sharding/necessary") && !v.has("leader/sharding/processing")
	})
}

// leads waits for a leader, and reports whether it is at the address.
func (c *cluster) leads(ip string) bool {
	c.t.Helper()
	var leader string
	c.until("a leader", func(v *view) bool {
		leader, _ = v.get("leader/election/instance")
		return leader != ""
	})
	return strings.HasPrefix(leader, ip+"@-@")
}

// settled waits until the members that there are divide the items, if one of
// ours leads. A Java leader divides with its next fire.
func (c *cluster) settled(total, instances int) {
	c.t.Helper()
	c.until(fmt.Sprintf("%d instances", instances), func(v *view) bool { return len(v.children("instances")) == instances })
	for _, j := range c.java {
		if c.leads(j.ip) {
			return
		}
	}
	c.divided(total, instances)
}

// begun waits until each of the items has begun to run, since the mark.
func (c *cluster) begun(mark int, items ...int) {
	c.t.Helper()
	c.runs("every item to begin", mark, func(list []peer.Run) bool {
		return !slices.ContainsFunc(items, func(i int) bool {
			return !slices.ContainsFunc(list, func(r peer.Run) bool { return r.Item == i })
		})
	})
}

// ended waits until each of the items has run to its end, since the mark.
func (c *cluster) ended(mark int, items ...int) {
	c.t.Helper()
	c.runs("every item to end", mark, func(list []peer.Run) bool {
		return !slices.ContainsFunc(items, func(i int) bool {
			return !slices.ContainsFunc(list, func(r peer.Run) bool { return r.Item == i && !r.End.IsZero() && !r.Cut })
		})
	})
}

func (c *cluster) runs(what string, mark int, ok func([]peer.Run) bool) {
	c.t.Helper()
	ctx, cancel := c.within()
	defer cancel()
	c.check(c.log.Await(ctx, what, c.job, mark, ok))
}

// items are 0 to total-1.
func items(total int) []int {
	list := make([]int, total)
	for i := range list {
		list[i] = i
	}
	return list
}

// round triggers the job and waits until each of the items has run, and all is
// quiet again: then each ran once, and on the host that it is assigned to.
func (c *cluster) round(total int, which ...int) {
	c.t.Helper()
	if which == nil {
		which = items(total)
	}
	mark := c.log.Mark()
	c.console("trigger", nil, nil)
	c.ended(mark, which...)
	c.until("quiet after a round", func(v *view) bool { return v.idle(total) })
	c.once(mark, total, which...)
}

// once demands that since the mark each of the items ran once and no other ran,
// each on its owner.
func (c *cluster) once(mark, total int, which ...int) {
	c.t.Helper()
	list := c.log.Runs(c.job, mark)
	for i := range total {
		var runs []peer.Run
		for _, r := range list {
			if r.Item == i {
				runs = append(runs, r)
			}
		}
		want := 0
		if slices.Contains(which, i) {
			want = 1
		}
		if len(runs) != want {
			c.t.Errorf("item %d ran %d times, want %d:\n%s", i, len(runs), want, peer.Text(list))
			return
		}
	}
	c.now(func(v *view) {
		owners := v.owners(total)
		for _, r := range list {
			if r.Item < total && owners[r.Item] != c.id(v, r.Host) {
				c.t.Errorf("%s, but the item's owner is %s", r, owners[r.Item])
			}
		}
	})
}

// id is the instance id of the host with a name.
func (c *cluster) id(v *view, name string) string {
	for _, o := range c.ours {
		if o.Name() == name {
			return o.idIn(v)
		}
	}
	for _, j := range c.java {
		if j.Name() == name {
			return j.ID()
		}
	}
	c.t.Fatalf("no host %s", name)
	return ""
}

// apart demands that no two runs of an item overlap.
func (c *cluster) apart() {
	c.t.Helper()
	for _, pair := range peer.Overlaps(c.log.Runs(c.job, 0)) {
		c.t.Errorf("at the same time:\n%s", peer.Text(pair[:]))
	}
}
