// Package script runs one script with a configured interpreter, which gets it on
// its standard input. It promises:
//
//   - A run ends: at its timeout, when it is stopped, and at each of its limits,
//     with a Reason. Timeout and stop ask first (SIGTERM) and kill after Grace.
//   - A run ends whole. Every process that came of it is found by a mark that the
//     kernel hands down through fork, exec and setsid (see mark), whatever session
//     it made and whatever it did with its environment and its standard output.
//     What a script leaves running ends with it. Where the runner itself is
//     killed, the interpreter ends at once, and Sweep ends the other processes later.
//   - Its environment is what the job gives, with a PATH, and a HOME and TMPDIR in a
//     folder of its own (0700) that is removed afterwards.
//   - Values of secret variables are masked in logs, output, result and reason.
//
// What it does not promise without a Sandbox: a script runs as the user that the
// runner runs as. One that means harm can lower its mark, signal the runner, and
// write wherever that user may. With a Sandbox it is another user, in namespaces
// that end with it, without a network and with nothing to write to but a bounded
// folder in memory. Linux only.
package script
