package zookeeper_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]zookeeper.Options{
		"expected \"host:port":   {Connect: "a:1,,b:2"},
		"connect string":         {Connect: ""},
		"ends with /":            {Connect: "a:1/x/"},
		"empty segment":          {Connect: "a:1//x"},
		"user:password":          {Connect: "a:1", Credentials: "nobody"},
		"expected at least 1ms":  {Connect: "a:1", SessionTimeout: -1},
		"expected at least 4096": {Connect: "a:1", MaxRequest: 10},
	} {
		if _, err := zookeeper.Dial(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// ZooKeeper is not there when a host starts: it waits, says so, and goes on
// when it comes.
func TestDialWaits(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, fast(1))
	if err := e.Kill(0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := zookeeper.Dial(ctx, zookeeper.Options{Connect: e.Connect()})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), e.Connect()) {
		t.Errorf("dial: %v", err)
	}
	var once sync.Once
	waits := make(chan error, 100)
	rc := dial(t, zookeeper.Options{Connect: e.Connect(), OnWait: func(err error) {
		waits <- err
		once.Do(func() {
			if err := e.Restart(0); err != nil {
				t.Error(err)
			}
		})
	}})
	if err := <-waits; !strings.Contains(err.Error(), "waiting for ZooKeeper at "+e.Connect()) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("told: %v", err)
	}
	commit(t, rc, registry.Ensure("/a"))
}

// Something that is no ZooKeeper listens there.
func TestDialStranger(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mute sync.WaitGroup
	defer mute.Wait()
	defer l.Close()
	mute.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = zookeeper.Dial(ctx, zookeeper.Options{Connect: l.Addr().String(), SessionTimeout: time.Second})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial: %v", err)
	}
}

func TestChroot(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	plain := dial(t, zookeeper.Options{Connect: e.Connect()})
	root := fresh(t, plain) + "/made/by/dial"
	rc := dial(t, zookeeper.Options{Connect: e.Connect() + root})
	again := dial(t, zookeeper.Options{Connect: e.Connect() + root})
	commit(t, rc, registry.Create("/a", []byte("x")), registry.Set("/", []byte("root"), 0))
	r := commit(t, again, registry.CreateSequential("/", nil), registry.CreateSequential("/a/n-", nil), registry.Ensure("/b/c"))
	if len(r[0].Path) != 11 || !strings.HasPrefix(r[1].Path, "/a/n-") {
		t.Errorf("sequential: %q, %q", r[0].Path, r[1].Path)
	}
	for path, want := range map[string]string{"": "root", "/a": "x", "/b/c": ""} {
		if n := read(t, plain, root+path); !n.Exists || string(n.Data) != want {
			t.Errorf("%s: %+v", path, n)
		}
	}
	nodes, err := rc.Read(t.Context(), registry.Children("/"), registry.Data(r[1].Path))
	if err != nil || !slices.Equal(nodes[0].Names, []string{r[0].Path[1:], "a", "b"}) || !nodes[1].Exists {
		t.Errorf("children of /: %+v, %v", nodes, err)
	}
	watch, err := rc.Watch(within(t), registry.Data("/"), registry.Data("/a"), registry.Children("/a"))
	if err != nil {
		t.Fatal(err)
	}
	<-watch
	commit(t, plain, registry.Set(root, []byte("new"), 1), registry.Set(root+"/a", nil, 0), registry.Create(root+"/a/y", nil))
	for s := range watch {
		if string(s.Data("/").Data) == "new" && s.Data("/a").Version == 1 && len(s.Children("/a")) == 2 {
			break
		}
	}
	var oe *registry.OpError
	for _, op := range []registry.Op{registry.Create("/", nil), registry.CreateEphemeral("/", nil), registry.Absent("/")} {
		for _, rc := range []registry.Center{rc, plain} {
			if _, err := rc.Commit(t.Context(), registry.Ensure("/"), op); !errors.As(err, &oe) || oe.Index != 1 || oe.Reason != registry.ReasonExists {
				t.Errorf("%s /: %v", op.Kind, err)
			}
		}
	}
}

