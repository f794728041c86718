// Package dispatcher implements the hero: protocol. A job is a Redis hash
// (hero:job:<id>), and clients and workers exchange job ids through lists. The package
// has the client, the worker, and the sweep that requeues the jobs of dead workers.
//
// It closes the gaps of the documents, and still works with a client or worker that was
// written from the documents alone:
//
//   - A worker moves an id with BLMOVE from its work queue to a list of its own, and
//     removes it in the step that records the result. So its death loses no job.
//   - Every step that decides (begin, end, requeue, release) is one Lua script that
//     checks the status first. A job with a recorded result never runs again, and a
//     result is dropped when a sweep has given its job to another worker.
//   - A job is dispatched after all its prerequisites and dependencies have finished,
//     even if another program's worker finishes them.
//   - Edda adds the fields attempts, worker_run and started_at to the hash, and leaves
//     other programs' fields alone.
//
// Keys of Edda beside the documented ones: hero:worker:<worker> (exists while a worker is
// alive), hero:workers (the leases of the workers), hero:taken:<worker>:<run> (the jobs
// that a worker has taken), hero:waiting, hero:waits:<job>, hero:waiters:<job> (which job
// waits for which), hero:seen (when a job was first seen to run at a foreign worker).
package dispatcher
