package program

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/host/node/ensemble"
)

func TestZooKeeperSettings(t *testing.T) {
	t.Parallel()
	l, _, err := load(t, "zk: zk1,zk2/jobs\nsessionTimeout: 6s\ndata: P\n", []string{"WASMJOB_ZK_CREDENTIALS=user:pa:ss word", "WASMJOB_WAIT=1m"},
		[]string{"--plugins", "P", "--zk-tls-server-name", "zk", "--dump-port", "9888"})
	if err != nil {
		t.Fatal(err)
	}
	want := ensemble.Ensemble{Connect: "zk1:2181,zk2:2181/jobs", SessionTimeout: 6 * time.Second, TLS: true, ServerName: "zk", Credentials: "user:pa:ss word"}
	if l.Registry != registryZooKeeper || l.ZooKeeper != want || l.Wait != time.Minute || l.DumpAddress != "127.0.0.1:9888" {
		t.Errorf("registry %q, %+v, dump %q", l.Registry, l.ZooKeeper, l.DumpAddress)
	}
	if !strings.HasSuffix(l.origins["registry"], "w.yaml:1, which implies it") || l.origins["zkTls"] != "--zk-tls-server-name, which implies it" {
		t.Errorf("origins %q", l.origins)
	}
	if len(l.warnings) != 1 || !strings.Contains(l.warnings[0], "has no meaning with ZooKeeper") {
		t.Errorf("warnings %q", l.warnings)
	}
	var text strings.Builder
	if err := l.print(&text); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "pa:ss") || !strings.Contains(text.String(), "\n#  they are user:********, from WASMJOB_ZK_CREDENTIALS\n") {
		t.Errorf("credentials are shown in\n%s", &text)
	}
}

func TestZooKeeperMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file string
		env  []string
		args []string
		want string
	}{
		{"", nil, []string{"--registry", "zookeeper"}, "--registry: zookeeper needs its servers: --registry zookeeper://HOST:PORT,HOST:PORT or --zk HOST:PORT,HOST:PORT"},
		{"", []string{"WASMJOB_REGISTRY=embedded"}, []string{"--zk", "a"}, "--zk: ZooKeeper's servers are named, but the registry is embedded (WASMJOB_REGISTRY); leave one of the two out"},
		{"sessionTimeout: 5s\n", nil, nil, "FILE:1: sessionTimeout: has a meaning for ZooKeeper only; name its servers with --zk"},
		{"", nil, []string{"--zk-tls"}, "--zk-tls: has a meaning for ZooKeeper only; name its servers with --zk"},
		{"", nil, []string{"--zk", "a:x"}, `--zk: "a:x" is not a server; want HOST:PORT,`},
		{"", nil, []string{"--zk", "a", "--session-timeout", "10ms"}, "--session-timeout: 10ms is too short; want at least 1s"},
		{"", nil, []string{"--zk", "a", "--session-timeout", "2h"}, "--session-timeout: 2h is too long; want at most 1h"},
		{"", nil, []string{"--zk", "a", "--zk-tls=false", "--zk-tls-ca", "x"}, "--zk-tls-ca: is given, but TLS is switched off (--zk-tls)"},
		{"", nil, []string{"--zk", "a", "--zk-tls=maybe"}, `--zk-tls: "maybe" is neither true nor false`},
		{"", nil, []string{"--zk", "a", "--zk-tls-cert", "x"}, "--zk-tls-cert: a certificate and its key go together"},
		{"", nil, []string{"--zk", "a", "--zk-tls-ca", "P/none"}, "--zk-tls-ca: open P/none"},
		{"", nil, []string{"--zk", "a", "--zk-credentials-file", "P/none"}, "--zk-credentials-file: stat P/none"},
		{"", []string{"WASMJOB_ZK_CREDENTIALS=secret"}, []string{"--zk", "a"}, "WASMJOB_ZK_CREDENTIALS: these are not credentials; want user:password"},
		{"", []string{"WASMJOB_ZK_CREDENTIALS=u:p"}, []string{"--zk", "a", "--zk-credentials-file", "x"}, "--zk-credentials-file: credentials are in WASMJOB_ZK_CREDENTIALS, too; give them once"},
		{"", nil, []string{"--dump-port", "host:1"}, `--dump-port: "host:1" is not a port`},
		{"", nil, []string{"--server-ip", "10.0.0.0/33"}, `--server-ip: "10.0.0.0/33" is neither an IPv4 address nor a network`},
		{"zkCredentials: u:p\n", nil, nil, `FILE:1: unknown key "zkCredentials"`},
	} {
		_, _, err := load(t, c.file, c.env, append([]string{"--plugins", "P"}, c.args...))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q %q: %v\nwant %s", c.env, c.args, err, c.want)
		}
	}
}

