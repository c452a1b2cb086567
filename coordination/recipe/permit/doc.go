// Package permit is a limit over a namespace: of the items that run under a key, at most so many run
// at once, whatever their jobs and hosts. It is a semaphore of the kind that Curator has.
//
// Each key is a node. Below it stand tickets: ephemeral nodes that the registry numbers. A ticket
// names the maximum of its job:
//
//	@-@limits/db-1/2-0000000017   the 17th ticket of db-1, of a job that allows two
//
// A ticket is granted while fewer tickets stand before it than the smallest maximum of itself and those
// before it. Only tickets with smaller numbers count, and of these none ever comes: a ticket that
// was granted once stays granted. So a host needs no lock. It makes a ticket, reads the line, and begins an item in
// a commit that demands the ticket and writes the item into it; the commit that completes the item deletes the ticket.
//
// A ticket ends with its host's session, and the host stops what runs before that. A host that
// waits watches the one ticket before its own. Only the first that waits watches the line: a ticket that
// goes wakes one host, not all.
package permit
