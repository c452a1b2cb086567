package main

import (
	"bytes"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/node/ensemble"
)

// TestHost is the wasmjob in the same directory, or an error with its path.
func TestHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "wasmjob")
	if _, err := hostIn(dir); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "next to this program") {
		t.Errorf("no wasmjob: %v", err)
	}
	if err := os.WriteFile(name, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := hostIn(dir); got != name || err != nil {
		t.Errorf("%q, %v; want %s", got, err, name)
	}
}

// TestMistakes: nothing is started, and the message says what is wrong.
func TestMistakes(t *testing.T) {
	t.Parallel()
	test := []string{"--zk", "zk1", "--namespace", "attack"}
	for _, c := range []struct {
		variable string
		args     []string
		want     string
	}{
		{"", []string{"now"}, `unexpected argument "now"`},
		{"", []string{"--sede", "7"}, "--sede"},
		{"", []string{"--remove"}, "--remove needs the test cluster: --zk HOST:PORT"},
		{"", []string{"--zk", "zk1"}, "--namespace is missing"},
		{"", []string{"--zk", "zk1:x", "--namespace", "attack"}, `--zk: "zk1:x" is not a server; want HOST:PORT`},
		{"", append([]string{"--zk-tls-cert", "x"}, test...), "give both --zk-tls-cert and --zk-tls-key"},
		{"", append([]string{"--zk-tls-ca", "/none"}, test...), "--zk-tls-ca: open /none"},
		{"", append([]string{"--config", "/none"}, test...), "--config: open /none"},
		{"WASMJOB_ZK_TLS=maybe", test, `WASMJOB_ZK_TLS: "maybe"`},
		{"WASMJOB_ZK_CREDENTIALS=secret", test, "WASMJOB_ZK_CREDENTIALS: these are not credentials"},
		{"WASMJOB_ZK_CREDENTIALS=u:secret", append([]string{"--zk-credentials-file", "x"}, test...), "give them once"},
	} {
		var out, stderr bytes.Buffer
		p := program{out: &out, err: &stderr, getenv: func(name string) string {
			value, _ := strings.CutPrefix(c.variable, name+"=")
			if value == c.variable {
				return ""
			}
			return value
		}}
		code := p.main(t.Context(), c.args)
		if text := stderr.String(); code != exitUsage || !strings.Contains(text, c.want) || strings.Contains(text, "secret") {
			t.Errorf("%s %q: exit %d, %s\nwant %s", c.variable, c.args, code, text, c.want)
		}
	}
}

// TestSettings: how servers are reached may come from wasmjob's own settings,
// which servers may not.
func TestSettings(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "wasmjob.yaml")
	if err := os.WriteFile(file, []byte("plugins: /jobs\nzk: prod1,prod2\nnamespace: prod\nzkTls: true\nzkTlsServerName: file\nzkCredentialsFile: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := program{err: new(bytes.Buffer), getenv: func(name string) string {
		return map[string]string{"WASMJOB_CONFIG": file, "WASMJOB_ZK": "prod3", "WASMJOB_ZK_CREDENTIALS_FILE": "variable", "WASMJOB_ZK_TLS_CERT": "cert"}[name]
	}}
	flags := p.command().Flags()
	if err := flags.Parse([]string{"--zk-tls-cert", "flag", "--zk", "zk1"}); err != nil {
		t.Fatal(err)
	}
	if err := p.settings(flags); err != nil {
		t.Fatal(err)
	}
	if want := (ensemble.Ensemble{Connect: "zk1", TLS: true, ServerName: "file", CredentialsFile: "variable", CertFile: "flag"}); p.zk != want {
		t.Errorf("%+v, want %+v", p.zk, want)
	}
}

// TestNameOfAll: hosts behind proxies need one name for all servers.
func TestNameOfAll(t *testing.T) {
	t.Parallel()
	leaf := func(names ...string) *x509.Certificate {
		c := &x509.Certificate{}
		for _, n := range names {
			if ip := net.ParseIP(n); ip != nil {
				c.IPAddresses = append(c.IPAddresses, ip)
			} else {
				c.DNSNames = append(c.DNSNames, n)
			}
		}
		return c
	}
	for _, c := range []struct {
		servers string
		leaves  []*x509.Certificate
		want    string
	}{
		{"zk1", []*x509.Certificate{leaf("zk1", "zk")}, "zk1"},
		{"zk1 zk2", []*x509.Certificate{leaf("zk1", "zk"), leaf("zk2", "zk")}, "zk"},
		{"zk1.test zk2.test", []*x509.Certificate{leaf("*.test"), leaf("*.test")}, "zk1.test"},
		{"10.0.0.1 10.0.0.2", []*x509.Certificate{leaf("10.0.0.1", "10.0.0.9"), leaf("10.0.0.2", "10.0.0.9")}, "10.0.0.9"},
		{"zk1 zk2", []*x509.Certificate{leaf("zk1"), leaf("zk2")}, ""},
		{"a.test a.prod", []*x509.Certificate{leaf("*.test"), leaf("*.prod")}, ""},
	} {
		servers := strings.Fields(c.servers)
		got, err := nameOfAll(servers, c.leaves)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.servers, got, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), strings.Join(servers, " and ")+" have no name in common") {
			t.Errorf("%s: %v", c.servers, err)
		}
	}
}
