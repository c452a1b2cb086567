// Package step is how a step of the protocol talks to the registry. A step reads nodes by name, decides by pure
// functions, commits, and reads again after a conflict. The package bounds the conflicts of a step, sorts the
// errors of a commit into conflicts, unknown outcomes and failures, and cuts large commits into parts. It knows
// nothing of jobs.
package step
