// Package flow decides how a flow of jobs advances. A [State] is a value: an
// input and a time go in, the next state and what is to be done come out. There
// is no clock, no queue and no I/O here; the room that runs flows as sagas keeps
// the state and does what the acts say.
//
// The rules:
//
//   - A node is ready when all it depends on is completed and all its
//     prerequisites are met. Ready nodes are dispatched at once, in the order of
//     their ids.
//   - A node that was dispatched and did not begin within its queue timeout has
//     failed; so has one that runs longer than its timeout. A failure is tried again as often as the job's
//     retries say, after a pause that doubles.
//   - A node that failed for good aborts the flow: nothing new is dispatched,
//     what waits is cancelled, what runs may finish, and then the flow is in error.
//   - What speaks of an older attempt, or of a node that has ended, changes
//     nothing.
package flow
