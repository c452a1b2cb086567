package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/wasmjob/wasmjob/internal/tlsconfig"
)

// SystemCA stands for the authorities that this machine knows, where a file of some is
// wanted.
const SystemCA = "system"

// trusting is for a server whose certificate one of the file's authorities has signed.
func trusting(file string) (*tls.Config, error) {
	config := tlsconfig.New()
	if file == SystemCA {
		return config, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM form, expected those of the authorities of the host's", file)
	}
	return config, nil
}

// showing returns a configuration for a server on this machine that shows the certificate in a file, whatever
// its authority and names. The file is read for each connection, as the server reads it again when it changes.
func showing(file string) *tls.Config {
	config := tlsconfig.New()
	config.InsecureSkipVerify = true // in place of it:
	config.VerifyConnection = func(state tls.ConnectionState) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		block, _ := pem.Decode(text)
		if block == nil || len(state.PeerCertificates) == 0 || !bytes.Equal(block.Bytes, state.PeerCertificates[0].Raw) {
			return fmt.Errorf("the server does not show the certificate in %s", file)
		}
		return nil
	}
	return config
}