// TestChrootDeleted: a chroot that was deleted is made again by the next commit that ensures a node.
func TestChrootDeleted(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	plain := dial(t, zookeeper.Options{Connect: e.Connect()})
	top := fresh(t, plain) + "/top"
	rc := dial(t, zookeeper.Options{Connect: e.Connect() + top + "/jobs"})
	commit(t, rc, registry.Ensure("/a/b"))
	for _, path := range []string{"/jobs/a/b", "/jobs/a", "/jobs", ""} {
		commit(t, plain, registry.Delete(top+path, registry.AnyVersion))
	}
	commit(t, rc, registry.Ensure("/a/b"), registry.Create("/a/b/c", []byte("x")))
	if n := read(t, plain, top+"/jobs/a/b/c"); string(n.Data) != "x" {
		t.Errorf("after the chroot was deleted: %+v", n)
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	world := dial(t, zookeeper.Options{Connect: e.Connect()})
	root := fresh(t, world) + "/jobs"
	owner := dial(t, zookeeper.Options{Connect: e.Connect() + root, Credentials: "user1:pw1"})
	r := commit(t, owner, registry.Create("/a", nil), registry.CreateEphemeral("/e", nil), registry.CreateSequential("/n-", nil), registry.Ensure("/b/c"), registry.Absent("/z"))
	raw, _, err := zk.Connect([]string{e.Addr(0)}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := raw.AddAuth("digest", []byte("user1:pw1")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "/a", "/e", r[2].Path, "/b", "/b/c"} {
		acl, _, err := raw.GetACL(root + path)
		if err != nil || len(acl) != 1 || acl[0] != (zk.ACL{Perms: zk.PermAll, Scheme: "digest", ID: "user1:GMJqCvSAmNfv41XqBotWHO0HsNc="}) {
			t.Errorf("ACL of %s: %+v, %v", path, acl, err)
		}
	}
	for want, o := range map[string]zookeeper.Options{
		"no credentials": {Connect: e.Connect()},
		`user "user1"`:   {Connect: e.Connect(), Credentials: "user1:wrong"},
	} {
		rc := dial(t, o)
		for _, ops := range [][]registry.Op{{registry.Set(root+"/a", nil, 0)}, {registry.Create(root+"/b/x", nil)}, {registry.Check(root+"/a", 0)}, {registry.Delete(root+"/a", 0)}, {registry.Ensure(root + "/b/x")}} {
			ops = append([]registry.Op{registry.Ensure(root)}, ops...)
			if _, err := rc.Commit(t.Context(), ops[1:]...); !errors.Is(err, zookeeper.ErrNoAuth) || !errors.Is(err, registry.ErrUnavailable) || errors.Is(err, registry.ErrUnknown) ||
				!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ops[1].Path) {
				t.Errorf("%s %s: %v, want ErrNoAuth and %q", ops[1].Kind, ops[1].Path, err, want)
			}
			// In a longer commit the op is named.
			var denied *registry.DeniedError
			if _, err := rc.Commit(t.Context(), registry.Check(strings.TrimSuffix(root, "/jobs"), registry.AnyVersion), ops[1]); !errors.As(err, &denied) || denied.Index != 1 || denied.Op.Path != ops[1].Path || errors.Is(err, registry.ErrConflict) {
				t.Errorf("%s %s, second of a commit: %v, want that it is denied", ops[1].Kind, ops[1].Path, err)
			}
		}
		if _, err := rc.Read(t.Context(), registry.Data(root+"/a")); !errors.Is(err, zookeeper.ErrNoAuth) || !strings.Contains(err.Error(), root+"/a") {
			t.Errorf("read: %v", err)
		}
		if _, err := rc.Watch(t.Context(), registry.Data(root), registry.Data(root+"/a")); !errors.Is(err, zookeeper.ErrNoAuth) {
			t.Errorf("watch: %v", err)
		}
		o.Connect += root + "/below"
		if _, err := zookeeper.Dial(t.Context(), o); !errors.Is(err, zookeeper.ErrNoAuth) || !strings.Contains(err.Error(), root+"/below") {
			t.Errorf("dial with a chroot: %v", err)
		}
	}
	// Credentials are given again on a new connection.
	p := proxy(t, e.Addr(0))
	rc := dial(t, zookeeper.Options{Connect: p.Addr() + root, Credentials: "user1:pw1"})
	for round := range int32(3) {
		p.Drop()
		commit(t, rc, registry.Set("/a", nil, round))
	}
}

// TestUnreadable: of several nodes those that an ACL hides are named, and the others are read beside them. A watch is
// refused for them. One that is hidden later is sent as it was last known, with the reason, and anew when it can be read.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	rc := dial(t, zookeeper.Options{Connect: e.Connect()})
	root := fresh(t, rc)
	commit(t, rc, registry.Create(root+"/a", []byte("1")), registry.Create(root+"/b", []byte("2")), registry.Create(root+"/b/c", nil))
	raw, _, err := zk.Connect([]string{e.Addr(0)}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	permit := func(perms int32) {
		if _, err := raw.SetACL(root+"/b", zk.WorldACL(perms), -1); err != nil {
			t.Fatal(err)
		}
	}
	a, b, names, none := registry.Data(root+"/a"), registry.Data(root+"/b"), registry.Children(root+"/b"), registry.Data(root+"/none")
	watch, err := rc.Watch(within(t), a, b)
	if err != nil {
		t.Fatal(err)
	}
	<-watch
	permit(zk.PermWrite | zk.PermCreate | zk.PermAdmin)
	nodes, err := rc.Read(t.Context(), a, b, none, names)
	var denied *registry.UnreadableError
	if !errors.As(err, &denied) || len(denied.Denied) != 2 || denied.Denied[b] == nil || denied.Denied[names] == nil || !errors.Is(err, zookeeper.ErrNoAuth) || !registry.IsDenied(err) {
		t.Fatalf("read: %v", err)
	}
	if string(nodes[0].Data) != "1" || nodes[1].Exists || nodes[2].Exists || nodes[3].Exists || nodes[1].Query != b {
		t.Errorf("read beside it: %+v", nodes)
	}
	// A watch of the session is there already, and must not answer for the node.
	commit(t, rc, registry.Set(root+"/b", []byte("3"), 0))
	if _, err := rc.Watch(t.Context(), a, b); !errors.As(err, &denied) || len(denied.Denied) != 1 || denied.Denied[b] == nil {
		t.Errorf("watch: %v", err)
	}
	for s := range watch {
		if s.Data(b.Path).Unread != nil {
			if n := s.Data(b.Path); string(n.Data) != "2" || !n.Exists || s.Data(a.Path).Unread != nil {
				t.Errorf("hidden: %+v", s)
			}
			break
		}
	}
	permit(zk.PermAll)
	for s := range watch {
		if n := s.Data(b.Path); n.Unread == nil {
			if string(n.Data) != "3" {
				t.Errorf("since it can be read: %+v", n)
			}
			break
		}
	}
	commit(t, rc, registry.Set(root+"/b", []byte("4"), 1))
	for s := range watch {
		if string(s.Data(b.Path).Data) == "4" {
			return
		}
	}
	t.Error("the watch ended")
}

// authority signs certificates for 127.0.0.1.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
	pem  []byte
	last int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	a.key = a.newKey()
	template := a.template("authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) template(name string) *x509.Certificate {
	a.last++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.last), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
}

