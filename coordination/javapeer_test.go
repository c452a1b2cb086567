package coordination_test

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// javaPeer is a host of ElasticJob 3.0.5, as far as the registry sees it: the
// same requests in the same order, one at a time. It has two threads, one that
// handles events and one that fires, each of which stops before every request;
// whoever drives it decides which goes on. What ElasticJob polls for it waits
// for.
type javaPeer struct {
	// fails has its runs fail, and leave their marks as a version after 3.0.5 does.
	fails bool
	*cluster
	name, ip, id string
	rc           registry.Center
	up           bool // started, and its session lives

	cache   map[string]string // the job's tree, as of the last pump
	backlog []javaEvent
	total   int // remembered sharding total count
	events  *javaThread
	fires   *javaThread
	now     *javaThread // the thread that makes the request
	again   bool        // fire once more: a trigger, a takeover
	only    bool        // the fire was for a takeover

	executing tree.Items // what it runs
	ran       map[int]int
	finish    bool
	// deciding is set between the look for the flag, or the end of a run, and the running
	// marks; marking while it handles the death of another instance. In both it acts
	// upon what may have changed: ElasticJob's own races.
	deciding, marking bool
	crowded           []string // running marks of others that it has overwritten
}

type javaEvent struct {
	kind, path, data string
}

// javaThread is a function that stops before every request.
type javaThread struct {
	next    func() (bool, bool)
	stop    func()
	yield   func(bool) bool
	waiting bool
}

var errJavaStopped = errors.New("stopped")

func (p *javaPeer) run(f func()) *javaThread {
	t := &javaThread{}
	t.next, t.stop = iter.Pull(func(yield func(bool) bool) {
		defer func() {
			if r := recover(); r != nil && r != any(errJavaStopped) {
				panic(r)
			}
		}()
		t.yield = yield
		f()
	})
	return t
}

// pause stops before a request, or while something is waited for.
func (p *javaPeer) pause(waiting bool) {
	if !p.now.yield(waiting) {
		panic(errJavaStopped)
	}
}

// await waits until something is so; the looking is not paused.
func (p *javaPeer) await(so func() bool) {
	for !so() {
		p.pause(true)
	}
}

// turn lets a thread make one request. It reports whether it got on.
func (p *javaPeer) turn(t **javaThread) bool {
	p.now = *t
	waiting, more := (*t).next()
	if !more {
		*t = nil
		return true
	}
	progress := !waiting
	(*t).waiting = waiting
	return progress
}

// advance lets the peer do one thing, if there is something to do.
func (p *javaPeer) advance(pick func(int) int) bool {
	if !p.up {
		return false
	}
	p.pump()
	if p.events == nil && len(p.backlog) > 0 {
		e := p.backlog[0]
		p.backlog = p.backlog[1:]
		p.events = p.run(func() { p.handle(e) })
	}
	if p.fires == nil && p.again {
		only := p.only
		p.again, p.only = false, false
		p.fires = p.run(func() { p.fire(only) })
	}
	var threads []**javaThread
	for _, t := range []**javaThread{&p.events, &p.fires} {
		if *t != nil {
			threads = append(threads, t)
		}
	}
	if len(threads) == 0 {
		return false
	}
	k := pick(len(threads))
	for n := range threads {
		if p.turn(threads[(k+n)%len(threads)]) {
			return true
		}
	}
	return false
}

// rest lets the peer get on until it waits or has nothing to do.
func (p *javaPeer) rest() (moved bool) {
	for n := 0; p.advance(func(int) int { return 0 }); n++ {
		moved = true
		if n > 10_000 {
			p.t.Fatalf("%s does not come to rest", p.name)
		}
	}
	return moved
}

// lag lets the peer make the requests for which it has JavaLag: until its running marks are made, or
// it makes none.
func (p *javaPeer) lag() {
	for n := 0; p.up && p.deciding && p.fires != nil && n < 1000; n++ {
		p.turn(&p.fires)
	}
}

// Requests. Conflicts and nodes that are not there are swallowed.

func (p *javaPeer) j(path string) string { return p.layout.Root() + "/" + path }

func (p *javaPeer) commit(ops ...registry.Op) error {
	p.pause(false)
	_, err := p.rc.Commit(p.ctx, ops...)
	if err != nil && !errors.Is(err, registry.ErrConflict) {
		panic(errJavaStopped)
	}
	return err
}

