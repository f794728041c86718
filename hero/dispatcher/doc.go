// Package dispatcher implements the hero: protocol: jobs are Redis hashes (hero:job:<id>), and
// clients and workers exchange their ids through lists. It has the client, the worker, and the
// sweep that finds the jobs of dead workers.
//
// It fixes what the protocol's documents leave open, so that a client or worker written from
// the documents alone still works with it:
//
//   - A worker moves an id with BLMOVE from its work queue to a list of its own. The step that
//     records the result also removes the id from that list, so a worker that dies at any moment
//     loses nothing.
//   - Every step that decides (begin, end, requeue, release) is one Lua script that checks the
//     status first. A recorded result is never lost and never run again. The late result of a
//     worker that lost its job to a sweep is dropped.
//   - A job is not dispatched before all its prerequisites and dependencies have finished, also
//     if another program's worker finishes them.
//   - The fields attempts, worker_run and started_at of the hash belong to this package; it
//     leaves other programs' fields alone.
//
// Its own keys, besides the documented ones:
//
//	hero:worker:<worker>                                 exists while a process of the worker lives
//	hero:workers                                         the leases of the workers
//	hero:taken:<worker>:<run>                            ids that a worker has taken
//	hero:waiting, hero:waits:<job>, hero:waiters:<job>   which job waits for which
//	hero:seen                                            since when a foreign worker's job is seen to run
package dispatcher
