// Package fence makes sure that the numbers of a namespace only grow.
//
// A registry's transaction numbers are fence tokens and name trigger rounds: both must only grow. In a registry
// that holds copied nodes they start over, and in one that was restored from its own backup they go back. So
// hosts remember the greatest number that they have seen ([Known]), and begin each session by asking which
// number the registry gives out now ([Enter]). If that is not above the known number, nothing begins until the
// namespace's base is raised: hosts add the base to all transaction numbers. A host that got the greater number
// from this registry itself raises the base; otherwise an operator does ([Adopt]).
//
// The base is in the data of the namespace's node. Every commit of a host checks the version of that node, so
// that no two hosts ever add different bases.
package fence