func (p *javaPeer) query(q registry.Query) registry.Node {
	p.pause(false)
	n, err := p.rc.Read(p.ctx, q)
	if err != nil {
		panic(errJavaStopped)
	}
	return n[0]
}

func (p *javaPeer) exists(path string) bool { return p.query(registry.Data(p.j(path))).Exists }
func (p *javaPeer) get(path string) string  { return string(p.query(registry.Data(p.j(path))).Data) }
func (p *javaPeer) list(path string) []string {
	names := slices.Clone(p.query(registry.Children(p.j(path))).Names)
	slices.Sort(names)
	slices.Reverse(names)
	return names
}

func (p *javaPeer) parents(path string) {
	p.commit(registry.Ensure(p.j(path[:strings.LastIndex(path, "/")])))
}

func (p *javaPeer) persist(path, data string) {
	if p.exists(path) {
		p.commit(registry.Check(p.j(path), registry.AnyVersion), registry.Set(p.j(path), []byte(data), registry.AnyVersion))
		return
	}
	if p.commit(registry.Create(p.j(path), []byte(data))) != nil {
		p.parents(path)
		p.commit(registry.Create(p.j(path), []byte(data)))
	}
}

func (p *javaPeer) ephemeral(path, data string) {
	if p.exists(path) {
		p.commit(registry.Delete(p.j(path), registry.AnyVersion))
	}
	if p.commit(registry.CreateEphemeral(p.j(path), []byte(data))) != nil {
		p.parents(path)
		p.commit(registry.CreateEphemeral(p.j(path), []byte(data)))
	}
}

func (p *javaPeer) removeIf(path string) {
	if p.exists(path) {
		p.commit(registry.Delete(p.j(path), registry.AnyVersion))
	}
}

func (p *javaPeer) createIf(path string) {
	if p.query(registry.Data(p.layout.Root())).Exists && !p.exists(path) {
		if p.commit(registry.Create(p.j(path), nil)) != nil {
			p.parents(path)
			p.commit(registry.Create(p.j(path), nil))
		}
	}
}

// latch is Curator's LeaderLatch, used as a lock.
func (p *javaPeer) latch(path string, locked func()) {
	prefix := p.j(path) + "/_c_01234567-89ab-cdef-0123-456789abcdef-latch-"
	var own string
	for own == "" {
		p.commit(registry.Ensure(p.j(path)))
		p.pause(false)
		r, err := p.rc.Commit(p.ctx, registry.CreateSequential(prefix, nil))
		switch {
		case err == nil:
			own = r[0].Path[strings.LastIndex(r[0].Path, "/")+1:]
		case !errors.Is(err, registry.ErrConflict):
			panic(errJavaStopped)
		}
	}
	number := func(name string) string { return name[strings.LastIndex(name, "latch-"):] }
	for {
		names := p.list(path)
		slices.SortFunc(names, func(a, b string) int { return strings.Compare(number(a), number(b)) })
		k := slices.Index(names, own)
		if k <= 0 {
			break
		}
		p.await(func() bool { return !p.node(p.j(path + "/" + names[k-1])).Exists })
	}
	locked()
	p.commit(registry.Delete(p.j(path+"/"+own), registry.AnyVersion))
}

func (p *javaPeer) elect() {
	p.latch("leader/election/latch", func() {
		if !p.exists("leader/election/instance") {
			p.ephemeral("leader/election/instance", p.id)
		}
	})
}

func (p *javaPeer) leads() bool { return p.get("leader/election/instance") == p.id }

// config is read from the cache in ElasticJob; only total count and switches
// matter.
func (p *javaPeer) config() jobconfig.Configuration {
	c, _, err := jobconfig.Parse(p.node(p.j("config")).Data)
	if err != nil {
		panic(errJavaStopped)
	}
	return c
}

// start is ElasticJob's start-up, in its order. Nothing else happens meanwhile
// in this process; others may act between the requests, if pick is driven.
func (p *javaPeer) start() {
	if p.rc != nil {
		_ = p.rc.Close()
	}
	p.rc = p.server.Connect(p.t)
	p.up, p.cache, p.backlog, p.executing, p.finish = true, nil, nil, nil, false
	p.ran = make(map[int]int)
	p.again, p.only, p.deciding, p.marking, p.fires = false, false, false, false, nil
	p.total = p.config().ShardingTotalCount
	p.pump()
	p.backlog = nil
	p.events = p.run(func() {
		p.elect()
		p.persist("servers/"+p.ip, "ENABLED")
		p.ephemeral("instances/"+p.id, fmt.Sprintf("jobInstanceId: %s\nserverIp: %s\n", p.id, p.ip))
	})
}

