package chaos

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

func dial(ctx context.Context, connect string, timeout time.Duration) (registry.Center, error) {
	s, err := zookeeper.Dial(ctx, zookeeper.Options{Connect: connect, SessionTimeout: timeout})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func noDial(context.Context, string, time.Duration) (registry.Center, error) {
	return nil, errors.New("there is none")
}

// built is the host that all tests of this package attack.
var built struct {
	dir  string
	once sync.Once
	err  error
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "wasmjob-chaos-")
	if err != nil {
		log.Fatal(err)
	}
	built.dir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		log.Print(err)
	}
	os.Exit(code)
}

// program is the host, which the first test that wants it builds.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(built.dir, "wasmjob")
	built.once.Do(func() { built.err = build(path, "./cmd/host") })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return path
}

// build builds a program, without the race detector: compiling modules would
// take ten times as long.
func build(path, source string) error {
	c := exec.Command("go", "build", "-trimpath", "-o", path, source)
	c.Dir = filepath.Join("..", "..")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// attacked runs an attack that has to end without a violation. Where it keeps
// things goes only if it did.
func attacked(t *testing.T, o Options) *Report {
	t.Helper()
	o.Program, o.Dial, o.Say = program(t), dial, func(line string) { t.Log(line) }
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	r.Write(&text)
	t.Logf("\n%s", &text)
	if !r.OK() || r.Overlaps != 0 || r.Losses != 0 {
		t.Errorf("%d violations; see report.txt in %s, and again: wasmjob-chaos --seed %d --duration -1s", len(r.Violations), r.Dir, o.Seed)
	}
	return r
}

// TestAttack is the attack in short: the main kinds once.
func TestAttack(t *testing.T) {
	t.Parallel()
	main := []Kind{KillLeader, Halt, PartitionSilent, Rolling, LeaderKilled, LeaderHalted, QuorumLong}
	r := attacked(t, Options{Seed: 1, Duration: -1, SessionTimeout: 4 * time.Second, Kinds: main})
	if len(r.Events) != len(main) {
		t.Errorf("%d faults were made, want %d", len(r.Events), len(main))
	}
	for _, f := range r.Figures() {
		if f.Violated {
			t.Errorf("a figure is missed: %s", f.Text)
		}
	}
	for _, e := range r.Events {
		switch {
		case e.Whole.IsZero():
			t.Errorf("%s: the cluster was never whole again", e.Kind)
		case e.Kind == KillLeader && (e.Recovery == 0 || e.Crashed > 0 && e.Retaken == 0):
			t.Errorf("%s: recovered after %s, %d items after %s", e.Kind, e.Recovery, e.Crashed, e.Retaken)
		case e.Watched != (e.Kind == LeaderKilled || e.Kind == LeaderHalted || e.Kind == QuorumLong), e.Watched && e.Outage == 0,
			e.Kind == QuorumLong && e.Outage < 4*time.Second:
			t.Errorf("%s: looked at is %v, without a leader for %s", e.Kind, e.Watched, e.Outage)
		}
	}
	if r.Halted == 0 || r.Late != 0 || r.Fires < 37 {
		t.Errorf("%d guests were halted and wrote %d lines afterwards; %d fires looked at", r.Halted, r.Late, r.Fires)
	}
	if r.Runs < 500 || r.Stints < 500 || r.Journal == nil || r.Journal.Begins < 500 || r.Offsets == 0 || r.Numbers == 0 {
		t.Errorf("the cluster had little to do: %d runs, %d by the guests, journal %+v, %d offsets", r.Runs, r.Stints, r.Journal, r.Offsets)
	}
}

// TestForeignCluster: with a test cluster of somebody's only hosts are harmed,
// what is in use is refused, and nothing is left.
func TestForeignCluster(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 400 * time.Millisecond, NoSync: true})
	o := Options{Connect: e.Connect() + "/somewhere", Namespace: "attack", Seed: 1, Hosts: 2, Duration: -1,
		SessionTimeout: 4 * time.Second, Kinds: []Kind{KillAndReturn, PartitionSilent, LeaderKilled}}
	r := attacked(t, o)
	if len(r.Events) != 2 || r.Skipped[LeaderKilled] == "" || r.Journal != nil || len(r.Left) > 0 {
		t.Errorf("%d faults, left out: %v, left: %v", len(r.Events), r.Skipped, r.Left)
	}
	c, err := dial(t.Context(), o.Connect, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if nodes, err := c.Read(t.Context(), registry.Children("/")); err != nil || slices.ContainsFunc(nodes[0].Names, func(name string) bool { return strings.HasPrefix(name, "attack") }) {
		t.Errorf("after the attack there are %v, %v", nodes, err)
	}

	// One job of an attack, one with the name of such a one, and one of others.
	configuration := func(description string) []byte {
		return jobconfig.Configuration{JobName: "x", Cron: "0 0 0 * * ?", ShardingTotalCount: 1, Description: description}.YAML()
	}
	for name, description := range map[string]string{"tick": ourMark, "sum": "mine", "other": ourMark} {
		l := tree.NewLayout(o.Namespace, name)
		if _, err := c.Commit(t.Context(), registry.Ensure(l.Root()), registry.Create(l.Root()+"/config", configuration(description)), registry.Ensure(l.Sibling()+"/offset/0")); err != nil {
			t.Fatal(err)
		}
	}
	o.Program, o.Dial = "never started", dial
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "has jobs") {
		t.Errorf("attacked a namespace that has jobs: %v", err)
	}
	if removed, err := Remove(t.Context(), o); err != nil || !slices.Equal(removed, []string{"tick"}) {
		t.Errorf("removed %v, %v", removed, err)
	}
	tick := tree.NewLayout(o.Namespace, "tick")
	nodes, err := c.Read(t.Context(), registry.Children("/attack"), registry.Data(tick.Root()), registry.Data(tick.Sibling()))
	if err != nil || !slices.Equal(nodes[0].Names, []string{"other", "sum"}) || nodes[1].Exists || nodes[2].Exists {
		t.Errorf("left are %+v, %v", nodes, err)
	}
}

