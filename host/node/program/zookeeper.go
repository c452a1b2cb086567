package program

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/node/ensemble"
	"github.com/wasmjob/wasmjob/host/node/session"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	leastSession   = time.Second
	mostSession    = time.Hour
	defaultSession = "40s"
)

// Kinds of registries.
const (
	registryEmbedded  = "embedded"
	registryZooKeeper = "zookeeper"
	// zooKeeperScheme stands before ZooKeeper's servers in an address.
	zooKeeperScheme = registryZooKeeper + "://"
)

// registryKind is a kind of registry.
type registryKind struct {
	name    string
	backend func(*Config) session.Backend
}

// registryKinds are all that there are, the standard first.
func registryKinds() []registryKind {
	return []registryKind{
		{registryEmbedded, func(c *Config) session.Backend { return session.Embedded{Dir: c.Data} }},
		{registryZooKeeper, func(c *Config) session.Backend { return session.ZooKeeper{Ensemble: c.ZooKeeper} }},
	}
}

// backend is the registry that the configuration names.
func (c *Config) backend() session.Backend {
	kinds := registryKinds()
	i := slices.IndexFunc(kinds, func(k registryKind) bool { return k.name == c.Registry })
	return kinds[max(i, 0)].backend(c) // a name that is none is a problem of the configuration already
}

// parseRegistry checks what names a registry: its kind, or an address, whose
// ports it completes.
func parseRegistry(s string) (string, error) {
	var kinds []string
	for _, k := range registryKinds() {
		kinds = append(kinds, k.name)
	}
	servers, isAddress := strings.CutPrefix(s, zooKeeperScheme)
	switch {
	case strings.Contains(s, "@"): // it is not shown: a password is in it
		return "", errors.New("there are credentials in the address; want zookeeper://HOST:PORT,HOST:PORT/PATH, and --zk-credentials-file for them")
	case !isAddress && !slices.Contains(kinds, s):
		return "", fmt.Errorf("%q is not a registry; want %s or zookeeper://HOST:PORT,HOST:PORT/PATH%s", words.Clip(s), strings.Join(kinds, ", "), words.Suggest(s, kinds))
	case !isAddress:
		return s, nil
	case strings.ContainsAny(servers, "?#"):
		return "", fmt.Errorf("%q has more than servers and a path; want zookeeper://HOST:PORT,HOST:PORT/PATH", words.Clip(s))
	}
	connect, err := ensemble.ParseConnect(servers)
	if err != nil {
		return "", fmt.Errorf("%q is not an address of ZooKeeper; want zookeeper://HOST:PORT,HOST:PORT/PATH: %w", words.Clip(s), err)
	}
	return zooKeeperScheme + connect, nil
}

// zooKeeperSettings are those of the connection.
func zooKeeperSettings() []setting {
	return []setting{
		{
			key: "zk", arg: "SERVERS", standard: "",
			help: "ZooKeeper's servers, HOST:PORT joined by commas, with a path after the last if all is to be below one",
			set: func(c *Config, s string) (err error) {
				if s != "" {
					s, err = ensemble.ParseConnect(s)
				}
				c.ZooKeeper.Connect = s
				return err
			},
			show: func(c *Config) string { return c.ZooKeeper.Connect },
		},
		{
			key: "sessionTimeout", arg: "DURATION", standard: defaultSession, is: schema.Duration(),
			help: "how long ZooKeeper keeps the session of a host that sends no heartbeat: then others take over its items (failover)",
			set: func(c *Config, s string) error {
				err := setDuration(&c.ZooKeeper.SessionTimeout, s, leastSession)
				if err == nil && c.ZooKeeper.SessionTimeout > mostSession {
					err = fmt.Errorf("%s is too long; want at most %s", s, words.Duration(mostSession))
				}
				return err
			},
			show: func(c *Config) string { return words.Duration(c.ZooKeeper.SessionTimeout) },
		},
		durationSetting("wait", "0s", 0, "how long to wait for ZooKeeper at the start before giving up; 0 is for ever", func(c *Config) *time.Duration { return &c.Wait }),
		boolSetting("zkTls", "speak TLS to ZooKeeper; the other --zk-tls settings imply it", func(c *Config) *bool { return &c.ZooKeeper.TLS }),
		textSetting("zkTlsCa", "FILE", "", "certificates, PEM, that ZooKeeper's are checked against (default: the system's)", func(c *Config) *string { return &c.ZooKeeper.CAFile }),
		textSetting("zkTlsCert", "FILE", "", "certificate, PEM, by which ZooKeeper knows this client", func(c *Config) *string { return &c.ZooKeeper.CertFile }),
		textSetting("zkTlsKey", "FILE", "", "key, PEM, of that certificate", func(c *Config) *string { return &c.ZooKeeper.KeyFile }),
		textSetting("zkTlsServerName", "NAME", "", "name in the servers' certificates (default: the one that is dialled)", func(c *Config) *string { return &c.ZooKeeper.ServerName }),
		textSetting("zkCredentialsFile", "FILE", "", "file with user:password for ZooKeeper's digest authentication, or "+ensemble.CredentialsVariable+" in the environment; all nodes are made for that user only", func(c *Config) *string { return &c.ZooKeeper.CredentialsFile }),
	}
}

