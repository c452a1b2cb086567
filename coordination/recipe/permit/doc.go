// Package permit limits how many items run at once under a key in a namespace, whatever their jobs and hosts.
// It is a semaphore like Curator's.
//
// Each key is a node. Below it stand tickets: ephemeral nodes that the registry numbers. A ticket names the
// maximum of its job:
//
//	@-@limits/db-1/2-0000000017   the 17th ticket of db-1, of a job that allows two
//
// A ticket is granted while fewer tickets stand before it than the smallest maximum of itself and those before
// it. Only tickets with smaller numbers count, and no new ticket has a smaller number: a granted ticket stays
// granted. So a host needs no lock. It makes a ticket, reads the line, and begins an item in a commit that
// demands the ticket and writes the item into it; the commit that completes the item deletes the ticket.
//
// A ticket ends with its host's session, and the host stops its runs before that. A host that waits watches the
// one ticket before its own. Only the first that waits watches the line: the end of a ticket wakes one host,
// not all.
package permit
