// Package copied knows a registry that was copied from another one, and adopts it.
//
// A registry's transaction numbers are fence tokens and name trigger rounds: both
// must only grow. In a registry whose nodes were copied from another one they
// begin again. Such a copy is known by its records: each names transactions that
// were before the one that wrote it, so that none of them can be higher. After
// an operator has adopted the copy, hosts add a number to all transactions, the
// base of the namespace.
package copied
