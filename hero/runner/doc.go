// Package runner runs jobs: from the queues of its contexts and, with a hub, from its topic
// on Mycelium. It promises of a job from a queue:
//
//   - The job is in a queue, in the runner's processing list, or ended. BLMOVE moves its
//     key, and one step records the end, sends the result message and removes the key.
//   - Its end is recorded once. A run records nothing if another program has ended the job
//     or dispatched it again.
//   - If a runner dies, the other runners of the context miss its heartbeat and take over
//     its jobs, as it does itself after a restart. A job is queued again within its
//     retries, and then ends in error. So a script may begin as often as its retries allow.
//   - Only the flow retries a job of a flow.
//
// A job whose script type has no interpreter here stays in its queue for another runner, and
// the log reports it.
package runner
