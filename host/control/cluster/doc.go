// Package cluster shows the whole cluster from any of its hosts: which hosts there are,
// what their jobs do, and what has run. A page costs the registry nothing: each host
// answers from what it knows anyway, and asks the others for what they know.
//
// A host that does not answer within [patience] is shown as silent, with what it said
// last. What hosts say is at most [freshness] old when it is asked for.
package cluster