// crash ends the session.
func (p *javaPeer) crash() {
	p.up = false
	p.executing = nil
	p.end(&p.events)
	p.end(&p.fires)
	p.server.Expire(p.t, p.rc)
	_ = p.rc.Close()
}

func (p *javaPeer) end(t **javaThread) {
	if *t != nil {
		p.now = *t
		(*t).stop()
		*t = nil
	}
}

// shutdown is ElasticJob's own: nothing runs any more.
func (p *javaPeer) shutdown() {
	p.end(&p.events)
	p.end(&p.fires)
	p.events = p.run(func() {
		if p.leads() {
			p.commit(registry.Delete(p.j("leader/election/instance"), registry.AnyVersion))
		}
		p.commit(registry.Delete(p.j("instances/"+p.id), registry.AnyVersion))
	})
	p.rest()
	p.up = false
	_ = p.rc.Close()
}

// pump brings the cache up to date and queues the events.
func (p *javaPeer) pump() {
	fresh := make(map[string]string)
	var walk func(path string)
	walk = func(path string) {
		n := p.node(path)
		if !n.Exists {
			return
		}
		fresh[strings.TrimPrefix(path, p.layout.Root())] = string(n.Data)
		for _, name := range p.children(path) {
			walk(path + "/" + name)
		}
	}
	walk(p.layout.Root())
	for _, path := range slices.Sorted(maps.Keys(p.cache)) {
		if now, there := fresh[path]; !there {
			p.backlog = append(p.backlog, javaEvent{"DELETED", path, p.cache[path]})
		} else if now != p.cache[path] {
			p.backlog = append(p.backlog, javaEvent{"UPDATED", path, now})
		}
	}
	for _, path := range slices.Sorted(maps.Keys(fresh)) {
		if _, known := p.cache[path]; !known {
			p.backlog = append(p.backlog, javaEvent{"ADDED", path, fresh[path]})
		}
	}
	if p.cache == nil {
		p.backlog = nil
	}
	p.cache = fresh
	// An election asks for nothing that a mark of an item could change.
	p.backlog = slices.DeleteFunc(p.backlog, func(e javaEvent) bool {
		return strings.HasPrefix(e.path, "/sharding/") || strings.Contains(e.path, "/latch") || strings.HasPrefix(e.path, "/leader/failover") || strings.HasPrefix(e.path, "/leader/sharding")
	})
}

// handle are ElasticJob's listeners.
func (p *javaPeer) handle(e javaEvent) {
	server := "/servers/" + p.ip
	own := "/instances/" + p.id
	available := p.node(p.j("servers/"+p.ip)).Exists && p.enabledIP(p.ip)
	if e.path == "/leader/election/instance" && e.kind == "DELETED" && available && p.joined() ||
		e.path == server && e.data != "DISABLED" && e.kind != "DELETED" && !p.exists("leader/election/instance") {
		p.elect()
	}
	if e.path == server && e.data == "DISABLED" && p.leads() {
		p.commit(registry.Delete(p.j("leader/election/instance"), registry.AnyVersion))
	}
	if e.path == "/config" && e.kind != "DELETED" {
		if total := p.config().ShardingTotalCount; total != p.total {
			p.total = total
			p.flag()
		}
	}
	if strings.HasPrefix(e.path, "/instances/") && e.kind != "UPDATED" || strings.HasPrefix(e.path, "/servers/") {
		p.flag()
	}
	failover := p.config().Failover
	if dead, ok := strings.CutPrefix(e.path, "/instances/"); ok && e.kind == "DELETED" && failover && dead != p.id {
		p.marking = true
		p.detect(dead)
		p.marking = false
		p.takeover()
	}
	if e.path == own && e.kind == "ADDED" && failover && len(p.children(p.j("instances"))) == 1 {
		p.recoverAlone()
		p.takeover()
	}
	if e.path == own && e.kind == "DELETED" && !p.exists("instances/"+p.id) {
		if p.leads() {
			p.commit(registry.Delete(p.j("leader/election/instance"), registry.AnyVersion))
		}
		p.up = false // its job is gone until the process is started again
	}
	if e.path == "/trigger/"+p.id && e.kind == "ADDED" {
		p.removeIf("trigger/" + p.id)
		if p.fires == nil {
			p.again = true
		}
	}
}

func (p *javaPeer) joined() bool { return p.node(p.j("instances/" + p.id)).Exists }

