// Command cluster shows a cluster on one machine: it starts a real ZooKeeper
// and three hosts with the example jobs, shows who runs what, and says what to
// try. It ends with Ctrl-C, and leaves nothing behind.
//
// ElasticJob knows servers by their IP address, so that each host gets a
// loopback address of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/wasmjob/wasmjob/test/zkserver"
)

const (
	// sessionTimeout is how soon others take over from a host that was killed.
	sessionTimeout = 6 * time.Second
	tickTime       = 500 * time.Millisecond
	// patience bounds the start: the first one compiles the examples.
	patience = 10 * time.Minute
	// grace is how long hosts have to drain before they are killed.
	grace = 20 * time.Second
	// glance lies between two looks at whether a host is ready.
	glance    = 200 * time.Millisecond
	firstPort = 9771
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := cluster{out: os.Stdout, terminal: term.IsTerminal(int(os.Stdout.Fd()))}
	flag.StringVar(&c.program, "program", "bin/wasmjob", "the host to run")
	flag.StringVar(&c.plugins, "plugins", "plugins/examples", "the directory with the jobs")
	flag.StringVar(&c.mount, "mount", "", "a directory for a job, as wasmjob run takes it")
	flag.StringVar(&c.grants, "grants", "", "what jobs may do outside of their sandbox, as wasmjob run takes it")
	flag.StringVar(&c.job, "job", "cities", "the job that is shown")
	hosts := flag.Int("hosts", 3, "how many hosts")
	flag.Parse()
	if err := c.run(ctx, *hosts); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		stop()
		os.Exit(1)
	}
}

// cluster is what runs.
type cluster struct {
	program, plugins, mount, grants, job string
	out                                  io.Writer
	terminal                             bool // out is one
	dir                                  string
	servers                              string // of ZooKeeper
	hosts                                []*node
}

// node is one host.
type node struct {
	ip, admin string
	log       *os.File
	cmd       *exec.Cmd
	ended     chan struct{} // closed when the process has ended
}

func (c *cluster) run(ctx context.Context, hosts int) (err error) {
	if c.dir, err = os.MkdirTemp("", "wasmjob-cluster-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	starting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.say("compiling the jobs, which takes a while the first time")
	if err := c.compile(starting); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	c.say("starting ZooKeeper")
	zk, err := zkserver.Start(starting, zkserver.Options{Dir: filepath.Join(c.dir, "zookeeper"), TickTime: tickTime})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, zk.Close()) }()
	c.servers = zk.Connect()
	defer c.end()
	for n := range hosts {
		c.say("starting host %d of %d", n+1, hosts)
		if err := c.start(n); err != nil {
			return err
		}
	}
	c.say("waiting until they are ready")
	for _, h := range c.hosts {
		if err := c.ready(starting, h); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	if err := c.show(ctx, "job items", c.job); err != nil {
		return err
	}
	if err := c.show(ctx, "status", c.job); err != nil {
		return err
	}
	console, err := c.console(ctx)
	if err != nil {
		return err
	}
	c.help(console)
	c.watch(ctx)
	c.say("stopping")
	return nil
}

func (c *cluster) say(format string, args ...any) {
	fmt.Fprintf(c.out, "cluster: "+format+"\n", args...)
}

// compile fills the cache of compiled modules, so that not every host has to.
func (c *cluster) compile(ctx context.Context) error {
	args := []string{"validate", c.plugins}
	if c.grants != "" {
		args = append(args, "--grants", c.grants)
	}
	out, err := exec.CommandContext(ctx, c.program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s validate %s: %w\n%s", c.program, c.plugins, err, out)
	}
	return nil
}

// start starts host n.
func (c *cluster) start(n int) error {
	h := &node{ip: fmt.Sprintf("127.0.0.%d", n+1), admin: fmt.Sprintf("127.0.0.1:%d", freePort(firstPort+n)), ended: make(chan struct{})}
	var err error
	if h.log, err = os.Create(filepath.Join(c.dir, fmt.Sprintf("host%d.log", n+1))); err != nil {
		return err
	}
	h.cmd = exec.Command(c.program, c.arguments(n, h.ip, h.admin)...)
	h.cmd.Stdout, h.cmd.Stderr = h.log, h.log
	ownGroup(h.cmd) // Ctrl-C is for this process, which stops the hosts
	if err := h.cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("%w (make build)", err), h.log.Close())
	}
	go func() { // joined by end, through ended
		defer close(h.ended)
		_ = h.cmd.Wait() // how it ended is in its state
	}()
	c.hosts = append(c.hosts, h)
	return nil
}

// arguments are those of host n.
func (c *cluster) arguments(n int, ip, admin string) []string {
	args := []string{"run", "--plugins", c.plugins, "--zk", c.servers, "--session-timeout", sessionTimeout.String(),
		"--server-ip", ip, "--admin", admin, "--history", filepath.Join(c.dir, fmt.Sprintf("host%d.jsonl", n+1))}
	if c.mount != "" {
		args = append(args, "--mount", c.mount)
	}
	if c.grants != "" {
		args = append(args, "--grants", c.grants)
	}
	return args
}

