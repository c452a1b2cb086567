package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// zooKeeper is how a ZooKeeper ensemble is reached.
type zooKeeper struct {
	// Connect is "host1:2181,host2:2181", with a chroot after the last
	// server if there is one: "host1:2181/path".
	Connect string
	// SessionTimeout is how long the servers keep the session of a host that
	// they do not hear of.
	SessionTimeout time.Duration
	// Wait is how long a host waits for the first session; 0 is for ever.
	Wait time.Duration
	// TLS encrypts the connection. CAFile has the certificates that servers'
	// are checked against, CertFile and KeyFile are the client's own.
	// ServerName is the name in the servers' certificates, if it is not the
	// one that is dialled.
	TLS                                   bool
	CAFile, CertFile, KeyFile, ServerName string
	// CredentialsFile has "user:password" in its first line.
	CredentialsFile string
	// credentials are those, wherever they come from. They are never shown.
	credentials string
}

const (
	zkPort            = "2181"
	leastSession      = time.Second
	mostSession       = time.Hour
	defaultSession    = "40s"
	credentialsSecret = "zkCredentials"
)

// credentialsVariable holds the credentials themselves. There is no flag for
// them: command lines can be read by everybody on a machine.
var credentialsVariable = setting{key: credentialsSecret}.variable()

// servers is the list of servers without the chroot.
func (z *zooKeeper) servers() string {
	servers, _, _ := strings.Cut(z.Connect, "/")
	return servers
}

// parseConnect checks a connect string and completes ports.
func parseConnect(s string) (string, error) {
	servers, chroot, hasChroot := strings.Cut(s, "/")
	var list []string
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		host, port, err := net.SplitHostPort(server)
		if err != nil && !strings.Contains(server, ":") {
			host, port, err = server, zkPort, nil
		}
		n, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || perr != nil || n == 0 || host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return "", fmt.Errorf("%q is not a server; want HOST:PORT, several joined by commas, and perhaps a path after the last: zk1:2181,zk2:2181/jobs", clip(server))
		}
		list = append(list, net.JoinHostPort(host, port))
	}
	connect := strings.Join(list, ",")
	if !hasChroot || chroot == "" {
		return connect, nil
	}
	for segment := range strings.SplitSeq(chroot, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsAny(segment, ",: ") {
			return "", fmt.Errorf("%q is not a path in the registry; it comes once, after the last server: zk1:2181,zk2:2181/jobs", clip("/"+chroot))
		}
	}
	return connect + "/" + chroot, nil
}

// zooKeeperSettings are those of the connection.
func zooKeeperSettings() []setting {
	text := func(key, arg, help string, field func(z *zooKeeper) *string) setting {
		return setting{
			key: key, arg: arg, help: help,
			set:  func(c *Config, s string) error { *field(&c.ZooKeeper) = s; return nil },
			show: func(c *Config) string { return *field(&c.ZooKeeper) },
		}
	}
	return []setting{
		{
			key: "zk", arg: "SERVERS", standard: "",
			help: "ZooKeeper's servers, HOST:PORT joined by commas, with a path after the last if all is to be below one",
			set: func(c *Config, s string) (err error) {
				if s != "" {
					s, err = parseConnect(s)
				}
				c.ZooKeeper.Connect = s
				return err
			},
			show: func(c *Config) string { return c.ZooKeeper.Connect },
		},
		{
			key: "sessionTimeout", arg: "DURATION", standard: defaultSession,
			help: "how long ZooKeeper keeps the session of a host that it does not hear of: then others take over its items",
			set: func(c *Config, s string) error {
				err := setDuration(&c.ZooKeeper.SessionTimeout, s, leastSession)
				if err == nil && c.ZooKeeper.SessionTimeout > mostSession {
					err = fmt.Errorf("%s is too long; want at most %s", s, showDuration(mostSession))
				}
				return err
			},
			show: func(c *Config) string { return showDuration(c.ZooKeeper.SessionTimeout) },
		},
		{
			key: "wait", arg: "DURATION", standard: "0s",
			help: "how long to wait for ZooKeeper at the start before giving up; 0 is for ever",
			set:  func(c *Config, s string) error { return setDuration(&c.ZooKeeper.Wait, s, 0) },
			show: func(c *Config) string { return showDuration(c.ZooKeeper.Wait) },
		},
		{
			key: "zkTls", arg: "bool", standard: "false",
			help: "speak TLS to ZooKeeper; the other --zk-tls settings imply it",
			set:  func(c *Config, s string) error { return setBool(&c.ZooKeeper.TLS, s) },
			show: func(c *Config) string { return strconv.FormatBool(c.ZooKeeper.TLS) },
		},
		text("zkTlsCa", "FILE", "certificates, PEM, that ZooKeeper's are checked against (default: the system's)", func(z *zooKeeper) *string { return &z.CAFile }),
		text("zkTlsCert", "FILE", "certificate, PEM, by which ZooKeeper knows this client", func(z *zooKeeper) *string { return &z.CertFile }),
		text("zkTlsKey", "FILE", "key, PEM, of that certificate", func(z *zooKeeper) *string { return &z.KeyFile }),
		text("zkTlsServerName", "NAME", "name in the servers' certificates (default: the one that is dialled)", func(z *zooKeeper) *string { return &z.ServerName }),
		text("zkCredentialsFile", "FILE", "file with user:password for ZooKeeper's digest authentication, or "+credentialsVariable+" in the environment; all nodes are made for that user only", func(z *zooKeeper) *string { return &z.CredentialsFile }),
	}
}

