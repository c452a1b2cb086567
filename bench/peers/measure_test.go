//go:build peers

package peers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/test/interop/peer"
	"github.com/wasmjob/wasmjob/test/tap"
)

// allReady waits for all hosts.
func (w *world) allReady() {
	w.t.Helper()
	for _, h := range w.hosts {
		w.check(h.ready(w.ctx))
	}
}

// about reports whether a request is about the job.
func (w *world) about(o *tap.Op, name string) bool {
	for _, root := range []string{"/" + w.namespace, "/" + w.namespace + ".wasmjob"} {
		if rest, ok := strings.CutPrefix(o.Path, root+"/"+name); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// fire is what a fire cost.
type fire struct {
	requests int
	took     time.Duration
}

// fires are the fires of a job in windows of time.
func (w *world) fires(name string, windows [][2]time.Time) (list []fire) {
	for _, window := range windows {
		ops := w.taps.Ops(0, func(o *tap.Op) bool {
			return !o.Sent.Before(window[0]) && o.Sent.Before(window[1]) && w.about(o, name)
		})
		if len(ops) == 0 {
			continue
		}
		first, last := ops[0].Sent, ops[0].Answered
		for _, o := range ops {
			if o.Sent.Before(first) {
				first = o.Sent
			}
			if o.Answered.After(last) {
				last = o.Answered
			}
		}
		list = append(list, fire{len(ops), last.Sub(first)})
	}
	return list
}

// slots are the seconds of a cycle at which jobs fire: first ours, then
// theirs, with time in between so that no two disturb each other.
type slots struct {
	cycle int // seconds; divides 60
	at    map[string]int
}

func plan(sizes []int, hosts int) slots {
	s := slots{at: make(map[string]int)}
	next := 0
	add := func(kind string, size, length int) {
		s.at[kind+strconv.Itoa(size)] = next
		next += length
	}
	for _, size := range sizes {
		add(own, size, 1)
	}
	for _, size := range sizes {
		// 13 requests for each item, each of them an event to every host.
		add(theirs, size, 1+size*(4+3*hosts)/1000)
	}
	for _, s.cycle = range []int{10, 12, 15, 20, 30, 60} {
		if s.cycle >= next {
			break
		}
	}
	return s
}

// cron is the expression of a slot.
func (s slots) cron(key string) string { return fmt.Sprintf("%d/%d * * * * ?", s.at[key], s.cycle) }

// TestFires: what a fire costs and how long it takes, both kinds in turn.
func TestFires(t *testing.T) {
	list := numbers(t, *sizes)
	say("\n### A fire\n\nFrom the first to the last registry request of a fire, failover and monitorExecution on; median. Requests are those of\nall hosts, with what the fire makes their caches read.\n\n")
	say("| Items | Hosts | %s: requests | time | %s: requests | time | requests ÷ | time ÷ |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n", theirs, own)
	for _, hosts := range numbers(t, *hosts) {
		s := plan(list, hosts)
		worlds := []*world{newWorld(t, theirs, fmt.Sprintf("fires-theirs-%d", hosts)), newWorld(t, own, fmt.Sprintf("fires-own-%d", hosts))}
		for _, w := range worlds {
			var all []job
			for _, size := range list {
				all = append(all, job{name: "j" + strconv.Itoa(size), items: size, cron: s.cron(w.kind + strconv.Itoa(size))})
			}
			for range hosts {
				w.start(all...)
			}
			w.allReady()
		}
		// The first cycle divides the items; then they are at peace.
		cycle := time.Duration(s.cycle) * time.Second
		begin := time.Now().Truncate(cycle).Add(2 * cycle)
		end := begin.Add(cycles * cycle)
		pause(t, time.Until(end)+cycle)
		for _, size := range list {
			got := make(map[string][]fire)
			for _, w := range worlds {
				key := w.kind + strconv.Itoa(size)
				var windows [][2]time.Time
				for at := begin; at.Before(end); at = at.Add(cycle) {
					from := at.Add(time.Duration(s.at[key])*time.Second - 20*time.Millisecond)
					windows = append(windows, [2]time.Time{from, from.Add(cycle)})
				}
				got[w.kind] = w.fires("j"+strconv.Itoa(size), windows)
				if slices.ContainsFunc(got[w.kind], func(f fire) bool { return f.took > cycle-100*time.Millisecond }) {
					t.Errorf("%s: a fire of %d items on %d hosts goes on into the next, %s later", w.kind, size, hosts, cycle)
				}
				if len(got[w.kind]) == 0 {
					t.Fatalf("%s has no fire of %d items on %d hosts", w.kind, size, hosts)
				}
			}
			requests := func(kind string) int {
				var l []int
				for _, f := range got[kind] {
					l = append(l, f.requests)
				}
				return median(l)
			}
			took := func(kind string) time.Duration {
				var l []time.Duration
				for _, f := range got[kind] {
					l = append(l, f.took)
				}
				return median(l)
			}
			say("| %d | %d | %d | %s | %d | %s | %s | %s |\n", size, hosts, requests(theirs), ms(took(theirs)), requests(own), ms(took(own)),
				ratio(float64(requests(theirs)), float64(requests(own))), ratio(float64(took(theirs)), float64(took(own))))
		}
		for _, w := range worlds {
			w.end()
		}
	}
}

// pause lets the hosts work.
func pause(t *testing.T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// few is how many jobs are due every second at first, of each kind and with so
// many items: as many as every host holds easily.
func few() map[string]map[int]int {
	return map[string]map[int]int{theirs: {1: 12, 10: 4, 100: 1}, own: {1: 200, 10: 50, 100: 12}}
}

// steps is how often there are three times as many jobs then, at most, the
// first time included.
const steps = 4

// TestThroughput: more and more jobs are due every second, until that does not
// make more of their fires run; how many are at best.
func TestThroughput(t *testing.T) {
	first := few()
	say("\n### Fires per second\n\nJobs are due every second, three times as many after some seconds, and so on until that does not make more of them run;\nthe best of the rates, each counted for %d s after %s, again while it rises, and what was due then. It can be less\nthan what ran: some had waited.\n\n", *seconds, *settle)
	say("| Items | Hosts | %s: held | of | %s: held | of | ÷ |\n| --- | --- | --- | --- | --- | --- | --- |\n", theirs, own)
	for _, hosts := range numbers(t, *hosts) {
		for _, size := range numbers(t, *sizes) {
			if first[own][size] == 0 || hosts > 3 {
				continue // too much for one machine
			}
			held1, due1 := throughput(t, theirs, hosts, size, first[theirs][size])
			held2, due2 := throughput(t, own, hosts, size, first[own][size])
			say("| %d | %d | %.1f | %d | %.1f | %d | %s |\n", size, hosts, held1, due1, held2, due2, ratio(held2, held1))
		}
	}
}

// throughput is how many fires a second so many hosts run at best, and how many
// were due then.
func throughput(t *testing.T, kind string, hosts, size, due int) (best float64, at int) {
	t.Helper()
	w := newWorld(t, kind, fmt.Sprintf("held-%s-%d-%d", kind, hosts, size))
	w.untapped = true
	defer w.end()
	j := job{name: "j0", items: size, count: due, cron: "0/1 * * * * ?"}
	for range hosts {
		w.start(j)
	}
	w.allReady()
	for n := 1; ; n++ {
		pause(t, *settle)
		held := 0.0
		for range windows {
			before, from := w.completed(), time.Now()
			pause(t, time.Duration(*seconds)*time.Second)
			after, to := w.completed(), time.Now()
			last := held
			held = max(held, float64(after-before)/float64(size)/to.Sub(from).Seconds())
			if held >= 0.9*float64(due) || held < 1.1*last {
				break
			}
		}
		t.Logf("%s, %d hosts, %d items: %d due, %.1f held", kind, hosts, size, due, held)
		last := best
		if held > best {
			best, at = held, due
		}
		if held < 0.9*float64(due) && held < 1.2*last || n == steps {
			return best, at
		}
		j.name, j.count = fmt.Sprintf("j%d", n), 2*due
		if !w.more(j) {
			t.Logf("%s, %d hosts, %d items: another %d jobs were too many to be started within %s", kind, hosts, size, j.count, startLimit)
			return best, at
		}
		due *= 3
	}
}

// more gives all hosts another job; false if that takes them too long.
func (w *world) more(j job) bool {
	w.t.Helper()
	limit, cancel := context.WithTimeout(w.ctx, startLimit)
	defer cancel()
	for _, h := range w.hosts {
		if err := h.more(limit, j); err != nil {
			if limit.Err() == nil {
				w.check(err)
			}
			return false
		}
	}
	return true
}

func (w *world) completed() (total int) {
	w.t.Helper()
	for _, h := range w.hosts {
		n, err := h.completed(w.ctx)
		w.check(err)
		total += n
	}
	return total
}

// registry is a session of the measurement's own.
func registry(t *testing.T) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(strings.Split(shared.servers.Connect(), ","), 30*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for e := range events {
		if e.State == zk.StateHasSession {
			return conn
		}
	}
	t.Fatal("the session with ZooKeeper has ended")
	return nil
}

// trigger makes a trigger round, as a console does.
func (w *world) trigger(conn *zk.Conn, name string) {
	w.t.Helper()
	root := path.Join("/", w.namespace, name)
	list, _, err := conn.Children(root + "/instances")
	w.check(err)
	old, _, err := conn.Children(root + "/trigger")
	for _, id := range old {
		if err := conn.Delete(path.Join(root, "trigger", id), -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			w.t.Fatal(err)
		}
	}
	if err == nil {
		err = conn.Delete(root+"/trigger", -1)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		w.t.Fatal(err)
	}
	_, err = conn.Create(root+"/trigger", nil, 0, zk.WorldACL(zk.PermAll))
	w.check(err)
	for _, id := range list {
		_, err := conn.Create(path.Join(root, "trigger", id), nil, 0, zk.WorldACL(zk.PermAll))
		w.check(err)
	}
}

// gone waits until a node is gone.
func gone(ctx context.Context, conn *zk.Conn, name string) error {
	for {
		exists, _, watch, err := conn.ExistsW(name)
		if err != nil || !exists {
			return err
		}
		select {
		case <-watch:
		case <-ctx.Done():
			return fmt.Errorf("%s is still there: %w", name, ctx.Err())
		}
	}
}

// there waits until a node is there.
func there(ctx context.Context, conn *zk.Conn, name string) error {
	for {
		exists, _, watch, err := conn.ExistsW(name)
		if err != nil || exists {
			return err
		}
		select {
		case <-watch:
		case <-ctx.Done():
			return fmt.Errorf("%s is not there: %w", name, ctx.Err())
		}
	}
}

// written waits until a node has data.
func written(ctx context.Context, conn *zk.Conn, name string) error {
	for {
		if err := there(ctx, conn, name); err != nil {
			return err
		}
		data, _, watch, err := conn.GetW(name)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil || len(data) > 0 {
			return err
		}
		select {
		case <-watch:
		case <-ctx.Done():
			return fmt.Errorf("%s is still empty: %w", name, ctx.Err())
		}
	}
}

// instance waits for the host's instance node, and returns its path.
func (w *world) instance(conn *zk.Conn, name string, h hosted) string {
	w.t.Helper()
	root := path.Join("/", w.namespace, name, "instances")
	w.check(there(w.ctx, conn, root))
	for {
		list, _, watch, err := conn.ChildrenW(root)
		w.check(err)
		for _, id := range list {
			if strings.HasPrefix(id, h.address()+"@-@") {
				return path.Join(root, id)
			}
		}
		select {
		case <-watch:
		case <-w.ctx.Done():
			w.t.Fatalf("%s has no instance: %v", h.Name(), w.ctx.Err())
		}
	}
}

// owned are the items that an instance owns.
func (w *world) owned(conn *zk.Conn, name, id string, total int) (list []int) {
	w.t.Helper()
	for i := range total {
		owner, _, err := conn.Get(path.Join("/", w.namespace, name, "sharding", strconv.Itoa(i), "instance"))
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			w.t.Fatal(err)
		}
		if string(owner) == id {
			list = append(list, i)
		}
	}
	return list
}

// TestFailover: one of two hosts is killed while so many items run on it. From
// the end of its session until the last of them has begun again.
func TestFailover(t *testing.T) {
	say("\n### Failover\n\nOne of two hosts is killed. From the end of its session until the last of its items runs again on the other, and how many\nruns that host made of them and of its own in that time.\n\n")
	say("| Running items | %s | runs | %s | runs | ÷ |\n| --- | --- | --- | --- | --- | --- |\n", theirs, own)
	for _, n := range numbers(t, *crashed) {
		took1, runs1 := failover(t, theirs, n)
		took2, runs2 := failover(t, own, n)
		say("| %d | %s | %d | %s | %d | %s |\n", n, ms(took1), runs1, ms(took2), runs2, ratio(float64(took1), float64(took2)))
		if runs2 != n {
			t.Errorf("ours made %d runs of %d crashed items", runs2, n)
		}
	}
	for _, n := range numbers(t, *more) {
		took, runs := failover(t, own, n)
		say("| %d | not measured | | %s | %d | |\n", n, ms(took), runs)
		if runs != n {
			t.Errorf("ours made %d runs of %d crashed items", runs, n)
		}
	}
}

func failover(t *testing.T, kind string, n int) (took time.Duration, runs int) {
	t.Helper()
	conn := registry(t)
	w := newWorld(t, kind, fmt.Sprintf("failover-%s-%d", kind, n))

	var cancel context.CancelFunc
	w.ctx, cancel = context.WithTimeout(w.ctx, 3*time.Minute)
	defer cancel()
	j := job{name: "j", items: 2 * n, cron: never, told: true}
	survivor := w.start(j)
	w.check(survivor.ready(w.ctx))
	w.instance(conn, j.name, survivor)
	victim := w.start(j)
	w.check(victim.ready(w.ctx))
	node := w.instance(conn, j.name, victim)

	// The first fire divides; the second is caught running.
	mark := w.log.Mark()
	w.trigger(conn, j.name)
	w.check(w.log.Await(w.ctx, "all items to run", j.name, mark, whole(2*n)))
	for i := range 2 * n {
		w.check(gone(w.ctx, conn, path.Join("/", w.namespace, j.name, "sharding", strconv.Itoa(i), "running")))
	}
	lost := w.owned(conn, j.name, path.Base(node), 2*n)
	if len(lost) != n {
		t.Fatalf("%s: the host that is to be killed has %d items, want %d", kind, len(lost), n)
	}
	w.check(victim.hold(w.ctx))
	mark = w.log.Mark()
	w.trigger(conn, j.name)
	for _, i := range lost {
		w.check(there(w.ctx, conn, path.Join("/", w.namespace, j.name, "sharding", strconv.Itoa(i), "running")))
	}
	w.check(w.log.Await(w.ctx, "the other items to run", j.name, mark, func(list []peer.Run) bool {
		done := 0
		for _, r := range list {
			if r.Host == survivor.Name() && !r.End.IsZero() {
				done++
			}
		}
		return done == n
	}))
	mark = w.log.Mark()
	// What the victim still has to say of the runs that it was killed in is not
	// counted.
	theSurvivors := func() []peer.Run {
		return slices.DeleteFunc(w.log.Runs(j.name, mark), func(r peer.Run) bool { return r.Host != survivor.Name() })
	}
	victim.Kill()
	w.check(gone(w.ctx, conn, node))
	over := time.Now()
	w.check(w.log.Await(w.ctx, "the crashed items to run again", j.name, mark, func(list []peer.Run) bool {
		again := make(map[int]bool)
		for _, r := range list {
			again[r.Item] = again[r.Item] || r.Host == survivor.Name()
		}
		return !slices.ContainsFunc(lost, func(i int) bool { return !again[i] })
	}))
	first := make(map[int]time.Time)
	for _, r := range theSurvivors() {
		if slices.Contains(lost, r.Item) && first[r.Item].IsZero() {
			first[r.Item] = r.Begin
		}
	}
	var last time.Time
	for _, at := range first {
		if at.After(last) {
			last = at
		}
	}
	// What else that made them run.
	pause(t, 2*time.Second)
	return last.Sub(over), len(theSurvivors())
}

// whole waits until so many items have each run to the end.
func whole(total int) func([]peer.Run) bool {
	return func(list []peer.Run) bool {
		done := make(map[int]bool)
		for _, r := range list {
			if !r.End.IsZero() {
				done[r.Item] = true
			}
		}
		return len(done) == total
	}
}

// TestDivision: a second host comes to a job with many items.
func TestDivision(t *testing.T) {
	say("\n### Dividing anew\n\nA host comes to a job with many items. From the first request that divides (of ElasticJob, whose leader divides with its\nnext fire: from that fire) until the items are divided.\n\n")
	say("| Items | Hosts | %s | %s |\n| --- | --- | --- | --- |\n", theirs, own)
	say("| %d | 2 | %s | %s |\n", *divided, division(t, theirs, *divided, 2), division(t, own, *divided, 2))
	if *large {
		say("| 100000 | 100 | not measured | %s |\n", division(t, own, 100_000, 100))
	}
}

// division measures, or says why there is nothing to measure.
func division(t *testing.T, kind string, items, hosts int) string {
	t.Helper()
	conn := registry(t)
	w := newWorld(t, kind, fmt.Sprintf("division-%s-%d", kind, items))

	j := job{name: "j", items: items, cron: never}
	for range hosts - 1 {
		w.start(j)
	}
	w.allReady()
	root := path.Join("/", w.namespace, j.name)
	necessary := root + "/leader/sharding/necessary"
	settle := func() error {
		limit, cancel := context.WithTimeout(w.ctx, divideLimit)
		defer cancel()
		if kind == theirs {
			if err := there(limit, conn, necessary); err != nil {
				return err
			}
			w.trigger(conn, j.name)
		}
		return gone(limit, conn, necessary)
	}
	if err := settle(); err != nil {
		return fmt.Sprintf("fails: not divided within %s (%s)", divideLimit, w.largest())
	}
	if kind == theirs {
		// The fire that divided has to be over: while it goes on, ElasticJob
		// loses the next trigger.
		if err := w.quiet(2 * time.Second); err != nil {
			return fmt.Sprintf("fails: the first fire does not end (%v)", err)
		}
	}
	mark := w.taps.Mark()
	last := w.start(j)
	w.check(last.ready(w.ctx))
	w.instance(conn, j.name, last)
	if err := settle(); err != nil {
		return fmt.Sprintf("fails: not divided within %s (%s)", divideLimit, w.largest())
	}
	if kind == own {
		share := path.Join("/", w.namespace+".wasmjob", j.name, "assignment", path.Base(w.instance(conn, j.name, last)))
		limit, cancel := context.WithTimeout(w.ctx, divideLimit)
		defer cancel()
		if err := written(limit, conn, share); err != nil {
			return fmt.Sprintf("fails: not divided within %s (%s)", divideLimit, w.largest())
		}
		w.check(gone(limit, conn, root+"/leader/sharding/processing"))
	}
	ops := w.taps.Ops(mark, func(o *tap.Op) bool { return w.about(o, j.name) || o.Code == tap.Multi })
	var from, to time.Time
	for _, o := range ops {
		divides := o.Code == tap.Multi || o.Path == root+"/leader/sharding/processing"
		if kind == own {
			divides = o.Code == tap.Multi && o.Parts > 10
		}
		if !divides || o.Answered.IsZero() {
			continue
		}
		if from.IsZero() {
			from = o.Sent
		}
		to = o.Answered
	}
	return ms(to.Sub(from))
}

// quiet waits until no host has asked the registry for anything but whether it
// is there for so long.
func (w *world) quiet(d time.Duration) error {
	limit := time.Now().Add(divideLimit)
	for {
		mark := w.taps.Mark()
		pause(w.t, d)
		if len(w.taps.Ops(mark, func(o *tap.Op) bool { return o.Code != tap.Ping })) == 0 {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("there are requests after %s", divideLimit)
		}
	}
}

// largest says what the largest request was and what became of it.
func (w *world) largest() string {
	var most tap.Op
	for _, o := range w.taps.Ops(0, func(o *tap.Op) bool { return o.Code == tap.Multi }) {
		if o.Size > most.Size {
			most = o
		}
	}
	if most.Size == 0 {
		return "no transaction was sent"
	}
	what := "answered"
	if most.Answered.IsZero() {
		what = "never answered"
	}
	return fmt.Sprintf("a transaction of %d KB was %s", most.Size>>10, what)
}

// TestStart: a host with many jobs.
func TestStart(t *testing.T) {
	say("\n### Start of a host with %d jobs of 2 items\n\n| | %s | %s | ÷ |\n| --- | --- | --- | --- |\n", *jobs, theirs, own)
	var took [2]time.Duration
	var memory, threads, requests [2]int
	for i, kind := range []string{theirs, own} {
		w := newWorld(t, kind, "start-"+kind)
		from := time.Now()
		h := w.start(job{name: "j", items: 2, count: *jobs, cron: never})
		w.check(h.ready(w.ctx))
		took[i] = time.Since(from)
		pause(t, 2*time.Second)
		memory[i], threads[i] = status(t, h.PID(), "VmRSS:")>>10, status(t, h.PID(), "Threads:")
		requests[i] = len(w.taps.Ops(0, func(o *tap.Op) bool { return o.Code != tap.Ping }))
		w.end()
	}
	say("| time | %s | %s | %s |\n", ms(took[0]), ms(took[1]), ratio(float64(took[0]), float64(took[1])))
	row := func(what string, v [2]int) {
		say("| %s | %d | %d | %s |\n", what, v[0], v[1], ratio(float64(v[0]), float64(v[1])))
	}
	row("resident memory, MB", memory)
	row("threads", threads)
	row("registry requests", requests)
}

// status is a number of a process's status.
func status(t *testing.T, pid int, key string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in the status of process %d", key, pid)
	return 0
}