func (p *javaPeer) enabledIP(ip string) bool {
	return string(p.node(p.j("servers/"+ip)).Data) == "ENABLED"
}

// flag asks for a division, if this is the leader.
func (p *javaPeer) flag() {
	if p.leads() {
		p.createIf("leader/sharding/necessary")
	}
}

func item(i int, mark string) string { return fmt.Sprintf("sharding/%d/%s", i, mark) }

// detect marks what an instance that is gone was running.
func (p *javaPeer) detect(dead string) {
	var again []int
	for i := range p.config().ShardingTotalCount {
		if p.get(item(i, "failovering")) == dead {
			again = append(again, i)
		}
	}
	for _, i := range again {
		p.createIf(fmt.Sprintf("leader/failover/items/%d", i))
		p.removeIf(item(i, "running"))
	}
	if len(again) > 0 {
		return
	}
	for i := range p.config().ShardingTotalCount {
		if p.exists(item(i, "running")) && p.cache["/"+item(i, "instance")] == dead && !p.exists(item(i, "failover")) {
			p.createIf(fmt.Sprintf("leader/failover/items/%d", i))
			p.removeIf(item(i, "running"))
		}
	}
}

func (p *javaPeer) recoverAlone() {
	gone := func(id string) bool { return id != "" && !p.node(p.j("instances/"+id)).Exists }
	for i := range p.config().ShardingTotalCount {
		if gone(p.get(item(i, "failovering"))) {
			p.createIf(fmt.Sprintf("leader/failover/items/%d", i))
			p.removeIf(item(i, "failovering"))
			p.removeIf(item(i, "running"))
		}
		if gone(p.get(item(i, "running"))) {
			if !p.exists(item(i, "failover")) {
				p.createIf(fmt.Sprintf("leader/failover/items/%d", i))
			}
			p.removeIf(item(i, "running"))
		}
	}
}

// takeover takes one item and fires.
func (p *javaPeer) takeover() {
	ready := func() bool { return len(p.list("leader/failover/items")) > 0 && len(p.executing) == 0 }
	if !ready() {
		return
	}
	p.latch("leader/failover/latch", func() {
		if !ready() {
			return
		}
		names := p.list("leader/failover/items")
		if len(names) == 0 {
			return
		}
		i, err := strconv.Atoi(names[0])
		if err != nil {
			panic(errJavaStopped)
		}
		p.ephemeral(item(i, "failover"), p.id)
		p.persist(item(i, "failovering"), p.id)
		p.removeIf("leader/failover/items/" + names[0])
		p.again, p.only = true, true
	})
}

func (p *javaPeer) available() []string {
	var ids []string
	for _, id := range p.list("instances") {
		ip, _, _ := strings.Cut(id, "@-@")
		if p.enabledIP(ip) {
			ids = append(ids, id)
		}
	}
	return ids
}

// shard divides the items, or waits until that is done.
func (p *javaPeer) shard() {
	ids := p.available()
	if !p.exists("leader/sharding/necessary") || len(ids) == 0 {
		return
	}
	p.deciding = false
	for !p.leads() {
		if !p.exists("leader/sharding/necessary") && !p.exists("leader/sharding/processing") {
			return
		}
		p.await(func() bool {
			leader := p.node(p.j("leader/election/instance"))
			return !leader.Exists || string(leader.Data) == p.id ||
				!p.node(p.j("leader/sharding/necessary")).Exists && !p.node(p.j("leader/sharding/processing")).Exists
		})
		if !p.node(p.j("leader/election/instance")).Exists {
			p.elect()
		}
	}
	// Between Java hosts too an item can run twice if one looks for the flag
	// before it is raised, and makes its marks after they were looked for.
	p.await(func() bool {
		return !slices.ContainsFunc(p.javas, func(o *javaPeer) bool { return o != p && o.up && o.deciding })
	})
	if p.config().MonitorExecution {
		total := p.config().ShardingTotalCount
		for i := 0; i < total; {
			if p.exists(item(i, "running")) {
				p.await(func() bool { return !p.node(p.j(item(i, "running"))).Exists })
				i = 0
				continue
			}
			i++
		}
	}
	total := p.config().ShardingTotalCount
	p.ephemeral("leader/sharding/processing", "")
	for i := range total {
		p.removeIf(item(i, "instance"))
		p.createIf(fmt.Sprintf("sharding/%d", i))
	}
	names := p.list("sharding")
	for i := total; i < len(names); i++ {
		for _, mark := range p.children(p.j(fmt.Sprintf("sharding/%d", i))) {
			p.commit(registry.Delete(p.j(item(i, mark)), registry.AnyVersion))
		}
		p.removeIf(fmt.Sprintf("sharding/%d", i))
	}
	var ops []registry.Op
	q := total / len(ids)
	for k, id := range ids {
		for i := range q {
			ops = append(ops, registry.Create(p.j(item(q*k+i, "instance")), []byte(id)))
		}
		if k < total%len(ids) {
			ops = append(ops, registry.Create(p.j(item(q*len(ids)+k, "instance")), []byte(id)))
		}
	}
	ops = append(ops, registry.Delete(p.j("leader/sharding/necessary"), registry.AnyVersion), registry.Delete(p.j("leader/sharding/processing"), registry.AnyVersion))
	if p.commit(ops...) == nil {
		p.say("%s: divides the items over %d", p.name, len(ids))
	}
}

