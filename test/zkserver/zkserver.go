// Package zkserver runs real ZooKeeper servers on this machine: for tests,
// benchmarks, trying a cluster out, and attacking one. Servers get free ports
// and directories of their own, and go with the process that started them.
//
// ZooKeeper and a Java runtime must be installed ("apt-get install
// zookeeper"). WASMJOB_TEST_ZOOKEEPER_CLASSPATH names another version's
// classpath.
package zkserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/test/child"
)

const (
	classpathEnv = "WASMJOB_TEST_ZOOKEEPER_CLASSPATH"
	serverJar    = "/usr/share/java/zookeeper.jar"
	// The server's jar pulls in what it needs, except for something that logs
	// and parts of what speaks TLS.
	defaultClasspath = "/etc/zookeeper/conf:" + serverJar + ":/usr/share/java/slf4j-simple.jar" +
		":/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport-native-unix-common.jar"
	mainClass = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
	install   = "install ZooKeeper (apt-get install zookeeper) or name its classpath in " + classpathEnv
)

// Options say which servers to start. The zero value is one server with
// ZooKeeper's own defaults.
type Options struct {
	// Servers is how many form the ensemble: 1 (the default) stands alone.
	Servers int
	// Dir holds a directory per server with configuration, data and log. It
	// is made if missing; empty is a temporary one that Close removes.
	Dir string
	// TickTime is ZooKeeper's unit of time, 2 s by default. No session can be
	// shorter than two ticks; up to 10 minutes are granted.
	TickTime time.Duration
	// SyncLimit is how many ticks a server may be out of touch with its
	// leader, 5 by default.
	SyncLimit int
	// NoSync lets a server answer before the disk has the data: faster, and
	// not to be measured.
	NoSync bool
	// Secure gives every server a second port, for TLS; what it needs besides
	// goes to Extra.
	Secure bool
	// PeerProxies puts a proxy between each server and the others' data
	// ports, so that CutPeers can part them.
	PeerProxies bool
	// Measured servers run as in production: the JVM's own defaults, and
	// ZooKeeper's for its log. Others have a small heap, start fast, take
	// little room on the disk, and are slow at large transactions.
	Measured bool
	// JavaArgs come before the class name, after ours.
	JavaArgs []string
	// Extra are more lines of zoo.cfg.
	Extra map[string]string
}

// Ensemble is the servers. They are numbered from 0. Its methods may be called
// from several goroutines, but not two at once for one server.
type Ensemble struct {
	options Options
	java    string
	path    string // class path
	scratch bool   // Dir is ours to remove
	servers []*server
}

// server is one of them. The fields above proc do not change.
type server struct {
	dir                              string
	client, secure, quorum, election int
	peers                            map[int]*Proxy // to the others' quorum ports

	mu   sync.Mutex
	proc *process // nil if it was never started
}

// process is one life of a server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // valid once exited is closed
}

var errPort = errors.New("port taken")

// Start starts the servers and waits until they serve, at most until ctx is
// done; ctx has no influence afterwards.
func Start(ctx context.Context, o Options) (*Ensemble, error) {
	if o.Servers == 0 {
		o.Servers = 1
	}
	if o.Servers < 0 {
		return nil, fmt.Errorf("zkserver: %d servers, expected at least 1", o.Servers)
	}
	if o.TickTime == 0 {
		o.TickTime = 2 * time.Second
	}
	if o.SyncLimit == 0 {
		o.SyncLimit = 5
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("zkserver: no Java runtime: %w; %s", err, install)
	}
	path := os.Getenv(classpathEnv)
	if path == "" {
		path = defaultClasspath
		if _, err := os.Stat(serverJar); err != nil {
			return nil, fmt.Errorf("zkserver: no ZooKeeper: %w; %s", err, install)
		}
	}
	e := &Ensemble{options: o, java: java, path: path}
	if o.Dir == "" {
		if e.options.Dir, err = os.MkdirTemp("", "zkserver-"); err != nil {
			return nil, fmt.Errorf("zkserver: %w", err)
		}
		e.scratch = true
	} else if e.options.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("zkserver: %w", err)
	}
	for attempt := range 5 {
		if err = e.start(ctx, attempt); err == nil {
			return e, nil
		}
		if !errors.Is(err, errPort) || ctx.Err() != nil {
			break
		}
		e.halt()
	}
	logs := e.Logs(40)
	return nil, errors.Join(fmt.Errorf("zkserver: %w\n%s", err, logs), e.Close())
}

