// Package runner takes jobs and runs them: from the queues of the contexts that it is local to,
// and, if it has a node, from its topic on Mycelium.
//
// It promises for a job from a queue:
//
//   - The job is in a queue, in the runner's list, or ended. BLMOVE moves it from one to the
//     next. One step records the end, sends the message about it and removes the key from the
//     list.
//   - Its end is recorded once. A run records nothing if another program has ended the job
//     meanwhile, or has dispatched it anew.
//   - A job of a dead runner is found by the other runners of the context, which miss its
//     heartbeat, or by the runner itself when it starts again. It is queued again within its
//     retries; then it ends with an error that says so. So a script may begin more than once, as
//     often as its retries allow.
//   - Only the flow retries a job of a flow.
//
// A job whose script type has no interpreter here is not taken: it waits for another runner,
// and the log says so.
package runner
