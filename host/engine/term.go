package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/admission/arrivals"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// progressInterval is how often the log says how many jobs have joined, while not
// all have.
const progressInterval = 5 * time.Second

// Causes with which the context of guests is cancelled.
var (
	errSessionLost = errors.New("the registry session was lost: another host may own this item now")
	errKilled      = errors.New("the host was asked to stop at once")
	errDrainOver   = errors.New("the host is stopping and the drain timeout is over")
)

// leaveTime is how long jobs may take to be left once the drain timeout is over. What supervises hosts waits some seconds
// longer: deploy/.
const leaveTime = 10 * time.Second

const (
	// mostJoining is how many jobs join at once, mostStepping how many elect a leader, divide items or look after what a host
	// has left that died. More would only wait for each other at the registry, in any order, and could begin nothing meanwhile.
	mostJoining  = 64
	mostStepping = 32
	// fewStepping is how many of the jobs for which nothing waits do so at once while there are others.
	fewStepping = 8
)

// shuffled is a name by which the jobs come in another order on each host.
func shuffled(host, job string) string {
	sum := sha256.Sum256([]byte(host + "\x00" + job))
	return string(sum[:])
}

// term is one life of a registry session: a set of job loops that end with it.
type term struct {
	host     *Host
	registry *fence.Session
	self     tree.JobInstance

	mu   sync.Mutex
	jobs map[string]*job // by job name
	// sorted are the jobs by name; nil if they have to be sorted again.
	sorted []*job
	// joins counts how often this term has joined a job: an instance id is
	// never used twice.
	joins    map[string]int
	arrivals *arrivals.Arrivals[*job]
	// steps spreads elections, divisions and takeovers, of which very many come at once when a host dies.
	steps *arrivals.Arrivals[*job]
	// owed are the jobs that the host was in when the term before this one ended.
	owed  map[string]bool
	wg    sync.WaitGroup // the job loops
	ended chan *job      // a loop ended by itself
	// cleared are jobs that were forgotten, or that stay: they may be wanted again.
	cleared chan string
	// follows is the turn of one job to enter itself with those before it.
	follows *arrivals.Arrivals[*job]
	chains  *chains
	// buried are the hosts that were reported to be gone.
	buried map[string]bool
	// progressAt is when to log how many jobs have joined; zero once all have.
	progressAt time.Time
}

func newTerm(h *Host, r *fence.Session) *term {
	token := newToken
	if h.cfg.token != nil {
		token = h.cfg.token
	}
	self := tree.NewJobInstance(h.cfg.ServerIP, token())
	return &term{
		host: h, registry: r,
		self:     self,
		jobs:     make(map[string]*job),
		joins:    make(map[string]int),
		arrivals: arrivals.New(mostJoining, mostJoining, func(j *job) string { return j.name }, func(j *job) { j.mail.nudge() }),
		// Each host takes the jobs in an order of its own, so that hosts share the work: what one of them has
		// done others need not try.
		steps:   arrivals.New(mostStepping, fewStepping, func(j *job) string { return shuffled(self.ID, j.name) }, func(j *job) { j.mail.nudge() }),
		buried:  make(map[string]bool),
		ended:   make(chan *job),
		cleared: make(chan string),
		follows: arrivals.New(1, 1, func(j *job) string { return j.name }, func(j *job) { j.mail.nudge() }),
		chains:  newChains(),
	}
}

// newToken is what no other term on this server has.
func newToken() string {
	token := make([]byte, 4)
	rand.Read(token) // never fails, see crypto/rand
	return fmt.Sprintf("%d-%s", os.Getpid(), hex.EncodeToString(token))
}

// identity is the instance for a job: the term's id, with a number from the
// second time on that the term joins the job.
func (t *term) identity(name string) tree.JobInstance {
	t.joins[name]++
	if n := t.joins[name]; n > 1 {
		return tree.JobInstance{ID: fmt.Sprintf("%s-%d", t.self.ID, n), ServerIP: t.self.ServerIP}
	}
	return t.self
}

