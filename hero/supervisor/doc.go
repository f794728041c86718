// Package supervisor implements the supervisor's API. Its server stores jobs in Redis and
// gives them to registered runners. The router calls any supervisor with its client, over
// HTTP or Mycelium.
//
// The server keeps all state in Redis: an accepted job is a RunnerJob hash in the database
// of the job's context, so a restarted supervisor answers for it. A job whose id exists
// with the same content does not run a second time; the recorded result is the answer. The
// server runs no script, and passes signatures on without verifying them.
package supervisor
