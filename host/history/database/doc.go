// Package database keeps the histories of hosts in SQLite, PostgreSQL or MySQL (and MariaDB): one database for
// all hosts of a cluster, if it is a server.
//
// Records go through a [history.Feed] into a backlog, and from there into the database by one goroutine: a
// batch is one transaction. Records that the database does not take in time are spooled to files of JSON lines,
// up to a limit, and loaded later. Each transaction notes how far its writer has come, so that a batch whose
// commit had no answer is not written twice.
//
// The SQL of queries only narrows down what a filter wants; [history.Filter] decides, so that all stores find
// the same. A query looks through a limited number of rows and answers with what it has.
package database
