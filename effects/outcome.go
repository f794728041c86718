package effects

import (
	"encoding/json"
	"time"

	"edda"
)

// outcome is what came of a command, before it is written down.
type outcome struct {
	kind    edda.Outcome
	payload any // of a success
	failure failure
	calls   int
	took    time.Duration
	// definite is set where the other side's answer leaves no doubt, whatever
	// came before.
	definite bool
}

// failure is the payload of a result that is no success.
type failure struct {
	Code     string          `json:"code"`
	Message  string          `json:"message"`
	Attempts int             `json:"attempts"`
	Duration string          `json:"duration"`
	Status   int             `json:"status,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`
}

func failed(code, message string) outcome {
	return outcome{kind: edda.Failed, failure: failure{Code: code, Message: message}}
}

func timedOut(code, message string) outcome {
	return outcome{kind: edda.TimedOut, failure: failure{Code: code, Message: message}}
}
