package script

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ErrNoInterpreter reports that this host runs no scripts of the type. Another host may.
var ErrNoInterpreter = errors.New("no interpreter")

// ErrStopped is the cause with which the caller cancels a run's context on behalf of a
// client. With any other cause the run is Interrupted, which says nothing about the script.
var ErrStopped = errors.New("stopped")

// Reasons of a failed run. Further ones are "exit <code>" and "signal <NAME>". Refused is
// the reason of a script that was not started.
const (
	Timeout       = "timeout"
	Stopped       = "stopped"
	Interrupted   = "interrupted"
	OutputLimit   = "output limit"
	MemoryLimit   = "memory limit"
	CPULimit      = "cpu limit"
	FileSizeLimit = "file size limit"
	DiskLimit     = "disk limit"
	ProcessLimit  = "process limit"
	Refused       = "refused"
)

// Script is a script to run.
type Script struct {
	// ID names the log. Runs with the same ID append to the same log.
	ID     string
	Type   string // selects the interpreter
	Source string
	Env    map[string]string
	Secret []string // names of further variables whose values are masked
	// Context names the folder of logs and temporary files: letters, digits, '.', '_'
	// and '-'.
	Context string
	Timeout time.Duration // 0 means Limits.Timeout
	Who     string        // the caller, for the audit log
	// Logs, where set, is called with each line as the script writes it: the stream
	// ("stdout" or "stderr"), and the line without its end, masked and valid UTF-8. It is
	// never called concurrently, and blocks the script.
	Logs func(stream, line string)
}

// RunResult is the outcome of a run.
type RunResult struct {
	OK     bool
	Reason string // of a failure: one of the constants, "exit <code>" or "signal <NAME>"
	Detail string // for people: the last line of stderr, or the limit
	Code   int    // exit code; -1 after a signal, or for a script that was not started
	Output string // stdout: masked, valid UTF-8
	// Result has the values of the JSON object on the last line of stdout, else stdout
	// under "output". After a failure it has an "error" as well.
	Result map[string]string
	Took   time.Duration
	Hash   string // SHA-256 of the source, hexadecimal
}

// Why returns the reason with its detail; empty for a run that succeeded.
func (o RunResult) Why() string {
	if o.Detail == "" {
		return o.Reason
	}
	return o.Reason + ": " + o.Detail
}

const typeWords = "want lower case letters, digits, '_' and '-', at most 64"

var (
	typeName    = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// hash returns the SHA-256 that identifies the script in the audit log.
func (s Script) hash() string {
	sum := sha256.Sum256([]byte(s.Source))
	return hex.EncodeToString(sum[:])
}

// refused returns the reason why no host would run the script; empty where there is none.
func (s Script) refused(l Limits) string {
	switch {
	case !typeName.MatchString(s.Type):
		return fmt.Sprintf("%.40q is no script type: %s", s.Type, typeWords)
	case s.Context != "" && !contextName.MatchString(s.Context):
		return fmt.Sprintf("%.40q cannot be a context's folder", s.Context)
	case strings.TrimSpace(s.Source) == "":
		return "the script is empty"
	case over(len(s.Source), l.Source):
		return fmt.Sprintf("the script has %d bytes, more than %d", len(s.Source), l.Source)
	case strings.ContainsRune(s.Source, 0):
		return fmt.Sprintf("the script has a NUL at byte %d", strings.IndexByte(s.Source, 0))
	case s.Timeout < 0:
		return "its timeout is negative"
	}
	return s.badEnvironment()
}

// badEnvironment names the first variable that the kernel would refuse. It never shows a
// value.
func (s Script) badEnvironment() string {
	if len(s.Env) > maxVariables {
		return fmt.Sprintf("%d variables, more than %d", len(s.Env), maxVariables)
	}
	all := 0
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		size := len(name) + 1 + len(s.Env[name])
		all += size
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return fmt.Sprintf("%.40q is no name of a variable", name)
		case strings.ContainsRune(s.Env[name], 0):
			return fmt.Sprintf("variable %.40s has a NUL in its value", name)
		case size > maxVariable:
			return fmt.Sprintf("variable %.40s has %d bytes, more than %d: put it into a file", name, size, maxVariable)
		case all > maxEnvironment:
			return fmt.Sprintf("its variables have more than %d bytes together", maxEnvironment)
		}
	}
	return ""
}

const minimalPath = "/usr/local/bin:/usr/bin:/bin"

// environment returns the job's variables, on top of PATH, HOME and TMPDIR.
func (s Script) environment(folder string) []string {
	all := map[string]string{"PATH": minimalPath, "HOME": folder, "TMPDIR": folder}
	maps.Copy(all, s.Env)
	out := make([]string, 0, len(all))
	for name, value := range all {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}