// registryChoice fits together what was said about the registry.
func (l *loader) registryChoice(c *Config, secret string) {
	z := &c.ZooKeeper
	given := func(key string) bool { return l.origins[key] != "default" }
	bad := func(key, format string, args ...any) { l.problem(l.origins[key], key, fmt.Errorf(format, args...)) }
	if z.Connect != "" && !given("registry") {
		c.Registry, l.origins["registry"] = registryZooKeeper, l.origins["zk"]+", which implies it"
	}
	if c.Registry != registryZooKeeper {
		for _, s := range zooKeeperSettings() {
			if !given(s.key) {
				continue
			}
			if s.key == "zk" && z.Connect != "" {
				bad("zk", "ZooKeeper's servers are named, but the registry is %s (%s); leave one of the two out", c.Registry, l.origins["registry"])
				return
			}
			if s.key != "zk" && s.show(c) != s.standard {
				bad(s.key, "has a meaning for ZooKeeper only; name its servers with --zk")
			}
		}
		return
	}
	if z.Connect == "" {
		bad("registry", "zookeeper needs its servers: --zk HOST:PORT,HOST:PORT")
	}
	if c.Data != "" {
		l.warnings = append(l.warnings, "data ("+l.origins["data"]+") has no meaning with ZooKeeper, which keeps everything itself")
	}
	for _, key := range []string{"zkTlsCa", "zkTlsCert", "zkTlsKey", "zkTlsServerName"} {
		if !given(key) {
			continue
		}
		if given("zkTls") && !z.TLS {
			bad(key, "is given, but TLS is switched off (%s)", l.origins["zkTls"])
		}
		if !z.TLS {
			z.TLS, l.origins["zkTls"] = true, l.origins[key]+", which implies it"
		}
	}
	if (z.CertFile == "") != (z.KeyFile == "") {
		key := "zkTlsCert"
		if z.KeyFile != "" {
			key = "zkTlsKey"
		}
		bad(key, "a certificate and its key go together; give both --zk-tls-cert and --zk-tls-key")
	} else if z.TLS {
		if _, err := z.tls(); err != nil {
			l.problems = append(l.problems, err)
		}
	}
	z.credentials = secret
	from := credentialsVariable
	if z.CredentialsFile != "" {
		if secret != "" {
			bad("zkCredentialsFile", "credentials are in %s, too; give them once", credentialsVariable)
			return
		}
		var err error
		if z.credentials, err = l.credentialsFile(z.CredentialsFile); err != nil {
			bad("zkCredentialsFile", "%w", err)
			return
		}
		from = z.CredentialsFile
	}
	if z.credentials == "" {
		l.warnings = append(l.warnings, "there are no credentials for ZooKeeper: whoever reaches it can change the jobs, and what they run with; give them with --zk-credentials-file")
	}
	if user, password, ok := strings.Cut(z.credentials, ":"); z.credentials != "" && (!ok || user == "" || password == "") {
		l.problems = append(l.problems, fmt.Errorf("%s: these are not credentials; want user:password", from))
	}
}

// credentialsFile reads credentials, and warns if others can.
func (l *loader) credentialsFile(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > 4<<10 {
		return "", fmt.Errorf("%s is not a small file", name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		l.warnings = append(l.warnings, fmt.Sprintf("%s, which holds ZooKeeper's password, can be read by others (mode %04o): chmod 600 %s", name, mode, name))
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("%s is empty; want user:password", name)
	}
	return line, nil
}

// tls is the configuration of encrypted connections; nil if they are not. The
// client's certificate is read again for each connection, so that a renewed
// one is used.
func (z *zooKeeper) tls() (*tls.Config, error) {
	if !z.TLS {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: z.ServerName}
	if z.CAFile != "" {
		data, err := os.ReadFile(z.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--zk-tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("--zk-tls-ca: %s has no certificate; want PEM, beginning with -----BEGIN CERTIFICATE-----", z.CAFile)
		}
	}
	if z.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(z.CertFile, z.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("--zk-tls-cert: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return c, nil
}

// errNoServers: a command that talks to ZooKeeper was not told where it is.
var errNoServers = errors.New("ZooKeeper's servers are not named; want --zk HOST:PORT,HOST:PORT (or WASMJOB_ZK)")
