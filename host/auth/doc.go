// Package auth decides who may do what to which jobs.
//
// A [Guard] asks its sources who sent a request: bearer tokens, session cookies,
// client certificates. The answer is a [Principal], which has roles, each for the jobs
// of some patterns, and goes along in the request's context ([From]). An operation asks
// [Require] first, before it looks whether the job exists, so that the answer is the
// same for a job that is there and for one that is not.
//
// The sources are in the rooms below: users and tokens of a file (users), cookies
// (cookie), OpenID Connect (oidc), certificates (certificates); what a browser needs to
// sign in is in login, and what every answer and request is held to in web.
package auth
