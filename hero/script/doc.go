// Package script runs a script with a configured interpreter, which reads the script
// from its standard input. It promises:
//
//   - A run ends with a Reason: at its timeout, at a stop, and at each of its limits.
//     Timeout and stop send SIGTERM first, and SIGKILL after Grace.
//   - A run ends with all its processes. They carry a mark that the kernel passes on
//     through fork, exec and setsid (see mark), so neither a new session, nor another
//     environment, nor a closed standard output hides a process. When the runner is
//     killed, the interpreter ends at once, and Sweep ends the other processes later.
//   - The environment is the job's, with PATH, and with HOME and TMPDIR in a temporary
//     folder (mode 0700) that is removed after the run.
//   - Values of secret variables are masked in logs, output, result and reason.
//
// Without a Sandbox a script runs as the runner's user: a malicious script can change its
// mark, signal the runner, and write wherever that user may. With a Sandbox it runs as
// another user, in namespaces that end with the run, without a network, and writes only
// to a bounded folder in memory. Linux only.
package script