// run starts and stops job loops until the session is lost (true), or the
// host has drained or was killed (false). All loops are joined then.
//
//	        no answer for T/3          for 5T/8              for 2T/3
//	live ──────────────────▶ suspect ─────────▶ yielding ─────────────▶ fenced
//	  ▲    nothing begins,      │   guests are      │     guests are stopped,
//	  │    commits wait         │   told: lost      │     everything is joined
//	  └──── an answer ──────────┴───────────────────┘            │
//	                 a new session, a new instance id ◀──────────┘
func (t *term) run(ctx, kill context.Context) (lost bool) {
	// work is the life of everything that runs under the session.
	work, stop := context.WithCancelCause(context.Background())
	defer func() {
		stop(nil)
		if lost {
			defer t.watchOverEnd()()
		}
		t.wg.Wait()
	}()
	draining := ctx.Done()
	var drained chan struct{}
	var overdue <-chan time.Time
	base, err := t.registry.Watch(work, t.registry.Watched())
	if err != nil { // the session is over, or about to be
		t.host.log.Warn("registry: watching the base of the namespace's numbers", zap.Error(err))
	}
	if t.host.cfg.KeepUnused > 0 {
		t.wg.Go(func() { t.clear(work) })
	}
	t.reconcile(work)
	trust, changed := t.registry.Trust()
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	watch := clocks{clockWatch{t.host.machine()}, clockWatch{t.host.now()}}
	for {
		select {
		case <-ticker.C:
			t.watchClocks(&watch)
			if draining != nil {
				t.logProgress()
			}
		case <-changed:
			before := trust
			if trust, changed = t.registry.Trust(); trust != before && trust != registry.TrustLost {
				t.trusted(before, trust)
			}
		case <-t.host.wake:
			if draining != nil {
				t.reconcile(work)
			}
		case j := <-t.ended:
			t.forget(j)
			if draining != nil {
				t.begin(work, j.name) // it may have been left and wanted again since
			}
		case name := <-t.cleared:
			if draining != nil {
				t.begin(work, name)
			}
		case <-draining:
			draining = nil
			t.host.setState(HostDraining, t)
			drained = t.drain()
			limit := time.NewTimer(t.host.cfg.DrainTimeout + leaveTime)
			defer limit.Stop()
			overdue = limit.C
		case <-drained:
			return false
		case <-overdue:
			t.host.log.Warn("some jobs have not been left in time: the session ends, and other hosts treat this one as dead", zap.Int("jobs", t.loops()), zap.Duration("timeout", t.host.cfg.DrainTimeout+leaveTime))
			stop(errDrainOver)
			return false
		case n, open := <-base:
			if !open {
				base = nil
			}
			t.registry.Observe(n)
		case <-t.registry.Over():
			t.host.log.Warn("registry: the base of the namespace's numbers is another one than this session's")
			stop(errSessionLost)
			return true
		case <-t.registry.Lost():
			stop(errSessionLost)
			return true
		case <-kill.Done():
			stop(errKilled)
			return false
		}
	}
}

// trusted reports that the session has become suspect, or out of it.
func (t *term) trusted(before, now registry.Trust) {
	reason := now.String()
	switch now {
	case registry.TrustLive:
		t.host.log.Info("registry: the session answers again; nothing was lost")
	case registry.TrustSuspect:
		t.host.log.Warn("registry: no answer; nothing begins until there is one")
	case registry.TrustYield:
		t.host.log.Warn("registry: still no answer; what runs is asked to stop")
	}
	t.host.emit(event.Event{Kind: event.Session, Host: t.self.ID, Reason: reason})
	if before != registry.TrustLive && now != registry.TrustLive {
		return
	}
	t.nudge()
}

// nudge makes all loops look again.
func (t *term) nudge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.jobs {
		j.mail.nudge()
	}
}

// watchOverEnd watches how the guests of a lost session end: it calls Config.OnStopped when all have, or Config.OnStuck if
// they have not shortly before the registry may give their items away. The function that it returns calls that
// off, and waits for a call that has begun.
func (t *term) watchOverEnd() func() {
	t.mu.Lock()
	jobs := t.byName() // none begins any more
	t.mu.Unlock()
	off := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		grace := time.NewTimer(t.host.cfg.StopGrace())
		defer grace.Stop()
		for _, j := range jobs {
			select {
			case <-j.guests.ended:
			case <-grace.C:
				if stuck := running(jobs); len(stuck) > 0 {
					t.host.cfg.OnStuck(stuck)
					return
				}
			case <-off:
				return
			}
		}
		t.host.cfg.OnStopped()
	})
	return func() {
		close(off)
		watch.Wait()
	}
}

