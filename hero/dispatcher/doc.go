// Package dispatcher speaks the hero: protocol: jobs are Redis hashes
// (hero:job:<id>), and a client and a worker meet on lists. It has the client, the
// worker, and the sweep that finds the jobs of workers that are gone.
//
// What the documents leave open is closed here, so that a client or worker that
// was written from the documents alone still works with ours:
//
//   - a worker moves an id with BLMOVE from its work queue to a list of its own,
//     and takes it from there in the same step that records the result, so that its
//     death at any moment loses nothing;
//   - every step that decides (begin, end, requeue, release) is one Lua script that
//     looks at the status first: a recorded result is never lost and never run
//     again, and the late result of a worker that lost its job to a sweep is dropped;
//   - a job is not dispatched before all its prerequisites and dependencies
//     finished, also when another program's worker finishes them;
//   - the fields attempts, worker_run and started_at of the hash are ours; fields of
//     others are left alone.
//
// Keys of ours beside the documented ones: hero:worker:<worker> (there while one
// lives), hero:workers (the leases of the workers), hero:taken:<worker>:<run> (what a
// worker has taken), hero:waiting, hero:waits:<job>, hero:waiters:<job> (which job waits
// for which), hero:seen (since when a job of a foreign worker is seen to run).
package dispatcher