// TestTraces: a node that names an instance is found, wherever it is, but for
// those that tell of the past.
func TestTraces(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 400 * time.Millisecond, NoSync: true})
	c, err := dial(t.Context(), e.Connect(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const id = "127.0.0.11@-@77-abc"
	l := tree.NewLayout("n", "x")
	found := []string{
		l.Root() + "/instances/" + id, l.Root() + "/leader/election/instance", l.Root() + "/leader/election/latch/" + id + "-0000000001", l.Root() + "/leader/failover/latch/a-" + id,
		l.Root() + "/sharding/0/running", l.Root() + "/sharding/1/failover", l.Root() + "/trigger/" + id, l.Sibling() + "/instances/" + id,
		l.Sibling() + "/members", l.Sibling() + "/assignment/" + id, l.Sibling() + "/runs/" + id, l.Sibling() + "/anything/else",
	}
	past := []string{l.Root() + "/sharding/0/instance", l.Sibling() + "/leader", l.Sibling() + "/assignment", l.Sibling() + "/sharding/0"}
	for _, p := range slices.Concat([]string{l.Root() + "/config"}, past, found) {
		if _, err := c.Commit(t.Context(), registry.Ensure(p), registry.Set(p, []byte("a "+id+" b"), registry.AnyVersion)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Commit(t.Context(), registry.Set(l.Root()+"/config", nil, registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	s := &stage{o: Options{Namespace: "n"}}
	for begins, want := range map[string][]string{"127.0.0.11@-@77-": found, "127.0.0.11@-@": found, "127.0.0.11@-@7-": nil, "127.0.0.1@-@": nil} {
		list, err := s.traces(t.Context(), c, []job{{name: "x"}}, []string{begins})
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, text := range list {
			p, _, _ := strings.Cut(text, " ")
			paths = append(paths, p)
		}
		slices.Sort(paths)
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(paths, want) {
			t.Errorf("%s: %q\nwant %q", begins, paths, want)
		}
	}
}

// certificates makes an authority and a server's certificate for a name, and
// writes them to files: the authority's certificate, and the server's with its
// key.
func certificates(t *testing.T, name string) (authority, server string) {
	t.Helper()
	dir := t.TempDir()
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	template := func(serial int64) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: fmt.Sprint(serial)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	}
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		fail(err)
		return k
	}
	root, rootKey, leafKey := template(1), key(), key()
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	fail(err)
	leaf := template(2)
	leaf.DNSNames, leaf.KeyUsage, leaf.ExtKeyUsage = []string{name}, x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, leafKey.Public(), rootKey)
	fail(err)
	private, err := x509.MarshalPKCS8PrivateKey(leafKey)
	fail(err)
	part := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	authority, server = filepath.Join(dir, "authority.pem"), filepath.Join(dir, "server.pem")
	fail(os.WriteFile(authority, part("CERTIFICATE", rootDER), 0o600))
	fail(os.WriteFile(server, append(part("PRIVATE KEY", private), part("CERTIFICATE", leafDER)...), 0o600))
	return authority, server
}

// TestForeignTLS: the command attacks a test cluster that speaks TLS, under a name
// that the proxies of the hosts do not have, and may do so again.
func TestForeignTLS(t *testing.T) {
	t.Parallel()
	authority, server := certificates(t, "localhost")
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 400 * time.Millisecond, NoSync: true, Secure: true, Extra: map[string]string{
		"ssl.keyStore.location": server, "ssl.keyStore.type": "PEM", "ssl.trustStore.location": authority, "ssl.trustStore.type": "PEM", "ssl.clientAuth": "none",
	}})
	_, port, err := net.SplitHostPort(e.SecureAddr(0))
	if err != nil {
		t.Fatal(err)
	}
	command := filepath.Join(filepath.Dir(program(t)), "wasmjob-chaos")
	if err := build(command, "./cmd/chaos"); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		args = append([]string{"--zk", "localhost:" + port, "--namespace", "attack", "--zk-tls-ca", filepath.Base(authority)}, args...)
		c := exec.CommandContext(t.Context(), command, args...)
		c.Dir = filepath.Dir(authority)
		c.Env = append(os.Environ(), "WASMJOB_ZK_CREDENTIALS=user:word")
		out, err := c.CombinedOutput()
		t.Logf("%q\n%s", args, out)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	out := run("--hosts", "2", "--duration", "-1s", "--seed", "1", "--session-timeout", "4s", "--only", "partition,partition-silent")
	for _, want := range []string{"overlaps     0\n", "losses       0\n", "violations   0\n", "a host is cut off", "faults       2 of 2 kinds", "11 jobs were taken out of namespace attack again"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if out := run("--remove"); !strings.Contains(out, "there are no jobs of an attack in namespace attack\n") {
		t.Error("something was left")
	}
}
