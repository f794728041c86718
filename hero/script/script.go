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

// ErrNoInterpreter says that this host runs no scripts of the type. Another may.
var ErrNoInterpreter = errors.New("no interpreter")

// ErrStopped is the cause to cancel a run's context with when a client asked for
// it. A run whose context ends otherwise was interrupted: it says nothing about
// the script.
var ErrStopped = errors.New("stopped")

// Reasons why a run was not well. Others are "exit <code>", "signal <NAME>" and
// "refused", for a script that was not begun.
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

// Script is one to run.
type Script struct {
	// ID names its log; runs of one id go to the same.
	ID     string
	Type   string // which interpreter
	Source string
	Env    map[string]string
	Secret []string // names of further variables whose values are masked
	// Context is the folder of its logs and temporary files: letters, digits,
	// '.', '_' and '-'.
	Context string
	Timeout time.Duration // 0 means the host's
	Who     string        // asked for it, for the audit record
	// Logs, where set, is called with every line that the script writes, as it is
	// written, with "stdout" or "stderr", masked and valid UTF-8, without its end.
	// It is never called concurrently, and the script waits for it.
	Logs func(stream, line string)
}

// RunResult is what became of a run.
type RunResult struct {
	OK     bool
	Reason string // why not: one of the constants, or exit and signal
	Detail string // more about it, for people: the last line of stderr, or the limit
	Code   int    // exit code; -1 where a signal ended it or it was not begun
	Output string // stdout: masked, valid UTF-8
	// Result is what to record: the object on the last line of stdout, else stdout
	// itself under "output"; where it was not well, with an "error".
	Result map[string]string
	Took   time.Duration
	Hash   string // SHA-256 of the source, hexadecimal
}

// Why is the reason with its detail, or nothing.
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

// hash is the script's name in the audit record.
func (s Script) hash() string {
	sum := sha256.Sum256([]byte(s.Source))
	return hex.EncodeToString(sum[:])
}

// refused tells what is wrong with a script, before anything is begun.
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

// badEnvironment names the first variable that no process can be given. It never
// shows a value.
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

// minimalPath is where interpreters look for programs.
const minimalPath = "/usr/local/bin:/usr/bin:/bin"

// environment is the job's, on top of what no program does without.
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