// start makes one attempt with fresh ports.
func (e *Ensemble) start(ctx context.Context, attempt int) error {
	ports, err := freePorts(4 * e.options.Servers)
	if err != nil {
		return err
	}
	e.servers = nil
	for i := range e.options.Servers {
		p := ports[4*i:]
		e.servers = append(e.servers, &server{
			dir:    filepath.Join(e.options.Dir, fmt.Sprintf("server%d", i)),
			client: p[0], secure: p[1], quorum: p[2], election: p[3], peers: make(map[int]*Proxy),
		})
	}
	for i, s := range e.servers {
		if err := e.configure(i, s); err != nil {
			return err
		}
		if err := e.launch(s); err != nil {
			return err
		}
	}
	for i := range e.servers {
		if err := e.await(ctx, i); err != nil {
			return fmt.Errorf("server %d, attempt %d: %w", i, attempt+1, err)
		}
	}
	return nil
}

// freePorts finds ports that nobody listens on. They are below those that
// systems give to outgoing connections, so that a server can come back to its
// own.
func freePorts(n int) ([]int, error) {
	const low, high = 15000, 32000
	var ports []int
	for range 200 * n {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
		if len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports between %d and %d", n, low, high)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// configure writes a server's files.
func (e *Ensemble) configure(i int, s *server) error {
	if err := os.MkdirAll(filepath.Join(s.dir, "data"), 0o755); err != nil {
		return err
	}
	o := e.options
	tick := max(o.TickTime.Milliseconds(), 1)
	lines := map[string]string{
		"dataDir":                filepath.Join(s.dir, "data"),
		"clientPort":             strconv.Itoa(s.client),
		"clientPortAddress":      "127.0.0.1",
		"tickTime":               strconv.FormatInt(tick, 10),
		"initLimit":              strconv.FormatInt(max(10, 5_000/tick), 10),
		"syncLimit":              strconv.Itoa(o.SyncLimit),
		"maxSessionTimeout":      "600000",
		"maxClientCnxns":         "0",
		"4lw.commands.whitelist": "*",
		"admin.enableServer":     "false",
	}
	if !o.Measured {
		lines["preAllocSize"] = "1024"
	}
	if o.NoSync {
		lines["forceSync"] = "no"
	}
	if o.Secure {
		lines["secureClientPort"] = strconv.Itoa(s.secure)
		lines["secureClientPortAddress"] = "127.0.0.1"
		lines["serverCnxnFactory"] = "org.apache.zookeeper.server.NettyServerCnxnFactory"
	}
	if o.Servers > 1 {
		for j, peer := range e.servers {
			quorum := peer.quorum
			if o.PeerProxies && i != j {
				// A server that follows a moment before the other listens is
				// refused and tries again; one that is let in and then dropped
				// starts another election.
				p, err := newProxy("127.0.0.1:0", address(peer.quorum), 2*time.Second)
				if err != nil {
					return err
				}
				s.peers[j] = p
				quorum = p.port()
			}
			lines[fmt.Sprintf("server.%d", j+1)] = fmt.Sprintf("127.0.0.1:%d:%d", quorum, peer.election)
		}
	}
	for key, value := range o.Extra {
		lines[key] = value
	}
	var text strings.Builder
	for _, key := range sorted(lines) {
		fmt.Fprintf(&text, "%s=%s\n", key, lines[key])
	}
	return errors.Join(
		os.WriteFile(filepath.Join(s.dir, "zoo.cfg"), []byte(text.String()), 0o644),
		os.WriteFile(filepath.Join(s.dir, "data", "myid"), fmt.Appendf(nil, "%d\n", i+1), 0o644))
}

func sorted(lines map[string]string) []string {
	keys := make([]string, 0, len(lines))
	for key := range lines {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// launch begins a life of a server.
func (e *Ensemble) launch(s *server) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	var args []string
	if !e.options.Measured {
		args = append(args, "-Xms32m", "-Xmx256m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
	}
	args = append(args,
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=warn",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
	args = append(args, e.options.JavaArgs...)
	args = append(args, "-cp", e.path, mainClass, filepath.Join(s.dir, "zoo.cfg"))
	cmd := exec.Command(e.java, args...)
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = log, log
	p := &process{cmd: cmd, exited: make(chan struct{})}
	err = child.Start(cmd, func(err error) {
		p.err = err
		close(p.exited)
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", e.java, err)
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	return nil
}

// await waits until a server answers with data of its own directory, and
// belongs to a quorum.
func (e *Ensemble) await(ctx context.Context, i int) error {
	s := e.servers[i]
	s.mu.Lock()
	p := s.proc
	s.mu.Unlock()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		mode, err := e.mode(ctx, i)
		if err == nil && mode != "" {
			return nil
		}
		if err == nil {
			err = errors.New("not serving requests yet")
		}
		select {
		case <-p.exited:
			why := fmt.Errorf("it ended: %w", p.err)
			if strings.Contains(e.logOf(i, 60), "BindException") {
				why = fmt.Errorf("%w: %w", errPort, why)
			}
			return why
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		case <-retry.C:
		}
	}
}

// mode returns leader, follower or standalone; "" if the server is there but
// does not serve.
func (e *Ensemble) mode(ctx context.Context, i int) (string, error) {
	conf, err := ask(ctx, e.Addr(i), "conf")
	if err != nil {
		return "", err
	}
	if !strings.Contains(conf, e.servers[i].dir) {
		if !strings.Contains(conf, "dataDir=") {
			return "", nil
		}
		return "", fmt.Errorf("%w by another server at %s", errPort, e.Addr(i))
	}
	text, err := ask(ctx, e.Addr(i), "srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(text, "\n") {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode), nil
		}
	}
	return "", nil
}

// ask sends one of ZooKeeper's commands of four letters.
func ask(ctx context.Context, addr, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

// Ask sends server i one of ZooKeeper's commands of four letters, like "mntr".
func (e *Ensemble) Ask(ctx context.Context, i int, command string) (string, error) {
	return ask(ctx, e.Addr(i), command)
}

// Len is the number of servers.
func (e *Ensemble) Len() int { return len(e.servers) }

// Addr is where server i serves clients without TLS.
func (e *Ensemble) Addr(i int) string { return address(e.servers[i].client) }

// SecureAddr is where server i serves clients with TLS, if Options.Secure.
func (e *Ensemble) SecureAddr(i int) string { return address(e.servers[i].secure) }

// Dir is the directory of server i: its configuration, and its data in "data".
func (e *Ensemble) Dir(i int) string { return e.servers[i].dir }

// Connect is the connect string: all addresses.
func (e *Ensemble) Connect() string {
	addrs := make([]string, len(e.servers))
	for i := range e.servers {
		addrs[i] = e.Addr(i)
	}
	return strings.Join(addrs, ",")
}

// Pid is server i's process id, for tools that attack it.
func (e *Ensemble) Pid(i int) int {
	s := e.servers[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.cmd.Process.Pid
}

// Leader returns the server that leads, or stands alone.
func (e *Ensemble) Leader() (int, error) {
	for i := range e.servers {
		if mode, err := e.mode(context.Background(), i); err == nil && (mode == "leader" || mode == "standalone") {
			return i, nil
		}
	}
	return 0, errors.New("zkserver: no server leads")
}

// Await waits until server i serves requests, as one of a quorum.
func (e *Ensemble) Await(ctx context.Context, i int) error {
	if err := e.await(ctx, i); err != nil {
		return fmt.Errorf("zkserver: server %d: %w", i, err)
	}
	return nil
}

// Stop ends server i as an operator does, with SIGTERM, and waits for its end.
func (e *Ensemble) Stop(i int) error { return e.end(i, terminate) }

// Kill ends server i with SIGKILL and waits for its end.
func (e *Ensemble) Kill(i int) error { return e.end(i, kill) }

// Pause stops server i in its tracks, with SIGSTOP; on a busy machine it may do
// a little more before it stands.
func (e *Ensemble) Pause(i int) error { return e.signal(i, pause) }

// Resume lets a paused server go on.
func (e *Ensemble) Resume(i int) error { return e.signal(i, resume) }

func (e *Ensemble) signal(i int, send func(*os.Process) error) error {
	s := e.servers[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return fmt.Errorf("zkserver: server %d was not started", i)
	}
	if err := send(s.proc.cmd.Process); err != nil {
		return fmt.Errorf("zkserver: server %d: %w", i, err)
	}
	return nil
}

func (e *Ensemble) end(i int, send func(*os.Process) error) error {
	if err := e.signal(i, send); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-e.servers[i].proc.exited
	return nil
}

// Restart starts server i again on its data and ports, after Stop or Kill. It
// returns as soon as the process runs; see Await.
func (e *Ensemble) Restart(i int) error {
	s := e.servers[i]
	select {
	case <-s.proc.exited:
	default:
		return fmt.Errorf("zkserver: server %d still runs", i)
	}
	if err := e.launch(s); err != nil {
		return fmt.Errorf("zkserver: server %d: %w", i, err)
	}
	return nil
}

// CutPeers parts server i from the others: what they send each other is held
// back, nobody is told. Elections are not touched. It needs
// Options.PeerProxies.
func (e *Ensemble) CutPeers(i int) { e.eachPeer(i, func(p *Proxy) { p.Hold(ToServer | ToClient) }) }

// HealPeers undoes CutPeers.
func (e *Ensemble) HealPeers(i int) { e.eachPeer(i, (*Proxy).Heal) }

func (e *Ensemble) eachPeer(i int, do func(*Proxy)) {
	for j, s := range e.servers {
		for k, p := range s.peers {
			if j == i || k == i {
				do(p)
			}
		}
	}
}

// halt ends all servers at once.
func (e *Ensemble) halt() {
	for _, s := range e.servers {
		s.mu.Lock()
		if s.proc != nil {
			_ = kill(s.proc.cmd.Process)
			<-s.proc.exited
		}
		s.mu.Unlock()
		for _, p := range s.peers {
			p.Close()
		}
	}
}

// Close kills the servers. It may be called more than once.
func (e *Ensemble) Close() error {
	e.halt()
	if e.scratch {
		return os.RemoveAll(e.options.Dir)
	}
	return nil
}

// Logs are the last lines of every server's log.
func (e *Ensemble) Logs(lines int) string {
	var text strings.Builder
	for i := range e.servers {
		fmt.Fprintf(&text, "--- server %d\n%s\n", i, e.logOf(i, lines))
	}
	return text.String()
}

func (e *Ensemble) logOf(i, lines int) string {
	text, err := os.ReadFile(filepath.Join(e.servers[i].dir, "server.log"))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// TB is what ForTest needs of a testing.TB.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
	Failed() bool
	TempDir() string
}

// ForTest starts servers for a test, which ends them. If it failed, it prints
// the last of their logs.
func ForTest(t TB, o Options) *Ensemble {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := Start(ctx, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", e.Logs(30))
		}
		if err := e.Close(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return e
}