func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "credentials")
	read := func(text string, mode os.FileMode) (*loaded, error) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		l, _, err := load(t, "", nil, []string{"--plugins", "/", "--zk", "a", "--zk-credentials-file", name})
		return l, err
	}
	if l, err := read("user:word\n", 0o600); err != nil || l.ZooKeeper.Credentials != "user:word" || len(l.warnings) > 0 {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := read("  user:word  \nrest\n", 0o644); err != nil || l.ZooKeeper.Credentials != "user:word" ||
		len(l.warnings) != 1 || !strings.Contains(l.warnings[0], "can be read by others (mode 0644): chmod 600") {
		t.Errorf("%+v, %v", l, err)
	}
	for text, want := range map[string]string{"\n": "is empty; want user:password", "secret\n": name + ": these are not credentials", strings.Repeat("x", 5000): "is not a small file"} {
		if _, err := read(text, 0o600); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.10q: %v", text, err)
		}
	}
}

// TestTLS: files are read at the start, and a renewed certificate is used.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(serial int64) {
		t.Helper()
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
		if err != nil {
			t.Fatal(err)
		}
		kder, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
			os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kder}), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	l, _, err := load(t, "", nil, []string{"--plugins", "/", "--zk", "a", "--zk-tls-ca", cert, "--zk-tls-cert", cert, "--zk-tls-key", key})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.ZooKeeper.TLSConfig()
	if err != nil || c == nil || c.RootCAs == nil {
		t.Fatalf("%+v, %v", c, err)
	}
	for serial := range int64(2) {
		write(serial + 1)
		pair, err := c.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil || leaf.SerialNumber.Int64() != serial+1 {
			t.Errorf("certificate %v, %v; want %d", leaf.SerialNumber, err, serial+1)
		}
	}
	if _, _, err := load(t, "", nil, []string{"--plugins", "/", "--zk", "a", "--zk-tls-ca", key}); err == nil || !strings.Contains(err.Error(), "has no certificate; want PEM") {
		t.Errorf("a key as CA: %v", err)
	}
}

// TestRegistryOfCommands: commands read the settings of the registry alone.
func TestRegistryOfCommands(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "w.yaml")
	if err := os.WriteFile(file, []byte("plugins: /none\nzk: zk1\nnamespace: prod\ndata: /none\nmounts: {a: [{host: /none, guest: /x}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addRegistryFlags(flags)
	if err := flags.Parse([]string{"--config", file}); err != nil {
		t.Fatal(err)
	}
	l, err := loadRegistry([]string{"WASMJOB_NAMESPACE=stage"}, flags)
	if err != nil || l.ZooKeeper.Connect != "zk1:2181" || l.Namespace != "stage" || l.Registry != registryZooKeeper {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := loadRegistry(nil, pflag.NewFlagSet("none", pflag.ContinueOnError)); !errors.Is(err, errNoServers) {
		t.Errorf("no servers: %v", err)
	}
}

// TestWarningOfCredentials: commands that write to ZooKeeper warn that there are no credentials, those
// that read do not.
func TestWarningOfCredentials(t *testing.T) {
	t.Parallel()
	for command, warns := range map[string]bool{
		"job list": false, "status": false, "status a": false, "job items a": false, "job offset a": false, "job kv a --get k": false, "alert list": false, "job verify": false,
		"job run a": true, "job pause a": true, "job offset a --reset": true, "job kv a --set k=v": true, "job kill a": true, "job edit a description=x": true, "job remove a": true,
		"alert silence a --for 2h": true, "alert unsilence 0000000000000001": true, "registry adopt": true,
	} {
		args := append(strings.Fields(command), "--zk", "127.0.0.117:1", "--namespace", "ns")
		if r := runCLI(t, []string{"WASMJOB_WAIT=1ms"}, args...); r.code == exitOK || strings.Contains(r.err, "no credentials") != warns {
			t.Errorf("%s: %d %s", command, r.code, r.err)
		}
	}
}
