// Package server is the HTTP server of a host, at its admin address: it listens, asks who
// may, shares its connections among addresses, and hands requests to the API, the pages and
// the metrics.
//
// # Endpoints
//
//	GET /healthz     200 while the process serves
//	GET /docs        the documents of this version, and /schemas those for editors
//	GET /readyz      200 when the host is live, the plugins directory taken in and all its jobs joined, else 503
//	GET /metrics     Prometheus text
//	/v1/…            the API, package host/control/api
//	/v1/peer/…       what hosts ask each other
//	POST /v1/login   a login link, for who has the host's token
//	/login, /logout, /oidc/…
//	                 how browsers sign in and out, package login
//
// Every error is a problem as RFC 9457 has it.
//
// # Who may
//
// Everything below /v1 wants to know who asks, and the API then asks for that one's role
// (package access), but for what hosts ask each other: that they sign. The host's own token
// has every role: it is made at every start, unless the operator keeps one in a file, and
// lies in a file that only its owner can read. The other endpoints are open on a loopback
// address and on a socket; on any other address /metrics wants a token too, and /healthz
// and /readyz, which answer only yes or no, stay open for probes, as do the documents, which
// are the same on every host. Access.Open changes that.
//
// On a loopback address the Host header must be a name of this machine or an IP address, so
// that no web page can reach the server by pointing its own name at it.
package server
