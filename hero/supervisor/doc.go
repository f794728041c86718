// Package supervisor is the supervisor's API: a server that keeps its jobs in
// Redis and has registered runners run them, and the client that the router
// calls any supervisor with, over HTTP or over Mycelium.
//
// The server holds no truth in memory: a job that it accepted is a RunnerJob
// hash in the database of the job's context, and a supervisor that was started
// again answers for it. A job whose id exists with the same content is not run a
// second time; its recorded result is the answer. The server does not execute
// anything itself, and it verifies no signatures: it carries them through.
package supervisor
