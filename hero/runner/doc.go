// Package runner takes jobs and runs them: from the queues of the contexts that
// it is local to, and, where it has a node, from its topic on Mycelium.
//
// What it promises of a job from a queue:
//
//   - It is in a queue, in the runner's list, or ended: BLMOVE brings it from one to
//     the next, and one step records the end, sends the message that tells of it
//     and takes the key off the list.
//   - Its end is recorded once. A run that another program has ended meanwhile, or
//     whose job was dispatched anew, records nothing.
//   - A job whose runner died is found by the other runners of the context, which
//     miss its heartbeat, or by itself when it starts again. It is queued again within
//     its retries; then it is an error that says so. So a script may begin more than
//     once, as often as its retries allow.
//   - A job of a flow is tried again by the flow alone.
//
// A script type that has no interpreter here is not taken: it waits for another
// runner, and the log says so.
package runner