// running names the jobs of which guests run, or may still begin.
func running(jobs []*job) []string {
	var names []string
	for _, j := range jobs {
		select {
		case <-j.guests.ended:
		default:
			names = append(names, j.name)
		}
	}
	return names
}

// reconcile brings the set of loops to what the host was last given.
func (t *term) reconcile(work context.Context) {
	t.host.mu.Lock()
	desired, refused := t.host.desired, t.host.refused
	t.host.mu.Unlock()
	t.tellGone(desired, refused)
	if t.progressAt.IsZero() {
		t.progressAt = time.Now().Add(progressInterval)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	modules := refusedModules(refused)
	for name, j := range t.jobs {
		if _, wanted := desired[name]; !wanted {
			j.mail.depart(whyGone(name, modules))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(desired)) {
		t.bring(work, name, desired[name])
	}
}

// begin starts the loop of a job whose last one has ended, if it is wanted. The other jobs are
// not looked at: many may end at once.
func (t *term) begin(work context.Context, name string) {
	wanted, ok := t.host.wanted()[name]
	if !ok {
		t.host.left.gone(name)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bring(work, name, wanted)
}

// bring hands a job to its loop, which is started if there is none. The caller holds t.mu.
func (t *term) bring(work context.Context, name string, wanted Job) {
	if j, runs := t.jobs[name]; runs {
		j.mail.replace(wanted)
		return
	}
	if !t.host.left.back(name) {
		return // once it is cleared
	}
	j := newJob(t, wanted, t.identity(name))
	t.jobs[name], t.sorted = j, nil
	t.wg.Go(func() {
		j.run(work)
		select {
		case t.ended <- j:
		case <-work.Done():
		}
	})
}

// tellGone reports the jobs whose definitions went while there was no session:
// no loop of this term is there to leave them.
func (t *term) tellGone(desired map[string]Job, refused []Refusal) {
	var gone []string
	t.mu.Lock()
	for name := range t.owed {
		if _, wanted := desired[name]; !wanted && t.joins[name] == 0 {
			gone = append(gone, name)
			delete(t.owed, name)
		}
	}
	t.mu.Unlock()
	slices.Sort(gone)
	modules := refusedModules(refused)
	for _, name := range gone {
		t.host.emit(event.Event{Kind: event.JobRemoved, Host: t.self.ID, Job: name}.Why(reason.New(reason.WithoutSession, whyGone(name, modules))))
	}
}

// refusedModules are what is wrong with the modules of jobs, by job, as the refusals of their
// definitions have it.
func refusedModules(refused []Refusal) map[string]string {
	problems := make(map[string]string)
	for _, r := range refused {
		maps.Copy(problems, r.Modules)
	}
	return problems
}

// whyGone says why a job is wanted no more: what is wrong with its module, if its
// definition is refused for that, else its definition is gone.
func whyGone(job string, refusedModules map[string]string) reason.Reason {
	if problem, ok := refusedModules[job]; ok {
		return reason.New(reason.ModuleRefused, problem)
	}
	return reason.New(reason.DefinitionGone)
}

// unsettled are the jobs that the host was in when the session ended, or had
// not come back to. All loops have ended.
func (t *term) unsettled() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	owed := make(map[string]bool)
	for name, j := range t.jobs {
		if j.exit.left.IsZero() && (j.joined || j.registered || t.owed[name]) {
			owed[name] = true
		}
	}
	return owed
}

// start says that this host may come back into a job that it was stopped in, or that was removed.
func (t *term) start(ctx context.Context, name string, said tree.Word) error {
	t.mu.Lock()
	j := t.jobs[name]
	t.mu.Unlock()
	if j == nil {
		return nil // its loop begins, or has ended: it goes by what is wanted
	}
	err := operate.Start(ctx, t.registry, tree.NewLayout(t.host.cfg.Namespace, name), said, *j.identity.Load())
	if errors.Is(err, operate.ErrNotAway) {
		return nil
	}
	return err
}

// gone reports that another host is gone, once: each job finds it out by itself.
func (t *term) gone(id string) {
	t.mu.Lock()
	known := t.buried[id]
	t.buried[id] = true
	t.mu.Unlock()
	if !known {
		t.host.emit(event.Event{Kind: event.HostGone, Host: t.self.ID, Other: id}.Why(reason.New(reason.SessionOver)))
	}
}

// forget drops a loop that has ended.
func (t *term) forget(j *job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.jobs[j.name] == j {
		delete(t.jobs, j.name)
		t.sorted = nil
		t.chains.forget(j.name)
	}
}

// drain asks all loops to finish. The channel is closed when they have.
func (t *term) drain() chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	limit := t.host.cfg.DrainTimeout
	t.host.log.Info("draining: nothing new begins", zap.Duration("guestsAskedToEndAfter", limit-run.SoftGrace(limit)), zap.Duration("timeout", limit), zap.Int("jobs", len(t.jobs)))
	all := slices.Collect(maps.Values(t.jobs))
	for _, j := range all {
		j.mail.finish()
	}
	done := make(chan struct{})
	t.wg.Go(func() {
		for _, j := range all {
			<-j.done
		}
		close(done)
	})
	return done
}

// loops is how many jobs have a loop.
func (t *term) loops() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.jobs {
		select {
		case <-j.done:
		default:
			n++
		}
	}
	return n
}

