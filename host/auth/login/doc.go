// Package login has what a browser needs to sign in and out: passwords, login links and
// OpenID Connect, each of which becomes a session. It knows no HTML: the console gives it
// a function that shows a [Page].
package login
