// Package tree is the data of a job in the registry: the paths of its nodes ([Layout]), and how the data of
// each is read and written. Everything here is a pure value without access to the registry. Nodes may be edited
// outside wasmjob, so an unreadable node is treated as missing. No byte of it may change: hosts of other
// versions, and ElasticJob's, read and write the same nodes.
//
// # ElasticJob's tree, /{namespace}/{job}
//
//	(data of the root)           ElasticJob's job class, if there is one
//	config                       the configuration, YAML; a job without it was removed
//	servers/{ip}                 ENABLED or DISABLED: an operator's choice, kept over restarts
//	instances/{id}               ephemeral: takes part. id is {ip}@-@{token}, new for every life
//	leader/election/instance     ephemeral: the leader's id. Version 1: one of ours; 0: Java
//	leader/election/latch/…      a queue: who stands first may elect (Curator's recipe)
//	leader/failover/latch/…      the same for taking over, while Java hosts are in the job
//	leader/sharding/necessary    flag: reshard the items
//	leader/sharding/processing   ephemeral flag: a division of several commits is being made
//	leader/failover/items/{i}    a Java host's mark that item i waits for a taker
//	sharding/{i}                 set when the item is enabled: what came due until then is not owed
//	sharding/{i}/instance        the id of the item's owner
//	sharding/{i}/running         the id of who runs it; ephemeral without failover, else persistent
//	sharding/{i}/misfire         an instant came while it ran
//	sharding/{i}/disabled        an operator's mark: keeps its owner, does not begin; data: the word of
//	                             the program of ours that made it ([Word.Mark])
//	sharding/{i}/failover        ephemeral: the id of who repeats a crashed run
//	sharding/{i}/failovering     the same, persistent: it outlives the taker's crash
//	trigger                      its mzxid is the newest round; data: the round's arguments ([TriggerArgs])
//	trigger/{id}                 the instance is to run its items now; data if it is one of ours
//	guarantee/started|completed/{i}   the item has come to this point of the fire
//	systemTime/current           written to learn the registry's clock
//
// # Our tree, /{namespace}.wasmjob/{job}
//
//	leader                       version = the term; data: the leader's id
//	members                      ids of our hosts that joined and did not leave in good order
//	epoch                        raised with every division by a Java leader, and when that is undone
//	assignment                   what the last division was made from ([Division])
//	assignment/{id}              the host's share, as ranges: "0-3,7"
//	instances/{id}               ephemeral: READY or DRAINING, module digest, zone ([HostDetail])
//	runs/{id}                    what the host has begun and not completed ([Runs])
//	kill                         set with each kill of runs: hosts look at their items' records
//	listeners/{id}:{n}           ephemeral: a listener that has run for long, and that an operator
//	                             wants it to end ([Listening])
//	sharding/{i}                 the item's [Record]: owner, newest instant, begin, end, outcome,
//	                             and that an operator wants the run to end ([Kill])
//	sharding/ends                how fires have ended over all items, if other jobs come after
//	                             this one ([Ends])
//	sharding/queue               triggers that wait behind that of node trigger, if there was one ever
//	                             ([Queue])
//	sharding/backfill            past instants that are run again, while they are ([Backfill])
//	backfill                     how the last backfill has ended
//	after                        which triggers of other jobs have triggered this one, which comes
//	                             after them ([Chained])
//	offset/{i}                   how far the item's guest has come
//	definition                   the definition file as it was last applied; written again with
//	                             each edit of the configuration that a host records
//	superseded                   digests of those that were applied before it
//	servers                      since when which servers have had no instance
//	wanted                       what people want of the job ([Wanted]); it outlives the job
//	enabled                      set when some server may run the job and none could before: what
//	                             came due until then is not owed ([EnabledAt])
//	recorded                     the newest changes that are on record, so that no host that
//	                             sees one records it again
//
// Beside the jobs, in a node whose name no job can have:
//
//	@-@hosts                     the key by which the namespace's hosts know each other
//	@-@hosts/{id}                ephemeral: a host and where its API is ([ClusterDetail])
//	@-@signedout                 browsers' sessions that were signed out
//	@-@changes/{id}              the record of a change that was made without a host's API, until a
//	                             host has it in its history
//	@-@recorder                  ephemeral: a host takes these records
//	@-@limits/{key}/{max}-{n}    ephemeral: a host runs an item under a limit, or waits to; see package permit
//	@-@rates/{key}               when items began under a rate lately, and who is next; see package rate
//
// The node above them, /{namespace}.wasmjob, holds the number that is added to the registry's transaction
// numbers: 0 unless they have started over or gone back. Nodes below it that belong to no job include @-@alerts
// ([Alerts]), if hosts evaluate alerts.
//
// The second tree stands beside the first, not in it, because Java parses its own nodes strictly, takes every
// child of a namespace for a job, and is notified of every change below a job.
package tree
