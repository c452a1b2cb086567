//go:build peers

package attack_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/test/interop/peer"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

var (
	version  = flag.String("elasticjob", "3.0.4", "version of ElasticJob, 3.0.4 or 3.0.5")
	rounds   = flag.Int("rounds", 1, "how often each fault is made; a round takes about four minutes")
	output   = flag.String("output", "", "file for the table, besides stdout")
	evidence = flag.String("evidence", "", "file for all that the items said, one JSON object a line")
)

const (
	theirs = "ElasticJob"
	own    = "wasmjob"

	sessionTimeout = 6 * time.Second
	// never is a cron expression that nobody lives to see fire.
	never = "0 0 0 1 1 ? 2090"

	members = 3
	total   = 12
	// Items of the host that is attacked take long, others are done before the
	// fault is: the survivors are idle when its session ends.
	longest, shortest = 160, 30 // steps
	beat              = 100 * time.Millisecond
	before            = 1500 * time.Millisecond // from the begin of all items until the fault
	// lifted is when a fault that can end does: the session is over, others
	// have taken the items, and the former run had more to do.
	lifted = 12 * time.Second
	// patience bounds the wait for the crashed items to run again, and
	// that for peace.
	patience = 50 * time.Second
	quiet    = 5 * time.Second
)

// fault is what is done to a host, and how that ends.
type fault struct {
	name string
	gone bool // the host does not come back
	// woken: the host is halted in the midst of its work, and finds out only
	// when it wakes.
	woken bool
	do    func(h *member) error
	lift  func(h *member) error
}

func faults() []fault {
	nothing := func(*member) error { return nil }
	return []fault{
		{"kill -9", true, false, func(h *member) error { h.process.Kill(); return nil }, nothing},
		{"SIGSTOP beyond the session, then SIGCONT", false, true,
			func(h *member) error { return h.process.Signal(syscall.SIGSTOP) },
			func(h *member) error { return h.process.Signal(syscall.SIGCONT) }},
		{"parted from ZooKeeper beyond the session, then healed", false, false,
			func(h *member) error { h.proxy.Hold(zkserver.ToServer | zkserver.ToClient); return nil },
			func(h *member) error { h.proxy.Heal(); return nil }},
	}
}

// shared is what both systems use.
var shared struct {
	program, dir, connect string

	mu    sync.Mutex
	heard []word
	harms map[string]harm // by fault, round and system
}

