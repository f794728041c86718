// Package engine is the saga worker: it reads events from the streams, routes each to
// its sagas, and commits what the sagas decide.
//
// What it promises:
//
//   - An event commits in one change set with everything it changed and with the position
//     of its stream. Reading resumes from that position; there are no acks. A redelivered
//     event is dropped by its sequence.
//   - Events of one key are applied one at a time, in stream order. Different keys are
//     applied in parallel.
//   - A batch takes the inputs that wait, up to a bound. It lingers for more at most two
//     milliseconds. The next batch is evaluated while the last one commits.
//   - A timer due at T fires, in due order, once every stream is applied up to what was
//     stored at T.
//   - An event is applied after the timers of its key that were due before it was stored.
//     For a late timer the event waits a tenth of a second at most.
//   - A saga that has used up its share of a destination, for one tenant, falls behind the
//     streams alone. When a destination is full, new events stay in their streams. Results
//     and operators' commands are read all the same.
//   - A saga that is behind catches up in the order in which the streams stored the events,
//     beside all others. It rejoins the main line where that is.
//   - When the store fails, intake stops and evaluation resumes from the last durable
//     position once the store works again. Nothing committed is lost.
//   - A panic of a saga becomes a dead letter; the process goes on.
//
// What it refuses to do: decide anything (that is package saga), write anything
// but change sets, and read a clock for a saga.
//
// One goroutine, the loop, reads the source, runs the lanes that evaluate and encode a
// batch, submits the change sets and takes the store's answers. The end poller and the
// catch-up readers run beside it. ARCHITECTURE.md draws them with their queues and bounds.
package engine