// registryChoice fits together what was said about the registry.
func (l *loader) registryChoice(c *Config, secret string) {
	l.chooseRegistry(c)
	if c.Registry != registryZooKeeper {
		l.withoutZooKeeper(c)
		return
	}
	if c.ZooKeeper.Connect == "" {
		l.bad("registry", "zookeeper needs its servers: --registry zookeeper://HOST:PORT,HOST:PORT or --zk HOST:PORT,HOST:PORT")
	}
	if c.Data != "" {
		l.warnings = append(l.warnings, "data ("+l.origins["data"]+") has no meaning with ZooKeeper, which keeps everything itself")
	}
	l.chooseTLS(&c.ZooKeeper)
	l.chooseCredentials(&c.ZooKeeper, secret)
}

func (l *loader) given(key string) bool { return l.origins[key] != "default" }

func (l *loader) bad(key, format string, args ...any) {
	l.problem(l.origins[key], key, fmt.Errorf(format, args...))
}

// chooseRegistry takes servers out of the registry's address, and lets servers
// mean ZooKeeper.
func (l *loader) chooseRegistry(c *Config) {
	z := &c.ZooKeeper
	if connect, ok := strings.CutPrefix(c.Registry, zooKeeperScheme); ok {
		c.Registry = registryZooKeeper
		if z.Connect != "" && z.Connect != connect {
			l.bad("registry", "the servers are %s here and %s in zk (%s); leave one of the two out", connect, z.Connect, l.origins["zk"])
		} else if z.Connect == "" {
			z.Connect, l.origins["zk"] = connect, l.origins["registry"]+", which names them"
		}
	}
	if z.Connect != "" && !l.given("registry") {
		c.Registry, l.origins["registry"] = registryZooKeeper, l.origins["zk"]+", which implies it"
	}
}

// withoutZooKeeper refuses what has a meaning for ZooKeeper only.
func (l *loader) withoutZooKeeper(c *Config) {
	if c.ZooKeeper.Connect != "" && l.given("zk") {
		l.bad("zk", "ZooKeeper's servers are named, but the registry is %s (%s); leave one of the two out", c.Registry, l.origins["registry"])
		return
	}
	for _, s := range zooKeeperSettings() {
		if s.key != "zk" && l.given(s.key) && s.show(c) != s.standard {
			l.bad(s.key, "has a meaning for ZooKeeper only; name its servers with --zk")
		}
	}
}

// chooseTLS lets the files of TLS imply it, and reads them.
func (l *loader) chooseTLS(z *ensemble.Ensemble) {
	for _, key := range []string{"zkTlsCa", "zkTlsCert", "zkTlsKey", "zkTlsServerName"} {
		if !l.given(key) || z.TLS {
			continue
		}
		if l.given("zkTls") {
			l.bad(key, "is given, but TLS is switched off (%s)", l.origins["zkTls"])
		}
		z.TLS, l.origins["zkTls"] = true, l.origins[key]+", which implies it"
	}
	if (z.CertFile == "") != (z.KeyFile == "") {
		key := "zkTlsCert"
		if z.KeyFile != "" {
			key = "zkTlsKey"
		}
		l.bad(key, "a certificate and its key go together; give both --zk-tls-cert and --zk-tls-key")
	} else if z.TLS {
		if _, err := z.TLSConfig(); err != nil {
			l.problems.Add(err)
		}
	}
}

// chooseCredentials takes them from the file, or from the environment.
func (l *loader) chooseCredentials(z *ensemble.Ensemble, secret string) {
	from := ensemble.CredentialsVariable
	z.Credentials = secret
	if z.CredentialsFile != "" {
		if secret != "" {
			l.bad("zkCredentialsFile", "credentials are in %s, too; give them once", ensemble.CredentialsVariable)
			return
		}
		read, warning, err := ensemble.ReadCredentials(z.CredentialsFile, "ZooKeeper's")
		if err != nil {
			l.bad("zkCredentialsFile", "%w", err)
			return
		}
		if warning != "" {
			l.warnings = append(l.warnings, warning)
		}
		z.Credentials, from = read, z.CredentialsFile
	}
	if z.Credentials == "" {
		l.warnings = append(l.warnings, noCredentials)
	} else if err := ensemble.CheckCredentials(z.Credentials, from); err != nil {
		l.problems.Add(err)
	}
}

// noCredentials is a warning for who writes to ZooKeeper; who only reads makes nothing worse.
const noCredentials = "there are no credentials for ZooKeeper: everyone who reaches it can change the jobs, and what they run with; give them with --zk-credentials-file"

// errNoServers: a command that talks to the registry itself was not given one that is shared.
var errNoServers = errors.New("the registry's servers are not named; want --registry zookeeper://HOST:PORT,HOST:PORT or --zk HOST:PORT,HOST:PORT (or WASMJOB_REGISTRY, WASMJOB_ZK)")
