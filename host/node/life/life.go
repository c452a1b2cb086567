// Package life proves that this process lives: to the kernel and to systemd, which
// end it otherwise, and to the next start.
package life

import (
	"cmp"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/node/deadman"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

const (
	// frozenAfter is how long after its last heartbeat a process counts as frozen:
	// the kernel ends it.
	frozenAfter = time.Minute
	// beatEvery is the interval between heartbeats. A supervisor may ask for a shorter one.
	beatEvery = 10 * time.Second
	// readyEvery is the interval at which the host's readiness is checked. It depends on many loops, and no
	// single event reports it.
	readyEvery = time.Second
	// notifyLimit is how long a message to the supervisor may take.
	notifyLimit = time.Second
)

// Life proves that this process lives: to the kernel and to systemd, which end it
// otherwise, and to the next start. Every part of it may be missing.
type Life struct {
	log    *zap.Logger
	guard  *deadman.Guard  // nil: off, or the kernel has no timers for us
	record *deadman.Record // nil: there is no place for it
	Last   *deadman.Last   // nil: nothing is known
	notify *notifier       // nil: no systemd waits
	every  time.Duration
	host   atomic.Value // the string that Begun gave

	numbers  *numbers // nil: they are not kept
	greatest func() int64

	news  chan struct{} // there is something to write down; size 1
	stop  chan struct{}
	parts sync.WaitGroup
}

// Options say what a process proves, and to whom.
type Options struct {
	// Timer asks for the kernel's timers; IfAny accepts that it has none.
	Timer, IfAny bool
	// Dir is the directory of the record that tells the next start how this process ended; empty: no record.
	Dir string
	// Greatest is the greatest transaction number that is known of a namespace in a
	// registry. The next start on the same Registry reads it in Dir. nil: it is not kept.
	Greatest            func() int64
	Registry, Namespace string
	Getenv              func(string) string
	Log                 *zap.Logger
}

// New sets up what the options and the environment ask for. What cannot be
// had is logged, and the host goes without.
func New(o Options) *Life {
	log := o.Log
	v := &Life{log: log, every: beatEvery, news: make(chan struct{}, 1), stop: make(chan struct{})}
	if o.Timer {
		var err error
		switch v.guard, err = deadman.New(frozenAfter); {
		case errors.Is(err, errors.ErrUnsupported) && o.IfAny:
			v.guard = nil
		case err != nil:
			v.guard = nil
			log.Warn("no dead man's timer: the host ends by its own check if a guest outlives the session, but not if it is frozen itself", zap.Error(err))
		case v.guard.First():
			log.Warn("this process is the first of its container, which the kernel protects from SIGKILL: its dead man's timer sends SIGHUP, which cannot end a process that was stopped from outside; give the container an init (docker run --init, shareProcessNamespace)")
		}
	}
	if o.Dir != "" {
		var err error
		if v.record, v.Last, err = deadman.OpenRecord(o.Dir); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			log.Warn("the next start will not know how this host has ended", zap.Error(err))
		}
	}
	if o.Dir != "" && o.Greatest != nil {
		var err error
		v.greatest = o.Greatest
		if v.numbers, err = openNumbers(o.Dir, o.Registry, o.Namespace); err != nil {
			log.Warn("this host does not know which fences were given out before it started", zap.Error(err))
		}
	}
	var err error
	if v.notify, err = newNotifier(o.Getenv); err != nil {
		log.Warn("systemd is not notified", zap.Error(err))
	}
	if v.notify != nil && v.notify.watchdog > 0 {
		v.every = min(v.every, v.notify.watchdog/3)
	}
	return v
}

// Start begins to prove that the process lives, until close. ready reports
// whether the host is at work.
func (v *Life) Start(ready func() bool) {
	v.parts.Go(func() { v.beat(ready) })
	v.parts.Go(v.keep)
}

func (v *Life) beat(ready func() bool) {
	beats, looks := time.NewTicker(v.every), time.NewTicker(readyEvery)
	defer beats.Stop()
	defer looks.Stop()
	for waits := v.notify != nil; ; {
		if v.guard != nil {
			v.guard.Beat()
		}
		v.notify.send("WATCHDOG=1")
		v.noted()
		for beaten := false; !beaten; {
			select {
			case <-beats.C:
				beaten = true
			case <-looks.C:
				if waits && ready() {
					v.notify.send("READY=1")
					waits = false
				}
			case <-v.stop:
				return
			}
		}
	}
}