// fire is what the job thread does at an instant. A fire for a takeover runs
// the items that were taken, if there are some.
func (p *javaPeer) fire(bool) {
	cfg := p.config()
	failover := cfg.Failover && cfg.MonitorExecution
	defer func() { p.deciding = false }()
	p.deciding = true
	var chosen tree.Items
	if failover {
		names := p.list("sharding")
		for _, name := range names {
			i, err := strconv.Atoi(name)
			if err == nil && p.exists(item(i, "failover")) && p.get(item(i, "failover")) == p.id {
				chosen = append(chosen, i)
			}
		}
		slices.Sort(chosen)
	}
	if len(chosen) == 0 {
		p.shard()
		p.deciding = true
		if !p.enabledIP(p.ip) || !p.joined() {
			return
		}
		for i := range cfg.ShardingTotalCount {
			if string(p.node(p.j(item(i, "instance"))).Data) == p.id { // the cache, taken to be fresh
				chosen = append(chosen, i)
			}
		}
		if failover {
			chosen = slices.DeleteFunc(chosen, func(i int) bool { return p.exists(item(i, "failover")) })
		}
	}
	chosen = slices.DeleteFunc(chosen, func(i int) bool { return p.exists(item(i, "disabled")) })
	if cfg.MonitorExecution {
		chosen = slices.DeleteFunc(chosen, func(i int) bool { return p.exists(item(i, "running")) })
		if slices.ContainsFunc(chosen, func(i int) bool { return p.exists(item(i, "running")) }) {
			for _, i := range chosen {
				p.createIf(item(i, "misfire"))
			}
			return
		}
	}
	p.execute(cfg, chosen)
	for cfg.Misfire && !p.exists("leader/sharding/necessary") && slices.ContainsFunc(chosen, func(i int) bool { return p.exists(item(i, "misfire")) }) {
		for _, i := range chosen {
			p.removeIf(item(i, "misfire"))
		}
		p.execute(cfg, chosen)
	}
	p.deciding = false
	if failover {
		p.takeover()
	}
}

// execute runs items until the test ends them.
func (p *javaPeer) execute(cfg jobconfig.Configuration, items tree.Items) {
	if len(items) == 0 {
		return
	}
	if cfg.MonitorExecution {
		for _, i := range items {
			if n := p.node(p.j(item(i, "running"))); n.Exists && string(n.Data) != p.id {
				p.crowded = append(p.crowded, fmt.Sprintf("%d of %s", i, n.Data))
			}
			if cfg.Failover {
				p.persist(item(i, "running"), p.id)
			} else {
				p.ephemeral(item(i, "running"), p.id)
			}
		}
	}
	p.deciding = false
	p.say("%s: runs %s", p.name, items)
	p.executing, p.finish = items, false
	p.await(func() bool { return p.finish })
	p.executing, p.finish = nil, false
	p.deciding = true // whether it runs them again
	for _, i := range items {
		p.ran[i]++
	}
	p.say("%s: has run %s", p.name, items)
	if cfg.MonitorExecution && !p.fails {
		for _, i := range items {
			p.removeIf(item(i, "running"))
		}
	}
	if cfg.Failover && !p.fails {
		for _, i := range items {
			p.removeIf(item(i, "failover"))
			p.removeIf(item(i, "failovering"))
		}
	}
}

// due is an instant of the schedule. One that comes while it fires is a misfire,
// which ElasticJob notices when the fire is over.
func (p *javaPeer) due() {
	if p.up && p.fires == nil {
		p.fires = p.run(func() { p.fire(false) })
	}
}
