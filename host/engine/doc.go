// Package engine keeps one loop per job between the clock, the registry and the
// guests, and reports through events.
//
// # A term
//
// A term is the life of one registry session. [Host.Run] dials and runs every job under
// the session. When the session can no longer be trusted, Run stops all guests, joins
// all goroutines and dials again, with a new instance id. There is no state of an
// earlier session to repair.
//
//	dial ──► live (one loop per job) ──► lost: stop guests, join all ──► dial again
//	              │
//	              └── asked to stop: drain, leave the jobs, close ──► return
//
// # A job's loop
//
// A job has layers, each of which uses those below it and none above (job.go): what it
// shares with other goroutines, its access to the registry, its place among the hosts,
// its items, what begins and completes them, and the loop. A concern that needs little of
// that is a named field with its own methods, which get the rest as parameters; README.md
// lists them. All state except that of the first layer belongs to the goroutine in
// job.run. The loop wakes for a snapshot of the job's control nodes, for its mailbox, and
// for the clock. It then does everything that it can do now, in this order: write
// completions; withdraw if the host leaves or drains; join; check that the job still
// exists; fit schedule and module to the configuration in force; take at most one step of
// coordination (coordination.View.Reconcile), read its share, take over from crashed
// hosts; begin what is due; begin what is owed; save offsets. Then it sleeps until the
// next time at which it has work.
//
// # One fire
//
//		clock ──at──► tick ──► Begin: one commit ──► workers: guests ──► mailbox
//		                ▲                                                  │
//		   registry ──share──                     Complete: one commit ◄───┘
//
//	 1. tick: a scheduled instant is due. Several due instants are coalesced into one
//	    fire. If the host's share is changing, the instant waits until the share is read.
//	 2. Items of the share that are idle begin; for one that still runs a
//	    misfire is noted: it runs once more right after it ends.
//	 3. Begin: records, running marks and the host's list of runs, guarded by
//	    the share and by every item's record. What cannot begin says why.
//	 4. A goroutine per fire calls the listeners and runs the workers; a worker
//	    takes items one by one, each within a slot of the host (internal/slots), retries by the
//	    job's policy, and posts the result to the loop.
//	 5. Complete: the ends of all runs that are there, at once when nothing runs
//	    any more, else 50 ms after the first. An offset goes with its item.
//	 6. When the last item is settled the fire is closed and its use of the
//	    module ends. What is owed to an item (misfire, catch-up) begins.
//
// # Who waits for whom
//
//	goroutine         started in        ends when              joined by
//	the term          caller of Run     ctx or kill is done    the caller
//	a job's loop      term.reconcile    left, or session lost  term.run
//	a fire            runner.start      its workers are done   job.run
//	a worker          run.Fire.Run      no item is left        run.Fire.Run
//
// # Waits
//
// Nothing is waited for that only another process can do without a name, a
// [event.Wait], and a deadline. What a loop waits for it finds again each time it has
// done all that it can (waits.watch), so that no wait has to be ended by the code that
// began it; since when is kept as long as it is found again. Status shows it,
// and at the deadline one event; a scrape asks nothing of the registry.
//
// # Events
//
// Every fire and every item leaves events; an item that was due and did not
// run leaves one that says why. They are emitted in order, one at a time.
package engine
