// Package ensemble is how a ZooKeeper ensemble is reached, in the words that
// people write: servers, files for TLS, credentials. It turns them into the
// options of coordination/registry/zookeeper, for every program that has such flags.
package ensemble

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/internal/tlsconfig"
)

// CredentialsVariable is the environment variable with the credentials. There is no flag for them, because all
// users of a machine can read command lines.
const CredentialsVariable = "WASMJOB_ZK_CREDENTIALS"

// Ensemble has the address, TLS files and credentials of a ZooKeeper ensemble. It is a value: methods do not
// change it, and any number of goroutines may call them.
type Ensemble struct {
	// Connect is "host1:2181,host2:2181", with a chroot after the last
	// server if there is one: "host1:2181/path". See [ParseConnect].
	Connect string
	// SessionTimeout is how long the servers keep a session whose client is silent.
	SessionTimeout time.Duration
	// TLS encrypts the connection. CAFile has the certificates that servers'
	// are checked against, CertFile and KeyFile are the client's own.
	// ServerName is the name in the servers' certificates, if it is not the
	// one that is dialled.
	TLS                                   bool
	CAFile, CertFile, KeyFile, ServerName string
	// CredentialsFile is a file with "user:password" in its first line.
	CredentialsFile string
	// Credentials are "user:password", from the file or the environment. They are never shown.
	Credentials string
}

// standardPort is ZooKeeper's default port.
const standardPort = "2181"

// ParseConnect checks a connect string and completes ports.
func ParseConnect(s string) (string, error) {
	servers, chroot, hasChroot := strings.Cut(s, "/")
	var list []string
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		host, port, err := net.SplitHostPort(server)
		if err != nil && !strings.Contains(server, ":") {
			host, port, err = server, standardPort, nil
		}
		n, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || perr != nil || n == 0 || host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return "", fmt.Errorf("%.80q is not a server; want HOST:PORT, several joined by commas, and perhaps a path after the last: zk1:2181,zk2:2181/jobs", server)
		}
		list = append(list, net.JoinHostPort(host, port))
	}
	connect := strings.Join(list, ",")
	if !hasChroot || chroot == "" {
		return connect, nil
	}
	for segment := range strings.SplitSeq(chroot, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsAny(segment, ",: ") {
			return "", fmt.Errorf("%.80q is not a path in the registry; it comes once, after the last server: zk1:2181,zk2:2181/jobs", "/"+chroot)
		}
	}
	return connect + "/" + chroot, nil
}

// Servers returns the servers of Connect, each HOST:PORT.
func (e *Ensemble) Servers() []string {
	servers, _, _ := strings.Cut(e.Connect, "/")
	return strings.Split(servers, ",")
}

// Options returns the options of the adapter. The error is that of [Ensemble.TLSConfig].
func (e *Ensemble) Options() (zookeeper.Options, error) {
	config, err := e.TLSConfig()
	if err != nil {
		return zookeeper.Options{}, err
	}
	return zookeeper.Options{Connect: e.Connect, SessionTimeout: e.SessionTimeout, Credentials: e.Credentials, TLS: config}, nil
}

// TLSConfig is the configuration of encrypted connections; nil if they are not.
// The client's certificate is read again for each connection, so that a renewed
// one is used. An error names the flag of the file that cannot be used.
func (e *Ensemble) TLSConfig() (*tls.Config, error) {
	if !e.TLS {
		return nil, nil
	}
	c := tlsconfig.New()
	c.ServerName = e.ServerName
	if e.CAFile != "" {
		data, err := os.ReadFile(e.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--zk-tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("--zk-tls-ca: %s has no certificate; want PEM, beginning with -----BEGIN CERTIFICATE-----", e.CAFile)
		}
	}
	if e.CertFile != "" {
		name, key := e.CertFile, e.KeyFile
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(name, key)
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

// ReadCredentials reads credentials from a file; whose they are, such as
// "ZooKeeper's", is for the warning, which is empty unless others can read the file.
func ReadCredentials(name, whose string) (credentials, warning string, err error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", "", err
	}
	if !info.Mode().IsRegular() || info.Size() > 4<<10 {
		return "", "", fmt.Errorf("%s is not a small file", name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", "", err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		warning = fmt.Sprintf("%s, which holds %s password, can be read by others (mode %04o): chmod 600 %s", name, whose, mode, name)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", "", fmt.Errorf("%s is empty; want user:password", name)
	}
	return line, warning, nil
}

// CheckCredentials is an error if the text is not user:password; from says where
// it comes from. The error does not show the text.
func CheckCredentials(text, from string) error {
	if user, password, ok := strings.Cut(text, ":"); !ok || user == "" || password == "" {
		return fmt.Errorf("%s: these are not credentials; want user:password", from)
	}
	return nil
}
