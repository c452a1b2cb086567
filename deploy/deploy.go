// Package deploy holds the files with which a host runs as a service, for the
// program that writes them.
package deploy

import _ "embed"

//go:embed systemd/wasmjob.service
var unit string

// Unit is the systemd unit of a host whose program is /usr/local/bin/wasmjob and
// whose settings are in /etc/wasmjob/wasmjob.yaml.
func Unit() string { return unit }