// freePort is the port that is wanted, or any other if it is taken.
func freePort(want int) int {
	for _, port := range []int{want, 0} {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		port = l.Addr().(*net.TCPAddr).Port
		_ = l.Close() // it was only asked for
		return port
	}
	return want
}

// ready waits until a host is ready, or has ended.
func (c *cluster) ready(ctx context.Context, h *node) error {
	client := http.Client{Timeout: time.Second}
	ticks := time.NewTicker(glance)
	defer ticks.Stop()
	for {
		if answer, err := client.Get("http://" + h.admin + "/readyz"); err == nil {
			_ = answer.Body.Close() // the code says it all
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ticks.C:
		case <-h.ended:
			return fmt.Errorf("the host on %s has ended (%s); its log:\n%s", h.ip, h.cmd.ProcessState, c.logOf(h))
		case <-ctx.Done():
			return fmt.Errorf("the host on %s is not ready; its log:\n%s", h.ip, c.logOf(h))
		}
	}
}

func (c *cluster) logOf(h *node) string {
	data, err := os.ReadFile(h.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// show runs a command against the registry.
func (c *cluster) show(ctx context.Context, command, job string) error {
	fmt.Fprintf(c.out, "\n$ %s %s %s --zk %s\n", c.program, command, job, c.servers)
	cmd := exec.CommandContext(ctx, c.program, append(strings.Fields(command), job, "--zk", c.servers)...)
	cmd.Stdout, cmd.Stderr = c.out, c.out
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s %s: %w", command, job, err)
	}
	return nil
}

// console is where a browser reaches the console, and how it is signed in: in a terminal by a link
// that does it once, elsewhere by the command that prints one. A link is worth a password.
func (c *cluster) console(ctx context.Context) (string, error) {
	address := c.hosts[0].admin
	if !c.terminal {
		return fmt.Sprintf("http://%s/  (%s access login --admin %[1]s prints a link that signs a browser in)", address, c.program), nil
	}
	cmd := exec.CommandContext(ctx, c.program, "access", "login", "--admin", address)
	cmd.Stderr = c.out
	link, err := cmd.Output()
	if err != nil && ctx.Err() == nil {
		return "", fmt.Errorf("access login: %w", err)
	}
	return strings.TrimSpace(string(link)) + "  (signs a browser in, once)", nil
}

// help says what to try, and where the console is.
func (c *cluster) help(console string) {
	zk := " --zk " + c.servers
	last := c.hosts[len(c.hosts)-1]
	next := len(c.hosts) + 1
	more := c.arguments(next-1, fmt.Sprintf("127.0.0.%d", next), fmt.Sprintf("127.0.0.1:%d", freePort(firstPort+len(c.hosts))))
	for i, a := range more {
		if strings.ContainsAny(a, " $'\"") {
			more[i] = "'" + a + "'"
		}
	}
	fmt.Fprintf(c.out, `
The console: %[13]s

What to try, in other terminals and in this directory:

watch who runs what       %[1]s job items %[2]s%[3]s --watch
kill a host               kill -9 %[4]d      (%[5]s; after %[6]s the others have its items)
stop one in good order    kill %[7]d         (%[8]s; its items move at once)
add a host                %[1]s %[9]s
pause on a server         %[1]s job pause %[2]s --server %[10]s%[3]s
resume it                 %[1]s job resume %[2]s --server %[10]s%[3]s
run a job now             %[1]s job run slow%[3]s
all jobs                  %[1]s status%[3]s
the jobs, by any host     %[1]s job list
one of the hosts          %[1]s status --admin %[11]s
was anything lost         %[1]s job verify --settle 1m %[12]s

Ctrl-C here stops all of it, and deletes its files, the histories too.
`, c.program, c.job, zk, last.cmd.Process.Pid, last.ip, sessionTimeout, c.hosts[0].cmd.Process.Pid, c.hosts[0].ip,
		strings.Join(more, " "), c.hosts[len(c.hosts)/2].ip, c.hosts[len(c.hosts)/2].admin, filepath.Join(c.dir, "*.jsonl"), console)
}

// watch tells of hosts that end, until ctx is done.
func (c *cluster) watch(ctx context.Context) {
	gone := make(chan *node)
	var all sync.WaitGroup
	for _, h := range c.hosts {
		all.Go(func() {
			select {
			case <-h.ended:
			case <-ctx.Done():
				return
			}
			select {
			case gone <- h:
			case <-ctx.Done():
			}
		})
	}
	defer all.Wait()
	for {
		select {
		case h := <-gone:
			c.say("the host on %s has ended (%s)", h.ip, h.cmd.ProcessState)
		case <-ctx.Done():
			return
		}
	}
}

// end drains all hosts, and kills those that take too long.
func (c *cluster) end() {
	for _, h := range c.hosts {
		_ = h.cmd.Process.Signal(syscall.SIGTERM) // if it has ended, all the better
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	for _, h := range c.hosts {
		select {
		case <-h.ended:
		case <-late.C:
			for _, h := range c.hosts {
				_ = h.cmd.Process.Kill() // as above
			}
			<-h.ended
		}
		_ = h.log.Close() // the directory goes, too
	}
}