// Kept is the greatest transaction number that earlier processes here have left, and where
// that is written; 0 if there is none.
func (v *Life) Kept() (greatest int64, file string) {
	if v.numbers == nil {
		return 0, ""
	}
	return v.numbers.kept.Greatest, v.numbers.path
}

// keepNumbers leaves the greatest number to the next process.
func (v *Life) keepNumbers() error {
	if v.numbers == nil {
		return nil
	}
	return v.numbers.keep(v.greatest())
}

// keep writes down which instance this is, what the timers are set to, and the greatest
// transaction number. A disk that hangs delays nothing else.
func (v *Life) keep() {
	failed, lost := false, false
	for written := time.Now(); ; {
		select {
		case <-v.news:
		case <-v.stop:
			return
		}
		if time.Since(written) >= beatEvery/2 {
			written = time.Now()
			if err := v.keepNumbers(); err != nil && !lost {
				lost = true
				v.log.Warn("the next start may not know which fences were given out", zap.Error(err))
			}
		}
		if v.record == nil {
			continue
		}
		host, _ := v.host.Load().(string)
		if err := v.record.Note(host, v.guard); err != nil && !failed {
			failed = true
			v.log.Warn("the next start may not know how this host has ended", zap.Error(err))
		}
	}
}

// noted says that there is something to write down.
func (v *Life) noted() {
	select {
	case v.news <- struct{}{}:
	default:
	}
}

// Fence is the timer of a new session; nil if there is none.
func (v *Life) Fence() (f *deadman.Fence, renewed func(sent, timeout time.Duration)) {
	if v.guard == nil {
		return nil, nil
	}
	f = v.guard.Fence()
	return f, func(sent, timeout time.Duration) {
		f.Renew(sent, timeout)
		v.noted()
	}
}

// Begun says which instance this process is from now on. It does not block.
func (v *Life) Begun(host string) {
	v.host.Store(host)
	v.noted()
}

// Stopping says that the host drains.
func (v *Life) Stopping() { v.notify.send("STOPPING=1") }

// Ends writes down how the process ends.
func (v *Life) Ends(how deadman.Ending) error {
	if v.record == nil {
		return nil
	}
	return v.record.Close(how)
}

// Close ends all of it, in good order.
func (v *Life) Close() error {
	close(v.stop)
	v.parts.Wait()
	if v.guard != nil {
		v.guard.Close()
	}
	return errors.Join(v.notify.Close(), v.keepNumbers(), v.Ends(deadman.Ended))
}

// LastEnd is how the last host here ended; zero if it said so itself or nothing
// is known.
func (v *Life) LastEnd() reason.Reason {
	if v.Last == nil || v.Last.Ending == deadman.Ended {
		return reason.Reason{}
	}
	return reason.New(reason.LastHostDied, v.Last.PID, v.Last.Started, v.Last.Why())
}

// LastHost is the last instance that the last host here was; empty if nothing is known.
func (v *Life) LastHost() string {
	if v.Last == nil {
		return ""
	}
	return v.Last.Host
}

// Metrics adds what there is to count.
func (v *Life) Metrics(m *metrics.Metrics) error {
	if v.Last != nil {
		if err := m.LastEnd(string(v.Last.Ending), deadman.Endings()); err != nil {
			return err
		}
	}
	armed := 0.0
	if v.guard != nil {
		armed = 1
	}
	return m.GaugeFunc("dead_man_armed", "1 if the kernel ends this process when it no longer proves that it lives.", func() float64 { return armed })
}

// notifier speaks sd_notify(3) with systemd, or whatever has started this
// process. A nil one says nothing.
type notifier struct {
	conn *net.UnixConn
	// watchdog is how long systemd waits for a sign of life; 0 is for ever.
	watchdog time.Duration
}

// newNotifier is nil where no messages are waited for.
func newNotifier(getenv func(string) string) (*notifier, error) {
	socket := getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil, nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	n := &notifier{conn: conn}
	// Microseconds, and for whom they are meant.
	usec, err := strconv.ParseInt(cmp.Or(getenv("WATCHDOG_USEC"), "0"), 10, 64)
	if pid := getenv("WATCHDOG_PID"); err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog = time.Duration(usec) * time.Microsecond
	}
	return n, nil
}

// send passes a message on. It reports no error: systemd acts on what does not
// come.
func (n *notifier) send(message string) {
	if n == nil {
		return
	}
	_ = n.conn.SetWriteDeadline(time.Now().Add(notifyLimit))
	_, _ = n.conn.Write([]byte(message))
}

func (n *notifier) Close() error {
	if n == nil {
		return nil
	}
	return n.conn.Close()
}
