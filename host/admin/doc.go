// Package admin is how people and machines look at a running host and steer
// it: a small HTTP server, the client that the command line uses, and the note
// by which the client finds the server by itself.
//
// # Endpoints
//
//	GET    /healthz                              200 while the process serves
//	GET    /readyz                               200 when the host is live, the plugins directory taken in and all its jobs joined, else 503
//	GET    /metrics                              Prometheus text
//	GET    /v1/status                            Report, as JSON
//	POST   /v1/jobs/{job}/trigger                a fire now
//	POST   /v1/jobs/{job}/enable, …/disable      all servers of the job
//	POST   /v1/enable, /v1/disable               the same for all jobs of this host
//	POST   /v1/jobs/{job}/items/{n}/enable, …/disable
//	DELETE /v1/jobs/{job}?purge=true             the job leaves the registry
//
// An operation that took effect answers 204. Every error is JSON with one field,
// error, a text for people: 400 for a malformed request, 401 without the token,
// 403 for a name in the Host header that is not this machine's, 404 for an
// unknown job, 503 while the host has no live registry session or the job's module
// is still being compiled, and for a trigger while the host drains.
//
// # Who may
//
// Everything below /v1 wants the token, as "Authorization: Bearer TOKEN". It is
// made at every start, unless the operator keeps one in a file, and lies
// in a file that only its owner can read. The other endpoints are open on a
// loopback address and on a socket; on any other address /metrics wants the
// token too, and /healthz and /readyz, which answer only yes or no, stay
// open for probes. There is no TLS: put a proxy before an address that is not
// loopback.
//
// On a loopback address the Host header must be localhost or an IP address, so
// that no web page can reach the server by pointing its own name at it.
package admin
