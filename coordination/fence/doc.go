// Package fence keeps the numbers of a namespace growing.
//
// A registry's transaction numbers are fence tokens and name trigger rounds: both
// must only grow. They begin again in a registry whose nodes were copied from another
// one, and they go back in one that was restored from a backup of its own. So hosts
// remember the greatest number that they had ([Known]), and a session of a host begins
// by asking which number the registry gives out now ([Enter]). If that is not above
// what the host knows, nothing begins until the base of the namespace is raised: hosts
// add it to all transaction numbers. A host that had the greater number from this
// registry itself raises the base; otherwise an operator does ([Adopt]).
//
// The base is in the data of the namespace's node. Every commit of a host checks the
// version of that node, so that no two hosts ever add different bases.
package fence