// issue returns a certificate and key, also as PEM.
func (a *authority) issue(name string) (tls.Certificate, []byte) {
	key := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, a.template(name), a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, text
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := newAuthority(t)
	_, server := a.issue("server")
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	o := fast(1)
	o.Secure = true
	o.Extra = map[string]string{
		"ssl.keyStore.location": file("server.pem", server), "ssl.keyStore.type": "PEM",
		"ssl.trustStore.location": file("authority.pem", a.pem), "ssl.trustStore.type": "PEM",
		"ssl.clientAuth": "need",
	}
	e := zkserver.ForTest(t, o)
	client, _ := a.issue("client")
	good := &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{client}}
	rc := dial(t, zookeeper.Options{Connect: e.SecureAddr(0) + "/secure", TLS: good, Credentials: "user1:pw1", SessionTimeout: 10 * time.Second})
	commit(t, rc, registry.Create("/a", make([]byte, 500<<10)), registry.CreateEphemeral("/e", nil))
	if n := read(t, rc, "/a"); len(n.Data) != 500<<10 {
		t.Errorf("%d bytes", len(n.Data))
	}
	for want, config := range map[string]*tls.Config{
		"unknown authority": {Certificates: good.Certificates},
		"TLS|certificate":   {RootCAs: a.pool}, // without a certificate of its own
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		_, err := zookeeper.Dial(ctx, zookeeper.Options{Connect: e.SecureAddr(0), TLS: config})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool { return strings.Contains(fmt.Sprint(err), w) }) {
			t.Errorf("dial: %v, want %q", err, want)
		}
	}
}

