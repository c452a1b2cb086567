// Package users reads and edits the file that says who may do what: users with their
// passwords and certificates, tokens, and the groups of an OpenID Connect provider.
//
// A [Set] is what a file says, and never changes; [Live] is the set in force, which is
// replaced when the file changes. [Edit] changes a file as commands do it, and leaves
// comments and order as they are.
package users
