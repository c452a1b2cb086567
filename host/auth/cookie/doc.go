// Package cookie keeps sessions, and what a sign-in needs between two requests, in
// cookies that only hosts of the same cluster can make and read.
//
// A cookie's value is encrypted and authenticated (AES-256-GCM) with a key that is
// derived from the cluster's secret for each kind of cookie. A cookie's name ends with
// the cluster's id, so that the cookies of two clusters on one machine, whose ports
// browsers take for one site, do not overwrite each other. What a cookie says of a
// session is who signed in and how; what that user may do is looked up at each request.
package cookie