// A name leads to another address after a while, and the session follows.
func TestLookupAgain(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	first := proxy(t, e.Addr(0))
	_, port, err := net.SplitHostPort(first.Addr())
	if err != nil {
		t.Fatal(err)
	}
	second, err := zkserver.NewProxyAt("127.0.0.2:"+port, e.Addr(0))
	if err != nil {
		t.Fatalf("a second loopback address is needed: %v", err)
	}
	defer second.Close()
	var address atomic.Value
	address.Store("127.0.0.1")
	rc := dial(t, zookeeper.Options{Connect: "zk.test:" + port, SessionTimeout: 60 * time.Second}.WithLookup(func(_ context.Context, host string) ([]string, error) {
		if host != "zk.test" {
			return nil, fmt.Errorf("looked up %q", host)
		}
		return []string{address.Load().(string)}, nil
	}))
	root := fresh(t, rc)
	commit(t, rc, registry.CreateEphemeral(root+"/e", nil))
	made := read(t, rc, root+"/e").Czxid
	address.Store("127.0.0.2")
	first.Cut()
	commit(t, rc, registry.Set(root, nil, 0))
	if n := read(t, rc, root+"/e"); n.Czxid != made {
		t.Errorf("after the move: %+v", n)
	}
}

// What every deed costs.
func TestOperations(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	other := dial(t, zookeeper.Options{Connect: e.Connect()})
	root := fresh(t, other)
	p := proxy(t, e.Addr(0))
	var n counter
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 3 * time.Second, OnOperation: n.count})
	read(t, rc, root)
	const pulse = "sync ping"
	cost := func(what, want string) {
		t.Helper()
		if got := n.take(pulse); got != want {
			t.Errorf("%s cost %s, want %s", what, got, want)
		}
	}
	n.take()
	commit(t, rc, registry.Set(root, nil, 0), registry.Create(root+"/a", nil), registry.Create(root+"/a/b", nil), registry.Absent(root+"/x"))
	cost("a commit", "multi 1")
	commit(t, rc, registry.Ensure(root+"/a/b"), registry.Ensure(root+"/a"), registry.Set(root, nil, 1))
	cost("a commit that ensures what exists", "multi 1")
	commit(t, rc, registry.Ensure(root+"/c/d"))
	cost("a commit that ensures what does not exist", "multi 2, exists 3")
	var items []registry.Op
	for i := range 100 {
		items = append(items, registry.Ensure(fmt.Sprintf("%s/many/%d", root, i)))
	}
	commit(t, rc, items...)
	cost("a commit that ensures a hundred that do not exist", "multi 2, exists 2, getChildren 1")
	commit(t, rc, append(items, registry.Ensure(root+"/many/more"))...)
	cost("a commit that ensures one more", "multi 2, exists 2, getChildren 1")
	if _, err := rc.Commit(t.Context(), registry.Check(root, 9)); !errors.Is(err, registry.ErrConflict) {
		t.Error(err)
	}
	cost("a conflict", "multi 1")
	if _, err := rc.Read(t.Context(), registry.Data(root), registry.Children(root), registry.Data(root+"/none")); err != nil {
		t.Error(err)
	}
	cost("a read", "getData 2, getChildren 1")
	watch, err := rc.Watch(within(t), registry.Data(root), registry.Children(root), registry.Data(root+"/none"), registry.Data(root+"/a"))
	if err != nil {
		t.Fatal(err)
	}
	<-watch
	cost("a watch of four, one of them absent", "exists 1, getData 3, getChildren 1")
	for range 3 {
		if _, err := rc.Watch(within(t), registry.Data(root), registry.Children(root)); err != nil {
			t.Fatal(err)
		}
	}
	cost("more watches of the same", "")
	commit(t, rc, registry.Set(root+"/a", nil, 0))
	<-watch
	cost("a change of one node", "multi 1, getData 1")
	commit(t, rc, registry.Create(root+"/none", nil))
	for s := range watch {
		if len(s.Children(root)) == 4 && s.Data(root+"/none").Exists {
			break
		}
	}
	cost("a new node", "multi 1, getData 1, getChildren 1")
	p.Drop()
	for n.of("getChildren") == 0 { // the last of the watches, or near it
		time.Sleep(time.Millisecond)
	}
	read(t, rc, root+"/c")
	cost("a reconnect, with four watches, and a read", "connect 1, getData 4, getChildren 1")
	// Idle for four periods of the pulse and more.
	n.take()
	for n.of("sync") < 5 {
		time.Sleep(10 * time.Millisecond)
	}
	if got := n.take("ping"); got != "sync 5" {
		t.Errorf("while idle: %s", got)
	}
	if !rc.Trusted() {
		t.Error("not trusted")
	}
	if err := rc.Close(); err != nil {
		t.Error(err)
	}
	cost("the end", "close 1")
}