// settled is how many of the jobs have joined, or say why they cannot.
func (t *term) settled(wanted map[string]Job) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, j := range t.byName() {
		if _, ok := wanted[j.name]; ok && j.settled.Load() {
			n++
		}
	}
	return n
}

// joining reports whether a job is wanted here and has neither joined nor said why it cannot.
func (t *term) joining(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.jobs[name]
	return j != nil && !j.settled.Load()
}

// logProgress logs how many jobs have joined, while that takes long.
func (t *term) logProgress() {
	if t.progressAt.IsZero() || time.Now().Before(t.progressAt) {
		return
	}
	wanted := t.host.wanted()
	joined := t.settled(wanted)
	if joined == len(wanted) {
		t.progressAt = time.Time{}
		return
	}
	t.progressAt = time.Now().Add(progressInterval)
	t.host.log.Info("joining jobs", zap.Int("joined", joined), zap.Int("of", len(wanted)))
}

// status asks every loop; one that does not answer in time shows what it last
// said. A full answer is read from the registry.
func (t *term) status(wait time.Duration, full bool) []*JobStatus {
	t.mu.Lock()
	jobs := t.byName()
	t.mu.Unlock()
	over, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	out := make([]*JobStatus, len(jobs))
	asked := make(map[int]<-chan *JobStatus)
	for i, j := range jobs {
		last, rests := j.mail.lastStatus()
		if out[i] = last; full || !rests {
			asked[i] = j.mail.ask(full)
		}
	}
	for i, answer := range asked {
		select {
		case out[i] = <-answer:
		case <-jobs[i].done:
			out[i], _ = jobs[i].mail.lastStatus()
		case <-over.Done():
			out[i], _ = jobs[i].mail.lastStatus()
		}
	}
	return out
}

// byName are the jobs by name, for reading only. The caller holds t.mu.
func (t *term) byName() []*job {
	if t.sorted == nil {
		t.sorted = slices.SortedFunc(maps.Values(t.jobs), func(a, b *job) int { return strings.Compare(a.name, b.name) })
	}
	return t.sorted
}

// hasten has jobs take their steps before others, by how many links of a chain they are behind a job of which a fire goes on.
func (t *term) hasten(links map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, n := range links {
		if j := t.jobs[name]; j != nil {
			t.steps.Hasten(j, arrivals.Claim{Urgent: true, Ahead: n})
		}
	}
}

// look has a job read again what it does not watch.
func (t *term) look(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.jobs[name]; j != nil {
		j.mail.ask(true)
	}
}

// again gives a job that was left and is wanted back a new instance id.
func (t *term) again(name string) tree.JobInstance {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.identity(name)
}
