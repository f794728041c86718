package dispatcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"

	"edda/hero/script"
)

// Interpreter is the script type under which a worker's one interpreter is
// configured in its script.Host: jobs of this protocol do not say a type.
const Interpreter = "job"

// Scripts is the Executor of real scripts.
type Scripts struct{ Host *script.Host }

// Execute runs the job's script in a process group of its own.
func (s Scripts) Execute(ctx context.Context, j Job, line func(string)) Outcome {
	out, err := s.Host.Run(ctx, script.Script{
		ID: name(j.ID), Type: Interpreter, Source: j.Script, Env: j.EnvVars, Context: name(j.ContextID),
		Timeout: time.Duration(j.Timeout) * time.Second, Who: j.CallerID, Logs: func(_, text string) { line(text) },
	})
	switch {
	case err != nil: // it was not begun, which another run may be
		return Outcome{Error: err.Error()}
	case out.OK:
		return Outcome{OK: true, Output: strings.TrimSuffix(out.Output, "\n")}
	case out.Reason == script.Timeout:
		return Outcome{Error: ErrorTimeout, Output: out.Output}
	}
	return Outcome{Error: out.Why(), Output: out.Output, Final: out.Reason == script.Refused}
}

// plainName is what names a file as it is.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// name makes a foreign id one that may name a file.
func name(id string) string {
	if id == "" || plainName.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}