// The limit is the server's: what is let through is taken.
func TestLargestRequest(t *testing.T) {
	t.Parallel()
	rc := dial(t, zookeeper.Options{Connect: shared.get(t, 1).Connect()})
	root := fresh(t, rc)
	low, high := 1<<19, 1<<21 // fits, does not
	for high-low > 1 {
		size := (low + high) / 2
		_, err := rc.Commit(within(t), registry.Create(root+"/a", make([]byte, size)), registry.Delete(root+"/a", 0))
		switch {
		case err == nil:
			low = size
		case errors.Is(err, registry.ErrTooLarge):
			high = size
		default:
			t.Fatalf("%d bytes: %v", size, err)
		}
	}
	if low < 1000_000 {
		t.Errorf("the largest was %d bytes", low)
	}
}

// After its end a session makes no other one.
func TestNoSecondSession(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, fast(1))
	p := proxy(t, e.Addr(0))
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: time.Second})
	other := dial(t, zookeeper.Options{Connect: e.Connect(), SessionTimeout: 60 * time.Second})
	commit(t, rc, registry.CreateEphemeral("/e", nil))
	id := fmt.Sprintf("0x%x", rc.ID())
	p.Cut()
	gone(t, other, "/e")
	p.Heal()
	wait(t, rc.Lost(), "the loss")
	before := time.Now()
	for time.Since(before) < 2*time.Second { // its client tries all the time
		text, err := e.Ask(t.Context(), 0, "dump")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "\n\t"+id+"\n") {
			t.Fatalf("the session is back:\n%s", text)
		}
		if n := strings.Count(text, "\n\t0x"); n > 1 { // the other's
			t.Fatalf("another session:\n%s", text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestLeastTimeout(t *testing.T) {
	t.Parallel()
	for conf, want := range map[string]struct {
		least time.Duration
		told  bool
	}{
		"": {0, false}, "tickTime=2000\n": {0, true}, "clientPort=1\ntickTime=2000\nsyncLimit=5\n": {36 * time.Second, true},
		"conf is not executed because it is not in the whitelist.": {0, false},
	} {
		if least, told := zookeeper.LeastTimeout(conf); least != want.least || told != want.told {
			t.Errorf("%q: %v, %v; want %v", conf, least, told, want)
		}
	}
}
