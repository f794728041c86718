// Package supervisor is the supervisor's API: a server that keeps its jobs in Redis and has
// registered runners run them, and the client by which the router calls any supervisor, over
// HTTP or over Mycelium.
//
// The server keeps no state in memory. An accepted job is a RunnerJob hash in the database of
// its context, and a restarted supervisor answers for it. A job whose id exists with the same
// content is not run a second time; its recorded result is the answer. The server executes
// nothing itself. It passes signatures through and does not verify them.
package supervisor
