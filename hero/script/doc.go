// Package script runs one script with a configured interpreter, which gets the script on its
// standard input. It promises:
//
//   - A run ends: at its timeout, at a stop, and at each of its limits, with a Reason. Timeout
//     and stop send SIGTERM first, and SIGKILL after Grace.
//   - A run ends as a whole. Every process of it is found by a mark that the kernel passes down
//     through fork, exec and setsid (see mark), whatever session it made and whatever it did
//     with its environment and its standard output. Processes that a script leaves running end
//     with it. If the runner itself is killed, the interpreter ends at once, and Sweep ends the
//     other processes later.
//   - The environment is that of the job, with a PATH, and a HOME and TMPDIR in a folder of its
//     own (0700) that is removed afterwards.
//   - Values of secret variables are masked in logs, output, result and reason.
//
// Without a Sandbox a script runs as the runner's user. A malicious one can remove its mark,
// signal the runner, and write to that user's files. With a Sandbox it runs as another user, in
// namespaces that end with it, without a network, and writes only to a bounded folder in memory.
// Linux only.
package script
