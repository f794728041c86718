// Package flow decides how a flow of jobs advances. A [State] is a value: its methods take an
// input and a time, and return the next state and the acts to execute. The package has no
// clock, no queue and no I/O. hero/flowsaga stores the state, and hero/msgout does the acts.
//
// The rules:
//
//   - A node is ready when all its dependencies are completed and all its prerequisites
//     are met. Ready nodes are dispatched at once, in the order of their ids.
//   - A dispatched node that does not begin within its queue timeout fails; so does one that
//     runs longer than its timeout. A failure is retried as often as the job's retries
//     allow, after a pause that doubles.
//   - A node that fails for good aborts the flow: nothing new is dispatched, waiting nodes
//     are cancelled, running ones may finish, and then the flow is in error.
//   - A report of an older attempt, or of a node that has ended, changes nothing.
package flow
