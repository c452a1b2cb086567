// Package client calls a running host's API. It finds the host of this machine by the note that the host
// leaves: its address, its token, its certificate.
package client
