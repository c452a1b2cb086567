// Package api is the HTTP API: the operations of host/control/service under /v1, described by
// OpenAPI. Errors are problem details (RFC 9457); those about one part of a request
// name it.
//
// What only hosts ask each other lies under /v1/peer and is not described: it may change
// with any version.
package api