func key(fault string, round int, system string) string {
	return fault + "/" + strconv.Itoa(round) + "/" + system
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := prepare(m)
	if err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

func prepare(m *testing.M) (code int, err error) {
	if shared.dir, err = os.MkdirTemp("", "wasmjob-attack-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(shared.dir)) }()
	shared.program, shared.harms = filepath.Join(shared.dir, "wasmjob"), make(map[string]harm)
	for _, args := range [][]string{{"go", "build", "-o", shared.program, "../../../cmd/host"}, {"../../../test/interop/java/build", *version}} {
		c := exec.Command(args[0], args[1:]...)
		c.Stderr = os.Stderr
		if err := c.Run(); err != nil {
			return 0, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	servers, err := zkserver.Start(ctx, zkserver.Options{Dir: filepath.Join(shared.dir, "zookeeper"), TickTime: 500 * time.Millisecond, NoSync: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	shared.connect = servers.Connect()
	return m.Run(), nil
}

// process is a host of either kind.
type process interface {
	Kill()
	Signal(os.Signal) error
	Stderr() string
}

// member is a host that the job runs on.
type member struct {
	name    string
	process process
	proxy   *zkserver.Proxy // between it and ZooKeeper
}

// side is one of the two systems while a fault is made.
type side struct {
	t      *testing.T
	ctx    context.Context
	system string
	root   string // of the job, in the registry
	space  string
	words  outside
	conn   *zk.Conn
	hosts  []*member
}

func (s *side) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func newSide(t *testing.T, system, space string) *side {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	s := &side{t: t, ctx: ctx, system: system, space: space, root: "/" + space + "/attacked"}
	conn, events, err := zk.Connect([]string{shared.connect}, 30*time.Second, zk.WithLogInfo(false))
	s.check(err)
	t.Cleanup(conn.Close)
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	s.conn = conn
	return s
}

// parameters are the steps of each item.
func parameters() string {
	list := make([]string, total)
	for i := range list {
		steps := shortest
		if i < total/members {
			steps = longest
		}
		list[i] = fmt.Sprintf("%d=%d", i, steps)
	}
	return strings.Join(list, ",")
}

// start starts a host with the job, and waits until it has joined.
func (s *side) start(ip string) {
	proxy, err := zkserver.NewProxy(shared.connect)
	s.check(err)
	s.t.Cleanup(proxy.Close)
	h := &member{name: fmt.Sprintf("%s-%d", s.system, len(s.hosts)+1), proxy: proxy}
	if s.system == theirs {
		h.process = s.java(h, ip)
	} else {
		h.process = s.ours(h, ip)
	}
	s.hosts = append(s.hosts, h)
	s.t.Cleanup(func() {
		h.process.Kill()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", h.name, notOfItems(h.process.Stderr()))
		}
	})
	s.joined(len(s.hosts), patience)
}

func (s *side) java(h *member, ip string) process {
	j, err := peer.StartJava(s.ctx, peer.JavaOptions{
		Name: h.name, Dir: "../../../test/interop/java", Version: *version, Connect: h.proxy.Addr(), Namespace: s.space, IP: ip,
		SessionTimeout: sessionTimeout, JavaArgs: []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"},
		Event: func(e peer.JavaEvent) {
			s.words.hear(word{Host: h.name, Run: strconv.FormatInt(e.Run, 10), Item: e.Item, What: e.Event, Said: time.UnixMilli(e.Milliseconds)})
		},
	})
	s.check(err)
	s.check(j.Call(s.ctx, peer.Request{
		"do": "start", "job": "attacked", "cron": never, "total": total, "failover": true, "monitorExecution": true, "misfire": false,
		"itemParameters": parameters(), "beat": beat.Milliseconds(),
	}, nil))
	return j
}

func (s *side) ours(h *member, ip string) process {
	dir := s.t.TempDir()
	guest, err := os.ReadFile("testdata/guest.wasm")
	s.check(err)
	plugins := filepath.Join(dir, "plugins")
	s.check(os.Mkdir(plugins, 0o755))
	s.check(os.WriteFile(filepath.Join(plugins, "attacked.wasm"), guest, 0o644))
	s.check(os.WriteFile(filepath.Join(plugins, "attacked.yaml"), fmt.Appendf(nil,
		"type: SIMPLE\ncron: %q\nshardingTotalCount: %d\nfailover: true\nmonitorExecution: true\nmisfire: false\njobParameter: %q\nshardingItemParameters: %q\n",
		never, total, strconv.FormatInt(beat.Milliseconds(), 10), parameters()), 0o644))
	w, err := peer.StartWasmjob(peer.WasmjobOptions{
		Name: h.name, Program: shared.program, Dir: dir, NoHistory: true,
		Args: []string{
			"--registry", "zookeeper", "--zk", h.proxy.Addr(), "--namespace", s.space, "--session-timeout", sessionTimeout.String(),
			"--dead-man", "off", // they are halted, and go on
			"--server-ip", ip, "--plugins", plugins, "--admin", filepath.Join(dir, "admin"), "--cache", filepath.Join(shared.dir, "cache"),
			"--max-concurrency", "64",
		},
		Line: func(line string) {
			if w, ok := ourLine(line); ok {
				w.Host = h.name
				s.words.hear(w)
			}
		},
	})
	s.check(err)
	return w
}

// joined waits until there are so many instances and nobody asks for a
// division; false if that does not come. (A leader of ElasticJob divides with
// the next fire, and asks until then.)
func (s *side) joined(n int, most time.Duration) bool {
	s.t.Helper()
	over := time.NewTimer(most)
	defer over.Stop()
	for {
		list, _, instances, err := s.conn.ChildrenW(s.root + "/instances")
		if errors.Is(err, zk.ErrNoNode) {
			_, _, instances, err = s.conn.ExistsW(s.root + "/instances")
		}
		s.check(err)
		asked, _, necessary, err := s.conn.ExistsW(s.root + "/leader/sharding/necessary")
		s.check(err)
		if len(list) == n && (!asked || s.system == theirs) {
			return true
		}
		select {
		case <-instances:
		case <-necessary:
		case <-over.C:
			return false
		}
	}
}

// trigger makes a trigger round, as a console does.
func (s *side) trigger() {
	s.t.Helper()
	root := s.root + "/trigger"
	old, _, err := s.conn.Children(root)
	for _, id := range old {
		if err := s.conn.Delete(path.Join(root, id), -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			s.t.Fatal(err)
		}
	}
	if err == nil {
		err = s.conn.Delete(root, -1)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		s.t.Fatal(err)
	}
	list, _, err := s.conn.Children(s.root + "/instances")
	s.check(err)
	_, err = s.conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
	s.check(err)
	for _, id := range list {
		_, err := s.conn.Create(path.Join(root, id), nil, 0, zk.WorldACL(zk.PermAll))
		s.check(err)
	}
}

// whole reports whether each item has said a word.
func whole(what string) func([]word) bool {
	return func(words []word) bool {
		said := make(map[int]bool)
		for _, w := range words {
			if w.What == what {
				said[w.Item] = true
			}
		}
		return len(said) == total
	}
}

// attack makes a fault and counts what comes of it.
func (s *side) attack(f fault) (h harm) {
	t := s.t
	// The last to come has the least address, and with it the first items; it
	// does not lead.
	for i := range members {
		s.start(fmt.Sprintf("10.3.0.%d", members-i))
	}
	_, fire, _ := s.words.look(0)
	s.trigger()
	if !s.words.await(fire, patience, whole(begins)) {
		words, _, _ := s.words.look(fire)
		t.Fatalf("waited %s in vain for all items to begin: %v", patience, words)
	}
	words, _, _ := s.words.look(fire)
	owners := make(map[int]string)
	for _, w := range words {
		owners[w.Item] = w.Host
	}
	var victim *member
	for _, h := range s.hosts {
		if h.name == owners[0] {
			victim = h
		}
	}
	for i := range total {
		if (owners[i] == victim.name) != (i < total/members) {
			t.Fatalf("items are divided %v; expected %s to have the first %d and no other", owners, victim.name, total/members)
		}
	}
	s.pause(before)
	at := time.Now()
	s.check(f.do(victim))
	over := time.Now()
	s.pause(lifted)
	s.check(f.lift(victim))
	// Until everything has ended somewhere, and nothing runs any more.
	s.words.await(fire, patience, func(words []word) bool { return judge(words, total, victim.name, at).lost == 0 })
	if !s.words.silence(quiet, patience) {
		t.Logf("%s: there is no peace %s later", s.system, time.Since(over).Round(time.Second))
	}
	words, after, _ := s.words.look(fire)
	h = judge(words, total, victim.name, at)

	want := members
	if f.gone {
		want--
	}
	if !s.joined(want, patience) {
		t.Logf("%s: after the fault there are not %d instances that nothing is asked of", s.system, want)
	}
	s.trigger()
	s.words.await(after, patience, whole(ends))
	s.words.silence(quiet, patience)
	words, _, _ = s.words.look(after)
	h.next(words, total)
	return h
}

// pause is for what time itself does: sessions that end, items that work.
func (s *side) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		s.t.Fatal(s.ctx.Err())
	}
}

// TestAttacks makes each fault on both systems at the same time. Of ours it
// demands what is promised; of ElasticJob, nothing.
func TestAttacks(t *testing.T) {
	from := time.Now()
	list := faults()
	for round := range *rounds {
		for n, f := range list {
			t.Run(fmt.Sprintf("%d/%s", round+1, f.name), func(t *testing.T) {
				for _, system := range []string{theirs, own} {
					t.Run(system, func(t *testing.T) {
						t.Parallel()
						s := newSide(t, system, fmt.Sprintf("%s-%d-%d", system, round, n))
						h := s.attack(f)
						t.Logf("%s, %s: %+v", f.name, system, h)
						s.keep(f, round, h)
						if system == own {
							promised(t, f, h)
						}
					})
				}
			})
		}
	}
	report(list, time.Since(from))
	if *evidence != "" {
		var b strings.Builder
		byTime(shared.heard)
		for _, w := range shared.heard {
			line, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(line, '\n'))
		}
		if err := os.WriteFile(*evidence, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// keep keeps the outcome and the evidence.
func (s *side) keep(f fault, round int, h harm) {
	words, _, _ := s.words.look(0)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, w := range words {
		w.Fault, w.Round, w.System = f.name, round+1, s.system
		shared.heard = append(shared.heard, w)
	}
	shared.harms[key(f.name, round, s.system)] = h
}

// promised fails the test if ours broke what the documents promise.
func promised(t *testing.T, f fault, h harm) {
	if h.crashed != total/members || h.never != 0 || h.lost != 0 || h.missing != 0 {
		t.Errorf("items were lost: %+v", h)
	}
	if h.repeated != 0 || h.doubled != 0 {
		t.Errorf("items ran again although they had ended: %+v", h)
	}
	// A guest that wakes after its session may get one line into the log before
	// it is stopped, but not one offset into the registry.
	lines := 0
	if f.woken {
		lines = h.crashed
	}
	if h.late > lines || h.written != 0 {
		t.Errorf("a former owner had an effect: %+v", h)
	}
	// The session, one tick of the server, the takeover; and a second, as
	// elsewhere.
	if most := sessionTimeout + 500*time.Millisecond + time.Second; h.again > most {
		t.Errorf("crashed items ran again after %s, want at most %s", h.again, most)
	}
}

// report writes the table.
func report(list []fault, took time.Duration) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %s/%s, %d processors; %s; load %s; %d round(s) in %s. ElasticJob %s.\n\n", time.Now().UTC().Format("2006-01-02 15:04"),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), load(), *rounds, took.Round(time.Second), *version)
	b.WriteString("| Fault | | On two hosts at once, items | for up to | Effects of a former run | of them offsets taken | Crashed items begun again after | Runs of items that had ended | Items lost | Next fire: items not run | run more than once |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, f := range list {
		for _, system := range []string{theirs, own} {
			cell := func(text func(h harm) string) string {
				var all []string
				for round := range *rounds {
					if h, ok := shared.harms[key(f.name, round, system)]; ok {
						all = append(all, text(h))
					} else {
						all = append(all, "broke off")
					}
				}
				return strings.Join(all, " / ")
			}
			number := func(get func(h harm) int) string {
				return cell(func(h harm) string { return strconv.Itoa(get(h)) })
			}
			taken := "there are none"
			if system == own {
				taken = number(func(h harm) int { return h.written })
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", f.name, system,
				number(func(h harm) int { return h.overlaps }),
				cell(func(h harm) string { return seconds(h.longest) }),
				number(func(h harm) int { return h.late }),
				taken,
				cell(func(h harm) string {
					if h.never > 0 {
						return fmt.Sprintf("%s, %d of %d not", seconds(h.again), h.never, h.crashed)
					}
					return seconds(h.again)
				}),
				number(func(h harm) int { return h.repeated }),
				number(func(h harm) int { return h.lost }),
				number(func(h harm) int { return h.missing }),
				number(func(h harm) int { return h.doubled }))
		}
	}
	fmt.Print("\n" + b.String())
	if *output != "" {
		if err := os.WriteFile(*output, []byte(b.String()), 0o644); err != nil {
			log.Print(err)
		}
	}
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// notOfItems are the lines that no item said.
func notOfItems(stderr string) string {
	var b strings.Builder
	for line := range strings.Lines(stderr) {
		if _, ok := ourLine(line); !ok {
			b.WriteString(line)
		}
	}
	return b.String()
}

func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}
